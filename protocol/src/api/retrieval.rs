//! What steps were given of notes and lessons, `GET /runs/{id}/retrievals`.

use serde::{Deserialize, Serialize};

use crate::time::TimestampMs;

/// What one step was given: its first try looked it up, and every try was asked with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retrieval {
    /// The step whose model calls it went into, for example `subtask1/attempt3/write_code`.
    pub step_key: String,
    /// When it was looked up.
    pub at: TimestampMs,
    /// What was found.
    pub retrieved: Retrieved,
}

/// What a step was given of notes and lessons. Templates see it as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retrieved {
    /// Notes, the best first.
    #[serde(default)]
    pub notes: Vec<RetrievedNote>,
    /// Lessons, the most telling first.
    #[serde(default)]
    pub lessons: Vec<RetrievedLesson>,
}

/// A note as a prompt shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetrievedNote {
    /// Its name.
    pub id: String,
    /// One line.
    pub title: String,
    /// Its text.
    pub body: String,
}

/// A lesson as a prompt shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetrievedLesson {
    /// The run that learned it.
    pub run: String,
    /// Its attempt.
    pub attempt: u32,
    /// The task that it was learned on.
    pub task: String,
    /// Class of the operator.
    pub operator_class: String,
    /// What limited the program before.
    pub bound: String,
    /// Who said so: `diagnosis` or `plan`. What was pinned before it was kept came from plans.
    #[serde(default = "by_plan")]
    pub bound_from: String,
    /// The device.
    pub device: String,
    /// Whether it was learned on a device of this model.
    pub same_device: bool,
    /// What was changed.
    pub change: String,
    /// Speed after over speed before.
    pub gain: f64,
    /// Whether it is surely more than noise.
    pub certain: bool,
}

fn by_plan() -> String {
    "plan".to_owned()
}
