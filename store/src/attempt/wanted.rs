//! A filter over the columns.

use nightshift_protocol::api::AttemptFilter;
use nightshift_protocol::attempt::{AttemptOutcome, Stage};
use nightshift_protocol::id::CampaignId;

use super::columns::{ABSENT, Columns, Run, Slot};
use super::labels::{Label, Labels};
use super::tagged::Tagged;

/// Maximum number of words of a filter's text.
const MAX_WORDS: usize = 16;
/// Minimum number of characters with which a word may match a part of an id.
const MIN_ID_CHARS: usize = 6;

/// Condition on a name.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Any,
    One(Label),
    /// A name that no attempt has.
    Nothing,
}

impl Choice {
    fn of(name: Option<&str>, labels: &Labels) -> Self {
        match name {
            None => Self::Any,
            Some(name) => labels.find(name).map_or(Self::Nothing, Self::One),
        }
    }

    fn fits(self, label: Option<Label>) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => label == Some(one),
            Self::Nothing => false,
        }
    }
}

/// A word, and the names that contain it.
struct Word {
    text: String,
    names: Vec<bool>,
    campaigns: Vec<bool>,
}

/// Mismatches of an attempt in the properties with counts by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Misses {
    pub(crate) outcome: bool,
    pub(crate) stage: bool,
    pub(crate) model: bool,
}

impl Misses {
    /// Returns whether everything matches.
    pub(crate) fn none(self) -> bool {
        self == Self::default()
    }
}

/// The filter with names resolved to numbers.
pub(crate) struct ResolvedFilter {
    campaign: Choice,
    run: Option<String>,
    task: Choice,
    model: Choice,
    strategy: Choice,
    device: Choice,
    outcomes: Vec<AttemptOutcome>,
    stages: Vec<Stage>,
    correct: Option<bool>,
    confirmed: Option<bool>,
    speedup: (i64, i64),
    over_fastest: (i64, i64),
    reward: (i64, i64),
    words: Vec<Word>,
    tagged: Option<Tagged>,
}

impl ResolvedFilter {
    /// Creates a filter with the attempts that have its tag.
    pub(crate) fn with_tag(filter: &AttemptFilter, tagged: Option<Tagged>, columns: &Columns) -> Self {
        Self { tagged, ..Self::new(filter, columns) }
    }

    /// Creates a filter without a tag.
    pub(crate) fn new(filter: &AttemptFilter, columns: &Columns) -> Self {
        let words = filter.text.as_deref().unwrap_or_default().split_whitespace().take(MAX_WORDS);
        Self {
            campaign: Choice::of(filter.campaign.as_ref().map(CampaignId::as_str), &columns.campaigns),
            run: filter.run.as_ref().map(ToString::to_string),
            task: Choice::of(filter.task.as_deref(), &columns.names),
            model: Choice::of(filter.model.as_deref(), &columns.names),
            strategy: Choice::of(filter.strategy.as_deref(), &columns.names),
            device: Choice::of(filter.device.as_deref(), &columns.names),
            outcomes: filter.outcomes.clone(),
            stages: filter.stages.clone(),
            correct: filter.correct,
            confirmed: filter.confirmed,
            speedup: range(filter.min_speedup, filter.max_speedup),
            over_fastest: range(filter.min_speedup_over_fastest, filter.max_speedup_over_fastest),
            reward: range(filter.min_reward, filter.max_reward),
            words: words.map(|word| Word::new(word, columns)).collect(),
            // Until the tag is looked up, no attempt matches.
            tagged: filter.tag.as_ref().map(|_| Tagged::default()),
        }
    }

    /// Calls `each` for every attempt that matches, ignoring the properties with counts by value. Oldest run first.
    pub(crate) fn scan<'c>(&self, columns: &'c Columns, mut each: impl FnMut(i64, &'c Run, &'c Slot, Misses)) {
        for (run_id, run) in &columns.runs {
            self.scan_run(*run_id, run, &mut each);
        }
    }

    /// Like `scan`, newest run first.
    pub(crate) fn scan_back<'c>(&self, columns: &'c Columns, mut each: impl FnMut(i64, &'c Run, &'c Slot, Misses)) {
        for (run_id, run) in columns.runs.iter().rev() {
            self.scan_run(*run_id, run, &mut each);
        }
    }

    fn scan_run<'c>(&self, run_id: i64, run: &'c Run, each: &mut impl FnMut(i64, &'c Run, &'c Slot, Misses)) {
        if !self.fits_run(run) {
            return;
        }
        // The attempts must contain the words that the run does not contain.
        let open: Vec<&Word> = self.words.iter().filter(|word| !word.is_in_run(run)).collect();
        for slot in &run.attempts {
            if self.fits(slot)
                && self.tagged.as_ref().is_none_or(|tagged| tagged.has(run, slot))
                && open.iter().all(|word| word.is_in(slot))
            {
                each(run_id, run, slot, self.misses(slot));
            }
        }
    }

    fn fits_run(&self, run: &Run) -> bool {
        self.campaign.fits(Some(run.campaign))
            && self.task.fits(Some(run.task))
            && self.strategy.fits(Some(run.strategy))
            && self.run.as_deref().is_none_or(|id| *run.id == *id)
            && self.tagged.as_ref().is_none_or(|tagged| tagged.is_in(run))
    }

    fn fits(&self, slot: &Slot) -> bool {
        self.device.fits(slot.device)
            && self.correct.is_none_or(|correct| slot.outcome.is_correct() == correct)
            && self.confirmed.is_none_or(|confirmed| slot.is_confirmed == confirmed)
            && is_within(slot.speedup_ppm, self.speedup)
            && is_within(slot.over_fastest_ppm, self.over_fastest)
            && is_within(slot.reward_ppm, self.reward)
    }

    fn misses(&self, slot: &Slot) -> Misses {
        Misses {
            outcome: !self.outcomes.is_empty() && !self.outcomes.contains(&slot.outcome),
            stage: !self.stages.is_empty() && !self.stages.contains(&slot.stage),
            model: !self.model.fits(Some(slot.model)),
        }
    }
}

impl Word {
    fn new(word: &str, columns: &Columns) -> Self {
        let text = word.to_lowercase();
        let names = columns.names.which(|name| name.to_lowercase().contains(&text));
        let campaigns = columns.campaigns.which(|id| is_part_of_id(&text, id));
        Self { text, names, campaigns }
    }

    fn is_in_run(&self, run: &Run) -> bool {
        has(&self.names, run.task)
            || has(&self.names, run.strategy)
            || has(&self.campaigns, run.campaign)
            || is_part_of_id(&self.text, &run.id)
    }

    fn is_in(&self, slot: &Slot) -> bool {
        has(&self.names, slot.model) || slot.device.is_some_and(|device| has(&self.names, device))
    }
}

fn has(which: &[bool], label: Label) -> bool {
    usize::try_from(label).ok().and_then(|place| which.get(place)).copied().unwrap_or(false)
}

/// Returns whether the id or its digits begin with the text, or the id ends with it.
fn is_part_of_id(text: &str, id: &str) -> bool {
    text.len() >= MIN_ID_CHARS
        && (id.starts_with(text)
            || id.ends_with(text)
            || id.split_once('_').is_some_and(|(_, digits)| digits.starts_with(text)))
}

/// A missing value is below every bound.
fn is_within(ppm: i64, (least, most): (i64, i64)) -> bool {
    (least..=most).contains(&ppm)
}

/// Returns the bounds in millionths. Any bound excludes missing values.
fn range(least: Option<f64>, most: Option<f64>) -> (i64, i64) {
    if least.is_none() && most.is_none() {
        return (ABSENT, i64::MAX);
    }
    (least.map_or(ABSENT + 1, in_ppm), most.map_or(i64::MAX, in_ppm))
}

/// Converts to millionths, as stored.
#[expect(clippy::cast_possible_truncation, reason = "a cast saturates; what is that large is no speedup")]
pub(crate) fn in_ppm(number: f64) -> i64 {
    ((number * 1e6).round() as i64).max(ABSENT + 1)
}
