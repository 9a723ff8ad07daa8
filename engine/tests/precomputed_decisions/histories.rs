//! Random histories, executed twice: with every possible precomputed or cached decision, and with none.

use nightshift_engine::driver::Settled;
use nightshift_engine::event::Event;
use nightshift_engine::store::{Report, TryEnd};
use nightshift_protocol::budget::Resource;
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::signal::{Gate, Signal};
use nightshift_protocol::step::StepFailure;
use proptest::prelude::*;

use crate::site::Site;
use crate::toy::{Phase, SOFT};

/// The end of a try.
#[derive(Debug, Clone, Copy)]
enum End {
    Done,
    Soft,
    Hard,
    Retry,
    GivenBack,
}

/// Concurrent changes of the run.
#[derive(Debug, Clone, Copy)]
enum Foreign {
    Hint,
    Approve,
    Pause,
    Resume,
    Cancel,
    RetryAll,
    /// Retries the failed step of this number alone.
    RetryOne(usize),
    Exhaust,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    /// The lease of this number ends. `Foreign` may happen between decision and commit.
    Finish(usize, End, Option<Foreign>),
    /// The report of this number arrives again.
    Again(usize),
    /// The lease of this number ends with a report through another server.
    Elsewhere(usize, End),
    /// A report of a lease that never existed.
    Late(usize),
    /// A foreign change. The driver learns of it now, or with the next report.
    Meanwhile(Foreign, bool),
    Drive,
}

fn any_foreign() -> impl Strategy<Value = Foreign> {
    prop_oneof![
        3 => Just(Foreign::Hint),
        6 => Just(Foreign::Approve),
        1 => Just(Foreign::Pause),
        3 => Just(Foreign::Resume),
        1 => Just(Foreign::Cancel),
        3 => Just(Foreign::RetryAll),
        3 => (0_usize..4).prop_map(Foreign::RetryOne),
        1 => Just(Foreign::Exhaust),
    ]
}

fn any_act() -> impl Strategy<Value = Act> {
    let end = prop_oneof![
        12 => Just(End::Done),
        2 => Just(End::Soft),
        1 => Just(End::Hard),
        2 => Just(End::Retry),
        1 => Just(End::GivenBack)
    ];
    prop_oneof![
        12 => (0_usize..8, end.clone(), prop::option::weighted(0.2, any_foreign()))
            .prop_map(|(n, end, f)| Act::Finish(n, end, f)),
        6 => (0_usize..8, end).prop_map(|(n, end)| Act::Elsewhere(n, end)),
        1 => (0_usize..20).prop_map(Act::Again),
        1 => (0_usize..8).prop_map(Act::Late),
        3 => (any_foreign(), any::<bool>()).prop_map(|(foreign, heard)| Act::Meanwhile(foreign, heard)),
        1 => Just(Act::Drive),
    ]
}

fn any_phases() -> impl Strategy<Value = Vec<Phase>> {
    let phase = (1_usize..4, prop::bool::weighted(0.15), prop::bool::weighted(0.03))
        .prop_map(|(width, gate, stuck)| Phase { width, gate, stuck });
    prop::collection::vec(phase, 1..8).prop_map(|mut phases| {
        phases[0].stuck = false;
        phases
    })
}

fn foreign(site: &Site, what: Foreign) {
    let at = nightshift_engine::clock::Clock::now(&*site.clock);
    let mut world = site.store.world();
    // Both sides ignore a change that the status does not permit.
    let control = |world: &mut crate::memory::World, transition| drop(world.control(&site.run, transition, None, at));
    let signal = |world: &mut crate::memory::World, signal| {
        world.run(&site.run).unwrap().append(at, Event::SignalReceived { signal, by: None });
    };
    if world.run(&site.run).unwrap().record.status.is_final()
        && !matches!(what, Foreign::RetryAll | Foreign::RetryOne(_))
    {
        return;
    }
    match what {
        Foreign::Hint => signal(&mut world, Signal::Hint { text: "faster".to_owned() }),
        Foreign::Approve => signal(&mut world, Signal::Approved { gate: Gate::Plan }),
        Foreign::Pause => control(&mut world, RunTransition::Pause),
        Foreign::Resume => control(&mut world, RunTransition::Resume),
        Foreign::Cancel => control(&mut world, RunTransition::Cancel),
        Foreign::RetryAll => drop(world.retry(&site.run, None, None, at)),
        Foreign::RetryOne(number) => {
            let steps = &world.run(&site.run).unwrap().steps;
            let failed = steps.iter().filter(|step| step.record.failure.is_some());
            let key = failed.map(|step| step.record.key.clone()).nth(number);
            if let Some(key) = key {
                drop(world.retry(&site.run, Some(&key), None, at));
            }
        }
        Foreign::Exhaust => {
            let exhausted = Event::BudgetExhausted { key: "phase0/step0".to_owned(), resource: Resource::Tokens };
            world.run(&site.run).unwrap().append(at, exhausted);
        }
    }
}

fn end_of(site: &Site, key: &str, end: End) -> TryEnd {
    let at = nightshift_engine::clock::Clock::now(&*site.clock);
    match end {
        End::Done => crate::site::done(key),
        End::Soft => TryEnd::Failed { failure: StepFailure::fatal(SOFT, "a pity") },
        End::Hard => TryEnd::Failed { failure: StepFailure::fatal("hard", "the end") },
        End::Retry => TryEnd::Retry { failure: StepFailure::retriable("busy", "later"), at },
        End::GivenBack => TryEnd::Cancelled,
    }
}

/// Executes a history with every possible precomputed decision, and without any. Returns both, and the number of decisions.
///
/// A report carries a claim. Where its precomputed decision no longer fits, the worker takes steps before the run is driven, and the
/// decision may cancel them. The execution without precomputed decisions claims at the same places.
async fn play_both(phases: &[Phase], acts: &[Act]) -> (Site, Site, usize) {
    let (ahead, settled) = play(phases, acts, None).await;
    let (plain, _) = play(phases, acts, Some(&settled)).await;
    let decided = settled.iter().filter(|settled| matches!(settled, Some(Settled::Decided | Settled::Ended))).count();
    (ahead, plain, decided)
}

/// Executes a history: with precomputed and cached decisions, or without, but with claims where those of another execution were settled.
/// Returns for each report how its decision was settled.
async fn play(phases: &[Phase], acts: &[Act], other: Option<&[Option<Settled>]>) -> (Site, Vec<Option<Settled>>) {
    let mut site = Site::begun(phases).await;
    site.forgets = other.is_some();
    let mut sent: Vec<(String, Report)> = Vec::new();
    let mut reports = Vec::new();
    for act in acts {
        site.clock.advance_ms(10);
        let report = match act {
            Act::Finish(number, end, _) | Act::Elsewhere(number, end) => {
                let keys: Vec<&String> = site.leases.keys().collect();
                let leased = site.stored().steps;
                let open: Vec<String> = keys
                    .into_iter()
                    .filter(|key| leased.iter().any(|s| s.record.key == **key && s.lease_expires_at.is_some()))
                    .cloned()
                    .collect();
                if open.is_empty() {
                    continue;
                }
                let key = open[number % open.len()].clone();
                let report = site.report_of(&key, end_of(&site, &key, *end));
                sent.push((key, report.clone()));
                report
            }
            Act::Again(number) => match sent.get(*number) {
                Some((_, report)) => report.clone(),
                None => continue,
            },
            Act::Late(number) => {
                let keys: Vec<&String> = site.leases.keys().collect();
                if keys.is_empty() {
                    continue;
                }
                let key = keys[number % keys.len()].clone();
                Report { epoch: 99, ..site.report_of(&key, crate::site::done(&key)) }
            }
            Act::Meanwhile(what, heard) => {
                foreign(&site, *what);
                if *heard {
                    site.drive().await;
                    site.claim().await;
                }
                continue;
            }
            Act::Drive => {
                site.drive().await;
                site.claim().await;
                continue;
            }
        };
        if matches!(act, Act::Elsewhere(..)) {
            site.report_and_drive(report, false).await;
            continue;
        }
        let between = if let Act::Finish(_, _, between) = act { *between } else { None };
        let slip_in = |site: &Site| {
            if let Some(what) = between {
                foreign(site, what);
            }
        };
        if let Some(other) = other {
            slip_in(&site);
            let claims_first = other.get(reports.len()) == Some(&Some(Settled::Drive));
            site.report_and_drive(report, claims_first).await;
            reports.push(None);
        } else {
            reports.push(site.report_ahead(report, slip_in).await);
        }
    }
    (site, reports)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_decision_made_ahead_gives_the_same_log_and_the_same_state(
        phases in any_phases(),
        acts in prop::collection::vec(any_act(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (ahead, plain, _) = runtime.block_on(play_both(&phases, &acts));
        prop_assert_eq!(ahead.facts(), plain.facts());
    }
}

#[tokio::test]
async fn a_quiet_history_is_decided_ahead_from_begin_to_end() {
    let phases = crate::site::phases(&[1, 3, 1, 2]);
    let acts = vec![Act::Finish(0, End::Done, None); 7];
    let (site, plain, decided) = play_both(&phases, &acts).await;
    assert_eq!(decided, 7);
    assert_eq!(site.stored().record.status.as_str(), "completed");
    assert_eq!(site.facts(), plain.facts());
}

#[tokio::test]
async fn a_step_that_is_leased_before_a_late_decision_cancels_it_is_no_difference() {
    let phases = crate::site::phases(&[1, 3]);
    let acts = [
        Act::Finish(0, End::Done, None),
        Act::Again(0),
        Act::Finish(0, End::Done, None),
        Act::Meanwhile(Foreign::Pause, false),
        Act::Finish(0, End::Retry, None),
        Act::Finish(0, End::Hard, Some(Foreign::Resume)),
    ];
    let (ahead, plain, _) = play_both(&phases, &acts).await;
    assert_eq!(ahead.facts(), plain.facts());
}
