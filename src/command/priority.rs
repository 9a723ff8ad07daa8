//! `nightshift priority`: changes the priority of a campaign or a run.

use nightshift_protocol::error::ExitCode;
use serde_json::json;

use crate::args::Priority;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::resolve::{self, Target};

pub(super) async fn run(context: &Context, args: Priority) -> Result<ExitCode> {
    let priority = args.priority;
    Session::with(context, Purpose::Ask, async |session| {
        let target = resolve::any(&session.client, &args.id).await?;
        match &target {
            Target::Campaign(id) => session.client.set_campaign_priority(id, priority).await?,
            Target::Run(id) => session.client.set_run_priority(id, priority).await?,
        }
        let output = context.output;
        if output.is_json() {
            output.json(&json!({ "id": target.to_string(), "priority": priority }))?;
        } else {
            output.text(&format!("{target}  priority {priority}"))?;
        }
        Ok(ExitCode::Ok)
    })
    .await
}
