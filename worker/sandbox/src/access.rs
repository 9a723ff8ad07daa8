//! Makes files reachable for the unprivileged user that a worker of root maps programs to.
//!
//! This is the only place that changes owners and permissions. A worker of an ordinary user changes nothing: its programs
//! run as the same user.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chownat, openat, statat};
use rustix::process::{Gid, Uid};
use tempfile::TempDir;

use crate::user::UnprivilegedUser;

/// Permissions of a folder of root whose files a program reads: others may enter and list it.
const SHARED_FOLDER: u32 = 0o755;

/// Maximum number of entries of a scratch folder.
const MAX_ENTRIES: usize = 100_000;

/// Maximum number of levels of a scratch folder.
const MAX_DEPTH: usize = 64;

/// Creates a temporary folder below another one. Programs that are shown the folder can read it, also when the worker is
/// root.
pub fn temporary_folder(parent: &Path, prefix: &str) -> std::io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(SHARED_FOLDER))?;
    }
    Ok(folder)
}

/// Gives a scratch folder and its contents to a user.
///
/// An earlier program may have written the contents. The walk therefore follows no links, and leaves out files with several
/// names, which may be names of files elsewhere.
pub(crate) fn give_to(user: UnprivilegedUser, folder: &Path) -> std::io::Result<()> {
    let root = openat(CWD, folder, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    chownat(&root, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    let mut entries = 0;
    let mut folders: Vec<(OwnedFd, usize)> = vec![(root, 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            entries += 1;
            if entries > MAX_ENTRIES || depth > MAX_DEPTH {
                return Err(std::io::Error::other("the scratch folder has too many files"));
            }
            let found = statat(folder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
            if is_folder {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                folders.push((openat(folder.as_fd(), name, flags, Mode::empty())?, depth + 1));
            }
            if found.st_uid != user.uid && (is_folder || found.st_nlink == 1) {
                chownat(folder.as_fd(), name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_temporary_folder_of_root_can_be_read_by_programs() {
        let parent = tempfile::tempdir().unwrap();
        let folder = temporary_folder(parent.path(), "step-").unwrap();
        let mode = folder.path().metadata().unwrap().mode() & 0o777;
        assert!(!rustix::process::geteuid().is_root() || mode == SHARED_FOLDER, "{mode:o}");
    }

    #[test]
    fn a_scratch_folder_changes_hands_without_what_its_links_name() {
        if !rustix::process::geteuid().is_root() {
            return skipped();
        }
        let (outside, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let user = UnprivilegedUser::default();
        for name in ["target", "twice"] {
            std::fs::write(outside.path().join(name), "").unwrap();
        }
        let at = |name: &str| scratch.path().join(name);
        std::fs::create_dir(at("folder")).unwrap();
        std::fs::write(at("folder/file"), "").unwrap();
        std::os::unix::fs::symlink(outside.path().join("target"), at("link")).unwrap();
        std::fs::hard_link(outside.path().join("twice"), at("hard-link")).unwrap();
        give_to(user, scratch.path()).unwrap();
        let owner = |path: &Path| path.symlink_metadata().unwrap().uid();
        for name in ["", "folder", "folder/file", "link"] {
            assert_eq!(owner(&at(name)), user.uid, "{name}");
        }
        assert_eq!((owner(&outside.path().join("target")), owner(&at("hard-link"))), (0, 0));
        let linked = outside.path().join("folder-link");
        std::os::unix::fs::symlink(scratch.path(), &linked).unwrap();
        assert!(give_to(user, &linked).is_err(), "the folder itself is no link");
    }

    fn skipped() {
        eprintln!("skipped: only root changes owners of files");
    }
}
