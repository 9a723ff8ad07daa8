//! System calls that a hosted program is refused.

use nightshift_sandbox::process::SandboxChoice;

use crate::jails::{HOSTED, Kind, attack as run_attack};
use crate::machine::nothing;
use crate::programs::DONE;
use crate::{Test, tests};

/// Calls that every hosted program is refused, by name and number. The numbers from 424 on are the same everywhere.
const REFUSED: [(&str, libc::c_long); 58] = [
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("process_madvise", 440),
    ("process_mrelease", 448),
    ("pidfd_open", 434),
    ("pidfd_getfd", 438),
    ("pidfd_send_signal", 424),
    ("kcmp", libc::SYS_kcmp),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("io_uring_setup", 425),
    ("io_uring_enter", 426),
    ("io_uring_register", 427),
    ("keyctl", libc::SYS_keyctl),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("open_tree", 428),
    ("move_mount", 429),
    ("fsopen", 430),
    ("fsconfig", 431),
    ("fsmount", 432),
    ("fspick", 433),
    ("mount_setattr", 442),
    ("statmount", 457),
    ("listmount", 458),
    ("open_tree_attr", 467),
    ("listns", 470),
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("quotactl_fd", 443),
    ("memfd_secret", 447),
    ("lsm_set_self_attr", 460),
    ("shmget", libc::SYS_shmget),
    ("shmat", libc::SYS_shmat),
    ("shmctl", libc::SYS_shmctl),
    ("msgget", libc::SYS_msgget),
    ("msgsnd", libc::SYS_msgsnd),
    ("semget", libc::SYS_semget),
    ("semop", libc::SYS_semop),
    ("mq_open", libc::SYS_mq_open),
    ("mq_unlink", libc::SYS_mq_unlink),
    ("mq_notify", libc::SYS_mq_notify),
    ("setsid", libc::SYS_setsid),
    ("setpgid", libc::SYS_setpgid),
    ("settimeofday", libc::SYS_settimeofday),
    ("clock_settime", libc::SYS_clock_settime),
    ("sched_setattr", libc::SYS_sched_setattr),
    ("personality", libc::SYS_personality),
    ("syslog", libc::SYS_syslog),
];

/// Calls that a hosted program is answered as by an older kernel.
const UNKNOWN: [(&str, libc::c_long); 3] = [("clone3", 435), ("mseal", 462), ("cachestat", 451)];

pub(crate) fn tests() -> Vec<Test> {
    tests![
        nothing => hosted_programs_are_refused_what_they_do_not_need,
        nothing => without_a_filter_such_calls_are_not_refused,
    ]
}

/// Makes all calls with arguments that the kernel would reject otherwise, and prints those that the filter lets through.
pub(crate) fn attack(is_native: bool) {
    for (name, number) in REFUSED {
        if call(number, [-1, -1, -1]) != Some(libc::EPERM) {
            println!("{name}");
        }
    }
    for (name, number) in UNKNOWN {
        if call(number, [0, 0, 0]) != Some(libc::ENOSYS) {
            println!("{name}");
        }
    }
    let flag = |value: libc::c_int| libc::c_long::from(value);
    for (name, number, arguments) in [
        ("PR_SET_DUMPABLE", libc::SYS_prctl, [flag(libc::PR_SET_DUMPABLE), 0, 0]),
        ("PR_SET_PDEATHSIG", libc::SYS_prctl, [flag(libc::PR_SET_PDEATHSIG), 0, 0]),
        ("CLONE_NEWUSER", libc::SYS_clone, [flag(libc::CLONE_NEWUSER), 0, 0]),
        ("CLONE_NEWNS", libc::SYS_clone, [flag(libc::CLONE_NEWNS), 0, 0]),
        ("CLONE_NEWCGROUP", libc::SYS_clone, [flag(libc::CLONE_NEWCGROUP), 0, 0]),
        ("MFD_EXEC", libc::SYS_memfd_create, [0, 0x10, 0]),
        ("AF_INET", libc::SYS_socket, [flag(libc::AF_INET), flag(libc::SOCK_STREAM), 0]),
    ] {
        if call(number, arguments) != Some(libc::EPERM) {
            println!("{name}");
        }
    }
    if is_native && call(libc::SYS_execve, [0, 0, 0]) != Some(libc::EPERM) {
        println!("execve");
    }
}

/// Makes some of the calls, which fail for other reasons or change only this process, and prints those that are not refused.
pub(crate) fn attack_without_filter() {
    for (name, number, arguments) in [
        ("pidfd_open", libc::SYS_pidfd_open, [-1, 0, 0]),
        ("shmget", libc::SYS_shmget, [-1, -1, -1]),
        ("semget", libc::SYS_semget, [-1, -1, -1]),
        ("PR_SET_DUMPABLE", libc::SYS_prctl, [libc::c_long::from(libc::PR_SET_DUMPABLE), 0, 0]),
        ("MFD_EXEC", libc::SYS_memfd_create, [0, 0x10, 0]),
    ] {
        if call(number, arguments) != Some(libc::EPERM) {
            println!("{name}");
        }
    }
}

/// Makes a system call. Returns the error; none when it succeeded.
fn call(number: libc::c_long, arguments: [libc::c_long; 3]) -> Option<i32> {
    let [a, b, c] = arguments;
    // SAFETY: no argument is the address of memory.
    let status = unsafe { libc::syscall(number, a, b, c, 0, 0, 0) };
    (status < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn hosted_programs_are_refused_what_they_do_not_need() {
    for kind in HOSTED {
        let native = matches!(kind, Kind::Native | Kind::NativeOnDevice);
        let prefix = if kind == Kind::PythonOnDevice { "on-device " } else { "" };
        let payload = format!("{prefix}system-calls {}", if native { "native" } else { "python" });
        let (ended, _scratch) = run_attack(kind, SandboxChoice::Best, &payload);
        assert_eq!(ended.lines, [DONE], "{kind:?}: {}", ended.stderr);
    }
}

/// Without a filter, the kernel answers such calls otherwise: the test above tests the filter.
fn without_a_filter_such_calls_are_not_refused() {
    let (ended, _scratch) = run_attack(Kind::NativeOnDevice, SandboxChoice::None, "unfiltered-calls");
    let expected = ["pidfd_open", "shmget", "semget", "PR_SET_DUMPABLE", "MFD_EXEC", DONE];
    assert_eq!(ended.lines, expected, "{}", ended.stderr);
}
