//! Runs the C ABI tests of this folder against the provider, each as a test of its own. The provider is the library that
//! `SQUALL_ABI_PROVIDER` names, or one that cargo builds now, in the profile of this program.
//!
//! `runs.toml` lists them. Each program is compiled with `cc` when it is older than its sources. It finds the provider in a
//! directory of its own, as a user's programs do. Checkers (valgrind, AddressSanitizer, ThreadSanitizer) run the same
//! programs by `ci/run check abi`.
#![expect(clippy::disallowed_methods, reason = "a test runner, and no part of the provider")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, RwLock};
use std::time::SystemTime;
use std::{env, fs};

use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runs {
    run: Vec<Run>,
}

/// Programs that run in the same surroundings; see `runs.toml`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    name: String,
    programs: Vec<String>,
    env: BTreeMap<String, String>,
    #[serde(default)]
    alone: bool,
    #[serde(default)]
    nightly: bool,
    #[serde(default)]
    devices: bool,
    #[serde(default)]
    key: bool,
    #[serde(default = "own_directory")]
    directory: String,
    #[serde(default = "own_file")]
    file: String,
    counter: Option<String>,
    libfabrics: Option<Libfabrics>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Libfabrics {
    Both,
}

/// Libraries of device drivers, by their stand-in in `fabtests/devices`.
const DEVICES: [(&str, &str); 5] = [
    ("cuda", "libcuda.so.1"),
    ("cudart", "libcudart.so"),
    ("hip", "libamdhip64.so.5"),
    ("rocr", "libhsa-runtime64.so.1"),
    ("ze", "libze_loader.so.1"),
];

/// Seconds after which a program has hung, and is ended: less than the limit of all programs together
/// (`ci/squall_ci/checks/tests.py`), so that a failure names one.
const LIMIT: &str = "400";

/// Programs that look at times run while no other program of this process does.
static ALONE: RwLock<()> = RwLock::new(());

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let runs: Runs = toml::from_str(&fs::read_to_string(root.join("fabtests/abi/runs.toml"))?)?;
    let mut trials = Vec::new();
    for run in &runs.run {
        for program in &run.programs {
            trials.push(trial(run, program, None));
            if run.libfabrics == Some(Libfabrics::Both) {
                trials.push(trial(run, program, Some(root.join("target/venv-mpich/lib/mpich"))));
            }
        }
    }
    trials.push(Trial::test("every_program_has_a_run", move || every_program_has_a_run(&runs)));
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

/// A program in one of its surroundings; `libfabric` is the directory of another libfabric than the system's.
fn trial(run: &Run, program: &str, libfabric: Option<PathBuf>) -> Trial {
    let later = if libfabric.is_some() { "::later_libfabric" } else { "" };
    let alone = if run.alone { "alone::" } else { "" };
    let missing = libfabric.as_ref().is_some_and(|path| !path.join("libfabric.so.1").exists());
    let (run, program, nightly) = (run.clone(), program.to_owned(), run.nightly);
    let name = format!("{alone}{}::{program}{later}", run.name);
    let test = Trial::test(name, move || {
        let built = compile(&program)?;
        let (_shared, _exclusive) = match run.alone {
            true => (None, Some(ALONE.write())),
            false => (Some(ALONE.read()), None),
        };
        execute(&run, &built, libfabric.as_deref())
    });
    // `ci/run setup mpi` brings the other libfabric.
    test.with_ignored_flag(missing || nightly)
}

/// A directory for programs, libraries or statistics.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// Makes `target` by `make`, which is given another name to write to, unless it is newer than all its sources. Several
/// processes and threads may do that at once: the file appears when it is whole.
fn refresh(
    target: &Path,
    sources: &[PathBuf],
    make: impl FnOnce(&Path) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let newest = sources.iter().filter_map(|source| modified(source)).max();
    if modified(target).is_some_and(|at| newest.is_none_or(|newest| at > newest)) {
        return Ok(());
    }
    let parent = target.parent().ok_or("a file has a folder")?;
    fs::create_dir_all(parent)?;
    // Beside that folder, since libfabric loads whatever it finds in the provider's.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let fresh = parent.with_extension(format!("{}-{number}.new", std::process::id()));
    make(&fresh)?;
    fs::rename(&fresh, target)?;
    Ok(())
}

/// Runs a command to its end; its output is the error if it fails.
fn finish(command: &mut Command) -> Result<String, Failed> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    match output.status.code() {
        Some(0) => Ok(text),
        // The codes of timeout(1) for a program that it ended.
        Some(124 | 137) => {
            Err(format!("the program did not end within {LIMIT} s and was killed\n{text}").into())
        }
        _ => Err(format!("{}\n{text}", output.status).into()),
    }
}

fn sources(folder: &str, extension: &str) -> std::io::Result<Vec<PathBuf>> {
    let all = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fabtests").join(folder))?;
    let paths = all.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    Ok(paths)
}

/// Compiles a C source against libfabric.
fn cc(source: &Path, to: &Path, options: &[&str]) -> Result<(), Failed> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-std=gnu11", "-g", "-O1", "-Wl,--as-needed"]).args(options);
    command.arg("-o").arg(to).arg(source).args(["-lfabric", "-lpthread"]);
    finish(&mut command).map(drop)
}

fn compile(program: &str) -> Result<PathBuf, Failed> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fabtests/abi/{program}.c"));
    let mut all = sources("abi", "h")?;
    all.push(source.clone());
    let built = folder("abi").join(program).join(program);
    // What a program defines itself (ioctl) is what the libraries that it loads call.
    refresh(&built, &all, |to| cc(&source, to, &["-rdynamic"]))?;
    Ok(built)
}

/// Returns the name of the directory in which most runs find the provider.
fn own_directory() -> String {
    "provider".to_owned()
}

/// Returns the name of the provider's file in most runs.
fn own_file() -> String {
    "libsquall-fi.so".to_owned()
}

/// Returns the path of the provider's library, which cargo builds once if the environment names none: cargo builds a library
/// of C for no integration test.
fn built_provider() -> Result<PathBuf, Failed> {
    static BUILT: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        if let Some(named) = env::var_os("SQUALL_ABI_PROVIDER") {
            return Ok(named.into());
        }
        // This program is target/DIRECTORY/deps/abi-HASH.
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let directory =
            program.ancestors().nth(2).ok_or("cargo builds tests in a directory of their own")?;
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let profile = if name == "debug" { "dev" } else { &name };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "squall-fi",
            "--profile",
            profile,
        ]);
        finish(cargo.current_dir(env!("CARGO_MANIFEST_DIR"))).map_err(|failed| {
            format!(
                "cargo cannot build the provider: {}",
                failed.message().unwrap_or("no reason given")
            )
        })?;
        Ok(directory.join("libsquall_fi.so"))
    });
    Ok(BUILT.clone()?)
}

/// Makes the directory `name` that holds the provider alone, as libfabric wants it, in the file `file`.
fn provider(name: &str, file: &str) -> Result<PathBuf, Failed> {
    let built = built_provider()?;
    let directory = folder(name);
    refresh(&directory.join(file), std::slice::from_ref(&built), |to| {
        fs::copy(&built, to).map_err(|error| format!("{}: {error}", built.display()))?;
        Ok(())
    })?;
    Ok(directory)
}

fn devices() -> Result<PathBuf, Failed> {
    let directory = folder("devices");
    let headers = sources("devices", "h")?;
    for (name, library) in DEVICES {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fabtests/devices/{name}.c"));
        let all = [&headers[..], std::slice::from_ref(&source)].concat();
        let soname = format!("-Wl,-soname,{library}");
        refresh(&directory.join(library), &all, |to| {
            cc(&source, to, &["-shared", "-fPIC", &soname])
        })?;
    }
    Ok(directory)
}

/// Returns a file with a job key that only its owner may read. Tests run at the same time: it is written once.
fn job_key() -> Result<PathBuf, Failed> {
    static WRITTEN: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        let path = folder("keys").join(format!("{}.key", std::process::id()));
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = fs::create_dir_all(folder("keys"))
            .and_then(|()| options.open(&path))
            .and_then(|mut file| file.write_all(b"a key that is no secret\n"));
        written.map(|()| path).map_err(|error| format!("the job key cannot be written: {error}"))
    });
    Ok(WRITTEN.clone()?)
}

/// Runs a program, and looks at the statistics of its endpoints if a counter must have moved.
fn execute(run: &Run, program: &Path, libfabric: Option<&Path>) -> Result<(), Failed> {
    let mut libraries: Vec<PathBuf> = libfabric.map(Path::to_owned).into_iter().collect();
    if run.devices {
        libraries.push(devices()?);
    }
    libraries.extend(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths));
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", LIMIT]).arg(program);
    command.env("FI_PROVIDER_PATH", provider(&run.directory, &run.file)?).envs(&run.env);
    if !libraries.is_empty() {
        command.env("LD_LIBRARY_PATH", env::join_paths(libraries)?);
    }
    if run.key {
        command.env("FI_SQUALL_KEY_FILE", job_key()?);
    }
    let Some(counter) = &run.counter else { return finish(&mut command).map(drop) };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let statistics = folder("statistics").join(format!("{}-{name}", run.name));
    let _ = fs::remove_dir_all(&statistics);
    fs::create_dir_all(&statistics)?;
    command.env("FI_SQUALL_STATS", format!("json:{}/%h-%p-%e.json", statistics.display()));
    let output = finish(&mut command)?;
    let mut sum = 0.0;
    for file in fs::read_dir(&statistics)? {
        for line in fs::read_to_string(file?.path())?.lines().filter(|line| !line.trim().is_empty())
        {
            let endpoint: serde_json::Value = serde_json::from_str(line)?;
            sum += endpoint.get(counter).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        }
    }
    if sum > 0.0 {
        return Ok(());
    }
    Err(format!(
        "{output}\nno endpoint counted {counter}: the network was better than it should be"
    )
    .into())
}

fn every_program_has_a_run(runs: &Runs) -> Result<(), Failed> {
    for source in sources("abi", "c")? {
        let program = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !runs.run.iter().any(|run| run.programs.contains(&program)) {
            return Err(format!("{program}.c is in no run of runs.toml: add it to one").into());
        }
    }
    Ok(())
}
