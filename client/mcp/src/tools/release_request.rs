//! `release_request`.

use nightshift_protocol::access::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read_request::id;
use crate::error::ToolError;
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct ReleaseRequestTool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the request.
    request: String,
    /// Its lease, from next_request.
    lease: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the request, which other agents can take now.
    request: String,
}

impl Tool for ReleaseRequestTool {
    const NAME: &'static str = "release_request";
    const TITLE: &'static str = "Give a request back";
    const DESCRIPTION: &'static str =
        "Gives a request that next_request gave you back to other agents, when you cannot answer it.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::Ends;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let id = id(&arguments.request)?;
        let connection = call.connect().await?;
        connection.client.release_request(&id, &arguments.lease).await?;
        Ok(Answer { request: id.to_string() })
    }
}
