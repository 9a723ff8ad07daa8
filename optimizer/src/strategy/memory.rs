//! What a run remembers of its attempts, for the agents: the best one pinned, what was tried and what not, which errors came again.
//! Bounded by an estimate of tokens; what does not fit is counted.

use std::collections::HashSet;

use nightshift_protocol::attempt::{Attempt, Stage};
use nightshift_protocol::attempt_memory::{AttemptMemory, ErrorCluster, PinnedBest, UntriedModification};

use super::Strategy;
use super::confirmation::confirmed_estimate;
use super::history::{cause, one_line, shortened};
use super::modification::tried;
use super::shared::Shared;
use super::state::RunState;
use crate::change_text::Words;

/// Most tokens of a memory, estimated.
pub const MAX_MEMORY_TOKENS: usize = 4_000;
/// Of these, what errors may take.
const MAX_ERROR_TOKENS: usize = 1_500;
/// Longest text of a change, in characters: the whole of what a diagnosis advises, as a rule.
const MAX_CHANGE_CHARS: usize = 1_000;
/// Most changes that were advised and never asked for.
const MAX_UNTRIED: usize = 6;
/// Characters that a token has at least, on average.
const CHARS_PER_TOKEN: usize = 4;
/// What an entry takes beside its text: numbers, outcome, words around them.
const ENTRY_TOKENS: usize = 30;
/// Digits of a fingerprint.
const FINGERPRINT_CHARS: usize = 12;

/// The memory of these attempts of a run.
pub(super) fn of(run: &RunState, attempts: &[Shared<Attempt>]) -> AttemptMemory {
    let (errors, errors_left_out) = bounded(clusters(attempts), MAX_ERROR_TOKENS, |error| &error.message);
    let used: usize = errors.iter().map(|error| tokens(&error.message)).sum();
    let mut changes = tried(run, attempts);
    for change in &mut changes {
        change.text = shortened(&change.text, MAX_CHANGE_CHARS);
    }
    // The newest first, so that the oldest ones are left out.
    changes.reverse();
    let (mut changes, changes_left_out) =
        bounded(changes, MAX_MEMORY_TOKENS.saturating_sub(used), |change| &change.text);
    changes.reverse();
    AttemptMemory {
        best: best(attempts),
        tried: changes,
        untried: untried(run, attempts),
        errors,
        left_out: errors_left_out.saturating_add(changes_left_out),
    }
}

/// Changes that a diagnosis of these attempts advised and that no attempt of the run was asked for, the newest first. A change of
/// plan or subtask does not take them away.
fn untried(run: &RunState, attempts: &[Shared<Attempt>]) -> Vec<UntriedModification> {
    let asked: HashSet<&str> = run.attempts().filter_map(|a| Some(a.modification.as_ref()?.text.as_str())).collect();
    let mut untried: Vec<UntriedModification> = Vec::new();
    for attempt in attempts.iter().rev() {
        let Some(diagnosis) = &attempt.diagnosis else { continue };
        // Prompts repeat most advice word for word.
        if asked.contains(diagnosis.modification.as_str()) {
            continue;
        }
        let words = Words::of(&diagnosis.modification);
        if asked.iter().any(|text| words.describe(text)) || untried.iter().any(|other| words.describe(&other.text)) {
            continue;
        }
        untried.push(UntriedModification {
            text: shortened(&diagnosis.modification, MAX_CHANGE_CHARS),
            attempt: attempt.number,
            expected_gain: diagnosis.expected_gain,
            may_be_made_by: may_have_made(run, attempt.number),
        });
        if untried.len() == MAX_UNTRIED {
            break;
        }
    }
    untried
}

/// The first attempt since then that was asked for no change by name, only for a method or for one of its author's own: it may have
/// made what was advised on `adviser`.
fn may_have_made(run: &RunState, adviser: u32) -> Option<u32> {
    let began_after = |attempt: &Attempt| {
        let beside = attempt.candidate.map_or(0, |candidate| candidate.number.saturating_sub(1));
        attempt.number.saturating_sub(beside) > adviser
    };
    let is_free = |attempt: &Attempt| attempt.stage == Stage::Optimize && attempt.modification.is_none();
    let made = run.attempts().find(|attempt| is_free(attempt) && attempt.source.is_some() && began_after(attempt))?;
    Some(made.number)
}

/// The memory for a diagnosis of `attempt`: it may be the best program itself.
pub(super) fn for_diagnosis(run: &RunState, mut memory: AttemptMemory, attempt: &Attempt) -> AttemptMemory {
    let remembers = run.strategy().is_ok_and(Strategy::remembers);
    if remembers && run.best_attempt == Some(attempt.number) {
        memory.best = attempt.speedup().map(|speedup| PinnedBest { attempt: attempt.number, speedup });
    }
    memory
}

/// The fastest of those that a fresh process confirmed.
fn best(attempts: &[Shared<Attempt>]) -> Option<PinnedBest> {
    let confirmed = attempts.iter().filter(|attempt| attempt.outcome.is_correct());
    let rated = confirmed.filter_map(|attempt| Some((attempt, confirmed_estimate(attempt)?)));
    let (best, _) = rated.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(PinnedBest { attempt: best.number, speedup: best.speedup()? })
}

/// Failures by fingerprint: those that came most often first, of these the newest.
fn clusters(attempts: &[Shared<Attempt>]) -> Vec<ErrorCluster> {
    let mut clusters: Vec<ErrorCluster> = Vec::new();
    for attempt in attempts {
        let Some(message) = cause(attempt) else { continue };
        let fingerprint = fingerprint(attempt.outcome.as_str(), &message);
        let message = one_line(&message);
        match clusters.iter_mut().find(|cluster| cluster.fingerprint == fingerprint) {
            Some(cluster) => {
                cluster.message = message;
                cluster.attempts.push(attempt.number);
            }
            None => clusters.push(ErrorCluster {
                fingerprint,
                outcome: attempt.outcome,
                message,
                attempts: vec![attempt.number],
            }),
        }
    }
    clusters.sort_by_key(|cluster| std::cmp::Reverse((cluster.attempts.len(), cluster.attempts.last().copied())));
    clusters
}

/// A short hash of an error in which numbers, case and the number of blanks do not count.
fn fingerprint(outcome: &str, message: &str) -> String {
    let mut normal = String::with_capacity(message.len());
    for c in message.chars().flat_map(char::to_lowercase) {
        let plain = match c {
            c if c.is_numeric() => '#',
            c if c.is_whitespace() => ' ',
            c => c,
        };
        if !matches!(plain, '#' | ' ') || !normal.ends_with(plain) {
            normal.push(plain);
        }
    }
    let hash = blake3::hash(format!("{outcome}\n{}", normal.trim()).as_bytes());
    hash.to_hex().chars().take(FINGERPRINT_CHARS).collect()
}

/// The entries that fit, from the front, and how many do not.
fn bounded<T>(entries: Vec<T>, room_tokens: usize, text: impl Fn(&T) -> &String) -> (Vec<T>, u32) {
    let mut room = room_tokens;
    let all = entries.len();
    let mut kept = Vec::new();
    for entry in entries {
        let Some(left) = room.checked_sub(tokens(text(&entry))) else { break };
        room = left;
        kept.push(entry);
    }
    let left_out = u32::try_from(all - kept.len()).unwrap_or(u32::MAX);
    (kept, left_out)
}

fn tokens(text: &str) -> usize {
    text.chars().count().div_ceil(CHARS_PER_TOKEN) + ENTRY_TOKENS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_alone_are_the_same() {
        let first = fingerprint("incorrect", "shape odd, inputs declared: 12 of 4096 elements wrong");
        assert_eq!(first, fingerprint("incorrect", "shape odd,  inputs declared: 3 of 77 elements wrong"));
        assert_ne!(first, fingerprint("crashed", "shape odd, inputs declared: 12 of 4096 elements wrong"));
        assert_ne!(first, fingerprint("incorrect", "shape short, inputs declared: 12 of 4096 elements wrong"));
        assert_eq!(first.len(), FINGERPRINT_CHARS);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (kept, left_out) = bounded(vec!["x".repeat(400); 5], 2 * (100 + ENTRY_TOKENS) + 1, |entry| entry);
        assert_eq!((kept.len(), left_out), (2, 3));
    }
}
