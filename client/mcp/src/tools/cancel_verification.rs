//! `cancel_verification`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::verifications;
use crate::error::ToolError;
use crate::tool::{Access, Call, Effect, Tool};
use crate::verification::Stage;

pub(crate) struct CancelVerification;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The handle from verify_program.
    verification: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The handle.
    verification: String,
    /// Whether it was still open. An ended one keeps its verdict.
    cancelled: bool,
}

impl Tool for CancelVerification {
    const NAME: &'static str = "cancel_verification";
    const TITLE: &'static str = "Cancel a verification";
    const DESCRIPTION: &'static str = "Ends a verification of this process that is no longer of interest, so that the next one begins. \
        One that has ended keeps its verdict.";
    const ACCESS: Access = Access::Judges;
    const EFFECT: Effect = Effect::Ends;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let verification = verifications(call)?.get(&arguments.verification)?;
        let cancelled = !matches!(verification.stage(), Stage::Ended(_));
        verification.cancel();
        Ok(Answer { verification: verification.id.clone(), cancelled })
    }
}
