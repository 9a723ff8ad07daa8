//! `nightshift pause`: lease no new steps; `nightshift resume ID` goes on.

use nightshift_protocol::api::ControlAction;
use nightshift_protocol::error::ExitCode;

use super::control;
use crate::args::Named;
use crate::context::Context;
use crate::failure::Result;

pub(super) async fn run(context: &Context, args: Named) -> Result<ExitCode> {
    control::run(context, &args.id, ControlAction::Pause).await
}
