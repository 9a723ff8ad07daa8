//! `nightshift cancel`: end a campaign, a run, or many runs. What they found stays.

use nightshift_protocol::api::ControlAction;
use nightshift_protocol::error::ExitCode;

use super::control;
use crate::args::Control;
use crate::context::Context;
use crate::failure::Result;

pub(super) async fn run(context: &Context, args: Control) -> Result<ExitCode> {
    control::run(context, args, ControlAction::Cancel).await
}
