//! Chooses the one change that an attempt is asked for. A change that is known not to help needs a reason.

use std::borrow::Cow;

use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Diagnosis, Stage};
use nightshift_protocol::attempt_memory::{Modification, TriedModification};

use super::attempt::confirmed_estimate;
use super::rules;
use super::shared::Shared;
use super::state::RunState;

/// Share of words that two descriptions of the same change have in common.
const SAME_WORDS: f64 = 0.8;

/// Whether two texts describe the same change: by their words, whatever their order, case and punctuation.
#[must_use]
pub fn same_modification(one: &str, other: &str) -> bool {
    one == other || Words::of(one).describe(other)
}

/// The different words of a description in lower case, sorted.
pub(super) struct Words<'t>(Vec<Cow<'t, str>>);

impl<'t> Words<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let mut words: Vec<Cow<'t, str>> = words(text).collect();
        words.sort_unstable();
        words.dedup();
        Self(words)
    }

    /// Whether a text describes the same change. Most texts are other ones after a few words.
    pub(super) fn describe(&self, text: &str) -> bool {
        let mut common = vec![false; self.0.len()];
        let mut others: Vec<Cow<'_, str>> = Vec::new();
        for word in words(text) {
            if let Some(is_common) = self.0.binary_search(&word).ok().and_then(|place| common.get_mut(place)) {
                *is_common = true;
            } else if !others.contains(&word) {
                others.push(word);
                if !is_same_share(self.0.len(), self.0.len() + others.len()) {
                    return false;
                }
            }
        }
        let count = common.into_iter().filter(|is_common| *is_common).count();
        is_same_share(count, self.0.len() + others.len())
    }
}

fn words(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let between = |c: char| !c.is_alphanumeric() && c != '_';
    text.split(between).filter(|word| !word.is_empty()).map(|word| {
        let may_change = word.chars().any(|c| !c.is_ascii() || c.is_ascii_uppercase());
        if may_change { Cow::Owned(word.to_lowercase()) } else { Cow::Borrowed(word) }
    })
}

/// Whether so many common words of all words make two descriptions the same.
fn is_same_share(common: usize, all: usize) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "texts have fewer than 2^52 words")]
    let share = common as f64 / all as f64;
    all == 0 || share >= SAME_WORDS
}

/// Every change that was asked for, oldest first, with what became of it. A repair goes on with the change of the attempt
/// that it repairs, so that the last of them has the last word.
pub(super) fn tried(run: &RunState, attempts: &[Shared<Attempt>]) -> Vec<TriedModification> {
    let (rules, min_gain) = (run.input.rules, run.limits().min_gain);
    let mut all: Vec<TriedModification> = Vec::new();
    let mut best: Option<f64> = None;
    for attempt in attempts {
        let confirmed = confirmed_estimate(attempt).filter(|_| attempt.outcome.is_correct());
        let made_best = rules::keeps_small_gains(rules) && confirmed.is_some() && confirmed > best;
        best = if confirmed > best { confirmed } else { best };
        let Some(modification) = &attempt.modification else { continue };
        let now = TriedModification {
            text: modification.text.clone(),
            attempt: attempt.number,
            outcome: attempt.outcome,
            expected: modification.expected_gain,
            measured: attempt.gain.map(|gain| gain.measured),
            failed: !made_best && is_failure(attempt, min_gain),
        };
        let repaired = match (attempt.stage, attempt.parent) {
            (Stage::Draft | Stage::Optimize, _) | (_, None) => None,
            (_, Some(parent)) => all.iter_mut().find(|earlier| earlier.attempt == parent),
        };
        match repaired {
            Some(earlier) => *earlier = now,
            None => all.push(now),
        }
    }
    all
}

/// Known not to help: what is still in the works is not known yet, what gave no program was not tried, and what could not
/// be compared is not known either.
fn is_failure(attempt: &Attempt, min_gain: f64) -> bool {
    match attempt.outcome {
        AttemptOutcome::Pending | AttemptOutcome::NoCode => false,
        outcome if !outcome.is_correct() => true,
        _ => attempt.gain.is_some_and(|gain| gain.measured < 1.0 + min_gain),
    }
}

/// What an attempt that starts from `parent` is asked for: what the Verifier advised on the parent, or, when that failed
/// already, on the newest attempt. Neither when both are known not to help, or are made by one of `beside`, which begin at
/// the same time: the author then chooses, and its prompt lists the failed changes.
pub(super) fn choose(
    run: &RunState,
    parent: &Attempt,
    newest: &Attempt,
    beside: &[Modification],
) -> Option<Modification> {
    let tried = tried(run, &run.attempts);
    let mut advisers = vec![parent];
    if newest.number != parent.number && same_scope(parent, newest) {
        advisers.push(newest);
    }
    advisers.into_iter().find_map(|adviser| {
        let asked = asked(adviser.diagnosis.as_ref()?, parent, adviser, &tried);
        let is_new = asked.repeats.is_none() || asked.because.is_some();
        let is_taken = beside.iter().any(|other| same_modification(&other.text, &asked.text));
        (is_new && !is_taken).then_some(asked)
    })
}

/// What the diagnosis of `parent` asks for, also when it failed before: for strategies without a memory, which cannot
/// know better. The request still says that it is a repetition.
pub(super) fn choose_again(run: &RunState, parent: &Attempt, because: &str) -> Option<Modification> {
    let tried = tried(run, &run.attempts);
    let mut asked = asked(parent.diagnosis.as_ref()?, parent, parent, &tried);
    if asked.repeats.is_some() && asked.because.is_none() {
        asked.because = Some(because.to_owned());
    }
    Some(asked)
}

fn asked(diagnosis: &Diagnosis, parent: &Attempt, adviser: &Attempt, tried: &[TriedModification]) -> Modification {
    let wanted = Words::of(&diagnosis.modification);
    let is_same = |earlier: &&TriedModification| {
        earlier.failed && (earlier.text == diagnosis.modification || wanted.describe(&earlier.text))
    };
    let failed = tried.iter().rev().find(is_same);
    Modification {
        text: diagnosis.modification.clone(),
        from: parent.number,
        diagnosed_on: adviser.number,
        // What is expected over another attempt says nothing about this one.
        expected_gain: diagnosis.expected_gain.filter(|_| adviser.number == parent.number),
        repeats: failed.map(|earlier| earlier.attempt),
        because: failed.and_then(|_| diagnosis.repeat_reason.clone()),
    }
}

fn same_scope(one: &Attempt, other: &Attempt) -> bool {
    (one.plan_version, one.subtask) == (other.plan_version, other.subtask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_change_in_another_order_and_case_is_the_same() {
        let change = "Stage tiles of 64 by 64 of `w` in shared memory, two buffers deep";
        assert!(same_modification(change, "stage tiles of 64 by 64 of w in shared memory, two buffers deep."));
        assert!(same_modification("a b c d e f g h i j", "j i h g f e d c b"));
        assert!(same_modification("", " - "));
        assert!(same_modification("b b a c d e", "A B C D E"));
    }

    #[test]
    fn another_number_or_another_remedy_is_another_change() {
        assert!(!same_modification("modification 1", "modification 2"));
        assert!(!same_modification("unroll the loop four times", "vectorize the loop with loads of 16 bytes"));
    }
}
