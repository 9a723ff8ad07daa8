//! `nightshift serve`: the server, with a local worker beside it.

use nightshift_protocol::error::ExitCode;
use serde_json::json;

use crate::args::Serve;
use crate::compose::{self, Start};
use crate::context::Context;
use crate::failure::{Failure, Result};

pub(super) async fn run(context: &Context, args: Serve) -> Result<ExitCode> {
    if context.config().server.url.is_some() {
        return Err(Failure::new("usage.invalid", "`serve` is the server itself: it takes no --server"));
    }
    let bind = args.bind.unwrap_or(context.config().server.bind);
    let start = Start { worker: !args.no_worker, ..Start::driving(bind) };
    let local = compose::start(context, start).await?;
    let output = context.output;
    if output.is_json() {
        output.json(&json!({ "address": local.address(), "data_dir": context.config().data_dir }))?;
    } else {
        output.text(&format!("serving {} (data in {})", local.address(), context.config().data_dir.display()))?;
    }
    output.note(&format!(
        "tokens of clients and workers are in {}; Ctrl-C ends",
        context.config().data_dir.join("server.json").display()
    ));
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
