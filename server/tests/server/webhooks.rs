//! Tests of webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use nightshift_engine::store::{
    DeliveryEnd, NewDelivery, PageRequest, Placed, RunMark, Store, StoreError, WebhookRecord, WebhookStore,
};
use nightshift_protocol::api::{
    CampaignCreated, CampaignDetail, DELIVERY_HEADER, Delivery, DeliveryStatus, Page, SIGNATURE_HEADER, TryOutcome,
    Webhook, WebhookCreated, WebhookEvent, WebhookMessage,
};
use nightshift_protocol::budget::{Amount, BudgetCaps, Resource};
use nightshift_protocol::id::{DeliveryId, WebhookId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::replicas::{Shared, on_both, replica};
use crate::setup::{OPERATOR, TestServer, Wish, ok, open_store, refusal, refused, until};
use crate::tokens::Shifted;
use crate::toy;

/// A receiver that accepts deliveries, or refuses them for a while.
#[derive(Default)]
struct Receiver {
    heard: Mutex<Vec<(HeaderMap, Bytes)>>,
    refusals: AtomicU64,
}

impl Receiver {
    async fn start(refusals: u64) -> (Arc<Self>, String) {
        let receiver = Arc::new(Self { refusals: AtomicU64::new(refusals), ..Self::default() });
        let router = Router::new().route("/hook", post(Self::hear)).with_state(receiver.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, url)
    }

    async fn hear(State(receiver): State<Arc<Self>>, headers: HeaderMap, body: Bytes) -> StatusCode {
        receiver.heard.lock().await.push((headers, body));
        let refuses = receiver.refusals.load(Ordering::SeqCst) > 0;
        if refuses {
            receiver.refusals.fetch_sub(1, Ordering::SeqCst);
        }
        if refuses { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
    }

    async fn messages(&self) -> Vec<WebhookMessage> {
        self.heard.lock().await.iter().map(|(_, body)| serde_json::from_slice(body).unwrap()).collect()
    }
}

impl TestServer {
    async fn webhook(&self, url: &str, events: &[&str]) -> WebhookCreated {
        let wish = json!({ "url": url, "events": events, "allow_private": true });
        ok(self.post("/webhooks").json(&wish).send().await.unwrap()).await
    }

    async fn deliveries(&self, webhook: &Webhook) -> Vec<Delivery> {
        self.read::<Page<Delivery>>(&format!("/webhooks/{}/deliveries", webhook.id)).await.items
    }

    /// Cancels a run, which ends its campaign.
    async fn cancel(&self, run: &nightshift_protocol::id::RunId) {
        let path = format!("/runs/{run}/control");
        let answer = self.post(&path).json(&json!({ "action": "cancel" })).send().await.unwrap();
        assert!(answer.status().is_success());
        self.until_status(run, RunStatus::Cancelled).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_tell_an_address_once_that_a_campaign_is_over() {
    on_both(async |shared: Shared| {
        let (here, there) = (shared.server(replica()).await, shared.server(replica()).await);
        let (receiver, url) = Receiver::start(0).await;
        let made = here.webhook(&url, &["campaign_finished", "run_finished"]).await;
        let (created, run) = here.campaign().await;
        here.cancel(&run).await;
        let delivery = until("the delivery", || async {
            here.deliveries(&made.webhook)
                .await
                .into_iter()
                .find(|delivery| delivery.status == DeliveryStatus::Delivered)
        })
        .await;
        assert_eq!(delivery.message.event, WebhookEvent::CampaignFinished);
        assert_eq!(
            (&delivery.message.campaign, delivery.message.campaign_name.as_str()),
            (&created.campaign, "a night")
        );
        // Another campaign, so that both servers had time for duplicates.
        let (_, second) = there.campaign().await;
        there.cancel(&second).await;
        until("the second delivery", || async { (receiver.messages().await.len() == 2).then_some(()) }).await;
        let heard = receiver.heard.lock().await;
        assert_eq!(heard.len(), 2);
        let (headers, body) = &heard[0];
        assert_eq!(headers[DELIVERY_HEADER].to_str().unwrap(), delivery.id.as_str());
        let signature = headers[SIGNATURE_HEADER].to_str().unwrap();
        assert!(signature.starts_with("t=") && signature.split_once(",v1=").unwrap().1.len() == 64, "{signature}");
        let text = std::str::from_utf8(body).unwrap();
        assert!(!text.contains(&made.secret) && !text.contains("spec"), "{text}");
        drop(heard);
        here.stop().await;
        there.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_is_refused_is_tried_again_until_it_is_given_up() {
    let clock = Arc::new(Shifted(AtomicU64::new(0)));
    let (server, _folder) = TestServer::start(Wish { clock: clock.clone(), ..Wish::default() }).await;
    let (receiver, url) = Receiver::start(1).await;
    let made = server.webhook(&url, &["campaign_finished"]).await;
    let (_, run) = server.campaign().await;
    server.cancel(&run).await;
    // The clock advances in leaps. A leap during an attempt requires another one.
    let state = async |status: DeliveryStatus, tries: u32, leap_ms: u64| {
        until("the try", || async {
            let delivery = server.deliveries(&made.webhook).await.into_iter().next()?;
            let is_over = delivery.problem.is_some() == (status != DeliveryStatus::Delivered);
            if delivery.status == status && delivery.tries == tries && is_over {
                return Some(delivery);
            }
            clock.0.fetch_add(leap_ms, Ordering::SeqCst);
            None
        })
        .await
    };
    let waits = state(DeliveryStatus::Pending, 1, 0).await;
    assert!(waits.problem.unwrap().contains("503"));
    state(DeliveryStatus::Delivered, 2, 11_000).await;
    let ids: Vec<String> = receiver
        .heard
        .lock()
        .await
        .iter()
        .map(|(headers, _)| headers[DELIVERY_HEADER].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids[0], ids[1], "a second copy can be told");
    // A delivery that is never accepted.
    receiver.refusals.store(1_000, Ordering::SeqCst);
    let path = format!("/deliveries/{}/repeat", waits.id);
    let repeated: Delivery = ok(server.post(&path).send().await.unwrap()).await;
    assert_eq!((repeated.status, repeated.tries), (DeliveryStatus::Pending, 0));
    let given_up = state(DeliveryStatus::GivenUp, 8, 7 * 3_600_000).await;
    assert!(given_up.problem.unwrap().contains("503") && given_up.next_at.is_none());
    assert_eq!(receiver.heard.lock().await.len(), 2 + 8, "each try once, and none after the last");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_does_not_answer_delays_no_other_one() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (receiver, url) = Receiver::start(0).await;
    // This address accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = server.webhook(&format!("http://{}/", silent.local_addr().unwrap()), &["campaign_finished"]).await;
    server.webhook(&url, &["campaign_finished"]).await;
    // The machine may be as slow as the webhook once, but not each time.
    let mut in_time = false;
    for round in 1..=3 {
        let (_, run) = server.campaign().await;
        server.cancel(&run).await;
        let tried = until("a try that waits for an answer", || async {
            let deliveries = server.deliveries(&slow.webhook).await;
            deliveries.into_iter().find(|delivery| delivery.tries == 1 && delivery.problem.is_none())
        })
        .await;
        until("its copy", || async { (receiver.messages().await.len() == 2 * round - 1).then_some(()) }).await;
        let (_, run) = server.campaign().await;
        server.cancel(&run).await;
        until("the next one", || async { (receiver.messages().await.len() == 2 * round).then_some(()) }).await;
        let deliveries = server.deliveries(&slow.webhook).await;
        in_time |= deliveries.iter().any(|delivery| delivery.id == tried.id && delivery.problem.is_none());
        if in_time {
            break;
        }
    }
    assert!(in_time, "each time the next delivery was sent only after the try had timed out");
    server.stop().await;
}

/// A store whose look for due deliveries waits, once a delivery is being sent, until that one has ended.
struct SlowLooks {
    inner: Arc<dyn WebhookStore>,
    taken: AtomicBool,
    looks: Notify,
    ended: CancellationToken,
}

#[async_trait]
impl WebhookStore for SlowLooks {
    async fn list_webhooks(&self) -> Result<Vec<WebhookRecord>, StoreError> {
        self.inner.list_webhooks().await
    }

    async fn delete_webhook(&self, id: &WebhookId) -> Result<(), StoreError> {
        self.inner.delete_webhook(id).await
    }

    async fn put_deliveries(&self, deliveries: Vec<NewDelivery>, at: TimestampMs) -> Result<u64, StoreError> {
        self.inner.put_deliveries(deliveries, at).await
    }

    async fn due_webhooks(&self, at: TimestampMs) -> Result<Vec<WebhookId>, StoreError> {
        if self.taken.load(Ordering::SeqCst) {
            self.looks.notify_one();
            self.ended.cancelled().await;
        }
        self.inner.due_webhooks(at).await
    }

    async fn take_deliveries(
        &self,
        webhook: &WebhookId,
        at: TimestampMs,
        until: TimestampMs,
        limit: u32,
    ) -> Result<Vec<Delivery>, StoreError> {
        let taken = self.inner.take_deliveries(webhook, at, until, limit).await?;
        self.taken.fetch_or(!taken.is_empty(), Ordering::SeqCst);
        Ok(taken)
    }

    async fn end_delivery(&self, id: &DeliveryId, tries: u32, end: DeliveryEnd) -> Result<(), StoreError> {
        let done = self.inner.end_delivery(id, tries, end).await;
        self.ended.cancel();
        done
    }

    async fn list_deliveries(
        &self,
        webhook: &WebhookId,
        page: &PageRequest,
    ) -> Result<Vec<Placed<Delivery>>, StoreError> {
        self.inner.list_deliveries(webhook, page).await
    }

    async fn repeat_delivery(&self, id: &DeliveryId, at: TimestampMs) -> Result<Delivery, StoreError> {
        self.inner.repeat_delivery(id, at).await
    }

    async fn forget_deliveries(&self, before: TimestampMs) -> Result<u64, StoreError> {
        self.inner.forget_deliveries(before).await
    }

    async fn runs_to_tell(
        &self,
        ended_after: TimestampMs,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Placed<RunMark>>, StoreError> {
        self.inner.runs_to_tell(ended_after, after, limit).await
    }
}

#[tokio::test]
async fn a_delivery_that_was_accepted_ends_while_the_store_is_slow() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await.ports();
    let slow = Arc::new(SlowLooks {
        inner: store.webhooks.clone(),
        taken: AtomicBool::new(false),
        looks: Notify::new(),
        ended: CancellationToken::new(),
    });
    let server = TestServer::on(Store { webhooks: slow.clone(), ..store }, Wish::default()).await;
    // It answers after the loop has begun to wait for the store.
    let answer = |State(slow): State<Arc<SlowLooks>>| async move {
        slow.looks.notified().await;
        StatusCode::NO_CONTENT
    };
    let router = Router::new().route("/hook", post(answer)).with_state(slow);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let made = server.webhook(&url, &["campaign_finished"]).await;
    let (_, run) = server.campaign().await;
    server.cancel(&run).await;
    until("the end of the delivery", || async {
        let deliveries = server.deliveries(&made.webhook).await;
        deliveries.iter().any(|delivery| delivery.status == DeliveryStatus::Delivered).then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn addresses_of_this_machine_and_what_is_no_address_are_refused() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let create = async |wish: Value| server.post("/webhooks").json(&wish).send().await.unwrap();
    for url in [
        "http://127.0.0.1:1/x",
        "http://localhost/x",
        "http://a.localhost./x",
        "http://[::1]/x",
        "http://169.254.169.254/latest/meta-data",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::ffff:10.0.0.1]/",
    ] {
        let answer = create(json!({ "url": url, "events": ["new_best"] })).await;
        assert_eq!(refused(answer).await, refusal(400, "webhook.private_address"), "{url}");
    }
    for wish in [
        json!({ "url": "ftp://example.com/", "events": ["new_best"] }),
        json!({ "url": "https://user:word@example.com/", "events": ["new_best"] }),
        json!({ "url": "example.com", "events": ["new_best"] }),
        json!({ "url": "https://example.com/", "events": [] }),
        json!({ "url": "https://example.com/", "events": ["new_best"], "secret": "short" }),
    ] {
        assert_eq!(refused(create(wish.clone()).await).await, refusal(400, "webhook.invalid"), "{wish}");
    }
    let unknown = json!({ "url": "https://example.com/", "events": ["sunrise"] });
    assert_eq!(refused(create(unknown).await).await, refusal(400, "request.invalid"));
    let made: WebhookCreated =
        ok(create(json!({ "url": "https://example.com/", "events": ["new_best", "new_best"] })).await).await;
    assert!(made.secret.starts_with("nsw_") && made.webhook.events == [WebhookEvent::NewBest]);
    let listed = server.get("/webhooks").send().await.unwrap().text().await.unwrap();
    assert!(listed.contains("example.com") && !listed.contains(&made.secret));
    let path = format!("/webhooks/{}", made.webhook.id);
    let gone = server.call(Method::DELETE, &path, OPERATOR).send().await.unwrap();
    assert_eq!(gone.status().as_u16(), 204);
    let again = server.call(Method::DELETE, &path, OPERATOR).send().await.unwrap();
    assert_eq!(refused(again).await, refusal(404, "webhook.not_found"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nearly_used_budget_a_new_best_and_a_failed_run_are_delivered() {
    let reserve = vec![Amount { resource: Resource::Tokens, amount: 95 }];
    let (server, _folder) = TestServer::start(Wish { reserve, ..Wish::default() }).await;
    let mut request = server.request(&[toy::FINDS_A_BEST]).await;
    request.spec.budget = BudgetCaps { tokens: Some(100), ..BudgetCaps::default() };
    let good: CampaignCreated = ok(server.create(&request, None).await).await;
    let path = format!("/campaigns/{}", good.campaign);
    until("what the first step sets aside", || async {
        let detail: CampaignDetail = server.read(&path).await;
        detail.budget.iter().any(|line| line.resource == Resource::Tokens && line.reserved == 95).then_some(())
    })
    .await;
    let (receiver, url) = Receiver::start(0).await;
    server.webhook(&url, &["new_best", "run_failed", "budget_nearly_used"]).await;
    let told = async |event: WebhookEvent| {
        until(event.as_str(), || async { receiver.messages().await.into_iter().find(|message| message.event == event) })
            .await
    };
    // The reservation of its first step is nine tenths of the cap.
    let budget = told(WebhookEvent::BudgetNearlyUsed).await;
    assert_eq!((&budget.campaign, budget.resource.as_deref()), (&good.campaign, Some("tokens")));
    assert_eq!((budget.used, budget.cap, budget.run), (Some(95), Some(100), None));

    let worker = server.register().await;
    let step = server.claim_one(&worker).await;
    let prepared = TryOutcome::Completed { output: Box::new(toy::prepared_output()) };
    server.report(&worker, &step, prepared).await;
    let best = told(WebhookEvent::NewBest).await;
    assert_eq!((best.run.as_ref(), best.task.as_deref()), (Some(&good.runs[0]), Some(toy::FINDS_A_BEST)));
    assert_eq!((best.attempt, best.speedup.map(|interval| interval.estimate)), (Some(3), Some(2.0)));

    let (_, failing) = server.campaign().await;
    let step = server.claim_one(&worker).await;
    let failure = StepFailure::fatal("toolchain.missing", "no compiler");
    server.report(&worker, &step, TryOutcome::Failed { failure }).await;
    let failed = told(WebhookEvent::RunFailed).await;
    assert_eq!((failed.run.as_ref(), failed.failure.as_deref()), (Some(&failing), Some("toolchain.missing")));
    let counted = receiver.messages().await.len();
    assert_eq!(counted, 3, "each once, and nothing else: {:?}", receiver.messages().await);
    server.stop().await;
}
