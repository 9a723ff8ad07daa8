//! Tests of admission: every decision, caps that hold, and fair shares.

use nightshift_engine::admission::{
    Admission, CampaignFacts, HEAD_START_MS, StepFacts, VIRTUAL_PER_MS, admit, head_start,
};
use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::campaign::{MAX_PRIORITY, MIN_PRIORITY};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;
use proptest::prelude::*;

const HOUR_MS: u64 = 3_600_000;
const NOON: TimestampMs = TimestampMs(1_780_056_000_000);

fn campaign(budget: &[BudgetLine]) -> CampaignFacts<'_> {
    CampaignFacts { schedule: None, weight: 1, vtime: 0, created_at: NOON, budget }
}

fn step(reserve: &[Amount]) -> StepFacts<'_> {
    StepFacts { timeout_ms: HOUR_MS, cost_ms: 10, reserve, priority: 0 }
}

fn line(resource: Resource, cap: u64, used: u64, reserved: u64) -> BudgetLine {
    BudgetLine { resource, cap: Some(cap), used, reserved }
}

fn amount(resource: Resource, amount: u64) -> Amount {
    Amount { resource, amount }
}

#[test]
fn a_step_without_limits_is_ready() {
    let ready = admit(&campaign(&[]), &step(&[amount(Resource::Tokens, u64::MAX)]), 0, NOON);
    assert_eq!(ready, Admission::Ready { rank: 0, vtime: 10 * VIRTUAL_PER_MS, latest_start: None });
}

#[test]
fn a_resource_without_a_cap_is_unlimited() {
    let unlimited = BudgetLine { resource: Resource::Tokens, cap: None, used: 5, reserved: 5 };
    let ready = admit(&campaign(&[unlimited]), &step(&[amount(Resource::Tokens, u64::MAX)]), 0, NOON);
    assert!(matches!(ready, Admission::Ready { .. }));
}

#[test]
fn a_step_waits_for_what_parallel_work_may_give_back() {
    let budget = [line(Resource::DeviceMs, 100, 50, 40)];
    let asked = |wanted| admit(&campaign(&budget), &step(&[amount(Resource::DeviceMs, wanted)]), 0, NOON);
    assert!(matches!(asked(10), Admission::Ready { .. }));
    assert_eq!(asked(11), Admission::Blocked { resource: Resource::DeviceMs });
    assert_eq!(asked(50), Admission::Blocked { resource: Resource::DeviceMs });
    assert_eq!(asked(51), Admission::Exhausted { resource: Resource::DeviceMs });
}

#[test]
fn amounts_of_one_resource_count_together() {
    let budget = [line(Resource::Tokens, 10, 0, 0)];
    let twice = [amount(Resource::Tokens, 6), amount(Resource::Tokens, 6)];
    assert_eq!(admit(&campaign(&budget), &step(&twice), 0, NOON), Admission::Exhausted { resource: Resource::Tokens });
}

#[test]
fn permanent_exhaustion_takes_precedence_over_waiting() {
    let budget = [line(Resource::Tokens, 10, 0, 10), line(Resource::Attempts, 3, 3, 0)];
    let both = [amount(Resource::Tokens, 1), amount(Resource::Attempts, 1)];
    let expected = Admission::Exhausted { resource: Resource::Attempts };
    assert_eq!(admit(&campaign(&budget), &step(&both), 0, NOON), expected);
}

#[test]
fn no_step_begins_after_the_wall_time() {
    let budget = [line(Resource::WallMs, HOUR_MS, 0, 0)];
    let asked = |at| admit(&campaign(&budget), &step(&[]), 0, at);
    let last = NOON.plus_ms(HOUR_MS - 1);
    for at in [NOON, last] {
        assert!(matches!(asked(at), Admission::Ready { latest_start, .. } if latest_start == Some(last)));
    }
    assert_eq!(asked(NOON.plus_ms(HOUR_MS)), Admission::Exhausted { resource: Resource::WallMs });
}

#[test]
fn window_and_wall_time_both_say_when_it_is_too_late() {
    let schedule = night();
    let evening = NOON.plus_ms(8 * HOUR_MS);
    for (cap_hours, latest) in [(9, NOON.plus_ms(9 * HOUR_MS - 1)), (30, NOON.plus_ms(18 * HOUR_MS + HOUR_MS / 2))] {
        let budget = [line(Resource::WallMs, cap_hours * HOUR_MS, 0, 0)];
        let facts = CampaignFacts { schedule: Some(&schedule), ..campaign(&budget) };
        let answer = admit(&facts, &step(&[]), 0, evening);
        assert!(matches!(answer, Admission::Ready { latest_start, .. } if latest_start == Some(latest)), "{answer:?}");
    }
}

fn night() -> Schedule {
    let Ok(window) = "20:00-07:30".parse() else { panic!("no window") };
    Schedule { window, time_zone: "UTC".to_owned() }
}

#[test]
fn a_step_waits_for_its_window_and_knows_its_latest_start() {
    let schedule = night();
    let facts = CampaignFacts { schedule: Some(&schedule), ..campaign(&[]) };
    let evening = NOON.plus_ms(8 * HOUR_MS);
    assert_eq!(admit(&facts, &step(&[]), 0, NOON), Admission::Wait { until: evening });
    let latest_start = Some(NOON.plus_ms(18 * HOUR_MS + HOUR_MS / 2));
    assert!(
        matches!(admit(&facts, &step(&[]), 0, evening), Admission::Ready { latest_start: l, .. } if l == latest_start)
    );
}

#[test]
fn no_step_waits_for_a_window_that_opens_too_late() {
    let schedule = night();
    for (cap, expected) in [
        (line(Resource::WallMs, 7 * HOUR_MS, 0, 0), Admission::Exhausted { resource: Resource::WallMs }),
        (line(Resource::WallMs, 9 * HOUR_MS, 0, 0), Admission::Wait { until: NOON.plus_ms(8 * HOUR_MS) }),
        (line(Resource::Attempts, 2, 2, 0), Admission::Exhausted { resource: Resource::Attempts }),
        (line(Resource::Attempts, 2, 1, 1), Admission::Wait { until: NOON.plus_ms(8 * HOUR_MS) }),
    ] {
        let budget = [cap];
        let facts = CampaignFacts { schedule: Some(&schedule), ..campaign(&budget) };
        assert_eq!(admit(&facts, &step(&[amount(Resource::Attempts, 1)]), 0, NOON), expected);
    }
}

#[test]
fn a_campaign_that_was_idle_begins_where_the_others_are() {
    let rank = |vtime, virtual_now| {
        let facts = CampaignFacts { vtime, ..campaign(&[]) };
        match admit(&facts, &step(&[]), virtual_now, NOON) {
            Admission::Ready { rank, .. } => rank,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rank(0, 500), 500, "it does not make up for its idle time");
    assert_eq!(rank(700, 500), 700, "it pays for what it took");
}

#[test]
fn extreme_numbers_saturate() {
    let facts = CampaignFacts { vtime: i64::MAX, weight: 0, ..campaign(&[]) };
    let extreme = StepFacts { cost_ms: u64::MAX, priority: i32::MIN, ..step(&[]) };
    let answer = admit(&facts, &extreme, i64::MAX, NOON);
    assert_eq!(answer, Admission::Ready { rank: i64::MAX, vtime: i64::MAX, latest_start: None });
}

fn resources() -> impl Strategy<Value = Resource> {
    prop::sample::select(vec![Resource::CostMicrousd, Resource::Tokens, Resource::DeviceMs, Resource::Attempts])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn no_sequence_of_admissions_and_releases_exceeds_a_cap(
        caps in prop::collection::btree_map(resources(), 0_u64..1_000, 0..4),
        work in prop::collection::vec(
            (prop::collection::vec((resources(), 0_u64..400), 0..4), prop::option::of((0_usize..8, 0_u64..=100))),
            1..60,
        ),
    ) {
        let mut budget: Vec<BudgetLine> =
            caps.iter().map(|(resource, cap)| line(*resource, *cap, 0, 0)).collect();
        let mut begun: Vec<Vec<Amount>> = Vec::new();
        for (wanted, settled) in work {
            let reserve: Vec<Amount> = wanted.into_iter().map(|(resource, wanted)| amount(resource, wanted)).collect();
            match admit(&campaign(&budget), &step(&reserve), 0, NOON) {
                Admission::Ready { .. } => {
                    for line in &mut budget {
                        line.reserved += reserve.iter().filter(|a| a.resource == line.resource).map(|a| a.amount).sum::<u64>();
                    }
                    begun.push(reserve);
                }
                Admission::Blocked { resource } => {
                    let line = budget.iter().find(|line| line.resource == resource);
                    prop_assert!(line.is_some_and(|line| line.reserved > 0), "there is a reservation to release");
                }
                Admission::Exhausted { resource } => {
                    let wanted: u64 = reserve.iter().filter(|a| a.resource == resource).map(|a| a.amount).sum();
                    let line = budget.iter().find(|line| line.resource == resource);
                    prop_assert!(line.is_some_and(|line| line.is_exhausted_for(wanted)));
                }
                Admission::Wait { .. } => prop_assert!(false, "there is no window"),
            }
            if let Some((which, percent)) = settled
                && !begun.is_empty()
            {
                for given_back in begun.remove(which % begun.len()) {
                    if let Some(line) = budget.iter_mut().find(|line| line.resource == given_back.resource) {
                        line.reserved -= given_back.amount;
                        line.used += given_back.amount * percent / 100;
                    }
                }
            }
            for line in &budget {
                prop_assert!(line.cap.is_none_or(|cap| line.used + line.reserved <= cap), "{line:?}");
            }
        }
    }

    #[test]
    fn a_higher_priority_never_ranks_behind(
        low in MIN_PRIORITY..=MAX_PRIORITY,
        more in 0_i32..=100,
        vtime in 0_i64..1 << 50,
        virtual_now in 0_i64..1 << 50,
        weight in 1_u32..=100,
    ) {
        let facts = CampaignFacts { vtime, weight, ..campaign(&[]) };
        let rank = |priority| match admit(&facts, &StepFacts { priority, ..step(&[]) }, virtual_now, NOON) {
            Admission::Ready { rank, vtime, .. } => (rank, vtime),
            other => panic!("{other:?}"),
        };
        let (behind, before) = (rank(low), rank(low + more));
        prop_assert_eq!(behind.0 - before.0, i64::from(more) * HEAD_START_MS * VIRTUAL_PER_MS);
        prop_assert_eq!(behind.1, before.1, "priority is no share");
        prop_assert_eq!(behind.0 + head_start(low), vtime.max(virtual_now));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn weights_give_proportional_shares(
        campaigns in prop::collection::vec((1_u32..=20, 1_u64..200), 2..6),
        in_flight in 1_usize..4,
    ) {
        let taken = play(&campaigns, in_flight, 60_000_000);
        let per_weight: Vec<f64> =
            taken.iter().zip(&campaigns).map(|(ms, (weight, _))| f64::from(u32::try_from(*ms).unwrap_or(u32::MAX)) / f64::from(*weight)).collect();
        let most = per_weight.iter().copied().fold(f64::MIN, f64::max);
        let least = per_weight.iter().copied().fold(f64::MAX, f64::min);
        prop_assert!(most / least < 1.05, "{per_weight:?} for {campaigns:?}");
    }
}

/// Simulates campaigns (weight, cost of a step in ms) with endless demand on one machine, which always takes the step
/// with the lowest rank. Returns the time of each campaign, in milliseconds.
fn play(campaigns: &[(u32, u64)], in_flight: usize, total_ms: u64) -> Vec<u64> {
    let mut vtimes = vec![0_i64; campaigns.len()];
    let mut taken = vec![0_u64; campaigns.len()];
    let mut ready: std::collections::BTreeSet<(i64, usize, u64)> = std::collections::BTreeSet::new();
    let (mut virtual_now, mut elapsed, mut number) = (0, 0, 0);
    let mut want = |which: usize, virtual_now: i64, ready: &mut std::collections::BTreeSet<(i64, usize, u64)>| {
        let (weight, cost_ms) = campaigns[which];
        let facts = CampaignFacts { vtime: vtimes[which], weight, ..campaign(&[]) };
        let Admission::Ready { rank, vtime, .. } =
            admit(&facts, &StepFacts { cost_ms, ..step(&[]) }, virtual_now, NOON)
        else {
            panic!("not ready")
        };
        vtimes[which] = vtime;
        number += 1;
        ready.insert((rank, which, number));
    };
    for which in 0..campaigns.len() {
        for _ in 0..in_flight {
            want(which, 0, &mut ready);
        }
    }
    // Long enough to hide the effect of single steps, and equal for every mix of costs.
    let total_ms = total_ms.min(campaigns.iter().map(|(weight, cost)| u64::from(*weight) * cost).sum::<u64>() * 400);
    while elapsed < total_ms {
        let Some((rank, which, _)) = ready.pop_first() else { panic!("nothing is ready") };
        virtual_now = virtual_now.max(rank + head_start(0));
        taken[which] += campaigns[which].1;
        elapsed += campaigns[which].1;
        want(which, virtual_now, &mut ready);
    }
    taken
}

#[test]
fn the_lowest_priority_is_served_in_the_end() {
    // One campaign has endless demand at the highest priority, another wants one step at the lowest.
    let rank_of_low = match admit(&campaign(&[]), &StepFacts { priority: MIN_PRIORITY, ..step(&[]) }, 0, NOON) {
        Admission::Ready { rank, .. } => rank,
        other => panic!("{other:?}"),
    };
    let mut vtime = 0;
    for round in 0..2_000_000_u32 {
        let facts = CampaignFacts { vtime, ..campaign(&[]) };
        let high = StepFacts { priority: MAX_PRIORITY, cost_ms: 1_000, ..step(&[]) };
        let Admission::Ready { rank, vtime: next, .. } = admit(&facts, &high, 0, NOON) else { panic!("not ready") };
        if rank > rank_of_low {
            let head_starts = (MAX_PRIORITY - MIN_PRIORITY).unsigned_abs();
            assert!(round <= head_starts * 60 + 1, "it waited for {round} seconds of the other's work");
            return;
        }
        vtime = next;
    }
    panic!("it starves");
}
