//! What campaigns have come to, as a list of them shows it: one pass over the columns for all of its rows.

use std::collections::BTreeMap;

use nightshift_protocol::id::CampaignId;
use nightshift_protocol::task::Target;

use super::CampaignBest;
use super::columns::{ABSENT, Columns};
use super::labels::Label;
use super::rows::from_ppm;
use crate::number::from_stored;

/// Those that the index does not know are left out.
pub(crate) fn of_campaigns(columns: &Columns, campaigns: &[CampaignId]) -> Vec<CampaignBest> {
    let nothing = |campaign: &CampaignId| CampaignBest {
        campaign: campaign.clone(),
        speedup: None,
        cost_microusd: 0,
        unpriced_attempts: 0,
        targets: Vec::new(),
    };
    let known = campaigns.iter().filter_map(|id| Some((columns.campaigns.find(id.as_str())?, nothing(id))));
    let mut found: BTreeMap<Label, CampaignBest> = known.collect();
    for run in columns.runs.values() {
        let Some(of_campaign) = found.get_mut(&run.campaign) else { continue };
        if !of_campaign.targets.contains(&run.target) {
            of_campaign.targets.push(run.target);
        }
        let mut best_ppm = ABSENT;
        for slot in &run.attempts {
            best_ppm = best_ppm.max(slot.right_speedup_ppm().filter(|_| slot.is_best).unwrap_or(ABSENT));
            let cost_microusd = from_stored(slot.cost_microusd.max(0));
            of_campaign.cost_microusd = of_campaign.cost_microusd.saturating_add(cost_microusd);
            of_campaign.unpriced_attempts += u64::from(slot.cost_microusd == ABSENT);
        }
        if best_ppm != ABSENT {
            let best = from_ppm(best_ppm);
            of_campaign.speedup = Some(of_campaign.speedup.map_or(best, |known| known.max(best)));
        }
    }
    let mut found: Vec<CampaignBest> = found.into_values().collect();
    for one in &mut found {
        one.targets.sort_unstable_by_key(|target: &Target| target.as_str());
    }
    found
}
