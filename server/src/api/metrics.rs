//! `GET /metrics`: metrics for Prometheus. Data of the store is cached for a short time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use nightshift_engine::store::{PageRequest, StoreError};
use nightshift_protocol::api::RunCounts;
use nightshift_protocol::machine::Offers;
use tokio::time::Instant;

use crate::api::health::in_time;
use crate::error::ApiFailure;
use crate::present::with_wall_time;
use crate::shared::Shared;
use crate::telemetry::{
    BudgetLabels, DeviceLabels, DeviceUseLabels, Metrics, QuarantineLabels, RouteLabels, StatusLabels, Telemetry,
    seconds,
};
use crate::waiting::silent_after_ms;
use crate::worker_registry::MAX_LISTED_WORKERS;

/// Media type of the page.
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Lifetime of cached data of the store.
const GOOD_FOR: Duration = Duration::from_secs(5);
/// Maximum number of unfinished campaigns whose budgets are shown, newest first.
const MAX_CAMPAIGNS: usize = 50;
/// Maximum number of campaigns that are searched for unfinished ones.
const MAX_LOOKED_AT: u32 = 200;

/// Returns the page.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    State(telemetry): State<Arc<Telemetry>>,
) -> Result<Response, ApiFailure> {
    let mut asked_at = telemetry.asked_at.lock().await;
    if asked_at.is_none_or(|at| at.elapsed() >= GOOD_FOR) {
        // A timeout of this call is no store error.
        let result = in_time(async {
            let result = refresh(&shared, &telemetry.metrics).await;
            shared.store_health.note_error(&result);
            result
        })
        .await;
        telemetry.metrics.store_up.set(i64::from(result.is_ok()));
        if let Err(error) = result {
            tracing::debug!(error.code = error.code(), "the store metrics could not be updated");
        }
        *asked_at = Some(Instant::now());
    }
    drop(asked_at);
    if let Some(spans) = &telemetry.spans {
        let (sent, dropped) = spans.counts();
        telemetry.metrics.spans_sent.set(whole(sent));
        telemetry.metrics.spans_dropped.set(whole(dropped));
    }
    match telemetry.metrics.page() {
        Ok(page) => Ok((StatusCode::OK, [(CONTENT_TYPE, MEDIA_TYPE)], page).into_response()),
        Err(error) => {
            Err(ApiFailure::internal("internal.unwritable", format!("the metrics cannot be written: {error}")))
        }
    }
}

async fn refresh(shared: &Shared, metrics: &Metrics) -> Result<(), StoreError> {
    let now = shared.clock.now();
    let gauges = shared.store.database.gauges().await?;
    metrics.ready_steps.clear();
    for (route, steps) in gauges.ready {
        metrics.ready_steps.get_or_create(&RouteLabels { route }).set(whole(steps));
    }
    metrics.oldest_ready.clear();
    for (route, since) in gauges.oldest_ready {
        metrics.oldest_ready.get_or_create(&RouteLabels { route }).set(seconds(now.since_ms(since)));
    }
    for (used, devices) in [("exclusive", gauges.devices_alone), ("shared", gauges.devices_shared)] {
        metrics.devices_in_use.get_or_create(&DeviceUseLabels { used }).set(whole(devices));
    }
    metrics.oldest_lease.clear();
    for (route, since) in gauges.oldest_lease {
        metrics.oldest_lease.get_or_create(&RouteLabels { route }).set(seconds(now.since_ms(since)));
    }
    metrics.timers.set(whole(gauges.timers));
    metrics.blocked_steps.set(whole(gauges.blocked));
    metrics.leases.set(whole(gauges.leases));
    for (status, runs) in by_status(&gauges.runs) {
        metrics.runs.get_or_create(&StatusLabels { status }).set(whole(runs));
    }
    count_workers(shared, metrics).await?;
    show_budgets(shared, metrics).await
}

fn by_status(runs: &RunCounts) -> [(&'static str, u64); 6] {
    [
        ("running", runs.running),
        ("paused", runs.paused),
        ("cancelling", runs.cancelling),
        ("completed", runs.completed),
        ("failed", runs.failed),
        ("cancelled", runs.cancelled),
    ]
}

async fn count_workers(shared: &Shared, metrics: &Metrics) -> Result<(), StoreError> {
    let silent_ms = silent_after_ms(shared.config.lease_ms);
    let now = shared.clock.now();
    let (mut alive, mut draining, mut silent) = (0, 0, 0);
    let mut devices: BTreeMap<(&'static str, &'static str), i64> = BTreeMap::new();
    for worker in shared.store.workers.list_workers(MAX_LISTED_WORKERS).await? {
        if now.since_ms(worker.last_seen_at) > silent_ms {
            silent += 1;
            continue;
        }
        if worker.draining {
            draining += 1;
        } else {
            alive += 1;
        }
        let offers = serde_json::from_value::<Offers>(worker.offers).ok();
        for device in offers.into_iter().flat_map(|offers| offers.devices) {
            let state = if device.quarantine.is_some() { "quarantined" } else { "usable" };
            *devices.entry((device.target.as_str(), state)).or_default() += 1;
        }
    }
    metrics.devices.clear();
    for ((target, state), count) in devices {
        metrics.devices.get_or_create(&DeviceLabels { target, state }).set(count);
    }
    metrics.quarantined.clear();
    for record in shared.store.devices.list_quarantine().await? {
        let labels = QuarantineLabels { device: record.device, worker: record.worker_name, code: record.code };
        metrics.quarantined.get_or_create(&labels).set(seconds(now.since_ms(record.since)));
    }
    for (status, workers) in [("alive", alive), ("draining", draining), ("silent", silent)] {
        metrics.workers.get_or_create(&StatusLabels { status }).set(workers);
    }
    Ok(())
}

async fn show_budgets(shared: &Shared, metrics: &Metrics) -> Result<(), StoreError> {
    let campaigns = shared.store.campaigns.list_campaigns(PageRequest { limit: MAX_LOOKED_AT, before: None }).await?;
    let mut lines = Vec::new();
    for campaign in campaigns.iter().filter(|campaign| campaign.runs.unfinished() > 0).take(MAX_CAMPAIGNS) {
        let elapsed_ms = shared.clock.now().since_ms(campaign.created_at);
        for line in with_wall_time(shared.store.budgets.load_budget(&campaign.id).await?, elapsed_ms) {
            let labels = BudgetLabels { campaign: campaign.id.to_string(), resource: line.resource.as_str() };
            lines.push((labels, line));
        }
    }
    // Finished campaigns are not shown any more.
    metrics.budget_used.clear();
    metrics.budget_reserved.clear();
    metrics.budget_cap.clear();
    for (labels, line) in lines {
        metrics.budget_used.get_or_create(&labels).set(whole(line.used));
        metrics.budget_reserved.get_or_create(&labels).set(whole(line.reserved));
        if let Some(cap) = line.cap {
            metrics.budget_cap.get_or_create(&labels).set(whole(cap));
        }
    }
    Ok(())
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
