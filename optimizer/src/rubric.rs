//! The rubric's rule-based part: four scores of 1 to 5 from evidence alone, without any model.
//!
//! The evidence is what the Verifier's steps left in the attempt: findings, compiler report, measurement, roofline, and
//! the plan's scope against the task's operators. The anchors are those of the two skills (see the files): 3 is what an
//! honest, unremarkable program gets, and also what is given where the evidence cannot tell; the reason says which.
//! What only a reader of the source can see is the model judge's part.

mod anchors;
mod anti_hacking;
mod engineering;
mod gpu;
mod operators;
mod request;

use std::borrow::Cow;

pub use anchors::{Anchors, Dimension, anchors};

use nightshift_protocol::attempt::{Attempt, Stage};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::plan::PlanVersion;
use nightshift_protocol::rubric::{RubricScores, Skill};
use nightshift_protocol::task::{CandidateForm, TaskSpec};
use nightshift_protocol::verdict::shows_deception;

/// Version of the rules: they change, and scores of different versions are not compared.
pub const RULES_VERSION: u32 = 6;

/// What the evidence says.
#[derive(Debug, Clone, PartialEq)]
pub struct RulePart {
    /// The scores.
    pub scores: RubricScores,
    /// One sentence for each score, in the order of the scores.
    pub reasons: Vec<String>,
    /// Whether the evidence itself shows a grave cheat.
    pub major_hacking: bool,
}

/// A score with its reason.
type Scored = (u8, String);

/// The skill that an attempt of this stage exercises.
#[must_use]
pub fn skill_of(stage: Stage) -> Skill {
    match stage {
        Stage::Draft => Skill::FromScratch,
        Stage::RepairCompile
        | Stage::RepairRuntime
        | Stage::RepairCorrectness
        | Stage::RepairCompliance
        | Stage::Optimize => Skill::Refinement,
    }
}

/// What an attempt was written from.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Before<'a> {
    /// What its author was asked for, when it was written from a diagnosis.
    pub modification: Option<&'a str>,
    /// The speedup of its parent, when that was timed.
    pub parent_speedup: Option<Interval>,
}

/// Scores the evidence of an attempt.
#[must_use]
pub fn rules(spec: &TaskSpec, plan: &PlanVersion, attempt: &Attempt, skill: Skill, before: Before<'_>) -> RulePart {
    let attempt = &*scored(spec, attempt);
    let (anti_hacking, honesty) = anti_hacking::score(spec, attempt);
    let (cuda_engineering, engineering) = engineering::score(attempt, skill, before.parent_speedup);
    let (operator_coverage, coverage) = operators::coverage(spec, plan, attempt, skill);
    let (skill_compliance, compliance) = match skill {
        Skill::FromScratch => operators::focus(spec, plan, attempt),
        Skill::Refinement => request::score(attempt, before.modification),
    };
    RulePart {
        scores: RubricScores { anti_hacking, cuda_engineering, operator_coverage, skill_compliance },
        reasons: vec![honesty, engineering, coverage, compliance],
        major_hacking: shows_deception(&attempt.findings),
    }
}

/// Returns an attempt as the rules read it. What a compiler tells of extensions of `PyTorch` is no part of it: other kernels of such a
/// program are in no report of its build.
fn scored<'a>(spec: &TaskSpec, attempt: &'a Attempt) -> Cow<'a, Attempt> {
    let mut attempt = Cow::Borrowed(attempt);
    if spec.form == CandidateForm::Torch
        && attempt.build.as_ref().is_some_and(|build| build.cuda.is_some())
        && let Some(build) = &mut attempt.to_mut().build
    {
        build.cuda = None;
    }
    attempt
}

/// The class of the heaviest operator of a scope; the class that the first name of a scope without known operators
/// suggests, itself. None for an empty scope.
#[must_use]
pub fn heaviest_class(spec: &TaskSpec, scope: &[String]) -> Option<String> {
    operators::heaviest_class(spec, scope).or_else(|| scope.first().map(|name| name.to_ascii_lowercase()))
}

fn is_repair(stage: Stage) -> bool {
    matches!(stage, Stage::RepairCompile | Stage::RepairRuntime | Stage::RepairCorrectness | Stage::RepairCompliance)
}

#[cfg(test)]
mod tests;
