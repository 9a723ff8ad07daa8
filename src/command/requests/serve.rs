//! `nightshift requests serve`: a folder of open requests for agents that read and write files.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{AnswerRequest, NextRequest};
use nightshift_protocol::id::RequestId;
use tokio::time::Instant;

use super::folder::RequestFolder;
use super::{read_file, wish};
use crate::args::RequestsServe;
use crate::coding_agent::CurrentServer;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::printable;

/// Time between two reads of the folder.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Parts of a lease after which it is extended.
const EXTENSIONS_PER_LEASE: u32 = 3;

/// The code of a call that meets another one of the same request. The same call succeeds a moment later.
const BUSY: &str = "request.busy";

/// How a request ended whose answer was accepted.
const ANSWERED: &str = "answered";

/// What is remembered of a folder between two looks.
struct Seen {
    /// Bytes of the answer: an answer is sent when two looks find the same.
    bytes: Option<u64>,
    extend_at: Instant,
}

/// The server as it was found last. A local one that is started again has another token, and perhaps another address.
struct Server<'a> {
    context: &'a Context,
    current: CurrentServer<'a>,
    is_failing: Cell<bool>,
}

impl Server<'_> {
    /// Makes a call. Returns none after an error that may pass, and notes the first of several in a row.
    async fn ask<T>(
        &self,
        call: impl AsyncFn(&Client) -> std::result::Result<T, ClientError>,
    ) -> Option<std::result::Result<T, ClientError>> {
        let answered = self.current.call_once(call).await;
        let passing = answered.as_ref().err().filter(|error| self.current.may_pass(error));
        match passing {
            Some(error) if !self.is_failing.replace(true) => {
                self.context.output.note(&printable(&format!("{error}; trying again")));
            }
            None if self.is_failing.replace(false) => self.context.output.note("the server answers again"),
            _ => {}
        }
        passing.is_none().then_some(answered)
    }
}

/// Runs until it is interrupted. What is in the folder is taken up again by the next call.
pub(super) async fn run(context: &Context, client: &Client, args: &RequestsServe) -> Result<()> {
    let unwritable = |error: std::io::Error| {
        Failure::new("output.failed", format!("the folder {} cannot be made: {error}", args.folder.display()))
    };
    std::fs::create_dir_all(&args.folder).map_err(unwritable)?;
    let wish = wish(client, &args.take).await?;
    let server = Server { context, current: CurrentServer::new(context, client), is_failing: Cell::new(false) };
    let mut seen = HashMap::new();
    context.output.note(&format!("open requests are written to {}", args.folder.display()));
    loop {
        look(&server, args, &wish, &mut seen).await?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Sends the answers that are there, extends leases, and fills the folder up.
async fn look(
    server: &Server<'_>,
    args: &RequestsServe,
    wish: &NextRequest,
    seen: &mut HashMap<RequestId, Seen>,
) -> Result<()> {
    let every = Duration::from_secs(args.take.lease.into()) / EXTENSIONS_PER_LEASE;
    let mut open = 0;
    for folder in RequestFolder::all(&args.folder) {
        let id = folder.leased().request.id.clone();
        let known = seen.entry(id.clone()).or_insert_with(|| Seen { bytes: None, extend_at: Instant::now() });
        let bytes = folder.answer_bytes();
        let ended = if bytes.is_some() && bytes == known.bytes {
            known.bytes = None;
            send(server, &folder).await?
        } else {
            known.bytes = bytes;
            if known.extend_at > Instant::now() {
                None
            } else {
                known.extend_at = Instant::now() + every;
                extend(server, &folder, args.take.lease).await?
            }
        };
        match ended {
            Some(how) => {
                seen.remove(&id);
                let is_unsent = how != ANSWERED && folder.answer_bytes().is_some();
                let ended = if is_unsent { folder.set_aside() } else { folder.remove() };
                ended.map_err(|error| {
                    let message = format!("the folder {} cannot be removed: {error}", folder.path().display());
                    Failure::new("output.failed", message)
                })?;
                let kept = if is_unsent { "; the answer was not accepted and stays in its folder" } else { "" };
                server.context.output.note(&format!("{id}  {how}{kept}"));
            }
            None => open += 1,
        }
    }
    while open < args.at_once {
        let Some(leased) = server.ask(async |client| client.next_request(wish).await).await.transpose()?.flatten()
        else {
            break;
        };
        RequestFolder::write(&args.folder, &leased)?;
        server.context.output.note(&format!("{}  taken", leased.request.id));
        open += 1;
    }
    Ok(())
}

/// Sends an answer; how the request ended, unless it is still open because the answer was refused.
async fn send(server: &Server<'_>, folder: &RequestFolder) -> Result<Option<String>> {
    let leased = folder.leased();
    let text = match read_file(&folder.answer()) {
        Ok(text) => text,
        // One unreadable answer must not stop the others.
        Err(failure) => return refuse(folder, &failure, &failure.error.code),
    };
    let answer =
        AnswerRequest { lease: leased.lease.clone(), text, input_tokens: None, output_tokens: None, model: None };
    match server.ask(async |client| client.answer_request(&leased.request.id, &answer).await).await {
        Some(Ok(_)) => Ok(Some(ANSWERED.to_owned())),
        Some(Err(error)) if is_over(&error) => Ok(Some(error.code().to_owned())),
        Some(Err(error)) if error.code().starts_with("answer.") => refuse(folder, &error, error.code()),
        Some(Err(error)) if error.code() != BUSY => Err(error.into()),
        // The answer stays where it is.
        Some(Err(_)) | None => Ok(None),
    }
}

fn refuse(folder: &RequestFolder, why: &dyn Display, code: &str) -> Result<Option<String>> {
    folder.refuse(&format!("{why}\n\nCode: {code}")).map_err(|error| {
        let message = format!("the reason cannot be written to {}: {error}", folder.path().display());
        Failure::new("output.failed", message)
    })?;
    Ok(None)
}

async fn extend(server: &Server<'_>, folder: &RequestFolder, lease_s: u32) -> Result<Option<String>> {
    let leased = folder.leased();
    match server.ask(async |client| client.extend_request(&leased.request.id, &leased.lease, lease_s).await).await {
        Some(Err(error)) if is_over(&error) => Ok(Some(error.code().to_owned())),
        Some(Err(error)) if error.code() != BUSY => Err(error.into()),
        Some(_) | None => Ok(None),
    }
}

/// Returns whether the request takes no answer from here any more.
fn is_over(error: &ClientError) -> bool {
    let over = ["request.lease_lost", "request.answered", "request.expired", "request.cancelled", "request.not_found"];
    over.contains(&error.code())
}
