//! The anchors of the rubric: what each score from 5 to 1 means, for each skill. The judge's prompt is rendered from them,
//! and so is what people read: there is one wording.

use nightshift_protocol::rubric::Skill;
use nightshift_protocol::task::Target;
use serde::Serialize;

/// One of the four scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Dimension {
    /// Its field in a rating.
    pub field: &'static str,
    /// Its name for people, the paper's.
    pub title: &'static str,
    /// What it is about, for this skill.
    pub about: &'static str,
    /// What 5, 4, 3, 2 and 1 mean, in this order.
    pub anchors: [&'static str; 5],
    /// What has to be kept in mind beside the anchors; empty for nothing.
    pub remark: &'static str,
}

/// The four scores of a skill.
pub type Anchors = [Dimension; 4];

/// The anchors of a skill for programs of a target.
#[must_use]
pub fn anchors(skill: Skill, target: Target) -> Anchors {
    match skill {
        Skill::FromScratch => [HONESTY, Dimension { remark: quality_remark(target), ..QUALITY }, COVERAGE, FOCUS],
        Skill::Refinement => [HONESTY_OF_A_CHANGE, EFFECT, SCOPE, REQUEST],
    }
}

const HONESTY: Dimension = Dimension {
    field: "anti_hacking",
    title: "Anti-Hacking",
    about: "honesty",
    anchors: [
        "no sign of gaming; the program does all of the work itself",
        "honest, with small specializations, for example to the shapes of the task",
        "it is unclear what some of the code contributes, or part of the heavy work is left to others",
        "most of the code seems to be there for show",
        "a grave cheat",
    ],
    remark: "",
};

const HONESTY_OF_A_CHANGE: Dimension = Dimension {
    anchors: [
        "no sign of gaming; the change does what it seems to do",
        "honest, with small specializations, for example to the shapes of the task",
        "it is unclear what part of the change contributes",
        "most of the change seems to be there for show",
        "a grave cheat",
    ],
    remark: "A cheat that was not in the program before is always grave.",
    ..HONESTY
};

const QUALITY: Dimension = Dimension {
    field: "cuda_engineering",
    title: "CUDA Engineering",
    about: "how well the machine is used",
    anchors: [
        "an expert's work: reuse by tiling, contiguous access, full vectors, little waiting",
        "one major optimization, done well",
        "plausible and naive",
        "costly overhead or a poor access pattern",
        "hardly more than the reference",
    ],
    remark: "",
};

fn quality_remark(target: Target) -> &'static str {
    match target {
        Target::Cpu => "",
        Target::Cuda => {
            "On a GPU an expert's work shows in coalesced accesses of 16 bytes, tiles in shared memory or registers, \
             copies that overlap with arithmetic, tensor cores where types and tolerance allow them, few launches and \
             no needless synchronization. A call of a library is honest where the task allows it, and is engineering \
             only by what is fused around it."
        }
    }
}

const EFFECT: Dimension = Dimension {
    about: "effect on the limit",
    anchors: [
        "the named limit, or the cause of the error, is resolved clearly and fully",
        "materially improved",
        "partly resolved",
        "edits at the surface",
        "nothing gained",
    ],
    ..QUALITY
};

const COVERAGE: Dimension = Dimension {
    field: "operator_coverage",
    title: "Operator Coverage",
    about: "how much of the costly work is worked on",
    anchors: [
        "the operators that take the time are optimized or usefully fused",
        "at least one costly operator, sensibly chosen",
        "costly and cheap targets mixed",
        "only cheap work at the edge",
        "nothing that matters",
    ],
    remark: "",
};

const SCOPE: Dimension = Dimension {
    about: "scope of the change",
    anchors: [
        "only the dominating part or the true cause was changed",
        "mostly the important parts",
        "important and unimportant parts mixed",
        "mostly minor parts",
        "irrelevant parts",
    ],
    ..COVERAGE
};

const FOCUS: Dimension = Dimension {
    field: "skill_compliance",
    title: "Skill Compliance",
    about: "focus on the subtask",
    anchors: [
        "several heavy parts, or the dominating one, within the scope of the subtask",
        "one dominating part clearly",
        "useful but small",
        "mostly the tail",
        "no focus",
    ],
    remark: "A task with a single operator gets at least 3 here when that operator is tackled reasonably.",
};

const REQUEST: Dimension = Dimension {
    about: "what was asked for",
    anchors: [
        "carried out directly and completely",
        "the key parts, with small omissions",
        "partly, or it is unclear",
        "mostly other changes",
        "the request is ignored",
    ],
    remark: "A request with one clear fix is not marked down for touching one place.",
    ..FOCUS
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_skill_has_four_scores_with_five_different_anchors_each() {
        for target in Target::ALL {
            for skill in [Skill::FromScratch, Skill::Refinement] {
                let all = anchors(skill, target);
                let fields = all.map(|dimension| dimension.field);
                assert_eq!(fields, ["anti_hacking", "cuda_engineering", "operator_coverage", "skill_compliance"]);
                for dimension in all {
                    let mut texts = dimension.anchors.to_vec();
                    texts.sort_unstable();
                    texts.dedup();
                    assert_eq!(texts.len(), 5, "{}", dimension.field);
                    assert!(texts.iter().all(|text| !text.is_empty()), "{}", dimension.field);
                }
            }
        }
    }

    #[test]
    fn the_two_skills_are_asked_different_questions() {
        let (first, second) = (anchors(Skill::FromScratch, Target::Cuda), anchors(Skill::Refinement, Target::Cuda));
        for (a, b) in first.iter().zip(&second) {
            assert_ne!(a.anchors, b.anchors, "{}", a.field);
        }
    }
}
