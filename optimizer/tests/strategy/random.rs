//! Whatever the agents and the worker say, a run ends within its budget.

use nightshift_optimizer::strategy::MAX_ATTEMPTS;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Route, Stage};
use nightshift_protocol::profile::SanitizerTool;
use nightshift_protocol::task::TaskGoal;
use nightshift_protocol::verdict::{Answer, ProcessEnd};
use proptest::prelude::*;

use super::script::{Script, Try, crash, right};

fn any_route() -> impl Strategy<Value = Option<Route>> {
    prop::sample::select(vec![
        None,
        Some(Route::Repair),
        Some(Route::Optimize),
        Some(Route::NextSubtask),
        Some(Route::Replan),
        Some(Route::Stop),
    ])
}

fn any_try() -> impl Strategy<Value = Try> {
    prop_oneof![
        Just(Try::NoCode),
        Just(Try::Forbidden),
        Just(Try::CompileError),
        Just(Try::Versions(vec![Try::CompileError, Try::NoCode])),
        Just(Try::Versions(vec![Try::Forbidden, Try::CompileError, right(1.5)])),
        Just(Try::Wrong),
        Just(Try::Ends(crash())),
        Just(Try::Ends(ProcessEnd::TimedOut { limit_ms: 5 })),
        Just(Try::Ends(ProcessEnd::ProtocolBroken { message: "a word".to_owned() })),
        Just(Try::DiesInMeasurement(crash())),
        (0.1..6.0, any::<bool>()).prop_map(|(measured, only_thorough)| Try::Racy { measured, only_thorough }),
        (0.1..6.0).prop_map(|measured| Try::DiesInConfirmation { measured, end: crash() }),
        (0.1..6.0, 0.1..6.0, any_route()).prop_map(|(measured, confirmed, advice)| Try::Right {
            measured,
            confirmed,
            advice
        }),
        (0.9..1.1, 0.9..1.1, any_route()).prop_map(|(measured, confirmed, advice)| Try::Right {
            measured,
            confirmed,
            advice
        }),
    ]
}

pub(crate) fn any_goal() -> impl Strategy<Value = TaskGoal> {
    (
        prop::option::of(0.5..5.0),
        prop::option::of(0_u32..14),
        prop::option::of(0_u32..5),
        prop::option::of(0_u32..4),
        prop::option::of(0_u32..4),
        prop::option::of(-0.1..0.5),
        prop::option::of(0_u32..3),
    )
        .prop_map(|(target_speedup, max_attempts, max_replans, failed, stagnant, min_gain, max_fix_turns)| {
            TaskGoal {
                target_speedup,
                max_attempts,
                max_replans,
                replan_after_failed: failed,
                replan_after_stagnant: stagnant,
                min_gain,
                max_fix_turns,
                ..TaskGoal::default()
            }
        })
}

pub(crate) fn any_script() -> impl Strategy<Value = Script> {
    let plan = prop::collection::vec(prop::option::of(0.5..4.0), 0..4);
    (prop::collection::vec(plan, 1..4), prop::collection::vec(any_try(), 14..15))
        .prop_map(|(plans, tries)| Script { plans, tries })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn every_run_ends_within_its_budget_with_consistent_numbers(
        script in any_script(),
        goal in any_goal(),
        on_cuda in any::<bool>(),
    ) {
        let budget = goal.max_attempts.unwrap_or(6).clamp(1, MAX_ATTEMPTS);
        let replans = goal.max_replans.unwrap_or(2);
        let fix_turns = usize::try_from(goal.max_fix_turns.unwrap_or(0)).unwrap_or(usize::MAX);
        let run = if on_cuda { script.play_on_cuda(goal) } else { script.play(goal) };
        let run = run.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let view = &run.view;
        prop_assert!(view.stop_reason.is_some());
        prop_assert!(u32::try_from(view.attempts.len()).unwrap_or(u32::MAX) <= budget);
        prop_assert!(u32::try_from(view.plans.len()).unwrap_or(u32::MAX) <= replans.saturating_add(1));
        for (number, plan) in (1_u32..).zip(&view.plans) {
            prop_assert_eq!(plan.version, number);
            prop_assert_eq!(plan.reason.is_some(), number > 1);
        }
        for (number, attempt) in (1_u32..).zip(&view.attempts) {
            prop_assert_eq!(attempt.number, number);
            prop_assert!(attempt.parent.is_none_or(|parent| parent < number));
            prop_assert_eq!(attempt.stage == Stage::Draft, attempt.parent.is_none());
            prop_assert!(attempt.route.is_some());
            prop_assert!(attempt.reward.as_ref().is_some_and(|reward| (0.0..=3.0).contains(&reward.reward)));
            prop_assert_ne!(attempt.outcome.as_str(), "pending");
            prop_assert!(attempt.earlier_versions.len() <= fix_turns);
            let plan = view.plans.iter().find(|plan| plan.version == attempt.plan_version);
            let subtasks = plan.map_or(0, |plan| plan.plan.subtasks.len());
            prop_assert!((1..=subtasks).contains(&usize::try_from(attempt.subtask).unwrap_or(usize::MAX)));
        }
        // The best is the fastest, as published, among those that a fresh process confirmed.
        let published = |attempt: &Attempt| {
            attempt.confirmation.as_ref()?;
            attempt.speedup().map(|speedup| speedup.estimate)
        };
        let correct = view.attempts.iter().filter(|attempt| attempt.outcome.is_correct());
        let fastest = correct.filter_map(published).reduce(f64::max);
        let best = view.best_attempt.and_then(|number| view.attempts.iter().find(|attempt| attempt.number == number));
        prop_assert_eq!(best.and_then(published), fastest);
        // On a GPU the best was looked at for everything, and what was found in a program makes it fail.
        let looked_at = |attempt: &Attempt| {
            attempt.sanitize.as_ref().is_some_and(|report| {
                report.answer() == Answer::Pass && report.tools.iter().any(|run| run.tool == SanitizerTool::Initcheck)
            })
        };
        prop_assert!(!on_cuda || best.is_none_or(looked_at));
        for attempt in &view.attempts {
            let found = attempt.sanitize.as_ref().is_some_and(|report| report.answer() == Answer::Fail);
            prop_assert!(on_cuda || attempt.sanitize.is_none());
            prop_assert!(!found || attempt.outcome == AttemptOutcome::RuntimeFailed);
        }
        for attempt in view.attempts.iter().filter(|attempt| attempt.outcome.is_correct()) {
            let assured = attempt.assured_speedup();
            prop_assert_eq!(attempt.outcome == AttemptOutcome::CorrectFaster, assured.is_some_and(|low| low > 1.0));
        }
    }
}
