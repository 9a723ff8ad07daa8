//! Which compiler is taken, and what is said when none is.

use std::cell::RefCell;

use nightshift_protocol::machine::SandboxReport;

use super::*;

fn hardware(os: &str) -> Hardware {
    Hardware {
        host: "night".to_owned(),
        os: os.to_owned(),
        processor: "Example".to_owned(),
        cores: 2,
        features: vec!["avx2".to_owned()],
        memory_bytes: 1,
        last_level_cache_bytes: None,
        core: None,
    }
}

fn installed(names: &[&str]) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let path = folder.path().join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn ended(end: ProcessEnd, stdout: &str, stderr: &str) -> ProcessResult {
    ProcessResult {
        end,
        stdout: stdout.as_bytes().to_vec(),
        stderr: stderr.as_bytes().to_vec(),
        wall_ms: 1,
        peak_bytes: 1,
        sandbox: SandboxReport::default(),
    }
}

/// A compiler that reports this version and ends a compilation like this.
fn behaves(
    version: &str,
    compilation: Result<(), &str>,
) -> impl Fn(&JailedCommand) -> Result<ProcessResult, ProcessError> {
    move |command| {
        Ok(if command.args.iter().any(|arg| arg == "--version") {
            ended(ProcessEnd::Finished, version, "")
        } else {
            match compilation {
                Ok(()) => ended(ProcessEnd::Finished, "", ""),
                Err(stderr) => ended(ProcessEnd::Exited { status: 1 }, "", stderr),
            }
        })
    }
}

fn look(configured: Option<&str>, bin: &Path, os: &str, run: &Run<'_>) -> Result<Toolchain, ToolchainError> {
    let scratch = tempfile::tempdir().unwrap();
    find(configured, &[bin.to_path_buf()], &hardware(os), (scratch.path(), None), run)
}

#[test]
fn the_first_compiler_in_order_is_taken() {
    let bin = installed(&["clang++", "c++"]);
    let toolchain = look(None, bin.path(), "Debian", &behaves("Example 12\nmore\n", Ok(()))).unwrap();
    assert_eq!(toolchain.program, "c++");
    assert_eq!(toolchain.version, "Example 12");
    assert_eq!(toolchain.path, bin.path().join("c++").display().to_string());
    assert_eq!(toolchain.flags, flags());
}

#[test]
fn a_configured_compiler_is_taken_by_name_and_by_path() {
    let bin = installed(&["g++", "clang++"]);
    let run = behaves("clang version 19", Ok(()));
    assert_eq!(look(Some("clang++"), bin.path(), "", &run).unwrap().program, "clang++");
    let path = bin.path().join("clang++").display().to_string();
    assert_eq!(look(Some(&path), Path::new("/nowhere"), "", &run).unwrap().path, path);
}

#[test]
fn without_a_compiler_the_error_names_the_command_that_installs_one() {
    let bin = installed(&[]);
    for (os, command) in [("Debian GNU/Linux 12", "apt-get install g++"), ("Alpine Linux v3", "apk add g++")] {
        let error = look(None, bin.path(), os, &behaves("", Ok(()))).unwrap_err();
        assert_eq!(error.code(), "toolchain.no_cpp_compiler");
        assert!(error.to_string().contains(command), "{error}");
    }
}

#[test]
fn a_configured_compiler_that_is_missing_is_not_replaced_by_another() {
    let bin = installed(&["g++"]);
    let error = look(Some("g++-99"), bin.path(), "", &behaves("x", Ok(()))).unwrap_err();
    assert_eq!(error.code(), "toolchain.no_cpp_compiler");
    let message = error.to_string();
    assert!(message.contains(&format!("`g++-99` was not found in {}", bin.path().display())), "{message}");
    assert!(message.contains("`worker.cpp_compiler`"), "{message}");
    let message = look(Some("/no/g++"), bin.path(), "", &behaves("x", Ok(()))).unwrap_err().to_string();
    assert!(message.contains("`/no/g++` was not found: correct"), "{message}");
}

#[test]
fn a_compiler_without_cpp20_is_too_old() {
    let bin = installed(&["g++"]);
    for complaint in [
        "g++: error: unrecognized command line option '-std=c++20'; did you mean '-std=c++2a'?",
        "error: invalid value 'c++20' in '-std=c++20'",
        "probe.cpp:3:10: fatal error: concepts: No such file or directory",
    ] {
        let error = look(None, bin.path(), "Debian", &behaves("g++ 7.5", Err(complaint))).unwrap_err();
        assert_eq!(error.code(), "toolchain.too_old", "{complaint}");
        assert!(error.to_string().contains("g++ 7.5"), "{error}");
    }
}

#[test]
fn a_compiler_that_cannot_link_is_broken_and_says_why() {
    let bin = installed(&["g++"]);
    let stderr = "/usr/bin/ld: cannot find -lstdc++: No such file or directory\ncollect2: error: ld returned 1";
    let error = look(None, bin.path(), "", &behaves("g++ 12", Err(stderr))).unwrap_err();
    assert_eq!(error.code(), "toolchain.broken");
    assert!(error.to_string().contains("-lstdc++"), "{error}");
}

#[test]
fn a_newer_compiler_later_in_the_order_helps_out() {
    let bin = installed(&["g++", "clang++"]);
    let seen = RefCell::new(Vec::new());
    let old = behaves("g++ 7.5", Err("unrecognized command line option '-std=c++20'"));
    let new = behaves("clang version 19", Ok(()));
    let run = |command: &JailedCommand| {
        seen.borrow_mut().push(command.program.clone());
        if command.program.ends_with("clang++") { new(command) } else { old(command) }
    };
    assert_eq!(look(None, bin.path(), "", &run).unwrap().program, "clang++");
    assert!(seen.borrow().iter().any(|program| program.ends_with("g++")));
}

#[test]
fn a_compiler_is_proven_once_as_long_as_it_stays_the_same() {
    let (bin, scratch, proofs) = (installed(&["g++"]), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let find = |version: &str, compilation: Result<(), &str>| {
        let places = (scratch.path(), Some(proofs.path()));
        find(None, &[bin.path().to_path_buf()], &hardware("Debian"), places, &behaves(version, compilation)).is_ok()
    };
    assert!(!find("Example 12", Err("broken")) && !find("Example 12", Err("broken")), "what fails is not kept");
    assert!(find("Example 12", Ok(())) && find("Example 12", Err("not asked")));
    assert!(!find("Example 13", Err("another version is asked")));
    std::fs::write(bin.path().join("g++"), "#!/bin/sh\n# another file\n").unwrap();
    assert!(!find("Example 12", Err("another file is asked")));
}

#[test]
fn another_processor_or_version_is_another_fingerprint() {
    let base = fingerprint("g++", "12", &flags(), &hardware(""));
    assert_eq!(base, fingerprint("g++", "12", &flags(), &hardware("another system")));
    assert_ne!(base, fingerprint("g++", "13", &flags(), &hardware("")));
    let mut other = hardware("");
    other.features.push("avx512f".to_owned());
    assert_ne!(base, fingerprint("g++", "12", &flags(), &other));
}

#[test]
fn a_compiler_outside_the_system_brings_its_folder_along() {
    assert!(readable_folders(Path::new("/usr/bin/g++")).is_empty());
    assert_eq!(readable_folders(Path::new("/opt/gcc-15/bin/g++")), [PathBuf::from("/opt/gcc-15")]);
    assert_eq!(readable_folders(Path::new("/opt/tools/g++")), [PathBuf::from("/opt/tools")]);
}

#[test]
fn no_flag_changes_numerics_beyond_contraction() {
    let flags = flags();
    assert!(!flags.iter().any(|flag| flag.contains("fast-math") || flag.contains("Ofast") || flag.contains("unsafe")));
}
