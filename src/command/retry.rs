//! `nightshift retry`: begin a failed run again from its failed steps.

use nightshift_protocol::error::ExitCode;

use super::control;
use crate::args::Retry;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Retry) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let run = resolve::run(&session.client, &args.id).await?;
        let controlled = session.client.retry_run(&run, args.step.as_deref()).await?;
        control::report(context, session, &controlled)?;
        Ok(ExitCode::Ok)
    })
    .await
}
