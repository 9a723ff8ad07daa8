//! What `pause` and `cancel` share: an action on a campaign, on a run, or on many runs.

use nightshift_protocol::api::{BulkAction, ControlAction, Controlled};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::run::RunStatus;

use super::bulk;
use super::standstill::note_that_nothing_moves;
use crate::args::Control;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::resolve::{self, Target};

pub(super) async fn run(context: &Context, args: Control, action: ControlAction) -> Result<ExitCode> {
    let Some(id) = args.id else {
        let action = match action {
            ControlAction::Pause => BulkAction::Pause,
            ControlAction::Resume => BulkAction::Resume,
            ControlAction::Cancel => BulkAction::Cancel,
        };
        return bulk::run(context, &args.filters, action).await;
    };
    Session::with(context, Purpose::Ask, async |session| {
        let controlled = match resolve::any(&session.client, &id).await? {
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
    let statuses: Vec<RunStatus> = controlled.runs.iter().map(|(_, status)| *status).collect();
    note_that_nothing_moves(context, session, &statuses);
    Ok(())
}
