//! Programs that cannot run in virtual time, because the time library does not answer their time functions.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::abi::{ET_DYN, ET_EXEC, PT_INTERP};
use elf::endian::AnyEndian;

use super::preparation::{find, is_program};

/// Word between the programs of a command that starts several (MPMD).
const NEXT_PROGRAM: &str = ":";
/// Section of the programs of Go with their versions, which stays when symbols are removed.
const GO_SECTION: &str = ".go.buildinfo";
/// Beginning of the file names of dynamic loaders, which are no dynamic programs themselves.
const LOADER: &str = "ld-";

/// Checks the programs that a job names: that of its command, and the first one behind it of each part of the command, which
/// is the launcher's or a wrapper's.
///
/// # Errors
/// A program is static, or one of Go, so that its clocks would show real time.
pub(super) fn check_programs(words: &[OsString]) -> Result<(), String> {
    let command = words.first().and_then(|word| find(word).ok());
    let parts = words.get(1..).unwrap_or_default().split(|word| word == NEXT_PROGRAM);
    let programs =
        parts.filter_map(|part| part.iter().map(PathBuf::from).find(|word| is_program(word)));
    for program in command.into_iter().chain(programs) {
        if let Some(why) = why_real_time(&program) {
            return Err(format!(
                "{} cannot run in virtual time: {why}; run it without --virtual, in the emulator's real time",
                program.display()
            ));
        }
    }
    Ok(())
}

/// Returns why the clocks of a program would show real time; `None` for a script, and for a program that loads libraries.
fn why_real_time(program: &Path) -> Option<&'static str> {
    let is_loader =
        program.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LOADER));
    let mut elf = ElfStream::<AnyEndian, _>::open_stream(File::open(program).ok()?).ok()?;
    if is_loader || ![ET_EXEC, ET_DYN].contains(&elf.ehdr.e_type) {
        return None;
    }
    if let Ok(Some(_)) = elf.section_header_by_name(GO_SECTION) {
        return Some("it is a Go program, which reads the kernel's clock itself");
    }
    let is_dynamic = elf.segments().iter().any(|segment| segment.p_type == PT_INTERP);
    (!is_dynamic)
        .then_some("it is static, and does not load the library that answers its time functions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Returns a program of 64 bits with a segment of this type, and a section of this name.
    fn program(segment: u32, section: &str) -> Vec<u8> {
        const HEADER: u64 = 64;
        let (segments, sections) = (HEADER, HEADER + 56);
        let names = sections + 2 * 64;
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        for half in [ET_EXEC, 62] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.extend(1u32.to_le_bytes());
        for place in [0, segments, sections] {
            bytes.extend(place.to_le_bytes());
        }
        bytes.extend(0u32.to_le_bytes());
        // Sizes and numbers of headers, and the section with the names of sections.
        for half in [HEADER as u16, 56, 1, 64, 2, 1] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.extend(segment.to_le_bytes());
        bytes.resize(sections as usize + 64, 0);
        // The name of this section is the only one.
        for word in [0u32, 3] {
            bytes.extend(word.to_le_bytes());
        }
        for long in [0, 0, names, section.len() as u64 + 1, 0, 1, 0] {
            bytes.extend(long.to_le_bytes());
        }
        bytes.extend(section.bytes().chain([0]));
        bytes
    }

    /// Returns what is wrong with a program of these bytes.
    fn judge(name: &str, bytes: &[u8]) -> Option<&'static str> {
        let file = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::write(&file, bytes).expect("a temporary file");
        let why = why_real_time(&file);
        std::fs::remove_file(&file).expect("a temporary file");
        why
    }

    #[test]
    fn static_programs_and_those_of_go_are_recognised() {
        let go = Some("it is a Go program, which reads the kernel's clock itself");
        let fixed =
            Some("it is static, and does not load the library that answers its time functions");
        assert_eq!(judge("dynamic", &program(PT_INTERP, ".text")), None);
        assert_eq!(judge("static", &program(1, ".text")), fixed);
        assert_eq!(judge("go", &program(1, GO_SECTION)), go);
        assert_eq!(judge("dynamic-go", &program(PT_INTERP, GO_SECTION)), go);
        assert_eq!(judge("ld-linux.so", &program(1, ".text")), None);
        assert_eq!(judge("script", b"#!/bin/sh\n"), None);
        assert_eq!(judge("cut", &program(1, ".text")[..70]), None);
    }

    #[test]
    fn the_program_of_each_part_of_a_command_is_checked() {
        let folder = std::env::temp_dir().join(format!("programs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let file = |name: &str, segment| {
            let file = folder.join(name);
            std::fs::write(&file, program(segment, ".text")).expect("a temporary file");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o700)).expect("own file");
            file.into_os_string()
        };
        let (good, bad) = (file("good", PT_INTERP), file("bad", 1));
        let check = |words: &[&OsString]| {
            let words: Vec<_> = words.iter().map(|word| (*word).clone()).collect();
            check_programs(&words)
        };
        let (launcher, n, next) =
            (OsString::from("env"), OsString::from("-n"), OsString::from(NEXT_PROGRAM));
        assert_eq!(check(&[&launcher, &n, &good, &bad]), Ok(()), "an argument of the program");
        for words in [&[&bad][..], &[&launcher, &n, &bad], &[&launcher, &good, &next, &n, &bad]] {
            let why = check(words).expect_err("it is static");
            assert!(why.contains("bad cannot run in virtual time: it is static"), "{why}");
            assert!(
                why.ends_with("; run it without --virtual, in the emulator's real time"),
                "{why}"
            );
        }
        std::fs::remove_dir_all(&folder).expect("a temporary folder");
    }
}
