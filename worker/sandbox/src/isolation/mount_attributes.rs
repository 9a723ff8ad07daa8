//! Attributes of mounts.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Adds attributes to a mount, and to all mounts below it when `recursive`.
pub(super) fn set_attributes(path: &Path, recursive: bool, attributes: u64) -> std::io::Result<()> {
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
