//! Full-text search over sources, replies, diagnoses, errors and findings.

use serde::{Deserialize, Serialize};

use super::attempt_filter::{InvalidQuery, limit, list, parse_id, text};
use crate::id::{CampaignId, RunId};
use crate::time::TimestampMs;

/// Texts beyond these are not counted: there are more.
pub const MAX_COUNTED_HITS: u64 = 1_000;

/// Longest text that is searched for, in characters.
pub const MAX_SEARCH_TEXT_CHARS: usize = 200;

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SearchKind {
    /// The source of a candidate.
    Source,
    /// What a model replied.
    Reply,
    /// A diagnosis, or advice on a failure.
    Diagnosis,
    /// What the compiler said, or how the program ended.
    Error,
    /// Observations about compliance.
    Finding,
}

impl SearchKind {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Source, Self::Reply, Self::Diagnosis, Self::Error, Self::Finding];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Reply => "reply",
            Self::Diagnosis => "diagnosis",
            Self::Error => "error",
            Self::Finding => "finding",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The query of `GET /search`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchQuery {
    /// What is looked for: texts with all of the words. Words in quotation marks follow each other; a word that ends with
    /// `*` stands for every word that begins so.
    pub text: String,
    /// Only texts of these kinds; of any when empty.
    pub kinds: Vec<SearchKind>,
    /// Only texts of this campaign.
    pub campaign: Option<CampaignId>,
    /// Only texts of this run.
    pub run: Option<RunId>,
    /// Only texts of the task of this name.
    pub task: Option<String>,
    /// Hits of the page; the server's own number without it.
    pub limit: Option<u32>,
    /// The `next` of the page before.
    pub before: Option<String>,
}

const NAMES: [&str; 7] = ["q", "kind", "campaign", "run", "task", "limit", "before"];

impl SearchQuery {
    /// Reads the pairs of a query.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidQuery> {
        let mut query = Self::default();
        for (name, value) in pairs {
            let (name, value) = (name.as_ref(), value.as_ref());
            match name {
                _ if value.is_empty() && NAMES.contains(&name) => {}
                "q" => value.clone_into(&mut query.text),
                "kind" => query.kinds = list(name, value, &SearchKind::ALL.map(SearchKind::as_str), SearchKind::parse)?,
                "campaign" => query.campaign = Some(parse_id(name, value)?),
                "run" => query.run = Some(parse_id(name, value)?),
                "task" => query.task = Some(text(name, value)?),
                "limit" => query.limit = Some(limit(name, value)?),
                "before" => query.before = Some(value.to_owned()),
                _ => return Err(InvalidQuery::unknown(name, &NAMES)),
            }
        }
        if !query.text.chars().any(char::is_alphanumeric) {
            return Err(InvalidQuery::new("q", "it needs a word to look for"));
        }
        if query.text.chars().nth(MAX_SEARCH_TEXT_CHARS).is_some() {
            return Err(InvalidQuery::new("q", format!("it may have {MAX_SEARCH_TEXT_CHARS} characters at most")));
        }
        Ok(query)
    }

    /// The pairs of its query.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![("q", self.text.clone())];
        if !self.kinds.is_empty() {
            let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.as_str()).collect();
            pairs.push(("kind", kinds.join(",")));
        }
        pairs.extend(self.campaign.as_ref().map(|campaign| ("campaign", campaign.to_string())));
        pairs.extend(self.run.as_ref().map(|run| ("run", run.to_string())));
        pairs.extend(self.task.clone().map(|task| ("task", task)));
        pairs.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        pairs.extend(self.before.clone().map(|before| ("before", before)));
        pairs
    }
}

/// A text in which something was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SearchHit {
    /// What it is.
    pub kind: SearchKind,
    /// Its run.
    pub run: RunId,
    /// The run's campaign.
    pub campaign: CampaignId,
    /// Name of the task.
    pub task: String,
    /// The attempt; none for a text of the run as a whole.
    pub attempt: Option<u32>,
    /// When the text came into being.
    pub at: TimestampMs,
    /// Line of the first place, from 1.
    pub line: u32,
    /// The lines around it.
    pub excerpt: String,
    /// Where the words are in the excerpt: offsets of bytes of its UTF-8 form, begin and end, in their order.
    pub matches: Vec<(u32, u32)>,
}

/// Answer to `GET /search`: what came last first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SearchPage {
    /// Hits.
    pub items: Vec<SearchHit>,
    /// Cursor of the following page; none at the end.
    pub next: Option<String>,
    /// Texts in which something is found, on all pages; [`MAX_COUNTED_HITS`] stands for that many or more.
    #[serde(default)]
    pub total: u64,
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_search_survives_the_way_through_an_address() {
        let pairs = [
            ("q", "\"bank conflict\" cp_async*"),
            ("kind", "source,error"),
            ("run", "run_0123456789abcdef0123456789abcdef"),
            ("task", "softmax"),
            ("limit", "5"),
            ("before", "17"),
        ];
        let query = SearchQuery::from_pairs(pairs).unwrap();
        assert_eq!(query.kinds, [SearchKind::Source, SearchKind::Error]);
        assert_eq!(SearchQuery::from_pairs(query.to_pairs()).unwrap(), query);
    }

    #[test]
    fn a_search_without_a_word_is_refused() {
        for text in ["", "  ", "->*"] {
            assert_eq!(SearchQuery::from_pairs([("q", text)]).unwrap_err().name, "q");
        }
        let long = "x".repeat(MAX_SEARCH_TEXT_CHARS + 1);
        assert!(SearchQuery::from_pairs([("q", long.as_str())]).is_err());
        assert!(SearchQuery::from_pairs([("q", "x"), ("kind", "note")]).unwrap_err().reason.contains("diagnosis"));
    }
}
