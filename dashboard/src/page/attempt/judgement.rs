//! What was made of it: diagnosis, advice, rubric, reward, and where the run went.

use leptos::prelude::*;
use nightshift_protocol::attempt::{Attempt, DecidedBy, Diagnosis, RouteDecision};
use nightshift_protocol::rubric::{JudgeOpinion, RewardBreakdown, Rubric, RubricScores, Skill};
use nightshift_protocol::score::AttemptScore;

use crate::chart::{Caption, Ratings, Unit, radar, show, significant};
use crate::format::{moment, reward as shown_reward, words};
use crate::page::components::{Cell, facts, folded, sentences, table};

/// The names of the rubric's four directions, as the paper has them.
const DIRECTIONS: [&str; 4] = ["Anti-Hacking", "CUDA Engineering", "Operator Coverage", "Skill Compliance"];

/// Diagnosis, advice on a failure, and the route; none when there is nothing yet.
pub(super) fn diagnosis(attempt: &Attempt) -> Option<AnyView> {
    if attempt.diagnosis.is_none() && attempt.correction.is_none() && attempt.route.is_none() {
        return None;
    }
    let found = attempt.diagnosis.as_ref().map(diagnosed);
    let advice = attempt.correction.as_ref().map(|correction| {
        let advice = facts(&[
            ("Cause", correction.critical_issue.clone().into()),
            ("Importance", correction.why_it_matters.clone().into()),
            ("Smallest fix", correction.minimal_fix.clone().into()),
        ]);
        view! { <h3>"Advice on the failure"</h3>{advice} }
    });
    let route = attempt.route.as_ref().map(routed);
    Some(view! { {found}{advice}{route} }.into_any())
}

fn diagnosed(diagnosis: &Diagnosis) -> AnyView {
    let sums = facts(&[
        ("Critical issue", diagnosis.critical_issue.clone().into()),
        ("Modification", diagnosis.modification.clone().into()),
        ("Expected gain", diagnosis.expected_gain.map(|gain| show(gain, Unit::Times)).into()),
        ("The Verifier would", words(diagnosis.route.as_str()).into()),
        ("Reason to repeat", diagnosis.repeat_reason.clone().into()),
    ]);
    let metrics =
        (!diagnosis.metrics.is_empty()).then(|| view! { <h4>"Metrics behind it"</h4>{sentences(&diagnosis.metrics)} });
    let unsupported = (!diagnosis.unsupported.is_empty())
        .then(|| view! { <h4>"Metrics that it names and the evidence lacks"</h4>{sentences(&diagnosis.unsupported)} });
    view! { {sums}{metrics}{unsupported} }.into_any()
}

fn routed(route: &RouteDecision) -> AnyView {
    let by = match route.decided_by {
        DecidedBy::Rule => "a rule of the strategy",
        DecidedBy::Model => "the Verifier's advice",
    };
    let sums = facts(&[
        ("Then", Cell::Tag(String::new(), words(route.route.as_str()))),
        ("Because", route.reason.clone().into()),
        ("Decided by", by.into()),
        ("Rule", route.rule.as_deref().map(words).into()),
        ("The Verifier had advised", route.advice.map(|advice| words(advice.as_str())).into()),
    ]);
    view! { <h3 id="route">"Decision"</h3>{sums} }.into_any()
}

/// Rubric and reward; none when there is neither.
pub(super) fn rubric(attempt: &Attempt, scores: &[AttemptScore]) -> Option<AnyView> {
    if attempt.rubric.is_none() && attempt.reward.is_none() && scores.is_empty() {
        return None;
    }
    let rated = attempt.rubric.as_ref().map(rated);
    let reward = attempt.reward.as_ref().map(rewarded);
    let later = scores.iter().map(scored).collect::<Vec<_>>();
    Some(view! { {rated}{reward}{later} }.into_any())
}

fn four(scores: RubricScores) -> [u8; 4] {
    [scores.anti_hacking, scores.cuda_engineering, scores.operator_coverage, scores.skill_compliance]
}

fn rated(rubric: &Rubric) -> AnyView {
    let ratings = |name: &str, class, scores: &RubricScores| Ratings {
        name: format!("{name}, {} of 20", scores.total()),
        class,
        values: four(*scores).map(f64::from).to_vec(),
    };
    let mut all = vec![ratings("rules", "series-2", &rubric.rules)];
    let mut columns = vec![four(rubric.rules)];
    let judge = match &rubric.judge {
        JudgeOpinion::Rated { scores, major_hacking, reasons } => {
            all.push(ratings("judge", "series-1", scores));
            columns.push(four(*scores));
            let cheat = if *major_hacking { "yes" } else { "no" };
            let said = sentences(reasons);
            view! { <h4>"The judge's reasons"</h4><p>"Grave cheat seen by the judge: "{cheat}</p>{said} }.into_any()
        }
        JudgeOpinion::JudgeUnavailable { reason } => {
            view! { <p class="notice">"The judge was not available: "{reason.clone()}</p> }.into_any()
        }
    };
    let rows: Vec<Vec<Cell>> = DIRECTIONS
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let cells = columns
                .iter()
                .map(|scores| Cell::Number(scores.get(index).map_or_else(String::new, ToString::to_string)));
            std::iter::once(Cell::from(*name)).chain(cells).collect()
        })
        .collect();
    let skill = match rubric.skill {
        Skill::FromScratch => "from scratch: task to code",
        Skill::Refinement => "refinement: feedback to better code",
    };
    let drawn =
        radar(&Caption::new("Rubric", format!("Skill {skill}; each direction from 1 to 5.")), &DIRECTIONS, 5, &all)
            .view();
    let cheat = if rubric.rule_major_hacking { "yes" } else { "no" };
    let reasons = sentences(&rubric.rule_reasons);
    view! {
        {drawn}
        {table(&["Direction", "Rules", "Judge"], &rows)}
        <h4>"The rules' reasons"</h4>
        <p>"Grave cheat in the evidence: "{cheat}</p>
        {reasons}{judge}
    }
    .into_any()
}

fn rewarded(reward: &RewardBreakdown) -> AnyView {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let sums = facts(&[
        ("Reward", Cell::Tag(String::new(), shown_reward(reward.reward))),
        ("Base, before the rubric", significant(reward.base).into()),
        (
            "Rubric",
            reward
                .rubric_total
                .map_or_else(|| "none: the reward is the base alone".to_owned(), |total| format!("{total} of 20"))
                .into(),
        ),
        ("Weight of the rubric", significant(reward.lambda).into()),
        ("Speedup that went in", show(reward.speedup, Unit::Times).into()),
        ("Correct and compliant", yes(reward.correct).into()),
        ("Grave cheat", yes(reward.major_hacking).into()),
        ("Version of the function", reward.version.to_string().into()),
        (
            "How they make it",
            "base × (1 + weight × (share of the rubric − 0.5)), kept between 0 and 3; the share is (rubric − 4) / 16. \
             Nothing for what is wrong or cheats."
                .into(),
        ),
    ]);
    view! { <h3 id="reward">"Reward"</h3>{sums} }.into_any()
}

/// A score that was computed after the run had made its own.
fn scored(score: &AttemptScore) -> AnyView {
    let inputs = &score.scored.inputs;
    let number = |value: Option<f64>, unit| Cell::from(value.map(|value| show(value, unit)));
    let total = |total: Option<u32>| Cell::from(total.map(|total| format!("{total} of 20")));
    let mut given = vec![
        ("Speedup", number(inputs.speedup, Unit::Times)),
        ("At least", number(inputs.assured_speedup, Unit::Times)),
        ("Judge", total(inputs.judge_total)),
        ("Rules", total(inputs.rule_total)),
        ("Time in own kernels", number(inputs.own_kernel_share, Unit::Share)),
        ("Rules of version", score.rules_version.to_string().into()),
        ("Computed", moment(score.at).into()),
    ];
    given.insert(0, ("Reward", Cell::Tag(String::new(), shown_reward(score.scored.reward))));
    let terms: Vec<Vec<Cell>> = score
        .scored
        .terms
        .iter()
        .map(|term| vec![words(&term.name).into(), Cell::Number(significant(term.value))])
        .collect();
    let (sums, terms) = (facts(&given), table(&["Term", "Value"], &terms));
    folded(
        format!("By {}: {}", score.scored.formula.as_str(), shown_reward(score.scored.reward)),
        view! { {sums}{terms} }.into_any(),
    )
}
