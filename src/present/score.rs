//! Rubric and rewards of an attempt, line by line.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::rubric::{JudgeOpinion, RewardBreakdown, Rubric, RubricScores};
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
        lines.extend(reward_lines(reward));
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

/// The reward, and what it was computed from.
fn reward_lines(reward: &RewardBreakdown) -> Vec<String> {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let rubric = match reward.rubric_total {
        Some(total) => format!("rubric {total} of 20 with a weight of {:.3}", reward.lambda),
        None => "no rubric, so the base alone".to_owned(),
    };
    vec![
        format!("reward: {:.3} (version {})", reward.reward, reward.version),
        format!(
            "  from: correct {}, grave cheat {}, speedup {:.3}; base {:.3}; {rubric}",
            yes(reward.correct),
            yes(reward.major_hacking),
            reward.speedup,
            reward.base
        ),
    ]
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
    if rubric.rule_major_hacking {
        lines.push("  rules: a grave cheat was found".to_owned());
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
    fn a_reward_is_shown_with_everything_that_went_in() {
        let reward = RewardBreakdown {
            version: 1,
            correct: true,
            major_hacking: false,
            speedup: 1.5,
            rubric_total: Some(17),
            lambda: 0.5,
            base: 0.7,
            reward: 1.125,
        };
        let lines = reward_lines(&reward).join("\n");
        assert!(lines.contains("1.125") && lines.contains("speedup 1.500; base 0.700; rubric 17 of 20"), "{lines}");
        let alone = reward_lines(&RewardBreakdown { rubric_total: None, ..reward }).join("\n");
        assert!(alone.contains("no rubric, so the base alone"), "{alone}");
    }

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
