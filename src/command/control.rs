//! What `pause` and `cancel` share: an action on a campaign or a run.

use nightshift_protocol::api::{ControlAction, Controlled};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::run::RunStatus;

use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::resolve::{self, Target};

pub(super) async fn run(context: &Context, id: &str, action: ControlAction) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let controlled = match resolve::any(&session.client, id).await? {
            Target::Campaign(id) => session.client.control_campaign(&id, action).await?,
            Target::Run(id) => session.client.control_run(&id, action).await?,
        };
        report(context, session, &controlled)?;
        Ok(ExitCode::Ok)
    })
    .await
}

pub(super) fn report(context: &Context, session: &Session, controlled: &Controlled) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        output.json(controlled)?;
    } else {
        for (run, status) in &controlled.runs {
            output.text(&format!("{run}  {}", status.as_str()))?;
        }
    }
    if controlled.runs.is_empty() {
        output.note("every run was over already");
    }
    let moves = |status: &RunStatus| matches!(status, RunStatus::Running | RunStatus::Cancelling);
    if !session.drives() && controlled.runs.iter().any(|(_, status)| moves(status)) {
        output.note("nothing carries out runs at the moment: `nightshift resume` or `nightshift serve` does");
    }
    Ok(())
}
