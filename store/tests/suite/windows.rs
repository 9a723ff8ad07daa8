//! Tests of the windows of campaigns.

use nightshift_engine::store::{CampaignStore, NewCampaign, QueueStore, RunControlStore};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::{RunTransition, StepStatus};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;

use crate::bench::{Bench, lost};

crate::bench::on_both!(
    a_step_that_is_wanted_outside_of_the_window_waits_for_its_opening,
    a_step_that_could_not_end_in_time_waits_for_the_next_window,
    a_ready_step_for_which_it_became_too_late_is_not_claimed_and_waits,
    changing_the_window_looks_again_at_steps_that_are_ready_or_wait_for_it,
    a_retry_waits_for_its_own_moment_and_then_for_the_window,
    a_paused_run_resumes_into_its_window,
);

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

fn schedule(window: &str) -> Schedule {
    Schedule { window: window.parse().unwrap(), time_zone: "UTC".to_owned() }
}

/// Creates a campaign of one run with a window from one to two o'clock, at a quarter to one.
async fn at_night(bench: &Bench) -> (CampaignId, RunId) {
    bench.clock.set(TimestampMs(HOUR_MS - 15 * MINUTE_MS));
    let new = NewCampaign { schedule: Some(schedule("01:00-02:00")), ..bench.new_campaign(1) };
    let mut created = bench.create(new).await;
    assert_eq!(bench.store.load_campaign(&created.id).await.unwrap().schedule, Some(schedule("01:00-02:00")));
    (created.id, created.runs.remove(0))
}

async fn a_step_that_is_wanted_outside_of_the_window_waits_for_its_opening(bench: Bench) {
    let (_, run) = at_night(&bench).await;
    let worker = bench.worker().await;
    bench.schedule(&run, &["a"]).await;
    let step = bench.step(&run, "a").await;
    assert_eq!((step.status, step.not_before), (StepStatus::Scheduled, Some(TimestampMs(HOUR_MS))));
    assert!(bench.claim(&worker, 1).await.is_empty());
    bench.assert_sound().await;
    let opens = Some(TimestampMs(HOUR_MS));
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (0, opens));
    bench.clock.set(TimestampMs(HOUR_MS));
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap().0, 1);
    let step = bench.claim(&worker, 1).await.remove(0);
    assert_eq!((step.key.as_str(), step.not_before), ("a", None));
    bench.assert_sound().await;
}

async fn a_step_that_could_not_end_in_time_waits_for_the_next_window(bench: Bench) {
    let (_, run) = at_night(&bench).await;
    // A step may take a minute, so it cannot begin half a minute before two.
    bench.clock.set(TimestampMs(2 * HOUR_MS - MINUTE_MS / 2));
    bench.schedule(&run, &["a"]).await;
    assert_eq!(bench.step(&run, "a").await.not_before, Some(TimestampMs(25 * HOUR_MS)));
    bench.assert_sound().await;
}

async fn a_ready_step_for_which_it_became_too_late_is_not_claimed_and_waits(bench: Bench) {
    let (_, run) = at_night(&bench).await;
    let worker = bench.worker().await;
    bench.clock.set(TimestampMs(HOUR_MS));
    bench.schedule(&run, &["a", "b"]).await;
    let last_start = TimestampMs(2 * HOUR_MS - MINUTE_MS);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (0, Some(last_start.plus_ms(1))));
    bench.clock.set(last_start);
    assert_eq!(bench.claim(&worker, 1).await.len(), 1, "just in time");
    bench.clock.forward(1);
    assert!(bench.claim(&worker, 1).await.is_empty());
    let tomorrow = TimestampMs(25 * HOUR_MS);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (0, Some(tomorrow)));
    assert_eq!(bench.step(&run, "b").await.not_before, Some(tomorrow));
    bench.assert_sound().await;
}

async fn changing_the_window_looks_again_at_steps_that_are_ready_or_wait_for_it(bench: Bench) {
    let (campaign, run) = at_night(&bench).await;
    let worker = bench.worker().await;
    bench.schedule(&run, &["a", "b"]).await;
    bench.store.set_schedule(&campaign, None, bench.now()).await.unwrap();
    bench.assert_sound().await;
    assert_eq!(bench.store.load_campaign(&campaign).await.unwrap().schedule, None);
    assert_eq!(bench.claim(&worker, 1).await[0].key, "a");
    bench.store.set_schedule(&campaign, Some(schedule("03:00-04:00")), bench.now()).await.unwrap();
    bench.assert_sound().await;
    assert!(bench.claim(&worker, 1).await.is_empty());
    assert_eq!(bench.step(&run, "b").await.not_before, Some(TimestampMs(3 * HOUR_MS)));
    assert_eq!(bench.step(&run, "a").await.status, StepStatus::Leased, "what began goes on");
    bench.store.set_schedule(&campaign, Some(schedule("02:00-04:00")), bench.now()).await.unwrap();
    assert_eq!(bench.step(&run, "b").await.not_before, Some(TimestampMs(2 * HOUR_MS)));
    let unknown = CampaignId::from_uuid(bench.uuid());
    let error = bench.store.set_schedule(&unknown, None, bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "campaign.not_found");
}

async fn a_retry_waits_for_its_own_moment_and_then_for_the_window(bench: Bench) {
    let (campaign, run) = at_night(&bench).await;
    let worker = bench.worker().await;
    bench.clock.set(TimestampMs(2 * HOUR_MS - MINUTE_MS));
    bench.schedule(&run, &["a"]).await;
    let step = bench.claim(&worker, 1).await.remove(0);
    let later = bench.now().plus_ms(5 * 60_000);
    bench.report(&step, nightshift_engine::store::TryEnd::Retry { failure: lost(), at: later }).await;
    bench.store.set_schedule(&campaign, Some(schedule("01:00-02:01")), bench.now()).await.unwrap();
    assert_eq!(bench.step(&run, "a").await.not_before, Some(later), "its own moment has nothing to do with a window");
    bench.clock.set(later);
    let tomorrow = TimestampMs(25 * HOUR_MS);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (0, Some(tomorrow)));
    bench.clock.set(tomorrow);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap().0, 1);
    bench.assert_sound().await;
}

async fn a_paused_run_resumes_into_its_window(bench: Bench) {
    let (campaign, run) = at_night(&bench).await;
    bench.clock.set(TimestampMs(HOUR_MS));
    bench.schedule(&run, &["a"]).await;
    bench.store.control_run(&run, RunTransition::Pause, None, bench.now()).await.unwrap();
    bench.clock.set(TimestampMs(2 * HOUR_MS));
    bench.store.set_schedule(&campaign, Some(schedule("05:00-06:00")), bench.now()).await.unwrap();
    bench.assert_sound().await;
    bench.store.control_run(&run, RunTransition::Resume, None, bench.now()).await.unwrap();
    assert_eq!(bench.step(&run, "a").await.not_before, Some(TimestampMs(5 * HOUR_MS)));
    bench.assert_sound().await;
}
