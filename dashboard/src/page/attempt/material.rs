//! What the page of an attempt needs beside the run's own record: texts, the trace, scores. What is gone is said to be
//! gone; the rest of the page is shown all the same.

use std::collections::HashMap;

use futures::future::{join, join_all};
use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{Retrieval, RunDetail, StepView};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::score::AttemptScore;
use nightshift_protocol::task::TaskBundle;

use super::look::{Against, Look};
use super::tab::Tab;
use crate::trace::{Trace, TraceError};

/// Most model calls whose texts are read for one page.
const MAX_CALLS: usize = 40;

/// A text that was stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Stored {
    /// There never was one.
    #[default]
    Never,
    /// Here it is.
    Here(String),
    /// It cannot be had: why.
    Gone(String),
}

impl Stored {
    /// The text, when it is here.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Here(text) => Some(text),
            Self::Never | Self::Gone(_) => None,
        }
    }
}

/// Why there is no trace to draw.
#[derive(Debug)]
pub(crate) enum NoTrace {
    /// No profiler wrote one.
    Never,
    /// It cannot be had.
    Gone(String),
    /// It cannot be read.
    Unreadable(TraceError),
}

/// The texts of a model call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallTexts {
    /// The question to the model.
    pub(crate) prompt: Stored,
    /// How it reasoned, where its provider says so.
    pub(crate) reasoning: Stored,
    /// What it replied.
    pub(crate) reply: Stored,
}

/// What is known beside the run's record.
#[derive(Debug)]
pub(crate) struct Material {
    /// The attempt's source.
    pub(crate) source: Stored,
    /// The program as it is taken away for `PyTorch`, when that is asked for.
    pub(crate) model_new: Stored,
    /// Name and source of what it is compared with.
    pub(crate) other: Option<(String, Stored)>,
    /// The compiler's output.
    pub(crate) build_log: Stored,
    /// The sanitizers' output.
    pub(crate) sanitizer_log: Stored,
    /// The texts of each call that is shown, by its place among the calls.
    pub(crate) calls: HashMap<usize, CallTexts>,
    /// What its model calls were given of notes and lessons.
    pub(crate) retrievals: Vec<Retrieval>,
    /// What ran when.
    pub(crate) trace: Result<Trace, NoTrace>,
    /// Scores that were computed later.
    pub(crate) scores: Vec<AttemptScore>,
    /// The attempt's steps.
    pub(crate) steps: Vec<StepView>,
}

impl Default for Material {
    fn default() -> Self {
        Self {
            source: Stored::Never,
            model_new: Stored::Never,
            other: None,
            build_log: Stored::Never,
            sanitizer_log: Stored::Never,
            calls: HashMap::new(),
            retrievals: Vec::new(),
            trace: Err(NoTrace::Never),
            scores: Vec::new(),
            steps: Vec::new(),
        }
    }
}

impl Material {
    /// Reads what the open tab shows, at once as far as that is possible.
    pub(crate) async fn load(client: &Client, detail: &RunDetail, attempt: &Attempt, look: &Look) -> Self {
        let of = |tab: Tab, hash: Option<&ArtifactHash>| hash.filter(|_| look.shows(tab)).cloned();
        let wanted = [
            of(Tab::Source, attempt.source.as_ref()),
            of(Tab::Source, attempt.build.as_ref().map(|build| &build.log)),
            of(Tab::Checks, attempt.sanitize.as_ref().and_then(|report| report.log.as_ref())),
        ];
        let texts = join_all(wanted.iter().map(|hash| text(client, hash.as_ref())));
        let calls = shown_calls(attempt, look).map(|(place, call)| async move { (place, talk(client, call).await) });
        let calls = join_all(calls);
        let (texts, calls, retrievals, trace, (scores, steps), (other, model_new)) = futures::join!(
            texts,
            calls,
            retrievals(client, detail, attempt, look),
            trace(client, attempt, look),
            scores_and_steps(client, detail, attempt, look),
            forms(client, detail, attempt, look),
        );
        let [source, build_log, sanitizer_log] = <[Stored; 3]>::try_from(texts).unwrap_or_default();
        let calls = calls.into_iter().collect();
        Self { source, model_new, other, build_log, sanitizer_log, calls, retrievals, trace, scores, steps }
    }
}

/// Returns the calls whose texts are read, with their places.
pub(super) fn shown_calls<'a>(
    attempt: &'a Attempt,
    look: &Look,
) -> impl Iterator<Item = (usize, &'a ModelCallSummary)> {
    let calls = attempt.calls.iter().enumerate();
    calls.filter(|(place, _)| look.shows(Tab::Conversation) && look.talk.shows(*place)).take(MAX_CALLS)
}

/// Reads the notes and lessons that the model calls were given; nothing where they cannot be read.
async fn retrievals(client: &Client, detail: &RunDetail, attempt: &Attempt, look: &Look) -> Vec<Retrieval> {
    if !look.shows(Tab::Conversation) {
        return Vec::new();
    }
    let found = client.retrievals(&detail.summary.id, Some(attempt.number), None, None).await;
    found.map(|found| found.items).unwrap_or_default()
}

/// The attempt's later scores and its steps; none where they cannot be had.
async fn scores_and_steps(
    client: &Client,
    detail: &RunDetail,
    attempt: &Attempt,
    look: &Look,
) -> (Vec<AttemptScore>, Vec<StepView>) {
    if !look.shows(Tab::Checks) {
        return (Vec::new(), Vec::new());
    }
    let run = &detail.summary.id;
    let (scores, steps) = join(client.run_scores(run), client.run_steps(run)).await;
    let ours = format!("/attempt{}/", attempt.number);
    let scores = scores.map(|scores| scores.scores).unwrap_or_default();
    (
        scores.into_iter().filter(|score| score.attempt == attempt.number).collect(),
        steps.unwrap_or_default().into_iter().filter(|step| step.key.contains(&ours)).collect(),
    )
}

/// Reads the source to compare with, and the program as a model of `PyTorch`, where the address asks for them.
async fn forms(
    client: &Client,
    detail: &RunDetail,
    attempt: &Attempt,
    look: &Look,
) -> (Option<(String, Stored)>, Stored) {
    if !look.shows(Tab::Source) {
        return (None, Stored::Never);
    }
    let other = match look.against {
        Some(against) => other(client, detail, attempt, against).await,
        None => None,
    };
    let model_new = if look.as_model_new { model_new(client, detail, attempt).await } else { Stored::Never };
    (other, model_new)
}

/// A stored text.
pub(crate) async fn text(client: &Client, hash: Option<&ArtifactHash>) -> Stored {
    let Some(hash) = hash else { return Stored::Never };
    match client.get_artifact(hash).await {
        Ok(bytes) => Stored::Here(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Stored::Gone(why(&error)),
    }
}

async fn model_new(client: &Client, detail: &RunDetail, attempt: &Attempt) -> Stored {
    match client.attempt_model_new(&detail.summary.id, attempt.number).await {
        Ok(bytes) => Stored::Here(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => Stored::Gone(why(&error)),
    }
}

fn why(error: &ClientError) -> String {
    format!("{error} ({})", error.code())
}

async fn talk(client: &Client, call: &ModelCallSummary) -> CallTexts {
    let (prompt, reasoning, reply) = futures::join!(
        text(client, Some(&call.prompt)),
        text(client, call.reasoning.as_ref()),
        text(client, Some(&call.reply)),
    );
    CallTexts { prompt, reasoning, reply }
}

async fn task(client: &Client, hash: &ArtifactHash) -> Option<TaskBundle> {
    let bytes = client.get_artifact(hash).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

async fn trace(client: &Client, attempt: &Attempt, look: &Look) -> Result<Trace, NoTrace> {
    let hash = attempt.profile.as_ref().and_then(|profile| profile.trace.as_ref());
    let hash = hash.filter(|_| look.shows(Tab::Profile)).ok_or(NoTrace::Never)?;
    let bytes = client.get_artifact(hash).await.map_err(|error| NoTrace::Gone(why(&error)))?;
    Trace::read(&bytes).map_err(NoTrace::Unreadable)
}

async fn other(client: &Client, detail: &RunDetail, attempt: &Attempt, against: Against) -> Option<(String, Stored)> {
    if against == Against::Baseline {
        let source = task(client, &detail.view.task).await.map(|task| Stored::Here(task.reference_source));
        return Some((
            "the baseline".to_owned(),
            source.unwrap_or_else(|| Stored::Gone("the task cannot be read".to_owned())),
        ));
    }
    let other = against.find(detail, attempt)?;
    Some((format!("attempt {}", other.number), text(client, other.source.as_ref()).await))
}
