//! A `/proc` of the jail's own processes, in which the kernel's settings cannot be written and its secrets not be read.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsmount, fsopen, mount_bind_recursive,
    move_mount,
};

use super::mount_attributes::set_attributes;

/// Entries that can be read but not written: settings, interrupts, buses and the trigger of emergency functions.
const READ_ONLY: [&str; 10] = ["acpi", "asound", "bus", "driver", "fs", "irq", "mtrr", "scsi", "sys", "sysrq-trigger"];

/// Entries that are replaced by an empty file: memory of the kernel, its keys, symbols, timers and log.
const MASKED: [&str; 13] = [
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "sched_debug",
    "timer_list",
    "timer_stats",
    "vmcore",
];

/// Creates a `/proc` of this process namespace, which is mounted nowhere yet.
///
/// Do it before anything covers `/proc`: in a user namespace the kernel creates a new one only where all of the old one is
/// visible.
pub(super) fn create() -> Result<OwnedFd, String> {
    let failed = |what: &str, error: rustix::io::Errno| format!("{what} an own /proc: {error}");
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|error| failed("opening", error))?;
    fsconfig_create(&context).map_err(|error| failed("creating", error))?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(|error| failed("mounting", error))
}

/// Mounts a `/proc` at a folder, which is created, and protects the kernel's entries.
pub(super) fn mount_at(procfs: &OwnedFd, target: &Path) -> Result<(), String> {
    let failed = |what: &str, path: &Path, error: &dyn std::fmt::Display| format!("{what} {}: {error}", path.display());
    std::fs::create_dir_all(target).map_err(|error| failed("creating", target, &error))?;
    move_mount(procfs, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| failed("mounting", target, &error))?;
    let restricted = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    let own = READ_ONLY.iter().map(|name| (target.join(name), target.join(name)));
    let empty = MASKED.iter().map(|name| (Path::new("/dev/null").to_path_buf(), target.join(name)));
    for (source, entry) in own.chain(empty).filter(|(_, entry)| entry.exists()) {
        mount_bind_recursive(&source, &entry).map_err(|error| failed("covering", &entry, &error))?;
        set_attributes(&entry, true, restricted).map_err(|error| failed("protecting", &entry, &error))?;
    }
    Ok(())
}
