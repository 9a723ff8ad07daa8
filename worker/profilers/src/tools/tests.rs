//! Which tools are found, and what is said when none is.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;
use crate::tests::ended;
use nightshift_sandbox::process::{ProcessError, ProcessResult};

/// A system in which these programs and libraries exist.
fn system(programs: &[&str], libraries: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, mode) in programs.iter().map(|name| (name, 0o755)).chain(libraries.iter().map(|name| (name, 0o644))) {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    root
}

#[expect(clippy::unnecessary_wraps, reason = "it stands for something that can fail")]
fn says(command: &JailedCommand) -> Result<ProcessResult, ProcessError> {
    let printed = match command.program.file_name().unwrap().to_str().unwrap() {
        "nsys" => "NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0\n",
        "ncu" => {
            "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\nVersion 2025.3.1.0 (build \
             36398880) (public-release)\n"
        }
        _ => "NVIDIA (R) Compute Sanitizer\nVersion 2025.3.1.0 (build 1) (public-release)\n",
    };
    Ok(ended(ProcessEnd::Finished, printed, ""))
}

fn look(root: &TempDir, search_path: &[PathBuf], library_path: &[PathBuf], run: &Run<'_>) -> Profilers {
    let scratch = tempfile::tempdir().unwrap();
    Profilers::find_below(root.path(), search_path, library_path, scratch.path(), run)
}

#[test]
fn tools_are_found_where_installers_put_them_and_tell_their_versions() {
    let root = system(
        &[
            "opt/nvidia/nsight-systems/2025.3.2/bin/nsys",
            "opt/nvidia/nsight-compute/2025.3.1/ncu",
            "usr/local/cuda-13.0/bin/compute-sanitizer",
        ],
        &[],
    );
    let found = look(&root, &[], &[], &says);
    assert_eq!(found.nsys.unwrap().version, "2025.3.2.474");
    assert_eq!(found.ncu.unwrap().version, "2025.3.1.0");
    assert_eq!(found.compute_sanitizer.unwrap().version, "2025.3.1.0");
}

#[test]
fn the_search_path_comes_before_the_installers_and_the_newest_version_first() {
    let root = system(&["mine/nsys", "usr/local/cuda-9.2/bin/ncu", "usr/local/cuda-13.0/bin/ncu"], &[]);
    let found = look(&root, &[root.path().join("mine"), PathBuf::from("relative")], &[], &says);
    assert_eq!(found.nsys.unwrap().path, root.path().join("mine/nsys"));
    assert_eq!(found.ncu.unwrap().path, root.path().join("usr/local/cuda-13.0/bin/ncu"));
}

#[test]
fn what_is_not_there_says_where_to_get_it() {
    let root = system(&[], &["usr/local/cuda/bin/ncu"]);
    let found = look(&root, &[], &[], &says);
    assert!(found.nsys.as_ref().unwrap_err().remedy.contains("nsight-systems-cli"));
    assert!(
        found.ncu.as_ref().unwrap_err().reason.contains("not installed"),
        "a file that cannot be executed is no tool"
    );
    assert!(found.compute_sanitizer.as_ref().unwrap_err().remedy.contains("nvidia-cuda-sanitizer-api"));
    assert!(found.all_answered(), "nothing changes by itself");
}

const CARRIED: &str = "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys";

#[test]
fn the_nsys_that_nsight_compute_carries_needs_a_library() {
    let root = system(&[CARRIED], &[]);
    let missing = look(&root, &[], &[], &says).nsys.unwrap_err();
    assert!(missing.reason.contains("libdw.so.1") && missing.remedy.contains("libdw1"), "{missing:?}");

    let root = system(&[CARRIED], &["usr/lib/x86_64-linux-gnu/libdw.so.1"]);
    let tool = look(&root, &[], &[], &says).nsys.unwrap();
    assert!(tool.library_path.is_empty());
    // The whole of Nsight Compute is needed for a report, not only the folder of the program.
    let compute = root.path().join("opt/nvidia/nsight-compute/2025.3.1").canonicalize().unwrap();
    assert!(tool.folders.contains(&compute), "{:?}", tool.folders);

    let root = system(&[CARRIED], &["elsewhere/libdw.so.1"]);
    let elsewhere = root.path().join("elsewhere");
    let tool = look(&root, &[], std::slice::from_ref(&elsewhere), &says).nsys.unwrap();
    assert_eq!(tool.library_path, [elsewhere]);
}

#[test]
fn a_tool_that_does_not_answer_makes_room_for_the_next() {
    let root = system(&["a/nsys", "b/nsys"], &[]);
    let asked = RefCell::new(Vec::new());
    let run = |command: &JailedCommand| {
        asked.borrow_mut().push(command.program.clone());
        if command.program.starts_with(root.path().join("a")) {
            let said =
                "nsys: error while loading shared libraries: libfoo.so.3: cannot open shared object file: No such file";
            return Ok(ended(ProcessEnd::Exited { status: 127 }, "", said));
        }
        says(command)
    };
    let folders = [root.path().join("a"), root.path().join("b")];
    assert_eq!(look(&root, &folders, &[], &run).nsys.unwrap().path, folders[1].join("nsys"));
    let missing = look(&root, &folders[..1], &[], &run).nsys.unwrap_err();
    assert!(missing.reason.contains("needs the library libfoo.so.3"), "{missing:?}");
    assert_eq!(asked.borrow().len(), 3);
}

#[test]
fn all_that_a_tool_prints_instead_of_its_version_is_told() {
    let root = system(&["a/nsys", CARRIED], &["usr/lib/x86_64-linux-gnu/libdw.so.1"]);
    let run = |command: &JailedCommand| {
        let said = if command.program.starts_with(root.path().join("a")) {
            "no installation found"
        } else {
            "Dynamic exception type: boost::filesystem::filesystem_error\nstd::exception::what: read_symlink: \"/proc/self/exe\"\n"
        };
        Ok(ended(ProcessEnd::Exited { status: 1 }, "", said))
    };
    let missing = look(&root, &[root.path().join("a")], &[], &run).nsys.unwrap_err();
    for part in ["no installation found", "filesystem_error", "/proc/self/exe", "host/target-linux-x64/nsys"] {
        assert!(missing.reason.contains(part), "{}", missing.reason);
    }
}

#[test]
fn what_is_no_version_is_no_answer() {
    for (end, said) in [
        (ProcessEnd::Finished, ""),
        (ProcessEnd::Finished, "usage: nsys [global_options] 3.x"),
        (ProcessEnd::Finished, "10..2 a.b.c 1.2"),
        (ProcessEnd::Exited { status: 1 }, "Version 1.2.3"),
        (ProcessEnd::TimedOut { limit_ms: 20_000 }, "Version 1.2.3"),
    ] {
        let root = system(&["a/nsys"], &[]);
        let run = |_: &JailedCommand| Ok(ended(end.clone(), said, ""));
        let missing = look(&root, &[root.path().join("a")], &[], &run).nsys.unwrap_err();
        assert!(missing.reason.contains("does not answer"), "{missing:?}");
        // Only one that had too little time may answer later.
        assert_eq!(missing.did_not_answer, matches!(end, ProcessEnd::TimedOut { .. }), "{missing:?}");
    }
}

#[test]
fn a_library_that_is_missing_is_told_by_its_name() {
    for (printed, library) in [
        (
            "x: error while loading shared libraries: libdw.so.1: cannot open shared object file: No such",
            Some("libdw.so.1"),
        ),
        ("/opt/a/libdw.so.1: cannot open shared object file", Some("libdw.so.1")),
        (": cannot open shared object file", None),
        ("nothing of the kind", None),
    ] {
        assert_eq!(missing_library(printed), library);
    }
}
