//! The errors of finding a CUDA compiler.

use std::path::PathBuf;

use nightshift_sandbox::process::ProcessError;

/// What brings a compiler to a machine that has none.
const INSTALL: &str = "install the CUDA toolkit, run `nightshift doctor --install-nvcc`, or name a compiler as \
                       `worker.nvcc` in the configuration";

/// Why CUDA programs cannot be built here. Codes are stable: see [`NvccError::code`].
#[derive(Debug, thiserror::Error)]
pub enum NvccError {
    /// Nothing was found.
    #[error("nvcc was not found (looked in {looked_in}): {INSTALL}")]
    NotFound {
        /// Where it was looked for.
        looked_in: String,
    },
    /// The one that was named does not exist.
    #[error(
        "the CUDA compiler `{name}` was not found{}: correct `worker.nvcc` (configuration file, or NIGHTSHIFT_WORKER__NVCC), or remove it to take the first that works",
        looked_in.as_deref().map(|folders| format!(" in {folders}")).unwrap_or_default()
    )]
    ConfiguredNotFound {
        /// The name or path, as configured.
        name: String,
        /// Where a name was looked for; nothing for a path.
        looked_in: Option<String>,
    },
    /// It needs a C++ compiler for the part of a program that runs on the processor.
    #[error(
        "nvcc needs a C++ compiler for the host's part of a program, and none was found (looked for {looked_for}): install one with `{install}`"
    )]
    NoHostCompiler {
        /// What was looked for.
        looked_for: String,
        /// The command that installs one.
        install: String,
    },
    /// The two compilers do not fit together.
    #[error(
        "the CUDA compiler `{program}` ({version}) does not work with the C++ compiler `{host}`: {reason}; name one that it supports as `worker.cpp_compiler`, or take a newer CUDA toolkit"
    )]
    HostCompilerRefused {
        /// The CUDA compiler.
        program: String,
        /// Its version.
        version: String,
        /// The C++ compiler.
        host: String,
        /// What it said.
        reason: String,
    },
    /// The text is no architecture.
    #[error(
        "`{text}` is no GPU architecture: `worker.cuda_arch` is a name such as sm_90a, or a compute capability such as 9.0"
    )]
    UnreadableArch {
        /// What was configured.
        text: String,
    },
    /// The compiler is too old or too new for the device.
    #[error(
        "the CUDA compiler `{program}` ({version}) does not build for {arch}: {reason}; take a CUDA toolkit that does, or set `worker.cuda_arch`"
    )]
    ArchUnsupported {
        /// The program.
        program: String,
        /// Its version.
        version: String,
        /// The architecture.
        arch: String,
        /// What it said.
        reason: String,
    },
    /// Parts of the toolkit are missing.
    #[error(
        "the CUDA toolkit of `{program}` is incomplete: {reason}; reinstall it, or run `nightshift doctor --install-nvcc`"
    )]
    Incomplete {
        /// The program.
        program: String,
        /// What is missing.
        reason: String,
    },
    /// It does not work.
    #[error("the CUDA compiler `{program}` does not work: {reason}")]
    Broken {
        /// The program.
        program: String,
        /// What went wrong.
        reason: String,
    },
    /// The jail does not work.
    #[error("the CUDA compiler `{program}` could not be started")]
    NotStarted {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: ProcessError,
    },
    /// The probe's files could not be written.
    #[error("the scratch folder {} cannot be used", folder.display())]
    Scratch {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl NvccError {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::ConfiguredNotFound { .. } => "toolchain.no_nvcc",
            Self::NoHostCompiler { .. } | Self::HostCompilerRefused { .. } => "toolchain.host_compiler",
            Self::UnreadableArch { .. } | Self::ArchUnsupported { .. } => "toolchain.cuda_arch",
            Self::Incomplete { .. } => "toolchain.incomplete",
            Self::Broken { .. } => "toolchain.broken",
            Self::NotStarted { .. } => "toolchain.not_started",
            Self::Scratch { .. } => "worker.scratch_unusable",
        }
    }
}
