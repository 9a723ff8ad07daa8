//! Inspects a file with a model by running it in the jail.
//!
//! The file is untrusted: it may fail, never end, or exceed a limit. Each of these is a result about the file.

use std::path::Path;

use nightshift_protocol::task::{DType, Distribution, TaskProblem};
use nightshift_protocol::verdict::ProcessEnd;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::python::{Python, environment};
use nightshift_sandbox::process::{
    CancelFlag, JailHost, JailedCommand, Limits, ProcessError, ProcessResult, run_jailed,
};

/// Does the work, in Python.
const SCRIPT: &str = concat!(
    include_str!("inspect/file.py"),
    include_str!("inspect/distributions.py"),
    include_str!("inspect/operators.py"),
    include_str!("inspect/model.py")
);

/// How that is called in the jail.
const SCRIPT_FILE: &str = "inspect_model.py";

/// How the file is called in the jail.
const FILE: &str = "reference.py";

/// Address space of the inspection in bytes: `PyTorch` takes a few GiB of it before anything happens.
const MEMORY_BYTES: u64 = 16 << 30;

/// Maximum output of the inspection, in bytes.
const OUTPUT_BYTES: usize = 8 << 20;

/// The stage that is not about the file.
const IMPORTING_TORCH: &str = "importing PyTorch";

/// With which weights are made, when their values are looked at.
const SEED: u64 = 42;

/// Parameters of an inspection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectOptions {
    /// Element type that the model is called with: `fp32`, `fp16` or `bf16`.
    pub precision: String,
    /// Whether it is called in training mode.
    pub training: bool,
    /// Maximum number of bytes of all tensors of a call.
    pub max_bytes: u64,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
}

/// A tensor of a model's call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FoundTensor {
    /// Its name in the contract.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<u64>,
    /// Distribution of its values.
    pub distribution: Distribution,
    /// Source of the distribution, for people.
    pub origin: String,
    /// For a weight: its name in the model's `state_dict`.
    #[serde(default)]
    pub state: Option<String>,
}

/// An operator of a call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FoundOperator {
    /// A name that no other one has.
    pub name: String,
    /// Class, for example `matmul`.
    pub class: String,
    /// Floating-point operations.
    pub flops: Option<f64>,
    /// Bytes read and written.
    pub bytes: Option<f64>,
    /// Shapes of its tensors.
    pub inputs: Vec<Vec<u64>>,
    /// Shapes of its results.
    pub outputs: Vec<Vec<u64>>,
    /// Names of those before it whose results it reads.
    #[serde(default)]
    pub after: Vec<String>,
    /// Number of equal operators that it represents.
    pub count: u64,
}

/// The result of an inspection.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Inspection {
    /// Arguments of the constructor, as `TorchSpec` writes them.
    pub init: Value,
    /// Arguments of `forward`, as `TorchSpec` writes them.
    pub call: Value,
    /// Types of `PyTorch` that the contract does not have.
    pub types: std::collections::BTreeMap<String, String>,
    /// Inputs.
    pub inputs: Vec<FoundTensor>,
    /// Parameters and buffers.
    pub params: Vec<FoundTensor>,
    /// Outputs.
    pub outputs: Vec<FoundTensor>,
    /// Names in the `state_dict` of buffers that the model computes.
    #[serde(default)]
    pub constants: Vec<String>,
    /// Operators of one call, in execution order.
    pub operators: Vec<FoundOperator>,
    /// Floating-point operations of a call that is a single operator.
    pub flops: Option<f64>,
    /// Bytes of all tensors of a call.
    pub bytes: f64,
    /// Bytes that every program has to move in a call, as far as the operators show it.
    #[serde(default)]
    pub moved_bytes: Option<f64>,
    /// Reasons why results of the task are less conclusive than others.
    pub problems: Vec<TaskProblem>,
    /// Other notes.
    pub notes: Vec<String>,
    /// Version of `PyTorch`.
    pub torch: String,
}

/// The reason why a file cannot become a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Stable code, documented in `docs/reference/errors.md`.
    pub code: &'static str,
    /// The problem and its remedy.
    pub message: String,
    /// Line in the file, when it has one.
    pub line: Option<u32>,
}

/// A line of the script's output.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Stage(String),
    Error { code: String, message: String, line: Option<u32> },
    Found(Box<Inspection>),
}

/// Inspects the text of a file. `scratch` is an empty folder that only this inspection uses. Blocks.
pub fn inspect(
    host: &JailHost,
    python: &Python,
    source: &str,
    options: &InspectOptions,
    scratch: &Path,
    cancel: &CancelFlag,
) -> Result<Result<Inspection, ModelError>, ProcessError> {
    let (file, script) = (scratch.join(FILE), scratch.join(SCRIPT_FILE));
    let os = |source| ProcessError::Os { what: "writing the model's file".to_owned(), source };
    std::fs::write(&file, source).map_err(os)?;
    std::fs::write(&script, SCRIPT).map_err(os)?;
    let asked = json!({
        "file": file, "name": FILE, "precision": options.precision, "training": options.training,
        "max_bytes": options.max_bytes, "seed": SEED,
    });
    let command = JailedCommand {
        program: python.program.clone(),
        args: python.flags().into_iter().chain([script.into(), asked.to_string().into()]).collect(),
        read_only: python.folders.clone(),
        scratch: scratch.to_path_buf(),
        env: environment(scratch, python.models.as_deref()),
        limits: Limits {
            wall_ms: options.wall_ms,
            cpu_s: options.wall_ms.div_ceil(1_000) * 2,
            memory_bytes: MEMORY_BYTES,
            file_bytes: 64 << 20,
            processes: 64,
            output_bytes: OUTPUT_BYTES,
        },
    };
    Ok(outcome(&run_jailed(host, &command, cancel)?))
}

fn outcome(result: &ProcessResult) -> Result<Inspection, ModelError> {
    let mut stage = "starting Python".to_owned();
    for line in String::from_utf8_lossy(&result.stdout).lines() {
        match serde_json::from_str(line) {
            Ok(Said::Stage(name)) => stage = name,
            Ok(Said::Error { code, message, line }) => return Err(ModelError { code: known(&code), message, line }),
            Ok(Said::Found(found)) => return Ok(*found),
            // A file can find our descriptor and write to it; that is its own misfortune.
            Err(_) => {}
        }
    }
    let error = |code, message| Err(ModelError { code, message, line: None });
    match &result.end {
        ProcessEnd::TimedOut { limit_ms } => {
            let seconds = limit_ms / 1_000;
            let advice = if stage == IMPORTING_TORCH {
                "this machine is slow or busy: try again, or with `import kernelbench --timeout-s` in more time"
            } else {
                "it has to come to an end sooner, or with `import kernelbench --timeout-s` in more time"
            };
            error("task.model_hangs", format!("{stage} was not over after {seconds} s: {advice}"))
        }
        ProcessEnd::MemoryExceeded { .. } => error(
            "task.model_too_large",
            format!("{stage} took all the memory that it may have: make its sizes smaller"),
        ),
        ProcessEnd::OutputExceeded { .. } => {
            let limit = OUTPUT_BYTES >> 20;
            error("task.model_fails", format!("{stage} printed more than {limit} MiB: print nothing"))
        }
        ProcessEnd::Finished => error(
            "task.model_crashes",
            format!("{stage} ended the process, as if all had been done: it must not call exit()"),
        ),
        end => {
            let printed = String::from_utf8_lossy(&result.stderr);
            let last = printed.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            error(
                "task.model_crashes",
                format!("{stage} ended the process: {} {last}", end.describe()).trim().to_owned(),
            )
        }
    }
}

/// Codes are ours, whatever a child says.
fn known(code: &str) -> &'static str {
    match code {
        "task.model_syntax" => "task.model_syntax",
        "task.model_incomplete" => "task.model_incomplete",
        "task.model_import_missing" => "task.model_import_missing",
        "task.model_wrong_device" => "task.model_wrong_device",
        "task.model_too_large" => "task.model_too_large",
        "task.model_argument" => "task.model_argument",
        "torch.missing" => "toolchain.torch_not_found",
        _ => "task.model_fails",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use nightshift_protocol::machine::SandboxReport;

    use super::*;

    fn ended(end: ProcessEnd, stdout: &str) -> ProcessResult {
        ProcessResult {
            end,
            stdout: stdout.as_bytes().to_vec(),
            stderr: b"first\nSegmentation fault\n\n".to_vec(),
            wall_ms: 1,
            peak_bytes: 1,
            sandbox: SandboxReport::default(),
        }
    }

    #[test]
    fn what_ends_early_is_told_with_the_stage_that_it_ended_in() {
        let said = "{\"stage\":\"importing the file\"}\n{\"stage\":\"get_inputs()\"}\n";
        let endless = outcome(&ended(ProcessEnd::TimedOut { limit_ms: 60_000 }, said)).unwrap_err();
        assert_eq!(endless.code, "task.model_hangs");
        assert!(endless.message.starts_with("get_inputs() was not over after 60 s"), "{endless}");
        let slow = outcome(&ended(ProcessEnd::TimedOut { limit_ms: 1_000 }, "{\"stage\":\"importing PyTorch\"}\n"));
        assert!(slow.unwrap_err().message.contains("this machine is slow"));
        let left = outcome(&ended(ProcessEnd::Finished, said)).unwrap_err();
        assert!(left.code == "task.model_crashes" && left.message.contains("must not call exit()"), "{left}");
        let crashed = outcome(&ended(ProcessEnd::Exited { status: 3 }, said)).unwrap_err();
        assert_eq!(crashed.code, "task.model_crashes");
        assert!(crashed.message.contains("Segmentation fault"), "{crashed}");
    }

    #[test]
    fn an_answer_is_believed_whatever_was_printed_around_it() {
        let said = "hello\n{\"error\":{\"code\":\"task.model_syntax\",\"message\":\"m\",\"line\":7}}\n";
        let wrong = outcome(&ended(ProcessEnd::Finished, said)).unwrap_err();
        assert_eq!((wrong.code, wrong.line), ("task.model_syntax", Some(7)));
        let made_up = outcome(&ended(ProcessEnd::Finished, &said.replace("model_syntax", "own"))).unwrap_err();
        assert_eq!(made_up.code, "task.model_fails");
    }
}
