//! The sources of the crates that ship.

use std::path::{Path, PathBuf};

/// Folders of the crates that ship, below the root.
pub(crate) const SHIPPED: [&str; 14] = [
    "src",
    "protocol/src",
    "engine/src",
    "store/src",
    "optimizer/src",
    "client/src",
    "client/mcp/src",
    "server/src",
    "worker/src",
    "worker/sandbox/src",
    "worker/toolchain/src",
    "worker/evaluator/src",
    "worker/profilers/src",
    "dashboard/src",
];

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below this folder with its text.
pub(crate) fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    sources_in(folder, &["rs"])
}

/// The same in languages that these extensions name.
pub(crate) fn sources_in(folder: &Path, extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known)) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "{} holds no sources", folder.display());
    found
}
