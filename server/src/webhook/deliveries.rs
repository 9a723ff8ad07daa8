//! Derives deliveries from the states of runs and budgets.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use nightshift_engine::store::{CampaignRecord, NewDelivery, RunMark, StoreError, WebhookRecord, WebhookStore};
use nightshift_protocol::api::{RunDigest, WebhookEvent, WebhookMessage};
use nightshift_protocol::id::{CampaignId, DeliveryId, RunId, WebhookId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use tokio::time::Instant;

use crate::present::with_wall_time;
use crate::shared::Shared;

/// Maximum number of runs per read.
const MAX_TOGETHER: usize = 200;
/// How far a scan looks back for ended runs, in milliseconds: seven days, longer than a server is down.
const SURVEYED_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Time between two reads of the budget of a campaign.
const BUDGET_EVERY: Duration = Duration::from_secs(5);
/// Percentage of a budget at which it is nearly used up.
const NEARLY_PERCENT: u64 = 90;
/// Maximum number of subjects known to be stored.
const MAX_KNOWN: usize = 50_000;

/// Stores deliveries.
#[derive(Default)]
pub(super) struct DeliveryWriter {
    /// Subjects that are stored already. It avoids repeated writes; the store knows all subjects.
    known: HashSet<(WebhookId, String)>,
    budgets: HashMap<CampaignId, Instant>,
}

/// An event, before its receivers are known.
struct Happening {
    event: WebhookEvent,
    /// Identifies the event. It is delivered once.
    subject: String,
    /// None while it is unfinished.
    ended_at: Option<TimestampMs>,
    message: WebhookMessage,
}

impl DeliveryWriter {
    /// Reads every run that may cause a delivery.
    pub(super) async fn survey(
        &mut self,
        shared: &Shared,
        store: &dyn WebhookStore,
        webhooks: &[WebhookRecord],
    ) -> Result<(), StoreError> {
        let oldest = webhooks.iter().map(|webhook| webhook.view.created_at).min().unwrap_or_default();
        let ended_after = oldest.max(shared.clock.now().minus_ms(SURVEYED_MS));
        let mut after = 0;
        loop {
            let limit = u32::try_from(MAX_TOGETHER).unwrap_or(u32::MAX);
            let runs = store.runs_to_tell(ended_after, after, limit).await?;
            let Some(last) = runs.last() else { return Ok(()) };
            after = last.place;
            self.put(shared, store, webhooks, runs.into_iter().map(|run| run.item).collect()).await?;
        }
    }

    /// Reads changed runs and removes them from the set.
    pub(super) async fn changed(
        &mut self,
        shared: &Shared,
        store: &dyn WebhookStore,
        webhooks: &[WebhookRecord],
        runs: &mut HashSet<RunId>,
    ) -> Result<(), StoreError> {
        while !runs.is_empty() {
            let some: Vec<RunId> = runs.iter().take(MAX_TOGETHER).cloned().collect();
            let marks = shared.store.watch.run_marks(&some).await?;
            self.put(shared, store, webhooks, marks).await?;
            for run in &some {
                runs.remove(run);
            }
        }
        Ok(())
    }

    async fn put(
        &mut self,
        shared: &Shared,
        store: &dyn WebhookStore,
        webhooks: &[WebhookRecord],
        marks: Vec<RunMark>,
    ) -> Result<(), StoreError> {
        let mut of_campaigns: HashMap<CampaignId, Vec<RunMark>> = HashMap::new();
        for mark in marks {
            of_campaigns.entry(mark.campaign.clone()).or_default().push(mark);
        }
        let now = shared.clock.now();
        for (id, marks) in of_campaigns {
            let campaign = match shared.store.campaigns.load_campaign(&id).await {
                Ok(campaign) => campaign,
                // It was deleted.
                Err(StoreError::NotFound { .. }) => continue,
                Err(error) => return Err(error),
            };
            let mut happenings: Vec<Happening> = marks.iter().flat_map(|mark| of_run(&campaign, mark, now)).collect();
            let ended_at = marks.iter().filter_map(|mark| mark.finished_at).max();
            happenings.extend(of_campaign(&campaign, ended_at, now));
            if self.budget_is_due(&id, ended_at.is_some()) {
                happenings.extend(of_budget(shared, &campaign, now).await?);
            }
            self.write_down(shared, store, webhooks, happenings, now).await?;
        }
        Ok(())
    }

    fn budget_is_due(&mut self, campaign: &CampaignId, in_any_case: bool) -> bool {
        self.budgets.retain(|_, at| at.elapsed() < BUDGET_EVERY);
        let due = in_any_case || !self.budgets.contains_key(campaign);
        if due {
            self.budgets.insert(campaign.clone(), Instant::now());
        }
        due
    }

    async fn write_down(
        &mut self,
        shared: &Shared,
        store: &dyn WebhookStore,
        webhooks: &[WebhookRecord],
        happenings: Vec<Happening>,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        let mut new = Vec::new();
        for happening in &happenings {
            for webhook in webhooks.iter().filter(|webhook| wants(webhook, happening)) {
                let known = (webhook.view.id.clone(), happening.subject.clone());
                if !self.known.contains(&known) {
                    new.push((known, happening.message.clone()));
                }
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let deliveries = new.iter().map(|((webhook, subject), message)| NewDelivery {
            id: DeliveryId::from_uuid(shared.new_uuid()),
            webhook: webhook.clone(),
            subject: subject.clone(),
            message: message.clone(),
        });
        store.put_deliveries(deliveries.collect(), now).await?;
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.extend(new.into_iter().map(|(known, _)| known));
        Ok(())
    }
}

fn wants(webhook: &WebhookRecord, happening: &Happening) -> bool {
    let webhook = &webhook.view;
    webhook.events.contains(&happening.event)
        && webhook.campaign.as_ref().is_none_or(|campaign| *campaign == happening.message.campaign)
        && happening.ended_at.is_none_or(|ended_at| ended_at >= webhook.created_at)
}

fn message(event: WebhookEvent, campaign: &CampaignRecord, at: TimestampMs) -> WebhookMessage {
    WebhookMessage {
        version: 1,
        event,
        at,
        campaign: campaign.id.clone(),
        campaign_name: campaign.name.clone(),
        run: None,
        task: None,
        attempt: None,
        speedup: None,
        speedup_over_fastest: None,
        failure: None,
        resource: None,
        used: None,
        cap: None,
    }
}

fn of_run(campaign: &CampaignRecord, mark: &RunMark, at: TimestampMs) -> Vec<Happening> {
    let Ok(digest) = serde_json::from_value::<RunDigest>(mark.digest.clone()) else { return Vec::new() };
    let happening = |event: WebhookEvent, subject: String, failure: Option<String>| Happening {
        event,
        subject,
        ended_at: mark.finished_at,
        message: WebhookMessage {
            run: Some(mark.run.clone()),
            task: Some(digest.task.clone()),
            attempt: digest.best_attempt,
            speedup: digest.best_speedup,
            speedup_over_fastest: digest.best_speedup_over_fastest,
            failure,
            ..message(event, campaign, at)
        },
    };
    let mut happenings = Vec::new();
    if let Some(best) = digest.best_attempt.filter(|_| digest.best_confirmed) {
        happenings.push(happening(WebhookEvent::NewBest, format!("new_best/{}/{best}", mark.run), None));
    }
    match mark.status {
        RunStatus::Completed => {
            happenings.push(happening(WebhookEvent::RunFinished, format!("run_finished/{}", mark.run), None));
        }
        RunStatus::Failed => {
            // A retried run may fail again.
            let subject = format!("run_failed/{}/{}", mark.run, mark.last_seq);
            happenings.push(happening(WebhookEvent::RunFailed, subject, mark.failure.clone()));
        }
        RunStatus::Running | RunStatus::Paused | RunStatus::Cancelling | RunStatus::Cancelled => {}
    }
    happenings
}

fn of_campaign(campaign: &CampaignRecord, ended_at: Option<TimestampMs>, at: TimestampMs) -> Option<Happening> {
    let runs = campaign.runs;
    if ended_at.is_none() || runs.unfinished() > 0 {
        return None;
    }
    // A retried campaign that ends with other counts is reported again.
    let subject = format!("campaign_finished/{}/{}-{}-{}", campaign.id, runs.completed, runs.failed, runs.cancelled);
    let event = WebhookEvent::CampaignFinished;
    Some(Happening { event, subject, ended_at, message: message(event, campaign, at) })
}

async fn of_budget(shared: &Shared, campaign: &CampaignRecord, at: TimestampMs) -> Result<Vec<Happening>, StoreError> {
    if campaign.runs.unfinished() == 0 {
        return Ok(Vec::new());
    }
    let elapsed_ms = at.since_ms(campaign.created_at);
    let lines = match shared.store.budgets.load_budget(&campaign.id).await {
        Ok(lines) => with_wall_time(lines, elapsed_ms),
        Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let event = WebhookEvent::BudgetNearlyUsed;
    let happenings = lines.into_iter().filter_map(|line| {
        let cap = line.cap.filter(|cap| *cap > 0)?;
        let used = line.used.saturating_add(line.reserved);
        if used.saturating_mul(100) < cap.saturating_mul(NEARLY_PERCENT) {
            return None;
        }
        let resource = line.resource.as_str();
        Some(Happening {
            event,
            // Another cap is another subject.
            subject: format!("budget/{}/{resource}/{cap}", campaign.id),
            ended_at: None,
            message: WebhookMessage {
                resource: Some(resource.to_owned()),
                used: Some(used),
                cap: Some(cap),
                ..message(event, campaign, at)
            },
        })
    });
    Ok(happenings.collect())
}
