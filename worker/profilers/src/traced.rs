//! Converts a trace of any tool into a profile.

use nightshift_protocol::profile::Timeline;
use nightshift_protocol::verdict::ProcessEnd;

use super::activity::Activity;
use super::chrome;
use super::timeline::{Calls, sum_up};
use nightshift_sandbox::process::ProcessResult;

/// Calls of the program before those that are traced, so that loading its kernels is not among them.
pub(super) const WARMUPS: u32 = 2;

/// Calls that are traced: enough to see how much they differ.
pub(super) const CALLS: u32 = 5;

/// The result of a trace.
#[derive(Debug)]
pub(super) struct Traced {
    /// Summed up.
    pub(super) timeline: Timeline,
    /// As a file for people.
    pub(super) trace: Vec<u8>,
    /// The kernels of the first call in the order of their launches, by their names with and without parameters.
    pub(super) launched: Vec<(String, String)>,
    /// Whether the calls of the program could be told apart from the rest of its process.
    pub(super) marked: bool,
}

impl Traced {
    /// Converts a trace of `wanted` calls.
    pub(super) fn of(activity: &Activity, wanted: u32) -> Self {
        let calls = Calls::find(activity, wanted);
        let first = calls.spans.first();
        let launched = activity
            .kernels
            .iter()
            .filter(|kernel| first.is_some_and(|call| (call.start_ns..=call.end_ns).contains(&kernel.span.start_ns)))
            .map(|kernel| (kernel.name.to_string(), kernel.short.to_string()))
            .collect();
        Self {
            timeline: sum_up(activity, &calls),
            trace: chrome::trace(activity, &calls),
            launched,
            marked: calls.marked,
        }
    }
}

/// What is to be said about a trace that can be used all the same; `cut` is how many events of a kind were read when there
/// were more.
pub(super) fn caution(result: &ProcessResult, marked: bool, cut: Option<usize>) -> Option<String> {
    let mut said = Vec::new();
    if result.end != ProcessEnd::Finished {
        said.push(format!("the traced program did not end well ({})", result.end.describe()));
    }
    if !marked {
        said.push("the calls of the program could not be told apart from the rest of its process".to_owned());
    }
    if let Some(events) = cut {
        said.push(format!("only the first {events} events of a kind were read"));
    }
    (!said.is_empty()).then(|| said.join("; "))
}
