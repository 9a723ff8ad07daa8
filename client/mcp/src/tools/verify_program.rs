//! `verify_program`.

use nightshift_protocol::task::{CandidateForm, PrecisionPolicy};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::get_verification::{Answer, answer_after};
use super::verifications;
use crate::error::ToolError;
use crate::limits::MAX_PROGRAM_BYTES;
use crate::ports::VerifyRequest;
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct VerifyProgram;

/// The language of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Language {
    /// C++ or CUDA C++ that exports `ns_run`.
    Native,
    /// Python with a class `ModelNew`.
    Python,
}

fn policies(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": PrecisionPolicy::ALL.map(PrecisionPolicy::as_str)})
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Name of a task of list_tasks, a folder with a task.toml, or a PyTorch file.
    task: String,
    /// The whole text of the program, at most 1 MiB.
    source: String,
    /// `native`, or `python` for a program of a PyTorch task. Default: `python` if the source defines `ModelNew`, else
    /// `native`.
    language: Option<Language>,
    /// Verify only this shape, for a quick look. A full verdict needs all shapes.
    shape: Option<String>,
    /// Precision policy, instead of the task's. The evidence for the verdict then counts as incomplete.
    #[serde(default)]
    #[schemars(schema_with = "policies")]
    policy: Option<PrecisionPolicy>,
    /// Measure the other baselines too (minutes, once per task and machine), and compare with the fastest.
    #[serde(default)]
    baselines: bool,
    /// Profile the program if it is correct.
    #[serde(default)]
    profile: bool,
    /// Seconds to wait for the verdict, 0 to 45; default 30.
    wait_s: Option<u32>,
    /// Repeating the same program with the same key returns the verification that it started before.
    idempotency_key: Option<String>,
}

impl Tool for VerifyProgram {
    const NAME: &'static str = "verify_program";
    const TITLE: &'static str = "Verify a program";
    const DESCRIPTION: &'static str = "Judges one program of a task on this machine: builds it, checks its results on unseen inputs at every shape, and \
        measures it against the reference. Answers with the handle `verification`, valid while this process lives, and with the verdict if it is \
        there within `wait_s`. Otherwise call get_verification with the handle until `state` is `ended`: judging goes on, also when this call is \
        cancelled. One program is judged at a time, so that measurements do not disturb each other. Nothing is stored on a server, and no \
        attempt of a campaign is used.";
    const ACCESS: Access = Access::Judges;
    const EFFECT: Effect = Effect::Adds;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let invalid = |code: &str, message: String| Err(ToolError::new(code, message));
        if arguments.source.len() > MAX_PROGRAM_BYTES {
            let bytes = arguments.source.len();
            return invalid(
                "request.program_too_large",
                format!("the program has {bytes} bytes, and at most {MAX_PROGRAM_BYTES} are judged"),
            );
        }
        if arguments.source.trim().is_empty() {
            return invalid(
                "request.invalid_arguments",
                "`source` is empty: give the whole text of the program".to_owned(),
            );
        }
        let language = arguments.language.unwrap_or(if defines_model_new(&arguments.source) {
            Language::Python
        } else {
            Language::Native
        });
        let request = VerifyRequest {
            task: arguments.task,
            source: arguments.source,
            form: match language {
                Language::Native => CandidateForm::Native,
                Language::Python => CandidateForm::Torch,
            },
            shape: arguments.shape,
            policy: arguments.policy,
            baselines: arguments.baselines,
            profile: arguments.profile,
        };
        let verification = verifications(call)?.start(request, arguments.idempotency_key)?;
        answer_after(call, &verification, arguments.wait_s).await
    }
}

fn defines_model_new(source: &str) -> bool {
    source.lines().any(|line| line.starts_with("class ModelNew"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_name() {
        let named = policies(&mut SchemaGenerator::default());
        let named: Vec<PrecisionPolicy> = serde_json::from_value(named.get("enum").unwrap().clone()).unwrap();
        assert_eq!(named, PrecisionPolicy::ALL);
    }
}
