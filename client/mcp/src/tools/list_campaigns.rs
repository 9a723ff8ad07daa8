//! `list_campaigns`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use nightshift_protocol::access::Role;
use nightshift_protocol::api::CampaignSummary;

use crate::error::ToolError;
use crate::limits::{MAX_ROWS, ROWS};
use crate::program::rounded;
use crate::text::name;
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct ListCampaigns;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Campaigns per page, at most 15.
    limit: Option<u32>,
    /// `next` of the previous page.
    before: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The server that answered.
    server: String,
    /// Campaigns, newest first.
    campaigns: Vec<Row>,
    /// Value of `before` for the following page; none at the end.
    next: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Row {
    /// Id.
    campaign: String,
    /// Name for people.
    name: String,
    /// `scripted` (replies written beforehand), or `endpoint/model`.
    model: String,
    /// Unfinished runs.
    unfinished_runs: u64,
    /// All runs.
    runs: u64,
    /// Geometric mean of the best speedups of its runs over the reference.
    geometric_mean: Option<f64>,
    /// Geometric mean of the best speedups over the fastest baselines, where those are known.
    geometric_mean_over_fastest: Option<f64>,
    /// Runs with a best right program: those that `geometric_mean` is over. None if the server does not say it.
    solved_runs: Option<u64>,
    /// Those with a known fastest baseline, too: those that `geometric_mean_over_fastest` is over. None if the server does not say it.
    solved_runs_over_fastest: Option<u64>,
    /// When it was created, in milliseconds since 1970.
    created_at_ms: i64,
}

impl Tool for ListCampaigns {
    const NAME: &'static str = "list_campaigns";
    const TITLE: &'static str = "List campaigns";
    const DESCRIPTION: &'static str = "Lists the campaigns of the Nightshift server, newest first: a campaign searches faster programs for a set of tasks, \
        one run for each task. Go on with list_runs.";
    const ACCESS: Access = Access::Needs(Role::Viewer);
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let connection = call.connect().await?;
        let limit = arguments.limit.unwrap_or(ROWS).clamp(1, MAX_ROWS);
        let page = connection.client.campaigns(Some(limit), arguments.before.as_deref()).await?;
        Ok(Answer {
            server: name(&connection.client.address()),
            campaigns: page.items.iter().map(row).collect(),
            next: page.next,
        })
    }
}

fn row(summary: &CampaignSummary) -> Row {
    Row {
        campaign: summary.id.to_string(),
        name: name(&summary.name),
        model: name(&summary.model),
        unfinished_runs: summary.runs.unfinished(),
        runs: summary.runs.total(),
        geometric_mean: summary.geometric_mean.map(rounded),
        geometric_mean_over_fastest: summary.geometric_mean_over_fastest.map(rounded),
        solved_runs: known(summary.solved, summary.geometric_mean),
        solved_runs_over_fastest: known(summary.solved_over_fastest, summary.geometric_mean_over_fastest),
        created_at_ms: summary.created_at.0,
    }
}

/// Returns the number of runs that a mean is over. An older server does not give it.
fn known(solved: u64, mean: Option<f64>) -> Option<u64> {
    (solved > 0 || mean.is_none()).then_some(solved)
}
