//! Finding the library of CUPTI.

use std::path::{Path, PathBuf};

use crate::tool::{MissingTool, Tool};

/// Names of the library, the newest first.
const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

/// Folders below the root of the system in which it may lie.
const FOLDERS: [&str; 5] = [
    "usr/local/cuda/extras/CUPTI/lib64",
    "usr/local/cuda/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
];

/// Finds the library: beside the toolkit's others, and where installers put it.
pub(crate) fn find(root: &Path, library_path: &[PathBuf]) -> Result<Tool, MissingTool> {
    let beside = library_path.iter().flat_map(|folder| {
        // A toolkit keeps it apart from what programs need to run.
        [folder.clone(), folder.join("../extras/CUPTI/lib64")]
    });
    let folders = beside.chain(FOLDERS.iter().map(|folder| root.join(folder)));
    let found =
        folders.flat_map(|folder| NAMES.map(|name| folder.join(name))).find_map(|path| path.canonicalize().ok());
    let Some(path) = found.filter(|path| path.is_file()) else {
        return Err(MissingTool {
            reason:
                "`libcupti.so` is not there where it was looked for: beside the libraries of nvcc, in the toolkit's \
                     extras and among the system's libraries"
                    .to_owned(),
            remedy: "install CUPTI (package cuda-cupti of NVIDIA's repository, the CUDA toolkit, or the pip package \
                     nvidia-cuda-cupti), or Nsight Systems, whose timeline says the same and more"
                .to_owned(),
            did_not_answer: false,
        });
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let version = name.split_once(".so.").map(|(_, version)| version.to_owned()).unwrap_or_default();
    let folders = path.parent().map(Path::to_path_buf).into_iter().collect();
    Ok(Tool { path, version, folders, library_path: Vec::new() })
}
