//! Facts of every campaign that do not change, cached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nightshift_engine::store::{CampaignMark, CampaignRecord, WatchStore};
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;

use crate::error::ApiFailure;
use crate::present::campaign_summary;

/// Campaigns per read.
pub(crate) const READ_AT_ONCE: usize = 500;

/// Immutable facts.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) model: String,
    /// Both in lower case.
    pub(crate) searched: String,
    pub(crate) created_at: TimestampMs,
}

/// The cached facts of every campaign.
#[derive(Debug, Default)]
pub(crate) struct CampaignFacts(Mutex<HashMap<CampaignId, Arc<Facts>>>);

/// A campaign in the list.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: CampaignId,
    pub(crate) runs: RunCounts,
    pub(crate) facts: Arc<Facts>,
    /// Number in the order of creation.
    pub(crate) age: usize,
    /// Sort value for the other orders; none if it has no value yet.
    pub(crate) weight: Option<f64>,
}

impl CampaignFacts {
    /// Returns every campaign, newest first.
    pub(crate) async fn all(&self, store: &dyn WatchStore) -> Result<Vec<Known>, ApiFailure> {
        let marks = store.campaign_marks().await?;
        let unknown: Vec<CampaignId> = {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            marks.iter().map(|mark| &mark.campaign).filter(|id| !kept.contains_key(*id)).cloned().collect()
        };
        for some in unknown.chunks(READ_AT_ONCE) {
            let read = store.campaigns_of(some).await?;
            let read = read.iter().map(facts).collect::<Result<Vec<_>, _>>()?;
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(read);
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Deleted campaigns leave the cache with the next list.
        if kept.len() > marks.len() {
            let alive: std::collections::HashSet<&CampaignId> = marks.iter().map(|mark| &mark.campaign).collect();
            kept.retain(|id, _| alive.contains(id));
        }
        let count = marks.len();
        let known = |(place, CampaignMark { campaign, runs }): (usize, CampaignMark)| {
            let facts = kept.get(&campaign).cloned()?;
            Some(Known { id: campaign, runs, facts, age: count - place, weight: None })
        };
        Ok(marks.into_iter().enumerate().filter_map(known).collect())
    }
}

fn facts(record: &CampaignRecord) -> Result<(CampaignId, Arc<Facts>), ApiFailure> {
    let summary = campaign_summary(record)?;
    let searched = format!("{}\n{}", summary.name.to_lowercase(), summary.model.to_lowercase());
    let facts = Facts { name: summary.name, model: summary.model, searched, created_at: summary.created_at };
    Ok((summary.id, Arc::new(facts)))
}
