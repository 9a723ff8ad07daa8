//! Implements the interfaces of the MCP tools: tasks, judging, and the server that the other commands use. Says how a coding
//! agent starts this program as an MCP server.

mod judge;
mod launch;
mod servers;
mod tasks;

use std::sync::Arc;

use nightshift_mcp::{Offer, Service};

use nightshift_protocol::id::RunId;

pub(crate) use self::launch::{launch, launch_for_run};
pub(crate) use self::servers::LocalServers;
use crate::args::McpServe;
use crate::compose;
use crate::context::Context;
use crate::failure::Result;

/// The service for one client of this machine, and what its calls find servers with.
///
/// With a run, it offers the session of that run alone, and judges nothing in this process.
pub(crate) fn local_service(
    context: &Context,
    serve: &McpServe,
    run: Option<RunId>,
) -> Result<(Service, LocalServers)> {
    let mut config = compose::worker_config(context, "", None, true, None)?;
    config.profilers = true;
    let servers = match &run {
        Some(_) => LocalServers::of_session(context.clone()),
        None => LocalServers::new(context.clone()),
    };
    let offer = Offer {
        servers: Box::new(servers.clone()),
        tasks: Arc::new(tasks::LocalTasks::new(config.clone(), context.output)),
        judge: match run {
            Some(_) => None,
            None => Some(Arc::new(judge::LocalJudge::new(config, serve.allow_unsandboxed, context.output))),
        },
        read_only: serve.read_only,
        run,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok((Service::new(offer), servers))
}
