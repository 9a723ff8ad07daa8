//! The list of campaigns: filtered, sorted and counted in memory, identically for both databases.
//!
//! Immutable data of a campaign (name, model, creation time) is read once and cached, about 200 bytes each. The status
//! of its runs is read before each answer. Only the campaigns of the page are read completely.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use nightshift_engine::store::{CampaignRecord, CampaignSum, WatchStore};
use nightshift_protocol::api::{
    CampaignPage, CampaignQuery, CampaignSort, CampaignState, CampaignSummary, Facet, MAX_PAGE_ROWS, RunCounts,
    SortOrder,
};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::CampaignBest;

use crate::attempt_index::Index;
use crate::campaign_facts::{CampaignFacts, Known, READ_AT_ONCE};
use crate::error::ApiFailure;
use crate::present::campaign_summary;
use crate::shared::Shared;

/// Minimum number of characters with which a word may match a part of an id.
const MIN_ID_CHARS: usize = 6;
/// Maximum number of words of a filter's text.
const MAX_WORDS: usize = 16;

/// Totals of a campaign.
#[derive(Debug, Default)]
struct Sums {
    /// End of its last run.
    last_ended_at: Option<TimestampMs>,
    booked_microusd: Option<u64>,
    best: Option<CampaignBest>,
}

impl Sums {
    /// Returns the cost. An imported campaign may lack a budget with the costs of its attempts.
    fn cost_microusd(&self) -> Option<u64> {
        self.booked_microusd.max(self.best.as_ref().map(|best| best.cost_microusd))
    }

    #[expect(clippy::cast_precision_loss, reason = "it is compared, and milliseconds of years are exact")]
    fn weight(&self, sort: CampaignSort, one: &Known, now: TimestampMs) -> Option<f64> {
        match sort {
            CampaignSort::Speedup => self.best.as_ref()?.speedup,
            CampaignSort::SpeedupOverFastest => self.best.as_ref()?.speedup_over_fastest,
            CampaignSort::Cost => self.cost_microusd().map(|cost| cost as f64),
            CampaignSort::Duration => {
                let end = self.last_ended_at.filter(|_| one.runs.unfinished() == 0).unwrap_or(now);
                Some(end.since_ms(one.facts.created_at) as f64)
            }
            _ => None,
        }
    }
}

/// Returns a page of the list.
async fn page(
    store: &dyn WatchStore,
    known: &[Known],
    query: &CampaignQuery,
    limit: u32,
) -> Result<CampaignPage, ApiFailure> {
    let found = find(known, query, usize::try_from(limit.min(MAX_PAGE_ROWS)).unwrap_or(usize::MAX))?;
    let records = store.campaigns_of(&found.ids).await?;
    let mut records: HashMap<&CampaignId, &CampaignRecord> =
        records.iter().map(|record| (&record.id, record)).collect();
    // A campaign that was deleted in the meantime is skipped.
    let records = found.ids.iter().filter_map(|id| records.remove(id));
    let items = records.map(campaign_summary).collect::<Result<Vec<_>, _>>()?;
    let Found { next, total, by_status, any_status, .. } = found;
    Ok(CampaignPage { items, next, total, by_status, any_status })
}

/// The state of the list of campaigns.
pub(crate) struct Campaigns {
    shared: Arc<Shared>,
    index: Arc<Index>,
    facts: CampaignFacts,
}

impl Campaigns {
    pub(crate) fn new(shared: Arc<Shared>, index: Arc<Index>) -> Self {
        Self { shared, index, facts: CampaignFacts::default() }
    }

    /// Returns a page of the list.
    pub(crate) async fn page(&self, query: &CampaignQuery, limit: u32) -> Result<CampaignPage, ApiFailure> {
        let watch = &*self.shared.store.watch;
        let mut known = self.facts.all(watch).await?;
        if needs_results(query.sort) {
            self.weigh(&mut known, query.sort).await?;
        }
        let mut page = self::page(watch, &known, query, limit).await?;
        self.add_sums(&mut page.items).await?;
        Ok(page)
    }

    async fn weigh(&self, known: &mut [Known], sort: CampaignSort) -> Result<(), ApiFailure> {
        let ids: Vec<CampaignId> = known.iter().map(|one| one.id.clone()).collect();
        let sums = self.sums(&ids).await?;
        let now = self.shared.clock.now();
        for one in known {
            one.weight = sums.get(&one.id).and_then(|sums| sums.weight(sort, one, now));
        }
        Ok(())
    }

    /// Returns the totals of these campaigns.
    async fn sums(&self, ids: &[CampaignId]) -> Result<HashMap<CampaignId, Sums>, ApiFailure> {
        let mut found: HashMap<CampaignId, Sums> = HashMap::with_capacity(ids.len());
        for some in ids.chunks(READ_AT_ONCE) {
            for CampaignSum { campaign, last_ended_at, cost_microusd } in
                self.shared.store.watch.campaign_sums(some).await?
            {
                let sums = found.entry(campaign).or_default();
                (sums.last_ended_at, sums.booked_microusd) = (last_ended_at, Some(cost_microusd));
            }
        }
        if self.index.indexer.is_some() {
            for best in self.index.current().await?.campaign_bests(ids).await? {
                let sums = found.entry(best.campaign.clone()).or_default();
                sums.best = Some(best);
            }
        }
        Ok(found)
    }

    /// Adds totals and hand-overs to these campaigns.
    pub(crate) async fn add_sums(&self, campaigns: &mut [CampaignSummary]) -> Result<(), ApiFailure> {
        for handover in self.shared.store.handovers.open_handovers(None).await? {
            let of_it = campaigns.iter_mut().find(|campaign| campaign.id == handover.campaign);
            if let Some(campaign) = of_it {
                campaign.handover = Some(handover.detail());
            }
        }
        let ids: Vec<CampaignId> = campaigns.iter().map(|campaign| campaign.id.clone()).collect();
        let mut sums = self.sums(&ids).await?;
        for campaign in campaigns.iter_mut() {
            let Some(sums) = sums.remove(&campaign.id) else { continue };
            campaign.ended_at = sums.last_ended_at.filter(|_| campaign.runs.unfinished() == 0);
            campaign.cost_usd = sums.cost_microusd().map(dollars);
            let Some(best) = sums.best else { continue };
            campaign.best_speedup = best.speedup;
            campaign.best_speedup_over_fastest = best.speedup_over_fastest;
            campaign.geometric_mean = best.geometric_mean;
            campaign.geometric_mean_over_fastest = best.geometric_mean_over_fastest;
            (campaign.solved, campaign.solved_over_fastest) = (best.solved, best.solved_over_fastest);
            campaign.unpriced_attempts = best.unpriced_attempts;
            campaign.targets = best.targets;
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a sum for people")]
fn dollars(microusd: u64) -> f64 {
    microusd as f64 / 1e6
}

#[derive(Debug, PartialEq)]
struct Found {
    ids: Vec<CampaignId>,
    next: Option<String>,
    total: u64,
    by_status: Vec<Facet>,
    any_status: u64,
}

fn find(all: &[Known], query: &CampaignQuery, limit: usize) -> Result<Found, ApiFailure> {
    let after = query.before.as_deref().map(|cursor| place_of(all, query, cursor)).transpose()?;
    let words: Vec<String> =
        query.text.as_deref().unwrap_or_default().split_whitespace().take(MAX_WORDS).map(str::to_lowercase).collect();
    let fits: Vec<&Known> = all
        .iter()
        .filter(|one| query.name.as_ref().is_none_or(|name| one.facts.name == *name))
        .filter(|one| words.iter().all(|word| one.facts.searched.contains(word) || is_part_of_id(word, &one.id)))
        .collect();
    let by_status = CampaignState::ALL.map(|state| Facet {
        value: state.as_str().to_owned(),
        count: number(fits.iter().filter(|one| state.holds(&one.runs)).count()),
    });
    let any_status = number(fits.len());
    let mut fits: Vec<&Known> =
        fits.into_iter().filter(|one| query.state.is_none_or(|state| state.holds(&one.runs))).collect();
    let total = number(fits.len());
    if let Some(after) = after {
        fits.retain(|one| compare(query, one, after) == Ordering::Greater);
    }
    fits.sort_unstable_by(|a, b| compare(query, a, b));
    let next = fits.get(limit).and_then(|_| fits.get(limit.checked_sub(1)?)).map(|last| cursor(query, last));
    let ids = fits.into_iter().take(limit).map(|one| one.id.clone()).collect();
    Ok(Found { ids, next, total, by_status: by_status.to_vec(), any_status })
}

/// Returns whether this order needs the results of every campaign.
fn needs_results(sort: CampaignSort) -> bool {
    matches!(
        sort,
        CampaignSort::Speedup | CampaignSort::SpeedupOverFastest | CampaignSort::Cost | CampaignSort::Duration
    )
}

fn compare(query: &CampaignQuery, a: &Known, b: &Known) -> Ordering {
    // Missing values come last.
    let weight = |one: &Known| one.weight.unwrap_or(f64::NEG_INFINITY);
    // Compares fractions without rounding: a / b < c / d if a * d < c * b.
    let share = |runs: &RunCounts| (u128::from(runs.total() - runs.unfinished()), u128::from(runs.total().max(1)));
    let order = match query.sort {
        CampaignSort::Created => a.facts.created_at.cmp(&b.facts.created_at),
        CampaignSort::Name => a.facts.name.cmp(&b.facts.name),
        CampaignSort::Model => a.facts.model.cmp(&b.facts.model),
        CampaignSort::Progress => {
            let ((a_over, a_all), (b_over, b_all)) = (share(&a.runs), share(&b.runs));
            (a_over * b_all).cmp(&(b_over * a_all))
        }
        CampaignSort::Running => a.runs.unfinished().cmp(&b.runs.unfinished()),
        CampaignSort::Failed => a.runs.failed.cmp(&b.runs.failed),
        CampaignSort::Speedup | CampaignSort::SpeedupOverFastest | CampaignSort::Cost | CampaignSort::Duration => {
            weight(a).total_cmp(&weight(b))
        }
    };
    let order = order.then(a.age.cmp(&b.age));
    if query.order == SortOrder::Desc { order.reverse() } else { order }
}

/// Returns the cursor after the last campaign of a page. The next page begins after its current position.
fn cursor(query: &CampaignQuery, last: &Known) -> String {
    if (query.sort, query.order) == (CampaignSort::default(), SortOrder::default()) {
        return last.id.to_string();
    }
    format!("{}.{}.{}", query.sort.as_str(), query.order.as_str(), last.id)
}

fn place_of<'a>(all: &'a [Known], query: &CampaignQuery, cursor: &str) -> Result<&'a Known, ApiFailure> {
    let refused = || {
        let message = "`before` must be the `next` of a page with the same `sort` and `order`";
        ApiFailure::bad("request.invalid_query", message)
    };
    let own = |id: &str| {
        let id: CampaignId = id.parse().map_err(|_| refused())?;
        all.iter().find(|one| one.id == id).ok_or_else(|| {
            ApiFailure::not_found("campaign.not_found", format!("the campaign {id} was deleted: start the list again"))
        })
    };
    match cursor.split('.').collect::<Vec<_>>().as_slice() {
        [id] if (query.sort, query.order) == (CampaignSort::default(), SortOrder::default()) => own(id),
        [sort, order, id] if *sort == query.sort.as_str() && *order == query.order.as_str() => own(id),
        _ => Err(refused()),
    }
}

/// Returns whether the id or its digits begin with the text, or the id ends with it.
fn is_part_of_id(text: &str, id: &CampaignId) -> bool {
    let id = id.as_str();
    text.len() >= MIN_ID_CHARS
        && (id.starts_with(text)
            || id.ends_with(text)
            || id.split_once('_').is_some_and(|(_, digits)| digits.starts_with(text)))
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::campaign_facts::Facts;

    /// Returns twenty campaigns, newest first, many of them equal.
    fn twenty() -> Vec<Known> {
        let known = |place: u64| {
            let name = format!("Night {}", place % 4);
            let model = format!("lab/{}", place % 3);
            let runs =
                RunCounts { running: place % 2, completed: place % 5, failed: place % 3, ..RunCounts::default() };
            let searched = format!("{}\n{model}", name.to_lowercase());
            let created_at = TimestampMs(i64::try_from(place / 2).unwrap());
            let facts = Arc::new(Facts { name, model, searched, created_at });
            let id = format!("cmp_{:032x}", 0xabc0_0000 + place).parse().unwrap();
            let weight = (!place.is_multiple_of(4)).then(|| [1.5, 2.5, 0.5][usize::try_from(place % 3).unwrap()]);
            Known { id, runs, facts, age: usize::try_from(place).unwrap(), weight }
        };
        (1..=20).rev().map(known).collect()
    }

    fn pages(all: &[Known], pairs: &[(&str, &str)], limit: usize) -> (Vec<CampaignId>, u64) {
        let mut query = CampaignQuery::from_pairs(pairs.iter().copied()).unwrap();
        let (mut ids, mut total) = (Vec::new(), 0);
        for _ in 0..100 {
            let found = find(all, &query, limit).unwrap();
            ids.extend(found.ids);
            total = found.total;
            query.before = found.next;
            if query.before.is_none() {
                break;
            }
        }
        (ids, total)
    }

    #[test]
    fn pages_give_every_campaign_once_in_every_order() {
        let all = twenty();
        for sort in CampaignSort::ALL {
            for order in SortOrder::ALL {
                let pairs = [("sort", sort.as_str()), ("order", order.as_str())];
                let (whole, total) = pages(&all, &pairs, 100);
                let (parts, _) = pages(&all, &pairs, 3);
                assert_eq!((whole.len(), total), (20, 20));
                assert_eq!(whole, parts, "{sort:?} {order:?}");
            }
        }
        assert_eq!(pages(&all, &[], 7).0, all.iter().map(|one| one.id.clone()).collect::<Vec<_>>(), "newest first");
    }

    #[test]
    fn campaigns_without_results_come_last_in_an_order_by_results() {
        let all = twenty();
        let (ids, _) = pages(&all, &[("sort", "speedup"), ("order", "desc")], 7);
        let weights: Vec<Option<f64>> =
            ids.iter().map(|id| all.iter().find(|one| one.id == *id).unwrap().weight).collect();
        assert_eq!((weights[0], weights[19]), (Some(2.5), None));
        assert!(weights.is_sorted_by(|a, b| a >= b), "{weights:?}");
    }

    #[test]
    fn words_names_and_states_are_filters_with_an_exact_count() {
        let all = twenty();
        let total = |pairs: &[(&str, &str)]| pages(&all, pairs, 3).1;
        assert_eq!(total(&[("q", "NIGHT lab/2")]), 7, "either may have the word");
        assert_eq!((total(&[("name", "Night 1")]), total(&[("name", "night 1")])), (5, 0));
        assert_eq!((total(&[("status", "unfinished")]), total(&[("status", "finished")])), (10, 10));
        assert_eq!((total(&[("status", "failed")]), total(&[("status", "paused")])), (14, 0));
        assert_eq!(total(&[("q", all[0].id.short())]), 1);
        let found =
            find(&all, &CampaignQuery::from_pairs([("status", "failed"), ("q", "lab/2")]).unwrap(), 100).unwrap();
        let counts: Vec<u64> = found.by_status.iter().map(|facet| facet.count).collect();
        assert_eq!((found.any_status, found.total), (7, 7));
        assert_eq!(counts, [3, 4, 7, 0], "what another choice would find");
    }

    #[test]
    fn a_cursor_belongs_to_its_order() {
        let all = twenty();
        let ask = |pairs: &[(&str, &str)]| find(&all, &CampaignQuery::from_pairs(pairs.iter().copied()).unwrap(), 3);
        let next = ask(&[("sort", "name")]).unwrap().next.unwrap();
        assert!(ask(&[("sort", "name"), ("before", &next)]).is_ok());
        for wrong in
            [vec![("before", next.as_str())], vec![("sort", "failed"), ("before", &next)], vec![("before", "x")]]
        {
            assert!(ask(&wrong).is_err(), "{wrong:?}");
        }
    }
}
