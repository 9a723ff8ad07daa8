//! `nightshift reject`: refuse what a run waits with at a gate. It plans anew, with the reason as a hint.

use nightshift_protocol::error::ExitCode;
use nightshift_protocol::signal::Signal;

use super::{gate, hint};
use crate::args::Reject;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Reject) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let run = resolve::run(&session.client, &args.id).await?;
        let gate = gate::meant(&session.client, &run, args.gate).await?;
        let signal = Signal::Rejected { gate, reason: args.reason.trim().to_owned() };
        hint::send(session, &run, &signal, context).await?;
        if !context.output.is_json() {
            context.output.text(&format!("{run}  rejected: {}", gate.as_str()))?;
        }
        Ok(ExitCode::Ok)
    })
    .await
}
