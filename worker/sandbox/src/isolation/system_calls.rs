//! The filter of system calls: what no compiler and no program has an honest use for is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nightshift_protocol::machine::SandboxMeans;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::supervise::{in_force, not_in_force};

/// How much is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// A compiler: it may start processes.
    Command,
    /// A command on a GPU: tools that look into programs speak to them over sockets, in a network of their own.
    DeviceCommand {
        /// Whether there is such a network.
        own_network: bool,
        /// Whether its processes have a namespace of their own, so that none of them outlives the first one.
        own_processes: bool,
    },
    /// A loaded library: it may start neither threads nor processes.
    Runner,
    /// A loaded library on a GPU: the driver starts threads and keeps nameless files.
    DeviceRunner,
    /// A Python that has still to be executed. What it does not need once it has started is refused then, with
    /// [`filter_for_python`].
    Python {
        /// Whether it takes hold of a device.
        on_device: bool,
    },
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Network, other processes' memory, the kernel's own configuration, and everything that widens the attack surface.
const REFUSED: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
    libc::SYS_setsid,
    libc::SYS_setpgid,
];

/// A process that left its group would escape the group's end, unless it ends with its namespace. `nsys` starts every
/// program in a session of its own.
const GROUPS: [i64; 2] = [libc::SYS_setsid, libc::SYS_setpgid];

/// Old calls that only this processor family has.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] =
    &[libc::SYS_kexec_file_load, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_vhangup];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// For a loaded library, in addition: programs, shared memory that outlives a process, memory that looks like a file,
/// other queues to other processes, and the choice of its processor.
const REFUSED_TO_RUNNERS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_memfd_create,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_setpriority,
    libc::SYS_prlimit64,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_TO_RUNNERS_HERE: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_TO_RUNNERS_HERE: &[i64] = &[];

/// The calls around sockets.
const SOCKETS: [i64; 7] = [
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// The calls around sockets that a driver makes when it starts, for sockets within the machine: it looks for a service
/// that shares devices, and names a place where others may ask it for memory.
const LOCAL_SOCKETS: [i64; 4] = [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen];

/// What a driver needs of the calls that are refused to runners: threads (processes are refused by their flags), nameless
/// files, its limits, and the processor that it runs on.
const NEEDED_BY_DRIVERS: [i64; 4] =
    [libc::SYS_clone, libc::SYS_memfd_create, libc::SYS_prlimit64, libc::SYS_sched_setaffinity];

/// Bit that marks a call of the 32-bit-pointer interface of 64-bit x86. Kernels that have it would otherwise take the
/// same call under a second number.
const OTHER_INTERFACE: i64 = 0x4000_0000;

/// Puts the filter in force. Tells whether the network is out of reach.
pub(super) fn filter_system_calls(strictness: Strictness, means: &mut Vec<SandboxMeans>) -> bool {
    match install(strictness) {
        Ok(count) => {
            means.push(in_force("seccomp", &format!("{count} system calls refused")));
            true
        }
        Err(reason) => {
            means.push(not_in_force("seccomp", &reason));
            false
        }
    }
}

fn install(strictness: Strictness) -> Result<usize, String> {
    let mut refused: Rules = BTreeMap::new();
    let mut allowed: Vec<i64> = Vec::new();
    match strictness {
        Strictness::DeviceCommand { own_network, own_processes } => {
            allowed.extend(SOCKETS.iter().filter(|_| own_network));
            allowed.extend(GROUPS.iter().filter(|_| own_processes));
        }
        Strictness::DeviceRunner | Strictness::Python { on_device: true } => allowed.extend(LOCAL_SOCKETS),
        Strictness::Command | Strictness::Runner | Strictness::Python { on_device: false } => {}
    }
    for call in REFUSED.iter().chain(REFUSED_HERE).filter(|call| !allowed.contains(call)) {
        refuse(&mut refused, *call, &[]);
    }
    // The signal that ends a program with its parent may not be called off.
    refuse(&mut refused, libc::SYS_prctl, &[argument(0, SeccompCmpOp::Eq, libc::PR_SET_PDEATHSIG)?]);
    match strictness {
        Strictness::Command | Strictness::DeviceCommand { .. } | Strictness::Python { .. } => {
            if let Strictness::Python { on_device: true } = strictness {
                refuse(&mut refused, libc::SYS_socket, &[argument(0, SeccompCmpOp::Ne, libc::AF_UNIX)?]);
            }
            for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWPID] {
                let mask = u64::from(flag.unsigned_abs());
                refuse(&mut refused, libc::SYS_clone, &[argument(0, SeccompCmpOp::MaskedEq(mask), flag)?]);
            }
        }
        Strictness::Runner | Strictness::DeviceRunner => {
            let driver = strictness == Strictness::DeviceRunner;
            let calls = REFUSED_TO_RUNNERS.iter().chain(REFUSED_TO_RUNNERS_HERE);
            for call in calls.filter(|call| !(driver && NEEDED_BY_DRIVERS.contains(call))) {
                refuse(&mut refused, *call, &[]);
            }
            if driver {
                refuse_processes(&mut refused)?;
                refuse(&mut refused, libc::SYS_socket, &[argument(0, SeccompCmpOp::Ne, libc::AF_UNIX)?]);
            }
            // A program may only signal itself: that is how `abort` works.
            let this = i32::try_from(std::process::id()).map_err(|error| error.to_string())?;
            for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill] {
                refuse(&mut refused, call, &[argument(0, SeccompCmpOp::Ne, this)?]);
            }
            for call in [libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo] {
                refuse(&mut refused, call, &[]);
            }
        }
    }
    put_in_force(refused)
}

/// What a driver needs to start, and a program has no use for. Threads and timers could do a call's work between calls,
/// where nobody looks at the clock.
const REFUSED_AFTER_START: [i64; 5] =
    [libc::SYS_clone, libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_setitimer, libc::SYS_timerfd_create];

/// Refuses this process what the driver needed to start: called between taking hold of a device
/// and loading a program.
pub fn refuse_after_start() -> Result<(), String> {
    let mut refused: Rules = BTreeMap::new();
    for call in SOCKETS.iter().chain(&REFUSED_AFTER_START) {
        refuse(&mut refused, *call, &[]);
    }
    #[cfg(target_arch = "x86_64")]
    refuse(&mut refused, libc::SYS_alarm, &[]);
    // For every thread: the driver calls functions of the program from its own.
    seccompiler::apply_filter_all_threads(&compile(refused, libc::EPERM)?).map_err(|error| error.to_string())
}

/// The filter that a Python puts in force itself once it has started and has taken hold of its device, as hexadecimal
/// digits: what runners may not do, as far as it does not need it. On a device a program may compile at its first call, and
/// the driver starts threads.
pub fn filter_for_python(on_device: bool) -> Result<String, String> {
    let mut refused: Rules = BTreeMap::new();
    // Extensions that were built ahead are loaded from memory.
    let needed = |call: i64| {
        call == libc::SYS_memfd_create
            || (on_device && [libc::SYS_clone, libc::SYS_execve, libc::SYS_prlimit64].contains(&call))
    };
    for call in REFUSED_TO_RUNNERS.iter().filter(|call| !needed(**call)) {
        refuse(&mut refused, *call, &[]);
    }
    if !on_device {
        for call in REFUSED_TO_RUNNERS_HERE {
            refuse(&mut refused, *call, &[]);
        }
        let this = i32::try_from(std::process::id()).map_err(|error| error.to_string())?;
        for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill] {
            refuse(&mut refused, call, &[argument(0, SeccompCmpOp::Ne, this)?]);
        }
    }
    for call in SOCKETS {
        refuse(&mut refused, call, &[]);
    }
    let program = compile(refused, libc::EPERM)?;
    let mut digits = String::with_capacity(program.len() * 16);
    for instruction in &program {
        let [low, high] = instruction.code.to_ne_bytes();
        let [a, b, c, d] = instruction.k.to_ne_bytes();
        for byte in [low, high, instruction.jt, instruction.jf, a, b, c, d] {
            let _ = write!(digits, "{byte:02x}");
        }
    }
    Ok(digits)
}

fn put_in_force(refused: Rules) -> Result<usize, String> {
    // The C library falls back from `clone3`, whose flags a filter cannot see, to `clone`, whose flags it can.
    let mut unknown: Rules = BTreeMap::new();
    refuse(&mut unknown, libc::SYS_clone3, &[]);
    let count = refused.keys().chain(unknown.keys()).filter(|call| **call & OTHER_INTERFACE == 0).count();
    let programs = [compile(unknown, libc::ENOSYS)?, compile(refused, libc::EPERM)?];
    for program in &programs {
        seccompiler::apply_filter(program).map_err(|error| error.to_string())?;
    }
    Ok(count)
}

/// Refuses new processes, but not threads, and new limits, but not the reading of old ones.
fn refuse_processes(rules: &mut Rules) -> Result<(), String> {
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    refuse(rules, libc::SYS_clone, &[argument(0, SeccompCmpOp::MaskedEq(thread), 0)?]);
    refuse(rules, libc::SYS_prlimit64, &[pointer(2, SeccompCmpOp::Ne)?]);
    Ok(())
}

/// An argument that is a pointer, against the null pointer.
fn pointer(index: u8, operator: SeccompCmpOp) -> Result<SeccompCondition, String> {
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, 0).map_err(|error| error.to_string())
}

/// Adds one refusal; without conditions the call is always refused.
fn refuse(rules: &mut Rules, call: i64, conditions: &[SeccompCondition]) {
    let mut add = |number: i64| {
        let entry = rules.entry(number).or_default();
        if let Ok(rule) = SeccompRule::new(conditions.to_vec()) {
            entry.push(rule);
        }
    };
    add(call);
    if cfg!(target_arch = "x86_64") {
        add(call | OTHER_INTERFACE);
    }
}

fn argument(index: u8, operator: SeccompCmpOp, value: i32) -> Result<SeccompCondition, String> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, u64::from(value.unsigned_abs()))
        .map_err(|error| error.to_string())
}

fn compile(rules: Rules, errno: i32) -> Result<BpfProgram, String> {
    let architecture =
        std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno.unsigned_abs()), architecture)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())
}
