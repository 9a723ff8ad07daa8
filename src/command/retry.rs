//! `nightshift retry`: begin failed runs again from their failed steps.

use nightshift_protocol::api::BulkAction;
use nightshift_protocol::error::ExitCode;

use super::{bulk, control};
use crate::args::Retry;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Retry) -> Result<ExitCode> {
    let Some(id) = args.id else {
        return bulk::run(context, &args.filters, BulkAction::Retry).await;
    };
    Session::with(context, Purpose::Ask, async |session| {
        let run = resolve::run(&session.client, &id).await?;
        let controlled = session.client.retry_run(&run, args.step.as_deref()).await?;
        control::report(context, session, &controlled)?;
        Ok(ExitCode::Ok)
    })
    .await
}
