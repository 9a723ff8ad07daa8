//! The jail, tried by what it has to hold and by what it has to let through.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/workshop.rs"]
#[expect(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
mod workshop;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::probe;
use nightshift_sandbox::process::{
    CancelFlag, JailedCommand, Limits, ProcessError, ProcessResult, SandboxChoice, run_jailed, run_jailed_as_tool,
};
use workshop::{ROADS, compile, host, limits};

fn shell(scratch: &Path, script: &str, limits: Limits) -> JailedCommand {
    JailedCommand {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".into(), script.into()],
        read_only: Vec::new(),
        scratch: scratch.to_owned(),
        env: Vec::new(),
        limits,
    }
}

fn run(means: SandboxChoice, script: &str, limits: Limits) -> ProcessResult {
    let scratch = tempfile::tempdir().unwrap();
    run_jailed(&host(means).jail, &shell(scratch.path(), script, limits), &CancelFlag::default()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns whether any process of this machine has the marker in its command line.
fn is_running(marker: &str) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .any(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| text(&line).contains(marker)))
}

fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    condition()
}

/// Maximum time until something happens that a busy machine delays. What survives would sleep for much longer.
const SOON: Duration = Duration::from_secs(30);

/// A duration for `sleep` that no other process has.
fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("91.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn the_scratch_folder_is_the_only_place_to_write_and_secrets_cannot_be_read() {
    for means in ROADS {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "hidden words").unwrap();
        let script = format!(
            "echo kept > here && cat here; echo x > {0}/new; echo x >> {0}/secret; cat {0}/secret /etc/passwd; \
             echo x > /usr/new; echo x > /dev/null && echo null",
            outside.path().display()
        );
        let result = run(means, &script, limits());
        assert_eq!(text(&result.stdout), "kept\nnull\n", "{means:?}: {}", text(&result.stderr));
        assert!(!outside.path().join("new").exists(), "{means:?}");
        assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "hidden words", "{means:?}");
        assert!(result.sandbox.is_sufficient(), "{means:?}");
    }
}

#[test]
fn the_compiler_works_on_every_road() {
    for means in ROADS {
        let folder = tempfile::tempdir().unwrap();
        let source =
            "#include <cmath>\n#include <vector>\nextern \"C\" int f() { return (int)std::vector<int>(3).size(); }";
        let result = compile(means, folder.path(), source, "one", &[]);
        assert_eq!(result.end, ProcessEnd::Finished, "{means:?}: {}", text(&result.stderr));
        assert!(folder.path().join("one.so").exists(), "{means:?}");
        assert!(result.peak_bytes > 1 << 20, "{means:?}");
    }
}

#[test]
fn a_source_cannot_include_what_the_jail_hides() {
    for means in ROADS {
        let folder = tempfile::tempdir().unwrap();
        let result = compile(means, folder.path(), "#include \"/etc/passwd\"\n", "thief", &[]);
        assert_eq!(result.end, ProcessEnd::Exited { status: 1 }, "{means:?}");
        assert!(!text(&result.stderr).contains("root:"), "{means:?}: {}", text(&result.stderr));
    }
}

#[test]
fn the_probe_finds_each_road_sufficient_and_no_road_not() {
    let folder = tempfile::tempdir().unwrap();
    for means in ROADS {
        let report = probe(&host(means).jail, folder.path(), &CancelFlag::default()).unwrap();
        assert!(report.is_sufficient(), "{means:?}: {report:?}");
        assert!(report.means.iter().any(|tried| tried.name == "probe_connect" && tried.in_force), "{means:?}");
    }
    let report = probe(&host(SandboxChoice::None).jail, folder.path(), &CancelFlag::default()).unwrap();
    assert!(!report.isolates_files && !report.isolates_network, "{report:?}");
    assert!(report.means.iter().any(|tried| tried.name == "probe_read_outside" && !tried.in_force));
}

#[test]
fn each_road_uses_its_own_means() {
    let in_force = |means, name: &str| {
        run(means, "true", limits()).sandbox.means.iter().any(|tried| tried.name == name && tried.in_force)
    };
    assert!(in_force(SandboxChoice::Landlock, "landlock") && !in_force(SandboxChoice::Landlock, "mount_namespace"));
    assert!(in_force(SandboxChoice::Namespaces, "mount_namespace") && !in_force(SandboxChoice::Namespaces, "landlock"));
    assert!(in_force(SandboxChoice::Best, "landlock") && in_force(SandboxChoice::Best, "mount_namespace"));
    assert!(!in_force(SandboxChoice::None, "seccomp"));
}

#[test]
fn the_environment_is_clean() {
    let result = run(SandboxChoice::Best, "env", limits());
    let mut names: Vec<String> =
        text(&result.stdout).lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.to_owned()).collect();
    names.sort();
    assert_eq!(names, ["LANG", "PATH", "PWD", "TMPDIR"]);
}

#[test]
fn a_status_and_a_signal_are_told_apart() {
    for means in ROADS {
        assert_eq!(run(means, "exit 3", limits()).end, ProcessEnd::Exited { status: 3 });
        let crashed = ProcessEnd::Crashed { signal: libc::SIGSEGV, signal_name: "SIGSEGV".to_owned() };
        assert_eq!(run(means, "kill -SEGV $$", limits()).end, crashed);
        let aborted = ProcessEnd::Crashed { signal: libc::SIGABRT, signal_name: "SIGABRT".to_owned() };
        assert_eq!(run(means, "kill -ABRT $$", limits()).end, aborted);
    }
}

#[test]
fn a_program_that_does_not_exist_is_an_error_of_the_caller() {
    let scratch = tempfile::tempdir().unwrap();
    let command = JailedCommand { program: "/usr/bin/no-such-thing".into(), ..shell(scratch.path(), "", limits()) };
    let error = run_jailed(&host(SandboxChoice::Best).jail, &command, &CancelFlag::default()).unwrap_err();
    assert!(matches!(&error, ProcessError::Setup(message) if message.contains("no-such-thing")), "{error}");
    let command = JailedCommand { read_only: vec!["/no/such/path".into()], ..shell(scratch.path(), "true", limits()) };
    for means in ROADS {
        let error = run_jailed(&host(means).jail, &command, &CancelFlag::default()).unwrap_err();
        assert!(matches!(&error, ProcessError::Setup(message) if message.contains("/no/such/path")), "{error}");
    }
}

#[test]
fn what_hangs_is_killed_at_the_deadline_with_everything_it_started() {
    for means in [SandboxChoice::Best, SandboxChoice::Landlock, SandboxChoice::None] {
        let marker = marker();
        let script = format!("sleep {marker} & setsid sleep {marker} & sleep {marker}");
        let result = run(means, &script, Limits { wall_ms: 300, ..limits() });
        assert_eq!(result.end, ProcessEnd::TimedOut { limit_ms: 300 }, "{means:?}");
        assert!(within(SOON, || !is_running(&marker)), "{means:?}: something is left");
    }
}

#[test]
fn a_tool_may_begin_sessions_where_none_of_them_outlives_it() {
    for means in [SandboxChoice::Best, SandboxChoice::Landlock] {
        let (scratch, marker) = (tempfile::tempdir().unwrap(), marker());
        let session = format!("setsid sh -c 'echo began; sleep {marker}' 2>/dev/null || echo refused");
        let script = format!("({session}) & sleep {marker}");
        let command = shell(scratch.path(), &script, Limits { wall_ms: 5_000, ..limits() });
        let result = run_jailed_as_tool(&host(means).jail, &command, &CancelFlag::default()).unwrap();
        assert_eq!(result.end, ProcessEnd::TimedOut { limit_ms: 5_000 }, "{means:?}");
        let ends_together = result.sandbox.means.iter().any(|tried| tried.name == "pid_namespace" && tried.in_force);
        assert_eq!(text(&result.stdout), if ends_together { "began\n" } else { "refused\n" }, "{means:?}");
        assert!(within(SOON, || !is_running(&marker)), "{means:?}: something is left");
    }
}

#[test]
fn a_tool_has_the_system_s_folders_for_short_lived_files_to_itself() {
    let marker = marker();
    for means in ROADS {
        let scratch = tempfile::tempdir().unwrap();
        let script = format!(
            "for f in /tmp /dev/shm; do echo secret > $f/{marker} && cat $f/{marker}; done 2>/dev/null; echo kept > kept; \
             ls {} 2>&1",
            scratch.path().display()
        );
        let command = shell(scratch.path(), &script, limits());
        let result = run_jailed_as_tool(&host(means).jail, &command, &CancelFlag::default()).unwrap();
        let own_root = result.sandbox.means.iter().any(|tried| tried.name == "mount_namespace" && tried.in_force);
        let expected = if own_root { "secret\nsecret\nkept\n" } else { "kept\n" };
        assert_eq!(text(&result.stdout), expected, "{means:?}: {}", text(&result.stderr));
        for folder in ["/tmp", "/dev/shm"] {
            assert!(!Path::new(folder).join(&marker).exists(), "{means:?}: {folder} of the machine was written to");
        }
        assert!(scratch.path().join("kept").exists());
    }
    // What is no tool has no such folders.
    let result = run(SandboxChoice::Best, &format!("echo x > /tmp/{marker} || echo refused"), limits());
    assert_eq!(text(&result.stdout), "refused\n");
}

#[test]
fn what_was_left_in_the_background_ends_with_the_command() {
    for means in [SandboxChoice::Best, SandboxChoice::Landlock, SandboxChoice::None] {
        let marker = marker();
        let result = run(means, &format!("(setsid sleep {marker} &) ; sleep {marker} & true"), limits());
        assert_eq!(result.end, ProcessEnd::Finished, "{means:?}");
        assert!(within(SOON, || !is_running(&marker)), "{means:?}: something is left");
    }
}

#[test]
fn a_flood_of_output_is_cut() {
    let result = run(SandboxChoice::Best, "yes", Limits { output_bytes: 1000, ..limits() });
    assert_eq!(result.end, ProcessEnd::OutputExceeded { limit_bytes: 1000 });
    assert_eq!(result.stdout.len(), 1000);
}

#[test]
fn processor_time_file_size_and_memory_are_limited() {
    let spinning = run(SandboxChoice::Best, "while :; do :; done", Limits { cpu_s: 1, ..limits() });
    assert_eq!(spinning.end, ProcessEnd::TimedOut { limit_ms: 1000 });
    let writing =
        run(SandboxChoice::Best, "exec head -c 9000000 /dev/zero > big", Limits { file_bytes: 1 << 20, ..limits() });
    let expected = ProcessEnd::Crashed { signal: libc::SIGXFSZ, signal_name: "SIGXFSZ".to_owned() };
    assert_eq!(writing.end, expected);
    let limit_bytes = 64 << 20;
    let eating = run(SandboxChoice::Best, "exec tail /dev/zero", Limits { memory_bytes: limit_bytes, ..limits() });
    assert!(matches!(eating.end, ProcessEnd::MemoryExceeded { limit_bytes: 67_108_864, .. }), "{:?}", eating.end);
}

#[test]
fn a_cancelled_command_ends_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let cancel = CancelFlag::default();
    let marker = marker();
    let command = shell(scratch.path(), &format!("sleep {marker}"), limits());
    let started = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| run_jailed(&host(SandboxChoice::Best).jail, &command, &cancel));
        assert!(within(SOON, || is_running(&marker)));
        cancel.cancel();
        running.join().unwrap()
    });
    assert!(matches!(outcome, Err(ProcessError::Cancelled)));
    // The command itself would sleep for a minute and a half.
    assert!(started.elapsed() < Duration::from_secs(50));
    assert!(!is_running(&marker));
}

#[test]
fn nothing_survives_the_sudden_death_of_the_parent() {
    for means in ["best", "landlock", "namespaces", "none"] {
        let scratch = tempfile::tempdir().unwrap();
        let marker = marker();
        // The parent itself has the script, and with it the marker, in its command line: `sleep` is told apart by its
        // own.
        let script = format!("sleep {marker} & sleep {marker}");
        #[expect(clippy::disallowed_methods, reason = "the parent that is to be killed cannot be jailed itself")]
        let mut parent = std::process::Command::new(env!("CARGO_BIN_EXE_nightshift_child"))
            .args(["parent", means])
            .arg(scratch.path())
            .arg(&script)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let sleeping = format!("sleep\0{marker}\0");
        assert!(within(SOON, || is_running(&sleeping)), "{means}: it did not start");
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert!(within(SOON, || !is_running(&marker)), "{means}: something is left");
        let folder = scratch.path().to_str().unwrap().to_owned();
        assert!(!is_running(&folder), "{means}: something is left");
    }
}

#[test]
fn many_commands_leave_no_zombies() {
    let zombies = || {
        let this = std::process::id().to_string();
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
            .filter(|stat| {
                let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
                fields.next() == Some("Z") && fields.next() == Some(this.as_str())
            })
            .count()
    };
    for _ in 0..5 {
        run(SandboxChoice::Best, "true & true", limits());
    }
    assert!(within(SOON, || zombies() == 0));
}
