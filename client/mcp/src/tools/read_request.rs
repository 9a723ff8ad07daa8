//! `read_request`.

use nightshift_protocol::access::Role;
use nightshift_protocol::id::RequestId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::text::{Window, name};
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct ReadRequest;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the request.
    request: String,
    /// Offset of the text in bytes: `next_offset` of the previous part.
    offset: Option<u64>,
    /// Maximum size of the part in bytes; default 6144, at most 24576.
    limit: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the request.
    request: String,
    /// open, leased, answered, expired or cancelled.
    state: &'static str,
    /// The part of the prompt.
    section: Window,
}

impl Tool for ReadRequest {
    const NAME: &'static str = "read_request";
    const TITLE: &'static str = "Read a request";
    const DESCRIPTION: &'static str = "Reads the prompt of a request in parts: go on with `offset` = `next_offset`. What the answer has to contain stands \
        at its end.";
    const ACCESS: Access = Access::Needs(Role::Viewer);
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let id = id(&arguments.request)?;
        let connection = call.connect().await?;
        let detail = connection.client.model_request(&id).await?;
        let section = Window::of(&detail.question.to_markdown(), arguments.offset, arguments.limit)?;
        Ok(Answer { request: id.to_string(), state: detail.request.state.as_str(), section })
    }
}

/// Parses the id of a request.
pub(super) fn id(text: &str) -> Result<RequestId, ToolError> {
    text.parse().map_err(|_| {
        ToolError::new("request.invalid_arguments", format!("`{}` is no id of a request", name(text)))
            .hint("next_request gives it")
    })
}
