//! `nightshift work`: a worker for a server elsewhere.

use nightshift_protocol::error::ExitCode;
use nightshift_worker::lease::Stop;

use crate::args::Work;
use crate::compose;
use crate::context::Context;
use crate::failure::{Failure, Result};

pub(super) async fn run(context: &Context, args: Work) -> Result<ExitCode> {
    let config = context.config();
    let Some(url) = config.server.url.clone() else {
        return Err(Failure::new("usage.server_required", "a worker needs the address of its server")
            .hint("give it with --server URL; `nightshift serve` has a local worker of its own"));
    };
    // A worker holds no more rights than it needs: the operator's token only when no other was given.
    let token = config.server.worker_token.clone().or_else(|| config.server.token.clone());
    let worker = compose::worker_config(context, &url, token, false, args.name)?;
    // Whether the server takes it is not known yet: it may refuse the token, or not answer for a while.
    context
        .output
        .note(&format!("starting a worker for {url} (Ctrl-C lets it finish what it holds, twice ends at once)"));
    if let Some(warning) = compose::missing_devices(context)? {
        context.output.note(&format!("warning: {warning}"));
    }
    let stop = Stop { drain: context.interrupt.clone(), shutdown: context.insist.clone() };
    compose::work(worker, stop, config.server.otlp_endpoint.as_deref()).await?;
    Ok(ExitCode::Ok)
}
