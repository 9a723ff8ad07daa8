//! `next_request`.

use nightshift_protocol::access::Role;
use nightshift_protocol::api::{LeasedRequest, NextRequest, RequestView};
use nightshift_protocol::models::AgentRole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::lookup;
use crate::text::{Window, name};
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct NextRequestTool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Only requests of this campaign: its id, or a part of it.
    campaign: Option<String>,
    /// Only requests of this run: its id, or a part of it.
    run: Option<String>,
    /// Only requests of these roles: planner, coder, verifier, judge.
    #[serde(default)]
    roles: Vec<String>,
    /// Your name, for people; at most 80 characters.
    agent: Option<String>,
    /// Seconds after which another agent may take the request, 5 to 86400; default 900.
    lease_s: Option<u32>,
    /// Seconds to wait for a request, at most 45; default 30.
    wait_s: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The request; none if no request is open.
    request: Option<HeldRequest>,
}

/// A request that is leased to you.
#[derive(Serialize, JsonSchema)]
pub(super) struct HeldRequest {
    /// Id of the request.
    request: String,
    /// The `lease` argument of answer_request and release_request.
    lease: String,
    /// Id of the run that waits.
    run: String,
    /// Key of the step that waits.
    step: String,
    /// The role to answer for: planner, coder, verifier or judge.
    role: &'static str,
    /// Turn of the conversation. From 2 on, the prompt says what was wrong with the previous answer.
    turn: u32,
    /// Time after which an answer is refused, in milliseconds since 1970.
    deadline: i64,
    /// The prompt. It ends with the requirements on the answer. Read the rest with read_request.
    prompt: Window,
}

impl Tool for NextRequestTool {
    const NAME: &'static str = "next_request";
    const TITLE: &'static str = "Take a request";
    const DESCRIPTION: &'static str = "Leases the oldest open question of campaigns that ask the model `external`, and waits for one. You answer it with \
        answer_request before the lease and the deadline end, or give it back with release_request. `request` is null when none is open.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::AddsEachTime;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let connection = call.connect().await?;
        let client = &connection.client;
        let campaign = lookup::named_campaign(client, arguments.campaign.as_deref()).await?;
        let run = match &arguments.run {
            Some(text) => Some(lookup::run(client, text).await?),
            None => None,
        };
        let roles = arguments.roles.iter().map(|text| role(text)).collect::<Result<Vec<_>, _>>()?;
        let wish = NextRequest {
            campaign,
            run,
            roles,
            model: None,
            holder: arguments.agent.unwrap_or_default(),
            lease_s: arguments.lease_s,
            wait_ms: 0,
        };
        let wait = super::get_turn::wait(&connection, arguments.wait_s);
        let Some(leased) = client.wait_for_request(&wish, wait).await? else { return Ok(Answer { request: None }) };
        let LeasedRequest { lease, request, question } = leased;
        let RequestView { id, run, step_key, turn, role, deadline, .. } = request;
        let prompt = Window::of(&question.to_markdown(), None, None)?;
        let held = HeldRequest {
            request: id.to_string(),
            lease,
            run: run.to_string(),
            step: name(&step_key),
            role: role.as_str(),
            turn,
            deadline: deadline.0,
            prompt,
        };
        Ok(Answer { request: Some(held) })
    }
}

fn role(text: &str) -> Result<AgentRole, ToolError> {
    AgentRole::parse(text).ok_or_else(|| {
        ToolError::new("request.invalid_arguments", format!("`roles`: `{}` is not known", name(text)))
            .hint("use planner, coder, verifier or judge")
    })
}
