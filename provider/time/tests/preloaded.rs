//! Runs programs under the preloaded library: a C program that has a table in place of the
//! provider's, and Python in real time.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Returns the library. Cargo puts it beside the tests that it builds.
fn library() -> PathBuf {
    let library = env::current_exe().expect("a path").with_file_name("libsquall_time.so");
    assert!(library.is_file(), "{} is missing: cargo did not build the library", library.display());
    library
}

fn finish(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    output
}

/// Returns the compiled C program.
#[allow(clippy::disallowed_methods)] // who builds chooses the compiler
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("squall-time-program");
        let modified = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
        if modified(&program) >= modified(&source) {
            return program;
        }
        // Through a new name: programs of several profiles may run at the same time.
        let new = program.with_extension(std::process::id().to_string());
        let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-std=gnu11", "-g", "-O1", "-o"]);
        finish(command.arg(&new).arg(source).args(["-lpthread", "-lrt", "-ldl"]));
        std::fs::rename(&new, &program).expect("both are in one directory");
        program
    })
}

/// Runs a test of the C program. A library that does not wait in virtual time would let some of
/// them wait for ever.
fn run(test: &str) {
    run_words(&[test]);
}

fn run_words(words: &[&str]) {
    let program = program();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "120", "env"]);
    command.arg(format!("LD_PRELOAD={}", library().display())).arg(program).args(words);
    finish(&mut command);
}

#[test]
fn a_table_is_checked_and_registered() {
    run("registration");
}

#[test]
fn clocks_show_virtual_time() {
    run("clocks");
}

#[test]
fn sleeps_wait_in_virtual_time() {
    run("sleeps");
}

#[test]
fn a_yield_reaches_the_kernel_if_the_provider_says_so() {
    run("yields");
}

#[test]
fn poll_has_a_virtual_timeout() {
    run("poll");
}

#[test]
fn select_has_a_virtual_timeout() {
    run("select");
}

#[test]
fn epoll_has_a_virtual_timeout() {
    run("epoll");
}

#[test]
fn waits_for_conditions_lose_no_signal() {
    run("conditions");
}

#[test]
fn locks_have_a_virtual_timeout() {
    run("locks");
}

#[test]
fn futexes_wait_for_what_is_left() {
    run("futex");
}

#[test]
fn descriptors_of_timers_are_readable_at_virtual_times() {
    run("timer-descriptors");
}

#[test]
fn timers_raise_signals_at_virtual_times() {
    run("timer-signals");
}

#[test]
fn timeouts_of_sockets_are_reported() {
    run("sockets");
}

#[test]
fn the_counter_shows_virtual_time() {
    run("counter");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_executed_program_has_the_library_and_the_trap() {
    for how in ["execl", "execlp", "execle", "few-words", "execv", "execvp", "fexecve"] {
        run_words(&["execution", how]);
    }
}

#[test]
fn a_wait_continues_in_real_time_when_virtual_time_ends() {
    run("end");
}

#[test]
fn threads_begin_at_the_time_of_their_creators() {
    run("threads");
}

#[test]
fn a_forked_child_is_in_real_time() {
    run("fork");
}

#[test]
fn a_process_without_a_table_is_in_real_time() {
    run("real");
}

#[test]
fn python_runs_in_real_time() {
    let script = "
import select, threading, time
begin = time.monotonic()
time.sleep(0.001)
select.select([], [], [], 0.001)
threading.Event().wait(0.001)
threading.Thread(target=time.sleep, args=(0.001,)).start()
assert time.monotonic() - begin >= 0.003
assert time.time() > 1.7e9
print(threading.Lock().acquire(timeout=0.001))
";
    let mut command = Command::new("python3");
    let output = finish(command.env("LD_PRELOAD", library()).args(["-c", script]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
