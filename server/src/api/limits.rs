//! `POST /campaigns/{id}/limits`: changes budget, schedule and weight of a campaign, with the validation of a new
//! campaign.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use nightshift_protocol::api::{CampaignDetail, SetLimits};
use nightshift_protocol::budget::Resource;
use nightshift_protocol::id::CampaignId;

use crate::actor::Actor;
use crate::agents::AgentExecutor;
use crate::api::campaigns::{campaign_detail, with_elapsed_time};
use crate::api::examine_limits::{examine_budget, examine_schedule, examine_weight};
use crate::api::examine_models::priced;
use crate::campaign_list::Campaigns;
use crate::error::ApiFailure;
use crate::extract::{Body, IdPath};
use crate::live::Live;
use crate::present::campaign_spec;
use crate::shared::Shared;

/// Changes the given limits and keeps the others. Returns the changed campaign.
///
/// All values are validated before the first change. Each of the three changes is one transaction: repeating an aborted
/// call completes it.
pub(crate) async fn set(
    State(shared): State<Arc<Shared>>,
    State(live): State<Arc<Live>>,
    State(campaigns): State<Arc<Campaigns>>,
    State(agents): State<Arc<dyn AgentExecutor>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
    Body(limits): Body<SetLimits>,
) -> Result<Json<CampaignDetail>, ApiFailure> {
    examine(&limits)?;
    let campaign = shared.store.campaigns.load_campaign(&id).await?;
    if let Some(cap) = limits.budget.and_then(|caps| caps.cost_microusd) {
        let budget = shared.store.budgets.load_budget(&id).await?;
        let current = budget.iter().find(|line| line.resource == Resource::CostMicrousd).and_then(|line| line.cap);
        // A campaign of an earlier release may have a cap without a price, which may become smaller.
        if current.is_none_or(|current| cap > current) {
            priced(&campaign_spec(&campaign)?, &*agents)?;
        }
    }
    let at = shared.clock.now();
    let changed = async {
        if let Some(caps) = limits.budget {
            shared.store.budgets.set_budget(&id, caps, at).await?;
        }
        if limits.no_schedule || limits.schedule.is_some() {
            shared.store.campaigns.set_schedule(&id, limits.schedule, at).await?;
        }
        if let Some(weight) = limits.weight {
            shared.store.campaigns.set_weight(&id, weight, at).await?;
        }
        Ok(())
    }
    .await;
    shared.store_health.note_error(&changed);
    changed?;
    live.campaign_touched(&id);
    tracing::info!(campaign.id = %id, by = actor.name(), "the limits of a campaign were changed");
    let detail = campaign_detail(&shared, &campaigns, &id).await?;
    Ok(Json(with_elapsed_time(&shared, detail)))
}

fn examine(limits: &SetLimits) -> Result<(), ApiFailure> {
    if limits.no_schedule && limits.schedule.is_some() {
        return Err(ApiFailure::bad(
            "request.invalid",
            "`schedule` sets a schedule and `no_schedule` takes it away: send one of them",
        ));
    }
    if limits.budget.is_none() && limits.weight.is_none() && limits.schedule.is_none() && !limits.no_schedule {
        return Err(ApiFailure::bad(
            "request.invalid",
            "nothing is given to change: send `budget`, `schedule`, `no_schedule` or `weight`",
        ));
    }
    if let Some(caps) = &limits.budget {
        examine_budget(caps)?;
    }
    if let Some(schedule) = &limits.schedule {
        examine_schedule(schedule)?;
    }
    limits.weight.map_or(Ok(()), examine_weight)
}
