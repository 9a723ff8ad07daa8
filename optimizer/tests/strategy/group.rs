//! Groups of answers to the very same prompt.

use nightshift_optimizer::strategy::min_candidates;
use nightshift_protocol::attempt::{Attempt, Route};
use nightshift_protocol::step::{CodeRequest, StepInput};
use nightshift_protocol::task::TaskGoal;
use proptest::prelude::*;

use super::random::{any_goal, any_script};
use super::script::{Script, Try, advised, right};
use super::simulator::{Failure, Finished};

type TestResult = Result<(), Failure>;

fn goal(attempts: u32, size: u32) -> TaskGoal {
    TaskGoal { max_attempts: Some(attempts), candidates_per_round: Some(size), ..TaskGoal::default() }
}

/// Plays the steps of a group in turns, so that all members are under way at once.
fn play(script: &Script, goal: TaskGoal) -> Result<Finished, Failure> {
    let mut turn = 0;
    script.play_by("group", goal, move |open| {
        turn += 1;
        turn % open
    })
}

/// The members of each group, in order.
fn groups(run: &Finished) -> Vec<Vec<&Attempt>> {
    let mut groups: Vec<Vec<&Attempt>> = Vec::new();
    for attempt in &run.view.attempts {
        let is_next = attempt.candidate.is_none_or(|candidate| candidate.number == 1);
        match groups.last_mut() {
            Some(group) if !is_next => group.push(attempt),
            _ => groups.push(vec![attempt]),
        }
    }
    groups
}

/// What the author of an attempt was given, without which member of its group it is.
fn request(run: &Finished, attempt: &Attempt) -> Option<CodeRequest> {
    let key = format!("subtask{}/attempt{}/write_code", attempt.subtask, attempt.number);
    match run.input(&key) {
        Some(StepInput::WriteCode { request, .. }) => Some(CodeRequest { candidate: None, ..*request.clone() }),
        _ => None,
    }
}

#[test]
fn the_members_of_a_group_are_given_the_very_same_and_the_next_group_starts_from_the_best() -> TestResult {
    let first = [right(1.2), Try::Wrong, right(1.5)];
    let second = [right(1.4), right(2.0), Try::NoCode];
    let run = play(&Script::of([first, second].concat()), goal(6, 3))?;
    assert_eq!(
        run.lineage(),
        ["1.1 draft", "1.1 draft", "1.1 draft", "1.1 optimize from 3", "1.1 optimize from 3", "1.1 optimize from 3"]
    );
    for group in groups(&run) {
        let asked: Vec<Option<CodeRequest>> = group.iter().map(|attempt| request(&run, attempt)).collect();
        assert!(asked[0].is_some() && asked.iter().all(|request| *request == asked[0]), "{asked:?}");
        let places: Vec<_> = group.iter().filter_map(|attempt| attempt.candidate).collect();
        assert!(places.iter().all(|place| place.of == 3 && place.group == Some(group[0].number)), "{places:?}");
    }
    let asked = run.view.attempts[3].modification.as_ref().ok_or("no modification")?;
    assert_eq!((asked.text.as_str(), asked.from), ("modification 3", 3));
    assert_eq!((run.stopped(), run.digest.best_attempt), ("attempt_budget", Some(5)));
    Ok(())
}

#[test]
fn a_group_without_a_right_answer_is_mended_where_it_came_furthest_and_then_planned_anew() -> TestResult {
    let tries = [Try::CompileError, Try::Wrong, Try::NoCode, Try::Forbidden, right(2.0), right(1.0)];
    let run = play(&Script::of(tries), goal(6, 2))?;
    assert_eq!(
        run.lineage(),
        [
            "1.1 draft",
            "1.1 draft",
            "1.1 repair_correctness from 2",
            "1.1 repair_correctness from 2",
            "2.1 draft",
            "2.1 draft"
        ]
    );
    assert_eq!(run.routes()[..4], ["repair by rule", "repair by rule", "replan by rule", "replan by rule"]);
    Ok(())
}

#[test]
fn every_group_is_used_whatever_the_verifier_says() -> TestResult {
    let stop = |speedup| advised(speedup, Some(Route::Stop));
    let done = |speedup| advised(speedup, Some(Route::NextSubtask));
    let run = play(&Script::of([stop(1.1), stop(1.9), done(2.0), done(2.1), right(2.2), right(2.3)]), goal(6, 2))?;
    assert_eq!((run.stopped(), run.view.attempts.len()), ("attempt_budget", 6));
    let rules: Vec<_> = run.view.attempts.iter().filter_map(|attempt| attempt.route.as_ref()?.rule.clone()).collect();
    assert_eq!(rules, ["all_groups", "all_groups", "all_groups", "all_groups", "groups_used_up", "groups_used_up"]);
    let advice = run.view.attempts[0].route.as_ref().and_then(|route| route.advice);
    assert_eq!(advice, Some(Route::Stop), "what was advised is noted");
    Ok(())
}

#[test]
fn the_next_subtask_is_a_group_of_its_own() -> TestResult {
    let done = advised(1.5, Some(Route::NextSubtask));
    let script = Script::of([right(1.2), done, right(1.8), right(1.9)]).with_plans(&[&[None, None]]);
    let run = play(&script, goal(4, 2))?;
    assert_eq!(run.lineage()[2..], ["1.2 optimize from 2", "1.2 optimize from 2"]);
    assert_eq!(run.routes()[0], "next_subtask by model");
    Ok(())
}

#[test]
fn the_target_ends_it_and_what_is_no_group_is_not_begun() -> TestResult {
    let target = TaskGoal { target_speedup: Some(1.5), ..goal(8, 2) };
    assert_eq!(play(&Script::of([right(1.2), right(3.0)]), target)?.stopped(), "target_reached");
    let run = play(&Script::of([right(1.2), right(1.3), right(1.4), right(1.5)]), goal(5, 2))?;
    assert_eq!((run.stopped(), run.view.attempts.len()), ("attempt_budget", 4));
    let smaller = play(&Script::of([right(1.2), right(1.3), right(1.4), right(1.5), right(1.6)]), goal(5, 3))?;
    assert_eq!(groups(&smaller).iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
    Ok(())
}

#[test]
fn one_answer_is_no_group() -> TestResult {
    assert_eq!((min_candidates("group"), min_candidates("beam")), (2, 1));
    let run = play(&Script::of([right(1.2), right(1.3)]), goal(2, 1))?;
    assert_eq!(groups(&run).len(), 1, "a task that asks for one is given two");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// The simulator holds that nothing unverified is ever shown as the best.
    #[test]
    fn groups_end_within_their_budget_and_every_member_is_asked_the_same(
        script in any_script(),
        mut goal in any_goal(),
        size in 1_u32..6,
        picks in prop::collection::vec(0_usize..8, 1..20),
    ) {
        goal.candidates_per_round = Some(size);
        let budget = usize::try_from(goal.max_attempts.unwrap_or(16).max(1)).unwrap_or(usize::MAX);
        let mut next = picks.iter().cycle();
        let run = script
            .play_by("group", goal, |_| next.next().copied().unwrap_or(0))
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(run.view.stop_reason.is_some());
        prop_assert!((1..=budget).contains(&run.view.attempts.len()));
        for group in groups(&run) {
            prop_assert!(group.len() >= 2 || budget == 1, "a group of {} of {budget}", group.len());
            prop_assert!(group.len() <= usize::try_from(size.max(2)).unwrap_or(usize::MAX));
            let first = request(&run, group[0]);
            prop_assert!(first.is_some());
            for member in group {
                prop_assert_eq!(&request(&run, member), &first, "attempt {}", member.number);
                prop_assert!(member.reward.is_some() && member.route.is_some());
            }
        }
    }
}
