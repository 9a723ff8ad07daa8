//! A program as something to take away: a stand-alone `CMake` project that checks and times it, or a `ModelNew` of `PyTorch`.
//!
//! Pure: from the task, what is known of the attempt, and its source, to the texts of files. What a worker said about its
//! compiler is shown and never built with: the flags are those of this release.

mod contract;
mod model_new;
mod project;
mod quote;
mod template;

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::id::RunId;
use nightshift_protocol::task::{CandidateForm, ConcreteShapes, CudaLibrary, ShapeError, Target, TaskBundle};

/// Flags of programs for the `cpu` target, as workers build with.
const CPU_FLAGS: [&str; 13] = [
    "-std=c++20",
    "-O3",
    if cfg!(target_arch = "aarch64") { "-mcpu=native" } else { "-march=native" },
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-semantic-interposition",
    "-Wl,-z,defs",
    "-Wl,-z,now",
];
/// Flags of programs for the `cuda` target; the architecture comes before them.
const CUDA_FLAGS: [&str; 7] = [
    "-std=c++20",
    "-O3",
    "-lineinfo",
    "-shared",
    "-cudart=static",
    "-Xcompiler=-fPIC,-fvisibility=hidden",
    "-Xlinker=-z,now",
];

/// The flags that programs for a target are built with, the architecture of a GPU left aside.
#[must_use]
pub fn flags(target: Target) -> &'static [&'static str] {
    match target {
        Target::Cpu => &CPU_FLAGS,
        Target::Cuda => &CUDA_FLAGS,
    }
}

/// An attempt with what its export is made of.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The attempt.
    pub attempt: &'a Attempt,
    /// Its task, with the reference.
    pub task: &'a TaskBundle,
    /// Its source.
    pub source: &'a str,
}

/// A file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// Its name, in the folder of the project.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

/// Why an attempt cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The candidate is Python already.
    #[error("the program is written for PyTorch, and a CMake project holds C++ or CUDA C++: export it as `model-new`")]
    TorchForm,
    /// The task's shapes cannot be used.
    #[error("the task's shapes cannot be used: {0}")]
    Shape(#[from] ShapeError),
}

impl ExportError {
    /// The stable code; see `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TorchForm => "attempt.torch_form",
            Self::Shape(_) => "task.unreadable",
        }
    }
}

/// The files of a stand-alone `CMake` project: candidate, reference, contract, and a program that compares and times both. It
/// asks a reference that is a model of `PyTorch` with the Python of the machine.
pub fn project(program: &Program<'_>) -> Result<Vec<ProjectFile>, ExportError> {
    if program.task.spec.form == CandidateForm::Torch {
        return Err(ExportError::TorchForm);
    }
    project::files(program)
}

/// A Python file with `ModelNew`, which compiles the program where it is run. A program that is written for `PyTorch` is given
/// as it is.
pub fn model_new(program: &Program<'_>) -> Result<String, ExportError> {
    match program.task.spec.form {
        CandidateForm::Native => model_new::text(program),
        CandidateForm::Torch => Ok(match program.doubt() {
            Some(doubt) => format!("# WARNING: {doubt}\n{}", program.source),
            None => program.source.to_owned(),
        }),
    }
}

impl Program<'_> {
    fn target(&self) -> Target {
        self.task.spec.target
    }

    /// `default` first.
    fn shapes(&self) -> Result<Vec<ConcreteShapes>, ExportError> {
        Ok(self.task.spec.all_shapes()?)
    }

    /// Why it should not be used as it is; none for a program that was found to be right.
    fn doubt(&self) -> Option<String> {
        let outcome = self.attempt.outcome;
        (!outcome.is_correct()).then(|| {
            format!(
                "this attempt was not found to be right (outcome: {}). Do not use it as it is.",
                outcome.as_str().replace('_', " ")
            )
        })
    }

    /// What is known of it, one fact a line.
    fn facts(&self) -> Vec<String> {
        let attempt = self.attempt;
        let mut facts = vec![
            format!("Task: {} ({})", self.task.spec.name, quote::one_line(&self.task.spec.title)),
            format!("Attempt {} of {}", attempt.number, self.run),
            format!("Outcome: {}", attempt.outcome.as_str().replace('_', " ")),
        ];
        if let Some(source) = &attempt.source {
            facts.push(format!("Source (blake3): {source}"));
        }
        if let Some(speedup) = attempt.speedup().filter(|_| attempt.outcome.is_correct()) {
            let confirmed = if attempt.confirmation.is_some() { ", confirmed in a fresh process" } else { "" };
            facts.push(format!(
                "Measured: {:.3} times as fast as the baseline ({:.3} to {:.3}{confirmed})",
                speedup.estimate, speedup.low, speedup.high
            ));
        }
        if let Some(build) = &attempt.build {
            let toolchain = &build.toolchain;
            facts.push(format!(
                "Built with: {}, {}",
                quote::one_line(&toolchain.version),
                quote::one_line(&toolchain.flags.join(" "))
            ));
        }
        facts
    }

    /// The architecture that it was built for, for example `sm_90a`, when it has the form of one.
    fn arch(&self) -> Option<&str> {
        let arch = self.attempt.build.as_ref()?.cuda.as_ref()?.arch.as_str();
        let digits = arch.strip_prefix("sm_")?;
        let number = digits.strip_suffix(['a', 'f']).unwrap_or(digits);
        (matches!(number.len(), 2 | 3) && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(arch)
    }

    /// What the linker is told of the libraries that the task allows.
    fn linked(&self) -> Vec<&'static str> {
        self.task.spec.libraries.iter().filter_map(|library| linker_flag(*library)).collect()
    }
}

fn linker_flag(library: CudaLibrary) -> Option<&'static str> {
    match library {
        CudaLibrary::Cublas => Some("-lcublas"),
        CudaLibrary::CublasLt => Some("-lcublasLt"),
        CudaLibrary::Cudnn => Some("-lcudnn"),
        CudaLibrary::Cccl | CudaLibrary::Cutlass => None,
    }
}
