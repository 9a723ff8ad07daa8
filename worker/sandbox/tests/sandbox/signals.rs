//! Signals to processes outside of the jail.

use nightshift_sandbox::process::SandboxChoice;

use crate::jails::{Ended, HOSTED, Kind, attack as run_attack};
use crate::machine::{choices, detail, in_force, namespaces, nothing};
use crate::programs::DONE;
use crate::{Test, tests};

pub(crate) fn tests() -> Vec<Test> {
    tests![
        nothing => no_signal_leaves_a_jail,
        nothing => a_process_may_signal_itself,
        namespaces => a_python_on_a_gpu_may_end_its_children,
    ]
}

/// Tries every way to signal the processes whose ids are the arguments. Signal 0 only asks whether that is allowed.
pub(crate) fn attack(targets: &str) {
    let this = i32::try_from(std::process::id()).unwrap();
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let given = targets.split(' ').map(|pid| pid.parse::<i32>().unwrap());
    // In a process namespace a number of outside may be that of the attacker or of init, which ignores signals.
    let is_own_namespace = parent == 1;
    for target in given.chain((!is_own_namespace).then_some(parent)) {
        if target == this || is_own_namespace && target <= 2 {
            continue;
        }
        // SAFETY: the calls take numbers, and an initialized structure that they only read.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            info.si_code = libc::SI_QUEUE;
            report("kill", target, libc::syscall(libc::SYS_kill, target, 0));
            report("tkill", target, libc::syscall(libc::SYS_tkill, target, 0));
            report("tgkill", target, libc::syscall(libc::SYS_tgkill, target, target, 0));
            report("rt_sigqueueinfo", target, libc::syscall(libc::SYS_rt_sigqueueinfo, target, 0, &raw mut info));
            let queued = libc::syscall(libc::SYS_rt_tgsigqueueinfo, target, target, 0, &raw mut info);
            report("rt_tgsigqueueinfo", target, queued);
            let pidfd = libc::syscall(libc::SYS_pidfd_open, target, 0);
            report("pidfd_send_signal", target, libc::syscall(libc::SYS_pidfd_send_signal, pidfd, 0, 0, 0));
            report("ptrace", target, libc::syscall(libc::SYS_ptrace, libc::PTRACE_SEIZE, target, 0, 0));
        }
    }
    // SAFETY: the call takes numbers.
    if unsafe { libc::kill(this, 0) } == 0 {
        println!("itself");
    }
}

fn report(name: &str, target: i32, status: libc::c_long) {
    if status >= 0 {
        println!("{name} {target}");
    }
}

fn run(kind: Kind, means: SandboxChoice) -> Ended {
    let prefix = if kind == Kind::PythonOnDevice { "on-device " } else { "" };
    let (ended, _scratch) = run_attack(kind, means, &format!("{prefix}signals {} 1", std::process::id()));
    assert_eq!(ended.lines.last().map(String::as_str), Some(DONE), "{means:?} {kind:?}: {}", ended.stderr);
    ended
}

fn no_signal_leaves_a_jail() {
    for means in choices() {
        for kind in HOSTED {
            let ended = run(kind, means);
            let holes: Vec<&String> = ended.lines.iter().filter(|line| *line != "itself" && *line != DONE).collect();
            assert!(holes.is_empty(), "{means:?} {kind:?}: {holes:?}");
            assert!(in_force(&ended.report, "signals"), "{means:?} {kind:?}: {}", detail(&ended.report, "signals"));
        }
    }
}

fn a_process_may_signal_itself() {
    for kind in HOSTED {
        assert!(run(kind, SandboxChoice::Best).lines.contains(&"itself".to_owned()), "{kind:?}");
    }
}

/// A compiler of a program's first call is ended when it takes too long.
fn a_python_on_a_gpu_may_end_its_children() {
    let script = "sleep 60 & kill -9 $! && wait $!; echo $?";
    let (ended, _scratch) = run_attack(Kind::Tool, SandboxChoice::Best, script);
    assert_eq!(ended.lines, ["137"], "{}", ended.stderr);
}
