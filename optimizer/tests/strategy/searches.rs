//! What every strategy keeps to, whatever the agents and the worker say, and in whatever order parallel steps end.

use nightshift_optimizer::change_text::same_modification;
use nightshift_optimizer::strategy::known;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Stage};
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::step::{StepInput, StepOutput};
use nightshift_protocol::task::{Target, TaskGoal};
use proptest::prelude::*;

use super::facts;
use super::random::{any_goal, any_script};
use super::script::{Script, Try};
use super::simulator::{self, Failure, Finished};

/// What a Verifier says that has few ideas, and sometimes explains why an old one is worth another try.
#[derive(Debug, Clone, Copy)]
struct FewIdeas {
    ideas: u32,
    explains: bool,
}

impl FewIdeas {
    fn answer(self, script: &Script, key: &str, input: &StepInput) -> Result<StepOutput, Failure> {
        let mut output = script.answer(key, input)?;
        if let (StepInput::Diagnose { attempt, .. }, StepOutput::Diagnosed { diagnosis: Some(diagnosis), .. }) =
            (input, &mut output)
        {
            diagnosis.modification = format!("idea {}", attempt.number % self.ideas);
            diagnosis.repeat_reason = self.explains.then(|| "a typing error".to_owned());
        }
        Ok(output)
    }
}

/// The first attempt of the round of an attempt.
fn round_start(attempt: &Attempt) -> u32 {
    attempt.candidate.map_or(attempt.number, |candidate| attempt.number + 1 - candidate.number)
}

/// The attempts before `before` that were asked for a change and are not repaired by another one before it: each with
/// whether it failed. Counted anew here, from what a run shows.
fn outcomes(run: &Finished, before: u32, min_gain: f64) -> Vec<(&str, bool)> {
    let known: Vec<&Attempt> = run.view.attempts.iter().filter(|attempt| attempt.number < before).collect();
    let is_repair = |attempt: &Attempt| !matches!(attempt.stage, Stage::Draft | Stage::Optimize);
    known
        .iter()
        .filter(|attempt| !known.iter().any(|later| is_repair(later) && later.parent == Some(attempt.number)))
        .filter_map(|attempt| {
            let asked = attempt.modification.as_ref()?;
            let speedup = |number: u32| {
                let found = run.view.attempts.iter().find(|candidate| candidate.number == number)?;
                Some(found.speedup().filter(|_| found.outcome.is_correct())?.estimate)
            };
            let failed = if attempt.outcome.is_correct() {
                let gain = speedup(attempt.number).zip(speedup(asked.from)).map(|(now, then)| now / then);
                gain.is_some_and(|gain| gain < 1.0 + min_gain)
            } else {
                attempt.outcome != AttemptOutcome::NoCode
            };
            Some((asked.text.as_str(), failed))
        })
        .collect()
}

/// Returns the attempts that were asked, without a reason, for a change that is known to have failed.
fn unexplained_repetitions(run: &Finished, min_gain: f64) -> Vec<u32> {
    let asked = run.view.attempts.iter().filter(|attempt| attempt.stage == Stage::Optimize);
    asked
        .filter(|attempt| {
            let Some(modification) = &attempt.modification else { return false };
            let has_failed = outcomes(run, round_start(attempt), min_gain)
                .iter()
                .any(|(text, failed)| *failed && same_modification(text, &modification.text));
            // Asked once more because the reply held no program is no repetition.
            let is_same_request = attempt.number > 1
                && run.view.attempts.iter().any(|before| {
                    before.number < attempt.number
                        && before.outcome == AttemptOutcome::NoCode
                        && before.modification.as_ref().is_some_and(|other| other.text == modification.text)
                });
            has_failed && !is_same_request && modification.because.as_ref().is_none_or(String::is_empty)
        })
        .map(|attempt| attempt.number)
        .collect()
}

fn play(
    strategy: &str,
    (script, ideas): (&Script, FewIdeas),
    (goal, target): (TaskGoal, Target),
    picks: &[usize],
) -> Result<Finished, Failure> {
    let input = RunInput { strategy: strategy.to_owned(), target, ..facts::run_input(goal) };
    let mut next = picks.iter().cycle();
    simulator::run_picking(&input, |key, input| ideas.answer(script, key, input), |_| next.next().copied().unwrap_or(0))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(10) })]

    #[test]
    fn every_strategy_ends_within_its_budget_and_repeats_no_failure_unexplained(
        script in any_script(),
        mut goal in any_goal(),
        candidates in prop::option::of(1_u32..6),
        (ideas, explains) in (1_u32..5, any::<bool>()),
        on_cuda in any::<bool>(),
        picks in prop::collection::vec(0_usize..8, 1..20),
    ) {
        goal.candidates_per_round = candidates;
        let budget = goal.max_attempts.unwrap_or(6).clamp(1, 14);
        let replans = goal.max_replans.unwrap_or(2);
        let min_gain = goal.min_gain.filter(|gain| *gain >= 0.0).unwrap_or(0.05);
        let target = if on_cuda { Target::Cuda } else { Target::Cpu };
        for (strategy, _) in known() {
            let few = FewIdeas { ideas, explains };
            // The simulator holds that nothing unverified is ever shown as the best.
            let run = play(strategy, (&script, few), (goal.clone(), target), &picks)
                .map_err(|error| TestCaseError::fail(format!("{strategy}: {error}")))?;
            let attempts = u32::try_from(run.view.attempts.len()).unwrap_or(u32::MAX);
            prop_assert!(run.view.stop_reason.is_some(), "{strategy}");
            prop_assert!((1..=budget).contains(&attempts), "{strategy}: {attempts} attempts of {budget}");
            prop_assert!(run.view.plans.len() <= usize::try_from(replans).unwrap_or(usize::MAX) + 1, "{strategy}");
            for (number, attempt) in (1_u32..).zip(&run.view.attempts) {
                prop_assert_eq!(attempt.number, number);
                prop_assert!(attempt.route.is_some() && attempt.outcome != AttemptOutcome::Pending, "{strategy}");
                // What begins together cannot start from one another.
                prop_assert!(attempt.parent.is_none_or(|parent| parent < round_start(attempt)), "{strategy}");
                let route = attempt.route.as_ref();
                prop_assert!(route.is_some_and(|route| !route.reason.is_empty()), "{strategy}");
            }
            let repeated = unexplained_repetitions(&run, min_gain);
            prop_assert!(repeated.is_empty(), "{strategy} repeats a failure in attempts {repeated:?}");
        }
    }

    #[test]
    fn in_whatever_order_parallel_steps_end_no_confirmed_program_is_clearly_faster_than_the_best(
        script in any_script(),
        picks in prop::collection::vec(0_usize..8, 1..20),
    ) {
        let goal = TaskGoal { max_attempts: Some(8), target_speedup: Some(9.0), ..TaskGoal::default() };
        let few = FewIdeas { ideas: 4, explains: false };
        let in_order = play("beam", (&script, few), (goal.clone(), Target::Cpu), &[0]);
        let shuffled = play("beam", (&script, few), (goal, Target::Cpu), &picks);
        let (in_order, shuffled) = match (in_order, shuffled) {
            (Ok(one), Ok(other)) => (one, other),
            (one, other) => {
                let error = one.err().or(other.err()).map(|error| error.to_string());
                return Err(TestCaseError::fail(error.unwrap_or_default()));
            }
        };
        // What only a confirmation finds out depends on whether the program leads when it is over.
        let found_late = matches!(script.tries.first(), Some(Try::DiesInConfirmation { .. } | Try::Racy { .. }));
        let right = |run: &Finished| run.view.attempts[0].outcome.is_correct();
        prop_assert!(found_late || right(&in_order) == right(&shuffled));
        for run in [&in_order, &shuffled] {
            let published = |attempt: &Attempt| {
                attempt.confirmation.as_ref()?;
                attempt.speedup()
            };
            let best = run.view.attempts.iter().find(|attempt| Some(attempt.number) == run.view.best_attempt);
            let best = best.and_then(published).map(|speedup| speedup.estimate);
            let right = run.view.attempts.iter().filter(|attempt| attempt.outcome.is_correct());
            for speedup in right.filter_map(published) {
                // One whose first measurement was no faster has to be faster by its whole interval: noise makes no new best.
                prop_assert!(best.is_some_and(|best| speedup.low <= best), "{speedup:?} against {best:?}");
            }
        }
    }
}
