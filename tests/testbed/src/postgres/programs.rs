//! Where PostgreSQL's programs are. `xtask` includes this file, so that the task that lists the tools and the tests
//! that use them look in the same places.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What a private cluster is made and asked with.
const NEEDED: [&str; 4] = ["initdb", "pg_ctl", "postgres", "psql"];

/// The folder that holds all programs of one PostgreSQL: found through the search path, then where Debian puts its
/// versions (the newest first), then where an installation from source goes.
pub(crate) fn folder() -> Option<PathBuf> {
    first_complete(&std::env::var_os("PATH").unwrap_or_default(), Path::new("/"))
}

/// The first folder with all programs: in the search path, then in the usual places below `root`.
pub(crate) fn first_complete(search_path: &OsStr, root: &Path) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(search_path) {
        // A link such as `/usr/local/bin/pg_ctl` leads to the folder where its siblings are.
        folders.extend(folder.join("pg_ctl").canonicalize().ok().and_then(|real| Some(real.parent()?.to_path_buf())));
    }
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(root.join("usr/lib/postgresql"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_unstable_by(|left, right| right.cmp(left));
    folders.extend(versions.into_iter().map(|(_, folder)| folder));
    folders.push(root.join("usr/local/pgsql/bin"));
    folders.into_iter().find(|folder| NEEDED.iter().all(|name| folder.join(name).is_file()))
}
