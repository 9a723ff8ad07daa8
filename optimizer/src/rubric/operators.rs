//! Which of the task's operators an attempt was about, from the scopes of the plan.
//!
//! On the native road all of the program is the candidate's own code; the question is which part of it was worked on.

use std::collections::BTreeSet;

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::plan::PlanVersion;
use nightshift_protocol::rubric::Skill;
use nightshift_protocol::task::{OperatorSpec, TaskSpec};

use super::{Scored, gpu, is_repair};

/// Weight of an operator that dominates programs.
const HEAVY: u32 = 4;
/// Weight of an operator of an unknown class.
const MEDIUM: u32 = 2;
/// Weight of an operator that touches each element once.
const LIGHT: u32 = 1;

/// Parts of the names of classes that dominate.
const HEAVY_CLASSES: [&str; 12] =
    ["matmul", "gemm", "linear", "conv", "attention", "softmax", "norm", "reduc", "stencil", "scan", "sort", "gather"];
/// Parts of the names of classes that touch each element once.
const LIGHT_CLASSES: [&str; 8] = ["elementwise", "activation", "bias", "residual", "cast", "copy", "scale", "add"];

fn weight(operator: &OperatorSpec) -> u32 {
    let class = operator.class.to_ascii_lowercase();
    if HEAVY_CLASSES.iter().any(|part| class.contains(part)) {
        HEAVY
    } else if LIGHT_CLASSES.iter().any(|part| class.contains(part)) {
        LIGHT
    } else {
        MEDIUM
    }
}

/// The class of the heaviest operator of a scope, the first of equal ones.
pub(super) fn heaviest_class(spec: &TaskSpec, scope: &[String]) -> Option<String> {
    let in_scope = spec.operators.iter().filter(|operator| scope.contains(&operator.name));
    let heaviest = in_scope.rev().max_by_key(|operator| weight(operator))?;
    Some(heaviest.class.to_ascii_lowercase())
}

/// Names in the scopes of the subtasks from `first` to `last`, both from 1.
fn scope(plan: &PlanVersion, first: u32, last: u32) -> BTreeSet<&str> {
    (1_u32..)
        .zip(&plan.plan.subtasks)
        .filter(|(number, _)| (first..=last).contains(number))
        .flat_map(|(_, subtask)| subtask.scope.iter().map(String::as_str))
        .collect()
}

/// From scratch: the share of the work, by weight, that the plan had reached: 5 from 90 %, 4 from 60 %, 3 from 35 %,
/// 2 less, 1 nothing; at most 3 where the program's own kernels take less than a fifth of the device's time, whatever the
/// plan reached. For a refinement: whether its subtask holds the heaviest operator (5), a heavy one (4), others
/// (3), or the light tail only (2).
pub(super) fn coverage(spec: &TaskSpec, plan: &PlanVersion, attempt: &Attempt, skill: Skill) -> Scored {
    if spec.operators.is_empty() {
        return (3, "operator_coverage 3: the task names no operators, so coverage cannot be told".to_owned());
    }
    match skill {
        Skill::FromScratch => done_by_itself(share(spec, &scope(plan, 1, attempt.subtask)), attempt),
        Skill::Refinement if is_repair(attempt.stage) => {
            let score = if attempt.outcome.is_correct() { 5 } else { 2 };
            let what = if score == 5 { "the repair met the cause" } else { "the repair did not meet the cause" };
            (score, format!("operator_coverage {score}: {what}"))
        }
        Skill::Refinement => hotspot(spec, &scope(plan, attempt.subtask, attempt.subtask)),
    }
}

/// Most that a program gets for operators that libraries work on in its place.
const MOST_FOR_OTHERS_WORK: u8 = 3;

fn done_by_itself((score, reason): Scored, attempt: &Attempt) -> Scored {
    match attempt.verdict.custom_kernel_time_share {
        Some(own) if own < gpu::OWN_SHARE && score > MOST_FOR_OTHERS_WORK => {
            let reason = reason.replacen(&format!(" {score}: "), &format!(" {MOST_FOR_OTHERS_WORK}: "), 1);
            let percent = own * 100.0;
            (MOST_FOR_OTHERS_WORK, format!("{reason}, but its own kernels take only {percent:.0} % of the time"))
        }
        _ => (score, reason),
    }
}

fn share(spec: &TaskSpec, names: &BTreeSet<&str>) -> Scored {
    let total: u32 = spec.operators.iter().map(weight).sum();
    let covered: u32 = covered(spec, names).map(weight).sum();
    let score = match covered * 100 / total.max(1) {
        90.. => 5,
        60..=89 => 4,
        35..=59 => 3,
        1..=34 => 2,
        0 => 1,
    };
    let percent = covered * 100 / total.max(1);
    (score, format!("operator_coverage {score}: the subtasks so far cover {percent} % of the operators by weight"))
}

fn hotspot(spec: &TaskSpec, scope: &BTreeSet<&str>) -> Scored {
    let heaviest = spec.operators.iter().map(weight).max().unwrap_or(LIGHT);
    match covered(spec, scope).map(weight).max() {
        None => (3, "operator_coverage 3: the subtask names no operator of the task".to_owned()),
        Some(found) if found == heaviest => {
            (5, "operator_coverage 5: the subtask is about the heaviest operator".to_owned())
        }
        Some(HEAVY) => (4, "operator_coverage 4: the subtask is about a heavy operator".to_owned()),
        Some(LIGHT) => (2, "operator_coverage 2: the subtask is about light operators only".to_owned()),
        Some(_) => (3, "operator_coverage 3: the subtask is not about the heaviest operator".to_owned()),
    }
}

/// From scratch: whether the parts that matter are in focus: all of them 5, half of them 4, some 3, the tail only 2,
/// nothing 1. A task with one operator is in focus when that one is.
pub(super) fn focus(spec: &TaskSpec, plan: &PlanVersion, attempt: &Attempt) -> Scored {
    if spec.operators.is_empty() {
        return (3, "skill_compliance 3: the task names no operators, so focus cannot be told".to_owned());
    }
    let names = scope(plan, 1, attempt.subtask);
    let heaviest = spec.operators.iter().map(weight).max().unwrap_or(LIGHT);
    let matters = |operator: &&OperatorSpec| weight(operator) == heaviest;
    let all = spec.operators.iter().filter(matters).count();
    let met = covered(spec, &names).filter(matters).count();
    let score = if met == all {
        5
    } else if met * 2 >= all {
        4
    } else if met > 0 {
        3
    } else if covered(spec, &names).next().is_some() {
        2
    } else {
        1
    };
    (score, format!("skill_compliance {score}: {met} of {all} dominating operators are in the subtasks so far"))
}

fn covered<'a>(spec: &'a TaskSpec, scope: &'a BTreeSet<&str>) -> impl Iterator<Item = &'a OperatorSpec> {
    spec.operators.iter().filter(|operator| scope.contains(operator.name.as_str()))
}
