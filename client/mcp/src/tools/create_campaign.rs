//! `create_campaign`.

use nightshift_protocol::access::Role;
use nightshift_protocol::api::CreateCampaign;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::campaign::{
    CAMPAIGN_SCHEMA, CampaignSpec, CampaignTask, DEFAULT_AGENT, EXTERNAL, KnowledgeUse, ModelChoice,
};
use nightshift_protocol::models::ModelPlan;
use nightshift_protocol::task::TaskGoal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::load_task;
use crate::error::ToolError;
use crate::limits::MAX_KEY_CHARS;
use crate::text::name;
use crate::tool::{Access, Call, Effect, Tool};

/// The default strategy.
const STRATEGY: &str = "stitch";
/// Micro-dollars per dollar.
const MICRO: f64 = 1e6;

pub(crate) struct CreateCampaignTool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Name of a task of list_tasks, or an id from create_task; on this machine (stdio) also a folder with a task.toml or
    /// a PyTorch file.
    task: String,
    /// The model that writes the programs, as `provider/model`, for example `anthropic/claude-opus-4-1`. The server has
    /// its key. `external`: you answer, and no key is needed.
    model: String,
    /// The search strategy: stitch (the default), forge, beam, group, or agent: a session of turns. With the model
    /// `external` you take them with take_turn.
    strategy: Option<String>,
    /// Name of the campaign for people; by default the task's name.
    name: Option<String>,
    /// Stop when the confirmed speedup over the fastest baseline certainly reaches this, for example 1.5.
    target_speedup: Option<f64>,
    /// Maximum number of attempts; of a session: submissions.
    max_attempts: Option<u32>,
    /// Maximum number of turns of a session; default 40, at most 200.
    max_turns: Option<u32>,
    /// Maximum cost of model calls, in US dollars.
    max_cost_usd: Option<f64>,
    /// Maximum number of tokens of model calls.
    max_tokens: Option<u64>,
    /// Maximum time on devices, in minutes.
    max_device_minutes: Option<u32>,
    /// Maximum duration, in minutes.
    max_minutes: Option<u32>,
    /// A key of your choice, 1 to 128 characters. Repeating the same arguments with the same key creates nothing more.
    idempotency_key: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the campaign.
    campaign: String,
    /// Ids of its runs.
    runs: Vec<String>,
    /// Whether this key created it before.
    existed: bool,
    /// What to do next.
    next: &'static str,
}

impl Tool for CreateCampaignTool {
    const NAME: &'static str = "create_campaign";
    const TITLE: &'static str = "Create a campaign";
    const DESCRIPTION: &'static str = "Begins a campaign for one task on the Nightshift server. It spends money for model calls and time of devices, \
        without further questions: agree on model and limits with the user before. Follow it with describe_run.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::Adds;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let key = key(&arguments.idempotency_key)?;
        let Some((endpoint, model)) = provider_and_model(&arguments.model) else {
            return Err(ToolError::new(
                "request.invalid_arguments",
                "`model` has the form provider/model, or is external",
            ));
        };
        let is_session = endpoint == EXTERNAL && arguments.strategy.as_deref() == Some("agent");
        if arguments.max_cost_usd.is_some_and(|cost| !cost.is_finite() || cost < 0.0) {
            return Err(ToolError::new("request.invalid_arguments", "`max_cost_usd` is a positive number"));
        }
        let bundle = load_task(call, &arguments.task).await?;
        let text = serde_json::to_vec(&bundle)
            .map_err(|error| ToolError::new("internal.json", format!("the task cannot be written: {error}")))?;
        let connection = call.connect().await?;
        let client = &connection.client;
        let task = CampaignTask {
            name: bundle.spec.name.clone(),
            bundle: client.put_artifact(&text).await?,
            scripted_replies: None,
        };
        let spec = CampaignSpec {
            schema: CAMPAIGN_SCHEMA,
            name: arguments.name.unwrap_or_else(|| bundle.spec.name.clone()),
            model: ModelChoice::Live { endpoint: endpoint.to_owned(), model: model.to_owned() },
            models: ModelPlan::default(),
            knowledge: KnowledgeUse::default(),
            untrusted_replies: false,
            strategy: arguments.strategy.unwrap_or_else(|| STRATEGY.to_owned()),
            goal: TaskGoal {
                target_speedup: arguments.target_speedup,
                max_attempts: arguments.max_attempts,
                max_turns: arguments.max_turns,
                ..TaskGoal::default()
            },
            allow_unsandboxed: false,
            budget: BudgetCaps {
                cost_microusd: arguments.max_cost_usd.map(micro),
                tokens: arguments.max_tokens,
                device_ms: arguments.max_device_minutes.map(minutes),
                wall_ms: arguments.max_minutes.map(minutes),
                ..BudgetCaps::default()
            },
            schedule: None,
            priority: 0,
            weight: 1,
            gates: std::collections::BTreeSet::default(),
            labels: std::collections::BTreeSet::default(),
            tasks: vec![task],
        };
        let created = client.create_campaign(&CreateCampaign { spec }, key).await?;
        let next = match (connection.drives, is_session) {
            (false, _) => "nothing carries out runs at the moment: ask the user to start `nightshift serve`",
            (true, true) => "get_turn waits for the first question: the plan, then your turns",
            (true, false) => "describe_run shows where it stands",
        };
        Ok(Answer {
            campaign: created.campaign.to_string(),
            runs: created.runs.iter().map(ToString::to_string).collect(),
            existed: created.existed,
            next,
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive, and a cast saturates")]
fn micro(dollars: f64) -> u64 {
    (dollars * MICRO).round() as u64
}

fn minutes(minutes: u32) -> u64 {
    u64::from(minutes) * 60_000
}

/// Takes `provider/model` apart. `external` alone asks any agent.
fn provider_and_model(text: &str) -> Option<(&str, &str)> {
    if text == EXTERNAL {
        return Some((EXTERNAL, DEFAULT_AGENT));
    }
    text.split_once('/').filter(|(endpoint, model)| !endpoint.is_empty() && !model.is_empty())
}

/// Validates an idempotency key.
pub(super) fn key(text: &str) -> Result<&str, ToolError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || text.len() > MAX_KEY_CHARS || !is_plain {
        return Err(ToolError::new(
            "request.invalid_arguments",
            format!("`idempotency_key` `{}` has to have 1 to {MAX_KEY_CHARS} visible ASCII characters", name(text)),
        ));
    }
    Ok(text)
}
