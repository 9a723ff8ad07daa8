//! What can be done now to a run or a campaign.

use leptos::prelude::*;
use nightshift_protocol::api::{CampaignSummary, RunSummary};
use nightshift_protocol::run::{RunStatus, RunTransition};

use crate::island::Actions;

/// Buttons for a run.
pub(crate) fn of_run(run: &RunSummary) -> impl IntoView + use<> {
    view! { <Actions subject=format!("runs/{}", run.id) offers=offers(run.status) gates=run.awaits.clone() /> }
}

/// Buttons for all runs of a campaign that are not over.
pub(crate) fn of_campaign(campaign: &CampaignSummary) -> impl IntoView + use<> {
    let runs = campaign.runs;
    let statuses = [
        (RunStatus::Running, runs.running),
        (RunStatus::Paused, runs.paused),
        (RunStatus::Cancelling, runs.cancelling),
    ];
    let mut offers: Vec<String> = statuses
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .flat_map(|(status, _)| offers(status))
        // Hints and retries are about one run.
        .filter(|offer| matches!(offer.as_str(), "pause" | "resume" | "cancel"))
        .collect();
    offers.sort_unstable_by_key(|offer| ["pause", "resume", "cancel"].iter().position(|name| name == offer));
    offers.dedup();
    let subject = format!("campaigns/{}", campaign.id);
    (!offers.is_empty()).then(|| view! { <Actions subject=subject offers=offers gates=Vec::new() /> })
}

/// What the status allows, without what would change nothing.
fn offers(status: RunStatus) -> Vec<String> {
    let deeds = [
        ("pause", RunTransition::Pause),
        ("resume", RunTransition::Resume),
        ("retry", RunTransition::Retry),
        ("cancel", RunTransition::Cancel),
    ];
    let allowed = deeds
        .into_iter()
        .filter(|(_, transition)| status.next(*transition).is_ok_and(|next| next != status))
        .map(|(name, _)| name.to_owned());
    let hint = (!status.is_final() && status != RunStatus::Cancelling).then(|| "hint".to_owned());
    allowed.chain(hint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_something_is_offered() {
        assert_eq!(offers(RunStatus::Running), ["pause", "cancel", "hint"]);
        assert_eq!(offers(RunStatus::Paused), ["resume", "cancel", "hint"]);
        assert_eq!(offers(RunStatus::Failed), ["retry"]);
        assert!(offers(RunStatus::Cancelling).is_empty());
        assert!(offers(RunStatus::Completed).is_empty());
    }
}
