//! Implements the interfaces of the MCP tools: tasks, judging, and the server that the other commands use.

mod judge;
mod servers;
mod tasks;

use std::sync::Arc;

use nightshift_mcp::{Offer, Service};

pub(crate) use self::servers::LocalServers;
use crate::args::McpServe;
use crate::compose;
use crate::context::Context;
use crate::failure::Result;

/// The service for one client of this machine, and what its calls find servers with.
pub(crate) fn local_service(context: &Context, serve: McpServe) -> Result<(Service, LocalServers)> {
    let mut config = compose::worker_config(context, "", None, true, None)?;
    config.profilers = true;
    let servers = LocalServers::new(context.clone());
    let offer = Offer {
        servers: Box::new(servers.clone()),
        tasks: Arc::new(tasks::LocalTasks::new(config.clone(), context.output)),
        judge: Some(Arc::new(judge::LocalJudge::new(config, serve.allow_unsandboxed, context.output))),
        read_only: serve.read_only,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok((Service::new(offer), servers))
}
