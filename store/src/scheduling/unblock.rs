//! Reconsiders steps that are blocked on a budget after a reservation was released.

use std::collections::HashSet;

use nightshift_protocol::budget::Resource;
use nightshift_protocol::time::TimestampMs;

use super::admit;
use super::load;
use super::rows::Place;
use super::working_set::WorkingSet;
use crate::connection::Connection;
use crate::failure::Failure;

/// Reconsiders blocked steps of campaigns with released reservations, oldest first. Returns whether there were any.
///
/// A step that stays blocked on a resource also blocks all younger steps that need this resource. Runs that are not
/// running are left out.
pub(crate) async fn look_again(
    connection: &mut Connection,
    set: &mut WorkingSet,
    at: TimestampMs,
) -> Result<bool, Failure> {
    let freed: HashSet<i64> =
        set.campaigns.values().filter(|campaign| campaign.freed).map(|campaign| campaign.id).collect();
    if freed.is_empty() {
        return Ok(false);
    }
    let mut ids: Vec<i64> = freed.iter().copied().collect();
    ids.sort_unstable();
    let mut steps = load::blocked(connection, set, ids).await?;
    // Steps that this transaction blocked are not stored yet.
    let in_hand = set.steps.values().filter(|step| {
        freed.contains(&step.campaign_id)
            && matches!(step.place, Place::Blocked { .. })
            && !matches!(step.place_before, Place::Blocked { .. })
    });
    steps.extend(in_hand.map(|step| step.id));
    steps.sort_unstable();
    steps.dedup();
    let mut waited_for: HashSet<(i64, Resource)> = HashSet::new();
    let mut found = false;
    for id in steps {
        let step = set.step(id)?;
        let campaign_id = step.campaign_id;
        // A step of a paused run cannot become ready, and holds no younger one back.
        if !matches!(step.place, Place::Blocked { .. }) || !set.is_running(step.run_id)? {
            continue;
        }
        if step.reserve.iter().any(|amount| waited_for.contains(&(campaign_id, amount.resource))) {
            continue;
        }
        found = true;
        admit::admit(set, id, at)?;
        if let Place::Blocked { resource, told: false } = set.step(id)?.place {
            waited_for.insert((campaign_id, resource));
        }
    }
    for campaign in set.campaigns.values_mut() {
        campaign.freed = false;
    }
    Ok(found)
}
