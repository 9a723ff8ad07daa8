//! `list_runs`.

use nightshift_protocol::access::Role;
use nightshift_protocol::api::RunSummary;
use nightshift_protocol::run::RunStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::limits::{MAX_ROWS, ROWS};
use crate::lookup;
use crate::program::SpeedupAnswer;
use crate::text::{line, name};
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct ListRuns;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Only runs of this campaign: its id, or a part of it.
    campaign: Option<String>,
    /// Only runs of this status: running, paused, cancelling, completed, failed or cancelled.
    status: Option<String>,
    /// Runs per page, at most 15.
    limit: Option<u32>,
    /// `next` of the previous page.
    before: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Runs, newest first.
    runs: Vec<Row>,
    /// Value of `before` for the following page; none at the end.
    next: Option<String>,
}

/// A run in a list.
#[derive(Serialize, JsonSchema)]
pub(super) struct Row {
    /// Id.
    run: String,
    /// Id of its campaign.
    campaign: String,
    /// The task.
    task: String,
    /// The status.
    status: &'static str,
    /// Current activity, reason for waiting, or reason of its end.
    activity: String,
    /// Attempts so far.
    attempts: u32,
    /// Number of the best correct attempt.
    best_attempt: Option<u32>,
    /// Its speedup over the reference.
    best_speedup: Option<SpeedupAnswer>,
    /// Its speedup over the fastest baseline, where that is known.
    best_speedup_over_fastest: Option<SpeedupAnswer>,
    /// Whether that speedup was confirmed in a fresh process.
    confirmed: bool,
}

impl Tool for ListRuns {
    const NAME: &'static str = "list_runs";
    const TITLE: &'static str = "List runs";
    const DESCRIPTION: &'static str = "Lists runs, newest first, of one campaign or of all: a run searches a faster program for one task. \
        Go on with describe_run, get_best_program or get_attempt.";
    const ACCESS: Access = Access::Needs(Role::Viewer);
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let connection = call.connect().await?;
        let client = &connection.client;
        let campaign = lookup::named_campaign(client, arguments.campaign.as_deref()).await?;
        let status = arguments.status.as_deref().map(status).transpose()?;
        let limit = arguments.limit.unwrap_or(ROWS).clamp(1, MAX_ROWS);
        let page = client.runs(campaign.as_ref(), status, Some(limit), arguments.before.as_deref()).await?;
        Ok(Answer { runs: page.items.iter().map(row).collect(), next: page.next })
    }
}

fn status(text: &str) -> Result<RunStatus, ToolError> {
    RunStatus::parse(text).ok_or_else(|| {
        ToolError::new("request.invalid_arguments", format!("`status`: `{}` is not known", name(text)))
            .hint("use running, paused, cancelling, completed, failed or cancelled")
    })
}

pub(super) fn row(run: &RunSummary) -> Row {
    let digest = &run.digest;
    let why = run.failure.as_ref().map(|failure| format!("{}: {}", failure.code, failure.message));
    let ended = digest.stop_reason.as_ref().map(|reason| reason.as_str().to_owned());
    Row {
        run: run.id.to_string(),
        campaign: run.campaign.to_string(),
        task: name(&digest.task),
        status: run.status.as_str(),
        activity: cut_line(&why.or(ended).unwrap_or_else(|| digest.activity.clone())),
        attempts: digest.attempts,
        best_attempt: digest.best_attempt,
        best_speedup: digest.best_speedup.map(Into::into),
        best_speedup_over_fastest: digest.best_speedup_over_fastest.map(Into::into),
        confirmed: digest.best_confirmed,
    }
}

fn cut_line(text: &str) -> String {
    name(&line(text))
}
