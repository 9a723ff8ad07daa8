//! `control_run`.

use nightshift_protocol::access::Role;
use nightshift_protocol::api::{ControlAction, Controlled};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::lookup;
use crate::text::lines;
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct ControlRun;

/// An action on a run.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Lease no new steps.
    Pause,
    /// Continue.
    Resume,
    /// End it permanently.
    Cancel,
    /// Schedule the failed steps of a failed run again.
    Retry,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the run, or a part of it. Give this or `campaign`.
    run: Option<String>,
    /// Id of the campaign with the runs, or a part of it. Not for retry.
    campaign: Option<String>,
    /// pause, resume, cancel or retry.
    action: Action,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Changed runs, with their new status.
    runs: Vec<String>,
}

impl Tool for ControlRun {
    const NAME: &'static str = "control_run";
    const TITLE: &'static str = "Control a run";
    const DESCRIPTION: &'static str = "Pauses, resumes, cancels or retries a run, or all runs of a campaign. A cancelled run does not come back, and a resumed \
        or retried one spends money and device time: ask the user first.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::Ends;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let action = match arguments.action {
            Action::Pause => Some(ControlAction::Pause),
            Action::Resume => Some(ControlAction::Resume),
            Action::Cancel => Some(ControlAction::Cancel),
            Action::Retry => None,
        };
        let connection = call.connect().await?;
        let client = &connection.client;
        let controlled = match (&arguments.run, &arguments.campaign, action) {
            (Some(run), None, Some(action)) => client.control_run(&lookup::run(client, run).await?, action).await?,
            (Some(run), None, None) => client.retry_run(&lookup::run(client, run).await?, None).await?,
            (None, Some(campaign), Some(action)) => {
                client.control_campaign(&lookup::campaign(client, campaign).await?, action).await?
            }
            _ => {
                return Err(ToolError::new(
                    "request.invalid_arguments",
                    "give `run` or `campaign`, one of them; `retry` takes a `run`",
                ));
            }
        };
        Ok(Answer { runs: changed(&controlled) })
    }
}

fn changed(controlled: &Controlled) -> Vec<String> {
    lines(controlled.runs.iter().map(|(run, status)| format!("{run}: {}", status.as_str())))
}
