//! Data that a process caches between transactions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use nightshift_protocol::time::TimestampMs;
use tokio::sync::Mutex;

use crate::connection::{Backend, Connection};
use crate::created::CreatedRuns;
use crate::failure::Failure;
use crate::value::values;

/// Number of step ids per value of the Postgres sequence: its increment in the schema.
const STEP_ID_BLOCK: i64 = 1_000;

/// Time between two attempts to unblock steps after an attempt without success, in milliseconds.
const RECONSIDER_EVERY_MS: i64 = 60_000;

/// Maximum number of cached routes. Beyond it, the cache begins anew.
const MAX_ROUTES: usize = 10_000;

/// The cache. See the module.
#[derive(Debug, Default)]
pub(crate) struct ProcessCache {
    virtual_now: AtomicI64,
    /// Until when the blocked steps of a campaign are not reconsidered without a release, in milliseconds since 1970.
    resting: RwLock<HashMap<i64, i64>>,
    /// The same for all campaigns.
    rests_until: AtomicI64,
    counter: AtomicU64,
    step_ids: Mutex<StepIds>,
    routes: RwLock<HashMap<String, i64>>,
    /// Created runs without a decision.
    pub(crate) created: CreatedRuns,
}

/// Reserved step ids: from the first up to the last, exclusive.
#[derive(Debug, Default)]
struct StepIds {
    next: i64,
    end: i64,
}

impl ProcessCache {
    /// Returns the virtual time of fair queueing: the rank of the last claimed step.
    pub(crate) fn virtual_now(&self) -> i64 {
        self.virtual_now.load(Ordering::Relaxed)
    }

    /// Advances the virtual time, which never decreases.
    pub(crate) fn raise_virtual_now(&self, rank: i64) {
        self.virtual_now.fetch_max(rank, Ordering::Relaxed);
    }

    /// Returns false while all campaigns with room for blocked steps rest.
    pub(crate) fn may_reconsider(&self, at: TimestampMs) -> bool {
        !rests(self.rests_until.load(Ordering::Relaxed), at)
    }

    /// Returns the campaigns among these that do not rest.
    pub(crate) fn to_reconsider(&self, mut campaigns: Vec<i64>, at: TimestampMs) -> Vec<i64> {
        let mut resting = self.resting.write().unwrap_or_else(PoisonError::into_inner);
        resting.retain(|_, until| rests(*until, at));
        let first_end = campaigns.iter().filter_map(|campaign| resting.get(campaign)).min().copied();
        campaigns.retain(|campaign| !resting.contains_key(campaign));
        if campaigns.is_empty()
            && let Some(until) = first_end
        {
            self.rests_until.store(until, Ordering::Relaxed);
        }
        campaigns
    }

    /// Lets a campaign rest because none of its blocked steps became ready: they may need more than the rest of the
    /// budget, or they cannot be read.
    pub(crate) fn reconsidered_without_success(&self, campaign_id: i64, at: TimestampMs) {
        let until = at.0.saturating_add(RECONSIDER_EVERY_MS);
        self.resting.write().unwrap_or_else(PoisonError::into_inner).insert(campaign_id, until);
    }

    /// Returns the key of a committed route.
    pub(crate) fn route(&self, needs: &str) -> Option<i64> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).get(needs).copied()
    }

    /// Caches the results of a commit.
    pub(crate) fn remember(&self, routes: Vec<(String, i64)>, claimed_rank: Option<i64>) {
        if !routes.is_empty() {
            let mut cached = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            if cached.len() + routes.len() > MAX_ROUTES {
                cached.clear();
            }
            cached.extend(routes);
        }
        if let Some(rank) = claimed_rank {
            self.raise_virtual_now(rank);
        }
    }

    /// Returns a number that is unique in this process.
    pub(crate) fn number(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns ids for new steps, ascending. A failed transaction loses its ids, which is harmless.
    pub(crate) async fn step_ids(&self, connection: &mut Connection, count: usize) -> Result<Vec<i64>, Failure> {
        let mut ids = self.step_ids.lock().await;
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            if ids.next == ids.end {
                *ids = match connection.backend() {
                    Backend::Sqlite => {
                        let row = connection.fetch_one("SELECT coalesce(MAX(id), 0) FROM step", values![]).await?;
                        StepIds { next: row.i64(0)? + 1, end: i64::MAX }
                    }
                    Backend::Postgres => {
                        let row = connection.fetch_one("SELECT nextval('step_id_seq')", values![]).await?;
                        let next = row.i64(0)?;
                        StepIds { next, end: next + STEP_ID_BLOCK }
                    }
                };
            }
            taken.push(ids.next);
            ids.next += 1;
        }
        Ok(taken)
    }
}

/// Returns whether a rest lasts. The clock may have been set back.
fn rests(until: i64, at: TimestampMs) -> bool {
    (until - RECONSIDER_EVERY_MS..until).contains(&at.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_cached_routes_is_bounded() {
        let cache = ProcessCache::default();
        let last = i64::try_from(MAX_ROUTES).unwrap_or(i64::MAX);
        for id in 0..=last {
            cache.remember(vec![(format!("route {id}"), id)], None);
        }
        assert_eq!((cache.route("route 0"), cache.route(&format!("route {last}"))), (None, Some(last)));
    }
}
