//! Asking a model within a step: each turn is made once, committed, and found again after a crash.

mod identity;
mod requests;
mod text;

use std::sync::Arc;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::model_call::{FellBack, ModelCallSummary, StopCause};
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::CandidateForm;
use serde::Serialize;
use serde_json::Value;

pub(super) use self::identity::call_name;
use self::identity::request_hash;
pub(super) use self::text::shown_again;
use self::text::{clip, transcript, with_note};
use super::chain::{self, Link};
use super::functions::{as_text, session_functions};
use super::{AgentPorts, AgentStep, Agents, AnsweredCall, budget};
use crate::model::{Model, ModelError, ModelReply, ModelRequest};
use crate::prompt::{Prompt, Rendered};
use crate::reply::{holds_edits, strip_reasoning};

/// Replies that one try of a step asks for: the first, and one after a repair request.
const TURNS_PER_TRY: u32 = 2;

/// Longest description of a problem in a prompt, in bytes.
const MAX_PROBLEM_BYTES: usize = 2_000;

/// A reply that cannot be used, also after a repair request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unusable {
    /// Stable code.
    pub(super) code: &'static str,
    /// What is wrong.
    pub(super) message: String,
}

/// Why a step gets no usable reply.
pub(super) enum NoReply {
    /// It answered, and what it answered cannot be used.
    Unusable {
        what: Unusable,
        /// Whether another try of the step may ask again.
        may_ask_again: bool,
    },
    /// It did not answer.
    Model(ModelError),
    /// Something else failed.
    Step(StepFailure),
}

impl From<StepFailure> for NoReply {
    fn from(failure: StepFailure) -> Self {
        Self::Step(failure)
    }
}

impl NoReply {
    /// For agents whose absence is a result: why there is no reply. What may heal, and what has nothing to do with
    /// models, stays a failure of the step.
    pub(super) fn unavailable(self) -> Result<String, StepFailure> {
        match self {
            Self::Unusable { what, .. } => Ok(what.message),
            Self::Model(error) if !error.is_retriable() => Ok(error.describe()),
            Self::Model(error) => Err(error.into()),
            Self::Step(failure) => Err(failure),
        }
    }
}

/// The calls of one step.
pub(super) struct Conversation<'a> {
    agents: &'a Agents,
    ports: &'a dyn AgentPorts,
    step: AgentStep<'a>,
    prompt: Prompt,
    /// Tries of the step that may ask anew after an unusable reply.
    max_tries: u32,
    /// Replies that each of them asks for.
    turns_per_try: u32,
    schema: Option<Value>,
    /// Turns of a session before this one: the model's reply, and the result that it got.
    session: Vec<(String, String)>,
    /// The form of the programs, where the tools of a session are offered as functions.
    functions: Option<CandidateForm>,
    /// Text at the end of the last message. It may differ from one try of the step to the next: a committed call, or an open
    /// request, is found without it.
    note: String,
    /// Who asks.
    role: Option<AgentRole>,
    calls: Vec<ModelCallSummary>,
}

struct Turn {
    reply: String,
    stop: StopCause,
    fresh: bool,
}

impl Turn {
    /// Returns the value of the reply, unless further edits may be missing: half of them make a program that the model did not mean.
    fn complete<T>(&self, value: T) -> Result<T, Unusable> {
        if matches!(self.stop, StopCause::Length | StopCause::Other) && holds_edits(&strip_reasoning(&self.reply)) {
            let message = "edits may be missing".to_owned();
            return Err(Unusable { code: "reply.cut_off", message });
        }
        Ok(value)
    }
}

/// A question.
#[derive(Clone, Copy)]
struct Asked<'a> {
    request: &'a ModelRequest,
    rendered: &'a Rendered,
    turn: u32,
    request_hash: &'a str,
    /// Models that were asked before and could not answer.
    fell_back: &'a [FellBack],
}

impl<'a> Conversation<'a> {
    pub(super) fn new(agents: &'a Agents, ports: &'a dyn AgentPorts, step: AgentStep<'a>, prompt: Prompt) -> Self {
        let role = AgentRole::of(step.input.kind());
        Self {
            agents,
            ports,
            step,
            prompt,
            max_tries: 1,
            turns_per_try: TURNS_PER_TRY,
            schema: None,
            session: Vec::new(),
            functions: None,
            note: String::new(),
            role,
            calls: Vec::new(),
        }
    }

    /// Asks for a JSON object of this schema.
    pub(super) fn with_schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Shows the model the turns of a session that came before, each with its reply and its result.
    pub(super) fn with_session(mut self, turns: Vec<(String, String)>, form: CandidateForm) -> Self {
        self.session = turns;
        self.functions = Some(form);
        self
    }

    /// Ends the last message with a text that does not identify the call.
    pub(super) fn with_note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    /// Allows so many tries of the step to ask anew after an unusable reply.
    pub(super) fn with_max_tries(mut self, max_tries: u32) -> Self {
        self.max_tries = max_tries;
        self
    }

    /// Asks once: a reply that cannot be used is not asked to be mended.
    pub(super) fn with_single_turn(mut self) -> Self {
        self.turns_per_try = 1;
        self
    }

    /// The committed calls.
    pub(super) fn into_calls(self) -> Vec<ModelCallSummary> {
        self.calls
    }

    /// The failure of the step, with the calls that were paid for it nevertheless.
    pub(super) fn failed(self, failure: impl Into<StepFailure>) -> StepFailure {
        let mut failure = failure.into();
        failure.calls = self.calls;
        failure
    }

    /// Asks until `parse` can use the reply: once, and once more with what was wrong. A further try begins with the same
    /// prompt again, so that what went wrong before does not make it longer. Committed turns are read, not asked again.
    pub(super) async fn ask<T>(
        &mut self,
        values: &impl Serialize,
        parse: impl Fn(&str) -> Result<T, Unusable>,
    ) -> Result<T, NoReply> {
        let config = &self.agents.config;
        let rendered = config.prompts.render(self.prompt, values).map_err(StepFailure::from)?;
        let run_input = self.step.run_input;
        let chain = chain::open(self.agents, self.ports, run_input, self.role).await?;
        // The model that answered keeps the conversation: the models before it rarely recover within a turn.
        let mut asked_first = 0;
        let own = self.role.and_then(|role| run_input.models.roles.get(&role));
        let mut request = ModelRequest {
            system: rendered.system.clone(),
            user: rendered.user.clone(),
            stable_user_bytes: rendered.stable_user_bytes,
            earlier: Vec::new(),
            max_output_tokens: own.and_then(|own| own.max_output_tokens).unwrap_or(config.max_output_tokens),
            temperature: own.and_then(|own| own.temperature).or(config.temperature),
            json_schema: self.schema.clone(),
            functions: self.functions.map(|_| session_functions()).unwrap_or_default(),
            call_name: String::new(),
        };
        let mut problem: Option<Unusable> = None;
        for earlier_tries in 0..self.max_tries {
            let first_turn = earlier_tries * TURNS_PER_TRY + 1;
            request.earlier.clone_from(&self.session);
            let mut fresh = false;
            for turn in first_turn..first_turn + self.turns_per_try {
                request.call_name = call_name(self.step.step_key, turn);
                let turn = match self.turn(&chain, &mut asked_first, &request, &rendered, turn).await {
                    Ok(turn) => turn,
                    // A script without a second turn has no further reply.
                    Err(NoReply::Model(ModelError::ScriptEnded { .. })) if turn > 1 => {
                        return Err(give_up(problem, false));
                    }
                    Err(other) => return Err(other),
                };
                fresh |= turn.fresh;
                if turn.stop == StopCause::Refusal {
                    let message = "the model refused to answer".to_owned();
                    return Err(give_up(Some(Unusable { code: "reply.refused", message }), false));
                }
                match parse(&turn.reply).and_then(|value| turn.complete(value)) {
                    Ok(value) => return Ok(value),
                    Err(mut what) => {
                        let place = match turn.stop {
                            StopCause::Length => {
                                let limit = output_limit(&chain, asked_first, request.max_output_tokens);
                                Some(format!("at its limit of {limit} tokens"))
                            }
                            StopCause::Other => Some("before its end".to_owned()),
                            StopCause::End | StopCause::Refusal => None,
                        };
                        if let Some(place) = place {
                            what.message = format!("{}; the reply was cut off {place}, so be shorter", what.message);
                        }
                        let repair = config
                            .prompts
                            .repair(self.prompt, clip(&what.message, MAX_PROBLEM_BYTES))
                            .map_err(StepFailure::from)?;
                        request.earlier.push((shown_again(&turn.reply), repair));
                        problem = Some(what);
                    }
                }
            }
            // A script waits for nothing: it goes on at once, as the session did that it was recorded from.
            let last = earlier_tries + 1 == self.max_tries;
            if fresh && !last && !chain.get(asked_first).is_some_and(Link::is_scripted) {
                return Err(give_up(problem, true));
            }
        }
        Err(give_up(problem, false))
    }

    /// One turn: found, or asked and committed.
    async fn turn(
        &mut self,
        chain: &[Link],
        asked_first: &mut usize,
        request: &ModelRequest,
        rendered: &Rendered,
        turn: u32,
    ) -> Result<Turn, NoReply> {
        let AgentStep { run, step_key, run_input, .. } = self.step;
        let mut found = None;
        for (place, link) in chain.iter().enumerate() {
            let request_hash = request_hash(&link.label, request, turn);
            if let Some(summary) = self.ports.find_call(run, step_key, turn, &request_hash).await? {
                *asked_first = place;
                found = Some((summary, None));
                break;
            }
        }
        let (summary, fresh_reply) = match found {
            Some(found) => found,
            None => self.ask_in_order(chain, asked_first, (request, rendered, turn)).await?,
        };
        let (stop, reply, fresh) = (summary.stop, summary.reply.clone(), fresh_reply.is_some());
        self.calls.push(summary);
        let reply = match fresh_reply {
            Some(reply) => reply,
            None => super::load_text(self.ports, &reply).await?,
        };
        // After the commit, and again when the reply is found: the file follows the store, whenever it was lost.
        if let Some(recorder) = &self.agents.config.recorder {
            recorder.write(&run_input.task_name, &request.call_name, &reply).await.map_err(|error| {
                let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
                StepFailure::retriable("model.record_failed", format!("{error}{cause}"))
            })?;
        }
        Ok(Turn { reply, stop, fresh })
    }

    /// Asks one model after the other until one answers; the place of that one is where the next turn begins.
    async fn ask_in_order(
        &self,
        chain: &[Link],
        asked_first: &mut usize,
        (request, rendered, turn): (&ModelRequest, &Rendered, u32),
    ) -> Result<(ModelCallSummary, Option<String>), NoReply> {
        let mut errors: Vec<(String, Arc<ModelError>)> = Vec::new();
        let (first, mut fell_back) = self.request_in_order(chain, *asked_first, request, turn).await?;
        for (place, link) in chain.iter().enumerate().skip(first) {
            let error = match &link.model {
                Err(error) => Arc::clone(error),
                Ok(model) => {
                    let request_hash = request_hash(&link.label, request, turn);
                    let asked = Asked { request, rendered, turn, request_hash: &request_hash, fell_back: &fell_back };
                    match self.answer(model, asked).await {
                        Ok(answered) => {
                            *asked_first = place;
                            return Ok(answered);
                        }
                        // The error of a single model is returned unchanged.
                        Err(NoReply::Model(error)) if error.falls_through() && chain.len() > 1 => Arc::new(error),
                        Err(NoReply::Model(error)) => return Err(typed(error)),
                        Err(other) => return Err(other),
                    }
                }
            };
            if place + 1 < chain.len() {
                tracing::warn!(
                    run.id = self.step.run.as_str(),
                    step.key = self.step.step_key,
                    model.name = link.label,
                    error.code = error.code(),
                    error = %error,
                    "a model cannot answer; the next one is asked"
                );
            }
            fell_back.push(FellBack { model: link.label.clone(), code: error.code().to_owned() });
            errors.push((link.label.clone(), error));
        }
        if errors.is_empty() {
            return Err(NoReply::Model(ModelError::NoScript { message: "there is no model to be asked".to_owned() }));
        }
        Err(NoReply::Model(ModelError::NoneAnswered { errors }))
    }

    /// Sends the question and commits the reply. Returns a reply that another process committed before the question was
    /// sent.
    async fn answer(
        &self,
        model: &Arc<dyn Model>,
        asked: Asked<'_>,
    ) -> Result<(ModelCallSummary, Option<String>), NoReply> {
        let noted = with_note(asked.request, &self.note);
        let asked = Asked { request: &noted, ..asked };
        if model.is_external() {
            return self.ask_outside(model, asked).await;
        }
        // Replies from a script cost nothing.
        let estimate = if model.is_scripted() {
            Vec::new()
        } else {
            let limit = model.output_limit(asked.request.max_output_tokens);
            budget::estimate(&self.agents.config.prices, &model.label(), asked.request, limit)
        };
        let question = (asked.turn, asked.request_hash);
        let meter = budget::CallBudget::new(self.ports, self.step, question, &estimate);
        match model.call(asked.request, &meter).await {
            Ok(mut answer) => {
                if let Some(form) = self.functions.filter(|_| !answer.calls.is_empty()) {
                    answer.text = as_text(&answer.text, &answer.calls, form);
                }
                let summary = self.commit(model, asked, &estimate, &answer).await?;
                Ok((summary, Some(answer.text)))
            }
            Err(error) => match meter.into_found() {
                Some(found) => Ok((found, None)),
                None => Err(NoReply::Model(error)),
            },
        }
    }

    async fn commit(
        &self,
        model: &Arc<dyn Model>,
        asked: Asked<'_>,
        estimate: &[Amount],
        answer: &ModelReply,
    ) -> Result<ModelCallSummary, StepFailure> {
        let Asked { request, rendered, turn, request_hash, fell_back } = asked;
        let label = model.label();
        let prompt = transcript(request).into_bytes();
        let reply = answer.text.clone().into_bytes();
        let reasoning = answer.reasoning.clone().map(String::into_bytes);
        let summary = ModelCallSummary {
            scripted: model.is_scripted(),
            prompt_version: rendered.version.clone(),
            prompt: ArtifactHash::of(&prompt),
            reply: ArtifactHash::of(&reply),
            reasoning: reasoning.as_deref().map(ArtifactHash::of),
            input_tokens: answer.tokens.input,
            cached_input_tokens: answer.tokens.cached_input,
            cache_write_tokens: answer.tokens.cache_write,
            output_tokens: answer.tokens.output,
            reasoning_tokens: answer.tokens.reasoning,
            price_microusd: if model.is_scripted() {
                // The price is known: replies from a script cost nothing.
                Some(0)
            } else {
                self.agents.config.prices.price_microusd(&label, &answer.tokens)
            },
            latency_ms: answer.latency_ms,
            turn,
            stop: answer.stop,
            role: self.role,
            fell_back: fell_back.to_vec(),
            model: label,
        };
        let call = AnsweredCall {
            run: self.step.run,
            step_key: self.step.step_key,
            request_hash,
            summary: &summary,
            prompt,
            reply,
            reasoning,
            released: estimate.to_vec(),
            used: budget::used(estimate, &summary),
        };
        self.ports.record_call(call).await?;
        tracing::info!(
            run.id = self.step.run.as_str(),
            step.key = self.step.step_key,
            model.name = summary.model,
            model.turn = turn,
            model.input_tokens = summary.input_tokens,
            model.cached_input_tokens = summary.cached_input_tokens,
            model.output_tokens = summary.output_tokens,
            model.reasoning_tokens = summary.reasoning_tokens,
            duration_ms = summary.latency_ms,
            "a model call was answered and committed"
        );
        Ok(summary)
    }
}

/// Classifies an error. Refusals and replies above the limit of size count as replies: another try gives the same.
fn typed(error: ModelError) -> NoReply {
    let code = match &error {
        ModelError::Refused { .. } => "reply.refused",
        ModelError::TooLarge { .. } => "reply.too_large",
        ModelError::NotBegun(failure) => return NoReply::Step(failure.clone()),
        _ => return NoReply::Model(error),
    };
    NoReply::Unusable { what: Unusable { code, message: error.describe() }, may_ask_again: false }
}

/// The limit of a reply of the model that answered, in tokens.
fn output_limit(chain: &[Link], answered: usize, wanted: u32) -> u32 {
    let model = chain.get(answered).and_then(|link| link.model.as_ref().ok());
    model.map_or(wanted, |model| model.output_limit(wanted))
}

fn give_up(problem: Option<Unusable>, may_ask_again: bool) -> NoReply {
    let what = problem.unwrap_or(Unusable { code: "reply.none", message: "no reply was asked for".to_owned() });
    NoReply::Unusable { what, may_ask_again }
}
