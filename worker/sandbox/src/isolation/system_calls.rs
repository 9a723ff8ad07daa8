//! The seccomp filter, which refuses system calls that programs have no honest use for.

mod refused;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nightshift_protocol::machine::SandboxMeans;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use self::refused::{
    AFTER_START, ALWAYS, ALWAYS_HERE, GROUPS, HOSTED, HOSTED_UNKNOWN, LOCAL_SOCKETS, NATIVE, NATIVE_HERE,
    NEEDED_BY_DRIVERS, NEEDED_BY_PYTHON, NEEDED_BY_PYTHON_ON_DEVICE, QUEUED_SIGNALS, SIGNALS, SOCKETS,
};
use super::namespaces::Namespaces;
use crate::plan::{HostedKind, JailPlan, Work};
use crate::report::{in_force, not_in_force};

/// `MFD_EXEC`: an anonymous file that can be executed.
const EXECUTABLE_MEMORY_FILE: i32 = 0x10;

/// `F_SETOWN_EX`: which process or thread gets the signals of a descriptor.
const SET_OWNER: i32 = 15;

/// `FIOSETOWN` and `SIOCSPGRP`: who gets the signals of a descriptor. The numbers are those of x86 and Arm.
const SIGNAL_OWNERS: [i32; 2] = [0x8901, 0x8902];

/// Bit that marks a call of the x32 interface of x86. Kernels with that interface accept every call under a second number.
const X32_INTERFACE: i64 = 0x4000_0000;

/// The kind of a program, which decides what its filter refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// A command without a GPU, such as a compiler. It may start processes.
    Command,
    /// A command that talks to its own processes over sockets, such as a profiler.
    Tool {
        /// Whether its sockets stay in a network namespace of its own.
        own_network: bool,
        /// Whether its processes end with their namespace.
        own_processes: bool,
    },
    /// A loaded library. It may start neither threads nor processes.
    Native,
    /// A loaded library on a GPU, whose driver starts threads and keeps anonymous files.
    NativeOnDevice,
    /// A Python interpreter before it starts. [`python_filter`] refuses more after its start.
    Python {
        /// Whether it uses a GPU.
        on_device: bool,
    },
}

impl ProgramKind {
    /// Returns what the program of a plan is.
    pub(crate) fn of(plan: &JailPlan, namespaces: Namespaces) -> Self {
        match (&plan.work, plan.shows_kernel_files()) {
            (Work::Hosted(hosted), _) if hosted.kind == HostedKind::Python => {
                Self::Python { on_device: plan.device.is_some() }
            }
            (Work::Hosted(_), false) => Self::Native,
            (Work::Hosted(_), true) => Self::NativeOnDevice,
            (Work::Command { .. } | Work::Probe(_), false) => Self::Command,
            (Work::Command { .. } | Work::Probe(_), true) => {
                Self::Tool { own_network: namespaces.network, own_processes: namespaces.processes }
            }
        }
    }

    /// Returns whether the only process that the program may signal is itself.
    fn signals_itself_only(self) -> bool {
        matches!(self, Self::Native | Self::NativeOnDevice)
    }

    fn is_hosted(self) -> bool {
        matches!(self, Self::Native | Self::NativeOnDevice | Self::Python { .. })
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// What a filter put in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FilterScope {
    /// Sockets outside of the program's own network are refused.
    pub(crate) network: bool,
    /// Signals to other processes are refused.
    pub(crate) signals: bool,
}

/// Puts the filter for a program in force for this process and its descendants.
///
/// `signals_confined` tells whether other means keep signals from processes outside of the jail. Otherwise a Python
/// interpreter may signal itself only.
pub(crate) fn filter(kind: ProgramKind, signals_confined: bool, means: &mut Vec<SandboxMeans>) -> FilterScope {
    match install(kind, signals_confined) {
        Ok(count) => {
            means.push(in_force("seccomp", &format!("{count} system calls refused")));
            let by_filter = kind.signals_itself_only() || kind.is_hosted() && !signals_confined;
            FilterScope { network: true, signals: by_filter }
        }
        Err(reason) => {
            means.push(not_in_force("seccomp", &reason));
            FilterScope::default()
        }
    }
}

fn install(kind: ProgramKind, signals_confined: bool) -> Result<usize, String> {
    let mut allowed: Vec<i64> = Vec::new();
    match kind {
        ProgramKind::Tool { own_network, own_processes } => {
            allowed.extend(SOCKETS.iter().filter(|_| own_network));
            allowed.extend(GROUPS.iter().filter(|_| own_processes));
        }
        ProgramKind::NativeOnDevice | ProgramKind::Python { on_device: true } => allowed.extend(LOCAL_SOCKETS),
        ProgramKind::Command | ProgramKind::Native | ProgramKind::Python { on_device: false } => {}
    }
    let mut rules: Rules = BTreeMap::new();
    refuse_all(&mut rules, ALWAYS.iter().chain(ALWAYS_HERE).filter(|call| !allowed.contains(call)));
    // The signal that ends a program with its parent stays set.
    refuse(&mut rules, libc::SYS_prctl, &[argument(0, SeccompCmpOp::Eq, libc::PR_SET_PDEATHSIG)?]);
    if allowed.contains(&libc::SYS_socket) && !matches!(kind, ProgramKind::Tool { .. }) {
        refuse(&mut rules, libc::SYS_socket, &[argument(0, SeccompCmpOp::Ne, libc::AF_UNIX)?]);
    }
    if kind.is_hosted() {
        refuse_all(&mut rules, HOSTED);
        // A process that is not dumpable cannot be inspected by others of the same user.
        refuse(&mut rules, libc::SYS_prctl, &[argument(0, SeccompCmpOp::Eq, libc::PR_SET_DUMPABLE)?]);
        let executable = masked(1, EXECUTABLE_MEMORY_FILE, EXECUTABLE_MEMORY_FILE)?;
        refuse(&mut rules, libc::SYS_memfd_create, &[executable]);
        if kind.signals_itself_only() || !signals_confined {
            refuse_signals_to_others(&mut rules)?;
        }
    }
    match kind {
        ProgramKind::Command | ProgramKind::Tool { .. } | ProgramKind::Python { .. } => refuse_namespaces(&mut rules)?,
        ProgramKind::Native => refuse_all(&mut rules, NATIVE.iter().chain(NATIVE_HERE)),
        ProgramKind::NativeOnDevice => {
            let calls = NATIVE.iter().chain(NATIVE_HERE);
            refuse_all(&mut rules, calls.filter(|call| !NEEDED_BY_DRIVERS.contains(call)));
            refuse_processes(&mut rules)?;
        }
    }
    let mut unknown: Rules = BTreeMap::new();
    // A filter cannot read the flags of `clone3`. The C library then uses `clone`, whose flags it can read.
    refuse(&mut unknown, libc::SYS_clone3, &[]);
    if kind.is_hosted() {
        refuse_all(&mut unknown, HOSTED_UNKNOWN);
    }
    put_in_force(rules, unknown)
}

/// Refuses system calls that a driver needs to start and a program does not. A hosted process calls this after it has
/// opened its GPU and before it loads a program.
pub fn refuse_start_up_calls() -> Result<(), String> {
    let mut rules: Rules = BTreeMap::new();
    refuse_all(&mut rules, SOCKETS.iter().chain(&AFTER_START));
    #[cfg(target_arch = "x86_64")]
    refuse(&mut rules, libc::SYS_alarm, &[]);
    // For every thread: the driver calls functions of the program from its own threads.
    seccompiler::apply_filter_all_threads(&compile(rules, libc::EPERM)?).map_err(|error| error.to_string())
}

/// Returns the filter that a Python interpreter puts in force after its start, as hexadecimal digits of its instructions.
/// It refuses what loaded libraries may not do, except what Python needs.
pub fn python_filter(on_device: bool) -> Result<String, String> {
    let needed: &[i64] = if on_device { &NEEDED_BY_PYTHON_ON_DEVICE } else { &NEEDED_BY_PYTHON };
    let mut rules: Rules = BTreeMap::new();
    refuse_all(&mut rules, NATIVE.iter().filter(|call| !needed.contains(call)));
    if !on_device {
        refuse_all(&mut rules, NATIVE_HERE);
        refuse_signals_to_others(&mut rules)?;
    }
    refuse_all(&mut rules, &SOCKETS);
    let program = compile(rules, libc::EPERM)?;
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

/// Puts filters in force that refuse calls for lack of permission, and as calls that the kernel does not know.
fn put_in_force(rules: Rules, unknown: Rules) -> Result<usize, String> {
    let count = rules.keys().chain(unknown.keys()).filter(|call| **call & X32_INTERFACE == 0).count();
    let programs = [compile(unknown, libc::ENOSYS)?, compile(rules, libc::EPERM)?];
    for program in &programs {
        seccompiler::apply_filter(program).map_err(|error| error.to_string())?;
    }
    Ok(count)
}

/// Refuses new namespaces, but not new processes and threads.
fn refuse_namespaces(rules: &mut Rules) -> Result<(), String> {
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ] {
        refuse(rules, libc::SYS_clone, &[masked(0, flag, flag)?]);
    }
    Ok(())
}

/// Refuses new processes, but not threads; and new limits, but not reading them.
fn refuse_processes(rules: &mut Rules) -> Result<(), String> {
    refuse(rules, libc::SYS_clone, &[masked(0, libc::CLONE_THREAD, 0)?]);
    refuse(rules, libc::SYS_prlimit64, &[pointer(2, SeccompCmpOp::Ne)?]);
    Ok(())
}

/// Refuses signals to other processes than this one, which keeps its process id when it executes a program.
fn refuse_signals_to_others(rules: &mut Rules) -> Result<(), String> {
    // A process may signal itself: that is how `abort` works.
    let this = i32::try_from(std::process::id()).map_err(|error| error.to_string())?;
    for call in SIGNALS {
        refuse(rules, call, &[argument(0, SeccompCmpOp::Ne, this)?]);
    }
    refuse_all(rules, &QUEUED_SIGNALS);
    // A descriptor can be told to signal another process when data arrives.
    for command in [libc::F_SETOWN, SET_OWNER] {
        refuse(rules, libc::SYS_fcntl, &[argument(1, SeccompCmpOp::Eq, command)?]);
    }
    for command in SIGNAL_OWNERS {
        refuse(rules, libc::SYS_ioctl, &[argument(1, SeccompCmpOp::Eq, command)?]);
    }
    Ok(())
}

fn refuse_all<'a>(rules: &mut Rules, calls: impl IntoIterator<Item = &'a i64>) {
    for call in calls {
        refuse(rules, *call, &[]);
    }
}

/// Refuses a call, always or where all conditions hold. A call without rules is always refused, whatever was added before.
fn refuse(rules: &mut Rules, call: i64, conditions: &[SeccompCondition]) {
    let numbers = [Some(call), cfg!(target_arch = "x86_64").then_some(call | X32_INTERFACE)];
    for number in numbers.into_iter().flatten() {
        match SeccompRule::new(conditions.to_vec()) {
            // The library refuses an empty list of conditions, and takes an empty list of rules for any arguments.
            Err(_) => {
                rules.insert(number, Vec::new());
            }
            Ok(rule) => match rules.get_mut(&number) {
                Some(known) if known.is_empty() => {}
                Some(known) => known.push(rule),
                None => {
                    rules.insert(number, vec![rule]);
                }
            },
        }
    }
}

/// A condition on the lower half of an argument.
fn argument(index: u8, operator: SeccompCmpOp, value: i32) -> Result<SeccompCondition, String> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, u64::from(value.unsigned_abs()))
        .map_err(|error| error.to_string())
}

/// The condition that the bits of `mask` have this value.
fn masked(index: u8, mask: i32, value: i32) -> Result<SeccompCondition, String> {
    argument(index, SeccompCmpOp::MaskedEq(u64::from(mask.unsigned_abs())), value)
}

/// A condition on a pointer, compared with the null pointer.
fn pointer(index: u8, operator: SeccompCmpOp) -> Result<SeccompCondition, String> {
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, 0).map_err(|error| error.to_string())
}

fn compile(rules: Rules, errno: i32) -> Result<BpfProgram, String> {
    let architecture =
        std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno.unsigned_abs()), architecture)
        .and_then(BpfProgram::try_from)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_always_refused_stays_refused() {
        let condition = argument(0, SeccompCmpOp::Eq, 7).unwrap();
        let mut rules: Rules = BTreeMap::new();
        refuse(&mut rules, 1, std::slice::from_ref(&condition));
        refuse(&mut rules, 1, std::slice::from_ref(&condition));
        assert_eq!(rules[&1].len(), 2);
        refuse(&mut rules, 1, &[]);
        refuse(&mut rules, 1, &[condition]);
        assert!(rules[&1].is_empty(), "no rule stands for any arguments");
        assert!(!cfg!(target_arch = "x86_64") || rules.contains_key(&(1 | X32_INTERFACE)));
    }

    #[test]
    fn the_filter_for_python_is_a_list_of_instructions() {
        for on_device in [false, true] {
            let digits = python_filter(on_device).unwrap();
            assert!(digits.len() > 160 && digits.len().is_multiple_of(16));
        }
    }
}
