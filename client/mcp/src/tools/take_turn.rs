//! `take_turn`.

use std::time::{Duration, Instant};

use nightshift_client::Client;
use nightshift_protocol::access::Role;
use nightshift_protocol::api::{AnswerRequest, NextRequest, RequestView};
use nightshift_protocol::attempt::{AgentTool, MAX_NOTE_CHARS, ProgramEdit, SessionCall, ToolCall};
use nightshift_protocol::id::RunId;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::task::{CandidateForm, TaskBundle};
use schemars::JsonSchema;
use serde::Deserialize;

use super::create_campaign::key;
use super::get_turn::{Answer, answer, wait};
use crate::error::ToolError;
use crate::lookup;
use crate::session::{Session, Stage, no_open_turn};
use crate::tool::{Access, Call, Effect, Tool};

/// Lease of the request while it is answered, in seconds. Another call continues after it.
const LEASE_S: u32 = 30;
/// Maximum time to wait for another call that holds the same turn, and the time between two looks.
const MAX_HELD: Duration = Duration::from_secs(10);
const HELD_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct TakeTurn;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the run, or a part of it.
    run: String,
    /// What to do with the program. build, check, measure and profile try it out up to this step; submit takes it through
    /// all steps as an attempt; diagnose asks the Verifier about an attempt; read shows an earlier program; finish ends
    /// the session.
    #[schemars(with = "String", extend("enum" = AgentTool::ALL))]
    tool: AgentTool,
    /// The whole program. Without program and edits the newest program of the session is used as it is.
    program: Option<String>,
    /// Edits of the newest program (the last one that was given or read), instead of a whole one.
    #[serde(default)]
    edits: Vec<Edit>,
    /// One sentence: what you try, and why. With finish: the summary of the session. At most 2,000 characters.
    #[serde(default)]
    note: String,
    /// diagnose, read: number of a submitted attempt.
    attempt: Option<u32>,
    /// read: number of an earlier turn.
    turn: Option<u32>,
    /// The turn that you answer: `open_turn` of get_turn. If another turn is open by now, the call is refused.
    open_turn: Option<u32>,
    /// A key of your choice for this turn, 1 to 128 characters. Repeating the call with it takes no further turn.
    idempotency_key: String,
    /// Seconds to wait for the result, 0 to 45; default 30.
    wait_s: Option<u32>,
}

/// A replacement in the newest program of the session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// Whole lines of the program, exactly as they stand there, once.
    search: String,
    /// The lines that replace them; empty to delete them.
    replace: String,
}

impl Tool for TakeTurn {
    const NAME: &'static str = "take_turn";
    const TITLE: &'static str = "Take a turn";
    const DESCRIPTION: &'static str = "Takes the open turn of an agent session (a run of the strategy agent with the model external): stores the call, and \
        waits for its result. The turn goes on when the call ends; get_turn reads its result. Turns and submissions are limited: measure before you \
        submit, profile when you need to know what bounds the program, and finish with a summary.";
    const ACCESS: Access = Access::Needs(Role::Operator);
    const EFFECT: Effect = Effect::Adds;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let key = key(&arguments.idempotency_key)?;
        if arguments.program.is_some() && !arguments.edits.is_empty() {
            return Err(ToolError::new("request.invalid_arguments", "give `program` or `edits`, and not both"));
        }
        if arguments.note.chars().count() > MAX_NOTE_CHARS {
            let message = format!("`note` has at most {MAX_NOTE_CHARS} characters");
            return Err(ToolError::new("request.invalid_arguments", message));
        }
        let began = Instant::now();
        let connection = call.connect().await?;
        let client = &connection.client;
        let run = lookup::run(client, &arguments.run).await?;
        let edits = arguments.edits.into_iter().map(|Edit { search, replace }| ProgramEdit { search, replace });
        let turn = ToolCall {
            tool: arguments.tool.as_str().to_owned(),
            note: arguments.note,
            attempt: arguments.attempt,
            turn: arguments.turn,
            key: Some(key.to_owned()),
            refused: None,
        };
        let turn = SessionCall { call: turn, program: arguments.program, edits: Some(edits.collect()) };
        if let Some(problem) = turn.problem() {
            return Err(ToolError::new("request.invalid_arguments", problem));
        }
        let number = taken(client, &run, &turn, (key, arguments.open_turn)).await.map_err(|error| {
            let is_early = call.shared.bound.is_some() && error.code == "run.no_open_turn";
            if is_early { error.hint("call get_turn: it waits until the session needs you") } else { error }
        })?;
        let wait = wait(&connection, arguments.wait_s).saturating_sub(began.elapsed());
        let session = Session::wait(client, &run, wait, call).await?;
        let turn = session.turn(number)?;
        answer(call, &connection, &session, Some(turn), (None, None)).await
    }
}

/// Takes the turn that is meant, or else the one that is open, or finds the turn that this key took. Returns its number.
async fn taken(
    client: &Client,
    run: &RunId,
    turn: &SessionCall,
    (key, mut meant): (&str, Option<u32>),
) -> Result<u32, ToolError> {
    let until = Instant::now() + MAX_HELD;
    let mut text: Option<String> = None;
    loop {
        let session = Session::load(client, run).await?;
        let text = match &mut text {
            Some(text) => text,
            none => none.insert(turn.to_reply(form(client, &session).await?)),
        };
        if let Some(found) = session.turns().find(|known| known.keys.iter().any(|known| known == key)) {
            let is_last = found.keys.last().is_some_and(|last| last == key);
            if let Some(reply) = found.reply.as_ref().filter(|_| is_last) {
                refuse_other(&lookup::text(client, reply).await?, text, found.number)?;
            }
            return Ok(found.number);
        }
        let open = session.open_turn();
        let answers = session.answers(client).await?;
        let counts = |(request, answer): &&(RequestView, String)| {
            SessionCall::key_of(answer).as_deref() == Some(key) && !session.stage.asks_anew(request)
        };
        if let Some((open, (_, answer))) = open.zip(answers.iter().find(counts)) {
            refuse_other(answer, text, open)?;
            return Ok(open);
        }
        let (Stage::YourTurn(request), Some(open)) = (&session.stage, open) else {
            return Err(no_open_turn(&session));
        };
        let meant = *meant.get_or_insert(open);
        if meant != open {
            let message = format!("the turn {meant} of {run} is not open: the open turn is {open}");
            return Err(ToolError::new("run.no_open_turn", message).hint("get_turn reads what came in between"));
        }
        if give(client, run, request, text).await? {
            return Ok(open);
        }
        if Instant::now() >= until {
            return Err(no_open_turn(&session));
        }
        tokio::time::sleep(HELD_PAUSE).await;
    }
}

/// Answers the request of the open turn. Returns whether it did: another call may hold it, or have answered it.
async fn give(client: &Client, run: &RunId, request: &RequestView, text: &str) -> Result<bool, ToolError> {
    let wish = NextRequest {
        run: Some(run.clone()),
        roles: vec![AgentRole::Coder],
        holder: TakeTurn::NAME.to_owned(),
        lease_s: Some(LEASE_S),
        ..NextRequest::default()
    };
    let Some(leased) = client.next_request(&wish).await? else { return Ok(false) };
    let id = &leased.request.id;
    if *id != request.id {
        client.release_request(id, &leased.lease).await?;
        return Ok(false);
    }
    let answer = AnswerRequest {
        lease: leased.lease.clone(),
        text: text.to_owned(),
        input_tokens: None,
        output_tokens: None,
        model: None,
    };
    match client.answer_request(id, &answer).await {
        Ok(_) => Ok(true),
        Err(error) => {
            // The error of the answer is the one to report. A lost release ends with the lease.
            let _ = client.release_request(id, &leased.lease).await;
            let error = ToolError::from(error);
            if matches!(error.code.as_str(), "request.lease_lost" | "request.answered") {
                Ok(false)
            } else {
                Err(error)
            }
        }
    }
}

/// Refuses a key that took a turn with another call.
fn refuse_other(known: &str, text: &str, number: u32) -> Result<(), ToolError> {
    if known == text {
        return Ok(());
    }
    let message = format!("this `idempotency_key` took turn {number} with other arguments");
    Err(ToolError::new("request.key_reused", message).hint("use a new key for a new turn"))
}

/// Returns the form of the programs of a run.
async fn form(client: &Client, session: &Session) -> Result<CandidateForm, ToolError> {
    let bundle: TaskBundle =
        serde_json::from_str(&lookup::text(client, &session.detail.view.task).await?).map_err(|error| {
            ToolError::new("task.not_understood", format!("the stored task of the run cannot be read: {error}"))
        })?;
    Ok(bundle.spec.form)
}
