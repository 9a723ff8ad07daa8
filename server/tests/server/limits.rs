//! Tests of the limits of an existing campaign.

use nightshift_protocol::api::{CampaignCreated, CampaignDetail, SetLimits};
use nightshift_protocol::budget::{BudgetCaps, Resource};
use nightshift_protocol::campaign::ModelChoice;
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;
use serde_json::json;

use crate::setup::{TestServer, Wish, ok, open_store, refusal, refused};

fn schedule(window: &str, time_zone: &str) -> Schedule {
    Schedule { window: window.parse().unwrap(), time_zone: time_zone.to_owned() }
}

#[tokio::test]
async fn only_the_given_limits_are_changed() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, _) = server.campaign().await;
    let path = format!("/campaigns/{}/limits", created.campaign);
    let night = schedule("20:00-07:30", "Europe/Berlin");
    let limits = SetLimits { schedule: Some(night.clone()), weight: Some(5), ..SetLimits::default() };
    let detail: CampaignDetail = ok(server.post(&path).json(&limits).send().await.unwrap()).await;
    assert_eq!((detail.summary.schedule, detail.summary.weight), (Some(night), 5));

    let caps = BudgetCaps { tokens: Some(1_000), ..BudgetCaps::default() };
    let limits = SetLimits { budget: Some(caps), no_schedule: true, ..SetLimits::default() };
    let detail: CampaignDetail = ok(server.post(&path).json(&limits).send().await.unwrap()).await;
    assert_eq!((detail.summary.schedule, detail.summary.weight), (None, 5));
    let tokens = detail.budget.iter().find(|line| line.resource == Resource::Tokens).unwrap();
    assert_eq!(tokens.cap, Some(1_000));
    server.stop().await;
}

#[tokio::test]
async fn a_new_cap_on_money_needs_known_prices() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let mut request = server.request(&["softmax"]).await;
    request.spec.models.fallback.push(ModelChoice::Live { endpoint: "lab".to_owned(), model: "unpriced".to_owned() });
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let path = format!("/campaigns/{}/limits", created.campaign);
    let set = |cap: Option<u64>| {
        let budget = Some(BudgetCaps { tokens: Some(1_000), cost_microusd: cap, ..BudgetCaps::default() });
        server.post(&path).json(&SetLimits { budget, ..SetLimits::default() }).send()
    };
    assert_eq!(refused(set(Some(1)).await.unwrap()).await, refusal(400, "campaign.unknown_price"));
    ok::<CampaignDetail>(set(None).await.unwrap()).await;
    server.stop().await;
}

#[tokio::test]
async fn an_existing_cap_on_money_may_become_smaller_without_a_price() {
    let folder = tempfile::tempdir().unwrap();
    let store = open_store(&folder).await.ports();
    let server = TestServer::on(store.clone(), Wish::default()).await;
    let mut request = server.request(&["softmax"]).await;
    request.spec.models.fallback.push(ModelChoice::Live { endpoint: "lab".to_owned(), model: "unpriced".to_owned() });
    let created: CampaignCreated = ok(server.create(&request, None).await).await;
    let caps = |cost_microusd: Option<u64>| BudgetCaps { cost_microusd, ..BudgetCaps::default() };
    store.budgets.set_budget(&created.campaign, caps(Some(20)), TimestampMs(0)).await.unwrap();
    let path = format!("/campaigns/{}/limits", created.campaign);
    let set = |cap: Option<u64>| {
        server.post(&path).json(&SetLimits { budget: Some(caps(cap)), ..SetLimits::default() }).send()
    };
    assert_eq!(refused(set(Some(21)).await.unwrap()).await, refusal(400, "campaign.unknown_price"));
    for cap in [Some(20), Some(10), None] {
        ok::<CampaignDetail>(set(cap).await.unwrap()).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn limits_that_nothing_could_keep_are_refused_before_any_is_changed() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let (created, _) = server.campaign().await;
    let path = format!("/campaigns/{}/limits", created.campaign);
    let none = SetLimits::default();
    let cases = [
        (none.clone(), "request.invalid"),
        (
            SetLimits { no_schedule: true, schedule: Some(schedule("20:00-07:30", "UTC")), ..none.clone() },
            "request.invalid",
        ),
        (
            SetLimits { weight: Some(3), schedule: Some(schedule("20:00-07:30", "Moon/Base")), ..none.clone() },
            "campaign.bad_schedule",
        ),
        (SetLimits { schedule: Some(schedule("20:00-20:01", "UTC")), ..none.clone() }, "campaign.window_too_short"),
        (SetLimits { weight: Some(0), ..none.clone() }, "campaign.invalid_weight"),
        (SetLimits { weight: Some(101), ..none.clone() }, "campaign.invalid_weight"),
    ];
    for (limits, code) in cases {
        let answer = server.post(&path).json(&limits).send().await.unwrap();
        assert_eq!(refused(answer).await, refusal(400, code), "{limits:?}");
    }
    let nothing = json!({ "budget": { "tokens": 0 } });
    let (status, code) = refused(server.post(&path).json(&nothing).send().await.unwrap()).await;
    assert_eq!((status, code.starts_with("campaign.")), (400, true), "{code}");
    let detail: CampaignDetail = server.read(&format!("/campaigns/{}", created.campaign)).await;
    assert_eq!(detail.summary.weight, 1);
    let unknown = "/campaigns/cmp_00000000000000000000000000000000/limits";
    let answer = server.post(unknown).json(&SetLimits { weight: Some(2), ..none }).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(404, "campaign.not_found"));
    server.stop().await;
}
