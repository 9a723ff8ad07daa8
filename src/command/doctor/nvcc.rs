//! The CUDA compiler, tried as a worker tries it.

use std::path::Path;

use nightshift_protocol::task::CudaLibrary;
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{CancelFlag, JailHost, JailedCommand, SandboxChoice, run_jailed};
use nightshift_toolchain::machine;
use nightshift_toolchain::nvcc::{Nvcc, NvccError, Search, title};
use nightshift_worker::lease::WorkerConfig;

use super::Check;
use crate::compose;

const NAME: &str = "nvcc";

/// What is to be said about the compiler, or about its absence.
pub(super) fn check(found: &Result<Nvcc, NvccError>, config: &WorkerConfig) -> Check {
    match found {
        Ok(nvcc) => describe(nvcc, config),
        Err(error) => Check::warning(
            NAME,
            format!("{}: {}", error.code(), compose::describe(error)),
            match error {
                NvccError::NotFound { .. } => {
                    "needed for the `cuda` target only; `nightshift doctor --install-nvcc` installs it without a GPU or root"
                }
                _ => "needed for the `cuda` target only",
            },
        ),
    }
}

/// The compiler that a worker of this configuration takes, tried on a small program. Blocks, and starts processes.
pub(super) fn find(config: &WorkerConfig) -> Result<Nvcc, NvccError> {
    let scratch = temporary_folder(&std::env::temp_dir(), "nightshift-doctor-")
        .and_then(|folder| folder.path().canonicalize().map(|path| (folder, path)))
        .map_err(|source| NvccError::Scratch { folder: std::env::temp_dir(), source })?;
    let device = config.gpus.usable().first().map(|gpu| gpu.facts.compute_capability);
    let search = Search {
        configured: config.nvcc.nvcc.as_deref(),
        search_path: &config.search_path,
        system_root: Path::new("/"),
        install_folder: config.nvcc.install_folder.as_deref(),
        arch: config.nvcc.arch(device)?,
        host_compiler: None,
        os: &machine::this_hardware().os,
        proofs: None,
    };
    let jail = JailHost::new(config.executable.clone(), SandboxChoice::Best);
    let never = CancelFlag::default();
    Nvcc::find(&search, &scratch.1, &|command: &JailedCommand| run_jailed(&jail, command, &never))
}

fn describe(nvcc: &Nvcc, config: &WorkerConfig) -> Check {
    let why = match (&config.nvcc.arch, config.gpus.usable().first()) {
        (Some(_), _) => "worker.cuda_arch",
        (None, Some(_)) => "the GPU's",
        (None, None) => "the default: there is no GPU to ask",
    };
    let (there, missing): (Vec<CudaLibrary>, Vec<CudaLibrary>) =
        CudaLibrary::ALL.into_iter().partition(|library| nvcc.has(*library));
    let names =
        |libraries: &[CudaLibrary]| libraries.iter().map(|library| title(*library)).collect::<Vec<_>>().join(", ");
    let found = format!(
        "{} ({}), builds for {} ({why}); headers of {}{}",
        nvcc.toolchain().version,
        nvcc.toolchain().path,
        nvcc.arch(),
        if there.is_empty() { "no library".to_owned() } else { names(&there) },
        if missing.is_empty() { String::new() } else { format!(", not of {}", names(&missing)) },
    );
    match nvcc.disassembler() {
        Some(disassembler) => {
            let name = disassembler.program().file_name().unwrap_or_default().to_string_lossy();
            Check::ok(NAME, format!("{found}; {name} counts instructions"))
        }
        None => Check::warning(
            NAME,
            format!("{found}; no disassembler"),
            "without nvdisasm or cuobjdump the report of a build has no instruction counts; `nightshift doctor \
             --install-nvcc` installs both",
        ),
    }
}
