//! `nightshift requests`: an agent outside of Nightshift takes and answers open model calls.

mod folder;
mod serve;

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use nightshift_client::Client;
use nightshift_protocol::api::{AnswerRequest, LeasedRequest, MAX_ANSWER_BYTES, NextRequest, RequestView};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::{CampaignId, RequestId, RunId};

use self::folder::RequestFolder;
use crate::args::{RequestsAnswer, RequestsCommand, RequestsList, RequestsNext, RequestsRelease, RequestsTake};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Tone, printable};
use crate::present::{self, NONE};
use crate::resolve;

/// Requests that are read at once.
const PER_CALL: u32 = 500;
/// How long `serve` waits for a server that was begun just before.
const START_WAIT: Duration = Duration::from_secs(3);

pub(super) async fn run(context: &Context, command: RequestsCommand) -> Result<ExitCode> {
    // A server of its own would keep the database from the command that carries out runs.
    let purpose = match command {
        RequestsCommand::Serve(_) => Purpose::Join { wait: START_WAIT },
        _ => Purpose::Ask,
    };
    Session::with(context, purpose, async |session| {
        let client = &session.client;
        match &command {
            RequestsCommand::Next(args) => next(context, client, args).await?,
            RequestsCommand::Answer(args) => answer(context, client, args).await?,
            RequestsCommand::List(args) => list(context, client, args).await?,
            RequestsCommand::Release(args) => release(context, client, args).await?,
            RequestsCommand::Serve(args) => serve::run(context, client, args).await?,
        }
        Ok(ExitCode::Ok)
    })
    .await
}

async fn next(context: &Context, client: &Client, args: &RequestsNext) -> Result<()> {
    let wish = wish(client, &args.take).await?;
    let Some(leased) = client.wait_for_request(&wish, Duration::from_secs(args.wait.into())).await? else {
        return Err(Failure::new("request.none", "no request is open")
            .hint("wait for one with --wait SECONDS; `nightshift requests list` shows those that agents hold"));
    };
    let output = context.output;
    if let Some(parent) = &args.out {
        let folder = RequestFolder::write(parent, &leased)?;
        if output.is_json() {
            return output.json(&leased);
        }
        return output.text(&folder.path().display().to_string());
    }
    if output.is_json() {
        return output.json(&leased);
    }
    output.text(&printable(&leased.question.to_markdown()))?;
    let LeasedRequest { lease, request, .. } = &leased;
    output.note(&printable(&format!(
        "{} of the {} for {} ({}), until {}",
        request.id,
        request.role.as_str(),
        request.run,
        request.step_key,
        present::moment(request.deadline)
    )));
    output.note(&format!("answer it with: nightshift requests answer {} --lease {lease} --file FILE", request.id));
    Ok(())
}

/// Builds the request to the server, with whole ids.
async fn wish(client: &Client, take: &RequestsTake) -> Result<NextRequest> {
    let (campaign, run) = meant(client, take.of.as_deref()).await?;
    Ok(NextRequest {
        campaign,
        run,
        roles: take.roles.clone(),
        model: take.model.clone(),
        holder: take.holder.clone(),
        lease_s: Some(take.lease),
        wait_ms: 0,
    })
}

async fn meant(client: &Client, of: Option<&str>) -> Result<(Option<CampaignId>, Option<RunId>)> {
    Ok(match of {
        None => (None, None),
        Some(text) => match resolve::any(client, text).await? {
            resolve::Target::Campaign(id) => (Some(id), None),
            resolve::Target::Run(id) => (None, Some(id)),
        },
    })
}

async fn answer(context: &Context, client: &Client, args: &RequestsAnswer) -> Result<()> {
    let (id, lease, folder) = held(client, &args.id, args.lease.as_deref()).await?;
    let text = match (&args.file, &folder) {
        (Some(file), _) => read_file(file)?,
        (None, Some(folder)) => read_file(&folder.answer())?,
        (None, None) => read(std::io::stdin().lock(), "standard input")?,
    };
    let answer = AnswerRequest {
        lease,
        text,
        input_tokens: args.input_tokens,
        output_tokens: args.output_tokens,
        model: args.answered_with.clone(),
    };
    let answered = client.answer_request(&id, &answer).await?;
    if context.output.is_json() {
        return context.output.json(&answered);
    }
    let again = if answered.repeated { ", as before" } else { "" };
    context.output.text(&format!("{id}  answered{again}"))
}

async fn release(context: &Context, client: &Client, args: &RequestsRelease) -> Result<()> {
    let (id, lease, _) = held(client, &args.id, args.lease.as_deref()).await?;
    client.release_request(&id, &lease).await?;
    if context.output.is_json() {
        return context.output.json(&serde_json::json!({ "id": id }));
    }
    context.output.text(&format!("{id}  released"))
}

/// Finds the request by the folder that holds its id and lease, or by its id, the beginning or the end of it, with a lease.
async fn held(client: &Client, text: &str, lease: Option<&str>) -> Result<(RequestId, String, Option<RequestFolder>)> {
    let id = text.parse().ok();
    if id.is_none() && Path::new(text).exists() {
        let folder = RequestFolder::read(Path::new(text))?;
        let (id, own) = (folder.leased().request.id.clone(), folder.leased().lease.clone());
        return Ok((id, lease.map_or(own, str::to_owned), Some(folder)));
    }
    let id = match id {
        Some(id) => id,
        None => open_request(client, text).await?,
    };
    let lease = lease.ok_or_else(|| {
        Failure::new("usage.no_lease", "an id needs its lease: give --lease, or the folder of `requests next --out`")
    })?;
    Ok((id, lease.to_owned(), None))
}

/// Returns the only open request that a text means.
async fn open_request(client: &Client, text: &str) -> Result<RequestId> {
    let mut found: Vec<RequestId> = every(client, (None, None), false).await?.into_iter().map(|item| item.id).collect();
    found.retain(|id| resolve::fits(id.as_str(), RequestId::PREFIX, text));
    let id = |id: &RequestId| id.to_string();
    resolve::only(text, found, id, "request.not_found", "open request", "nightshift requests list")
}

fn read_file(path: &Path) -> Result<String> {
    let unreadable = |error: &std::io::Error| {
        Failure::new("request.answer_unreadable", format!("the answer {} cannot be read: {error}", path.display()))
    };
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    read(file, &path.display().to_string())
}

/// Reads an answer, no more than the limit: a reply with one byte replaced would be another program.
fn read(from: impl std::io::Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(MAX_ANSWER_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| {
        Failure::new("request.answer_unreadable", format!("the answer {name} cannot be read: {error}"))
    })?;
    if bytes.len() > MAX_ANSWER_BYTES {
        let message = format!("the answer {name} has more than the {MAX_ANSWER_BYTES} bytes that an answer may have");
        return Err(Failure::new("answer.too_large", message).hint("the request is still open: shorten the answer"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let message = format!("the answer {name} is no UTF-8 text: its byte {at} begins no character");
        Failure::new("request.answer_unreadable", message).hint("the request is still open: save the answer as UTF-8")
    })
}

async fn list(context: &Context, client: &Client, args: &RequestsList) -> Result<()> {
    let requests = every(client, meant(client, args.of.as_deref()).await?, args.all).await?;
    let output = context.output;
    if output.is_json() {
        return output.json(&requests);
    }
    let mut table = output.table(&["request", "run", "step", "role", "model", "state", "held by", "since", "deadline"]);
    for request in &requests {
        table.add_row([
            output.cell(request.id.short(), Tone::Plain),
            output.cell(request.run.short(), Tone::Plain),
            output.cell(printable(&request.step_key), Tone::Plain),
            output.cell(request.role.as_str(), Tone::Plain),
            output.cell(printable(&request.model), Tone::Plain),
            output.cell(request.state.as_str(), Tone::Plain),
            output.cell(request.holder.as_deref().map_or_else(|| NONE.to_owned(), printable), Tone::Plain),
            output.cell(present::minute(request.created_at), Tone::Plain),
            output.cell(present::minute(request.deadline), Tone::Plain),
        ]);
    }
    output.text(&table.to_string())?;
    if requests.is_empty() {
        output.note("no request waits for an answer");
    }
    Ok(())
}

/// Returns the open requests of a campaign, of a run or of all runs; with `all`, also the ones that are over.
async fn every(
    client: &Client,
    (campaign, run): (Option<CampaignId>, Option<RunId>),
    all: bool,
) -> Result<Vec<RequestView>> {
    let mut requests: Vec<RequestView> = Vec::new();
    let mut before: Option<String> = None;
    loop {
        let page = client.requests(campaign.as_ref(), run.as_ref(), all, Some(PER_CALL), before.as_deref()).await?;
        requests.extend(page.items);
        match page.next {
            Some(next) => before = Some(next),
            None => return Ok(requests),
        }
    }
}
