//! What a run remembers, as a template sees it: sentences.

use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::attempt_memory::{AttemptMemory, ErrorCluster, TriedModification, UntriedModification};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct MemoryView {
    best: Option<String>,
    /// Changes that helped, if only a little.
    helped: Vec<String>,
    /// Changes that are known not to help.
    failed: Vec<String>,
    /// Changes that were advised and never asked for.
    untried: Vec<String>,
    /// Changes that were advised, never asked for by name, and perhaps made all the same.
    perhaps_tried: Vec<String>,
    /// Errors that came more than once.
    errors: Vec<String>,
    left_out: u32,
}

impl MemoryView {
    pub(crate) fn new(memory: &AttemptMemory) -> Self {
        let helped = memory.tried.iter().filter(|tried| !tried.failed && tried.measured.is_some());
        let failed = memory.tried.iter().filter(|tried| tried.failed);
        let repeated = memory.errors.iter().filter(|error| error.attempts.len() > 1);
        let advised = |perhaps: bool| -> Vec<String> {
            memory.untried.iter().filter(|it| it.may_be_made_by.is_some() == perhaps).map(untried).collect()
        };
        Self {
            best: memory.best.map(|best| {
                let speedup = best.speedup;
                format!(
                    "attempt {}, {:.3}x ({:.3} to {:.3}), confirmed",
                    best.attempt, speedup.estimate, speedup.low, speedup.high
                )
            }),
            helped: helped.map(tried).collect(),
            failed: failed.map(tried).collect(),
            untried: advised(false),
            perhaps_tried: advised(true),
            errors: repeated.map(error).collect(),
            left_out: memory.left_out,
        }
    }
}

impl MemoryView {
    /// The same without what was never tried, for an author who is asked for something else.
    pub(crate) fn without_untried(mut self) -> Self {
        self.untried.clear();
        self.perhaps_tried.clear();
        self
    }
}

fn tried(tried: &TriedModification) -> String {
    let expected = tried.expected.map_or_else(String::new, |gain| format!(", {gain:.2}x was expected"));
    let came = match (tried.outcome, tried.measured) {
        (_, Some(measured)) => format!("brought {measured:.2}x{expected}"),
        (AttemptOutcome::Pending, None) => "is being tried now".to_owned(),
        (outcome, None) => format!("ended as {}{expected}", outcome.as_str()),
    };
    format!("{} (attempt {}: {came})", tried.text, tried.attempt)
}

fn untried(untried: &UntriedModification) -> String {
    let expected = untried.expected_gain.map_or_else(String::new, |gain| format!(", {gain:.2}x expected"));
    let made = untried.may_be_made_by.map_or_else(String::new, |attempt| format!("; see attempt {attempt}"));
    format!("{} (advised on attempt {}{expected}{made})", untried.text, untried.attempt)
}

fn error(error: &ErrorCluster) -> String {
    let attempts: Vec<String> = error.attempts.iter().map(u32::to_string).collect();
    format!("{} in attempts {}: {}", error.outcome.as_str(), attempts.join(", "), error.message)
}
