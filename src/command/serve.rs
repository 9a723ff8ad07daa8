//! `nightshift serve`: the server, with a local worker beside it.

use nightshift_protocol::error::ExitCode;
use serde_json::json;

use crate::args::Serve;
use crate::compose::{Local, Start};
use crate::connect;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::server_file;

pub(super) async fn run(context: &Context, args: Serve) -> Result<ExitCode> {
    if context.config().server.url.is_some() {
        return Err(Failure::new("usage.invalid", "`serve` is the server itself: it takes no --server"));
    }
    let bind = args.bind.unwrap_or(context.config().server.bind);
    let start = Start { worker: !args.no_worker, name: args.name, ..Start::driving(bind) };
    let local = connect::start_server(context, start).await?;
    announce(context, &local)?;
    let ended = tokio::select! {
        () = context.interrupt.cancelled() => Ok(()),
        failure = local.failed() => Err(failure),
    };
    let closed = local.shutdown().await;
    ended?;
    closed?;
    // Being stopped is how a server's work ends; what is unfinished waits in the database.
    Ok(ExitCode::Ok)
}

fn announce(context: &Context, local: &Local) -> Result<()> {
    let (output, config) = (context.output, context.config());
    let data_dir = &config.data_dir;
    let shared = config.database.url.is_some();
    let database = if shared { "postgres" } else { "sqlite" };
    if output.is_json() {
        output.json(&json!({ "address": local.address(), "data_dir": data_dir, "database": database }))?;
    } else if shared {
        output.text(&format!("serving {} (data in Postgres)", local.address()))?;
    } else {
        output.text(&format!("serving {} (data in {})", local.address(), data_dir.display()))?;
    }
    if local.is_known() {
        output.note(&format!(
            "tokens of clients and workers are in {}; Ctrl-C ends",
            server_file::path(data_dir).display()
        ));
    } else {
        output.note(&format!(
            "warning: {} cannot be written, so other commands of this machine do not find this server by themselves: \
             give them --server and the token; Ctrl-C ends",
            server_file::path(data_dir).display()
        ));
    }
    if shared && (config.server.token.is_none() || config.server.worker_token.is_none()) {
        output.note(
            "each server on this database has random tokens of its own that the others do not know: give machines \
             elsewhere one of `nightshift token create NAME --role worker`, which all of them know, or configure \
             server.token and server.worker_token alike",
        );
    }
    Ok(())
}
