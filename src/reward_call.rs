//! A trainer's reward call: what it sends, what it gets, and how one program becomes a run.
//!
//! Each program is a run of one attempt of its own: plan and reply are handed in as a script, so that the worker's whole
//! ladder looks at it (build, check, sanitizer, measurement in a fresh process, profile), under the limits that the worker
//! keeps on its GPUs. What a run cannot answer has no reward: a broken machine must not teach anything.

use std::borrow::Cow;
use std::collections::BTreeMap;

use nightshift_optimizer::reply::{CodeProblem, EditProblem, extract_program};
use nightshift_optimizer::reward::formula;
use nightshift_optimizer::reward::recompute::rubric_of;
use nightshift_optimizer::rollout::group::advantages;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{Attempt, EDIT_SEARCH};
use nightshift_protocol::error::ApiError;
use nightshift_protocol::fence::fence_of;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::plan::{Plan, Subtask};
use nightshift_protocol::rubric::{JudgeOpinion, Rubric, Skill};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::score::{RewardFormula, ScoredReward};
use nightshift_protocol::task::{CandidateForm, TaskSpec};
use nightshift_protocol::verdict::{Finding, Verdict};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

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
    /// Source of the program that it started from: edits in the completion are made in it.
    #[serde(default)]
    pub(crate) before: Option<String>,
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

/// Code of edits that cannot be made.
const BAD_EDIT: &str = "reply.bad_edit";
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
    pub(crate) fn of(spec: &TaskSpec, detail: &RunDetail, skill: Skill, named: RewardFormula, judged: bool) -> Self {
        let Some(attempt) = scored(detail) else {
            let failure = detail.summary.failure.as_ref();
            let (code, message) = failure.map_or_else(
                || ("reward.not_scored".to_owned(), "the run ended before its program was looked at".to_owned()),
                |failure| (failure.code.clone(), failure.message.clone()),
            );
            return Self::failed(&code, message);
        };
        // The run does not know the skill: its attempt is a draft.
        let rubric = attempt.rubric.as_ref().and_then(|_| rubric_of(spec, &detail.view, attempt, skill));
        let scored = formula::score(named, &formula::inputs(attempt, skill, rubric.as_ref()));
        let rubric = rubric.map(|rubric| shown(rubric, attempt, judged));
        Self {
            reward: Some(scored.reward),
            error: None,
            breakdown: Some(breakdown(detail, attempt, rubric, scored)),
            advantage: None,
        }
    }

    /// Says why the edits of a completion could not be made. The run, which has no program to edit, says only that.
    pub(crate) fn explain(&mut self, problem: &CodeProblem) {
        let findings = self.breakdown.iter_mut().flat_map(|breakdown| &mut breakdown.findings);
        for finding in findings.filter(|finding| finding.code == BAD_EDIT) {
            (finding.code, finding.message) = (problem.code().to_owned(), problem.to_string());
        }
    }
}

fn breakdown(detail: &RunDetail, attempt: &Attempt, rubric: Option<Rubric>, scored: ScoredReward) -> Breakdown {
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
        rubric,
        scored,
    }
}

/// A rubric as it is shown. Where no judge was asked for, the run knows only that its script has no such reply, which is
/// nothing that a caller could mend.
fn shown(mut rubric: Rubric, attempt: &Attempt, judged: bool) -> Rubric {
    if !judged && attempt.outcome.is_correct() {
        rubric.judge = JudgeOpinion::JudgeUnavailable { reason: NO_JUDGE.to_owned() };
    }
    rubric
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

/// The text that a run receives as the Coder's reply.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    /// The completion. Where it edits a program, the program that the edits make.
    pub(crate) text: Cow<'a, str>,
    /// Why its edits cannot be made.
    pub(crate) problem: Option<CodeProblem>,
}

/// Returns the reply of an item: a run has no program to edit. Returns an error for edits without a program: what they are
/// worth cannot be found out.
pub(crate) fn reply(item: &RewardItem, form: CandidateForm) -> Result<Reply<'_>> {
    let as_it_is = Cow::Borrowed(item.completion.as_str());
    let alone = extract_program(&item.completion, None, form);
    let edits = matches!(alone, Err(CodeProblem::Edit(EditProblem::NothingToEdit)));
    if edits && item.before.is_none() {
        let message = "the completion edits a program: send the program that its prompt shows as `before`";
        return Err(Failure::new("reward.no_program_before", message));
    }
    Ok(match extract_program(&item.completion, item.before.as_deref(), form) {
        Ok(program) if edits => {
            let fence = fence_of(&program);
            Reply { text: Cow::Owned(format!("{fence}\n{program}{fence}\n")), problem: None }
        }
        Err(problem) if edits => Reply { text: as_it_is, problem: Some(problem) },
        // The run does not have the program before. It refuses every edit, and so this one, which stands for no change.
        Err(problem @ CodeProblem::Edit(EditProblem::NoChange)) => {
            Reply { text: Cow::Borrowed(EDIT_SEARCH), problem: Some(problem) }
        }
        Ok(_) | Err(_) => Reply { text: as_it_is, problem: None },
    })
}

/// The script of a run that looks at one program: a plan of one subtask, and the program. Whatever else is asked has no
/// reply, which the strategy takes for an agent that is not available.
pub(crate) fn script(spec: &TaskSpec, reply: &str) -> serde_json::Result<BTreeMap<String, String>> {
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
        ("subtask1.attempt1.write_code".to_owned(), reply.to_owned()),
    ]))
}

/// Names a campaign after what it looks at: the same program for the same task is looked at once. The script holds the
/// program that edits make.
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
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    fn item(group: Option<&str>) -> RewardItem {
        RewardItem {
            task: "t".to_owned(),
            completion: String::new(),
            before: None,
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
    fn edits_need_the_program_that_they_change() {
        let edit = "Shorter.\n<<<<<<< SEARCH\nint x;\n=======\nint y;\n>>>>>>> REPLACE\n";
        let of = |completion: &str, before: Option<&str>| {
            let item =
                RewardItem { completion: completion.to_owned(), before: before.map(str::to_owned), ..item(None) };
            let reply = reply(&item, CandidateForm::Native)?;
            Ok::<_, Failure>((reply.text.into_owned(), reply.problem.map(|problem| problem.to_string())))
        };
        assert_eq!(of(edit, Some("int a;\nint x;\n")).unwrap(), ("```\nint a;\nint y;\n```\n".to_owned(), None));
        assert_eq!(of(edit, None).unwrap_err().error.code, "reward.no_program_before");
        let (text, problem) = of(edit, Some("int z;\n")).unwrap();
        assert!(text == edit && problem.is_some_and(|problem| problem.contains("does not match")));
        let again = "```cpp\nint x; // faster\n```";
        let (text, problem) = of(again, Some("int x;\n")).unwrap();
        let refused = extract_program(&text, None, CandidateForm::Native);
        assert!(matches!(refused, Err(CodeProblem::Edit(_))), "{text}");
        assert!(problem.is_some_and(|problem| problem.contains("changes nothing")));
        assert_eq!(of(again, Some("int y;\n")).unwrap(), (again.to_owned(), None));
        // Whole programs and replies without one need no program before them.
        for whole in ["```cpp\nint x;\n```", "I would rather not.", "<<<<<<< SEARCH\nint x;\n"] {
            assert_eq!(of(whole, None).unwrap(), (whole.to_owned(), None));
        }
    }

    #[test]
    fn an_item_with_a_field_that_is_not_known_is_refused() {
        let call = serde_json::from_str::<RewardCall>(r#"{"items": [{"task": "t", "completion": "", "reward": 5}]}"#);
        assert!(call.is_err());
    }
}
