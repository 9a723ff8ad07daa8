//! Tests of the fair shares of campaigns.

use nightshift_engine::store::{CampaignStore, NewCampaign, RunControlStore, RunStore};
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};
use nightshift_protocol::step::StepFailure;

use crate::bench::Bench;

crate::bench::on_both!(
    campaigns_share_by_their_weights,
    a_new_campaign_neither_starves_nor_jumps_the_queue,
    a_campaign_that_was_idle_saves_nothing_up,
    priority_is_a_head_start_and_no_more,
    the_priority_of_a_run_moves_its_ready_steps,
    a_weight_may_change,
);

/// Creates a campaign of one run with this many ready steps.
async fn campaign(bench: &Bench, weight: u32, priority: i32, steps: usize) -> (CampaignId, RunId) {
    let created = bench.create(NewCampaign { weight, priority, ..bench.new_campaign(1) }).await;
    schedule(bench, &created.runs[0], "s", steps).await;
    (created.id, created.runs[0].clone())
}

async fn schedule(bench: &Bench, run: &RunId, name: &str, steps: usize) {
    let keys: Vec<String> = (0..steps).map(|n| format!("{name}{n}")).collect();
    bench.schedule(run, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Claims steps one by one. Returns how many of them belong to this run.
async fn share_of(bench: &Bench, run: &RunId, worker: &WorkerId, claims: usize) -> usize {
    let mut of_it = 0;
    for _ in 0..claims {
        let steps = bench.claim(worker, 1).await;
        assert_eq!(steps.len(), 1);
        of_it += usize::from(steps[0].run == *run);
    }
    of_it
}

async fn campaigns_share_by_their_weights(bench: Bench) {
    let worker = bench.worker().await;
    let (_, light) = campaign(&bench, 1, 0, 60).await;
    let (heavy_campaign, heavy) = campaign(&bench, 3, 0, 60).await;
    assert_eq!(bench.store.load_campaign(&heavy_campaign).await.unwrap().weight, 3);
    let of_heavy = share_of(&bench, &heavy, &worker, 40).await;
    assert!((28..=32).contains(&of_heavy), "{of_heavy} of 40");
    assert_eq!(share_of(&bench, &light, &worker, 80).await, 60 - (40 - of_heavy), "both campaigns get their share");
    bench.assert_sound().await;
}

async fn a_new_campaign_neither_starves_nor_jumps_the_queue(bench: Bench) {
    let worker = bench.worker().await;
    campaign(&bench, 1, 0, 60).await;
    bench.claim(&worker, 20).await;
    let (_, new) = campaign(&bench, 1, 0, 60).await;
    let of_new = share_of(&bench, &new, &worker, 20).await;
    assert!((9..=11).contains(&of_new), "{of_new} of 20");
}

async fn a_campaign_that_was_idle_saves_nothing_up(bench: Bench) {
    let worker = bench.worker().await;
    let (_, idle) = campaign(&bench, 1, 0, 1).await;
    campaign(&bench, 1, 0, 60).await;
    bench.claim(&worker, 31).await;
    schedule(&bench, &idle, "late", 30).await;
    let of_idle = share_of(&bench, &idle, &worker, 20).await;
    assert!((9..=11).contains(&of_idle), "{of_idle} of 20");
}

async fn priority_is_a_head_start_and_no_more(bench: Bench) {
    let worker = bench.worker().await;
    let (_, plain) = campaign(&bench, 1, 0, 60).await;
    // One point is worth a minute of steps, which is 60 steps here.
    let (_, urgent) = campaign(&bench, 1, 1, 100).await;
    assert_eq!(share_of(&bench, &urgent, &worker, 59).await, 59);
    let of_plain = share_of(&bench, &plain, &worker, 20).await;
    assert!((8..=12).contains(&of_plain), "{of_plain} of 20");
}

async fn the_priority_of_a_run_moves_its_ready_steps(bench: Bench) {
    let worker = bench.worker().await;
    let (_, first) = campaign(&bench, 1, 0, 3).await;
    let (_, second) = campaign(&bench, 1, 0, 3).await;
    bench.store.set_priority(&second, 5, bench.now()).await.unwrap();
    assert_eq!(bench.store.load_run(&second).await.unwrap().priority, 5);
    bench.assert_sound().await;
    assert_eq!(share_of(&bench, &second, &worker, 3).await, 3);
    schedule(&bench, &second, "later", 2).await;
    assert_eq!(share_of(&bench, &second, &worker, 2).await, 2, "steps that come later, too");
    bench.store.set_priority(&first, -5, bench.now()).await.unwrap();
    let (_, third) = campaign(&bench, 1, 0, 3).await;
    assert_eq!(share_of(&bench, &third, &worker, 3).await, 3, "a negative one lets others go first");
    assert_eq!(share_of(&bench, &first, &worker, 3).await, 3);
    let unknown = RunId::from_uuid(bench.uuid());
    assert_eq!(bench.store.set_priority(&unknown, 1, bench.now()).await.unwrap_err().code(), "run.not_found");
    bench.assert_sound().await;
    bench.complete_run(&first).await;
    let error = bench.store.set_priority(&first, 7, bench.now()).await.unwrap_err();
    assert!(error.code() == "run.over" && error.to_string().contains("completed"), "{error}");
    bench.fail_run(&second, StepFailure::fatal("x", "broken")).await;
    let error = bench.store.set_priority(&second, 7, bench.now()).await.unwrap_err();
    assert!(error.code() == "run.over" && error.to_string().contains("retry it first"), "{error}");
    assert_eq!(bench.store.load_run(&second).await.unwrap().priority, 5, "nothing was changed");
    bench.assert_sound().await;
}

async fn a_weight_may_change(bench: Bench) {
    let worker = bench.worker().await;
    let (campaign_id, run) = campaign(&bench, 1, 0, 0).await;
    let (_, other) = campaign(&bench, 1, 0, 40).await;
    bench.store.set_weight(&campaign_id, 3, bench.now()).await.unwrap();
    schedule(&bench, &run, "s", 40).await;
    let of_other = share_of(&bench, &other, &worker, 40).await;
    assert!((8..=12).contains(&of_other), "{of_other} of 40");
    let unknown = CampaignId::from_uuid(bench.uuid());
    assert_eq!(bench.store.set_weight(&unknown, 1, bench.now()).await.unwrap_err().code(), "campaign.not_found");
}
