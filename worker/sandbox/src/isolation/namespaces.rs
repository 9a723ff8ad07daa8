//! The namespaces road: own users, processes, network, and a private root that holds nothing but what is needed.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nightshift_protocol::machine::SandboxMeans;
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsmount, fsopen, mount, mount_bind_recursive, mount_change, move_mount, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::files::{Visible, visible};
use super::plan::JailPlan;
use super::supervise::{in_force, not_in_force};

/// Where the private root is put together. Every Linux system has this folder, and nothing that is made visible lies
/// in it.
const STAGING: &str = "/proc";

/// The scratch folder of tools a second time, under a short name: sockets are named by paths of a hundred bytes at most.
pub(super) const SHORT_SCRATCH: &str = "/nightshift-tmp";

/// Folders that a tool writes to whatever it is told: `nsys` keeps the configuration of what it loads into a program in the
/// one, and semaphores in the other. Those of a jail with a root of its own are its own, too.
pub(super) const TOOL_FOLDERS: [&str; 2] = ["/tmp", "/dev/shm"];

/// Which namespaces this process has left.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four namespaces, each of which was left or was not")]
pub(super) struct Namespaces {
    /// Users: gives the rights for all others, and none outside.
    pub(super) user: bool,
    /// Processes: those of the children end with the first of them.
    pub(super) processes: bool,
    /// Network.
    pub(super) network: bool,
    /// Mounts, with a private root.
    pub(super) mount: bool,
}

/// Leaves the namespaces of users, processes, network and inter-process communication. The process namespace holds for
/// the children.
pub(super) fn leave_namespaces(means: &mut Vec<SandboxMeans>) -> Namespaces {
    let mut left = Namespaces::default();
    match own_users() {
        Ok(()) => {
            left.user = true;
            means.push(in_force("user_namespace", "own identity only"));
        }
        Err(reason) => {
            means.push(not_in_force("user_namespace", &reason));
            return left;
        }
    }
    for (flag, name) in [
        (UnshareFlags::NEWPID, "pid_namespace"),
        (UnshareFlags::NEWNET, "network_namespace"),
        (UnshareFlags::NEWIPC, "ipc_namespace"),
    ] {
        match unshare(flag) {
            Ok(()) => {
                left.processes |= flag == UnshareFlags::NEWPID;
                left.network |= flag == UnshareFlags::NEWNET;
                means.push(in_force(name, "own"));
            }
            Err(error) => means.push(not_in_force(name, &error.to_string())),
        }
    }
    left
}

fn unshare(flags: UnshareFlags) -> std::io::Result<()> {
    // SAFETY: none of the flags used here detaches the table of descriptors, and the process has one thread.
    Ok(unsafe { unshare_unsafe(flags) }?)
}

/// Lets the processes of this network namespace talk to each other. A new one has a loopback that is switched off.
pub(super) fn switch_loopback_on() -> std::io::Result<()> {
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

/// Leaves the users' namespace, and keeps its own user and group number in the new one.
fn own_users() -> Result<(), String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).map_err(|error| error.to_string())?;
    let write = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("{file}: {error}"))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

/// Gives this process a root of its own: the visible paths, read-only, and the scratch folder. On failure the old
/// root is still in place.
pub(super) fn enter_private_root(plan: &JailPlan) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    unshare(UnshareFlags::NEWNS).map_err(|error| failed("leaving the mount namespace", &error))?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(|error| failed("making mounts private", &error))?;
    // Before anything covers the processes of outside: the kernel gives a new view only to those who have a whole one.
    let processes = plan.shows_machine().then(own_processes).transpose()?;
    let options = CString::new("size=4m,mode=755").unwrap_or_default();
    mount("tmpfs", STAGING, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
        .map_err(|error| failed("mounting the private root", &error))?;
    let built = build_root(plan).and_then(|()| show_processes(processes)).and_then(|()| {
        let old = Path::new(STAGING).join(".old");
        std::fs::create_dir(&old).map_err(|error| failed("making a place for the old root", &error))?;
        rustix::process::pivot_root(STAGING, &old).map_err(|error| failed("changing the root", &error))
    });
    if let Err(reason) = built {
        let _ = unmount(STAGING, UnmountFlags::DETACH);
        return Err(reason);
    }
    // From here on the new root is in force; what fails now leaves less visible, never more.
    std::env::set_current_dir("/").map_err(|error| failed("entering the private root", &error))?;
    unmount("/.old", UnmountFlags::DETACH).map_err(|error| failed("leaving the old root", &error))?;
    let _ = std::fs::remove_dir("/.old");
    set_attributes(Path::new("/"), false, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID)
        .map_err(|error| failed("making the private root read-only", &error))
}

fn build_root(plan: &JailPlan) -> Result<(), String> {
    let Visible { mut read_only, devices, scratch, .. } = visible(plan)?;
    // Folders before what lies in them: a place that is there already counts as shown.
    if plan.is_for_tool() {
        for folder in TOOL_FOLDERS {
            make_own(Path::new(folder))?;
        }
    }
    read_only.sort_by_cached_key(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let read_only_attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    for path in &read_only {
        show(path, read_only_attributes)?;
    }
    for device in &devices {
        show(device, libc::MOUNT_ATTR_NOSUID)?;
    }
    if let Some(path) = &scratch {
        show(path, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)?;
        if plan.shows_machine() {
            show_again(path, Path::new(SHORT_SCRATCH))?;
        }
    }
    Ok(())
}

/// Makes an empty folder for the processes of this jail, in memory.
fn make_own(folder: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("making an own {}: {error}", folder.display());
    let target = staged(folder);
    std::fs::create_dir_all(&target).map_err(|error| failed(&error))?;
    let options = CString::new("size=64m,mode=1777").unwrap_or_default();
    mount("tmpfs", &target, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
        .map_err(|error| failed(&error))
}

/// Makes the scratch folder visible under another name, too.
fn show_again(scratch: &Path, name: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("showing the scratch folder as {}: {error}", name.display());
    let target = staged(name);
    std::fs::create_dir_all(&target).map_err(|error| failed(&error))?;
    mount_bind_recursive(scratch, &target).map_err(|error| failed(&error))?;
    set_attributes(&target, true, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV).map_err(|error| failed(&error))
}

/// A view of this process namespace, mounted nowhere yet.
fn own_processes() -> Result<OwnedFd, String> {
    let failed = |what: &str, error: rustix::io::Errno| format!("{what} the view of processes: {error}");
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|error| failed("opening", error))?;
    fsconfig_create(&context).map_err(|error| failed("making", error))?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)
        .map_err(|error| failed("mounting", error))
}

fn show_processes(processes: Option<OwnedFd>) -> Result<(), String> {
    let Some(processes) = processes else { return Ok(()) };
    let target = Path::new(STAGING).join("proc");
    std::fs::create_dir_all(&target).map_err(|error| format!("making a place for the view of processes: {error}"))?;
    move_mount(&processes, "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| format!("showing the processes: {error}"))
}

/// Makes one path visible in the private root, under the name that it has outside.
fn show(path: &Path, attributes: u64) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what} {}: {error}", path.display());
    let real = path.canonicalize().map_err(|error| failed("resolving", &error))?;
    let target = staged(&real);
    let writable = attributes & libc::MOUNT_ATTR_RDONLY == 0;
    if writable || !target.exists() {
        let parent = target.parent().unwrap_or(Path::new(STAGING));
        std::fs::create_dir_all(parent).map_err(|error| failed("making a place for", &error))?;
        if real.is_dir() {
            std::fs::create_dir_all(&target).map_err(|error| failed("making a place for", &error))?;
        } else if !target.exists() {
            std::fs::write(&target, "").map_err(|error| failed("making a place for", &error))?;
        }
        mount_bind_recursive(&real, &target).map_err(|error| failed("binding", &error))?;
        set_attributes(&target, true, attributes).map_err(|error| failed("restricting", &error))?;
    }
    let named = staged(path);
    if real != path && named.symlink_metadata().is_err() {
        if let Some(parent) = named.parent() {
            std::fs::create_dir_all(parent).map_err(|error| failed("making a place for", &error))?;
        }
        std::os::unix::fs::symlink(&real, &named).map_err(|error| failed("linking", &error))?;
    }
    Ok(())
}

fn staged(path: &Path) -> PathBuf {
    Path::new(STAGING).join(path.strip_prefix("/").unwrap_or(path))
}

/// Adds attributes to a mount, and to all mounts below it when `recursive`.
fn set_attributes(path: &Path, recursive: bool, attributes: u64) -> std::io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a C string, and the structure is initialized and of the size that is passed.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
