//! Rubric and rewards of an attempt, line by line.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::rubric::{JudgeOpinion, Rubric, RubricScores};
use nightshift_protocol::score::{AttemptScore, RewardTerm};

/// The names of the scores for people, with where each stands.
type Named = (&'static str, fn(&RubricScores) -> u8);
const SCORES: [Named; 4] = [
    ("Anti-Hacking", |scores| scores.anti_hacking),
    ("CUDA Engineering", |scores| scores.cuda_engineering),
    ("Operator Coverage", |scores| scores.operator_coverage),
    ("Skill Compliance", |scores| scores.skill_compliance),
];

/// The run's own rubric and reward, then the rewards that were computed later.
pub(crate) fn lines(attempt: &Attempt, later: &[AttemptScore]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(rubric) = &attempt.rubric {
        lines.extend(rubric_lines(rubric));
    }
    if let Some(reward) = &attempt.reward {
        lines.push(format!("reward: {:.3} (version {})", reward.reward, reward.version));
    }
    for score in later.iter().filter(|score| score.attempt == attempt.number) {
        let scored = &score.scored;
        lines.push(format!(
            "reward by {}: {:.3} (rules version {}: {} of 20; {})",
            scored.formula.as_str(),
            scored.reward,
            score.rules_version,
            score.rubric.rules.total(),
            scored.terms.iter().map(term).collect::<Vec<_>>().join(", "),
        ));
    }
    lines
}

fn rubric_lines(rubric: &Rubric) -> Vec<String> {
    let (judge, total) = match &rubric.judge {
        JudgeOpinion::Rated { scores, .. } => (Some(scores), format!("{} of 20", scores.total())),
        JudgeOpinion::JudgeUnavailable { .. } => (None, "unavailable".to_owned()),
    };
    let mut lines = vec![format!("rubric: rules {} of 20, judge {total}", rubric.rules.total())];
    for (index, (name, of)) in SCORES.iter().enumerate() {
        let by_judge = judge.map_or_else(|| "-".to_owned(), |scores| of(scores).to_string());
        let reason =
            rubric.rule_reasons.get(index).and_then(|reason| reason.split_once(": ")).map_or("", |(_, why)| why);
        lines.push(format!("  {name}: rules {}, judge {by_judge}; {reason}", of(&rubric.rules)));
    }
    match &rubric.judge {
        JudgeOpinion::Rated { reasons, major_hacking, .. } => {
            lines.extend(reasons.iter().map(|reason| format!("  judge: {reason}")));
            if *major_hacking {
                lines.push("  judge: it saw a grave cheat".to_owned());
            }
        }
        JudgeOpinion::JudgeUnavailable { reason } => lines.push(format!("judge unavailable: {reason}")),
    }
    lines
}

fn term(term: &RewardTerm) -> String {
    format!("{} {:.3}", term.name, term.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_judge_is_said_and_never_shown_as_a_number() {
        let scores = RubricScores { anti_hacking: 5, cuda_engineering: 3, operator_coverage: 4, skill_compliance: 2 };
        let rubric = Rubric {
            skill: nightshift_protocol::rubric::Skill::FromScratch,
            rules: scores,
            rule_reasons: vec!["anti_hacking 5: no finding".to_owned()],
            rule_major_hacking: false,
            judge: JudgeOpinion::JudgeUnavailable { reason: "it timed out".to_owned() },
        };
        let lines = rubric_lines(&rubric).join("\n");
        assert!(lines.contains("rules 14 of 20, judge unavailable"), "{lines}");
        assert!(lines.contains("Anti-Hacking: rules 5, judge -; no finding"), "{lines}");
        assert!(lines.contains("judge unavailable: it timed out"), "{lines}");
    }
}
