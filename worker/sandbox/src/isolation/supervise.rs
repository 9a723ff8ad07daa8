//! The three processes of a jail: supervisor, init, program.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;

use nightshift_protocol::machine::{SandboxMeans, SandboxReport};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, kill_process_group, pidfd_open, set_child_subreaper,
    set_parent_process_death_signal, setpgid, wait,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::namespaces::{SHORT_SCRATCH, enter_private_root, leave_namespaces, switch_loopback_on};
use super::plan::{ControlMessage, HostedKind, HostedMain, HostedProcess, JailPlan, Work};
use super::probe::try_to_break_out;
use super::system_calls::{Strictness, filter_system_calls};
use super::{files, limits};
use crate::process::{RawEnd, SandboxChoice, WireError, receive_from_parent, send};

/// Exit status of a child that could not do its work; the reason went over the control socket.
const SETUP_FAILED: i32 = 125;

/// Rounds of killing what is left in a jail without a process namespace.
const CLEANUP_ROUNDS: usize = 64;

/// The life of a supervisor, from the first instruction to its exit status.
#[must_use]
pub fn supervise(hosted: &HostedMain) -> i32 {
    let Ok(control) = take_control_socket() else { return SETUP_FAILED };
    let (plan, descriptors) = match receive_from_parent::<JailPlan>(&control) {
        Ok(Some(received)) => (received.message, received.descriptors),
        Ok(None) => return 0,
        Err(error) => return refuse(&control, &format!("the plan cannot be read: {error}")),
    };
    if let Err(message) = files::visible(&plan) {
        return refuse(&control, &message);
    }
    let base_bytes = limits::address_space_bytes();
    let mut means = Vec::new();
    let wants_namespaces = matches!(plan.means, SandboxChoice::Best | SandboxChoice::Namespaces);
    let namespaces = if wants_namespaces {
        leave_namespaces(&mut means)
    } else {
        means.push(not_in_force("user_namespace", "not asked for"));
        super::namespaces::Namespaces::default()
    };
    if namespaces.network && speaks_to_itself(&plan) {
        match switch_loopback_on() {
            Ok(()) => means.push(in_force("loopback", "within the own network")),
            Err(error) => means.push(not_in_force("loopback", &error.to_string())),
        }
    }
    // Orphans of the program become ours, so that none is left without a parent that collects it.
    let _ = set_child_subreaper(Pid::from_raw(1));
    // SAFETY: this process has one thread, so the child may go on with any code.
    let init = unsafe { libc::fork() };
    if init == 0 {
        let init = Init { control, plan, descriptors, means, namespaces, base_bytes, hosted: *hosted };
        std::process::exit(init.live());
    }
    drop(descriptors);
    let Some(init) = Pid::from_raw(init).filter(|_| init > 0) else {
        return refuse(&control, &format!("fork: {}", std::io::Error::last_os_error()));
    };
    let _ = setpgid(Some(init), Some(init));
    let _ = send(&control, &ControlMessage::Started { group: init.as_raw_nonzero().get() }, &[]);
    watch(&control, init);
    kill_all(init);
    0
}

/// Whether the processes of this jail may speak to each other over a network of their own.
fn speaks_to_itself(plan: &JailPlan) -> bool {
    plan.shows_machine() && !matches!(plan.work, Work::Hosted(_))
}

/// Moves the control socket away from standard input and closes everything else that was inherited.
fn take_control_socket() -> std::io::Result<OwnedFd> {
    let control = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    drop(null);
    let kept = u32::try_from(control.as_raw_fd()).unwrap_or(3);
    close_range(3, kept.saturating_sub(1));
    close_range(kept + 1, u32::MAX);
    Ok(control)
}

fn close_range(first: u32, last: u32) {
    if first <= last {
        // SAFETY: the process has one thread and owns no descriptor in this range: only the three standard streams
        // and the control socket are in use, and they are outside of it.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

fn refuse(control: &OwnedFd, message: &str) -> i32 {
    let _ = send(control, &ControlMessage::SetupFailed { message: message.to_owned() }, &[]);
    SETUP_FAILED
}

/// Waits for the end of the init, or for the parent to end the conversation.
fn watch(control: &OwnedFd, init: Pid) {
    let Ok(pidfd) = pidfd_open(init, PidfdFlags::empty()) else { return };
    loop {
        let mut fds = [PollFd::new(control, PollFlags::IN), PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) if fds.iter().any(|fd| !fd.revents().is_empty()) => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Kills the init, its group and whatever escaped from the group, and collects them.
fn kill_all(init: Pid) {
    let _ = kill_process(init, Signal::KILL);
    let _ = kill_process_group(init, Signal::KILL);
    for _ in 0..CLEANUP_ROUNDS {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                // No children are left.
                Err(_) => return,
                Ok(None) => break,
            }
        }
        for child in children_of_this_process() {
            let _ = kill_process(child, Signal::KILL);
        }
        if wait(WaitOptions::empty()).is_err() {
            return;
        }
    }
}

fn children_of_this_process() -> Vec<Pid> {
    let this = i32::try_from(std::process::id()).unwrap_or(0);
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent_of(*pid) == Some(this))
        .filter_map(Pid::from_raw)
        .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted from its end.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The first process of the jail.
struct Init {
    control: OwnedFd,
    plan: JailPlan,
    descriptors: Vec<OwnedFd>,
    means: Vec<SandboxMeans>,
    namespaces: super::namespaces::Namespaces,
    base_bytes: u64,
    hosted: HostedMain,
}

impl Init {
    fn live(mut self) -> i32 {
        let _ = setpgid(None, None);
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        if self.namespaces.user {
            match enter_private_root(&self.plan) {
                Ok(()) => {
                    self.namespaces.mount = true;
                    self.means.push(in_force("mount_namespace", "private root"));
                }
                Err(reason) => self.means.push(not_in_force("mount_namespace", &reason)),
            }
        }
        // SAFETY: this process has one thread, so the child may go on with any code.
        let program = unsafe { libc::fork() };
        if program == 0 {
            let status = match self.restrict() {
                Ok(()) => self.become_program(),
                Err(message) => refuse(&self.control, &message),
            };
            // SAFETY: ends this process at once. The regular way would run code that foreign code left for the end.
            unsafe { libc::_exit(status) };
        }
        self.descriptors.clear();
        if program < 0 {
            return refuse(&self.control, &format!("fork: {}", std::io::Error::last_os_error()));
        }
        match wait_for(program) {
            Ok(raw) => {
                let _ = send(&self.control, &ControlMessage::Ended(raw), &[]);
                0
            }
            Err(error) => refuse(&self.control, &format!("waiting for the program: {error}")),
        }
    }

    /// Restricts this process for good. Order matters: each step still needs what the next one takes.
    fn restrict(&mut self) -> Result<(), String> {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        restore_default_signals();
        let folder = self.plan.scratch.clone().unwrap_or_else(|| "/".into());
        std::env::set_current_dir(&folder).map_err(|error| format!("entering {}: {error}", folder.display()))?;
        if let Work::Hosted(HostedProcess { core: Some(core), .. }) = &self.plan.work {
            pin_to(*core);
        }
        limits::apply(&self.plan, self.base_bytes, self.namespaces.user, &mut self.means)?;
        limits::drop_privileges(&mut self.means)?;
        let landlock = match self.plan.means {
            SandboxChoice::Best | SandboxChoice::Landlock => {
                let own_network = self.namespaces.network && speaks_to_itself(&self.plan);
                files::restrict_files(&self.plan, own_network, self.namespaces.mount, &mut self.means)?
            }
            SandboxChoice::Namespaces | SandboxChoice::None => {
                self.means.push(not_in_force("landlock", "not asked for"));
                false
            }
        };
        let seccomp = if self.plan.means == SandboxChoice::None {
            self.means.push(not_in_force("seccomp", "not asked for"));
            false
        } else {
            let strictness = match (&self.plan.work, self.plan.shows_machine()) {
                (Work::Command { .. } | Work::Probe(_), false) => Strictness::Command,
                (Work::Command { .. } | Work::Probe(_), true) => {
                    let super::namespaces::Namespaces { network, processes, .. } = self.namespaces;
                    Strictness::DeviceCommand { own_network: network, own_processes: processes }
                }
                (Work::Hosted(HostedProcess { kind: HostedKind::Python, .. }), _) => {
                    Strictness::Python { on_device: self.plan.device.is_some() }
                }
                (Work::Hosted(_), false) => Strictness::Runner,
                (Work::Hosted(_), true) => Strictness::DeviceRunner,
            };
            filter_system_calls(strictness, &mut self.means)
        };
        let report = SandboxReport {
            means: std::mem::take(&mut self.means),
            isolates_files: landlock || self.namespaces.mount,
            isolates_network: seccomp || self.namespaces.network,
        };
        send(&self.control, &ControlMessage::Ready { report }, &[]).map_err(|error: WireError| error.to_string())
    }

    /// Becomes the program; returns its exit status, unless another program took over this process.
    fn become_program(self) -> i32 {
        let has_short_name = self.namespaces.mount && self.plan.shows_machine() && self.plan.scratch.is_some();
        match self.plan.work {
            Work::Command { program, args, mut env } => {
                let temporary = env.iter_mut().find(|(name, _)| name == "TMPDIR").filter(|_| has_short_name);
                if let Some((_, folder)) = temporary {
                    SHORT_SCRATCH.clone_into(folder);
                }
                #[expect(clippy::disallowed_methods, reason = "replaces this process and starts no other")]
                let error = std::process::Command::new(&program).args(args).env_clear().envs(env).exec();
                refuse(&self.control, &format!("executing {}: {error}", program.display()))
            }
            Work::Hosted(hosted) => match hosted.kind {
                HostedKind::Python => refuse(&self.control, &(self.hosted.python)(&hosted.payload, &self.descriptors)),
                HostedKind::Native => {
                    // The control socket is out of reach before anything foreign is loaded.
                    drop(self.control);
                    (self.hosted.native)(&hosted.payload, self.descriptors)
                }
            },
            Work::Probe(probe) => match try_to_break_out(&probe) {
                Ok(()) => 0,
                Err(message) => refuse(&self.control, &message),
            },
        }
    }
}

/// Keeps this process on one core. Timing on a core that cannot be had is still timing.
fn pin_to(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    let _ = sched_setaffinity(None, &cores);
}

/// Signals that this binary's start-up code handles or ignores get their default effect back: a crash of the program
/// is to be seen as what it is.
fn restore_default_signals() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGPIPE] {
        // SAFETY: the default disposition runs no code of ours; the process has one thread.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Collects every child until the program's turn comes.
fn wait_for(program: RawFd) -> std::io::Result<RawEnd> {
    loop {
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value, and both pointers are valid for the call.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(-1, &raw mut status, 0, &raw mut usage), usage)
        };
        if pid < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() == std::io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if pid == program {
            return Ok(RawEnd {
                status: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
                signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
                peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
            });
        }
    }
}

pub(super) fn in_force(name: &str, detail: &str) -> SandboxMeans {
    SandboxMeans { name: name.to_owned(), in_force: true, detail: detail.to_owned() }
}

pub(super) fn not_in_force(name: &str, reason: &str) -> SandboxMeans {
    SandboxMeans { name: name.to_owned(), in_force: false, detail: reason.to_owned() }
}
