//! `nightshift mcp`: tools for a coding agent, and its entry in the agent's configuration.

mod install;

use nightshift_mcp::serve_stdio;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::RunId;

use crate::args::{Mcp, McpCommand, McpServe};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::mcp::local_service;
use crate::resolve;

pub(super) async fn run(context: &Context, args: Mcp) -> Result<ExitCode> {
    match args.command {
        Some(McpCommand::Install(args)) => install::run(context, &args),
        None => serve(context, &args.serve).await,
    }
}

async fn serve(context: &Context, args: &McpServe) -> Result<ExitCode> {
    let run = match &args.run {
        None => None,
        Some(text) => Some(named(context, text).await?),
    };
    let (service, servers) = local_service(context, args, run)?;
    let served = serve_stdio(service.clone(), context.interrupt.clone()).await;
    service.close().await;
    servers.closed().await;
    served.map_err(|error| Failure::new("mcp.protocol", error.to_string()))?;
    Ok(ExitCode::Ok)
}

/// Returns the run. A whole id needs no server.
async fn named(context: &Context, text: &str) -> Result<RunId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    Session::with(context, Purpose::Ask, async |session| resolve::run(&session.client, text).await).await
}
