//! Tests of webhook deliveries: once per subject, by one server at a time.

use nightshift_engine::store::{
    Creation, CreationStore as _, DeliveryEnd, NewDelivery, PageRequest, WebhookRecord, WebhookStore,
};
use nightshift_protocol::api::{Delivery, DeliveryStatus, Webhook, WebhookEvent, WebhookMessage};
use nightshift_protocol::id::{CampaignId, DeliveryId, WebhookId};
use nightshift_protocol::time::TimestampMs;

use crate::bench::Bench;

crate::bench::on_both!(
    the_same_subject_is_delivered_once,
    a_delivery_is_taken_by_one_server_at_a_time,
    a_try_that_was_taken_over_ends_nothing,
    a_subject_of_an_unfinished_campaign_is_never_forgotten,
    a_webhook_goes_with_its_deliveries_and_there_are_so_many,
    unfinished_and_recently_ended_runs_are_returned,
);

fn all() -> PageRequest {
    PageRequest { limit: 100, before: None }
}

impl Bench {
    async fn webhook(&self) -> WebhookRecord {
        let view = Webhook {
            id: WebhookId::from_uuid(self.uuid()),
            url: "https://example.com/".to_owned(),
            events: vec![WebhookEvent::NewBest, WebhookEvent::RunFailed],
            campaign: None,
            allow_private: true,
            author: "ada".to_owned(),
            created_at: self.now(),
        };
        let record = WebhookRecord { view, secret: "a secret that signs".to_owned() };
        self.store.create(Creation::Webhook { webhook: record.clone(), limit: 2 }, None).await.unwrap();
        record
    }

    fn delivery(&self, webhook: &WebhookId, subject: &str) -> NewDelivery {
        let message = WebhookMessage {
            version: 1,
            event: WebhookEvent::NewBest,
            at: self.now(),
            campaign: CampaignId::from_uuid(self.uuid()),
            campaign_name: "a night".to_owned(),
            run: None,
            task: Some("softmax".to_owned()),
            attempt: Some(3),
            speedup: None,
            speedup_over_fastest: None,
            failure: None,
            resource: None,
            used: None,
            cap: None,
        };
        let id = DeliveryId::from_uuid(self.uuid());
        NewDelivery { id, webhook: webhook.clone(), subject: subject.to_owned(), message }
    }

    async fn take(&self, webhook: &WebhookId) -> Vec<Delivery> {
        let now = self.now();
        self.store.take_deliveries(webhook, now, now.plus_ms(60_000), 10).await.unwrap()
    }

    async fn only(&self, webhook: &WebhookId) -> Delivery {
        self.store.list_deliveries(webhook, &all()).await.unwrap().remove(0).item
    }
}

async fn the_same_subject_is_delivered_once(bench: Bench) {
    let webhook = bench.webhook().await.view.id;
    let first = bench.delivery(&webhook, "a");
    let again = bench.delivery(&webhook, "a");
    let stranger = bench.delivery(&WebhookId::from_uuid(bench.uuid()), "a");
    let put = async |deliveries: Vec<NewDelivery>| bench.store.put_deliveries(deliveries, bench.now()).await.unwrap();
    assert_eq!(put(vec![first.clone(), again, stranger]).await, 1);
    assert_eq!(put(vec![bench.delivery(&webhook, "a"), bench.delivery(&webhook, "b")]).await, 1);
    let listed = bench.store.list_deliveries(&webhook, &all()).await.unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!((&listed[1].item.id, &listed[1].item.message), (&first.id, &first.message));
    let page = PageRequest { limit: 1, before: Some(listed[0].place.to_string()) };
    let rest = bench.store.list_deliveries(&webhook, &page).await.unwrap();
    assert_eq!(rest[0].item.id, first.id);
}

async fn a_delivery_is_taken_by_one_server_at_a_time(bench: Bench) {
    let webhook = bench.webhook().await.view.id;
    let deliveries = (0..8).map(|number| bench.delivery(&webhook, &number.to_string())).collect();
    bench.store.put_deliveries(deliveries, bench.now()).await.unwrap();
    let (here, there) = tokio::join!(
        async { bench.store.take_deliveries(&webhook, bench.now(), bench.now().plus_ms(60_000), 5).await.unwrap() },
        async { bench.store.take_deliveries(&webhook, bench.now(), bench.now().plus_ms(60_000), 5).await.unwrap() },
    );
    let mut taken: Vec<&DeliveryId> = here.iter().chain(&there).map(|delivery| &delivery.id).collect();
    assert!(here.iter().chain(&there).all(|delivery| delivery.tries == 1));
    let many = taken.len();
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), many, "each by one of both");
    let due = async || bench.store.due_webhooks(bench.now()).await.unwrap();
    // The next call takes what the other one had leased; nothing is due twice.
    assert_eq!(many + bench.take(&webhook).await.len(), 8);
    assert!(bench.take(&webhook).await.is_empty());
    assert!(due().await.is_empty());
    // The server that took them died: they are due again.
    bench.clock.forward(61_000);
    assert_eq!(due().await, std::slice::from_ref(&webhook));
    let other = bench.webhook().await.view.id;
    assert!(bench.take(&other).await.is_empty(), "each webhook has its own");
    assert_eq!(bench.take(&webhook).await.len(), 8);
}

async fn a_try_that_was_taken_over_ends_nothing(bench: Bench) {
    let webhook = bench.webhook().await.view.id;
    bench.store.put_deliveries(vec![bench.delivery(&webhook, "a")], bench.now()).await.unwrap();
    let first = bench.take(&webhook).await.remove(0);
    bench.clock.forward(61_000);
    let second = bench.take(&webhook).await.remove(0);
    assert_eq!(second.tries, 2);
    bench.store.end_delivery(&first.id, first.tries, DeliveryEnd::Delivered).await.unwrap();
    assert_eq!(bench.only(&webhook).await.status, DeliveryStatus::Pending, "it came too late");
    let later = bench.now().plus_ms(5_000);
    let end = DeliveryEnd::Again { at: later, problem: "503\0".to_owned() };
    bench.store.end_delivery(&second.id, second.tries, end).await.unwrap();
    let waits = bench.only(&webhook).await;
    assert_eq!((waits.next_at, waits.problem.as_deref()), (Some(later), Some("503\u{fffd}")));
    assert!(bench.take(&webhook).await.is_empty(), "not before its time");
    bench.clock.forward(5_000);
    let third = bench.take(&webhook).await.remove(0);
    let end = DeliveryEnd::GivenUp { problem: "503".to_owned() };
    bench.store.end_delivery(&third.id, third.tries, end).await.unwrap();
    assert_eq!(bench.only(&webhook).await.status, DeliveryStatus::GivenUp);
    let repeated = bench.store.repeat_delivery(&third.id, bench.now()).await.unwrap();
    assert_eq!((repeated.status, repeated.tries), (DeliveryStatus::Pending, 0));
    let fourth = bench.take(&webhook).await.remove(0);
    bench.store.end_delivery(&fourth.id, fourth.tries, DeliveryEnd::Delivered).await.unwrap();
    let done = bench.only(&webhook).await;
    assert_eq!((done.status, done.next_at, done.problem), (DeliveryStatus::Delivered, None, None));
    let unknown = bench.store.repeat_delivery(&DeliveryId::from_uuid(bench.uuid()), bench.now()).await;
    assert_eq!(unknown.unwrap_err().code(), "delivery.not_found");
    assert_eq!(bench.store.forget_deliveries(bench.now()).await.unwrap(), 1);
    // A repeated subject would be delivered again, so only old deliveries are deleted.
    assert!(bench.store.list_deliveries(&webhook, &all()).await.unwrap().is_empty());
}

async fn a_subject_of_an_unfinished_campaign_is_never_forgotten(bench: Bench) {
    let webhook = bench.webhook().await.view.id;
    let created = bench.create(bench.new_campaign(2)).await;
    let mut delivery = bench.delivery(&webhook, "a new best\0");
    delivery.message.campaign = created.id.clone();
    delivery.message.task = Some("soft\0max".to_owned());
    bench.store.put_deliveries(vec![delivery, bench.delivery(&webhook, "b")], bench.now()).await.unwrap();
    for taken in bench.take(&webhook).await {
        bench.store.end_delivery(&taken.id, taken.tries, DeliveryEnd::Delivered).await.unwrap();
    }
    bench.complete_run(&created.runs[0]).await;
    bench.clock.forward(1);
    assert_eq!(bench.store.forget_deliveries(bench.now()).await.unwrap(), 1);
    assert_eq!(bench.only(&webhook).await.message.campaign, created.id);
    bench.complete_run(&created.runs[1]).await;
    assert_eq!(bench.store.forget_deliveries(bench.now()).await.unwrap(), 1);
}

async fn a_webhook_goes_with_its_deliveries_and_there_are_so_many(bench: Bench) {
    let (first, second) = (bench.webhook().await, bench.webhook().await);
    let listed = bench.store.list_webhooks().await.unwrap();
    assert_eq!(listed, [second.clone(), first.clone()]);
    assert!(!format!("{listed:?}").contains(&first.secret));
    let third = WebhookRecord {
        view: Webhook { id: WebhookId::from_uuid(bench.uuid()), ..first.view.clone() },
        ..first.clone()
    };
    assert_eq!(
        bench.store.create(Creation::Webhook { webhook: third, limit: 2 }, None).await.unwrap_err().code(),
        "webhook.too_many"
    );
    bench.store.put_deliveries(vec![bench.delivery(&first.view.id, "a")], bench.now()).await.unwrap();
    bench.store.delete_webhook(&first.view.id).await.unwrap();
    assert!(bench.take(&first.view.id).await.is_empty());
    assert_eq!(bench.store.delete_webhook(&first.view.id).await.unwrap_err().code(), "webhook.not_found");
    let gone = bench.store.list_deliveries(&first.view.id, &all()).await;
    assert_eq!(gone.unwrap_err().code(), "webhook.not_found");
    assert_eq!(bench.store.list_webhooks().await.unwrap(), [second]);
}

async fn unfinished_and_recently_ended_runs_are_returned(bench: Bench) {
    let created = bench.create(bench.new_campaign(3)).await;
    let [old, lately, open] = created.runs.as_slice() else { panic!("three runs") };
    for run in [old, lately] {
        bench.complete_run(run).await;
        bench.clock.forward(10_000);
    }
    let since = TimestampMs(bench.now().0 - 15_000);
    let told = bench.store.runs_to_tell(since, 0, 10).await.unwrap();
    let runs: Vec<_> = told.iter().map(|run| &run.item.run).collect();
    assert_eq!(runs, [lately, open]);
    assert!(told[0].item.finished_at.is_some() && told[1].item.finished_at.is_none());
    let rest = bench.store.runs_to_tell(since, told[0].place, 10).await.unwrap();
    assert_eq!(rest.iter().map(|run| &run.item.run).collect::<Vec<_>>(), [open]);
}
