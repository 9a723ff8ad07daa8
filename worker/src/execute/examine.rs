//! What a machine has for carrying out steps, and why it cannot.

use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;

use nightshift_protocol::machine::{MachineFacts, SandboxReport, Toolchain};
use nightshift_protocol::task::Target;

use super::devices::{self, CudaBench};
use crate::config::WorkerConfig;
use crate::scratch::Scratch;
use nightshift_sandbox::process::{
    CancelFlag, JailHost, JailedCommand, ProcessError, RunningJails, SandboxChoice, run_jailed,
};
use nightshift_toolchain::machine::{self, Hardware};
use nightshift_toolchain::toolchain::{self, ToolchainError};

/// Why a machine cannot carry out steps.
#[derive(Debug, thiserror::Error)]
pub enum WorkbenchError {
    /// A folder cannot be used.
    #[error("the folder {} cannot be used: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no compiler to work with.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// Children cannot be started at all, isolated or not.
    #[error("programs cannot be started on this machine: {0}")]
    Sandbox(#[from] ProcessError),
}

impl WorkbenchError {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "worker.folder_unusable",
            Self::Toolchain(error) => error.code(),
            Self::Sandbox(_) => "sandbox.failed",
        }
    }
}

/// Describes this machine: hardware, compiler, sandbox. What cannot be found out is left out; `toolchain::find` says
/// why there is no compiler. Blocks, and starts processes: call it from a thread that lives until it returns.
#[must_use]
pub fn examine(executable: &Path, cpp_compiler: Option<&str>, scratch: &Path) -> MachineFacts {
    let hardware = machine::this_hardware();
    let jail = jail_host(executable);
    let sandbox = probe_sandbox(executable, scratch).unwrap_or_else(|error| {
        tracing::warn!(error = %error, "the sandbox could not be examined");
        SandboxReport::default()
    });
    let toolchain = Scratch::open(scratch).ok().and_then(|scratch| {
        let never = CancelFlag::default();
        let found = find_toolchain(&jail, cpp_compiler, &hardware, (scratch.folder(), None), &never);
        found.map_err(|error| tracing::warn!(error = %error, "there is no C++ compiler to work with")).ok()
    });
    machine::facts(hardware, toolchain, sandbox)
}

/// Reports what isolates programs on this machine, as a worker finds it. Blocks, as [`examine`] does.
pub fn probe_sandbox(executable: &Path, scratch: &Path) -> Result<SandboxReport, WorkbenchError> {
    let folder = |source| WorkbenchError::Folder { folder: scratch.to_path_buf(), source };
    let life = Scratch::open(scratch).map_err(folder)?;
    Ok(nightshift_sandbox::probe(&jail_host(executable), life.folder(), &CancelFlag::default())?)
}

/// Finds the C++ compiler of this machine. Blocks, as [`examine`] does.
pub fn find_cpp_toolchain(
    executable: &Path,
    cpp_compiler: Option<&str>,
    scratch: &Path,
) -> Result<Toolchain, WorkbenchError> {
    let folder = |source| WorkbenchError::Folder { folder: scratch.to_path_buf(), source };
    let (life, never) = (Scratch::open(scratch).map_err(folder)?, CancelFlag::default());
    Ok(find_toolchain(&jail_host(executable), cpp_compiler, &machine::this_hardware(), (life.folder(), None), &never)?)
}

/// What steps need of a machine.
pub(super) struct Found {
    pub(super) toolchain: Toolchain,
    pub(super) sandbox: SandboxReport,
    /// What the `cuda` target needs, or why it is not there.
    pub(super) cuda: Result<CudaBench, String>,
}

/// Finds compilers and sandbox, at the same time: each starts processes and waits for them. With a target, what others need is not
/// looked for.
pub(super) fn find_all(
    jail: &JailHost,
    config: &WorkerConfig,
    only: Option<Target>,
    hardware: &Hardware,
    scratch: &Path,
    cancel: &CancelFlag,
) -> Result<Found, WorkbenchError> {
    let proofs = config.cache_dir.join("compilers");
    let find_cuda = |host_compiler: Option<&Path>| {
        if only == Some(Target::Cpu) {
            return Err("the `cuda` target was not asked for".to_owned());
        }
        let gpus = (&config.gpus, &config.nvcc);
        devices::find(jail, gpus, &config.search_path, host_compiler, &hardware.os, (scratch, &proofs), cancel)
    };
    std::thread::scope(|scope| {
        let sandbox = scope.spawn(|| nightshift_sandbox::probe(jail, scratch, cancel));
        // A C++ compiler that was named is nvcc's too: the system's may be one that it does not know.
        let by_system = config.cpp_compiler.is_none().then(|| scope.spawn(|| find_cuda(None)));
        let places = (scratch, Some(&*proofs));
        let toolchain = find_toolchain(jail, config.cpp_compiler.as_deref(), hardware, places, cancel);
        let cuda = match by_system {
            Some(finding) => joined(finding),
            None => find_cuda(toolchain.as_ref().ok().map(|toolchain| Path::new(&toolchain.path))),
        };
        Ok(Found { toolchain: toolchain?, sandbox: joined(sandbox)?, cuda })
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn find_toolchain(
    jail: &JailHost,
    cpp_compiler: Option<&str>,
    hardware: &Hardware,
    places: (&Path, Option<&Path>),
    cancel: &CancelFlag,
) -> Result<Toolchain, ToolchainError> {
    let run = |command: &JailedCommand| run_jailed(jail, command, cancel);
    toolchain::find(cpp_compiler, &toolchain::system_folders(), hardware, places, &run)
}

/// Returns a host of jails that stop while another process of this machine times a program. Both processes name the same folder of
/// caches, which may lie on a file system that other machines share.
#[must_use]
pub fn jail_host_of(executable: &Path, cache_dir: &Path) -> JailHost {
    let folder = cache_dir.join("devices");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let made = std::fs::create_dir_all(&folder);
    let running = made.and_then(|()| RunningJails::between_processes(&folder.join(format!("quiet-{}", boot.trim())))).unwrap_or_else(|error| {
        tracing::warn!(%error, "other processes of this kind compute while programs are timed: no lock of files can be made");
        RunningJails::default()
    });
    JailHost { running, ..jail_host(executable) }
}

pub(super) fn jail_host(executable: &Path) -> JailHost {
    JailHost::new(executable.to_path_buf(), SandboxChoice::Best)
}
