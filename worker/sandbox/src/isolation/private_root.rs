//! A root of the jail's own, which contains nothing but the visible paths.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};
use rustix::thread::UnshareFlags;

use super::mount_attributes::set_attributes;
use super::namespaces::unshare;
use super::own_procfs;
use super::visible_paths::{TOOL_FOLDERS, VisiblePaths};
use crate::plan::JailPlan;

/// The folder in which the private root is assembled. Every system has it, and no visible path lies in it.
const STAGING: &str = "/proc";

/// A second, short name of the scratch folder. The path of a socket has at most about a hundred bytes.
pub(crate) const SHORT_SCRATCH: &str = "/nightshift-tmp";

/// Gives this process a mount namespace and a private root with the visible paths. On failure the old root stays in place.
pub(crate) fn enter(plan: &JailPlan) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    unshare(UnshareFlags::NEWNS).map_err(|error| failed("leaving the mount namespace", &error))?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(|error| failed("making mounts private", &error))?;
    let procfs = plan.shows_kernel_files().then(own_procfs::create).transpose()?;
    let options = CString::new("size=4m,mode=755").unwrap_or_default();
    mount("tmpfs", STAGING, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
        .map_err(|error| failed("mounting the private root", &error))?;
    let built = build(plan)
        .and_then(|()| {
            procfs.as_ref().map_or(Ok(()), |procfs| own_procfs::mount_at(procfs, &staged(Path::new("/proc"))))
        })
        .and_then(|()| {
            let old = Path::new(STAGING).join(".old");
            std::fs::create_dir(&old).map_err(|error| failed("creating a folder for the old root", &error))?;
            rustix::process::pivot_root(STAGING, &old).map_err(|error| failed("changing the root", &error))
        });
    if let Err(reason) = built {
        let _ = unmount(STAGING, UnmountFlags::DETACH);
        return Err(reason);
    }
    // The new root is in force. A failure from here on leaves less visible, never more.
    std::env::set_current_dir("/").map_err(|error| failed("entering the private root", &error))?;
    unmount("/.old", UnmountFlags::DETACH).map_err(|error| failed("detaching the old root", &error))?;
    let _ = std::fs::remove_dir("/.old");
    set_attributes(Path::new("/"), false, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID)
        .map_err(|error| failed("making the private root read-only", &error))
}

fn build(plan: &JailPlan) -> Result<(), String> {
    let VisiblePaths { mut read_only, devices, scratch } = VisiblePaths::of(plan)?;
    // Parents before their contents: a path that exists already counts as shown.
    if plan.is_for_tool() {
        for folder in TOOL_FOLDERS {
            make_empty(Path::new(folder))?;
        }
    }
    read_only.sort_by_cached_key(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let restricted = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    for path in &read_only {
        show(path, restricted)?;
    }
    for device in &devices {
        show(device, libc::MOUNT_ATTR_NOSUID)?;
    }
    if let Some(path) = &scratch {
        show(path, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)?;
        if plan.shows_kernel_files() {
            show_again(path, Path::new(SHORT_SCRATCH))?;
        }
    }
    Ok(())
}

/// Creates an empty folder in memory that every process in the jail may write to.
fn make_empty(folder: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("creating an own {}: {error}", folder.display());
    let target = staged(folder);
    std::fs::create_dir_all(&target).map_err(|error| failed(&error))?;
    let options = CString::new("size=64m,mode=1777").unwrap_or_default();
    mount("tmpfs", &target, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
        .map_err(|error| failed(&error))
}

/// Shows the scratch folder under a second name.
fn show_again(scratch: &Path, name: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("showing the scratch folder as {}: {error}", name.display());
    let target = staged(name);
    std::fs::create_dir_all(&target).map_err(|error| failed(&error))?;
    mount_bind_recursive(scratch, &target).map_err(|error| failed(&error))?;
    set_attributes(&target, true, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV).map_err(|error| failed(&error))
}

/// Shows one path under its own name, and its target where the path is a link.
fn show(path: &Path, attributes: u64) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what} {}: {error}", path.display());
    let real = path.canonicalize().map_err(|error| failed("resolving", &error))?;
    let target = staged(&real);
    let is_writable = attributes & libc::MOUNT_ATTR_RDONLY == 0;
    if is_writable || !target.exists() {
        let parent = target.parent().unwrap_or(Path::new(STAGING));
        std::fs::create_dir_all(parent).map_err(|error| failed("creating a place for", &error))?;
        if real.is_dir() {
            std::fs::create_dir_all(&target).map_err(|error| failed("creating a place for", &error))?;
        } else if !target.exists() {
            std::fs::write(&target, "").map_err(|error| failed("creating a place for", &error))?;
        }
        mount_bind_recursive(&real, &target).map_err(|error| failed("binding", &error))?;
        set_attributes(&target, true, attributes).map_err(|error| failed("restricting", &error))?;
    }
    let link = staged(path);
    if real != path && link.symlink_metadata().is_err() {
        if let Some(parent) = link.parent() {
            std::fs::create_dir_all(parent).map_err(|error| failed("creating a place for", &error))?;
        }
        std::os::unix::fs::symlink(&real, &link).map_err(|error| failed("linking", &error))?;
    }
    Ok(())
}

fn staged(path: &Path) -> PathBuf {
    Path::new(STAGING).join(path.strip_prefix("/").unwrap_or(path))
}
