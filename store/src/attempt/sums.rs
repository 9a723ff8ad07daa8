//! Totals of campaigns for their list: one pass over the columns for all rows.

use std::collections::BTreeMap;

use nightshift_protocol::id::CampaignId;
use nightshift_protocol::speedups::Speedups;
use nightshift_protocol::task::Target;

use super::CampaignBest;
use super::columns::{ABSENT, Columns};
use super::labels::Label;
use super::rows::from_ppm;
use crate::number::from_stored;

/// Best correct speedups of a campaign's runs, over the reference and over the fastest baseline.
type Bests = Vec<(Option<f64>, Option<f64>)>;

/// Returns the totals of these campaigns. Campaigns that are not in the index are skipped.
pub(crate) fn of_campaigns(columns: &Columns, campaigns: &[CampaignId]) -> Vec<CampaignBest> {
    let nothing = |campaign: &CampaignId| CampaignBest {
        campaign: campaign.clone(),
        speedup: None,
        speedup_over_fastest: None,
        geometric_mean: None,
        geometric_mean_over_fastest: None,
        solved: 0,
        solved_over_fastest: 0,
        cost_microusd: 0,
        unpriced_attempts: 0,
        targets: Vec::new(),
    };
    let known =
        campaigns.iter().filter_map(|id| Some((columns.campaigns.find(id.as_str())?, (nothing(id), Bests::new()))));
    let mut found: BTreeMap<Label, (CampaignBest, Bests)> = known.collect();
    for run in columns.runs.values() {
        let Some((of_campaign, bests)) = found.get_mut(&run.campaign) else { continue };
        if !of_campaign.targets.contains(&run.target) {
            of_campaign.targets.push(run.target);
        }
        for slot in &run.attempts {
            if let Some(speedup_ppm) = slot.right_speedup_ppm().filter(|_| slot.is_best) {
                bests.push((Some(from_ppm(speedup_ppm)), slot.right_over_fastest_ppm().map(from_ppm)));
            }
            let cost_microusd = from_stored(slot.cost_microusd.max(0));
            of_campaign.cost_microusd = of_campaign.cost_microusd.saturating_add(cost_microusd);
            of_campaign.unpriced_attempts += u64::from(slot.cost_microusd == ABSENT);
        }
    }
    found.into_values().map(|(of_campaign, bests)| with_bests(of_campaign, &bests)).collect()
}

fn with_bests(of_campaign: CampaignBest, bests: &[(Option<f64>, Option<f64>)]) -> CampaignBest {
    let over_reference = Speedups::of_estimates(bests.iter().map(|(speedup, _)| (*speedup, *speedup)));
    let over_fastest = Speedups::of_estimates(bests.iter().copied());
    let mut targets = of_campaign.targets;
    targets.sort_unstable_by_key(|target: &Target| target.as_str());
    CampaignBest {
        speedup: over_reference.highest(),
        speedup_over_fastest: over_fastest.highest(),
        geometric_mean: over_reference.geometric_mean(),
        geometric_mean_over_fastest: over_fastest.geometric_mean(),
        solved: over_reference.solved(),
        solved_over_fastest: over_fastest.solved(),
        targets,
        ..of_campaign
    }
}
