//! Which attempts are wanted and in which order, as the query of an address says it: the same words for the server, the
//! client, and the addresses of pages.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::MAX_PAGE_ROWS;
use crate::attempt::Stage;
use crate::attempt_outcome::AttemptOutcome;
use crate::id::{CampaignId, RunId};

/// Longest text of a filter, in characters.
pub const MAX_FILTER_TEXT_CHARS: usize = 200;

/// A query that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}`: {reason}")]
pub struct InvalidQuery {
    /// The name in the query.
    pub name: String,
    /// What is wrong and what is allowed.
    pub reason: String,
}

impl InvalidQuery {
    pub(super) fn new(name: &str, reason: impl Into<String>) -> Self {
        Self { name: name.to_owned(), reason: reason.into() }
    }

    pub(super) fn one_of(name: &str, text: &str, words: &[&str]) -> Self {
        Self::new(name, format!("`{text}` is not known: expected one of {}", words.join(", ")))
    }

    pub(super) fn unknown(name: &str, words: &[&str]) -> Self {
        Self::new(name, format!("there is no such filter: expected one of {}", words.join(", ")))
    }
}

/// Which attempts are wanted: those that fit everything that is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptFilter {
    /// Of this campaign.
    pub campaign: Option<CampaignId>,
    /// Of this run.
    pub run: Option<RunId>,
    /// Of the task of this name.
    pub task: Option<String>,
    /// Written by this model: `scripted`, or `endpoint/model`.
    pub model: Option<String>,
    /// Of runs of this strategy.
    pub strategy: Option<String>,
    /// Timed on this device.
    pub device: Option<String>,
    /// With one of these outcomes; any when empty.
    pub outcomes: Vec<AttemptOutcome>,
    /// Of one of these stages; any when empty.
    pub stages: Vec<Stage>,
    /// Whether they gave right results.
    pub correct: Option<bool>,
    /// Whether their speedup was confirmed in a fresh process.
    pub confirmed: Option<bool>,
    /// With at least this speedup over the reference.
    pub min_speedup: Option<f64>,
    /// With at most this speedup over the reference.
    pub max_speedup: Option<f64>,
    /// With at least this speedup over the fastest baseline.
    #[serde(default)]
    pub min_speedup_over_fastest: Option<f64>,
    /// With at most this speedup over the fastest baseline.
    #[serde(default)]
    pub max_speedup_over_fastest: Option<f64>,
    /// With at least this reward.
    pub min_reward: Option<f64>,
    /// With at most this reward.
    pub max_reward: Option<f64>,
    /// With this tag of the team.
    pub tag: Option<String>,
    /// Words, each of which the name of task, model, strategy or device contains, or with which the id of run or campaign
    /// begins or ends.
    pub text: Option<String>,
}

/// The names of a filter in a query.
const FILTER_NAMES: [&str; 18] = [
    "campaign",
    "run",
    "task",
    "model",
    "strategy",
    "device",
    "outcome",
    "stage",
    "correct",
    "confirmed",
    "min_speedup",
    "max_speedup",
    "min_speedup_over_fastest",
    "max_speedup_over_fastest",
    "min_reward",
    "max_reward",
    "tag",
    "q",
];

impl AttemptFilter {
    /// Takes a pair of a query; whether it is one of a filter.
    pub(super) fn take(&mut self, name: &str, value: &str) -> Result<bool, InvalidQuery> {
        // What a form leaves empty is not asked for.
        if value.is_empty() {
            return Ok(FILTER_NAMES.contains(&name));
        }
        match name {
            "campaign" => self.campaign = Some(parse_id(name, value)?),
            "run" => self.run = Some(parse_id(name, value)?),
            "task" => self.task = Some(text(name, value)?),
            "model" => self.model = Some(text(name, value)?),
            "strategy" => self.strategy = Some(text(name, value)?),
            "device" => self.device = Some(text(name, value)?),
            "outcome" => {
                let words = AttemptOutcome::ALL.map(AttemptOutcome::as_str);
                self.outcomes = list(name, value, &words, AttemptOutcome::parse)?;
            }
            "stage" => self.stages = list(name, value, &Stage::ALL.map(Stage::as_str), Stage::parse)?,
            "correct" => self.correct = Some(truth(name, value)?),
            "confirmed" => self.confirmed = Some(truth(name, value)?),
            "min_speedup" => self.min_speedup = Some(number(name, value)?),
            "max_speedup" => self.max_speedup = Some(number(name, value)?),
            "min_speedup_over_fastest" => self.min_speedup_over_fastest = Some(number(name, value)?),
            "max_speedup_over_fastest" => self.max_speedup_over_fastest = Some(number(name, value)?),
            "min_reward" => self.min_reward = Some(number(name, value)?),
            "max_reward" => self.max_reward = Some(number(name, value)?),
            "tag" => self.tag = Some(text(name, value)?),
            "q" => self.text = Some(text(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The filter of a query that says nothing else.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidQuery> {
        let mut filter = Self::default();
        for (name, value) in pairs {
            if !filter.take(name.as_ref(), value.as_ref())? {
                return Err(InvalidQuery::unknown(name.as_ref(), &FILTER_NAMES));
            }
        }
        Ok(filter)
    }

    /// The pairs of its query, in a fixed order: equal filters have equal addresses.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let joined = |words: Vec<&str>| (!words.is_empty()).then(|| words.join(","));
        let number = |number: Option<f64>| number.map(|number| number.to_string());
        let values: [Option<String>; 18] = [
            self.campaign.as_ref().map(ToString::to_string),
            self.run.as_ref().map(ToString::to_string),
            self.task.clone(),
            self.model.clone(),
            self.strategy.clone(),
            self.device.clone(),
            joined(self.outcomes.iter().map(|outcome| outcome.as_str()).collect()),
            joined(self.stages.iter().map(|stage| stage.as_str()).collect()),
            self.correct.map(|truth| truth.to_string()),
            self.confirmed.map(|truth| truth.to_string()),
            number(self.min_speedup),
            number(self.max_speedup),
            number(self.min_speedup_over_fastest),
            number(self.max_speedup_over_fastest),
            number(self.min_reward),
            number(self.max_reward),
            self.tag.clone(),
            self.text.clone(),
        ];
        FILTER_NAMES.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// What attempts are sorted by. Those that have nothing of the kind come last in either order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AttemptSort {
    /// When they began.
    #[default]
    Created,
    /// When they were finished.
    Finished,
    /// Their speedup.
    Speedup,
    /// Their speedup over the fastest baseline.
    SpeedupOverFastest,
    /// Their reward.
    Reward,
    /// What their model calls cost.
    Cost,
    /// The tokens of their model calls.
    Tokens,
}

impl AttemptSort {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Finished,
        Self::Speedup,
        Self::SpeedupOverFastest,
        Self::Reward,
        Self::Cost,
        Self::Tokens,
    ];

    /// The name in a query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Finished => "finished",
            Self::Speedup => "speedup",
            Self::SpeedupOverFastest => "speedup_over_fastest",
            Self::Reward => "reward",
            Self::Cost => "cost",
            Self::Tokens => "tokens",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.as_str() == text)
    }
}

/// Which end comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SortOrder {
    /// The smallest, or oldest.
    Asc,
    /// The largest, or newest.
    #[default]
    Desc,
}

impl SortOrder {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Asc, Self::Desc];

    /// The name in a query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asc => "asc",
            Self::Desc => "desc",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.as_str() == text)
    }
}

/// The query of `GET /attempts`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AttemptQuery {
    /// Which.
    pub filter: AttemptFilter,
    /// By what they are sorted.
    pub sort: AttemptSort,
    /// Which end comes first.
    pub order: SortOrder,
    /// Rows of the page, 1 to [`MAX_PAGE_ROWS`]; the server's own number without it.
    pub limit: Option<u32>,
    /// The `next` of the page before, with the same filter, sort and order.
    pub before: Option<String>,
    /// Whether the counts by outcome, stage and model are wanted.
    pub facets: bool,
}

/// The names of a list's own in a query.
const LIST_NAMES: [&str; 5] = ["sort", "order", "limit", "before", "facets"];

impl AttemptQuery {
    /// Reads the pairs of a query.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidQuery> {
        let mut query = Self::default();
        for (name, value) in pairs {
            let (name, value) = (name.as_ref(), value.as_ref());
            if query.filter.take(name, value)? || (value.is_empty() && LIST_NAMES.contains(&name)) {
                continue;
            }
            match name {
                "sort" => {
                    let words = AttemptSort::ALL.map(AttemptSort::as_str);
                    query.sort = AttemptSort::parse(value).ok_or_else(|| InvalidQuery::one_of(name, value, &words))?;
                }
                "order" => {
                    let words = SortOrder::ALL.map(SortOrder::as_str);
                    query.order = SortOrder::parse(value).ok_or_else(|| InvalidQuery::one_of(name, value, &words))?;
                }
                "limit" => query.limit = Some(limit(name, value)?),
                "before" => query.before = Some(value.to_owned()),
                "facets" => query.facets = truth(name, value)?,
                _ => return Err(InvalidQuery::unknown(name, &[&FILTER_NAMES[..], &LIST_NAMES[..]].concat())),
            }
        }
        Ok(query)
    }

    /// The pairs of its query, in a fixed order; what is as it is without saying is left out.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = self.filter.to_pairs();
        if self.sort != AttemptSort::default() {
            pairs.push(("sort", self.sort.as_str().to_owned()));
        }
        if self.order != SortOrder::default() {
            pairs.push(("order", self.order.as_str().to_owned()));
        }
        pairs.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        pairs.extend(self.before.clone().map(|before| ("before", before)));
        if self.facets {
            pairs.push(("facets", true.to_string()));
        }
        pairs
    }
}

pub(super) fn parse_id<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, InvalidQuery>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error: T::Err| InvalidQuery::new(name, error.to_string()))
}

pub(super) fn text(name: &str, value: &str) -> Result<String, InvalidQuery> {
    if value.chars().nth(MAX_FILTER_TEXT_CHARS).is_some() {
        return Err(InvalidQuery::new(name, format!("it may have {MAX_FILTER_TEXT_CHARS} characters at most")));
    }
    Ok(value.to_owned())
}

pub(super) fn list<T: Copy + PartialEq>(
    name: &str,
    value: &str,
    words: &[&str],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, InvalidQuery> {
    let mut found: Vec<T> = Vec::new();
    for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let one = parse(word).ok_or_else(|| InvalidQuery::one_of(name, word, words))?;
        if !found.contains(&one) {
            found.push(one);
        }
    }
    Ok(found)
}

fn truth(name: &str, value: &str) -> Result<bool, InvalidQuery> {
    value.parse().map_err(|_| InvalidQuery::one_of(name, value, &["true", "false"]))
}

fn number(name: &str, value: &str) -> Result<f64, InvalidQuery> {
    let parsed: Option<f64> = value.parse().ok();
    parsed.filter(|number| number.is_finite()).ok_or_else(|| InvalidQuery::new(name, format!("`{value}` is no number")))
}

pub(super) fn limit(name: &str, value: &str) -> Result<u32, InvalidQuery> {
    let parsed: Option<u32> = value.parse().ok();
    parsed.filter(|limit| (1..=MAX_PAGE_ROWS).contains(limit)).ok_or_else(|| {
        let mut reason = String::new();
        let _ = write!(reason, "`{value}` must be a number from 1 to {MAX_PAGE_ROWS}");
        InvalidQuery::new(name, reason)
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn full() -> AttemptQuery {
        AttemptQuery::from_pairs([
            ("campaign", "cmp_0123456789abcdef0123456789abcdef"),
            ("run", "run_0123456789abcdef0123456789abcdef"),
            ("task", "row_softmax"),
            ("model", "lab/a b&c"),
            ("strategy", "beam"),
            ("device", "NVIDIA H200"),
            ("outcome", "crashed,correct_faster"),
            ("stage", "draft"),
            ("correct", "true"),
            ("confirmed", "false"),
            ("min_speedup", "1.25"),
            ("max_speedup", "4"),
            ("min_speedup_over_fastest", "0.75"),
            ("max_speedup_over_fastest", "3"),
            ("min_reward", "-0.5"),
            ("max_reward", "2"),
            ("q", "soft h200"),
            ("sort", "reward"),
            ("order", "asc"),
            ("limit", "7"),
            ("before", "x"),
            ("facets", "true"),
        ])
        .unwrap()
    }

    #[test]
    fn a_query_survives_the_way_through_an_address() {
        let query = full();
        assert_eq!(query.filter.outcomes, [AttemptOutcome::Crashed, AttemptOutcome::CorrectFaster]);
        assert_eq!(query.to_pairs().len(), 22, "nothing is left out");
        assert_eq!(AttemptQuery::from_pairs(query.to_pairs()).unwrap(), query);
        assert_eq!(AttemptFilter::from_pairs(query.filter.to_pairs()).unwrap(), query.filter);
        assert_eq!(AttemptQuery::default().to_pairs(), []);
    }

    #[test]
    fn a_word_that_is_not_known_is_refused_with_those_that_are() {
        for (name, value, said) in [
            ("outcome", "wrong", "expected one of pending, no_code"),
            ("stage", "draft,first", "`first` is not known: expected one of draft, repair_compile"),
            ("sort", "name", "created, finished, speedup, speedup_over_fastest, reward, cost, tokens"),
            ("order", "down", "asc, desc"),
            ("correct", "1", "true, false"),
            ("min_speedup", "NaN", "no number"),
            ("limit", "501", "from 1 to 500"),
            ("run", "run_1", "is not a run id"),
            ("colour", "red", "there is no such filter: expected one of campaign"),
        ] {
            let error = AttemptQuery::from_pairs([(name, value)]).unwrap_err();
            assert!(error.to_string().contains(said), "{name}={value}: {error}");
            assert_eq!(error.name, name);
        }
        let long = "x".repeat(MAX_FILTER_TEXT_CHARS + 1);
        assert!(AttemptQuery::from_pairs([("q", long.as_str())]).is_err());
    }

    #[test]
    fn what_a_form_leaves_empty_is_not_asked_for() {
        let empty = ["task", "outcome", "min_reward", "sort", "limit", "before", "facets"].map(|name| (name, ""));
        assert_eq!(AttemptQuery::from_pairs(empty).unwrap(), AttemptQuery::default());
    }
}
