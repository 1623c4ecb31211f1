//! Preparation of a job: the environment and the command line with which every rank uses squall, and
//! refusal of what contradicts it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::launchers::{Launcher, MPI_IMPLEMENTATIONS, MpiImplementation};
use super::switches::Switches;
use crate::doctor::environment::{variable, variables_of};
use crate::provider;

/// Environment variable with the names of the providers that libfabric offers (`FI_PROVIDER`).
const PROVIDERS: &str = "FI_PROVIDER";
/// Variable that makes each process report its use of squall.
const REPORT: &str = "FI_SQUALL_REPORT";
/// Environment variable that says whether the provider answers applications; with `no`, it never
/// does.
const ENABLE: &str = "FI_SQUALL_ENABLE";
/// Options with which launchers pass no variables on, or those of a list alone.
const PASSES_FEW: &[&str] = &["-genvnone", "-envnone", "-genvlist", "-envlist"];
/// Option and variable of `srun` with the variables that it passes on.
const EXPORT: &str = "--export";
const EXPORT_VARIABLE: &str = "SLURM_EXPORT_ENV";

/// Names and values of environment variables.
pub(crate) type Variables = BTreeMap<String, String>;

/// A job that is ready to be started: its command and its environment variables.
pub(crate) struct PreparedJob {
    pub(crate) command: Vec<OsString>,
    pub(crate) variables: Variables,
}

/// Prepares a job. With `all`, messages between ranks of one host go through squall, too.
/// `emulator` has the variables that attach endpoints to an emulated network.
///
/// # Errors
/// The job cannot use squall, with the reason and what to do.
pub(crate) fn prepare(
    words: &[OsString],
    all: bool,
    switches: &Switches,
    emulator: Variables,
) -> Result<PreparedJob, String> {
    let program = words.first().ok_or("no command: squall run -- mpiexec -n 4 ./app")?;
    find(program)?;
    let launcher = Launcher::of(Path::new(program))?;
    let mut variables = variables(launcher, all, switches)?;
    variables.extend(emulator);
    // Ranks of other hosts must report, too.
    variables.insert(REPORT.to_owned(), "yes".to_owned());
    let command = command(launcher, words, &variables)?;
    Ok(PreparedJob { command, variables })
}

/// Returns the variables with which jobs of these MPIs use squall. With `all`, messages between ranks
/// of one host go through squall, too. Variables that the user has set to a value that serves as well
/// are not in the list.
///
/// # Errors
/// The environment contradicts a variable, an option is not valid, or the provider cannot be loaded.
pub(super) fn variables(
    launcher: Launcher,
    all: bool,
    switches: &Switches,
) -> Result<Variables, String> {
    let mut variables = Variables::new();
    for mpi in launcher.mpis() {
        for (name, value) in mpi.required {
            set_for_mpi(&mut variables, launcher, mpi, (name, value))?;
        }
        let for_all_messages = if all { mpi.for_all_messages } else { &[] };
        let free = mpi.preferred.iter().chain(for_all_messages);
        for (name, value) in free.filter(|(name, _)| variable(name).is_none()) {
            variables.insert((*name).to_owned(), (*value).to_owned());
        }
    }
    for (name, value) in switches.variables()? {
        if let Some(other) = variable(name).filter(|other| *other != value) {
            return Err(format!(
                "{name}={other} contradicts the option that sets it to {value}: unset {name}, or leave the option out"
            ));
        }
        variables.insert(name.to_owned(), value);
    }
    if let Some(no) =
        variable(ENABLE).filter(|value| ["no", "0", "false", "off"].contains(&value.as_str()))
    {
        return Err(format!("{ENABLE}={no} disables squall: unset {ENABLE}"));
    }
    if let (Launcher::Slurm, Some(list)) = (launcher, variable(EXPORT_VARIABLE))
        && !exports_all(&list)
    {
        return Err(format!(
            "{EXPORT_VARIABLE}={list} keeps variables from the ranks that squall needs: export {EXPORT_VARIABLE}=ALL"
        ));
    }
    if check_providers(variable(PROVIDERS).as_deref())? {
        variables.insert(PROVIDERS.to_owned(), "squall".to_owned());
    }
    variables.insert(provider::PATH.to_owned(), provider::search_path()?);
    Ok(variables)
}

/// Adds a variable that an MPI needs, unless the user has set it.
///
/// # Errors
/// The user has set it to another value, and the job is certainly of this MPI.
fn set_for_mpi(
    variables: &mut Variables,
    launcher: Launcher,
    mpi: &MpiImplementation,
    (name, value): (&str, &str),
) -> Result<(), String> {
    match variable(name) {
        None => {
            variables.insert(name.to_owned(), value.to_owned());
        }
        Some(other) if other != value && matches!(launcher, Launcher::Mpi(_)) => {
            return Err(format!(
                "{name}={other} keeps {} from using squall, which needs {name}={value}: unset {name}",
                mpi.name
            ));
        }
        Some(_) => {}
    }
    Ok(())
}

/// Checks the user's FI_PROVIDER. Returns whether it is to be set.
///
/// # Errors
/// The variable leaves squall out.
fn check_providers(providers: Option<&str>) -> Result<bool, String> {
    let Some(providers) = providers else { return Ok(true) };
    let (names, excludes) =
        providers.strip_prefix('^').map_or((providers, false), |names| (names, true));
    let named = names.split([',', ';']).any(|name| name == "squall");
    if named != excludes {
        return Ok(!named);
    }
    Err(format!(
        "{PROVIDERS}={providers} leaves squall out: unset {PROVIDERS}, or add squall to it"
    ))
}

/// Returns the command, with options that pass the variables to other hosts where the launcher needs
/// them.
///
/// # Errors
/// Words of the command contradict a variable.
fn command(
    launcher: Launcher,
    command: &[OsString],
    variables: &Variables,
) -> Result<Vec<OsString>, String> {
    let [program, words @ ..] = command else {
        return Err("no command: squall run -- mpiexec -n 4 ./app".to_owned());
    };
    if !matches!(launcher, Launcher::Program) {
        check_words(launcher, words, variables)?;
    }
    let mut options = Vec::new();
    if let Launcher::Mpi(MpiImplementation { exports_by_option: true, .. }) = launcher {
        // The user's own settings must be the same on all hosts, too.
        let own = variables_of("FI_").into_iter().map(|(name, _)| name);
        let mut names: Vec<String> = own.chain(variables.keys().cloned()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            options.extend([OsString::from("-x"), name.into()]);
        }
    }
    let mut prepared = vec![program.clone()];
    prepared.extend(options.iter().cloned());
    for word in words {
        prepared.push(word.clone());
        // Programs of one job stand between colons, and the options of Open MPI 5 are those of one program.
        if word == ":" {
            prepared.extend(options.iter().cloned());
        }
    }
    Ok(prepared)
}

/// Refuses words that contradict a variable: options of the launcher in the forms `-genv NAME VALUE` and `--mca NAME VALUE`,
/// and anywhere `NAME=VALUE`, which env(1) sets, too.
fn check_words(
    launcher: Launcher,
    words: &[OsString],
    variables: &Variables,
) -> Result<(), String> {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let words: Vec<String> = words.iter().map(text).collect();
    let own = are_launchers(&words);
    for (i, word) in words.iter().enumerate() {
        let before = if i > 0 && own[i] { words[i - 1].as_str() } else { "" };
        let exported = match word.split_once('=') {
            Some((EXPORT, list)) => Some(list),
            None if word == EXPORT => words.get(i + 1).map(String::as_str),
            _ => None,
        };
        let exported = exported.filter(|_| matches!(launcher, Launcher::Slurm));
        let passes_few =
            PASSES_FEW.contains(&word.as_str()) || exported.is_some_and(|list| !exports_all(list));
        if own[i] && passes_few {
            return Err(format!(
                "{word} keeps variables from the ranks that squall needs: leave it out"
            ));
        }
        let mca = ["--mca", "-mca", "--gmca", "-gmca"].contains(&before);
        let name = if mca { format!("OMPI_MCA_{word}") } else { word.clone() };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (name, words.get(i + 1).cloned()),
        };
        let is_setting = ["-genv", "-env", "--genv", "--env"].contains(&before);
        if let (Some(value), Some(wanted)) = (value, variables.get(&name))
            && value != *wanted
            && !is_preferred(&name)
            // A script is a word, too.
            && !value.contains(char::is_whitespace)
            && (mca || word.contains('=') || is_setting)
        {
            return Err(format!(
                "{name}={value} on the command line contradicts {name}={wanted}, with which ranks use squall: leave it out"
            ));
        }
    }
    Ok(())
}

/// Returns for each word whether it is the launcher's own: an option, or the value of one. A program and its arguments
/// follow, up to a colon. Which options have values is not known for all launchers, so the word behind an option is
/// its value unless it can be run.
fn are_launchers(words: &[String]) -> Vec<bool> {
    let (mut own, mut after_option) = (true, false);
    let classify = |word: &String| {
        if word == ":" {
            (own, after_option) = (true, false);
            return true;
        }
        let is_option = word.starts_with('-');
        own = own && (is_option || after_option && find(word.as_ref()).is_err());
        after_option = is_option && !word.contains('=');
        own
    };
    words.iter().map(classify).collect()
}

/// Returns whether a variable only makes an MPI faster, so that the user may choose another value.
fn is_preferred(name: &str) -> bool {
    MPI_IMPLEMENTATIONS
        .iter()
        .flat_map(|mpi| mpi.preferred)
        .any(|(preferred, _)| *preferred == name)
}

/// Returns whether `srun` passes all variables on with this list.
fn exports_all(list: &str) -> bool {
    list.split(',').any(|name| name == "ALL")
}

/// Finds the file of a program as execvp(3) does.
///
/// # Errors
/// The program does not exist or is not executable.
pub(super) fn find(program: &OsStr) -> Result<PathBuf, String> {
    let name = Path::new(program);
    if name.components().count() > 1 {
        return match is_program(name) {
            true => Ok(name.to_owned()),
            false if name.exists() => {
                Err(format!("{}: not an executable file; chmod +x makes it one", name.display()))
            }
            false => Err(format!("{}: no such program", name.display())),
        };
    }
    let folders = variable("PATH").unwrap_or_default();
    let found =
        folders.split(':').map(|folder| Path::new(folder).join(name)).find(|file| is_program(file));
    found.ok_or_else(|| {
        format!("{}: no such program in PATH; load its module, or give its path", name.display())
    })
}

/// Returns whether a file exists and may be executed.
pub(super) fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::launchers::recognise;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn set(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn open_mpi_passes_variables_by_option_and_others_do_not() {
        let variables = set(&[("FI_PROVIDER", "squall"), ("OMPI_MCA_pml", "cm")]);
        let job = words("sh -np 2 ./app");
        let open_mpi = Launcher::Mpi(recognise("mpirun (Open MPI) 5.0").expect("known"));
        let prepared = command(open_mpi, &job, &variables).expect("fine");
        let prepared: Vec<_> = prepared.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(prepared[0], "sh");
        assert_eq!(prepared[prepared.len() - 3..], ["-np", "2", "./app"]);
        let text = prepared.join(" ");
        assert!(text.contains("-x FI_PROVIDER ") && text.contains("-x OMPI_MCA_pml "), "{text}");
        let two = words("sh -n 1 ./one : -n 1 ./two");
        let prepared = command(open_mpi, &two, &variables).expect("fine").join(OsStr::new(" "));
        let prepared = prepared.to_string_lossy();
        let of_each: Vec<usize> =
            prepared.split(" : ").map(|of_one| of_one.matches("-x FI_PROVIDER ").count()).collect();
        assert_eq!(of_each, [1, 1], "{prepared}");
        let mpich = Launcher::Mpi(recognise("HYDRA").expect("known"));
        assert_eq!(command(mpich, &job, &variables).expect("fine"), job);
        assert_eq!(command(Launcher::Slurm, &job, &variables).expect("fine"), job);
    }

    #[test]
    fn contradictions_on_the_command_line_are_refused() {
        let variables = set(&[
            ("FI_PROVIDER", "squall"),
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mpi_yield_when_idle", "0"),
            ("I_MPI_FABRICS", "ofi"),
        ]);
        let mpi = Launcher::Mpi(&MPI_IMPLEMENTATIONS[0]);
        for (launcher, job, says) in [
            (
                mpi,
                "sh --mca pml ob1 ./app",
                "OMPI_MCA_pml=ob1 on the command line contradicts OMPI_MCA_pml=cm",
            ),
            (mpi, "sh -x FI_PROVIDER=tcp ./app", "contradicts FI_PROVIDER=squall"),
            (mpi, "sh -n 2 env FI_PROVIDER=tcp ./app", "contradicts FI_PROVIDER=squall"),
            (mpi, "sh -genv I_MPI_FABRICS shm ./app", "contradicts I_MPI_FABRICS=ofi"),
            (mpi, "sh -genvnone -n 2 ./app", "keeps variables from the ranks"),
            (mpi, "sh -n 2 ./app : -envnone -n 2 ./app", "keeps variables from the ranks"),
            (Launcher::Slurm, "sh -n 2 --export NONE ./app", "keeps variables from the ranks"),
            (Launcher::Slurm, "sh -v --export=PATH,HOME ./app", "keeps variables from the ranks"),
        ] {
            let refused = command(launcher, &words(job), &variables).expect_err(job);
            assert!(refused.contains(says), "{job}: {refused}");
        }
        for (launcher, fine) in [
            (Launcher::Slurm, "sh --export=ALL,A=1 ./app"),
            (mpi, "sh --mca pml cm ./app"),
            // Only a matter of speed.
            (mpi, "sh --mca mpi_yield_when_idle 1 ./app"),
            (mpi, "sh -x FI_PROVIDER ./app I_MPI_FABRICS shm"),
            // The options are the application's.
            (mpi, "sh -n 1 ./app --export vtk"),
            (mpi, "sh --export vtk ./app"),
            (mpi, "sh -n 1 -l sh -genvnone"),
            (mpi, "sh -n 1 ./app --mca pml ob1 -env I_MPI_FABRICS shm"),
            (Launcher::Slurm, "sh --mpi=pmix ./app --export vtk"),
            (Launcher::Slurm, "sh -n 4 ./app --export=vtk"),
            (Launcher::Slurm, "sh --ntasks 4 --unbuffered sh --export=vtk"),
        ] {
            assert!(command(launcher, &words(fine), &variables).is_ok(), "{fine}");
        }
    }

    #[test]
    fn programs_that_cannot_be_started_are_refused() {
        for (program, says) in [
            ("/no/such/mpiexec", "/no/such/mpiexec: no such program"),
            ("no-such-launcher", "no such program in PATH"),
            ("/etc/passwd", "not an executable file"),
        ] {
            let refused = find(OsStr::new(program)).expect_err(program);
            assert!(refused.contains(says), "{program}: {refused}");
        }
        assert!(find(OsStr::new("sh")).is_ok());
    }

    #[test]
    fn a_choice_of_providers_must_have_squall() {
        assert_eq!(check_providers(None), Ok(true));
        assert_eq!(check_providers(Some("tcp;squall")), Ok(false));
        assert_eq!(check_providers(Some("^tcp")), Ok(true));
        for bad in ["tcp", "^squall", "^tcp,squall"] {
            let refused = check_providers(Some(bad)).expect_err(bad);
            assert!(
                refused.starts_with(&format!("FI_PROVIDER={bad} leaves squall out")),
                "{refused}"
            );
        }
    }
}
