//! Tells addresses what happens. What is to be told is written down first, from what the store knows, once for each
//! subject; then it is sent, and tried again with growing delays until it is taken or given up. Whoever tries a delivery
//! keeps it from other servers for as long as the try may last: an address may hear of something twice, when a server
//! dies at the wrong moment, and tells that by the id of the delivery.

mod address;
mod send;
mod tell;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use nightshift_engine::store::{Notice, StoreError, WebhookRecord, WebhookStore};
use nightshift_protocol::id::{RunId, WebhookId};
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use self::address::is_private;
use self::send::Sender;
use self::tell::Teller;
use crate::app::App;

/// How often it is looked for what is to be told and sent.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the list of webhooks is believed: another server may have changed it.
const BELIEVED_FOR: Duration = Duration::from_secs(5);
/// How often all runs are looked at that somebody may have to be told of, for what notices did not say.
const SURVEY_EVERY: Duration = Duration::from_mins(10);
/// Runs that changed and were not looked at yet.
const MAX_WAITING: usize = 20_000;
/// How long deliveries are kept, in milliseconds: thirty days.
const KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1_000;

/// This loop in complaints.
const TELLING: &str = "telling webhooks what happened";

/// The loop. Ends with the server.
pub(crate) async fn run(app: Arc<App>) {
    let Some(store) = app.store.webhooks() else { return app.shutdown.cancelled().await };
    let sender = match Sender::new() {
        Ok(sender) => sender,
        Err(error) => {
            tracing::error!(error = %error, "webhooks are told nothing: the HTTP client cannot be set up");
            return app.shutdown.cancelled().await;
        }
    };
    let mut state = State { app: &app, store, webhooks: Vec::new(), teller: Teller::default(), looked: None };
    // A webhook that is slow to answer delays its own deliveries only.
    let mut sending = FuturesUnordered::new();
    let mut busy: HashSet<WebhookId> = HashSet::new();
    let mut notices = app.store.notices();
    let mut runs: HashSet<RunId> = HashSet::new();
    let mut survey = Instant::now();
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            notice = notices.next() => match notice {
                Some(Notice::RunChanged(run)) if !state.webhooks.is_empty() && runs.len() < MAX_WAITING => {
                    runs.insert(run);
                }
                Some(Notice::RunChanged(_)) if state.webhooks.is_empty() => {}
                Some(Notice::RunChanged(_) | Notice::Unknown) => survey = Instant::now(),
                Some(Notice::Ready(_) | Notice::TimerSet) => {}
                None => {
                    notices = app.store.notices();
                    survey = Instant::now();
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            },
            _ = tick.tick() => {
                let done = tokio::select! {
                    () = app.shutdown.cancelled() => return,
                    done = state.look(&mut runs, &mut survey) => done,
                };
                let due = match done {
                    Ok(due) => due,
                    Err(error) => {
                        app.complaints.failed(TELLING, &error);
                        continue;
                    }
                };
                app.complaints.worked(TELLING);
                for webhook in due {
                    if busy.insert(webhook.view.id.clone()) {
                        let (app, sender) = (&app, &sender);
                        sending.push(async move {
                            let sent = sender.send_due(app, store, &webhook).await;
                            (webhook.view.id, sent)
                        });
                    }
                }
            }
            Some((webhook, sent)) = sending.next(), if !sending.is_empty() => {
                busy.remove(&webhook);
                if let Err(error) = sent {
                    app.complaints.failed(TELLING, &error);
                }
            }
        }
    }
}

struct State<'a> {
    app: &'a Arc<App>,
    store: &'a dyn WebhookStore,
    webhooks: Vec<WebhookRecord>,
    teller: Teller,
    looked: Option<Instant>,
}

impl State<'_> {
    /// Writes down what is to be told; webhooks with deliveries that are due.
    async fn look(
        &mut self,
        runs: &mut HashSet<RunId>,
        survey: &mut Instant,
    ) -> Result<Vec<WebhookRecord>, StoreError> {
        if self.looked.is_none_or(|at| at.elapsed() >= BELIEVED_FOR) {
            let webhooks = self.store.list_webhooks().await?;
            if webhooks != self.webhooks {
                // Who is new may be told of what happened between their making and this look.
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
            self.teller.survey(self.app, self.store, &self.webhooks).await?;
            self.store.forget_deliveries(self.app.clock.now().minus_ms(KEPT_MS)).await?;
            *survey = Instant::now() + SURVEY_EVERY;
        }
        self.teller.changed(self.app, self.store, &self.webhooks, runs).await?;
        let due = self.store.due_webhooks(self.app.clock.now()).await?;
        // One that another server has just made is not known here yet: the list is read again soon.
        Ok(self.webhooks.iter().filter(|webhook| due.contains(&webhook.view.id)).cloned().collect())
    }
}
