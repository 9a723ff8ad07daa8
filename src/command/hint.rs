//! `nightshift hint`: advice for the agents of a run.

use std::io::Read;

use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::RunId;
use nightshift_protocol::signal::{MAX_HINT_CHARS, Signal};
use serde_json::json;

use crate::args::Hint;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::random::random_text;
use crate::resolve;

/// Where the advice stands in the place of the text.
const STANDARD_INPUT: &str = "-";
/// Bytes of standard input that are read: no character takes more than four.
const MAX_INPUT_BYTES: usize = MAX_HINT_CHARS * 4;

pub(super) async fn run(context: &Context, args: Hint) -> Result<ExitCode> {
    let text = if args.text == STANDARD_INPUT { standard_input(context).await? } else { args.text };
    Session::with(context, Purpose::Ask, async |session| {
        let run = resolve::run(&session.client, &args.id).await?;
        send(session, &run, &Signal::Hint { text: text.trim().to_owned() }, context).await?;
        if !context.output.is_json() {
            context.output.text(&format!("{run}  the agents read it with their next prompts"))?;
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// Tells a run something. With `--json`, prints what was told.
pub(super) async fn send(session: &Session, run: &RunId, signal: &Signal, context: &Context) -> Result<()> {
    // A key of its own: the same words again are meant again.
    session.client.signal_run(run, signal, &random_text()?).await?;
    if context.output.is_json() {
        context.output.json(&json!({ "run": run, "signal": signal }))?;
    }
    Ok(())
}

async fn standard_input(context: &Context) -> Result<String> {
    let reading = tokio::task::spawn_blocking(|| {
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_INPUT_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        std::io::stdin().lock().take(most).read_to_end(&mut bytes).map(|_| bytes)
    });
    let read = tokio::select! {
        read = reading => read.map_err(|error| error.to_string()).and_then(|read| read.map_err(|error| error.to_string())),
        () = context.interrupt.cancelled() => Err("stopped".to_owned()),
    };
    let bytes =
        read.map_err(|error| Failure::new("usage.invalid", format!("standard input cannot be read: {error}")))?;
    if bytes.len() > MAX_INPUT_BYTES {
        return Err(Failure::new(
            "usage.invalid",
            format!("a hint has at most {MAX_HINT_CHARS} characters, and standard input holds more"),
        ));
    }
    String::from_utf8(bytes).map_err(|_| Failure::new("usage.invalid", "standard input is no UTF-8 text"))
}
