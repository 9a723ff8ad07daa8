//! `nightshift requests serve`: a folder of open requests for agents that read and write files.

use std::collections::HashMap;
use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{AnswerRequest, NextRequest};
use nightshift_protocol::id::RequestId;
use tokio::time::Instant;

use super::folder::RequestFolder;
use super::{read_file, wish};
use crate::args::RequestsServe;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Time between two reads of the folder.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Parts of a lease after which it is extended.
const EXTENSIONS_PER_LEASE: u32 = 3;

/// How a request ended whose answer was accepted.
const ANSWERED: &str = "answered";

/// What is remembered of a folder between two looks.
struct Seen {
    /// Bytes of the answer: an answer is sent when two looks find the same.
    bytes: Option<u64>,
    extend_at: Instant,
}

/// Runs until it is interrupted. What is in the folder is taken up again by the next call.
pub(super) async fn run(context: &Context, client: &Client, args: &RequestsServe) -> Result<()> {
    let unwritable = |error: std::io::Error| {
        Failure::new("output.failed", format!("the folder {} cannot be made: {error}", args.folder.display()))
    };
    std::fs::create_dir_all(&args.folder).map_err(unwritable)?;
    let wish = wish(client, &args.take).await?;
    let mut seen = HashMap::new();
    context.output.note(&format!("open requests are written to {}", args.folder.display()));
    loop {
        look(context, client, args, &wish, &mut seen).await?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Sends the answers that are there, extends leases, and fills the folder up.
async fn look(
    context: &Context,
    client: &Client,
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
            send(client, &folder).await?
        } else {
            known.bytes = bytes;
            if known.extend_at > Instant::now() {
                None
            } else {
                known.extend_at = Instant::now() + every;
                extend(client, &folder, args.take.lease).await?
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
                context.output.note(&format!("{id}  {how}{kept}"));
            }
            None => open += 1,
        }
    }
    while open < args.at_once {
        let leased = match client.next_request(wish).await {
            Ok(Some(leased)) => leased,
            Ok(None) => break,
            Err(error) if is_passing(&error) => break,
            Err(error) => return Err(error.into()),
        };
        RequestFolder::write(&args.folder, &leased)?;
        context.output.note(&format!("{}  taken", leased.request.id));
        open += 1;
    }
    Ok(())
}

/// Sends an answer; how the request ended, unless it is still open because the answer was refused.
async fn send(client: &Client, folder: &RequestFolder) -> Result<Option<String>> {
    let leased = folder.leased();
    let text = read_file(&folder.answer())?;
    let answer =
        AnswerRequest { lease: leased.lease.clone(), text, input_tokens: None, output_tokens: None, model: None };
    match client.answer_request(&leased.request.id, &answer).await {
        Ok(_) => Ok(Some(ANSWERED.to_owned())),
        Err(error) if is_over(&error) => Ok(Some(error.code().to_owned())),
        Err(error) if error.code().starts_with("answer.") => {
            let reason = format!("{error}\n\nCode: {}", error.code());
            folder.refuse(&reason).map_err(|error| {
                let message = format!("the reason cannot be written to {}: {error}", folder.path().display());
                Failure::new("output.failed", message)
            })?;
            Ok(None)
        }
        // The server may be starting again: the answer stays where it is.
        Err(error) if is_passing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn extend(client: &Client, folder: &RequestFolder, lease_s: u32) -> Result<Option<String>> {
    let leased = folder.leased();
    match client.extend_request(&leased.request.id, &leased.lease, lease_s).await {
        Ok(_) => Ok(None),
        Err(error) if is_over(&error) => Ok(Some(error.code().to_owned())),
        Err(error) if is_passing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the request takes no answer from here any more.
fn is_over(error: &ClientError) -> bool {
    let over = ["request.lease_lost", "request.answered", "request.expired", "request.cancelled", "request.not_found"];
    over.contains(&error.code())
}

/// Returns whether the same call may succeed later.
fn is_passing(error: &ClientError) -> bool {
    error.is_transient() || error.code() == "request.busy"
}
