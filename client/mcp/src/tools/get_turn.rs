//! `get_turn`.

use std::time::Duration;

use nightshift_client::Client;
use nightshift_protocol::access::Role;
use nightshift_protocol::api::RequestView;
use nightshift_protocol::attempt::AgentTurn;
use nightshift_protocol::budget::BudgetLine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ToolError;
use crate::limits::{MAX_WAIT_S, TURN_TEXT_BYTES, WAIT_S};
use crate::lookup;
use crate::ports::Connection;
use crate::program::{ProgramSummary, SpeedupAnswer};
use crate::session::{Session, Stage, held, how_to_answer, message};
use crate::text::{Window, line};
use crate::tool::{Access, Call, Effect, Tool};

pub(crate) struct GetTurn;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Id of the run, or a part of it.
    run: String,
    /// Number of the turn to read; by default the last one that is over.
    turn: Option<u32>,
    /// Seconds to wait while the session is working, 0 to 45; default 30.
    wait_s: Option<u32>,
    /// Offset of the text in bytes: `next_offset` of the previous part. Leaves the other evidence out.
    offset: Option<u64>,
    /// Maximum size of the part in bytes; default 3072, with `offset` 6144, at most 24576. More than 3072 leaves the other
    /// evidence out.
    limit: Option<u32>,
}

/// A session after a turn.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Id of the run.
    run: String,
    /// `your_turn`: take_turn is next. `working`: call get_turn again. `question`: another role is asked, see `next`.
    /// `paused`, `ended`.
    state: &'static str,
    /// The activity of the run, or the reason of its end.
    doing: String,
    /// Number of the turn that waits for take_turn (its `open_turn`); none unless `state` is `your_turn`.
    open_turn: Option<u32>,
    /// The turn that `result` and `text` are about; none before the first.
    turn: Option<TurnRow>,
    /// The evidence on the program of the turn, if it has one.
    result: Option<ProgramSummary>,
    /// The result in words: compiler errors, wrong elements, times, milestones. Before the first turn: the prompt.
    text: Option<Window>,
    /// The best submitted program.
    best: Option<Best>,
    /// Turns left.
    turns_left: Option<u32>,
    /// Submissions left.
    submissions_left: Option<u32>,
    /// The rest of each limited resource of the campaign's budget.
    budget_left: Vec<String>,
    /// What to do next.
    next: String,
}

/// A turn.
#[derive(Serialize, JsonSchema)]
struct TurnRow {
    /// Its number.
    number: u32,
    /// The tool; none while it is open, and if no reply could be used.
    tool: Option<&'static str>,
    /// The note of its author.
    note: String,
    /// Why the reply could not be used, or the tool gave no result.
    problem: Option<String>,
    /// The attempt that it submitted: get_attempt reads all of its evidence.
    attempt: Option<u32>,
    /// Whether the turn has ended.
    over: bool,
}

/// The best submitted program.
#[derive(Serialize, JsonSchema)]
struct Best {
    /// Number of the attempt.
    attempt: u32,
    /// Speedup over the reference.
    speedup: Option<SpeedupAnswer>,
    /// Whether it was confirmed in a fresh process.
    confirmed: bool,
}

impl Tool for GetTurn {
    const NAME: &'static str = "get_turn";
    const TITLE: &'static str = "Get a turn";
    const DESCRIPTION: &'static str = "Waits until an agent session (a run of the strategy agent) needs you, and reads the result of its last turn, or of \
        `turn`: evidence, text, best program, and what is left of turns, submissions and budget. Before the first turn `text` is the prompt. \
        Call it again while `state` is working. Long texts: go on with `offset`.";
    const ACCESS: Access = Access::Needs(Role::Viewer);
    const EFFECT: Effect = Effect::Reads;
    type Arguments = Arguments;
    type Answer = Answer;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let connection = call.connect().await?;
        let client = &connection.client;
        let run = lookup::run(client, &arguments.run).await?;
        let wait = wait(&connection, arguments.wait_s);
        let session = Session::wait(client, &run, wait, call).await?;
        let turn = match arguments.turn {
            Some(number) => Some(session.turn(number)?),
            None => session.last_taken(),
        };
        answer(call, &connection, &session, turn, (arguments.offset, arguments.limit)).await
    }
}

/// Returns the time to wait for a session or a request: none where no server carries out runs.
pub(super) fn wait(connection: &Connection, wait_s: Option<u32>) -> Duration {
    let wait = Duration::from_secs(wait_s.unwrap_or(WAIT_S).min(MAX_WAIT_S).into());
    if connection.drives { wait } else { Duration::ZERO }
}

/// Returns what came of a turn, and where the session stands.
pub(super) async fn answer(
    call: &Call<'_>,
    connection: &Connection,
    session: &Session,
    turn: Option<&AgentTurn>,
    (offset, limit): (Option<u64>, Option<u32>),
) -> Result<Answer, ToolError> {
    let client = &connection.client;
    let has_evidence = offset.is_none() && limit.is_none_or(|limit| limit <= TURN_TEXT_BYTES);
    let text = text(client, session, turn).await?;
    let limit = limit.or_else(|| offset.is_none().then_some(TURN_TEXT_BYTES));
    let text = text.map(|text| Window::of(&text, offset, limit)).transpose()?;
    let detail = &session.detail;
    let budget = client.campaign(&detail.summary.campaign).await?.budget;
    let left = session.left();
    Ok(Answer {
        run: detail.summary.id.to_string(),
        state: session.stage.as_str(),
        doing: line(&session.doing()),
        open_turn: session.asked_turn(),
        turn: turn.map(|turn| row(session, turn)),
        result: turn.filter(|_| has_evidence).and_then(|turn| session.evidence(turn)),
        text,
        best: detail.view.best_attempt.and_then(|number| {
            let attempt = lookup::attempt(detail, number).ok()?;
            let speedup = attempt.speedup().map(Into::into);
            Some(Best { attempt: number, speedup, confirmed: attempt.confirmation.is_some() })
        }),
        turns_left: left.map(|left| left.turns),
        submissions_left: left.map(|left| left.submissions),
        budget_left: budget.iter().filter_map(BudgetLine::left).collect(),
        next: next(session, connection.drives, call.shared.bound.is_some()),
    })
}

async fn text(client: &Client, session: &Session, turn: Option<&AgentTurn>) -> Result<Option<String>, ToolError> {
    match (turn, &session.stage) {
        // A reply that could not be used: the question says why.
        (Some(turn), Stage::YourTurn(request)) if request.turn > 1 && session.open_turn() == Some(turn.number) => {
            message(client, request, 0).await
        }
        (Some(turn), _) => session.text(client, turn).await,
        (None, Stage::YourTurn(request)) => {
            let question = client.model_request(&request.id).await?.question;
            Ok(Some(question.to_markdown()))
        }
        (None, _) => Ok(None),
    }
}

fn row(session: &Session, turn: &AgentTurn) -> TurnRow {
    TurnRow {
        number: turn.number,
        tool: turn.tool.map(nightshift_protocol::attempt::AgentTool::as_str),
        note: line(&turn.note),
        problem: turn.problem.as_deref().map(line),
        attempt: session.submitted(turn).map(|attempt| attempt.number),
        over: !session.is_open(turn),
    }
}

fn next(session: &Session, drives: bool, is_bound: bool) -> String {
    let run = &session.detail.summary.id;
    match &session.stage {
        Stage::YourTurn(request) => held(request).unwrap_or_else(|| your_turn(request).to_owned()),
        Stage::Question(request) if is_bound => {
            format!("another agent answers for the {}: call get_turn again", request.role.as_str())
        }
        Stage::Question(request) => {
            format!("the {} is asked: {}", request.role.as_str(), how_to_answer(run, request))
        }
        Stage::Working if !drives => {
            "nothing carries out runs at the moment: ask the user to start `nightshift serve`".to_owned()
        }
        Stage::Working => "call get_turn again; it waits for the result".to_owned(),
        Stage::Paused if is_bound => "the run is paused, and a person resumes it: call get_turn again".to_owned(),
        Stage::Paused => "the run is paused: ask the user before control_run with `resume`".to_owned(),
        Stage::Ended => "the session is over: get_best_program reads the best program".to_owned(),
    }
}

fn your_turn(request: &RequestView) -> &'static str {
    if request.turn > 1 {
        "the last reply could not be used and counts as no turn yet: take_turn again, with a new key"
    } else {
        "take_turn: build, check, measure, profile, submit, diagnose, read or finish"
    }
}
