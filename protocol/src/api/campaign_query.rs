//! Which campaigns are wanted and in which order, as the query of an address says it.

use serde::{Deserialize, Serialize};

use super::attempt_filter::{InvalidQuery, SortOrder, limit, text};
use super::attempt_list::Facet;
use super::campaign::CampaignSummary;
use super::run::RunCounts;

/// Where the runs of a campaign stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CampaignState {
    /// A run is not over.
    Unfinished,
    /// Every run is over.
    Finished,
    /// A run failed.
    Failed,
    /// A run is paused.
    Paused,
}

impl CampaignState {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Unfinished, Self::Finished, Self::Failed, Self::Paused];

    /// The name in a query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Paused => "paused",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether a campaign with such runs is in it. It may be in several.
    #[must_use]
    pub fn holds(self, runs: &RunCounts) -> bool {
        match self {
            Self::Unfinished => runs.unfinished() > 0,
            Self::Finished => runs.unfinished() == 0,
            Self::Failed => runs.failed > 0,
            Self::Paused => runs.paused > 0,
        }
    }
}

/// What campaigns are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CampaignSort {
    /// When they were created.
    #[default]
    Created,
    /// Their name.
    Name,
    /// Who writes the programs.
    Model,
    /// The share of their runs that are over.
    Progress,
    /// Runs that are not over.
    Running,
    /// Runs that failed.
    Failed,
    /// The speedup of their fastest right program.
    Speedup,
    /// The highest speedup of a best right program over the fastest baseline of its task.
    SpeedupOverFastest,
    /// What they have used up of money.
    Cost,
    /// How long they took, or have taken so far.
    Duration,
}

impl CampaignSort {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::Created,
        Self::Name,
        Self::Model,
        Self::Progress,
        Self::Running,
        Self::Failed,
        Self::Speedup,
        Self::SpeedupOverFastest,
        Self::Cost,
        Self::Duration,
    ];

    /// The name in a query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Name => "name",
            Self::Model => "model",
            Self::Progress => "progress",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Speedup => "speedup",
            Self::SpeedupOverFastest => "speedup_over_fastest",
            Self::Cost => "cost",
            Self::Duration => "duration",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.as_str() == text)
    }
}

/// The query of `GET /campaigns`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CampaignQuery {
    /// Of exactly this name.
    pub name: Option<String>,
    /// Words, each of which name or model contains, or with which the id begins or ends.
    pub text: Option<String>,
    /// Where their runs stand.
    pub state: Option<CampaignState>,
    /// By what they are sorted.
    pub sort: CampaignSort,
    /// Which end comes first.
    pub order: SortOrder,
    /// Rows of the page; the server's own number without it.
    pub limit: Option<u32>,
    /// The `next` of the page before, with the same filter, sort and order.
    pub before: Option<String>,
}

/// The names of the query.
const NAMES: [&str; 7] = ["name", "q", "status", "sort", "order", "limit", "before"];

impl CampaignQuery {
    /// Reads the pairs of a query. What a form leaves empty is not asked for.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidQuery> {
        let mut query = Self::default();
        for (name, value) in pairs {
            let (name, value) = (name.as_ref(), value.as_ref());
            // An empty `before` is a mistake of the client.
            if value.is_empty() && NAMES.contains(&name) && name != "before" {
                continue;
            }
            match name {
                "name" => query.name = Some(text(name, value)?),
                "q" => query.text = Some(text(name, value)?),
                "status" => {
                    let words = CampaignState::ALL.map(CampaignState::as_str);
                    let state = CampaignState::parse(value);
                    query.state = Some(state.ok_or_else(|| InvalidQuery::one_of(name, value, &words))?);
                }
                "sort" => {
                    let words = CampaignSort::ALL.map(CampaignSort::as_str);
                    query.sort = CampaignSort::parse(value).ok_or_else(|| InvalidQuery::one_of(name, value, &words))?;
                }
                "order" => {
                    let words = SortOrder::ALL.map(SortOrder::as_str);
                    query.order = SortOrder::parse(value).ok_or_else(|| InvalidQuery::one_of(name, value, &words))?;
                }
                "limit" => query.limit = Some(limit(name, value)?),
                "before" => query.before = Some(value.to_owned()),
                _ => return Err(InvalidQuery::unknown(name, &NAMES)),
            }
        }
        Ok(query)
    }

    /// The pairs of its query, in a fixed order; what is as it is without saying is left out.
    #[must_use]
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        pairs.extend(self.name.clone().map(|name| ("name", name)));
        pairs.extend(self.text.clone().map(|text| ("q", text)));
        pairs.extend(self.state.map(|state| ("status", state.as_str().to_owned())));
        if self.sort != CampaignSort::default() {
            pairs.push(("sort", self.sort.as_str().to_owned()));
        }
        if self.order != SortOrder::default() {
            pairs.push(("order", self.order.as_str().to_owned()));
        }
        pairs.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        pairs.extend(self.before.clone().map(|before| ("before", before)));
        pairs
    }
}

/// Answer to `GET /campaigns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CampaignPage {
    /// Campaigns.
    pub items: Vec<CampaignSummary>,
    /// Cursor of the following page; none at the end.
    pub next: Option<String>,
    /// All campaigns that fit the filter, counted, on whichever page they are.
    #[serde(default)]
    pub total: u64,
    /// How many campaigns there are by [`CampaignState`], counted as if the filter said nothing of it. One may be in several.
    #[serde(default)]
    pub by_status: Vec<Facet>,
    /// How many there are without a choice among them.
    #[serde(default)]
    pub any_status: u64,
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_query_survives_the_way_through_an_address() {
        let query = CampaignQuery::from_pairs([
            ("name", "night 1"),
            ("q", "lab soft"),
            ("status", "failed"),
            ("sort", "progress"),
            ("order", "asc"),
            ("limit", "7"),
            ("before", "x"),
        ])
        .unwrap();
        assert_eq!(query.to_pairs().len(), NAMES.len(), "nothing is left out");
        assert_eq!(CampaignQuery::from_pairs(query.to_pairs()).unwrap(), query);
        assert_eq!(CampaignQuery::default().to_pairs(), []);
        assert_eq!(CampaignQuery::from_pairs([("q", ""), ("status", "")]).unwrap(), CampaignQuery::default());
    }

    #[test]
    fn a_word_that_is_not_known_is_refused_with_those_that_are() {
        for (name, value, said) in [
            ("status", "open", "expected one of unfinished, finished, failed, paused"),
            ("sort", "luck", "expected one of created, name"),
            ("limit", "0", "from 1 to 500"),
            ("colour", "red", "expected one of name, q"),
        ] {
            let error = CampaignQuery::from_pairs([(name, value)]).unwrap_err();
            assert!(error.to_string().contains(said), "{name}={value}: {error}");
        }
    }
}
