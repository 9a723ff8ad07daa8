//! Why there is no compiler to work with.

use std::path::PathBuf;

use super::COMPILERS;
use nightshift_sandbox::process::ProcessError;

/// Why there is no compiler to work with. Codes are stable: see [`ToolchainError::code`].
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// Nothing was found.
    #[error(
        "no C++ compiler was found (looked for {looked_for}): install one with `{install}`, or name one as `worker.cpp_compiler` in the configuration"
    )]
    NotFound {
        /// What was looked for, and where.
        looked_for: String,
        /// The command that installs one on this system.
        install: String,
    },
    /// The one that was named does not exist.
    #[error(
        "the C++ compiler `{name}` was not found{}: correct `worker.cpp_compiler` (configuration file, or NIGHTSHIFT_WORKER__CPP_COMPILER), or remove it to take the first that works of {}",
        looked_in.as_deref().map(|folders| format!(" in {folders}")).unwrap_or_default(),
        COMPILERS.join(", ")
    )]
    ConfiguredNotFound {
        /// The name or path, as configured.
        name: String,
        /// Where a name was looked for; nothing for a path.
        looked_in: Option<String>,
    },
    /// It knows no C++20.
    #[error(
        "the C++ compiler `{program}` ({version}) cannot compile C++20: install a newer one (GCC 10, Clang 13 or later) with `{install}`, or name one as `worker.cpp_compiler` in the configuration"
    )]
    TooOld {
        /// The program.
        program: String,
        /// Its version.
        version: String,
        /// The command that installs a newer one.
        install: String,
    },
    /// It does not work.
    #[error("the C++ compiler `{program}` does not work: {reason}")]
    Broken {
        /// The program.
        program: String,
        /// What went wrong.
        reason: String,
    },
    /// The jail does not work.
    #[error("the C++ compiler `{program}` could not be started")]
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

impl ToolchainError {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::ConfiguredNotFound { .. } => "toolchain.no_cpp_compiler",
            Self::TooOld { .. } => "toolchain.too_old",
            Self::Broken { .. } => "toolchain.broken",
            Self::NotStarted { .. } => "toolchain.not_started",
            Self::Scratch { .. } => "worker.scratch_unusable",
        }
    }
}
