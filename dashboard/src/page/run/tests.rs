//! The page of a run, with a recorded one, an empty one and a long one.

use super::*;
use crate::page::sample::Sample;
use crate::report;

fn html(detail: &RunDetail, steps: &[StepView]) -> String {
    report::with_links(page(detail, steps, &[], &Waiting::default(), "Night", &Who::default()))
}

fn is_live(detail: &RunDetail) -> bool {
    let page = page(detail, &[], &[], &Waiting::default(), "Night", &Who::default());
    !format!("{page:?}").contains("live: Still")
}

#[test]
fn a_failed_run_can_be_tried_again_so_its_page_follows() {
    use nightshift_protocol::run::RunStatus::{Cancelled, Completed, Failed};
    let mut detail = Sample::read().detail;
    let live = [Failed, Completed, Cancelled].map(|status| {
        detail.summary.status = status;
        is_live(&detail)
    });
    assert_eq!(live, [true, false, false]);
}

#[test]
fn a_run_shows_its_tree_its_plans_and_who_did_what() {
    let sample = Sample::read();
    let html = html(&sample.detail, &sample.steps);
    for part in [
        "Lineage",
        "branch best",
        "Speedup of each attempt",
        "Steps by worker",
        "subtask1/attempt2/check",
        "the Verifier sees nothing more to gain",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert_eq!(html.matches("name=\"a\"").count(), 4, "each attempt can be chosen");
    assert!(!html.contains("Tokens by role"), "replies from files have no tokens: nothing is drawn");
    assert!(!html.contains("Report as one file"), "a report offers nothing that only a page can");
}

#[test]
fn a_run_that_has_just_begun_says_what_it_waits_for() {
    let mut detail = Sample::read().detail;
    detail.view.attempts.clear();
    detail.view.plans.clear();
    detail.view.prepared = None;
    detail.cost.clear();
    detail.summary.status = nightshift_protocol::run::RunStatus::Running;
    detail.summary.awaits = vec!["plan".to_owned()];
    assert!(is_live(&detail));
    let html = html(&detail, &[]);
    for part in
        ["There is no attempt yet", "There is no plan yet", "No step was scheduled yet", "It waits for a person at: "]
    {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn a_run_of_thousands_of_attempts_is_a_bounded_page() {
    let mut detail = Sample::read().detail;
    let first = detail.view.attempts.first().cloned();
    let many = (1..=3_000).filter_map(|number| {
        let mut attempt = first.clone()?;
        attempt.number = number;
        attempt.parent = (number > 1).then_some(number / 2).filter(|parent| *parent > 0);
        Some(attempt)
    });
    detail.view.attempts = many.collect();
    let steps: Vec<StepView> = Sample::read().steps.into_iter().cycle().take(20_000).collect();
    let html = html(&detail, &steps);
    assert!(html.len() < 3 << 20, "{} bytes", html.len());
}

#[test]
fn attempts_that_a_run_left_in_the_works_are_not_finished_once_it_is_over() {
    use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
    use nightshift_protocol::run::RunStatus::{Cancelled, Failed, Running};
    let mut detail = Sample::read().detail;
    let left = detail.view.attempts.first().cloned().unwrap_or_else(|| panic!("an attempt"));
    let left = Attempt { number: 5, outcome: AttemptOutcome::Pending, measurement: None, confirmation: None, ..left };
    detail.view.attempts.push(left);
    let shown = [Failed, Cancelled, Running].map(|status| {
        detail.summary.status = status;
        let shown = html(&detail, &[]);
        let is_waiting = shown.contains(">pending<") || shown.contains("attempt 5: pending");
        (is_waiting, shown.matches("not finished").count() > 2)
    });
    assert_eq!(shown, [(false, true), (false, true), (true, false)]);
}

#[test]
fn a_subtask_without_a_scope_has_no_brackets_and_replies_from_files_no_price() {
    let mut detail = Sample::read().detail;
    let subtasks = detail.view.plans.iter_mut().flat_map(|version| &mut version.plan.subtasks);
    subtasks.for_each(|subtask| {
        subtask.title = "The whole program".to_owned();
        subtask.scope.clear();
    });
    let html = html(&detail, &[]);
    assert!(html.contains("1. The whole program<") && !html.contains("The whole program ()"), "{html}");
    assert!(!html.contains("$0"), "{html}");
}
