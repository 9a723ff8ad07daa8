//! Agent sessions of runs: where a session stands, and what came of a turn.

use std::time::{Duration, Instant};

use nightshift_client::Client;
use nightshift_protocol::api::{RequestState, RequestView, RunDetail};
use nightshift_protocol::attempt::{AgentTool, AgentTurn, Attempt, SessionLeft};
use nightshift_protocol::id::RunId;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::run::RunStatus;

use crate::error::ToolError;
use crate::limits::PROGRESS_INTERVAL;
use crate::lookup;
use crate::program::{Program, ProgramSummary};
use crate::text::name;
use crate::tool::Call;

/// Time between two looks at a session.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Number of looks after which the run is loaded although no request is open.
const POLLS_PER_RUN: u32 = 5;
/// Number of requests of a run that are searched for those of its open turn.
const REQUESTS: u32 = 10;

/// Where a session stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    /// A turn waits for a call. The request is the one to answer.
    YourTurn(RequestView),
    /// The run asks another role of the model `external`.
    Question(RequestView),
    /// A turn is carried out, or the run prepares one.
    Working,
    /// The run is paused.
    Paused,
    /// The run is over.
    Ended,
}

impl Stage {
    /// Returns the name in answers.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::YourTurn(_) => "your_turn",
            Self::Question(_) => "question",
            Self::Working => "working",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }

    /// Returns whether the run no longer reads the answer to this request, because another request asks its question again.
    pub(crate) fn asks_anew(&self, answered: &RequestView) -> bool {
        matches!(self, Self::YourTurn(now) if now.id != answered.id && now.turn <= answered.turn)
    }
}

/// A session at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) detail: RunDetail,
    pub(crate) stage: Stage,
}

impl Session {
    /// Loads the session of a run.
    pub(crate) async fn load(client: &Client, run: &RunId) -> Result<Self, ToolError> {
        let waiting = client.requests(None, Some(run), false, Some(REQUESTS), None).await?.items;
        let detail = client.run(run).await?;
        Self::of(detail, waiting)
    }

    fn of(detail: RunDetail, waiting: Vec<RequestView>) -> Result<Self, ToolError> {
        let has_begun = detail.view.prepared.is_some() || detail.summary.status.is_final();
        if detail.view.session.is_none() && has_begun {
            return Err(ToolError::new(
                "run.no_session",
                format!("the run {} has no agent session: its strategy has none", detail.summary.id),
            )
            .hint("create_campaign with the strategy `agent` begins one"));
        }
        let mut session = Self { detail, stage: Stage::Working };
        session.stage = match session.detail.summary.status {
            status if status.is_final() => Stage::Ended,
            RunStatus::Paused => Stage::Paused,
            _ => session.asks(waiting),
        };
        Ok(session)
    }

    /// Returns what the newest waiting request asks for. The request of an earlier turn was answered in between.
    fn asks(&self, waiting: Vec<RequestView>) -> Stage {
        let Some(request) = waiting.into_iter().next() else { return Stage::Working };
        if request.role != AgentRole::Coder {
            return Stage::Question(request);
        }
        let is_open = self.open_turn().is_some_and(|open| request.step_key.ends_with(&step_of(open)));
        if is_open { Stage::YourTurn(request) } else { Stage::Working }
    }

    /// Waits until the session needs a call, an answer or a person, or is over, up to a timeout. A service that is bound to
    /// the run answers no questions to other roles and resumes nothing: it waits for others to do so, too.
    pub(crate) async fn wait(client: &Client, run: &RunId, time: Duration, call: &Call<'_>) -> Result<Self, ToolError> {
        let until = Instant::now() + time;
        let mut said = Instant::now();
        let mut session = Self::load(client, run).await?;
        let mut polls = 0_u32;
        let is_bound = call.shared.bound.is_some();
        let goes_on = |stage: &Stage| {
            *stage == Stage::Working || (is_bound && matches!(stage, Stage::Question(_) | Stage::Paused))
        };
        while goes_on(&session.stage) && Instant::now() < until {
            tokio::time::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now()))).await;
            if said.elapsed() >= PROGRESS_INTERVAL {
                said = Instant::now();
                call.progress.say(&session.doing()).await;
            }
            polls += 1;
            let waiting = client.requests(None, Some(run), false, Some(REQUESTS), None).await?.items;
            if !waiting.is_empty() || polls.is_multiple_of(POLLS_PER_RUN) || Instant::now() >= until {
                session = Self::of(client.run(run).await?, waiting)?;
            }
        }
        Ok(session)
    }

    /// Returns every turn, oldest first.
    pub(crate) fn turns(&self) -> impl DoubleEndedIterator<Item = &AgentTurn> {
        self.detail.view.attempts.iter().flat_map(|attempt| &attempt.turns)
    }

    /// Returns the turn of this number.
    pub(crate) fn turn(&self, number: u32) -> Result<&AgentTurn, ToolError> {
        self.turns().find(|turn| turn.number == number).ok_or_else(|| {
            ToolError::new("run.no_open_turn", format!("the session has no turn {number}"))
                .hint("get_turn without `turn` shows the last one")
        })
    }

    /// Returns the turn to show: the last one that has a usable reply, or the one whose reply has to be mended.
    pub(crate) fn last_taken(&self) -> Option<&AgentTurn> {
        let is_repair = matches!(&self.stage, Stage::YourTurn(request) if request.turn > 1);
        self.turns().rev().find(|turn| is_repair || turn.tool.is_some() || turn.problem.is_some())
    }

    /// Whether a turn waits for a call, or for the end of what it was called for.
    pub(crate) fn is_open(&self, turn: &AgentTurn) -> bool {
        self.stage != Stage::Ended && self.turns().next_back().is_some_and(|last| last.number == turn.number)
    }

    /// Returns the number of the turn that is open.
    pub(crate) fn open_turn(&self) -> Option<u32> {
        self.turns().next_back().filter(|turn| self.is_open(turn)).map(|turn| turn.number)
    }

    /// Returns the number of the turn that waits for a call.
    pub(crate) fn asked_turn(&self) -> Option<u32> {
        self.open_turn().filter(|_| matches!(self.stage, Stage::YourTurn(_)))
    }

    /// Returns the requests of the open turn that were answered, newest first, with their answers.
    pub(crate) async fn answers(&self, client: &Client) -> Result<Vec<(RequestView, String)>, ToolError> {
        let Some(number) = self.open_turn() else { return Ok(Vec::new()) };
        let step = step_of(number);
        let all = client.requests(None, Some(&self.detail.summary.id), true, Some(REQUESTS), None).await?.items;
        let mut answers = Vec::new();
        for request in all {
            if request.state != RequestState::Answered || !request.step_key.ends_with(&step) {
                continue;
            }
            if let Some(answer) = client.model_request(&request.id).await?.answer {
                answers.push((request, answer));
            }
        }
        Ok(answers)
    }

    /// Returns what the run is doing, or why it ended.
    pub(crate) fn doing(&self) -> String {
        if let Some(failure) = &self.detail.summary.failure {
            return format!("{}: {}", failure.code, failure.message);
        }
        if let Some(reason) = &self.detail.view.stop_reason {
            return reason.as_str().to_owned();
        }
        match self.detail.open_steps.first() {
            Some(step) => {
                let why = step.waiting_for.as_deref().unwrap_or("in work");
                format!("{}: {why}", step.key)
            }
            None => self.detail.summary.digest.activity.clone(),
        }
    }

    /// Returns what is left of the session.
    pub(crate) fn left(&self) -> Option<SessionLeft> {
        self.detail.view.session
    }

    /// Returns the attempt that a turn submitted.
    pub(crate) fn submitted(&self, turn: &AgentTurn) -> Option<&Attempt> {
        if turn.tool != Some(AgentTool::Submit) {
            return None;
        }
        let of_turn = |attempt: &&Attempt| attempt.turns.iter().any(|own| own.number == turn.number);
        self.detail.view.attempts.iter().find(of_turn).filter(|attempt| attempt.source.is_some())
    }

    /// Returns the evidence on the program of a turn; none where the turn has none.
    pub(crate) fn evidence(&self, turn: &AgentTurn) -> Option<ProgramSummary> {
        let summary = |attempt: &Attempt| Program::of_attempt(attempt, self.detail.view.prepared.as_ref()).summary();
        if let Some(number) = turn.attempt {
            return lookup::attempt(&self.detail, number).ok().map(summary);
        }
        let wanted = turn.turn.unwrap_or(turn.number);
        let version = self.detail.view.attempts.iter().find_map(|attempt| {
            let version = attempt.earlier_versions.iter().find(|version| version.turn == Some(wanted))?;
            Some(version.as_attempt(attempt))
        });
        version.as_ref().map(summary).or_else(|| self.submitted(self.turn(wanted).ok()?).map(summary))
    }

    /// Returns the text that a turn gave to its author; none before the next turn.
    pub(crate) async fn text(&self, client: &Client, turn: &AgentTurn) -> Result<Option<String>, ToolError> {
        if let Some(result) = &turn.result {
            return lookup::text(client, result).await.map(Some);
        }
        match &self.stage {
            Stage::YourTurn(request) if self.open_turn() == Some(turn.number.saturating_add(1)) => {
                // Each reply that could not be used has a message behind the result.
                message(client, request, request.turn.saturating_sub(1)).await
            }
            _ => Ok(None),
        }
    }
}

/// Returns the end of the key of the step that asks for a turn.
fn step_of(turn: u32) -> String {
    format!("/turn{turn}/write_code")
}

/// Returns a message of a request, `back` places before the last one. The last one is the result of the turn before, or what
/// was wrong with the last reply.
pub(crate) async fn message(client: &Client, request: &RequestView, back: u32) -> Result<Option<String>, ToolError> {
    let question = client.model_request(&request.id).await?.question;
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    Ok(question.earlier.into_iter().rev().nth(back).map(|turn| turn.user))
}

/// Returns who holds a request, and how it is given back; `None` without a lease.
pub(crate) fn held(request: &RequestView) -> Option<String> {
    if request.state != RequestState::Leased {
        return None;
    }
    let holder = request.holder.as_deref().filter(|holder| !holder.is_empty());
    let holder = holder.map_or_else(|| "an agent without a name".to_owned(), |holder| format!("`{}`", name(holder)));
    let until = request.leased_until.map_or_else(String::new, |until| format!(" until {} (ms since 1970)", until.0));
    let how = "who took it with next_request answers it (answer_request) or gives it back (release_request)";
    Some(format!("{holder} holds the request {}{until}: {how}", request.id))
}

/// Returns how the question to another role is answered.
pub(crate) fn how_to_answer(run: &RunId, request: &RequestView) -> String {
    held(request).unwrap_or_else(|| {
        let role = request.role.as_str();
        format!("take it with next_request (run {run}, roles [\"{role}\"]), answer it with answer_request, then call get_turn")
    })
}

/// Returns the error for a call while no turn waits for one.
pub(crate) fn no_open_turn(session: &Session) -> ToolError {
    let run = &session.detail.summary.id;
    let (message, hint) = match &session.stage {
        Stage::Ended => {
            (format!("the session of {run} is over: {}", session.doing()), "get_turn reads its last result".to_owned())
        }
        Stage::Paused => {
            (format!("{run} is paused"), "control_run with `resume` goes on, if the user agrees".to_owned())
        }
        Stage::Question(request) => (
            format!("{run} waits for an answer of the {}: {}", request.role.as_str(), request.id),
            how_to_answer(run, request),
        ),
        Stage::Working => (
            format!("no turn of {run} waits for a call: {}", name(&session.doing())),
            "get_turn waits for the result, or for the first turn; then take the next turn".to_owned(),
        ),
        Stage::YourTurn(request) => (
            format!("another agent is taking the turn of {run}"),
            held(request).unwrap_or_else(|| "call get_turn for its result".to_owned()),
        ),
    };
    ToolError::new("run.no_open_turn", message).hint(hint)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(id: u32, turn: u32) -> RequestView {
        let view = json!({
            "id": format!("req_{id:032x}"), "campaign": format!("cmp_{:032x}", 1), "run": format!("run_{:032x}", 1),
            "step_key": "subtask1/attempt1/turn1/write_code", "turn": turn, "role": "coder", "model": "external/any",
            "state": "leased", "created_at": 1, "deadline": 9, "holder": "the other", "leased_until": 7,
        });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn an_answer_counts_until_its_question_is_asked_anew() {
        let asked = |id, turn| Stage::YourTurn(request(id, turn));
        assert!(asked(2, 1).asks_anew(&request(1, 1)), "the same question in another request");
        assert!(asked(2, 1).asks_anew(&request(1, 2)), "all of its replies are asked for anew");
        assert!(!asked(2, 2).asks_anew(&request(1, 1)), "the answer was read and could not be used");
        assert!(!asked(1, 1).asks_anew(&request(1, 1)) && !Stage::Working.asks_anew(&request(1, 1)));
    }

    #[test]
    fn a_held_request_says_by_whom_and_until_when() {
        let said = held(&request(1, 1)).unwrap();
        assert!(said.contains("`the other`") && said.contains("until 7") && said.contains("release_request"), "{said}");
        assert_eq!(held(&RequestView { state: RequestState::Open, ..request(1, 1) }), None);
    }
}
