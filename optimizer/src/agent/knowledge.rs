//! Knowledge for the prompts of steps, and knowledge that steps leave behind.
//!
//! A step's first try looks up notes and lessons and pins them, so that a later try of the step renders the same prompt and finds
//! its answered call.

use nightshift_engine::store::{KnowledgeStore, LessonQuery, StoreError};
use nightshift_protocol::step::StepFailure;

use super::{AgentPorts, AgentStep};
use crate::knowledge::lesson::Lesson;
use crate::knowledge::{Question, Retrieved, RetrievedLesson, select};

/// Notes that are looked at for the few that a prompt gets.
const MAX_FOUND_NOTES: u32 = 24;
/// Lessons that are looked at for the few that a prompt gets.
const MAX_FOUND_LESSONS: u32 = 48;

/// Looks up what belongs into the prompt of a step, or finds what its first try was given.
pub(crate) async fn retrieve(
    ports: &dyn AgentPorts,
    step: &AgentStep<'_>,
    question: Question<'_>,
) -> Result<Retrieved, StepFailure> {
    let usage = step.run_input.knowledge;
    let Some((store, now)) = ports.knowledge().filter(|_| usage.notes || usage.lessons) else {
        return Ok(Retrieved::default());
    };
    if let Some(pinned) = store.find_retrieval(step.run, step.step_key).await.map_err(|error| failure(&error))? {
        return read(pinned);
    }
    let about = select::About::of(&question);
    let mut retrieved = Retrieved::default();
    if usage.notes {
        let found = store.search_notes(&about.words, MAX_FOUND_NOTES).await.map_err(|error| failure(&error))?;
        retrieved.notes = select::notes(found, &about);
    }
    if usage.lessons {
        retrieved.lessons = lessons(store, step, &about).await?;
    }
    let items = serde_json::to_value(&retrieved)
        .map_err(|error| StepFailure::fatal("internal.unwritable", error.to_string()))?;
    let pinned = store.pin_retrieval(step.run, step.step_key, items, now).await;
    read(pinned.map_err(|error| failure(&error))?)
}

async fn lessons(
    store: &dyn KnowledgeStore,
    step: &AgentStep<'_>,
    about: &select::About,
) -> Result<Vec<RetrievedLesson>, StepFailure> {
    let query = LessonQuery {
        operator_classes: about.operator_classes.clone(),
        bound: about.bound.map(|bound| bound.as_str().to_owned()),
        device: Some(about.device.clone()),
        except_run: Some(step.run.clone()),
        limit: MAX_FOUND_LESSONS,
    };
    let found = store.find_lessons(query).await.map_err(|error| failure(&error))?;
    Ok(select::lessons(found, about))
}

fn read(pinned: serde_json::Value) -> Result<Retrieved, StepFailure> {
    serde_json::from_value(pinned).map_err(|error| {
        StepFailure::fatal("store.corrupt", format!("what the step was given cannot be read: {error}"))
    })
}

fn failure(error: &StoreError) -> StepFailure {
    StepFailure::retriable(error.code(), error.to_string())
}

/// Stores the lesson of an attempt, if the campaign wants lessons and the attempt has one.
pub(crate) async fn learn(ports: &dyn AgentPorts, step: &AgentStep<'_>, lesson: Lesson<'_>) -> Result<(), StepFailure> {
    let Some((store, now)) = ports.knowledge().filter(|_| step.run_input.knowledge.lessons) else { return Ok(()) };
    let Some(record) = lesson.record(step.run, now) else { return Ok(()) };
    store.record_lesson(record).await.map_err(|error| failure(&error))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests;
