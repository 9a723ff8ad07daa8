//! Namespaces of users, processes, network and inter-process communication.

use std::os::fd::{AsRawFd, OwnedFd};

use nightshift_protocol::machine::SandboxMeans;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::report::{in_force, not_in_force};
use crate::user::{UnprivilegedUser, become_user};

/// Which namespaces of its own a process has.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each namespace is left independently of the others")]
pub(crate) struct Namespaces {
    /// Users: the process has capabilities inside and none outside.
    pub(crate) user: bool,
    /// Processes: all of them end with the first one.
    pub(crate) processes: bool,
    /// Network.
    pub(crate) network: bool,
    /// Mounts, with a private root.
    pub(crate) mount: bool,
    /// The process is root outside and makes its namespaces with root's capabilities.
    pub(crate) by_root: bool,
}

/// The process table outside of the jail. It stays usable when `/proc` is out of reach, and has to be closed before the
/// program starts.
#[derive(Debug)]
pub(crate) struct OuterProcfs(OwnedFd);

impl OuterProcfs {
    /// Opens the process table.
    pub(crate) fn open() -> Result<Self, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, "/proc", flags, Mode::empty()).map(Self).map_err(|error| format!("opening /proc: {error}"))
    }

    fn write_own(&self, file: &str, text: &str) -> Result<(), String> {
        let failed = |error: rustix::io::Errno| format!("{file}: {error}");
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&self.0, format!("self/{file}"), flags, Mode::empty()).map_err(failed)?;
        rustix::io::write(&file, text.as_bytes()).map(drop).map_err(failed)
    }
}

/// Leaves the namespaces of users, processes, network and inter-process communication. That of processes takes effect for
/// children.
///
/// Root makes the namespaces itself, so that the private root can show files that only root can reach; the program then
/// becomes `mapped` and enters a user namespace. Where root lacks the capability for that, this process becomes `mapped`
/// at once and makes the namespaces as an ordinary user does.
pub(crate) fn leave(
    mapped: Option<UnprivilegedUser>,
    procfs: &OuterProcfs,
    means: &mut Vec<SandboxMeans>,
) -> Result<Namespaces, String> {
    let mut left = Namespaces::default();
    let mut pid_namespace = None;
    if let Some(user) = mapped {
        match unshare(UnshareFlags::NEWPID) {
            Ok(()) => {
                left.by_root = true;
                pid_namespace = Some(Ok(()));
            }
            Err(_) => become_user(user)?,
        }
    }
    if !left.by_root {
        left.user = enter_user_namespace(procfs, means);
        if !left.user {
            return Ok(left);
        }
    }
    let pid_namespace = pid_namespace.unwrap_or_else(|| unshare(UnshareFlags::NEWPID));
    left.processes = report(&pid_namespace, "pid_namespace", means);
    left.network = report(&unshare(UnshareFlags::NEWNET), "network_namespace", means);
    report(&unshare(UnshareFlags::NEWIPC), "ipc_namespace", means);
    Ok(left)
}

fn report(outcome: &std::io::Result<()>, name: &str, means: &mut Vec<SandboxMeans>) -> bool {
    match outcome {
        Ok(()) => means.push(in_force(name, "own")),
        Err(error) => means.push(not_in_force(name, &error.to_string())),
    }
    outcome.is_ok()
}

/// Enters a user namespace that contains only the user and group of this process. Returns whether that worked.
pub(crate) fn enter_user_namespace(procfs: &OuterProcfs, means: &mut Vec<SandboxMeans>) -> bool {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let entered = unshare(UnshareFlags::NEWUSER)
        .map_err(|error| error.to_string())
        .and_then(|()| procfs.write_own("setgroups", "deny"))
        .and_then(|()| procfs.write_own("uid_map", &format!("{user} {user} 1")))
        .and_then(|()| procfs.write_own("gid_map", &format!("{group} {group} 1")));
    match &entered {
        Ok(()) => means.push(in_force("user_namespace", "own user and group only")),
        Err(reason) => means.push(not_in_force("user_namespace", reason)),
    }
    entered.is_ok()
}

/// Leaves one or more namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> std::io::Result<()> {
    // SAFETY: no flag that this crate uses detaches the table of descriptors, and the process has one thread.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// Switches the loopback device of this network namespace on, which the kernel creates switched off.
pub(crate) fn switch_loopback_on() -> std::io::Result<()> {
    use rustix::net::{AddressFamily, SocketType, socket};
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: an all-zero request is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::try_from(*from).unwrap_or(0);
    }
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or(0);
    // SAFETY: the request is initialized, and the call only reads it.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
