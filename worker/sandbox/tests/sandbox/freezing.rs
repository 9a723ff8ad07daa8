//! Freezing a jail.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::{
    CancelFlag, Jail, JailHost, JailPause, JailedCommand, Limits, ProcessError, RunningJails, SandboxChoice, run_jailed,
};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::jails::{Kind, limits, plan, run, start, start_on};
use crate::machine::{
    cgroups, detail, host, marker, no_cgroups, nothing, processes_with, run_without_cgroups, status_field, within,
};
use crate::programs::counters;
use crate::{Test, tests};

/// Threads that count.
const THREADS: usize = 4;

/// How long a test looks whether something goes on. It is no limit on how long anything takes.
const LOOK: Duration = Duration::from_millis(60);

/// Maximum time until something happens that a busy machine delays.
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    tests![
        nothing => a_frozen_program_counts_no_further_in_any_thread,
        nothing => a_frozen_program_writes_no_further,
        nothing => a_frozen_jail_with_children_stands_still,
        nothing => a_frozen_jail_can_be_killed,
        nothing => only_a_running_program_can_be_frozen,
        no_cgroups => jails_without_cgroups_are_frozen_by_signals,
        cgroups => jails_with_cgroups_are_frozen_by_them,
        no_cgroups => a_thread_that_outlives_the_first_one_is_stopped,
        nothing => only_timed_jails_run_while_it_is_quiet,
        no_cgroups => quiet_without_cgroups_stops_by_signals,
        nothing => a_jail_that_starts_waits_for_the_end_of_the_quiet,
        nothing => a_cancelled_jail_does_not_wait_for_the_end_of_the_quiet,
        nothing => time_for_which_a_jail_is_stopped_does_not_count,
        nothing => jails_of_other_processes_stop_too,
    ]
}

/// Freezes a jail. A machine that is busy may need more than one attempt.
pub(crate) fn freeze(jail: &mut Jail) {
    let mut last = None;
    let is_frozen = within(Duration::from_secs(20), || {
        last = jail.freeze().err();
        last.is_none()
    });
    assert!(is_frozen, "{last:?}");
}

fn counting(means: SandboxChoice, kind: Kind) -> (Jail, OwnedFd) {
    let memory = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 4096).unwrap();
    let prefix = if kind == Kind::PythonOnDevice { "on-device " } else { "" };
    let payload = format!("{prefix}count {}", if kind == Kind::Native { 0 } else { THREADS });
    let jail = start(&plan(kind, means, &payload, None), &[memory.as_fd()]);
    (jail, memory)
}

fn a_frozen_program_counts_no_further_in_any_thread() {
    for means in [SandboxChoice::Best, SandboxChoice::Landlock] {
        let (mut jail, memory) = counting(means, Kind::NativeOnDevice);
        let counters = &counters(memory.as_raw_fd())[..THREADS];
        let values = || -> Vec<u64> { counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect() };
        let all_count = |from: &[u64]| within(SOON, || values().iter().zip(from).all(|(now, was)| now > was));
        assert!(all_count(&[0; THREADS]), "{means:?}: it does not count");
        for _ in 0..20 {
            freeze(&mut jail);
            assert!(jail.is_frozen());
            let frozen = values();
            std::thread::sleep(Duration::from_millis(3));
            assert_eq!(values(), frozen, "{means:?}: a thread went on");
            jail.thaw().unwrap();
            assert!(!jail.is_frozen() && all_count(&frozen), "{means:?}: it did not go on");
        }
    }
}

fn a_frozen_program_writes_no_further() {
    let mut jail = start(&plan(Kind::Native, SandboxChoice::Best, "print", None), &[]);
    // Its output is never read in this test, so it may be blocked in the kernel when it is frozen.
    freeze(&mut jail);
    jail.discard_output();
    std::thread::sleep(LOOK);
    jail.stdout.pump();
    assert_eq!(jail.stdout.kept(), b"", "it wrote while it was frozen");
    jail.thaw().unwrap();
    assert!(within(SOON, || {
        jail.stdout.pump();
        !jail.stdout.kept().is_empty()
    }));
}

fn a_frozen_jail_with_children_stands_still() {
    for means in [SandboxChoice::Best, SandboxChoice::Landlock] {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().canonicalize().unwrap();
        let script = "for i in 1 2 3; do (while :; do echo x >> file$i; done) & done; wait";
        let mut jail = start(&plan(Kind::Command, means, script, Some(&folder)), &[]);
        let sizes = || -> Vec<u64> {
            (1..=3).map(|i| std::fs::metadata(folder.join(format!("file{i}"))).map_or(0, |data| data.len())).collect()
        };
        assert!(within(SOON, || sizes().iter().all(|size| *size > 0)), "{means:?}");
        freeze(&mut jail);
        let frozen = sizes();
        std::thread::sleep(LOOK);
        assert_eq!(sizes(), frozen, "{means:?}");
        jail.thaw().unwrap();
        assert!(within(SOON, || sizes().iter().zip(&frozen).all(|(now, was)| now > was)), "{means:?}");
    }
}

fn a_frozen_jail_can_be_killed() {
    for means in [SandboxChoice::Best, SandboxChoice::Landlock, SandboxChoice::None] {
        let scratch = tempfile::tempdir().unwrap();
        let marker = marker();
        let script = format!("sleep {marker} & sleep {marker}");
        let mut jail = start(&plan(Kind::Command, means, &script, Some(scratch.path())), &[]);
        assert!(within(SOON, || processes_with(&format!("sleep\0{marker}")).len() == 2));
        freeze(&mut jail);
        jail.kill();
        assert!(within(SOON, || processes_with(&marker).is_empty()), "{means:?}: something is left");
    }
}

fn only_a_running_program_can_be_frozen() {
    let mut jail = start(&plan(Kind::Native, SandboxChoice::Best, "see /", None), &[]);
    let deadline = Instant::now() + SOON;
    while !jail.has_ended() && Instant::now() < deadline {
        jail.pump(Duration::from_millis(5), None).unwrap();
    }
    assert!(matches!(jail.freeze(), Err(ProcessError::NotFrozen(_))));
    assert!(!jail.is_frozen());
    jail.thaw().unwrap();
}

/// Runs the tests above in a process that sees no cgroups.
fn jails_without_cgroups_are_frozen_by_signals() {
    run_without_cgroups("jails_without_cgroups_are_frozen_by_signals", || {
        let ended = run(&plan(Kind::Native, SandboxChoice::Best, "see /", None));
        assert!(detail(&ended.report, "freeze").starts_with("SIGSTOP"), "{:?}", ended.report);
        a_frozen_program_counts_no_further_in_any_thread();
        a_frozen_program_writes_no_further();
        a_frozen_jail_with_children_stands_still();
        a_frozen_jail_can_be_killed();
    });
}

fn jails_with_cgroups_are_frozen_by_them() {
    let (mut jail, _memory) = counting(SandboxChoice::Best, Kind::NativeOnDevice);
    assert_eq!(detail(jail.report.as_ref().unwrap(), "freeze"), "cgroup.freeze");
    let program = jail.program.unwrap();
    freeze(&mut jail);
    // A cgroup stops its processes without a signal, which the program could notice.
    let state = status_field(program, "State").unwrap();
    assert!(!state.starts_with('T'), "{state}");
    jail.thaw().unwrap();
}

/// A process whose first thread has ended looks like one that has ended altogether.
fn a_thread_that_outlives_the_first_one_is_stopped() {
    run_without_cgroups("a_thread_that_outlives_the_first_one_is_stopped", stop_without_first_thread);
}

fn stop_without_first_thread() {
    let memory = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 4096).unwrap();
    let mut jail =
        start(&plan(Kind::NativeOnDevice, SandboxChoice::Best, "count-without-first-thread", None), &[memory.as_fd()]);
    let counter = &counters(memory.as_raw_fd())[0];
    let program = jail.program.unwrap();
    let is_zombie = || status_field(program, "State").is_some_and(|state| state.starts_with('Z'));
    assert!(within(SOON, || is_zombie() && counter.load(Ordering::Relaxed) > 0));
    freeze(&mut jail);
    let frozen = counter.load(Ordering::Relaxed);
    std::thread::sleep(LOOK);
    assert_eq!(counter.load(Ordering::Relaxed), frozen);
    jail.thaw().unwrap();
    assert!(within(SOON, || counter.load(Ordering::Relaxed) > frozen));
}

/// A jail of a host whose jails stop each other, with counters of its threads.
fn counting_on(host: &JailHost) -> (Jail, OwnedFd) {
    let memory = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 4096).unwrap();
    let plan = plan(Kind::NativeOnDevice, host.means, &format!("count {THREADS}"), None);
    let jail = start_on(host, &plan, &[memory.as_fd()]);
    (jail, memory)
}

fn counts(memory: &OwnedFd) -> bool {
    let counter = &counters(memory.as_raw_fd())[0];
    let before = counter.load(Ordering::Relaxed);
    within(SOON, || counter.load(Ordering::Relaxed) > before)
}

fn stands_still(memory: &OwnedFd) -> bool {
    let counter = &counters(memory.as_raw_fd())[0];
    let before = counter.load(Ordering::Relaxed);
    std::thread::sleep(LOOK);
    counter.load(Ordering::Relaxed) == before
}

/// Pauses the jails that are not timed until this holds. A busy machine may need more than one attempt, because a jail
/// gets a fraction of a second to stop.
fn pause_until(running: &RunningJails, mut stands_still: impl FnMut() -> bool) -> JailPause {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let quiet = running.pause_others();
        if stands_still() {
            return quiet;
        }
        assert!(Instant::now() < deadline, "it went on in each pause");
    }
}

fn only_timed_jails_run_while_it_is_quiet() {
    let host = host(SandboxChoice::Best);
    let ((mut timed, of_timed), (mut other, of_other)) = (counting_on(&host), counting_on(&host));
    timed.set_timed(true);
    let quiet = pause_until(&host.running, || stands_still(&of_other));
    assert!(counts(&of_timed) && stands_still(&of_other));
    freeze(&mut other);
    other.thaw().unwrap();
    assert!(stands_still(&of_other) && !other.is_frozen(), "its owner's thaw does not end the quiet");
    let second = host.running.pause_others();
    drop(quiet);
    assert!(stands_still(&of_other), "another thread still wants quiet");
    let stops = within(SOON, || {
        timed.set_timed(false);
        let stops = stands_still(&of_timed);
        if !stops {
            timed.set_timed(true);
        }
        stops
    });
    assert!(stops, "it is timed no longer");
    freeze(&mut other);
    drop(second);
    assert!(counts(&of_timed) && stands_still(&of_other), "its owner still wants it frozen");
    other.thaw().unwrap();
    assert!(counts(&of_other));
}

fn quiet_without_cgroups_stops_by_signals() {
    run_without_cgroups("quiet_without_cgroups_stops_by_signals", only_timed_jails_run_while_it_is_quiet);
}

fn a_jail_that_starts_waits_for_the_end_of_the_quiet() {
    let host = host(SandboxChoice::Best);
    let quiet = host.running.pause_others();
    let (started, has_started) = std::sync::mpsc::channel();
    let later = host.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || started.send(counting_on(&later)).ok());
        assert!(has_started.recv_timeout(LOOK).is_err());
        drop(quiet);
        let (_jail, memory) = has_started.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(counts(&memory));
    });
}

fn a_cancelled_jail_does_not_wait_for_the_end_of_the_quiet() {
    let (host, scratch, cancel) = (host(SandboxChoice::Best), tempfile::tempdir().unwrap(), CancelFlag::default());
    let command = JailedCommand {
        program: "/bin/true".into(),
        args: Vec::new(),
        read_only: Vec::new(),
        scratch: scratch.path().canonicalize().unwrap(),
        env: Vec::new(),
        limits: limits(),
    };
    let quiet = host.running.pause_others();
    let (ends, has_ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| ends.send(run_jailed(&host, &command, &cancel).map(|_| ())).ok());
        assert!(has_ended.recv_timeout(LOOK).is_err());
        cancel.cancel();
        let ended = has_ended.recv_timeout(Duration::from_mins(1));
        drop(quiet);
        assert!(matches!(ended, Ok(Err(ProcessError::Cancelled))), "{ended:?}");
    });
}

fn time_for_which_a_jail_is_stopped_does_not_count() {
    let (host, scratch) = (host(SandboxChoice::Best), tempfile::tempdir().unwrap());
    let folder = scratch.path().canonicalize().unwrap();
    // Long enough for a busy machine to start the shell and to stop it, which may need some attempts.
    let limit = Duration::from_secs(6);
    let command = JailedCommand {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), "echo > running; while [ ! -e over ]; do echo x >> ticks; sleep 0.01; done".into()],
        read_only: Vec::new(),
        scratch: folder.clone(),
        env: Vec::new(),
        limits: Limits { wall_ms: u64::try_from(limit.as_millis()).unwrap(), ..limits() },
    };
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| run_jailed(&host, &command, &CancelFlag::default()).unwrap());
        assert!(within(SOON, || folder.join("running").exists()));
        let ticks = || std::fs::metadata(folder.join("ticks")).map_or(0, |data| data.len());
        let quiet = pause_until(&host.running, || {
            let before = ticks();
            std::thread::sleep(10 * LOOK);
            ticks() == before
        });
        std::thread::sleep(limit + LOOK);
        drop(quiet);
        std::fs::write(folder.join("over"), "").unwrap();
        let ended = ended.join().unwrap();
        assert_eq!(ended.end, ProcessEnd::Finished);
        assert!(u128::from(ended.wall_ms) < limit.as_millis(), "{} ms", ended.wall_ms);
    });
}

fn jails_of_other_processes_stop_too() {
    let folder = tempfile::tempdir().unwrap();
    let shares = |means| {
        let running = RunningJails::between_processes(&folder.path().join("quiet")).unwrap();
        JailHost { running, ..host(means) }
    };
    // Two hosts that name the same file, as far as files are concerned, are two processes.
    let (one, other) = (shares(SandboxChoice::Best), shares(SandboxChoice::Best));
    let ((mut timed, of_timed), (_jail, of_other)) = (counting_on(&one), counting_on(&other));
    timed.set_timed(true);
    for _ in 0..3 {
        let quiet = pause_until(&one.running, || stands_still(&of_other));
        assert!(counts(&of_timed));
        let second = other.running.pause_others();
        assert!(stands_still(&of_other) && counts(&of_timed), "what is timed there runs on");
        drop(quiet);
        assert!(stands_still(&of_other));
        drop(second);
        assert!(counts(&of_other) && counts(&of_timed));
    }
}
