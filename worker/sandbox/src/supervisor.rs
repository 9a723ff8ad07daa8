//! The three processes of a jail.
//!
//! - The *supervisor* is outside of all restrictions and watches the control socket. When the worker closes it or dies, the
//!   supervisor kills and reaps all processes of the jail.
//! - *Init* is the first process of the process namespace, where the machine allows one. It reaps the program and reports
//!   how it ended.
//! - The *program* restricts itself and then becomes the command, the hosted process or the probe.

mod cleanup;
mod context;
#[expect(unsafe_code, reason = "fork and wait4 have no safe interface")]
mod init;
#[expect(unsafe_code, reason = "resetting signals to their defaults has no safe interface")]
mod program;

use std::os::fd::{AsRawFd, OwnedFd};

use nightshift_protocol::machine::SandboxMeans;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, pidfd_open, set_child_subreaper, set_dumpable_behavior, setpgid, umask,
};

use self::cleanup::{kill_all, remove_cgroup};
use self::context::Init;
use crate::isolation::namespaces::{Namespaces, OuterProcfs, leave, switch_loopback_on};
use crate::isolation::resource_limits::address_space_bytes;
use crate::isolation::visible_paths::VisiblePaths;
use crate::plan::{ControlMessage, HostedMain, JailPlan, Launch, SandboxChoice, Work};
use crate::report::{in_force, not_in_force};
use crate::wire::{receive_from_parent, send};

/// Exit status of a child that could not do its work. The reason went over the control socket.
const SETUP_FAILED: i32 = 125;

/// Permissions that new files lack. The root of a jail has to be readable for the program, whatever the worker's own mask is.
const FILE_MASK: u32 = 0o022;

/// Runs the supervisor of one jail. Returns its exit status.
pub(crate) fn supervise(hosted: &HostedMain) -> i32 {
    let Ok(control) = take_control_socket() else { return SETUP_FAILED };
    let (launch, descriptors) = match receive_from_parent::<Launch>(&control) {
        Ok(Some(received)) => (received.message, received.descriptors),
        Ok(None) => return 0,
        Err(error) => return refuse(&control, &format!("the plan cannot be read: {error}")),
    };
    let cgroup = launch.cgroup.clone();
    let prepared = match prepare(&launch) {
        Ok(prepared) => prepared,
        Err(message) => return refuse(&control, &message),
    };
    let Prepared { means, namespaces, base_bytes, procfs, cgroup_procs } = prepared;
    let procfs = Some(procfs);
    let init =
        Init { control, launch, descriptors, means, namespaces, base_bytes, hosted: *hosted, procfs, cgroup_procs };
    // Init and the program have the only other copies of the control socket.
    let (control, forked) = init.fork();
    match forked {
        Err(message) => refuse(&control, &message),
        Ok(init) => {
            let _ = setpgid(Some(init), Some(init));
            let _ = send(&control, &ControlMessage::Started { init: init.as_raw_nonzero().get() }, &[]);
            watch(&control, init);
            kill_all(init, cgroup.as_deref());
            if let Some(cgroup) = cgroup {
                wait_for_worker(&control);
                remove_cgroup(&cgroup);
            }
            0
        }
    }
}

/// What the supervisor hands to init.
struct Prepared {
    means: Vec<SandboxMeans>,
    namespaces: Namespaces,
    base_bytes: u64,
    procfs: OuterProcfs,
    cgroup_procs: Option<Result<OwnedFd, String>>,
}

/// Checks the plan and leaves the namespaces.
fn prepare(launch: &Launch) -> Result<Prepared, String> {
    umask(Mode::from_raw_mode(FILE_MASK));
    VisiblePaths::of(&launch.plan)?;
    let base_bytes = address_space_bytes();
    let procfs = OuterProcfs::open()?;
    // Opened here, since the file is out of reach once this process has changed its user or its root.
    let cgroup_procs = launch.cgroup.as_ref().map(|folder| {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder.join("cgroup.procs"), flags, Mode::empty());
        opened.map_err(|error| format!("opening cgroup.procs: {error}"))
    });
    let mut means = Vec::new();
    let namespaces = match launch.plan.means {
        SandboxChoice::Best | SandboxChoice::Namespaces => leave(launch.user.mapped(), &procfs, &mut means)?,
        SandboxChoice::Landlock | SandboxChoice::None => {
            means.push(not_in_force("user_namespace", "not asked for"));
            Namespaces::default()
        }
    };
    if namespaces.network && has_loopback(&launch.plan) {
        match switch_loopback_on() {
            Ok(()) => means.push(in_force("loopback", "within the own network")),
            Err(error) => means.push(not_in_force("loopback", &error.to_string())),
        }
    }
    // The memory and the files below /proc of supervisor and init are out of reach of other processes of the same user.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| format!("PR_SET_DUMPABLE: {error}"))?;
    // Orphans of the program become children of this process, which reaps them.
    let _ = set_child_subreaper(Pid::from_raw(1));
    Ok(Prepared { means, namespaces, base_bytes, procfs, cgroup_procs })
}

/// Returns whether the program may use a loopback network of the jail.
fn has_loopback(plan: &JailPlan) -> bool {
    plan.shows_kernel_files() && !matches!(plan.work, Work::Hosted(_))
}

/// Moves the control socket away from standard input and closes all other inherited descriptors.
fn take_control_socket() -> std::io::Result<OwnedFd> {
    let control = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    drop(null);
    let kept = u32::try_from(control.as_raw_fd()).unwrap_or(3);
    init::close_range(3, kept.saturating_sub(1));
    init::close_range(kept + 1, u32::MAX);
    Ok(control)
}

/// Reports why the jail could not be set up. Returns the exit status.
fn refuse(control: &OwnedFd, message: &str) -> i32 {
    let _ = send(control, &ControlMessage::SetupFailed { message: message.to_owned() }, &[]);
    SETUP_FAILED
}

/// Waits until the worker has read what the cgroup tells about the jail, or has died.
fn wait_for_worker(control: &OwnedFd) {
    let _ = shutdown(control, Shutdown::Write);
    loop {
        let mut fds = [PollFd::new(control, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            // The worker sends nothing more, so this is the end of the conversation.
            _ => return,
        }
    }
}

/// Waits until init ends or the worker closes the control socket.
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
