//! Why a program cannot go on.

use nightshift_protocol::machine::SandboxReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::ProcessError;

use crate::memory::MemoryError;

/// Why a program cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program's process ended, or was ended: a fact about the program.
    #[error("{}", .0.describe())]
    Ended(ProcessEnd),
    /// The isolation is not sufficient; the program was not loaded.
    #[error("the isolation of this machine is not sufficient")]
    Insufficient(Box<SandboxReport>),
    /// The device could not be opened; the program was not loaded.
    #[error("the GPU cannot be used: {error} while {during}")]
    Device {
        /// The driver's name of the error.
        error: String,
        /// What was being done.
        during: String,
    },
    /// A file of Python cannot be run here; it was not loaded.
    #[error("programs of PyTorch cannot be run on this machine: {reason}")]
    Python {
        /// Why.
        reason: String,
    },
    /// Shared memory cannot be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The process could not be started or watched.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl ProgramError {
    /// Returns how the program ended, or the failure of the infrastructure.
    pub fn into_end(self) -> Result<ProcessEnd, StepFailure> {
        match self {
            Self::Ended(end) => Ok(end),
            Self::Insufficient(report) => Err(insufficient(&report)),
            error @ Self::Device { .. } => Err(StepFailure::retriable("gpu.unusable", error.to_string())),
            error @ Self::Python { .. } => Err(StepFailure::retriable("worker.no_torch", error.to_string())),
            Self::Memory(error) => Err(error.into()),
            Self::Process(error) => Err(error.into()),
        }
    }
}

fn insufficient(report: &SandboxReport) -> StepFailure {
    let missing = report.insufficiency().unwrap_or_else(|| "the isolation changed".to_owned());
    let refused: Vec<String> = report
        .means
        .iter()
        .filter(|means| !means.in_force)
        .map(|means| format!("{}: {}", means.name, means.detail))
        .collect();
    StepFailure::fatal(
        "sandbox.insufficient",
        format!(
            "the program is not sufficiently isolated: {missing} (not in force: {}). `--allow-unsandboxed` runs a live \
             model's code anyway",
            refused.join("; ")
        ),
    )
}
