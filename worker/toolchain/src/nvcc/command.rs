//! Runs of nvcc.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nightshift_sandbox::process::JailedCommand;

use super::Nvcc;
use crate::compiler_limits::{LIBRARY, limits};
use crate::toolchain::readable_folders;

/// Folder, within that of the build, for what nvcc's steps hand to each other: its files have the same names every
/// time, which temporary ones would not.
pub(crate) const KEPT: &str = "keep";

/// Memory of each process of the compiler, in bytes of address space: heavy templates take gigabytes.
const COMPILER_MEMORY_BYTES: u64 = 12 << 30;

/// Returns the nvcc command for a folder that holds the source, `nightshift.h` and the folder [`KEPT`].
pub(crate) fn command(nvcc: &Nvcc, file: &str, folder: &Path, timeout_ms: u64, extra: Vec<OsString>) -> JailedCommand {
    let mut args: Vec<OsString> = nvcc.toolchain.flags.iter().map(OsString::from).collect();
    args.extend(extra);
    // From here on nothing changes the code: where things lie, messages for the Coder, notes for the Verifier, and a
    // library that does not depend on the folder it was built in.
    args.push(format!("-ccbin={}", nvcc.host_compiler.display()).into());
    if let Some(folder) = nvcc.toolkit.runtime_folder() {
        args.push(format!("-L{}", folder.display()).into());
    }
    for flag in [
        "-Xptxas=-v,-warn-spills",
        "-Xcompiler=-Wall,-fmax-errors=20,-fdiagnostics-color=never",
        "-Wno-deprecated-gpu-targets",
        "--keep",
        "--keep-dir",
        KEPT,
    ] {
        args.push(flag.into());
    }
    // The front end makes the names of hidden kernels from the path of the source.
    args.push(format!("-Xcudafe=--orig_src_path_name={file}").into());
    args.extend([file, "-o", LIBRARY].map(OsString::from));
    jailed_nvcc(nvcc, folder, timeout_ms, args)
}

/// A run of nvcc with these arguments in a folder that it may write to.
pub(crate) fn jailed_nvcc(nvcc: &Nvcc, folder: &Path, timeout_ms: u64, args: Vec<OsString>) -> JailedCommand {
    let program = PathBuf::from(&nvcc.toolchain.path);
    let mut read_only = readable_folders(&program);
    for folder in readable_folders(&nvcc.host_compiler) {
        if !read_only.contains(&folder) {
            read_only.push(folder);
        }
    }
    for folder in nvcc.toolkit.folders_beside() {
        if !read_only.iter().any(|known| folder.starts_with(known)) {
            read_only.push(folder);
        }
    }
    let mut limits = limits(timeout_ms);
    limits.memory_bytes = COMPILER_MEMORY_BYTES;
    JailedCommand {
        program,
        args,
        read_only,
        scratch: folder.to_path_buf(),
        env: vec![("LC_ALL".to_owned(), "C".to_owned()), ("SOURCE_DATE_EPOCH".to_owned(), "0".to_owned())],
        limits,
    }
}
