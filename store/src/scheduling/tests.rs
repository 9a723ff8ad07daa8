use nightshift_engine::store::{Advanced, Change, Changed, DeviceLane, OwnerFence, Reported, StoreError, TryEnd};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::budget::{Amount, Resource};
use nightshift_protocol::id::{RunId, ServerId, StepId, WorkerId};
use nightshift_protocol::machine::{DeviceUse, Needs};
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::Target;
use serde_json::json;
use uuid::Uuid;

use super::bench::{AT, advance, both, claim, completed, ending, order, report};
use crate::value::values;

fn tokens(amount: u64) -> Amount {
    Amount { resource: Resource::Tokens, amount }
}

#[tokio::test]
async fn a_step_goes_from_report_to_the_next_claim_in_one_flush() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        let (run, worker, step) = bench.leased(campaign, Vec::new()).await;
        assert_eq!((step.epoch, step.tries, step.status), (1, 1, StepStatus::Leased));
        let mut next = advance(&run, 1, vec![order("b")]);
        next.folded_seq = 3;
        next.expects_last_seq = Some(3);
        let group =
            vec![Change::Report(completed(&step)), Change::Advance(Box::new(next)), Change::Claim(claim(&worker, 1))];
        let answers = bench.flush(&[group]).await.pop().unwrap().unwrap();
        let [Changed::Reported(Reported::Committed), Changed::Advanced(advanced), Changed::Claimed(steps)] =
            &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!(*advanced, Advanced::Committed { revision: 2, last_seq: 4 });
        assert_eq!((steps[0].key.as_str(), &steps[0].input), ("b", &json!({"for": "b"})));
        assert_eq!(steps[0].run, run);
        assert_eq!(bench.number("SELECT COUNT(*) FROM ready").await, 0);
        assert_eq!(bench.number("SELECT COUNT(*) FROM lease").await, 1);
        assert_eq!(bench.number("SELECT COUNT(*) FROM step WHERE status = 'completed' AND output_seq = 3").await, 1);
        assert_eq!(bench.number("SELECT wake_seq FROM run").await, 3);
        assert_eq!(bench.number("SELECT COUNT(*) FROM event").await, 4);
    }
}

#[tokio::test]
async fn a_flush_on_postgres_waits_for_the_database_three_times() {
    let [_, mut bench] = both().await;
    let campaign = bench.campaign().await;
    let (first_run, worker, first) = bench.leased(campaign, Vec::new()).await;
    let (second_run, _, second) = bench.leased(campaign, Vec::new()).await;
    let mut next = advance(&first_run, 1, vec![order("b")]);
    (next.folded_seq, next.expects_last_seq) = (3, Some(3));
    let mut last = ending(&second_run, 1);
    (last.folded_seq, last.expects_last_seq) = (3, Some(3));
    let groups = [
        vec![Change::Report(completed(&first)), Change::Advance(Box::new(next)), Change::Claim(claim(&worker, 1))],
        vec![Change::Report(completed(&second)), Change::Advance(Box::new(last)), Change::Claim(claim(&worker, 1))],
    ];
    let before = bench.round_trips().unwrap();
    let answers = bench.flush(&groups).await;
    assert_eq!(bench.round_trips().unwrap() - before, 3, "the load, the writing statement, the commit");
    assert!(answers.iter().all(|answer| matches!(
        answer.as_deref(),
        Ok([
            Changed::Reported(Reported::Committed),
            Changed::Advanced(Advanced::Committed { .. }),
            Changed::Claimed(_)
        ])
    )));
    assert_eq!(bench.number("SELECT COUNT(*) FROM lease").await, 1);
}

#[tokio::test]
async fn a_flush_on_postgres_locks_only_what_it_may_change() {
    let [_, mut bench] = both().await;
    let campaign = bench.campaign().await;
    let (_, worker, step) = bench.leased(campaign, Vec::new()).await;
    let mut other = bench.second_connection().await;
    other.execute("BEGIN", values![]).await.unwrap();
    other.fetch_all("SELECT 1 FROM campaign JOIN campaign_clock ON true FOR UPDATE", values![]).await.unwrap();
    bench.sql("SET lock_timeout = '2s'", values![]).await;
    assert_eq!(bench.report(completed(&step)).await, Reported::Committed, "it makes no step ready");
    other.fetch_all("SELECT 1 FROM worker FOR UPDATE", values![]).await.unwrap();
    assert!(bench.claim(claim(&worker, 1)).await.is_empty(), "no step is ready");
    other.execute("ROLLBACK", values![]).await.unwrap();
}

#[tokio::test]
async fn a_second_copy_of_a_report_is_committed_and_another_one_is_late() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        let (_, _, step) = bench.leased(campaign, Vec::new()).await;
        assert_eq!(bench.report(completed(&step)).await, Reported::Committed);
        let events = bench.number("SELECT COUNT(*) FROM event").await;
        assert_eq!(bench.report(completed(&step)).await, Reported::Committed);
        let other = report(&step, TryEnd::Completed { output: json!("other") });
        assert_eq!(bench.report(other).await, Reported::LeaseLost);
        assert_eq!(bench.number("SELECT COUNT(*) FROM event").await, events, "nothing was appended");
    }
}

#[tokio::test]
async fn a_decision_that_foresaw_a_report_does_not_take_another_event_for_it() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        let (run, worker, step) = bench.leased(campaign, Vec::new()).await;
        let foreseen = || {
            let mut next = advance(&run, 1, vec![order("b")]);
            next.folded_seq = 3;
            next.expects_last_seq = Some(3);
            Change::Advance(Box::new(next))
        };
        // The lease ends, and the event of its end takes the place in which the report's event was expected.
        let lost = TryEnd::Retry { failure: StepFailure::retriable("worker.lost", "gone"), at: AT };
        assert_eq!(bench.report(report(&step, lost)).await, Reported::Committed);
        assert_eq!(bench.claim(claim(&worker, 1)).await.len(), 1);
        let late = bench.flush(&[vec![Change::Report(completed(&step)), foreseen()]]).await.pop().unwrap().unwrap();
        let [Changed::Reported(Reported::LeaseLost), Changed::Advanced(Advanced::Conflict)] = &late[..] else {
            panic!("{late:?}")
        };
        assert_eq!(bench.number("SELECT folded_seq FROM run").await, 1);
    }
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        let (run, _, step) = bench.leased(campaign, Vec::new()).await;
        assert_eq!(bench.report(completed(&step)).await, Reported::Committed);
        let mut next = advance(&run, 1, vec![order("b")]);
        next.folded_seq = 3;
        next.expects_last_seq = Some(3);
        let group = vec![Change::Report(completed(&step)), Change::Advance(Box::new(next))];
        let again = bench.flush(&[group]).await.pop().unwrap().unwrap();
        let [Changed::Reported(Reported::Committed), Changed::Advanced(Advanced::Conflict)] = &again[..] else {
            panic!("{again:?}")
        };
    }
}

#[tokio::test]
async fn a_retry_waits_for_its_timer_or_is_ready_at_once() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        let (_, worker, step) = bench.leased(campaign, Vec::new()).await;
        let failure = StepFailure::retriable("x.y", "again");
        let now = TryEnd::Retry { failure: failure.clone(), at: AT };
        assert_eq!(bench.report(report(&step, now)).await, Reported::Committed);
        assert_eq!(bench.number("SELECT COUNT(*) FROM ready").await, 1);
        let again = bench.claim(claim(&worker, 5)).await.pop().unwrap();
        assert_eq!((again.epoch, again.tries, again.failure.as_ref()), (2, 2, Some(&failure)));
        let later = TryEnd::Retry { failure, at: AT.plus_ms(60_000) };
        assert_eq!(bench.report(report(&again, later)).await, Reported::Committed);
        assert_eq!(bench.number("SELECT not_before_ms FROM timer").await, AT.plus_ms(60_000).0);
        assert!(bench.claim(claim(&worker, 5)).await.is_empty());
    }
}

#[tokio::test]
async fn a_step_that_is_stopped_is_wanted_again_unless_its_run_is_paused_or_cancelled() {
    for (status, step_status, ready) in
        [("running", "scheduled", 1), ("paused", "scheduled", 0), ("cancelling", "cancelled", 0)]
    {
        for mut bench in both().await {
            let campaign = bench.campaign().await;
            let (_, _, step) = bench.leased(campaign, Vec::new()).await;
            bench.sql("UPDATE run SET status = $1", values![status]).await;
            assert_eq!(bench.report(report(&step, TryEnd::Cancelled)).await, Reported::Committed);
            assert_eq!(bench.number("SELECT COUNT(*) FROM ready").await, ready, "{status}");
            let stored = bench.connection.fetch_one("SELECT status FROM step", values![]).await.unwrap();
            assert_eq!(stored.str(0).unwrap(), step_status);
            assert_eq!(bench.number("SELECT COUNT(*) FROM lease").await, 0);
        }
    }
}

#[tokio::test]
async fn a_decision_conflicts_when_anything_else_came_first() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        let run = bench.run(campaign).await;
        let mut ahead = advance(&run, 0, Vec::new());
        ahead.folded_seq = 2;
        assert_eq!(bench.advance(ahead).await, Advanced::Conflict, "it folds what does not exist");
        let mut expects = advance(&run, 0, Vec::new());
        expects.expects_last_seq = Some(2);
        assert_eq!(bench.advance(expects).await, Advanced::Conflict);
        assert!(bench.advance(advance(&run, 0, vec![order("a"), order("a")])).await.is_committed());
        assert_eq!(bench.advance(advance(&run, 0, Vec::new())).await, Advanced::Conflict, "it is of an old revision");
        assert!(bench.advance(advance(&run, 1, vec![order("a")])).await.is_committed(), "a key may be repeated");
        assert_eq!(bench.number("SELECT COUNT(*) FROM step").await, 1);
        let mut foreign = advance(&run, 2, Vec::new());
        foreign.fence = Some(OwnerFence { server: ServerId::from_uuid(Uuid::from_u128(u128::MAX)), epoch: 0 });
        assert_eq!(bench.advance(foreign).await, Advanced::NotOwner);
    }
}

#[tokio::test]
async fn the_end_of_a_run_takes_its_open_steps_with_it() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        bench.budget(campaign, "tokens", 100).await;
        let (run, _, step) = bench.leased(campaign, vec![tokens(10)]).await;
        let more = StepOrder { reserve: vec![tokens(20)], ..order("b") };
        assert!(bench.advance(advance(&run, 1, vec![more])).await.is_committed());
        assert_eq!(bench.number("SELECT reserved FROM budget").await, 30);
        assert!(bench.advance(ending(&run, 2)).await.is_committed());
        for table in ["SELECT COUNT(*) FROM ready", "SELECT COUNT(*) FROM lease", "SELECT COUNT(*) FROM reservation"] {
            assert_eq!(bench.number(table).await, 0, "{table}");
        }
        assert_eq!(bench.number("SELECT COUNT(*) FROM step WHERE status = 'cancelled'").await, 2);
        assert_eq!(bench.number("SELECT reserved FROM budget").await, 0);
        assert_eq!(bench.number("SELECT used FROM budget").await, 10, "what the leased one may have used counts");
        assert_eq!(bench.report(completed(&step)).await, Reported::LeaseLost);
    }
}

#[tokio::test]
async fn a_group_that_cannot_be_carried_out_fails_alone_and_as_a_whole() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        let (run, worker, step) = bench.leased(campaign, Vec::new()).await;
        bench.sql("UPDATE run SET status = 'cancelling'", values![]).await;
        let other = bench.run(campaign).await;
        let illegal = vec![Change::Report(completed(&step)), Change::Advance(Box::new(ending(&run, 1)))];
        let unknown = vec![Change::Claim(claim(&WorkerId::from_uuid(Uuid::from_u128(u128::MAX)), 1))];
        let good =
            vec![Change::Advance(Box::new(advance(&other, 0, vec![order("z")]))), Change::Claim(claim(&worker, 1))];
        let answers = bench.flush(&[illegal, unknown, good]).await;
        assert!(matches!(answers[0], Err(StoreError::Illegal(_))), "{:?}", answers[0]);
        assert!(matches!(answers[1], Err(StoreError::NotFound { noun: "worker", .. })), "{:?}", answers[1]);
        assert_eq!(answers[2].as_ref().unwrap().len(), 2);
        assert_eq!(
            bench.number("SELECT COUNT(*) FROM step WHERE status = 'completed'").await,
            0,
            "nothing is half done"
        );
        let missing = StepId::from_uuid(Uuid::from_u128(u128::MAX));
        let mut late = completed(&step);
        late.step = missing;
        assert!(bench.flush(&[vec![Change::Report(late)]]).await[0].is_err());
        let gone = RunId::from_uuid(Uuid::from_u128(u128::MAX));
        assert!(bench.flush(&[vec![Change::Advance(Box::new(advance(&gone, 0, Vec::new())))]]).await[0].is_err());
    }
}

#[tokio::test]
async fn a_budget_is_reserved_settled_and_never_overspent() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        bench.budget(campaign, "tokens", 25).await;
        let (_, worker, step) = bench.leased(campaign, vec![tokens(20)]).await;
        let second = bench.run(campaign).await;
        let wanted = StepOrder { reserve: vec![tokens(10)], ..order("b") };
        assert!(bench.advance(advance(&second, 0, vec![wanted])).await.is_committed());
        assert_eq!(bench.number("SELECT COUNT(*) FROM blocked").await, 1, "20 of 25 are set aside");
        assert!(bench.claim(claim(&worker, 1)).await.is_empty());
        let mut told = completed(&step);
        told.used = vec![tokens(5)];
        assert_eq!(bench.report(told).await, Reported::Committed);
        assert_eq!(bench.number("SELECT used FROM budget").await, 5);
        assert_eq!(bench.number("SELECT reserved FROM budget").await, 10, "the blocked step got what was given back");
        let step = bench.claim(claim(&worker, 1)).await.pop().unwrap();
        let mut told = completed(&step);
        told.used = vec![tokens(1_000)];
        assert_eq!(bench.report(told).await, Reported::Committed);
        assert_eq!(bench.number("SELECT used FROM budget").await, 15, "never more than was set aside");
        let third = bench.run(campaign).await;
        let wanted = StepOrder { reserve: vec![tokens(11)], ..order("c") };
        assert!(bench.advance(advance(&third, 0, vec![wanted])).await.is_committed());
        assert_eq!(bench.number("SELECT COUNT(*) FROM event WHERE kind = 'budget_exhausted'").await, 1);
        assert_eq!(bench.number("SELECT told FROM blocked").await, 1);
    }
}

#[tokio::test]
async fn a_step_that_comes_to_wait_in_the_flush_that_frees_its_budget_does_not_wait_for_good() {
    // The rest after the first step suffices for the second step, or not.
    for (used, reserved, exhausted) in [(5, 10, 0), (20, 0, 1)] {
        for mut bench in both().await {
            let campaign = bench.campaign().await;
            bench.budget(campaign, "tokens", 25).await;
            let (_, _, step) = bench.leased(campaign, vec![tokens(20)]).await;
            let second = bench.run(campaign).await;
            let wanted = StepOrder { reserve: vec![tokens(10)], ..order("b") };
            let mut told = completed(&step);
            told.used = vec![tokens(used)];
            let groups =
                [vec![Change::Advance(Box::new(advance(&second, 0, vec![wanted])))], vec![Change::Report(told)]];
            for answer in bench.flush(&groups).await {
                answer.unwrap();
            }
            assert_eq!(bench.number("SELECT reserved FROM budget").await, reserved, "{used} used");
            let told = "SELECT COUNT(*) FROM event WHERE kind = 'budget_exhausted'";
            assert_eq!(bench.number(told).await, exhausted, "{used} used");
        }
    }
}

#[tokio::test]
async fn a_device_is_shared_up_to_the_first_step_that_needs_it_alone() {
    for mut bench in both().await {
        let campaign = bench.campaign().await;
        let (run, worker) = (bench.run(campaign).await, bench.worker().await);
        let on = |device_use: DeviceUse, key: &str| StepOrder {
            needs: Needs::worker(Target::Cpu, device_use),
            ..order(key)
        };
        let orders = vec![
            on(DeviceUse::Shared, "1"),
            on(DeviceUse::Shared, "2"),
            on(DeviceUse::Exclusive, "3"),
            on(DeviceUse::Shared, "4"),
        ];
        assert!(bench.advance(advance(&run, 0, orders)).await.is_committed());
        let lane = DeviceLane {
            device: 0,
            exclusive: vec![Needs::worker(Target::Cpu, DeviceUse::Exclusive).route()],
            shared: vec![Needs::worker(Target::Cpu, DeviceUse::Shared).route()],
            shared_slots: 4,
        };
        let mut request = claim(&worker, 0);
        request.devices = vec![lane];
        let first = bench.claim(request.clone()).await;
        let keys: Vec<&str> = first.iter().map(|step| step.key.as_str()).collect();
        assert_eq!(keys, ["1", "2"]);
        assert_eq!(first[0].device, Some(0));
        assert!(bench.claim(request.clone()).await.is_empty(), "the device is shared while the next needs it alone");
        for step in &first {
            assert_eq!(bench.report(completed(step)).await, Reported::Committed);
        }
        let alone = bench.claim(request.clone()).await;
        assert_eq!((alone.len(), alone[0].key.as_str()), (1, "3"));
        assert_eq!(bench.number("SELECT COUNT(*) FROM lease WHERE exclusive = 1").await, 1);
        assert!(bench.claim(request.clone()).await.is_empty(), "the device is in exclusive use");
        assert_eq!(bench.report(completed(&alone[0])).await, Reported::Committed);
        assert_eq!(bench.claim(request).await.len(), 1);
    }
}

#[tokio::test]
async fn campaigns_share_by_weight_and_a_draining_worker_gets_nothing() {
    for mut bench in both().await {
        let (heavy, light) = (bench.campaign().await, bench.campaign().await);
        bench.sql("UPDATE campaign SET weight = 3 WHERE id = $1", values![heavy]).await;
        let worker = bench.worker().await;
        for campaign in [heavy, light] {
            let run = bench.run(campaign).await;
            let orders = (0..12).map(|n| StepOrder { cost_ms: 300, ..order(&format!("{campaign}/{n}")) }).collect();
            assert!(bench.advance(advance(&run, 0, orders)).await.is_committed());
        }
        let steps = bench.claim(claim(&worker, 8)).await;
        let of_heavy = steps.iter().filter(|step| step.key.starts_with(&format!("{heavy}/"))).count();
        assert_eq!((steps.len(), of_heavy), (8, 6), "three of four");
        bench.sql("UPDATE worker SET draining = 1", values![]).await;
        assert!(bench.claim(claim(&worker, 8)).await.is_empty());
    }
}
