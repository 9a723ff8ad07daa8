//! Sends webhooks.
//!
//! Deliveries are stored first, once per subject, and then sent. A failed delivery is retried with increasing delays
//! until it is accepted or given up. The server that sends a delivery leases it for longer than an attempt takes. A
//! delivery may be sent twice if a server dies at the wrong moment; receivers recognize that by its id.

mod address;
mod deliveries;
mod send;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use nightshift_engine::store::{Notice, StoreError, WebhookRecord, WebhookStore};
use nightshift_protocol::id::{RunId, WebhookId};
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use self::address::is_private;
use self::deliveries::DeliveryWriter;
use self::send::Sender;
use crate::shared::Shared;

/// Polling interval for new and due deliveries.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Lifetime of the cached list of webhooks, which another server may have changed.
const BELIEVED_FOR: Duration = Duration::from_secs(5);
/// Time between two scans of all relevant runs, which cover lost notices.
const SURVEY_EVERY: Duration = Duration::from_mins(10);
/// Maximum number of changed runs that wait for a look.
const MAX_WAITING: usize = 20_000;
/// Retention time of deliveries, in milliseconds: thirty days.
const KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1_000;

/// Name of this loop in error logs.
const SENDING: &str = "sending webhooks";

/// Runs the loop until the server ends.
pub(crate) async fn run(shared: Arc<Shared>) {
    let store = &*shared.store.webhooks;
    let sender = match Sender::new() {
        Ok(sender) => sender,
        Err(error) => {
            tracing::error!(error = %error, "no webhooks are sent: the HTTP client cannot be created");
            return shared.shutdown.cancelled().await;
        }
    };
    let mut state =
        State { shared: &shared, store, webhooks: Vec::new(), writer: DeliveryWriter::default(), looked: None };
    // A slow webhook delays only its own deliveries.
    let mut sending = FuturesUnordered::new();
    let mut busy: HashSet<WebhookId> = HashSet::new();
    let mut notices = shared.store.database.notices();
    let mut runs: HashSet<RunId> = HashSet::new();
    let mut survey = Instant::now();
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shared.shutdown.cancelled() => return,
            notice = notices.next() => match notice {
                Some(Notice::RunChanged(run)) if !state.webhooks.is_empty() && runs.len() < MAX_WAITING => {
                    runs.insert(run.id);
                }
                Some(Notice::RunChanged(_)) if state.webhooks.is_empty() => {}
                Some(Notice::RunChanged(_) | Notice::Unknown) => survey = Instant::now(),
                Some(Notice::Ready(_) | Notice::TimerSet(_)) => {}
                None => {
                    notices = shared.store.database.notices();
                    survey = Instant::now();
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            },
            _ = tick.tick() => {
                let mut look = std::pin::pin!(state.look(&mut runs, &mut survey));
                let done = loop {
                    tokio::select! {
                        () = shared.shutdown.cancelled() => return,
                        done = &mut look => break done,
                        // An accepted delivery must not time out while the store is slow.
                        Some(ended) = sending.next(), if !sending.is_empty() => end_sending(&shared, &mut busy, ended),
                    }
                };
                let due = match done {
                    Ok(due) => due,
                    Err(error) => {
                        shared.error_log.failed(SENDING, &error);
                        continue;
                    }
                };
                shared.error_log.worked(SENDING);
                for webhook in due {
                    if busy.insert(webhook.view.id.clone()) {
                        let (shared, sender) = (&shared, &sender);
                        sending.push(async move {
                            let sent = sender.send_due(shared, store, &webhook).await;
                            (webhook.view.id, sent)
                        });
                    }
                }
            }
            Some(ended) = sending.next(), if !sending.is_empty() => end_sending(&shared, &mut busy, ended),
        }
    }
}

/// Records that the due deliveries of a webhook were sent.
fn end_sending(shared: &Shared, busy: &mut HashSet<WebhookId>, (webhook, sent): (WebhookId, Result<(), StoreError>)) {
    busy.remove(&webhook);
    if let Err(error) = sent {
        shared.error_log.failed(SENDING, &error);
    }
}

struct State<'a> {
    shared: &'a Arc<Shared>,
    store: &'a dyn WebhookStore,
    webhooks: Vec<WebhookRecord>,
    writer: DeliveryWriter,
    looked: Option<Instant>,
}

impl State<'_> {
    /// Stores new deliveries. Returns the webhooks with due deliveries.
    async fn look(
        &mut self,
        runs: &mut HashSet<RunId>,
        survey: &mut Instant,
    ) -> Result<Vec<WebhookRecord>, StoreError> {
        if self.looked.is_none_or(|at| at.elapsed() >= BELIEVED_FOR) {
            let webhooks = self.store.list_webhooks().await?;
            if webhooks != self.webhooks {
                // A new webhook also gets events between its creation and this scan.
                *survey = Instant::now();
                self.webhooks = webhooks;
            }
            self.looked = Some(Instant::now());
        }
        if self.webhooks.is_empty() {
            runs.clear();
            return Ok(Vec::new());
        }
        if Instant::now() >= *survey {
            self.writer.survey(self.shared, self.store, &self.webhooks).await?;
            self.store.forget_deliveries(self.shared.clock.now().minus_ms(KEPT_MS)).await?;
            *survey = Instant::now() + SURVEY_EVERY;
        }
        self.writer.changed(self.shared, self.store, &self.webhooks, runs).await?;
        let due = self.store.due_webhooks(self.shared.clock.now()).await?;
        // A webhook that another server has just created is unknown until the list is read again.
        Ok(self.webhooks.iter().filter(|webhook| due.contains(&webhook.view.id)).cloned().collect())
    }
}
