//! What a plan can give at most: by Amdahl's law from the shares of time, and by the roofline of the machine.

use std::collections::BTreeSet;

use nightshift_protocol::plan::{Plan, Subtask, SubtaskLimits};
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::task::TaskSpec;

use super::PlanProblem;
use super::shares::Shares;
use crate::roofline::{Roofline, TARGET_SLACK};

/// How far an expectation may lie above the one before it: estimates are no measurements.
const ORDER_SLACK: f64 = 1.02;
/// How far an estimated share may lie outside of what the profile shows.
const SHARE_SLACK: f64 = 0.05;

/// What the limits of a plan follow from.
#[derive(Debug, Clone, Default)]
pub(super) struct Grounds {
    pub(super) shares: Shares,
    pub(super) roofline: Roofline,
}

impl Grounds {
    /// `of_attempt` is the profile of the best attempt, where there is one.
    pub(super) fn of(spec: &TaskSpec, prepared: &PreparedTask, of_attempt: Option<&Profile>) -> Self {
        let roofline = Roofline::of(spec, prepared, of_attempt);
        Self { shares: Shares::of(spec, prepared.profile.as_deref()), roofline }
    }
}

/// Speedup of the whole when a part with this share of the time becomes so many times faster.
pub(super) fn amdahl(share: f64, gain: f64) -> f64 {
    1.0 / (1.0 - share + share / gain)
}

/// Speedup of the whole when a part with this share takes no time at all; none when nothing is left.
pub(super) fn amdahl_limit(share: f64) -> Option<f64> {
    (share < 1.0).then(|| 1.0 / (1.0 - share))
}

/// Writes down what follows for each subtask, and takes the share from the profile where that decides it.
pub(super) fn write_down(plan: &mut Plan, grounds: &Grounds) {
    for subtask in &mut plan.subtasks {
        let range = grounds.shares.of_scope(&subtask.scope);
        let measured = range.filter(|range| range.is_decided());
        if let Some(measured) = measured {
            subtask.time_share = Some(measured.low);
        }
        let share = subtask.time_share;
        let roof = grounds.roofline.limit();
        // A live model's plan was refused before; a script's goes on with what this machine allows.
        let above = roof.filter(|floor| subtask.target_speedup.is_some_and(|target| floor.is_passed_by(target)));
        let wanted_target = above.and(subtask.target_speedup);
        if let Some(floor) = above {
            subtask.target_speedup = Some(floor.speedup);
        }
        let limits = SubtaskLimits {
            wanted_target,
            share_from: match (share, measured) {
                (None, _) => String::new(),
                (Some(_), Some(_)) => "profile".to_owned(),
                (Some(_), None) => "estimate".to_owned(),
            },
            expected_speedup: share.zip(subtask.expected_gain).map(|(share, gain)| amdahl(share, gain)),
            amdahl_speedup: share.and_then(amdahl_limit),
            roofline_speedup: roof.map(|floor| floor.speedup),
            roofline_by: roof.map_or_else(String::new, |floor| floor.by.as_str().to_owned()),
        };
        subtask.limits = (limits != SubtaskLimits::default()).then_some(limits);
    }
}

/// Shares and gains are numbers that can be meant.
pub(super) fn check_numbers(index: usize, subtask: &Subtask) -> Result<(), PlanProblem> {
    if subtask.time_share.is_some_and(|share| !share.is_finite() || !(0.0..=1.0).contains(&share)) {
        return Err(PlanProblem::Share(format!("subtasks[{index}].time_share")));
    }
    if subtask.expected_gain.is_some_and(|gain| !gain.is_finite() || gain <= 0.0) {
        return Err(PlanProblem::Speedup(format!("subtasks[{index}].expected_gain")));
    }
    Ok(())
}

/// Subtasks stand in the order of what they give to the whole program, as far as the plan says it.
pub(super) fn check_order(plan: &Plan) -> Result<(), PlanProblem> {
    let given = |subtask: &Subtask| Some(amdahl(subtask.time_share?, subtask.expected_gain?));
    let mut before: Option<(usize, f64)> = None;
    for (number, subtask) in (1..).zip(&plan.subtasks) {
        let Some(speedup) = given(subtask) else { continue };
        if let Some((earlier, least)) = before.filter(|(_, least)| speedup > least * ORDER_SLACK) {
            return Err(PlanProblem::Order { earlier, least, later: number, speedup });
        }
        before = Some((number, speedup));
    }
    Ok(())
}

/// No target lies above what the shares of its subtask and those before it allow.
pub(super) fn check_targets(plan: &Plan) -> Result<(), PlanProblem> {
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    let mut share = Some(0.0_f64);
    for (number, subtask) in (1..).zip(&plan.subtasks) {
        // A scope that earlier subtasks covered is counted already. The share of a part of a scope is not known.
        let is_new = subtask.scope.iter().all(|name| !covered.contains(name.as_str()));
        let is_known = subtask.scope.iter().all(|name| covered.contains(name.as_str()));
        share = match (share, subtask.time_share) {
            (Some(before), Some(own)) if is_new => Some(before + own),
            (Some(before), _) if is_known => Some(before),
            _ => None,
        };
        covered.extend(subtask.scope.iter().map(String::as_str));
        let limit = share.and_then(|share| amdahl_limit(share.min(1.0)));
        if let Some((target, limit)) =
            subtask.target_speedup.zip(limit).filter(|(target, limit)| *target > limit * TARGET_SLACK)
        {
            return Err(PlanProblem::AboveAmdahl { subtask: number, target, limit });
        }
    }
    Ok(())
}

/// What depends on this machine: shares as the profile shows them, and the roofline.
pub(super) fn check_machine(plan: &Plan, grounds: &Grounds) -> Result<(), PlanProblem> {
    for (number, subtask) in (1..).zip(&plan.subtasks) {
        let range = grounds.shares.of_scope(&subtask.scope);
        if let Some((share, range)) = subtask.time_share.zip(range)
            && !(range.low - SHARE_SLACK..=range.high + SHARE_SLACK).contains(&share)
        {
            return Err(PlanProblem::UnlikeProfile { subtask: number, share, low: range.low, high: range.high });
        }
        if let Some((target, floor)) = subtask.target_speedup.zip(grounds.roofline.limit())
            && floor.is_passed_by(target)
        {
            let (limit, reason) = (floor.speedup, floor.reason.clone());
            return Err(PlanProblem::AboveRoofline { subtask: number, target, limit, reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roofline::Roof;

    fn subtask(scope: &[&str], share: Option<f64>, gain: Option<f64>, target: Option<f64>) -> Subtask {
        Subtask {
            scope: scope.iter().map(|name| (*name).to_owned()).collect(),
            time_share: share,
            expected_gain: gain,
            target_speedup: target,
            ..Subtask::default()
        }
    }

    fn plan(subtasks: Vec<Subtask>) -> Plan {
        Plan { subtasks, ..Plan::default() }
    }

    #[test]
    fn amdahls_law_says_what_a_part_gives_to_the_whole() {
        assert!((amdahl(0.5, 2.0) - 4.0 / 3.0).abs() < 1e-12);
        assert!((amdahl(1.0, 3.0) - 3.0).abs() < 1e-12);
        assert_eq!(amdahl_limit(0.5), Some(2.0));
        assert_eq!(amdahl_limit(1.0), None);
    }

    #[test]
    fn subtasks_stand_in_the_order_of_what_they_give() {
        let large = || subtask(&["a"], Some(0.6), Some(3.0), None);
        let small = || subtask(&["b"], Some(0.1), Some(9.0), None);
        let unknown = || subtask(&["c"], None, Some(9.0), None);
        assert_eq!(check_order(&plan(vec![large(), unknown(), small()])), Ok(()));
        let problem = check_order(&plan(vec![small(), unknown(), large()])).err().map(|p| p.to_string());
        assert!(problem.is_some_and(|text| text.contains("subtask 3") && text.contains("subtask 1")));
    }

    #[test]
    fn no_target_lies_above_what_the_shares_allow() {
        let of = |target| plan(vec![subtask(&["a"], Some(0.5), None, Some(target))]);
        assert_eq!(check_targets(&of(2.0)), Ok(()));
        assert!(matches!(check_targets(&of(2.5)), Err(PlanProblem::AboveAmdahl { subtask: 1, .. })));
        // Together they cover everything: there is no limit any more.
        let both = vec![subtask(&["a"], Some(0.5), None, None), subtask(&["b"], Some(0.5), None, Some(9.0))];
        assert_eq!(check_targets(&plan(both)), Ok(()));
        // The same scope again adds nothing.
        let again = vec![subtask(&["a"], Some(0.5), None, None), subtask(&["a"], Some(0.5), None, Some(2.5))];
        assert!(matches!(check_targets(&plan(again)), Err(PlanProblem::AboveAmdahl { subtask: 2, .. })));
        // An unknown share sets no limit.
        let blank = vec![subtask(&["a"], None, None, None), subtask(&["b"], Some(0.1), None, Some(9.0))];
        assert_eq!(check_targets(&plan(blank)), Ok(()));
    }

    #[test]
    fn no_target_lies_above_the_roofline_and_no_share_beside_the_profile() {
        let grounds = Grounds {
            roofline: Roofline::at(Roof::Compute, 4.0),
            shares: Shares::from_parts(vec![(vec!["a".to_owned()], 0.7), (vec!["b".to_owned()], 0.2)], 0.1),
        };
        let check = |share, target| check_machine(&plan(vec![subtask(&["a"], share, None, target)]), &grounds);
        assert_eq!(check(Some(0.72), Some(4.0)), Ok(()));
        let above = check(None, Some(5.0)).err().map(|problem| problem.to_string()).unwrap_or_default();
        assert!(above.contains("subtask 1") && above.contains("at most 4.00: by its compute"), "{above}");
        assert!(matches!(check(Some(0.3), None), Err(PlanProblem::UnlikeProfile { subtask: 1, .. })));
    }

    #[test]
    fn what_the_profile_decides_replaces_the_estimate() {
        let grounds = Grounds {
            roofline: Roofline::at(Roof::Memory, 9.0),
            shares: Shares::from_parts(vec![(vec!["a".to_owned()], 0.75), (vec!["b".to_owned()], 0.25)], 0.0),
        };
        let mut plan = plan(vec![subtask(&["a"], Some(0.7), Some(3.0), None), subtask(&["c"], Some(0.1), None, None)]);
        write_down(&mut plan, &grounds);
        let limits = plan.subtasks[0].limits.clone().unwrap_or_default();
        assert_eq!((plan.subtasks[0].time_share, limits.share_from.as_str()), (Some(0.75), "profile"));
        assert!(limits.expected_speedup.is_some_and(|speedup| (speedup - 2.0).abs() < 1e-12));
        assert_eq!(limits.amdahl_speedup, Some(4.0));
        assert_eq!((limits.roofline_speedup, limits.roofline_by.as_str()), (Some(9.0), "memory"));
        assert_eq!(limits.wanted_target, None);
    }

    #[test]
    fn a_script_for_another_machine_is_held_to_what_this_one_allows() {
        let grounds = Grounds { roofline: Roofline::at(Roof::Compute, 9.0), shares: Shares::default() };
        let mut plan = plan(vec![subtask(&["a"], None, None, Some(20.0)), subtask(&["b"], None, None, Some(9.2))]);
        write_down(&mut plan, &grounds);
        let told: Vec<(Option<f64>, Option<f64>)> = plan
            .subtasks
            .iter()
            .map(|subtask| (subtask.target_speedup, subtask.limits.as_ref().and_then(|limits| limits.wanted_target)))
            .collect();
        assert_eq!(told, [(Some(9.0), Some(20.0)), (Some(9.2), None)]);
    }
}
