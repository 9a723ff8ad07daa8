//! Tests of budgets: reservations before the work, settled after it.

use futures::future::join_all;
use nightshift_engine::event::Event;
use nightshift_engine::store::{
    BudgetStore, LeaseStore, ModelCallRecord, ModelCallStore, NewCampaign, QueueStore, Reservation, RunControlStore,
    RunStore, ServerStore, StepRecord, TryEnd, WatchStore,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::budget::{Amount, BudgetCaps, Resource};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::{RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use serde_json::json;

use crate::bench::{Bench, LEASE_MS, amount, done, lost, order};
use crate::raw::Raw;

crate::bench::on_both!(
    a_step_sets_its_reserve_aside_when_it_becomes_ready_and_settles_it_at_its_end,
    a_try_uses_up_no_more_than_was_set_aside,
    steps_beyond_the_cap_wait_until_something_is_given_back_oldest_first,
    a_blocked_step_of_a_paused_run_holds_no_other_back,
    blocked_steps_that_need_more_than_the_rest_are_looked_at_once_a_minute,
    a_campaign_that_cannot_be_read_is_looked_at_once_a_minute_and_holds_up_no_other_one,
    an_exhausted_budget_is_logged_once_and_the_step_waits,
    a_higher_cap_lets_waiting_steps_go,
    no_step_begins_after_the_campaign_s_wall_time,
    another_wall_time_holds_for_steps_that_are_ready,
    leaving_the_ready_list_gives_back_what_was_set_aside,
    an_expired_lease_counts_what_may_have_been_used,
    a_retry_reserves_again,
    a_failed_step_used_what_it_says,
    a_leased_step_reserves_and_settles_for_its_calls,
    a_list_of_campaigns_contains_their_totals,
    a_model_call_is_paid_for_once,
    a_call_that_is_open_when_its_try_ends_counts_as_used,
    parallel_reservations_never_exceed_a_cap,
    usage_is_counted_without_caps_too,
);

fn tokens(cap: u64) -> BudgetCaps {
    BudgetCaps { tokens: Some(cap), ..BudgetCaps::default() }
}

fn priced(key: &str, reserve: Vec<Amount>) -> StepOrder {
    StepOrder { reserve, ..order(key) }
}

fn of_tokens(sum: u64) -> Vec<Amount> {
    vec![amount(Resource::Tokens, sum)]
}

async fn schedule(bench: &Bench, run: &RunId, keys: &[&str], sum: u64) {
    bench.schedule_orders(run, keys.iter().map(|key| priced(key, of_tokens(sum))).collect()).await;
}

/// Returns a campaign with this budget, its run, and its only step, which is leased.
async fn leased(bench: &Bench, budget: BudgetCaps, reserve: Vec<Amount>) -> (CampaignId, RunId, StepRecord) {
    let (campaign, run) = bench.run_with_budget(budget).await;
    bench.schedule_orders(&run, vec![priced("a", reserve)]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    (campaign, run, step)
}

async fn exhausted_events(bench: &Bench, run: &RunId) -> usize {
    bench.events(run).await.iter().filter(|event| matches!(event, Event::BudgetExhausted { .. })).count()
}

async fn a_step_sets_its_reserve_aside_when_it_becomes_ready_and_settles_it_at_its_end(bench: Bench) {
    let (campaign, run) = bench.run_with_budget(tokens(100)).await;
    schedule(&bench, &run, &["a"], 30).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (0, 30));
    assert_eq!(bench.step(&run, "a").await.reserve, of_tokens(30));
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (0, 30), "a claim keeps it");
    bench.assert_sound().await;
    bench.report_used(&step, done(json!(1)), of_tokens(12)).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (12, 0));
    bench.report_used(&step, done(json!(1)), of_tokens(12)).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (12, 0), "a second copy is not paid for");
    assert_eq!(bench.line(&campaign, Resource::Tokens).await.cap, Some(100));
    bench.assert_sound().await;
}

async fn a_try_uses_up_no_more_than_was_set_aside(bench: Bench) {
    let (campaign, _, step) = leased(&bench, tokens(100), of_tokens(30)).await;
    let used = vec![amount(Resource::Tokens, 31), amount(Resource::CostMicrousd, 5)];
    bench.report_used(&step, done(json!(1)), used).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (30, 0));
    assert_eq!(bench.spent(&campaign, Resource::CostMicrousd).await, (0, 0));
}

async fn steps_beyond_the_cap_wait_until_something_is_given_back_oldest_first(bench: Bench) {
    let (campaign, run) = bench.run_with_budget(tokens(100)).await;
    schedule(&bench, &run, &["a", "b", "c", "d"], 40).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 9).await;
    assert_eq!(steps.iter().map(|step| step.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (0, 80));
    assert_eq!(bench.step(&run, "c").await.blocked_on, Some(Resource::Tokens));
    assert_eq!(exhausted_events(&bench, &run).await, 0, "it may come back");
    bench.assert_sound().await;
    bench.report_used(&steps[0], done(json!(1)), of_tokens(20)).await;
    let next = bench.claim(&worker, 9).await;
    assert_eq!(next.iter().map(|step| step.key.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(next[0].blocked_on, None);
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (20, 80));
    bench.report_used(&steps[1], done(json!(1)), of_tokens(0)).await;
    assert_eq!(bench.claim(&worker, 9).await[0].key, "d");
    bench.assert_sound().await;
}

async fn a_blocked_step_of_a_paused_run_holds_no_other_back(bench: Bench) {
    let created = bench.create(NewCampaign { budget: tokens(50), ..bench.new_campaign(3) }).await;
    for (run, sum) in created.runs.iter().zip([40, 30, 20]) {
        schedule(&bench, run, &["a"], sum).await;
    }
    bench.store.control_run(&created.runs[1], RunTransition::Pause, None, bench.now()).await.unwrap();
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 9).await.remove(0);
    bench.report_used(&step, done(json!(1)), of_tokens(30)).await;
    assert_eq!(bench.claim(&worker, 9).await[0].run, created.runs[2]);
    bench.assert_sound().await;
}

async fn blocked_steps_that_need_more_than_the_rest_are_looked_at_once_a_minute(bench: Bench) {
    let (_, run) = bench.run_with_budget(tokens(50)).await;
    schedule(&bench, &run, &["a", "b"], 40).await;
    let server = bench.server().await;
    let is_due = async || bench.store.pulse(&server, bench.now(), bench.now().plus_ms(LEASE_MS)).await.unwrap().expired;
    assert!(is_due().await);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (0, None));
    bench.clock.forward(59_999);
    assert!(!is_due().await, "it was looked at without success");
    bench.clock.forward(1);
    assert!(is_due().await);
    bench.store.control_run(&run, RunTransition::Pause, None, bench.now()).await.unwrap();
    assert!(!is_due().await, "no step of a paused run can become ready");
    bench.assert_sound().await;
}

async fn a_campaign_that_cannot_be_read_is_looked_at_once_a_minute_and_holds_up_no_other_one(bench: Bench) {
    let (broken, run) = bench.run_with_budget(tokens(50)).await;
    schedule(&bench, &run, &["a", "b"], 40).await;
    let (_, other) = bench.run_with_budget(tokens(50)).await;
    schedule(&bench, &other, &["a", "b"], 40).await;
    let mut raw = Raw::connect(&bench.place).await;
    raw.execute(&format!("UPDATE campaign SET schedule = '{{' WHERE public_id = '{broken}'")).await;
    let server = bench.server().await;
    let is_due = async || bench.store.pulse(&server, bench.now(), bench.now().plus_ms(LEASE_MS)).await.unwrap().expired;
    assert!(is_due().await);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (0, None));
    assert!(!is_due().await, "both were looked at without success");
    bench.clock.forward(60_000);
    // A release that left the steps of the other campaign to the next look.
    raw.execute(&format!("UPDATE budget SET cap = 90 WHERE campaign_id <> (SELECT id FROM campaign WHERE public_id = '{broken}') AND resource = 'tokens'")).await;
    assert!(is_due().await);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (1, None));
    assert_eq!(bench.step(&other, "b").await.blocked_on, None);
    assert!(!is_due().await);
}

async fn an_exhausted_budget_is_logged_once_and_the_step_waits(bench: Bench) {
    let (campaign, run) = bench.run_with_budget(tokens(100)).await;
    schedule(&bench, &run, &["cheap"], 10).await;
    schedule(&bench, &run, &["dear"], 101).await;
    assert_eq!(
        bench.events(&run).await.last(),
        Some(&Event::BudgetExhausted { key: "dear".to_owned(), resource: Resource::Tokens })
    );
    assert_eq!(bench.step(&run, "dear").await.blocked_on, Some(Resource::Tokens));
    assert_eq!(bench.to_drive().await, std::slice::from_ref(&run), "the workflow ends the run");
    bench.assert_sound().await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 9).await.remove(0);
    bench.report_used(&step, done(json!(1)), of_tokens(10)).await;
    bench.store.control_run(&run, RunTransition::Pause, None, bench.now()).await.unwrap();
    bench.store.control_run(&run, RunTransition::Resume, None, bench.now()).await.unwrap();
    bench.store.set_budget(&campaign, tokens(99), bench.now()).await.unwrap();
    assert_eq!(exhausted_events(&bench, &run).await, 1);
    // A step that waited for a release fails when others have used the budget.
    let (campaign, run) = bench.run_with_budget(tokens(100)).await;
    schedule(&bench, &run, &["first", "second"], 60).await;
    let step = bench.claim(&worker, 9).await.remove(0);
    assert_eq!(exhausted_events(&bench, &run).await, 0);
    bench.report_used(&step, done(json!(1)), of_tokens(60)).await;
    assert_eq!(exhausted_events(&bench, &run).await, 1);
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (60, 0));
    bench.assert_sound().await;
}

async fn a_higher_cap_lets_waiting_steps_go(bench: Bench) {
    let (campaign, run) = bench.run_with_budget(tokens(50)).await;
    schedule(&bench, &run, &["a", "b", "c"], 40).await;
    let worker = bench.worker().await;
    assert_eq!(bench.claim(&worker, 9).await.len(), 1);
    bench.store.set_budget(&campaign, tokens(80), bench.now()).await.unwrap();
    bench.assert_sound().await;
    assert_eq!(bench.claim(&worker, 9).await[0].key, "b");
    bench.store.set_budget(&campaign, BudgetCaps::default(), bench.now()).await.unwrap();
    assert_eq!(bench.claim(&worker, 9).await[0].key, "c");
    let line = bench.line(&campaign, Resource::Tokens).await;
    assert_eq!((line.cap, line.reserved), (None, 120));
    // A lower cap does not revoke existing reservations.
    bench.store.set_budget(&campaign, tokens(10), bench.now()).await.unwrap();
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (0, 120));
    let unknown = CampaignId::from_uuid(bench.uuid());
    let error = bench.store.set_budget(&unknown, tokens(1), bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "campaign.not_found");
    assert_eq!(bench.store.load_budget(&unknown).await.unwrap_err().code(), "campaign.not_found");
    bench.assert_sound().await;
}

async fn no_step_begins_after_the_campaign_s_wall_time(bench: Bench) {
    let budget = BudgetCaps { wall_ms: Some(60_000), ..BudgetCaps::default() };
    let (campaign, run) = bench.run_with_budget(budget).await;
    bench.clock.forward(59_999);
    bench.schedule(&run, &["in_time"]).await;
    bench.clock.forward(1);
    bench.schedule(&run, &["late"]).await;
    assert_eq!(bench.step(&run, "late").await.blocked_on, Some(Resource::WallMs));
    assert_eq!(exhausted_events(&bench, &run).await, 1);
    let worker = bench.worker().await;
    assert!(bench.claim(&worker, 9).await.is_empty(), "it was admitted in time, but did not begin");
    bench.store.fire_timers(bench.now(), 9).await.unwrap();
    assert_eq!(bench.step(&run, "in_time").await.blocked_on, Some(Resource::WallMs));
    assert_eq!(exhausted_events(&bench, &run).await, 2, "the run hears that it is over");
    let more = BudgetCaps { wall_ms: Some(120_000), ..BudgetCaps::default() };
    bench.store.set_budget(&campaign, more, bench.now()).await.unwrap();
    let begun: Vec<String> = bench.claim(&worker, 9).await.into_iter().map(|step| step.key).collect();
    assert_eq!(begun, ["in_time", "late"]);
    bench.assert_sound().await;
}

async fn another_wall_time_holds_for_steps_that_are_ready(bench: Bench) {
    let budget = |wall_ms| BudgetCaps { wall_ms, ..BudgetCaps::default() };
    let (campaign, run) = bench.run_with_budget(budget(None)).await;
    bench.schedule(&run, &["a"]).await;
    bench.clock.forward(10_000);
    bench.store.set_budget(&campaign, budget(Some(10_000)), bench.now()).await.unwrap();
    let worker = bench.worker().await;
    assert!(bench.claim(&worker, 9).await.is_empty());
    assert_eq!(bench.step(&run, "a").await.blocked_on, Some(Resource::WallMs));
    bench.store.set_budget(&campaign, budget(Some(20_000)), bench.now()).await.unwrap();
    bench.store.set_budget(&campaign, budget(Some(15_000)), bench.now()).await.unwrap();
    bench.clock.forward(5_000);
    assert!(bench.claim(&worker, 9).await.is_empty(), "the shorter time counts");
    bench.store.set_budget(&campaign, budget(None), bench.now()).await.unwrap();
    assert_eq!(bench.claim(&worker, 9).await[0].key, "a");
    bench.assert_sound().await;
}

async fn leaving_the_ready_list_gives_back_what_was_set_aside(bench: Bench) {
    let new = NewCampaign { budget: tokens(50), ..bench.new_campaign(2) };
    let created = bench.create(new).await;
    let (first, second) = (&created.runs[0], &created.runs[1]);
    schedule(&bench, first, &["a"], 40).await;
    schedule(&bench, second, &["b"], 40).await;
    assert_eq!(bench.step(second, "b").await.blocked_on, Some(Resource::Tokens));
    bench.store.control_run(first, RunTransition::Pause, None, bench.now()).await.unwrap();
    bench.assert_sound().await;
    assert_eq!(bench.spent(&created.id, Resource::Tokens).await, (0, 40), "the other one has it now");
    bench.store.control_run(first, RunTransition::Resume, None, bench.now()).await.unwrap();
    assert_eq!(bench.step(first, "a").await.blocked_on, Some(Resource::Tokens));
    bench.store.control_run(second, RunTransition::Cancel, None, bench.now()).await.unwrap();
    bench.assert_sound().await;
    let worker = bench.worker().await;
    assert_eq!(bench.claim(&worker, 9).await[0].key, "a");
    bench.complete_run(first).await;
    bench.assert_sound().await;
    assert_eq!(bench.line(&created.id, Resource::Tokens).await.reserved, 0);
}

async fn an_expired_lease_counts_what_may_have_been_used(bench: Bench) {
    let reserve = vec![
        amount(Resource::DeviceMs, 60_000),
        amount(Resource::Tokens, 30),
        amount(Resource::CostMicrousd, 20),
        amount(Resource::Attempts, 1),
    ];
    let (campaign, _, step) = leased(&bench, BudgetCaps::default(), reserve.clone()).await;
    bench.clock.forward(20_000);
    let end = TryEnd::Failed { failure: StepFailure::fatal("worker.lost", "gone") };
    bench.store.expire_lease(&step.id, step.epoch, end, bench.now()).await.unwrap();
    assert_eq!(bench.spent(&campaign, Resource::DeviceMs).await, (20_000, 0));
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (30, 0));
    assert_eq!(bench.spent(&campaign, Resource::CostMicrousd).await, (20, 0));
    assert_eq!(bench.spent(&campaign, Resource::Attempts).await, (0, 0));
    bench.assert_sound().await;
    let (campaign, _, step) = leased(&bench, BudgetCaps::default(), reserve).await;
    bench.clock.forward(90_000);
    let end = TryEnd::Failed { failure: StepFailure::fatal("worker.lost", "gone") };
    bench.store.expire_lease(&step.id, step.epoch, end, bench.now()).await.unwrap();
    assert_eq!(bench.spent(&campaign, Resource::DeviceMs).await, (60_000, 0), "no more than was set aside");
}

async fn a_retry_reserves_again(bench: Bench) {
    let (campaign, run, step) = leased(&bench, tokens(50), of_tokens(30)).await;
    bench.report_used(&step, TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(500) }, of_tokens(10)).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (10, 0), "nothing is kept while it waits");
    bench.assert_sound().await;
    bench.clock.forward(500);
    bench.store.fire_timers(bench.now(), 9).await.unwrap();
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (10, 30));
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    bench.report_used(&step, TryEnd::Retry { failure: lost(), at: bench.now() }, of_tokens(30)).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (40, 0));
    assert_eq!(bench.step(&run, "a").await.blocked_on, Some(Resource::Tokens));
    assert_eq!(exhausted_events(&bench, &run).await, 1);
    bench.assert_sound().await;
}

async fn a_failed_step_used_what_it_says(bench: Bench) {
    let (campaign, run, step) = leased(&bench, tokens(50), of_tokens(30)).await;
    bench.report_used(&step, TryEnd::Failed { failure: lost() }, of_tokens(7)).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (7, 0));
    bench.fail_run(&run, lost()).await;
    bench.store.retry_run(&run, None, None, bench.now()).await.unwrap();
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (7, 30));
    bench.assert_sound().await;
}

async fn a_leased_step_reserves_and_settles_for_its_calls(bench: Bench) {
    let (campaign, _, step) = leased(&bench, tokens(100), Vec::new()).await;
    let reserve = async |sum| bench.store.reserve(&step.id, step.epoch, &of_tokens(sum), bench.now()).await.unwrap();
    assert_eq!(reserve(60).await, Reservation::Granted);
    let line = bench.line(&campaign, Resource::Tokens).await;
    assert_eq!(reserve(50).await, Reservation::Wait(line));
    assert_eq!(reserve(101).await, Reservation::Exhausted(line));
    bench.assert_sound().await;
    bench.store.settle(&step.id, step.epoch, &of_tokens(60), &of_tokens(25), bench.now()).await.unwrap();
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (25, 0));
    assert_eq!(reserve(75).await, Reservation::Granted);
    let stale = bench.store.reserve(&step.id, 7, &of_tokens(1), bench.now()).await.unwrap();
    assert_eq!(stale, Reservation::LeaseLost);
    // All or nothing.
    let both = vec![amount(Resource::CostMicrousd, 5), amount(Resource::Tokens, 1)];
    let refused = bench.store.reserve(&step.id, step.epoch, &both, bench.now()).await.unwrap();
    assert!(matches!(refused, Reservation::Wait(_)), "{refused:?}");
    assert_eq!(bench.spent(&campaign, Resource::CostMicrousd).await, (0, 0));
    bench.report_used(&step, done(json!(1)), of_tokens(75)).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (100, 0));
    bench.store.settle(&step.id, step.epoch, &of_tokens(75), &of_tokens(75), bench.now()).await.unwrap();
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (100, 0), "its end settled it");
    assert_eq!(reserve(1).await, Reservation::LeaseLost);
    bench.assert_sound().await;
}

async fn a_model_call_is_paid_for_once(bench: Bench) {
    let (campaign, run, step) = leased(&bench, tokens(100), Vec::new()).await;
    let granted = bench.store.reserve(&step.id, step.epoch, &of_tokens(60), bench.now()).await.unwrap();
    assert_eq!(granted, Reservation::Granted);
    let call = ModelCallRecord {
        run: run.clone(),
        step_key: step.key.clone(),
        turn: 1,
        request_hash: "h".to_owned(),
        summary: json!({ "tokens": 41 }),
        released: of_tokens(60),
        used: of_tokens(41),
        at: bench.now(),
    };
    for _ in 0..2 {
        bench.store.record_model_call(call.clone(), Vec::new()).await.unwrap();
        assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (41, 0));
    }
    bench.assert_sound().await;
}

async fn a_call_that_is_open_when_its_try_ends_counts_as_used(bench: Bench) {
    let reserve = vec![amount(Resource::Tokens, 10), amount(Resource::DeviceMs, 500)];
    let estimate = vec![amount(Resource::Tokens, 60), amount(Resource::CostMicrousd, 40)];
    let timed_out = StepFailure::retriable("step.timed_out", "it took too long");
    let panicked = StepFailure::fatal("agent.panicked", "a defect");
    let ends = [
        (TryEnd::Cancelled, StepStatus::Cancelled),
        (TryEnd::Retry { failure: timed_out, at: bench.now().plus_ms(500) }, StepStatus::Scheduled),
        (TryEnd::Failed { failure: panicked }, StepStatus::Failed),
    ];
    for (end, status) in ends {
        let (campaign, run, step) = leased(&bench, BudgetCaps::default(), reserve.clone()).await;
        let granted = bench.store.reserve(&step.id, step.epoch, &estimate, bench.now()).await.unwrap();
        assert_eq!(granted, Reservation::Granted);
        if end == TryEnd::Cancelled {
            bench.store.control_run(&run, RunTransition::Cancel, None, bench.now()).await.unwrap();
        }
        bench.report_used(&step, end, Vec::new()).await;
        assert_eq!(bench.step(&run, "a").await.status, status);
        assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (60, 0), "{status:?}");
        assert_eq!(bench.spent(&campaign, Resource::CostMicrousd).await, (40, 0), "{status:?}");
        assert_eq!(bench.spent(&campaign, Resource::DeviceMs).await, (0, 0), "{status:?}");
        let late = ModelCallRecord {
            run: run.clone(),
            step_key: step.key.clone(),
            turn: 1,
            request_hash: "h".to_owned(),
            summary: json!({}),
            released: estimate.clone(),
            used: of_tokens(41),
            at: bench.now(),
        };
        bench.store.record_model_call(late, Vec::new()).await.unwrap();
        assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (60, 0), "the late answer is counted already");
        bench.assert_sound().await;
    }
}

async fn parallel_reservations_never_exceed_a_cap(bench: Bench) {
    let (campaign, run) = bench.run_with_budget(tokens(100)).await;
    let keys: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
    bench.schedule(&run, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 12).await;
    let wanted = of_tokens(30);
    let asked = steps.iter().map(|step| bench.store.reserve(&step.id, step.epoch, &wanted, bench.now()));
    let answers: Vec<Reservation> = join_all(asked).await.into_iter().map(Result::unwrap).collect();
    let granted = answers.iter().filter(|answer| **answer == Reservation::Granted).count();
    assert_eq!(granted, 3);
    assert!(answers.iter().all(|answer| matches!(answer, Reservation::Granted | Reservation::Wait(_))), "{answers:?}");
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (0, 90));
    let ends = steps.iter().map(|step| bench.report_used(step, done(json!(1)), of_tokens(30)));
    join_all(ends).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (90, 0));
    bench.assert_sound().await;
}

async fn usage_is_counted_without_caps_too(bench: Bench) {
    let (campaign, run, step) = leased(&bench, BudgetCaps::default(), of_tokens(u64::MAX)).await;
    bench.report_used(&step, done(json!(1)), of_tokens(500)).await;
    assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (500, 0));
    assert_eq!(bench.step(&run, "a").await.status, StepStatus::Completed);
    let lines = bench.store.load_budget(&campaign).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.resource).collect::<Vec<_>>(), Resource::ALL);
    bench.assert_sound().await;
}

async fn a_list_of_campaigns_contains_their_totals(bench: Bench) {
    let price = |sum: u64| vec![amount(Resource::CostMicrousd, sum)];
    let (campaign, run, step) = leased(&bench, BudgetCaps::default(), price(500)).await;
    let (other, _) = bench.run_with_budget(BudgetCaps::default()).await;
    bench.report_used(&step, done(json!(1)), price(300)).await;
    bench.clock.forward(5_000);
    bench.fail_run(&run, lost()).await;
    let watch = &bench.store;
    let unknown = CampaignId::from_uuid(bench.uuid());
    let mut sums = watch.campaign_sums(&[other.clone(), unknown, campaign.clone()]).await.unwrap();
    sums.sort_by_key(|sum| sum.cost_microusd);
    let ended = Some(bench.store.load_run(&run).await.unwrap().finished_at.unwrap());
    assert_eq!(sums.len(), 2, "what does not exist is left out");
    assert_eq!((&sums[0].campaign, sums[0].last_ended_at, sums[0].cost_microusd), (&other, None, 0));
    assert_eq!((&sums[1].campaign, sums[1].last_ended_at, sums[1].cost_microusd), (&campaign, ended, 300));
}
