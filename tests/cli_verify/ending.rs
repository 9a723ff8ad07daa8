//! How `nightshift verify` ends at a signal, and what it leaves.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{document, expect_right, folder_with, processes, right, stderr, stdout, verify};

/// Maximum time until a program runs that has to be built first.
const MAX_START: Duration = Duration::from_mins(2);
/// Maximum time between a signal and the end of the command.
const MAX_END: Duration = Duration::from_secs(30);
/// Maximum time between the end of the command and the end of its children, which would run for a minute.
const MAX_CLEANUP: Duration = Duration::from_secs(30);

/// Looks at a command that waits, 20 ms apart, until it is taken for one.
const QUIET_LOOKS: u32 = 50;

/// Returns a program that gives its thread this name and never returns.
fn endless(name: &str) -> String {
    format!(
        r#"#include "nightshift.h"
#include <pthread.h>
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) {{
    pthread_setname_np(pthread_self(), "{name}");
    for (volatile int64_t i = 0;; i = i + 1) {{}}
}}
"#
    )
}

/// Returns whether a thread of this name runs on this machine.
fn runs(name: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let threads = processes.filter_map(|process| std::fs::read_dir(process.path().join("task")).ok()).flatten();
    threads
        .filter_map(Result::ok)
        .any(|thread| std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|found| found.trim_end() == name))
}

/// Waits until this holds, for at most this long. Returns whether it does.
fn holds_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    holds()
}

/// Returns the processes below this one, with their processor times in ticks.
fn work_of(root: u32) -> Vec<(processes::Process, Vec<String>)> {
    let times = |process: &processes::Process| -> Vec<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id)).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        fields.skip(11).take(2).map(str::to_owned).collect()
    };
    processes::descendants(root).into_iter().map(|process| (process.clone(), times(&process))).collect()
}

/// A command that judges a program which never returns.
struct Endless {
    folder: TempDir,
    child: Child,
    /// The processes that the command started.
    tree: Vec<processes::Process>,
    is_running: bool,
}

impl Endless {
    /// Starts the command and waits until the program `endless.cpp` runs.
    fn start(mark: &str, args: &[&str]) -> Self {
        // The kernel cuts names of threads after 15 bytes.
        let name = format!("{mark}{}", std::process::id());
        let folder = folder_with(&[("endless.cpp", &endless(&name)), ("right.cpp", &right(2))]);
        let file = folder.path().join("gaussian/task.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}\n[limits]\ncall_timeout_ms = 60000\n")).unwrap();
        let temporary = folder.path().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        for open in [folder.path(), &temporary] {
            // A program may run as another user.
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = Self::command(&folder, args);
        let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        holds_within(MAX_START, || runs(&name) || child.try_wait().unwrap().is_some());
        let tree = processes::descendants(child.id());
        let is_running = runs(&name) && !tree.is_empty();
        Self { folder, child, tree, is_running }
    }

    /// Returns the command with folders of its own for what it writes.
    fn command(folder: &TempDir, args: &[&str]) -> Command {
        let mut command = verify(folder.path(), args);
        command
            .arg("--json")
            .env("TMPDIR", folder.path().join("tmp"))
            .env("NIGHTSHIFT_WORKER__CACHE_DIR", folder.path().join("cache"));
        command
    }

    /// Sends a signal to the command's process group, waits for its end and that of its processes, and returns what it said.
    #[expect(clippy::disallowed_methods, reason = "the test sends a signal")]
    fn end_by(self, signal: &str) -> (TempDir, Output) {
        let Self { folder, mut child, tree, is_running } = self;
        let id = child.id();
        if is_running {
            assert!(Command::new("kill").args([signal, "--", &format!("-{id}")]).status().unwrap().success());
        }
        let has_ended = holds_within(MAX_END, || child.try_wait().unwrap().is_some());
        if !has_ended {
            processes::kill_tree(id);
        }
        let output = child.wait_with_output().unwrap();
        let said = format!("{}\n{}", stdout(&output), stderr(&output));
        assert!(is_running, "the program did not start: {said}");
        assert!(has_ended, "the command did not end at the signal: {said}");
        let are_gone = holds_within(MAX_CLEANUP, || !tree.iter().any(processes::Process::is_alive));
        assert!(are_gone, "processes survived the command: {tree:?}");
        (folder, output)
    }
}

/// Returns the files in the folders for temporary files.
fn left_files(folder: &Path) -> Vec<PathBuf> {
    let folders = [folder.join("tmp"), folder.join("cache/scratch")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Sends the signal of Ctrl-C, as a terminal does. Examines how the command ends and what it leaves.
fn interrupt(mark: &str, args: &[&str]) {
    let (folder, output) = Endless::start(mark, args).end_by("-INT");
    let said = format!("{}\n{}", stdout(&output), stderr(&output));
    assert_eq!(left_files(folder.path()), Vec::<PathBuf>::new(), "files are left");
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(document(&output)["error"]["code"], "command.interrupted", "{said}");
}

#[test]
fn what_a_killed_judgement_leaves_is_removed_by_the_next_one() {
    let (folder, _) = Endless::start("killed", &["gaussian", "endless.cpp"]).end_by("-KILL");
    assert!(!left_files(folder.path()).is_empty(), "a killed command removes nothing");
    expect_right(&mut Endless::command(&folder, &["gaussian", "right.cpp"]));
    assert_eq!(left_files(folder.path()), Vec::<PathBuf>::new(), "files are left");
}

#[test]
fn a_signal_ends_the_judgement_of_a_program_and_leaves_nothing_behind() {
    interrupt("judge", &["gaussian", "endless.cpp"]);
}

#[test]
fn a_signal_ends_a_command_that_waits_while_another_one_times_a_program() {
    let folder = folder_with(&[("right.cpp", &right(2))]);
    let devices = folder.path().join("cache/devices");
    std::fs::create_dir_all(&devices).unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let path = devices.join(format!("quiet-{}", boot.trim()));
    let quiet = std::fs::File::create(&path).unwrap();
    // As a confirmation of another command does: compilers and programs of this one stop, and others do not start.
    quiet.lock_shared().unwrap();
    let mut command = Endless::command(&folder, &["gaussian", "right.cpp"]);
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It notices the lock once a process of it runs: from then on nothing below it computes, starts or ends.
    let (mut before, mut has_started, mut quiet_looks) = (Vec::new(), false, 0);
    let is_running = holds_within(MAX_START, || {
        let now = work_of(child.id());
        has_started |= !now.is_empty();
        quiet_looks = if now == before { quiet_looks + 1 } else { 0 };
        before = now;
        has_started && quiet_looks >= QUIET_LOOKS
    });
    let tree = processes::descendants(child.id());
    let (_, output) = Endless { folder, child, tree, is_running }.end_by("-INT");
    drop(quiet);
    assert_eq!(output.status.code(), Some(130), "{}\n{}", stdout(&output), stderr(&output));
}

#[test]
fn a_signal_ends_the_check_of_the_program_to_compare_with() {
    interrupt("against", &["gaussian", "right.cpp", "--against", "endless.cpp"]);
}
