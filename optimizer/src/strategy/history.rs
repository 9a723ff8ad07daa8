//! Earlier attempts in one line each, for the agents: what each changed, and what it brought. Bounded in number and length.

use std::fmt::Write as _;

use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
use nightshift_protocol::verdict::Severity;

use super::method;
use super::shared::Shared;
use super::state::RunState;

/// Most lines that an agent is given; older attempts are left out.
pub const MAX_HISTORY_LINES: usize = 20;
/// Longest line, in characters.
pub const MAX_HISTORY_LINE_CHARS: usize = 500;
/// Most characters of the request in a line.
const MAX_ASKED_CHARS: usize = 240;

/// One line for each attempt, oldest first. The text of a request stands in the first line of an attempt that it was made to.
pub(super) fn lines(run: &RunState, attempts: &[Shared<Attempt>]) -> Vec<String> {
    let skipped = attempts.len().saturating_sub(MAX_HISTORY_LINES);
    let mut requests = Requests::default();
    attempts.iter().skip(skipped).map(|attempt| line(run, attempt, &mut requests)).collect()
}

/// The requests of earlier lines, each with its attempt.
#[derive(Default)]
struct Requests(Vec<(String, u32)>);

impl Requests {
    /// Returns the text of a request, or the attempt that was asked for the same before.
    fn name(&mut self, text: String, attempt: u32) -> String {
        if let Some((_, earlier)) = self.0.iter().find(|(earlier, _)| *earlier == text) {
            return format!("asked for the same as attempt {earlier}");
        }
        self.0.push((text.clone(), attempt));
        text
    }
}

/// Writing into a string cannot fail.
fn line(run: &RunState, attempt: &Attempt, requests: &mut Requests) -> String {
    let mut text = format!(
        "attempt {} (plan {}, subtask {}, {}",
        attempt.number,
        attempt.plan_version,
        attempt.subtask,
        attempt.stage.as_str()
    );
    if let Some(parent) = attempt.parent {
        let _ = write!(text, " from attempt {parent}");
    }
    text.push_str("): ");
    if let Some(asked) = asked(run, attempt) {
        let _ = write!(text, "{}; ", requests.name(asked, attempt.number));
    }
    if let Some(tuning) = &attempt.tuning {
        let chosen = tuning.chosen().map_or_else(|| "values as written".to_owned(), |v| tuning.values_text(&v.values));
        let _ = write!(text, "tuned to {chosen}; ");
    }
    text.push_str(attempt.outcome.as_str());
    // What was found out later may have made the time worthless.
    if let Some(speedup) = attempt.speedup().filter(|_| attempt.outcome.is_correct()) {
        let confirmed = if attempt.confirmation.is_some() { "confirmed" } else { "measured once" };
        let _ = write!(text, ", {:.3}x [{:.3}, {:.3}], {confirmed}", speedup.estimate, speedup.low, speedup.high);
    }
    if let Some(gain) = attempt.gain {
        let _ = write!(text, "; {:.2}x over attempt {}", gain.measured, gain.over);
        if let Some(expected) = gain.expected {
            let _ = write!(text, " where {expected:.2}x was expected");
        }
    }
    if let Some(cause) = cause(attempt) {
        text.push_str(": ");
        text.push_str(&cause);
    }
    one_line(&text)
}

/// Returns the change that the prompt requested.
fn asked(run: &RunState, attempt: &Attempt) -> Option<String> {
    if let Some(modification) = &attempt.modification {
        return Some(shortened(&modification.text, MAX_ASKED_CHARS));
    }
    let number = method::of(run, attempt)?;
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    let text = method::subtask(run, attempt)?.methods.get(index)?;
    Some(format!("method {number}: {}", shortened(text, MAX_ASKED_CHARS)))
}

/// Why an attempt failed, in a few words.
pub(super) fn cause(attempt: &Attempt) -> Option<String> {
    let gravest = attempt.findings.iter().max_by_key(|finding| finding.severity).map(|f| f.message.clone());
    match attempt.outcome {
        AttemptOutcome::Pending | AttemptOutcome::CorrectFaster | AttemptOutcome::CorrectNotFaster => None,
        AttemptOutcome::NoCode => gravest,
        AttemptOutcome::NotCompliant => {
            attempt.findings.iter().find(|f| f.severity == Severity::Violation).map(|f| f.message.clone())
        }
        AttemptOutcome::CompileFailed => {
            let build = attempt.build.as_ref()?;
            let error = build.messages.iter().find(|message| message.severity == "error");
            Some(
                error.or_else(|| build.messages.first()).map_or_else(
                    || build.end.describe(),
                    |message| format!("line {}: {}", message.line, message.message),
                ),
            )
        }
        AttemptOutcome::Crashed
        | AttemptOutcome::TimedOut
        | AttemptOutcome::MemoryExceeded
        | AttemptOutcome::RuntimeFailed => {
            let check = attempt.check.as_ref()?;
            // A program that survived the checks died while it was timed: the finding tells how.
            if check.end == nightshift_protocol::verdict::ProcessEnd::Finished {
                gravest
            } else {
                Some(check.end.describe())
            }
        }
        AttemptOutcome::Incorrect => {
            let case = attempt.check.as_ref()?.cases.iter().find(|case| !case.passed)?;
            let worst = case.worst.as_ref().map_or_else(String::new, |worst| {
                let got = worst.candidate.map_or_else(|| "a value that is not finite".to_owned(), |v| v.to_string());
                format!(", worst {}{:?}: {got} instead of {}", worst.tensor, worst.index, worst.truth)
            });
            Some(format!(
                "shape {}, inputs {}: {} of {} elements wrong{worst}",
                case.shape, case.inputs, case.wrong_elements, case.elements
            ))
        }
    }
}

/// One line of at most [`MAX_HISTORY_LINE_CHARS`] characters.
pub(super) fn one_line(text: &str) -> String {
    shortened(text, MAX_HISTORY_LINE_CHARS)
}

/// One line of at most so many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match flat.char_indices().nth(most) {
        None => flat,
        Some(_) => flat.chars().take(most - 1).chain(std::iter::once('…')).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_request_is_told_once() {
        let mut requests = Requests::default();
        let mut name = |text: &str, attempt| requests.name(text.to_owned(), attempt);
        assert_eq!(name("fuse the loads", 2), "fuse the loads");
        assert_eq!(name("method 1: tile", 3), "method 1: tile");
        assert_eq!(name("fuse the loads", 4), "asked for the same as attempt 2");
        assert_eq!(name("fuse the loads", 5), "asked for the same as attempt 2");
    }

    #[test]
    fn a_line_is_one_line_and_bounded() {
        let line = one_line(&"é\n".repeat(MAX_HISTORY_LINE_CHARS));
        assert_eq!(line.chars().count(), MAX_HISTORY_LINE_CHARS);
        assert!(!line.contains('\n'));
    }
}
