//! A page of attempts with the exact total and with counts by value, in one pass over the columns.

use std::collections::BinaryHeap;

use nightshift_protocol::api::{AttemptQuery, Facet, Facets, MAX_PAGE_ROWS, SortOrder};
use nightshift_protocol::attempt::{AttemptOutcome, Stage};

use super::MAX_ATTEMPT_ROWS;
use super::columns::{Columns, Key, Run, Slot};
use super::cursor::{Order, Rank};
use super::tagged::Tagged;
use super::wanted::{Misses, ResolvedFilter};
use crate::failure::Failure;

/// Result of a pass.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The attempts of the page, in order.
    pub(crate) keys: Vec<Key>,
    pub(crate) next: Option<String>,
    pub(crate) total: u64,
    pub(crate) facets: Option<Facets>,
}

/// Maximum number of values of a facet. More values are too many to choose from.
const MAX_FACET_VALUES: usize = 50;

pub(crate) fn find(columns: &Columns, query: &AttemptQuery, tagged: Option<Tagged>) -> Result<Found, Failure> {
    let order = Order::of(query);
    let after = query.before.as_deref().map(|cursor| order.place(cursor)).transpose()?;
    let limit = usize::try_from(query.limit.unwrap_or(MAX_PAGE_ROWS).min(MAX_ATTEMPT_ROWS)).unwrap_or(usize::MAX);
    let wanted = ResolvedFilter::with_tag(&query.filter, tagged, columns);
    let mut counts = query.facets.then(|| Counts::new(columns));
    let mut total = 0;
    // The page and one more attempt, with the last one on top of the heap.
    let mut page: BinaryHeap<Rank> = BinaryHeap::with_capacity(limit.saturating_add(2));
    let look = |run_id: i64, _: &Run, slot: &Slot, misses: Misses| {
        if let Some(counts) = &mut counts {
            if !misses.stage && !misses.model {
                counts.outcome[slot.outcome as usize] += 1;
            }
            if !misses.outcome && !misses.model {
                counts.stage[slot.stage as usize] += 1;
            }
            if !misses.outcome
                && !misses.stage
                && let Some(count) = usize::try_from(slot.model).ok().and_then(|model| counts.model.get_mut(model))
            {
                *count += 1;
            }
        }
        if !misses.none() {
            return;
        }
        total += 1;
        let rank = order.rank(run_id, slot);
        let follows = after.is_none_or(|after| rank > after);
        if follows && (page.len() <= limit || page.peek().is_some_and(|last| rank < *last)) {
            page.push(rank);
            if page.len() > limit + 1 {
                page.pop();
            }
        }
    };
    // Scan the likely first entries first: hardly any later entry enters the page then.
    match query.order {
        SortOrder::Asc => wanted.scan(columns, look),
        SortOrder::Desc => wanted.scan_back(columns, look),
    }
    let mut ranks = page.into_sorted_vec();
    let more = ranks.len() > limit;
    ranks.truncate(limit);
    let next = if more { ranks.last().map(|rank| order.cursor(*rank)) } else { None };
    let keys = ranks.into_iter().map(|rank| order.key(rank)).collect();
    Ok(Found { keys, next, total, facets: counts.map(|counts| counts.facets(columns)) })
}

/// Counts per label.
struct Counts {
    outcome: [u64; AttemptOutcome::ALL.len()],
    stage: [u64; Stage::ALL.len()],
    model: Vec<u64>,
}

impl Counts {
    fn new(columns: &Columns) -> Self {
        Self {
            outcome: [0; AttemptOutcome::ALL.len()],
            stage: [0; Stage::ALL.len()],
            model: vec![0; columns.names.len()],
        }
    }

    fn facets(&self, columns: &Columns) -> Facets {
        let outcomes = AttemptOutcome::ALL.into_iter().map(|outcome| outcome.as_str().to_owned());
        let stages = Stage::ALL.into_iter().map(|stage| stage.as_str().to_owned());
        let models = (0_u32..).map(|label| columns.names.name(label).to_owned());
        Facets {
            outcome: by_count(outcomes.zip(self.outcome)),
            stage: by_count(stages.zip(self.stage)),
            model: by_count(self.model.iter().copied().zip(models).map(|(count, name)| (name, count))),
        }
    }
}

/// Sorts by count, highest first, then by name.
fn by_count(values: impl Iterator<Item = (String, u64)>) -> Vec<Facet> {
    let mut facets: Vec<Facet> =
        values.filter(|(_, count)| *count > 0).map(|(value, count)| Facet { value, count }).collect();
    facets.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.value.cmp(&other.value)));
    facets.truncate(MAX_FACET_VALUES);
    facets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_at_their_places() {
        assert!(AttemptOutcome::ALL.into_iter().enumerate().all(|(place, outcome)| outcome as usize == place));
        assert!(Stage::ALL.into_iter().enumerate().all(|(place, stage)| stage as usize == place));
    }
}
