//! Calls that an agent outside of Nightshift answers. The call is stored as a request, the try of the step ends, and the
//! answer has the step carried out again, which then finds it.

use nightshift_engine::store::{RequestAnswer, RequestStanding};
use nightshift_protocol::api::{EarlierTurn, RequestQuestion};
use nightshift_protocol::id::{RequestId, RunId};
use nightshift_protocol::model_call::{FellBack, StopCause};
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use crate::model::{ModelError, ModelReply, ModelRequest, TokenUsage};
use crate::prompt::Prompt;

/// Code of the passing failure of a step while an outside agent is to answer.
pub const REQUEST_OPEN: &str = "request.open";

/// A call that an outside agent is to answer.
#[derive(Debug, Clone)]
pub struct OutsideCall<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The step's key within the run.
    pub step_key: &'a str,
    /// Turn within the step, from 1.
    pub turn: u32,
    /// blake3 over model, parameters and rendered prompt.
    pub request_hash: &'a str,
    /// The role that asks.
    pub role: AgentRole,
    /// `external/NAME`.
    pub model: &'a str,
    /// The question.
    pub question: RequestQuestion,
    /// Models that were asked before and could not answer.
    pub fell_back: &'a [FellBack],
}

/// A request as its step sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct OutsideRequest {
    /// Its id.
    pub id: RequestId,
    /// Models that were asked before it was opened and could not answer.
    pub fell_back: Vec<FellBack>,
    /// What became of it so far.
    pub outcome: OutsideOutcome,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum OutsideOutcome {
    /// It waits for an answer, for at most so many milliseconds.
    Open {
        /// Until the deadline.
        wait_ms: u64,
    },
    /// It was answered.
    Answered {
        /// The answer.
        answer: RequestAnswer,
        /// From its opening to the answer, in milliseconds.
        latency_ms: u64,
    },
    /// No answer came in time.
    Expired {
        /// How long there was time for one, in milliseconds.
        waited_ms: u64,
    },
}

impl OutsideRequest {
    /// The stored request as it stands at this moment.
    #[must_use]
    pub fn at(standing: RequestStanding, now: TimestampMs) -> Self {
        let RequestStanding { id, created_at, deadline, fell_back, answer } = standing;
        let outcome = match answer {
            Some((answer, at)) => OutsideOutcome::Answered { answer, latency_ms: at.since_ms(created_at) },
            None if deadline > now => OutsideOutcome::Open { wait_ms: deadline.since_ms(now) },
            None => OutsideOutcome::Expired { waited_ms: deadline.since_ms(created_at) },
        };
        Self { id, fell_back, outcome }
    }

    /// Whether it waits or has an answer: then the chain asks no other model.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.outcome, OutsideOutcome::Expired { .. })
    }

    /// The reply, or why there is none.
    pub(super) fn into_reply(self, model: &str) -> Result<ModelReply, OutsideWait> {
        match self.outcome {
            OutsideOutcome::Answered { answer, latency_ms } => Ok(ModelReply {
                text: answer.text,
                calls: Vec::new(),
                reasoning: None,
                tokens: TokenUsage {
                    input: answer.input_tokens,
                    output: answer.output_tokens,
                    ..TokenUsage::default()
                },
                latency_ms,
                stop: StopCause::End,
            }),
            OutsideOutcome::Open { wait_ms } => Err(OutsideWait::Open(request_open(&self.id, model, wait_ms))),
            OutsideOutcome::Expired { waited_ms } => Err(OutsideWait::Expired(ModelError::Expired {
                endpoint: model.to_owned(),
                request: self.id.to_string(),
                waited_ms,
            })),
        }
    }
}

/// Why a request gives no reply now.
pub(super) enum OutsideWait {
    /// The step waits.
    Open(StepFailure),
    /// Go on with the next model.
    Expired(ModelError),
}

/// The question to an outside agent.
pub(super) fn question(request: &ModelRequest, prompt: Prompt) -> RequestQuestion {
    let earlier = request.earlier.iter();
    RequestQuestion {
        system: request.system.clone(),
        user: request.user.clone(),
        earlier: earlier
            .map(|(assistant, user)| EarlierTurn { assistant: assistant.clone(), user: user.clone() })
            .collect(),
        schema: request.json_schema.clone(),
        form: match prompt {
            Prompt::Code(_, form) => Some(form),
            _ => None,
        },
        // Not in `form`: servers and clients that do not know turns would demand a program.
        turn_form: match prompt {
            Prompt::Session(form) => Some(form),
            _ => None,
        },
        max_output_tokens: request.max_output_tokens,
    }
}

/// The failure of a try whose step waits for an outside agent. It ends with the answer, or with the deadline.
#[must_use]
pub fn request_open(id: &RequestId, model: &str, wait_ms: u64) -> StepFailure {
    let message = format!("waits for the agent `{model}` to answer {id}: see `nightshift requests list`");
    let mut failure = StepFailure::retriable(REQUEST_OPEN, message);
    failure.retry_after_ms = Some(wait_ms);
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(answer: Option<&str>) -> RequestStanding {
        RequestStanding {
            id: format!("req_{:032x}", 1).parse().unwrap_or_else(|error| panic!("{error}")),
            created_at: TimestampMs(1_000),
            deadline: TimestampMs(5_000),
            fell_back: Vec::new(),
            answer: answer
                .map(|text| (RequestAnswer { text: text.to_owned(), ..RequestAnswer::default() }, TimestampMs(1_250))),
        }
    }

    #[test]
    fn an_open_request_waits_until_its_deadline() {
        let request = OutsideRequest::at(standing(None), TimestampMs(2_000));
        assert!(request.is_alive());
        let Err(OutsideWait::Open(failure)) = request.into_reply("external/agent") else { panic!("it does not wait") };
        assert_eq!((failure.code.as_str(), failure.retry_after_ms), (REQUEST_OPEN, Some(3_000)));
        assert!(failure.message.contains("external/agent"), "{}", failure.message);
    }

    #[test]
    fn a_request_without_an_answer_expires_and_the_next_model_may_be_asked() {
        let request = OutsideRequest::at(standing(None), TimestampMs(5_000));
        assert!(!request.is_alive());
        let Err(OutsideWait::Expired(error)) = request.into_reply("external/agent") else { panic!("it waits") };
        assert_eq!((error.code(), error.falls_through(), error.is_retriable()), ("request.expired", true, false));
    }

    #[test]
    fn an_answer_counts_also_after_the_deadline() {
        let request = OutsideRequest::at(standing(Some("a plan")), TimestampMs(9_000));
        let Ok(reply) = request.into_reply("external/agent") else { panic!("there is no reply") };
        assert_eq!((reply.text.as_str(), reply.latency_ms, reply.tokens.input), ("a plan", 250, None));
    }
}
