//! The cgroup of a jail.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use nightshift_sandbox::process::SandboxChoice;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

use crate::jails::{Kind, plan, run, start};
use crate::machine::{cgroup_folder, cgroup_of, cgroups, controllers, in_force, within};
use crate::programs::counters;
use crate::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        cgroups => a_jail_has_a_cgroup_that_is_removed_with_it,
        cgroups => a_process_that_left_its_group_ends_with_the_cgroup,
        controllers => memory_of_a_jail_is_limited_and_counted_with_its_children,
        controllers => the_number_of_processes_is_limited_without_a_user_namespace,
        controllers => the_limit_of_a_hosted_process_can_be_set_later,
    ]
}

fn a_jail_has_a_cgroup_that_is_removed_with_it() {
    let own = cgroup_of(i32::try_from(std::process::id()).unwrap()).unwrap();
    for means in [SandboxChoice::Best, SandboxChoice::Landlock, SandboxChoice::None] {
        let mut jail = start(&plan(Kind::Native, means, "sleep", None), &[]);
        let path = cgroup_of(jail.program.unwrap()).unwrap();
        assert!(path != own && path.contains("nightshift-"), "{means:?}: {path}");
        let folder = cgroup_folder(&path);
        assert!(folder.is_dir());
        jail.kill();
        assert!(!folder.exists(), "{means:?}");
    }
}

/// In a jail without a process namespace, the supervisor cannot find such a process by its group.
fn a_process_that_left_its_group_ends_with_the_cgroup() {
    let scratch = tempfile::tempdir().unwrap();
    let marker = crate::machine::marker();
    let script = format!("setsid sleep {marker} & sleep {marker}");
    let mut jail = start(&plan(Kind::Command, SandboxChoice::None, &script, Some(scratch.path())), &[]);
    let started = || crate::machine::processes_with(&format!("sleep\0{marker}")).len() == 2;
    assert!(within(Duration::from_secs(30), started));
    let program = jail.program.unwrap();
    let folder = cgroup_folder(&cgroup_of(program).unwrap());
    // Without a supervisor, only the cgroup is left to end the processes.
    let parent = |pid: i32| Pid::from_raw(crate::machine::status_field(pid, "PPid")?.parse().ok()?);
    let init = parent(program).unwrap();
    kill_process(parent(init.as_raw_nonzero().get()).unwrap(), Signal::KILL).unwrap();
    jail.kill();
    let ended = || crate::machine::processes_with(&marker).is_empty();
    assert!(within(Duration::from_secs(30), ended), "a process is left");
    assert!(!folder.exists());
}

fn memory_of_a_jail_is_limited_and_counted_with_its_children() {
    let scratch = tempfile::tempdir().unwrap();
    // As a tool it has no limit of address space. Two children together exceed the limit, and none of them alone does: each
    // keeps its memory until both have it.
    let script = "for i in 1 2; do (head -c 40000000 /dev/zero; : > has$i; until [ -e has1 ] && [ -e has2 ]; do sleep 0.05; \
                  done) | tail | wc -c & done; wait; echo survived";
    let mut limited = plan(Kind::Tool, SandboxChoice::Best, script, Some(scratch.path()));
    limited.limits.memory_bytes = 60 << 20;
    let ended = run(&limited);
    assert!(in_force(&ended.report, "cgroup"), "{:?}", ended.report);
    assert!(!ended.lines.contains(&"survived".to_owned()), "{:?}", ended.lines);
    assert!(ended.end.is_some_and(|end| end.out_of_memory), "{:?}", ended.end);
    limited.limits.memory_bytes = 400 << 20;
    let ended = run(&limited);
    assert!(ended.lines.contains(&"survived".to_owned()), "{}", ended.stderr);
    assert!(ended.end.is_some_and(|end| !end.out_of_memory && end.status == Some(0)), "{:?}", ended.end);
}

fn the_number_of_processes_is_limited_without_a_user_namespace() {
    let mut limited = plan(Kind::NativeOnDevice, SandboxChoice::Landlock, "threads 200", None);
    limited.limits.processes = 4;
    let ended = run(&limited);
    assert!(!in_force(&ended.report, "user_namespace"));
    let started: usize = ended.lines[0].parse().unwrap();
    // A driver may start 64 threads, and the jail's own processes are counted.
    assert!((4..4 + 64 + 8).contains(&started), "{started} threads");
}

fn the_limit_of_a_hosted_process_can_be_set_later() {
    let memory = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 4096).unwrap();
    let payload = format!("allocate-when-told {}", 3_u64 << 29);
    let mut jail = start(&plan(Kind::NativeOnDevice, SandboxChoice::Best, &payload, None), &[memory.as_fd()]);
    assert!(jail.counts_memory() && jail.measure_memory().is_some());
    let file = cgroup_folder(&cgroup_of(jail.program.unwrap()).unwrap()).join("memory.max");
    let limit = || std::fs::read_to_string(&file).unwrap().trim().to_owned();
    jail.limit_memory(u64::MAX, 0).unwrap();
    assert_eq!(limit(), "max");
    // The kernel lets a hosted process have a gibibyte more than the worker does.
    jail.limit_memory(1 << 20, 0).unwrap();
    assert!((1 << 30..5 << 28).contains(&limit().parse::<u64>().unwrap()), "{}", limit());
    counters(memory.as_raw_fd())[0].store(1, Ordering::Relaxed);
    assert!(within(Duration::from_mins(1), || {
        jail.pump(Duration::from_millis(5), None).unwrap();
        jail.has_ended()
    }));
    assert!(jail.ended.is_some_and(|end| end.out_of_memory), "{:?}", jail.ended);
    assert!(jail.cgroup_peak_bytes().is_none_or(|bytes| bytes > 1 << 29));
}
