//! `answer_request`.

use nightshift_protocol::access::Role;
use nightshift_protocol::api::AnswerRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read_request::id;
use crate::error::ToolError;
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct AnswerRequestTool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the request.
    request: String,
    /// Its lease, from next_request.
    lease: String,
    /// The whole answer, at most 2 MiB, in the format that the end of the prompt requires.
    text: String,
    /// Your model, for people.
    model: Option<String>,
    /// Input tokens, if known.
    input_tokens: Option<u64>,
    /// Output tokens, if known.
    output_tokens: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the request.
    request: String,
    /// Whether the same answer was accepted before.
    repeated: bool,
}

impl Tool for AnswerRequestTool {
    const NAME: &'static str = "answer_request";
    const TITLE: &'static str = "Answer a request";
    const DESCRIPTION: &'static str = "Answers a request that next_request gave you. An answer that cannot be used is refused with the reason: the request \
        stays yours, so correct the answer and send it again. The run goes on at once.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::Adds;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let id = id(&arguments.request)?;
        let answer = AnswerRequest {
            lease: arguments.lease,
            text: arguments.text,
            input_tokens: arguments.input_tokens,
            output_tokens: arguments.output_tokens,
            model: arguments.model,
        };
        let connection = call.connect().await?;
        let answered = connection.client.answer_request(&id, &answer).await?;
        Ok(Answer { request: id.to_string(), repeated: answered.repeated })
    }
}
