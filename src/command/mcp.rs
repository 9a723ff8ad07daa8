//! `nightshift mcp`: tools for a coding agent, and its entry in the agent's configuration.

mod install;

use nightshift_mcp::serve_stdio;
use nightshift_protocol::error::ExitCode;

use crate::args::{Mcp, McpCommand, McpServe};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::mcp::local_service;

pub(super) async fn run(context: &Context, args: Mcp) -> Result<ExitCode> {
    match args.command {
        Some(McpCommand::Install(args)) => install::run(context, &args),
        None => serve(context, args.serve).await,
    }
}

async fn serve(context: &Context, args: McpServe) -> Result<ExitCode> {
    let (service, servers) = local_service(context, args)?;
    let served = serve_stdio(service.clone(), context.interrupt.clone()).await;
    service.close().await;
    servers.closed().await;
    served.map_err(|error| Failure::new("mcp.protocol", error.to_string()))?;
    Ok(ExitCode::Ok)
}
