//! `nightshift agent`: a coding agent of this machine works on open agent sessions.

use std::time::Duration;

use nightshift_protocol::error::ExitCode;

use crate::args::Agent;
use crate::coding_agent::{self, CodingAgent, Site};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::resolve;

/// How long a server may take to start that was begun just before.
const START_WAIT: Duration = Duration::from_secs(3);

pub(super) async fn run(context: &Context, args: Agent) -> Result<ExitCode> {
    let agent = CodingAgent::new(&args.command);
    Session::with(context, Purpose::Join { wait: START_WAIT }, async |session| {
        let of = match &args.of {
            None => None,
            Some(text) => Some(resolve::any(&session.client, text).await?),
        };
        let site = Site {
            at_once: usize::try_from(args.at_once).unwrap_or(usize::MAX),
            turn_timeout: Duration::from_secs(args.turn_timeout.into()),
            workspaces: args.workspaces.clone(),
            ..Site::new(context, &session.client, &agent)
        };
        if of.is_none() {
            context.output.note(&format!("{} works on open sessions until Ctrl-C", agent.name()));
        }
        coding_agent::work(&site, of.as_ref(), args.model.as_deref()).await?;
        Ok(ExitCode::Ok)
    })
    .await
}
