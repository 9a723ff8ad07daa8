//! What is left when a worker is killed.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use nightshift_sandbox::process::{CancelFlag, JAIL_ARGUMENT, Jail, SandboxChoice, pair};
use rustix::process::{Pid, Signal, kill_process};

use crate::freezing::freeze;
use crate::jails::{Kind, plan, run, start};
use crate::machine::{
    WORKER, WORKER_START, cgroup_folder, cgroup_of, cgroups, host, marker, nothing, processes_with, run_mode, within,
};
use crate::{Test, tests};

/// Moments at which a worker is killed.
const PHASES: [&str; 6] = ["before-plan", "after-plan", "ready", "frozen", "killing", "probing"];

/// Maximum time until something happens that a busy machine delays. What survives would sleep for much longer.
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    tests![
        nothing => nothing_survives_a_worker_that_is_killed,
        nothing => nothing_survives_a_worker_that_is_interrupted,
        cgroups => the_next_worker_removes_what_a_killed_supervisor_left,
    ]
}

/// `worker PHASE MEANS SCRATCH MARKER`: a worker that reports when it has reached a phase, and waits to be killed.
pub(crate) fn worker_main(args: &[OsString]) -> ExitCode {
    let [phase, means, scratch, marker] = args else { return ExitCode::FAILURE };
    let means = match means.to_str() {
        Some("Best") => SandboxChoice::Best,
        Some("Landlock") => SandboxChoice::Landlock,
        Some("Namespaces") => SandboxChoice::Namespaces,
        _ => SandboxChoice::None,
    };
    let (scratch, marker) = (PathBuf::from(scratch), marker.to_str().unwrap());
    let script = format!("sleep {marker} & sleep {marker}");
    let plan = plan(Kind::Command, means, &script, Some(&scratch));
    let phase = phase.to_str().unwrap();
    let reached = || {
        println!("reached {phase}");
        let _ = std::io::stdout().flush();
    };
    match phase {
        "before-plan" => {
            start_waiting_supervisor(&scratch);
            reached();
            std::thread::park();
        }
        "after-plan" => {
            let _jail = Jail::start(&host(means), &plan, &[], &CancelFlag::default()).unwrap();
            reached();
            std::thread::park();
        }
        "probing" => {
            reached();
            loop {
                nightshift_sandbox::probe(&host(means), &scratch, &CancelFlag::default()).unwrap();
            }
        }
        _ => {
            let mut jail = start(&plan, &[]);
            assert!(within(SOON, || processes_with(&format!("sleep\0{marker}")).len() == 2));
            if phase == "frozen" {
                freeze(&mut jail);
            }
            if phase == "killing" {
                jail.request_end();
            }
            reached();
            std::thread::park();
        }
    }
    ExitCode::SUCCESS
}

/// Starts a supervisor that waits for its plan. A test finds it by the scratch folder in its command line.
fn start_waiting_supervisor(scratch: &Path) {
    let (ours, theirs) = pair().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a supervisor that is never given a plan")]
    #[expect(clippy::zombie_processes, reason = "this process is killed first")]
    Command::new(std::env::current_exe().unwrap())
        .args([JAIL_ARGUMENT.into(), scratch.as_os_str().to_owned()])
        .stdin(Stdio::from(theirs))
        .spawn()
        .unwrap();
    // It stays open until this process dies.
    std::mem::forget(ours);
}

struct Worker {
    child: Child,
    scratch: tempfile::TempDir,
    marker: String,
}

impl Worker {
    /// Starts a worker and waits until it has reached the phase.
    fn start(phase: &str, means: SandboxChoice) -> Self {
        let (scratch, marker) = (tempfile::tempdir().unwrap(), marker());
        #[expect(clippy::disallowed_methods, reason = "the worker that is killed cannot be this process")]
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([WORKER, phase, &format!("{means:?}")])
            .arg(scratch.path())
            .arg(&marker)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("reached {phase}\n"), "{means:?}");
        Self { child, scratch, marker }
    }

    /// Ends the worker by a signal, and waits until nothing of it is left.
    fn end(mut self, signal: Signal, phase: &str, means: SandboxChoice) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        // A shell that starts commands in the background has them ignore SIGINT, and the worker inherits that.
        let has_ended = within(SOON, || self.child.try_wait().unwrap().is_some());
        assert!(has_ended, "{phase} {means:?}: the worker did not end after {signal:?}; is the signal ignored here?");
        let scratch = self.scratch.path().to_str().unwrap().to_owned();
        let left = || [processes_with(&self.marker), processes_with(&scratch)].concat();
        assert!(within(SOON, || left().is_empty()), "{phase} {means:?}: {:?} are left", left());
        // Only while it probes, it may leave a cgroup behind.
        let patience = if phase == "probing" { Duration::from_secs(5) } else { SOON };
        let are_removed = within(patience, || cgroups_of(pid).is_empty());
        if are_removed {
            return;
        }
        // A worker that dies before its supervisor has the plan leaves an empty cgroup, which the next worker removes.
        assert_eq!(phase, "probing", "{means:?}: {:?} are left", cgroups_of(pid));
        let processes = |name: &String| std::fs::read_to_string(parent_cgroup().join(name).join("cgroup.procs"));
        for name in cgroups_of(pid) {
            assert_eq!(processes(&name).unwrap_or_default(), "", "{phase} {means:?}: {name}");
        }
        run_mode(WORKER_START, "");
        assert!(cgroups_of(pid).is_empty(), "{phase} {means:?}: {:?} are left", cgroups_of(pid));
    }
}

impl Drop for Worker {
    /// A test that failed leaves its worker running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the folder in which workers of this process create cgroups.
fn parent_cgroup() -> PathBuf {
    cgroup_folder(&cgroup_of(i32::try_from(std::process::id()).unwrap()).unwrap())
}

/// Lists the cgroups that a worker left next to that of this process.
fn cgroups_of(worker: i32) -> Vec<String> {
    if cgroups().is_some() {
        return Vec::new();
    }
    let names = std::fs::read_dir(parent_cgroup()).into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("nightshift-") && name.split('-').nth(2) == Some(worker.to_string().as_str()))
        .collect()
}

fn nothing_survives_a_worker_that_is_killed() {
    for means in [SandboxChoice::Best, SandboxChoice::Landlock, SandboxChoice::Namespaces, SandboxChoice::None] {
        for phase in PHASES {
            Worker::start(phase, means).end(Signal::KILL, phase, means);
        }
    }
}

fn nothing_survives_a_worker_that_is_interrupted() {
    for phase in PHASES {
        Worker::start(phase, SandboxChoice::Best).end(Signal::INT, phase, SandboxChoice::Best);
    }
}

/// A supervisor that is killed together with its worker removes no cgroup.
fn the_next_worker_removes_what_a_killed_supervisor_left() {
    let mut worker = Worker::start("ready", SandboxChoice::None);
    let pid = i32::try_from(worker.child.id()).unwrap();
    let sleeping = processes_with(&format!("sleep\0{}", worker.marker));
    let left = cgroup_folder(&cgroup_of(sleeping[0]).unwrap());
    let parent = |pid: i32| Pid::from_raw(crate::machine::status_field(pid, "PPid").unwrap().parse().unwrap()).unwrap();
    let supervisor = {
        let shell = sleeping.iter().map(|pid| parent(*pid)).next().unwrap();
        parent(parent(shell.as_raw_nonzero().get()).as_raw_nonzero().get())
    };
    worker.child.kill().unwrap();
    kill_process(supervisor, Signal::KILL).unwrap();
    worker.child.wait().unwrap();
    // The shell dies with init. Its children do not, and are found by their cgroup.
    let next = Worker::start("ready", SandboxChoice::None);
    assert!(!left.exists(), "{} is left", left.display());
    assert!(within(SOON, || processes_with(&format!("sleep\0{}", worker.marker)).is_empty()));
    next.end(Signal::KILL, "ready", SandboxChoice::None);
    assert!(cgroups_of(pid).is_empty());
    // Nothing of a living worker is removed.
    let living = start(&plan(Kind::Native, SandboxChoice::Best, "sleep", None), &[]);
    let folder = cgroup_folder(&cgroup_of(living.program.unwrap()).unwrap());
    Worker::start("ready", SandboxChoice::Best).end(Signal::KILL, "ready", SandboxChoice::Best);
    assert!(folder.exists());
    assert_eq!(run(&plan(Kind::Native, SandboxChoice::Best, "see /", None)).lines[0], "true");
}
