use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;

/// Variants of known speed. Time passes with every build and every timing, twice as much with each round.
struct Known {
    /// True speedups; those that are not there do not compile.
    speedups: Vec<Option<f64>>,
    /// Half the width of the interval in the first round, as a share; it halves with each round.
    noise: f64,
    wrong_when_timed: Vec<usize>,
    dies_when_timed: Vec<usize>,
    fails_check: Vec<usize>,
    build_ms: u64,
    time_ms: u64,
    now_ms: u64,
    timings: RefCell<BTreeMap<usize, u32>>,
    checks: Vec<usize>,
    /// Variants that were timed in turns, in their order.
    finals: Vec<usize>,
    /// Speedups that the rounds show in the place of the true ones, as if other work had run meanwhile.
    misjudged: BTreeMap<usize, f64>,
}

fn known(speedups: &[f64]) -> Known {
    Known {
        speedups: speedups.iter().copied().map(Some).collect(),
        noise: 0.2,
        wrong_when_timed: Vec::new(),
        dies_when_timed: Vec::new(),
        fails_check: Vec::new(),
        build_ms: 10,
        time_ms: 10,
        now_ms: 0,
        timings: RefCell::default(),
        checks: Vec::new(),
        finals: Vec::new(),
        misjudged: BTreeMap::new(),
    }
}

impl Trials for Known {
    fn elapsed_ms(&self) -> u64 {
        self.now_ms
    }

    fn build(&mut self, number: usize, _values: &[i64]) -> Result<Option<String>, StepFailure> {
        self.now_ms += self.build_ms;
        Ok(self.speedups[number].is_none().then(|| "does not fit".to_owned()))
    }

    fn time(&mut self, number: usize, timing: Timing) -> Result<Timed, StepFailure> {
        let round = timing.length();
        if timing == Timing::Final {
            self.finals.push(number);
        }
        self.now_ms += self.time_ms << (round - 1);
        *self.timings.borrow_mut().entry(number).or_default() += 1;
        if self.wrong_when_timed.contains(&number) {
            return Ok(Timed::Wrong("wrong".to_owned()));
        }
        if self.dies_when_timed.contains(&number) {
            return Ok(Timed::Failed("dead".to_owned()));
        }
        let misjudged = self.misjudged.get(&number).filter(|_| timing != Timing::Final);
        let estimate = misjudged.copied().or(self.speedups[number]).unwrap_or(0.0);
        let half = estimate * self.noise / f64::from(1_u32 << (round - 1));
        Ok(Timed::Speedup(Interval { estimate, low: estimate - half, high: estimate + half }))
    }

    fn check(&mut self, number: usize) -> Result<Option<String>, StepFailure> {
        self.checks.push(number);
        Ok(self.fails_check.contains(&number).then(|| "3 wrong elements".to_owned()))
    }
}

const AMPLE: TuneBudget = TuneBudget { max_variants: 100, wall_ms: 1_000_000 };

fn run(known: &mut Known, budget: TuneBudget) -> Searched {
    let variants = (0..known.speedups.len()).map(|number| vec![i64::try_from(number).unwrap_or(0)]).collect();
    search(known, variants, budget).unwrap_or_else(|failure| panic!("{failure}"))
}

fn outcomes(searched: &Searched) -> Vec<&'static str> {
    searched.variants.iter().map(|variant| variant.outcome.as_str()).collect()
}

#[test]
fn the_fastest_variant_wins_and_slow_ones_are_timed_seldom() {
    let mut trials = known(&[1.0, 1.1, 0.5, 1.9, 2.0, 0.7, 0.6, 0.9]);
    let searched = run(&mut trials, AMPLE);
    assert_eq!(searched.winner, Some(4));
    assert_eq!(trials.checks, [4]);
    let timings = trials.timings.borrow();
    assert_eq!((timings[&2], timings[&6]), (1, 1), "the slow half is timed once");
    assert!(timings[&4] > timings[&5] && timings[&3] > timings[&7]);
    assert_eq!(timings[&0], timings[&4], "the program as it was written stays in the race");
    assert_eq!(searched.variants[4].outcome, VariantOutcome::Chosen);
}

#[test]
fn a_clear_leader_ends_the_search_at_once() {
    let mut trials = known(&[1.0, 1.2, 5.0, 1.1]);
    let searched = run(&mut trials, AMPLE);
    assert_eq!((searched.winner, searched.rounds, searched.end), (Some(2), 1, TuneEnd::Settled));
}

#[test]
fn the_best_few_are_compared_in_turns_where_no_leader_is_clear() {
    let mut trials = Known { misjudged: [(1, 1.51)].into(), ..known(&[1.0, 1.45, 1.5, 1.48, 0.6]) };
    let searched = run(&mut trials, AMPLE);
    assert_eq!(searched.winner, Some(2), "the rounds saw another one ahead");
    let [a, b, c] = [0, 1, 2].map(|at| trials.finals[at]);
    assert_eq!(trials.finals, [a, b, c, c, b, a, a, b, c]);
    assert_eq!(searched.variants[1].speedup.map(|speedup| speedup.estimate), Some(1.45));
    // A clear leader is not compared with anything.
    let mut trials = known(&[1.0, 5.0]);
    assert_eq!(run(&mut trials, AMPLE).winner, Some(1));
    assert!(trials.finals.is_empty());
}

#[test]
fn what_is_hardly_faster_changes_nothing() {
    let mut trials = known(&[1.0, 1.005, 0.99]);
    let searched = run(&mut trials, AMPLE);
    assert_eq!(searched.winner, None);
    assert!(trials.checks.is_empty(), "only a winner is checked");
    assert_eq!(outcomes(&searched), ["kept", "slower", "slower"]);
}

#[test]
fn a_variant_that_fails_its_check_makes_way_for_the_next() {
    let mut trials = Known { fails_check: vec![2], ..known(&[1.0, 1.5, 1.6, 0.5]) };
    let searched = run(&mut trials, AMPLE);
    assert_eq!((searched.winner, trials.checks.as_slice()), (Some(1), &[2, 1][..]));
    assert_eq!(outcomes(&searched), ["slower", "chosen", "wrong", "slower"]);
    assert_eq!(searched.variants[2].message.as_deref(), Some("3 wrong elements"));
    let mut trials = Known { fails_check: vec![1, 2, 3], ..known(&[1.0, 1.5, 1.6, 0.5]) };
    assert_eq!(run(&mut trials, AMPLE).winner, None);
}

#[test]
fn variants_that_do_not_compile_or_compute_or_survive_are_dropped_with_the_reason() {
    let mut trials = Known { wrong_when_timed: vec![1], dies_when_timed: vec![2], ..known(&[1.0, 9.0, 9.0, 9.0, 1.4]) };
    trials.speedups[3] = None;
    let searched = run(&mut trials, AMPLE);
    assert_eq!(searched.winner, Some(4));
    assert_eq!(outcomes(&searched), ["slower", "wrong", "failed", "not_built", "chosen"]);
    assert!(searched.variants[1..4].iter().all(|variant| variant.message.is_some() && variant.speedup.is_none()));
}

#[test]
fn a_program_that_does_not_come_through_is_beaten_by_any_that_does() {
    let mut trials = Known { wrong_when_timed: vec![0], ..known(&[9.0, 0.4]) };
    assert_eq!(run(&mut trials, AMPLE).winner, Some(1));
    let mut trials = Known { wrong_when_timed: vec![0, 1], ..known(&[9.0, 0.4]) };
    let searched = run(&mut trials, AMPLE);
    assert_eq!((searched.winner, searched.end), (None, TuneEnd::NothingLeft));
}

#[test]
fn the_budget_bounds_variants_and_time() {
    let speeds: Vec<f64> = (0..40).map(|number| 1.0 + f64::from(number) * 0.01).collect();
    let mut trials = known(&speeds);
    let searched = run(&mut trials, TuneBudget { max_variants: 5, ..AMPLE });
    assert_eq!(searched.variants.len(), 5);
    for wall_ms in [0, 1, 50, 100, 200, 400, 800, 1_600] {
        let mut trials = known(&speeds);
        let searched = run(&mut trials, TuneBudget { max_variants: 100, wall_ms });
        // What was begun before the end may overrun it once.
        assert!(trials.now_ms <= wall_ms + 10 + (10 << 3), "{wall_ms}: {}", trials.now_ms);
        assert_eq!(searched.variants.len(), 40);
        if wall_ms <= 200 {
            assert_eq!(searched.end, TuneEnd::BudgetUsed, "{wall_ms}");
            assert!(searched.variants.iter().any(|variant| variant.outcome == VariantOutcome::NotReached));
        }
    }
}

#[test]
fn what_was_timed_before_the_end_still_wins() {
    let mut trials = Known { build_ms: 1, time_ms: 100, ..known(&[1.0, 1.3, 1.2]) };
    let searched = run(&mut trials, TuneBudget { max_variants: 9, wall_ms: 450 });
    assert_eq!((searched.winner, searched.end), (Some(1), TuneEnd::BudgetUsed));
}

#[test]
fn a_single_variant_stays_as_it_is() {
    let searched = run(&mut known(&[1.0]), AMPLE);
    assert_eq!((searched.winner, outcomes(&searched)), (None, vec!["kept"]));
}
