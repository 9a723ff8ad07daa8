//! What times of pairs accuse of, and what counts.

use super::*;

#[test]
fn what_was_subtracted_too_much_is_given_back() {
    let mut little = times(100_000.0, 0.0, 0.0, 200_000.0, 200_000.0);
    assert!(little.give_back((4_000.0, 8_000.0), (0.0, 500.0)).is_ok() && little.steady);
    assert!((little.candidate_ns[0] - 101_000.0).abs() < 1e-6 && (little.baseline_ns[0] - 202_000.0).abs() < 1e-6);
    let mut more = times(100_000.0, 0.0, 0.0, 200_000.0, 200_000.0);
    assert!(more.give_back((40_000.0, 90_000.0), (0.0, 0.0)).is_ok() && !more.steady);
    let mut nonsense = times(1.0, 0.0, 0.0, 1.0, 200_000.0);
    assert!(
        matches!(nonsense.give_back((4e6, 4e6), (0.0, 0.0)), Err(Side::Machine(failure)) if failure.code == DISTURBED)
    );
}

pub(in crate::measure) fn times(candidate: f64, lone: f64, hidden: f64, baseline: f64, solo: f64) -> PairTimes {
    PairTimes {
        calls: 4,
        candidate_ns: vec![candidate; 5],
        baseline_ns: vec![baseline; 5],
        lone_candidate_ns: vec![lone; 3],
        lone_baseline_ns: vec![baseline + 9_000.0; 3],
        overlap_ns: 0.0,
        events_candidate_ns: Vec::new(),
        events_baseline_ns: Vec::new(),
        hidden_ns: vec![hidden; 5],
        hidden_baseline_ns: vec![0.0; 5],
        waited_ns: Vec::new(),
        waited_baseline_ns: Vec::new(),
        solo_ns: vec![solo; 5],
        alone_after_ns: Vec::new(),
        timed_calls: 20,
        verified_calls: 20,
        later_calls: 0,
        turned_wrong: false,
        wrong: false,
        conditions: None,
        on_shared_core: 0,
        rejected: 0,
        rejected_because: Vec::new(),
        steady: true,
        alone: Duration::ZERO,
    }
}

fn codes(times: &PairTimes) -> Vec<String> {
    times.corrections().into_iter().map(|finding| finding.code).collect()
}

#[test]
fn honest_times_accuse_of_nothing() {
    let honest = times(10_000.0, 22_000.0, 0.0, 40_000.0, 40_500.0);
    assert!(codes(&honest).is_empty());
    assert!(honest.ratios().iter().all(|ratio| (ratio - 4.0).abs() < 1e-9));
}

#[test]
fn calls_that_share_work_count_as_calls_by_themselves() {
    let mut batched = times(1_000.0, 60_000.0, 0.0, 40_000.0, 40_000.0);
    batched.overlap_ns = overlap_ns(std::slice::from_ref(&batched));
    assert_eq!(batched.overlap().map(|finding| finding.code).as_deref(), Some("calls_overlap"));
    assert!(batched.ratios().iter().all(|ratio| *ratio < 1.0), "{:?}", batched.ratios());
    // A program that computes all calls of a window in the first one takes as long as the others when it is called by itself.
    let shared = times(500.0, 17_000.0, 0.0, 20_000.0, 20_000.0);
    assert!((overlap_ns(&[shared]) - 6_475.0).abs() < 1e-6);
}

#[test]
fn lone_calls_that_were_disturbed_are_no_shared_work() {
    let quiet = || times(10_000.0, 19_500.0, 0.0, 40_000.0, 40_000.0);
    let mut noisy = quiet();
    noisy.lone_candidate_ns = vec![70_000.0, 90_000.0, 80_000.0];
    assert!(overlap_ns(&[quiet(), quiet(), noisy]) < 1e-9, "in one of three pairs of processes");
    assert!(quiet().overlap().is_none());
}

#[test]
fn a_call_that_waits_counts_with_its_wait() {
    let mut sleeps = times(10_000.0, 20_000.0, 0.0, 40_000.0, 40_000.0);
    sleeps.waited_ns = vec![9e6, 390_000.0, 5e6];
    sleeps.waited_baseline_ns = vec![2e6, 90_000.0];
    assert_eq!(codes(&sleeps), ["call_waits"]);
    assert!((sleeps.counted_candidate_ns()[0] - 310_000.0).abs() < 1e-6);
    // A machine with other work makes every program wait, and each of them some time less than most.
    sleeps.waited_ns = vec![9e6, 95_000.0, 5e6];
    assert!(codes(&sleeps).is_empty());
}

#[test]
fn work_outside_of_calls_is_an_accusation() {
    assert_eq!(codes(&times(600_000.0, 609_000.0, 500_000.0, 700_000.0, 700_000.0)), ["work_outside_call"]);
    assert!(times(600_000.0, 609_000.0, 500_000.0, 700_000.0, 700_000.0).accuses());
    assert!(codes(&times(600_000.0, 609_000.0, 20_000.0, 700_000.0, 700_000.0)).is_empty());
    assert!(!times(600_000.0, 609_000.0, 20_000.0, 700_000.0, 700_000.0).accuses());
}

#[test]
fn a_baseline_that_is_slower_next_to_the_candidate_counts_as_before() {
    let slowed = times(10_000.0, 20_000.0, 0.0, 60_000.0, 40_000.0);
    assert_eq!(codes(&slowed), ["baseline_disturbed"]);
    assert!(slowed.ratios().iter().all(|ratio| (ratio - 4.0).abs() < 1e-9));
}

#[test]
fn a_baseline_that_is_slower_after_the_candidate_has_ended_too_was_not_slowed_by_it() {
    let mut slower = times(10_000.0, 20_000.0, 0.0, 60_000.0, 40_000.0);
    slower.take_alone_after(vec![59_000.0; 5]);
    assert!(codes(&slower).is_empty());
    slower.take_alone_after(vec![41_000.0; 5]);
    assert_eq!(codes(&slower), ["baseline_disturbed"]);
}

#[test]
fn a_program_that_slows_half_of_the_baseline_s_windows_down_gains_nothing() {
    let mut slowed = times(10_000.0, 20_000.0, 0.0, 40_000.0, 40_000.0);
    slowed.baseline_ns = vec![80_000.0, 40_000.0, 80_000.0, 40_000.0, 80_000.0];
    assert_eq!(codes(&slowed), ["baseline_disturbed"]);
    assert!(median(&slowed.ratios()) < 4.01);
}

#[test]
fn time_around_the_baseline_s_calls_makes_a_measurement_imprecise() {
    let mut slowed = times(10_000.0, 20_000.0, 0.0, 40_000.0, 40_000.0);
    slowed.hidden_baseline_ns = vec![500.0; 5];
    assert!(!slowed.is_disturbed_around_calls());
    slowed.hidden_baseline_ns = vec![2_000.0; 5];
    assert!(slowed.is_disturbed_around_calls());
}

#[test]
fn a_baseline_whose_times_vary_is_not_called_slower_next_to_the_candidate() {
    let mut varies = times(10_000.0, 20_000.0, 0.0, 60_000.0, 50_000.0);
    varies.solo_ns = vec![40_000.0, 45_000.0, 50_000.0, 62_000.0, 70_000.0];
    assert!(codes(&varies).is_empty());
    assert!(varies.ratios().iter().all(|ratio| (ratio - 6.0).abs() < 1e-9));
}
