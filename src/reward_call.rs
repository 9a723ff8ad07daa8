//! A trainer's reward call: what it sends, what it gets, and how one program becomes a run.
//!
//! Each program is a run of one attempt of its own: plan and reply are handed in as a script, so that the worker's whole
//! ladder looks at it (build, check, sanitizer, measurement in a fresh process, profile), under the limits that the worker
//! keeps on its GPUs. What a run cannot answer has no reward: a broken machine must not teach anything.

use std::collections::BTreeMap;

use nightshift_optimizer::reward::formula;
use nightshift_optimizer::rollout::group::advantages;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::error::ApiError;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::plan::{Plan, Subtask};
use nightshift_protocol::rubric::{JudgeOpinion, Rubric, Skill};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::score::{RewardFormula, ScoredReward};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::{Finding, Verdict};
use serde::{Deserialize, Serialize};

/// A batch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `items`")]
pub(crate) struct RewardCall {
    /// The programs.
    pub(crate) items: Vec<RewardItem>,
}

/// A program to be scored.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `task` and `completion`")]
pub(crate) struct RewardItem {
    /// The task: its name, or its id as rollouts carry it.
    pub(crate) task: String,
    /// What the model wrote, reasoning and all.
    pub(crate) completion: String,
    /// The skill that is rewarded.
    #[serde(default = "from_scratch")]
    pub(crate) skill: Skill,
    /// Programs of the same prompt carry the same name: their rewards become advantages.
    #[serde(default)]
    pub(crate) group: Option<String>,
}

fn from_scratch() -> Skill {
    Skill::FromScratch
}

/// The answer, in the order of the items.
#[derive(Debug, Serialize)]
pub(crate) struct RewardReply {
    /// One for each item.
    pub(crate) results: Vec<RewardResult>,
}

/// What became of one item.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RewardResult {
    /// The reward; none when it could not be found out, which is never the program's fault.
    pub(crate) reward: Option<f64>,
    /// Why there is none.
    pub(crate) error: Option<ApiError>,
    /// Everything that led to it.
    pub(crate) breakdown: Option<Breakdown>,
    /// The reward against those of its group; none outside of a group of several.
    pub(crate) advantage: Option<f64>,
}

/// Everything that led to a reward.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Breakdown {
    /// The run; `nightshift show` has the rest.
    pub(crate) run: String,
    /// What became of the program, in one word.
    pub(crate) outcome: &'static str,
    /// The five answers.
    pub(crate) verdict: Verdict,
    /// The published speedup with its interval.
    pub(crate) speedup: Option<Interval>,
    /// The same over the fastest baseline; none where that baseline is not known.
    pub(crate) speedup_over_fastest: Option<Interval>,
    /// What the checks objected to.
    pub(crate) findings: Vec<Finding>,
    /// Messages of the compiler.
    pub(crate) messages: Vec<String>,
    /// `rated`, or why the judge did not.
    pub(crate) rubric: Option<Rubric>,
    /// The reward with its terms.
    pub(crate) scored: ScoredReward,
}

/// Messages of a compiler in an answer.
const MAX_MESSAGES: usize = 10;
/// Why a correct program has no opinion of a judge where none was asked for.
const NO_JUDGE: &str = "no judge was asked for (`--judge-model`): the rules alone scored";

impl RewardResult {
    /// Nothing could be found out.
    pub(crate) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self { reward: None, error: Some(ApiError::new(code, message)), breakdown: None, advantage: None }
    }

    /// The reward of a run that is over. `judged` is whether a judge was asked for.
    pub(crate) fn of(detail: &RunDetail, skill: Skill, named: RewardFormula, judged: bool) -> Self {
        let Some(attempt) = scored(detail) else {
            let failure = detail.summary.failure.as_ref();
            let (code, message) = failure.map_or_else(
                || ("reward.not_scored".to_owned(), "the run ended before its program was looked at".to_owned()),
                |failure| (failure.code.clone(), failure.message.clone()),
            );
            return Self::failed(&code, message);
        };
        let scored = formula::score(named, &formula::inputs(attempt, skill, attempt.rubric.as_ref()));
        Self {
            reward: Some(scored.reward),
            error: None,
            breakdown: Some(breakdown(detail, attempt, scored, judged)),
            advantage: None,
        }
    }
}

fn breakdown(detail: &RunDetail, attempt: &Attempt, scored: ScoredReward, judged: bool) -> Breakdown {
    let messages = attempt.build.iter().flat_map(|build| &build.messages).take(MAX_MESSAGES);
    Breakdown {
        run: detail.summary.id.to_string(),
        outcome: attempt.outcome.as_str(),
        verdict: attempt.verdict.clone(),
        speedup: attempt.speedup(),
        speedup_over_fastest: detail
            .view
            .prepared
            .as_ref()
            .and_then(|prepared| prepared.over_fastest(attempt.published()?)),
        findings: attempt.findings.clone(),
        messages: messages.map(|message| format!("{}:{}: {}", message.file, message.line, message.message)).collect(),
        rubric: rubric(attempt, judged),
        scored,
    }
}

/// The rubric of a program. Where no judge was asked for, the run knows only that its script has no such reply, which is
/// nothing that a caller could mend.
fn rubric(attempt: &Attempt, judged: bool) -> Option<Rubric> {
    let mut rubric = attempt.rubric.clone()?;
    if !judged && attempt.outcome.is_correct() {
        rubric.judge = JudgeOpinion::JudgeUnavailable { reason: NO_JUDGE.to_owned() };
    }
    Some(rubric)
}

/// Gives each result of a group its advantage. One that has no reward takes no part.
pub(crate) fn compare(items: &[RewardItem], results: &mut [RewardResult]) {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        if let (Some(group), Some(_)) = (&item.group, results.get(index).and_then(|result| result.reward)) {
            groups.entry(group).or_default().push(index);
        }
    }
    for members in groups.values() {
        let rewards: Vec<f64> = members.iter().filter_map(|index| results[*index].reward).collect();
        for (index, advantage) in members.iter().zip(advantages(&rewards).unwrap_or_default()) {
            results[*index].advantage = Some(advantage);
        }
    }
}

/// The script of a run that looks at one program: a plan of one subtask, and the program. Whatever else is asked has no
/// reply, which the strategy takes for an agent that is not available.
pub(crate) fn script(spec: &TaskSpec, completion: &str) -> Result<BTreeMap<String, String>, serde_json::Error> {
    let mut scope: Vec<String> = spec.operators.iter().map(|operator| operator.name.clone()).collect();
    if scope.is_empty() {
        scope.push("program".to_owned());
    }
    let subtask = Subtask {
        title: "The whole program".to_owned(),
        scope,
        fusion_boundary: "Left to the program.".to_owned(),
        ..Subtask::default()
    };
    let plan = Plan { summary: spec.title.clone(), subtasks: vec![subtask], correctness_risks: Vec::new() };
    Ok(BTreeMap::from([
        ("plan".to_owned(), serde_json::to_string(&plan)?),
        ("subtask1.attempt1.write_code".to_owned(), completion.to_owned()),
    ]))
}

/// Names a campaign after what it looks at: the same program for the same task is looked at once.
pub(crate) fn key(task: &ArtifactHash, script: &ArtifactHash, judge: &str, allow_unsandboxed: bool) -> String {
    ArtifactHash::of(format!("reward\n{task}\n{script}\n{judge}\n{allow_unsandboxed}").as_bytes()).to_string()
}

/// Returns the attempt of a run, if it has been scored.
fn scored(detail: &RunDetail) -> Option<&Attempt> {
    detail.view.attempts.first().filter(|attempt| attempt.reward.is_some())
}

/// True if a run was cancelled or failed before its program was scored: another run may find out more.
pub(crate) fn is_without_answer(detail: &RunDetail) -> bool {
    matches!(detail.summary.status, RunStatus::Cancelled | RunStatus::Failed) && scored(detail).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(group: Option<&str>) -> RewardItem {
        RewardItem {
            task: "t".to_owned(),
            completion: String::new(),
            skill: Skill::FromScratch,
            group: group.map(str::to_owned),
        }
    }

    fn result(reward: Option<f64>) -> RewardResult {
        RewardResult { reward, error: None, breakdown: None, advantage: None }
    }

    #[test]
    fn what_has_no_reward_takes_no_part_in_its_group() {
        let items = [item(Some("a")), item(Some("a")), item(Some("a")), item(Some("b")), item(None)];
        let mut results = [Some(1.0), None, Some(2.0), Some(9.0), Some(5.0)].map(result);
        compare(&items, &mut results);
        let advantages: Vec<bool> = results.iter().map(|result| result.advantage.is_some()).collect();
        assert_eq!(advantages, [true, false, true, false, false]);
        assert!(results[0].advantage < results[2].advantage);
    }

    #[test]
    fn an_item_with_a_field_that_is_not_known_is_refused() {
        let call = serde_json::from_str::<RewardCall>(r#"{"items": [{"task": "t", "completion": "", "reward": 5}]}"#);
        assert!(call.is_err());
    }
}
