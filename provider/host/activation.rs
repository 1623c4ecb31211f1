//! Decides whether the provider answers `fi_getinfo` in this process.
//!
//! A package installs squall into libfabric's own provider directory, from which every libfabric process loads it. There
//! the provider answers only if the user, the application or the administrator names it, so that installing the
//! package changes no job. From any other directory it always answers: setting FI_PROVIDER_PATH to that directory asks
//! for the providers in it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};

use crate::abi::errno::{Errno, Result};
use crate::host::announced;
use crate::host::libfabric::{self, installed_in};
use crate::host::logger::{self, USER};
use crate::host::param::{self, Activation};

/// The administrator's file, which is read only where squall is installed.
const FILE: &str = "/etc/squall.conf";
/// Largest number of bytes read of that file. Its one setting takes fewer than 20.
const LONGEST_FILE: u64 = 64 << 10;
/// Largest number of characters of a wrong line that a warning repeats.
const LONGEST_QUOTE: usize = 60;

/// Everything that decides whether to answer, except the hints of a call. It is read once in a process.
struct Setting {
    /// The directory that squall was loaded from, if that is libfabric's own.
    installed: Option<PathBuf>,
    /// Value of the variable FI_SQUALL_ENABLE.
    variable: Activation,
    /// The settings in the administrator's file, [`FILE`].
    file: FileSetting,
    /// A variable that lists libfabric providers names squall.
    named: bool,
}

/// The settings in the administrator's file, [`FILE`].
#[derive(Default)]
struct FileSetting {
    activation: Activation,
    /// Description of the first error in the file, if there is one.
    problem: Option<String>,
}

/// The reason why `fi_getinfo` returns nothing from this provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// The variable FI_SQUALL_ENABLE is `no`.
    Variable,
    /// The setting `enable` is `no` in the administrator's file, [`FILE`].
    File,
    /// Squall is in libfabric's own directory, and neither user nor application names it.
    Unnamed,
}

/// Decides whether to answer a call of `fi_getinfo` whose hints name the provider `hint`.
///
/// # Errors
/// `FI_ENODATA` if squall is disabled, or is installed and not named. The log says what to do: at the level of warnings
/// if squall is named, and of debugging output otherwise.
pub(crate) fn check(hint: Option<&str>) -> Result<()> {
    let setting = setting();
    let named = setting.named || hint.is_some_and(|hint| lists("squall", hint));
    let installed = setting.installed.as_deref();
    let decision = decide(installed.is_some(), setting.variable, setting.file.activation, named);
    if decision.is_ok() && hint.is_none() && announced::is_tcp() {
        report_last();
    }
    if decision.is_ok() || named {
        static REPORTED: Once = Once::new();
        REPORTED.call_once(|| {
            if let Some(problem) = &setting.file.problem {
                log::warn!(target: USER, "{problem}");
            }
        });
    }
    decision.map_err(|refusal| {
        let reason = explain(refusal, installed.unwrap_or(Path::new("")));
        if named {
            log::warn!(target: USER, "{reason}");
        } else {
            // Layered providers ask several times for each call of the application.
            static EXPLAINED: Once = Once::new();
            EXPLAINED.call_once(|| log::debug!("{reason}"));
        }
        Errno::NODATA
    })
}

/// Applies the rule: the variable comes before the file, the file before names, and only FI_SQUALL_ENABLE counts where
/// squall is not installed.
fn decide(
    installed: bool,
    variable: Activation,
    file: Activation,
    named: bool,
) -> core::result::Result<(), Refusal> {
    match (variable, file) {
        (Activation::No, _) => Err(Refusal::Variable),
        (Activation::Yes, _) => Ok(()),
        (Activation::Auto, _) if !installed => Ok(()),
        (Activation::Auto, Activation::No) => Err(Refusal::File),
        (Activation::Auto, Activation::Yes) => Ok(()),
        (Activation::Auto, Activation::Auto) if named => Ok(()),
        (Activation::Auto, Activation::Auto) => Err(Refusal::Unnamed),
    }
}

/// Returns why squall, installed in `directory`, does not answer, and what to do.
fn explain(refusal: Refusal, directory: &Path) -> String {
    match refusal {
        Refusal::Variable => {
            "fi_getinfo returns nothing: FI_SQUALL_ENABLE=no disables squall; unset it, or set it to auto"
                .to_owned()
        }
        Refusal::File => format!(
            "fi_getinfo returns nothing: `enable = no` in {FILE} disables squall; remove the line, or set \
             FI_SQUALL_ENABLE=yes"
        ),
        Refusal::Unnamed => format!(
            "fi_getinfo returns nothing: squall is installed in libfabric's own directory {} and nothing names it; set \
             FI_PROVIDER=squall or FI_SQUALL_ENABLE=yes, name it in the hints (fabric_attr->prov_name), or write \
             `enable = yes` into {FILE}",
            directory.display()
        ),
    }
}

fn setting() -> &'static Setting {
    static SETTING: OnceLock<Setting> = OnceLock::new();
    SETTING.get_or_init(|| {
        let installed = libfabric::own_path().and_then(|path| installed_in(&path));
        let file = installed.as_ref().map_or_else(FileSetting::default, |_| read(Path::new(FILE)));
        // libfabric's own reading of FI_PROVIDER includes its configuration file.
        let named = names("squall", variables())
            || param::provider_list().is_some_and(|list| lists("squall", &list));
        Setting { installed, variable: param::activation(), file, named }
    })
}

/// Reads the administrator's file. A file that is not there sets nothing.
fn read(path: &Path) -> FileSetting {
    let mut bytes = Vec::new();
    // Opening a pipe would block until a writer opens it, too.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    match file.and_then(|file| file.take(LONGEST_FILE).read_to_end(&mut bytes)) {
        Ok(_) => parse(&path.display().to_string(), &String::from_utf8_lossy(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => FileSetting::default(),
        Err(error) => FileSetting {
            problem: Some(format!(
                "cannot read {}: {error}; its settings have no effect",
                path.display()
            )),
            ..FileSetting::default()
        },
    }
}

/// Parses the text of the file `name`. Only the first wrong line is reported, because a file of another kind has
/// thousands.
fn parse(name: &str, text: &str) -> FileSetting {
    let mut setting = FileSetting::default();
    let mut found = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split_once('#').map_or(line, |(setting, _)| setting).trim();
        if line.is_empty() {
            continue;
        }
        let value = match line.split_once('=') {
            Some((key, value)) if key.trim() == "enable" => {
                Activation::from_text(value.trim()).ok()
            }
            _ => None,
        };
        match value.filter(|_| !found) {
            Some(value) => (setting.activation, found) = (value, true),
            None if setting.problem.is_none() => {
                let quote: String = line.chars().take(LONGEST_QUOTE).collect();
                setting.problem = Some(format!(
                    "{name} line {number} has no effect: {quote:?} is not a setting, or sets again what an earlier line \
                     set; write `enable = yes`, `enable = no` or `enable = auto` once, and # before comments"
                ));
            }
            None => {}
        }
    }
    setting
}

/// Prints, once in a process, that squall carries its messages although no variable names squall. libfabric offers
/// squall to every program that finds it in FI_PROVIDER_PATH. Programs that only list providers open no endpoint and
/// print nothing. Where squall is installed, it was named, and users of its copy for `tcp` have asked for that.
pub(crate) fn report_unnamed() {
    if setting().installed.is_none() && !announced::is_tcp() && is_unnamed(variables()) {
        logger::print(
            "messages go through squall, which libfabric found in FI_PROVIDER_PATH, although FI_PROVIDER does not name it: \
             set FI_PROVIDER=squall to keep it so, or unset FI_PROVIDER_PATH to have the provider that was used before",
        );
    }
}

/// Warns, once in a process, that an application that names no provider uses another one although the copy for `tcp` is
/// there. libfabric puts reliable datagrams of `tcp` in front of those of `tcp;ofi_rxm` (`ofi_reorder_info` in its
/// src/fabric.c). The copy has no connected endpoints, so there is no `tcp;ofi_rxm`, and its entries come last, behind
/// those of `udp;ofi_rxd`.
fn report_last() {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        if tcp_comes_last(variables(), param::provider_list()) {
            log::warn!(
                target: USER,
                "an application that takes libfabric's first provider does not use this copy of squall: FI_PROVIDER is \
                 not set, and then libfabric lists tcp behind udp;ofi_rxd; set FI_PROVIDER=tcp"
            );
        }
    });
}

/// Returns whether libfabric lists the copy for `tcp` last: `list`, which is FI_PROVIDER, has no value, and no variable of
/// an MPI names `tcp`.
fn tcp_comes_last(variables: impl Iterator<Item = Variable>, list: Option<String>) -> bool {
    list.is_none_or(|list| list.trim().is_empty()) && !names("tcp", variables)
}

/// Returns whether FI_PROVIDER_PATH alone brought squall into this process.
fn is_unnamed(variables: impl Iterator<Item = Variable> + Clone) -> bool {
    let mut paths = variables.clone().filter(|(name, _)| name == "FI_PROVIDER_PATH");
    paths.any(|(_, path)| !path.is_empty()) && !chooses(variables)
}

/// Returns whether the user has chosen squall, by a variable that names providers, by one of squall's own
/// variables, or by the directory with its copy for `tcp`.
pub(crate) fn is_chosen() -> bool {
    static CHOSEN: OnceLock<bool> = OnceLock::new();
    *CHOSEN.get_or_init(|| announced::is_tcp() || chooses(variables()))
}

/// Name and value of an environment variable.
type Variable = (String, String);

/// Returns all environment variables of the process.
fn variables() -> impl Iterator<Item = Variable> + Clone {
    let all: Vec<Variable> = std::env::vars_os()
        .filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        })
        .collect();
    all.into_iter()
}

/// Returns whether one of these variables shows that the user wants squall: it names squall, or is squall's own.
fn chooses(variables: impl Iterator<Item = Variable> + Clone) -> bool {
    variables.clone().any(|(name, _)| name.starts_with("FI_SQUALL_")) || names("squall", variables)
}

/// Returns whether one of these variables lists providers and `provider` among them. MPIs have variables of their own
/// that name providers: `OMPI_MCA_mtl_ofi_provider_include`, `I_MPI_OFI_PROVIDER`, `MPIR_CVAR_OFI_USE_PROVIDER`.
fn names(provider: &str, mut variables: impl Iterator<Item = Variable>) -> bool {
    variables.any(|(name, value)| {
        let lower = name.to_ascii_lowercase();
        let names_providers =
            lower.contains("provider") && lower != "fi_provider_path" && !lower.contains("exclude");
        names_providers && lists(provider, &value)
    })
}

/// Returns whether a list of providers names `provider`, in whatever case, as libfabric compares names. After `^` it
/// lists those that are not wanted. A layered provider has its core behind a semicolon.
fn lists(provider: &str, list: &str) -> bool {
    let mut names = list.split([',', ';']).map(str::trim);
    !list.starts_with('^') && names.any(|name| name.eq_ignore_ascii_case(provider))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use Activation::{Auto, No, Yes};

    #[test]
    fn installed_squall_answers_only_where_it_is_named() {
        let unnamed = Err(Refusal::Unnamed);
        let (variable, file) = (Err(Refusal::Variable), Err(Refusal::File));
        // Variable and file; the decisions: installed and unnamed, installed and named, elsewhere and unnamed.
        let table = [
            (Auto, Auto, [unnamed, Ok(()), Ok(())]),
            (Auto, Yes, [Ok(()), Ok(()), Ok(())]),
            (Auto, No, [file, file, Ok(())]),
            (Yes, Auto, [Ok(()), Ok(()), Ok(())]),
            (Yes, Yes, [Ok(()), Ok(()), Ok(())]),
            (Yes, No, [Ok(()), Ok(()), Ok(())]),
            (No, Auto, [variable; 3]),
            (No, Yes, [variable; 3]),
            (No, No, [variable; 3]),
        ];
        for (variable, file, decisions) in table {
            let cases = [(true, false), (true, true), (false, false)];
            let made = cases.map(|(installed, named)| decide(installed, variable, file, named));
            assert_eq!(made, decisions, "FI_SQUALL_ENABLE={variable:?}, enable = {file:?}");
        }
    }

    #[test]
    fn links_into_and_out_of_the_directory_are_followed() {
        let root = std::env::temp_dir().join(format!("squall-installed-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let [own, other] = ["libfabric", "opt"].map(|name| root.join(name));
        for directory in [&own, &other] {
            fs::create_dir_all(directory).expect("a folder");
            fs::write(directory.join("real.so"), "").expect("a file");
        }
        symlink(other.join("real.so"), own.join("link.so")).expect("a link");
        symlink(&own, root.join("alias")).expect("a link");
        let installed = |path: &str| installed_in(&root.join(path)).is_some();
        for path in ["libfabric/real.so", "libfabric/link.so", "libfabric/gone.so", "alias/real.so"]
        {
            assert!(installed(path), "{path}");
        }
        for path in ["opt/real.so", "opt/gone.so", "libfabric", "libfabric/opt/gone.so"] {
            assert!(!installed(path), "{path}");
        }
        fs::remove_dir_all(&root).expect("it is ours");
        assert!(installed_in(Path::new("real.so")).is_none());
    }

    #[test]
    fn a_wrong_line_of_the_file_is_reported_with_its_number() {
        let parsed = |text| {
            let setting = parse("squall.conf", text);
            (setting.activation, setting.problem)
        };
        for (text, activation) in [
            ("", Auto),
            ("# enable = yes\n", Auto),
            ("enable = yes\n", Yes),
            ("  enable=NO  ", No),
            ("\n# why\nenable = 1\r\n", Yes),
        ] {
            assert_eq!(parsed(text), (activation, None), "{text:?}");
        }
        for (text, activation, number) in [
            ("enabel = yes\n", Auto, 1),
            ("# why\n\nenable = perhaps\nport = 3\n", Auto, 3),
            ("enable = yes\nenable = no\n", Yes, 2),
            ("enable yes", Auto, 1),
            ("[squall]\nenable = yes\n", Yes, 1),
        ] {
            let (read, problem) = parsed(text);
            let expected = format!("squall.conf line {number} has no effect: ");
            assert!(
                problem.as_ref().is_some_and(|text| text.starts_with(&expected)),
                "{problem:?}"
            );
            assert_eq!(read, activation, "{text:?}");
        }
        let (_, problem) = parsed(&"x".repeat(10_000));
        assert!(problem.is_some_and(|text| text.len() < 300));
    }

    #[test]
    fn a_file_that_cannot_be_read_sets_nothing() {
        let path = std::env::temp_dir().join(format!("squall-conf-{}", std::process::id()));
        fs::write(&path, "enable = yes\n").expect("a file");
        assert_eq!(read(&path).activation, Yes);
        fs::remove_file(&path).expect("it is ours");
        let missing = read(&path);
        assert_eq!((missing.activation, missing.problem), (Auto, None));
        let folder = read(&std::env::temp_dir());
        assert_eq!(folder.activation, Auto);
        assert!(folder.problem.is_some_and(|text| text.starts_with("cannot read ")));
    }

    /// Returns variables as [`variables`] does.
    fn environment(all: &[(&str, &str)]) -> impl Iterator<Item = Variable> + Clone {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(own).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn who_names_squall_or_sets_one_of_its_variables_has_chosen_it() {
        let chosen = |name, value| chooses(environment(&[("HOME", "squall"), (name, value)]));
        for value in ["squall", "tcp,squall", "shm;squall", "Squall"] {
            assert!(chosen("FI_PROVIDER", value), "{value}");
        }
        for value in ["", "tcp", "^squall", "^tcp,squall", "squall2"] {
            assert!(!chosen("FI_PROVIDER", value), "{value}");
        }
        assert!(chosen("FI_SQUALL_IFAC", "eth0") && !chosen("FI_TCP_IFACE", "eth0"));
        assert!(chosen("OMPI_MCA_mtl_ofi_provider_include", "squall"));
        assert!(chosen("I_MPI_OFI_PROVIDER", "squall"));
        assert!(!chosen("OMPI_MCA_mtl_ofi_provider_exclude", "shm,squall"));
        assert!(!chosen("FI_PROVIDER_PATH", "squall"), "a directory of that name");
    }

    #[test]
    fn a_variable_of_squall_does_not_name_it() {
        assert!(!names("squall", environment(&[("FI_SQUALL_IFACE", "eth0")])));
        assert!(names(
            "squall",
            environment(&[("FI_SQUALL_IFACE", "eth0"), ("FI_PROVIDER", "squall")])
        ));
    }

    #[test]
    fn a_provider_path_alone_does_not_choose_squall() {
        let unnamed = |all: &[(&str, &str)]| is_unnamed(environment(all));
        let path = ("FI_PROVIDER_PATH", "/opt/squall");
        assert!(unnamed(&[("HOME", "/root"), path]) && unnamed(&[path, ("FI_PROVIDER", "^tcp")]));
        assert!(!unnamed(&[path, ("FI_PROVIDER", "squall")]));
        assert!(!unnamed(&[path, ("FI_SQUALL_IFACE", "eth0")]));
        assert!(!unnamed(&[("FI_PROVIDER_PATH", "")]) && !unnamed(&[("HOME", "/root")]));
    }

    #[test]
    fn tcp_comes_last_where_no_list_of_providers_names_it() {
        let last = |list: Option<&str>, name, value| {
            let variables = [("FI_PROVIDER_PATH", "/opt/tcp"), (name, value)];
            tcp_comes_last(environment(&variables), list.map(str::to_owned))
        };
        assert!(last(None, "HOME", "tcp") && last(Some(""), "HOME", "tcp"));
        assert!(last(None, "I_MPI_OFI_PROVIDER", "psm3"));
        assert!(!last(None, "I_MPI_OFI_PROVIDER", "tcp"));
        for list in ["tcp", "udp", "^udp", "shm,TCP"] {
            assert!(!last(Some(list), "HOME", "tcp"), "{list}");
        }
    }
}
