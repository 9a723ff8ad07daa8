//! A recorded run for tests of pages: four attempts on a GPU.

use nightshift_protocol::api::{RunDetail, StepView};
use serde_json::Value;

use crate::trace::Trace;

/// The run.
pub(crate) struct Sample {
    /// As the API gives it.
    pub(crate) detail: RunDetail,
    /// Its steps.
    pub(crate) steps: Vec<StepView>,
    texts: Value,
}

impl Sample {
    /// Reads it.
    pub(crate) fn read() -> Self {
        let mut whole: Value = serde_json::from_str(include_str!("../../tests/fixtures/h200_run.json"))
            .unwrap_or_else(|error| panic!("the sample: {error}"));
        let detail = serde_json::from_value(whole["detail"].take()).unwrap_or_else(|error| panic!("the run: {error}"));
        let steps = serde_json::from_value(whole["steps"].take()).unwrap_or_else(|error| panic!("the steps: {error}"));
        Self { detail, steps, texts: whole["texts"].take() }
    }

    /// The text of an artifact.
    pub(crate) fn text(&self, hash: &nightshift_protocol::artifact::ArtifactHash) -> Option<String> {
        self.texts[hash.as_str()].as_str().map(str::to_owned)
    }

    /// A trace of the same device.
    pub(crate) fn trace() -> Trace {
        let bytes = include_bytes!("../../tests/fixtures/h200_trace.json");
        Trace::read(bytes).unwrap_or_else(|error| panic!("the trace: {error}"))
    }
}
