//! `nightshift approve`: let a run pass the gate that it waits at.

use nightshift_protocol::error::ExitCode;
use nightshift_protocol::signal::Signal;

use super::{gate, hint};
use crate::args::Approve;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Approve) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let run = resolve::run(&session.client, &args.id).await?;
        let gate = gate::meant(&session.client, &run, args.gate).await?;
        hint::send(session, &run, &Signal::Approved { gate }, context).await?;
        if !context.output.is_json() {
            context.output.text(&format!("{run}  approved: {}", gate.as_str()))?;
        }
        Ok(ExitCode::Ok)
    })
    .await
}
