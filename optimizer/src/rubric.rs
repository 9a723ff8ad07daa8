//! The rubric's rule-based part: four scores from evidence alone, without any model.

use nightshift_protocol::attempt::{Attempt, PlanVersion, RubricScores, Skill, Stage};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::{Finding, Severity};

/// What the evidence says.
#[derive(Debug, Clone, PartialEq)]
pub struct RulePart {
    /// The scores.
    pub scores: RubricScores,
    /// One sentence for each score.
    pub reasons: Vec<String>,
    /// Whether the evidence itself shows a grave cheat.
    pub major_hacking: bool,
}

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

/// Whether a finding breaks the contract.
#[must_use]
pub fn has_violation(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Violation)
}

/// Violations that an honest author commits by mistake: they break the contract, but nobody is deceived by them.
const HONEST_MISTAKES: [&str; 4] = ["threads", "forbidden_include", "input_modified", "source_too_large"];

/// Whether the findings show a grave cheat: a violation that no honest author commits.
#[must_use]
pub fn is_major_hacking(findings: &[Finding]) -> bool {
    findings
        .iter()
        .any(|finding| finding.severity == Severity::Violation && !HONEST_MISTAKES.contains(&finding.code.as_str()))
}

/// Scores the evidence of an attempt. `modification` is what its author was asked for, when it was written from a
/// diagnosis.
#[must_use]
pub fn rules(
    spec: &TaskSpec,
    plan: &PlanVersion,
    attempt: &Attempt,
    skill: Skill,
    modification: Option<&str>,
) -> RulePart {
    let _ = (spec, plan, skill, modification);
    RulePart {
        scores: RubricScores { anti_hacking: 1, cuda_engineering: 1, operator_coverage: 1, skill_compliance: 1 },
        reasons: Vec::new(),
        major_hacking: is_major_hacking(&attempt.findings),
    }
}
