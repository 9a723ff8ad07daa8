//! Training rows: what a Coder was asked, what it answered, and what that was worth, for both atomic skills.
//!
//! Pure: the caller brings runs and artifacts, and writes what comes out. A row is made from each program of a finished
//! attempt: the judged one, and those that were fixed before. Its prompt is exactly what the model saw, its completion
//! exactly what it wrote, its reward is computed anew by a named formula.
//! Rows of the same prompt are a group, in which rewards become advantages. [`guard`] keeps tasks of one split out of the
//! others.

pub mod group;
pub mod guard;
pub mod jsonl;
pub mod layout;
pub mod parquet_file;
pub mod split;
pub mod transcript;
mod versions;

use std::collections::BTreeMap;

use nightshift_protocol::api::RunDetail;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::rubric::{JudgeOpinion, Skill};
use nightshift_protocol::score::{AttemptScore, RewardFormula};
use nightshift_protocol::task::{CandidateForm, TaskBundle};
use serde::Serialize;

use crate::model::TokenUsage;
use crate::reward::recompute::score_of;
use crate::screen::strip_candidate;
pub use guard::{Leak, Left};
pub use split::{Split, SplitRule};
pub use transcript::Message;

/// A row, before it is laid out for a trainer.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollout {
    /// The skill that it exercises.
    pub skill: Skill,
    /// The split that its task is in.
    pub split: Split,
    /// The task.
    pub task: TaskName,
    /// The run.
    pub run: String,
    /// The attempt.
    pub attempt: u32,
    /// The fix turn that brought it; 0 for the first version of an attempt's program.
    pub fix_turn: u32,
    /// The attempt that it was derived from; of a fix turn, the attempt itself.
    pub parent: Option<u32>,
    /// Why it was written.
    pub stage: &'static str,
    /// What became of it.
    pub outcome: &'static str,
    /// What the model saw.
    pub prompt: Vec<Message>,
    /// Source of the program that it started from, which edits in the completion change; none where there was none, and where
    /// it is not stored any more.
    pub before: Option<String>,
    /// What it wrote.
    pub completion: String,
    /// How it reasoned before it wrote, where its provider says so and the text is stored.
    pub reasoning: Option<String>,
    /// Tokens of the call that wrote it.
    pub tokens: TokenUsage,
    /// `endpoint/model`.
    pub model: String,
    /// The model that rated it; none where that is not known.
    pub judge_model: Option<String>,
    /// Whether the completion was written beforehand.
    pub scripted: bool,
    /// Hash of the prompt's templates.
    pub prompt_version: String,
    /// The score with all of its inputs.
    pub score: AttemptScore,
    /// The published speedup.
    pub speedup: Option<f64>,
    /// The published speedup over the fastest baseline; none where that baseline is not known.
    pub speedup_over_fastest: Option<f64>,
    /// That of the program before.
    pub parent_speedup: Option<f64>,
    /// That of the program before over the fastest baseline.
    pub parent_speedup_over_fastest: Option<f64>,
    /// The rows of the same prompt.
    pub group: group::Place,
    /// Source of the reference: an answer for trainers that want one, and never a part of a prompt beyond the task.
    pub reference_source: String,
}

/// What tells tasks apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TaskName {
    /// Its name.
    pub name: String,
    /// Its bundle.
    pub bundle: ArtifactHash,
    /// Hash of what it computes: target and reference without comments and blanks.
    pub fingerprint: String,
    /// `cpu` or `cuda`.
    pub target: &'static str,
}

/// A run with the artifacts that its rows are made of.
#[derive(Debug, Clone)]
pub struct RecordedRun {
    /// The run.
    pub detail: RunDetail,
    /// Its task.
    pub bundle: TaskBundle,
    /// Prompts, replies and sources, as far as they are stored.
    pub texts: BTreeMap<ArtifactHash, String>,
}

/// What rows are wanted.
#[derive(Debug, Clone)]
pub struct Wish {
    /// How tasks are split.
    pub splits: SplitRule,
    /// The formula of the rewards.
    pub formula: RewardFormula,
    /// Whether completions count that were written beforehand.
    pub with_scripted: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollouts {
    /// The rows, by run, attempt and fix turn.
    pub rows: Vec<Rollout>,
    /// Programs that gave no row, by the reason.
    pub left: BTreeMap<Left, u32>,
    /// The split of each task.
    pub tasks: BTreeMap<TaskName, Split>,
}

/// The artifacts that the rows of a run need.
#[must_use]
pub fn needed(detail: &RunDetail) -> Vec<ArtifactHash> {
    let mut needed = Vec::new();
    for attempt in &detail.view.attempts {
        needed.extend(attempt.source.clone());
        needed.extend(attempt.earlier_versions.iter().map(|version| version.source.clone()));
        for call in versions::of(attempt).iter().flat_map(|version| versions::writing_calls(version)) {
            needed.extend([call.prompt.clone(), call.reply.clone()]);
            needed.extend(call.reasoning.clone());
        }
    }
    needed.sort();
    needed.dedup();
    needed
}

/// Makes rows of runs. A leak between splits is an error: nothing is to be written then.
pub fn rollouts(runs: &[RecordedRun], wish: &Wish) -> Result<Rollouts, Leak> {
    let names: Vec<TaskName> = runs.iter().map(|run| task_name(run.detail.view.task.clone(), &run.bundle)).collect();
    let tasks = split::assign(&names, &wish.splits);
    let mut rows = Vec::new();
    let mut left: BTreeMap<Left, u32> = BTreeMap::new();
    for (run, name) in runs.iter().zip(&names) {
        let split = tasks.get(name).copied().unwrap_or(Split::Test);
        for attempt in &run.detail.view.attempts {
            for (turn, version) in (0..).zip(versions::of(attempt)) {
                match row(run, name, split, (turn, &version), wish) {
                    Ok(row) => rows.push(row),
                    Err(reason) => *left.entry(reason).or_default() += 1,
                }
            }
        }
    }
    group::assign(&mut rows);
    guard::check(&rows)?;
    Ok(Rollouts { rows, left, tasks })
}

/// `attempt` is one version of an attempt's program, with the number of the fix turn that brought it.
fn row(
    run: &RecordedRun,
    name: &TaskName,
    split: Split,
    (fix_turn, attempt): (u32, &Attempt),
    wish: &Wish,
) -> Result<Rollout, Left> {
    let all = &run.detail.view.attempts;
    let whole = all.iter().find(|other| other.number == attempt.number);
    let earlier = whole.map_or(&[][..], |whole| whole.earlier_versions.as_slice());
    // An attempt has its reward when its last step is over. Earlier versions have none, and are final.
    if attempt.reward.is_none() && usize::try_from(fix_turn).is_ok_and(|turn| turn >= earlier.len()) {
        return Err(Left::Unfinished);
    }
    if !attempt.turns.is_empty() {
        return Err(Left::AgentSession);
    }
    let score = score_of(&run.bundle.spec, &run.detail.view, attempt, wish.formula).ok_or(Left::Unfinished)?;
    let calls = versions::writing_calls(attempt);
    let last = calls.last().ok_or(Left::NoReply)?;
    if last.scripted && !wish.with_scripted {
        return Err(Left::Scripted);
    }
    let text = |hash: &ArtifactHash| run.texts.get(hash).map(String::as_str).ok_or(Left::Pruned);
    let asked: Vec<(&str, &str)> =
        calls.iter().map(|call| Ok((text(&call.prompt)?, text(&call.reply)?))).collect::<Result<_, Left>>()?;
    let prompt = transcript::messages(&asked, last.turn).ok_or(Left::UnreadablePrompt)?;
    let completion = text(&last.reply)?.to_owned();
    guard::examine(&guard::Suspect { attempt, earlier, all, texts: &run.texts, prompt: &prompt, split })?;
    let prepared = run.detail.view.prepared.as_ref();
    let over_fastest = |attempt: &Attempt| Some(prepared?.over_fastest(attempt.published()?)?.estimate);
    // A fix turn begins with the version of the same attempt that failed, which has no speedup.
    let parent = attempt.parent.filter(|_| fix_turn == 0);
    let parent = parent.and_then(|number| all.iter().find(|other| other.number == number));
    let before = match fix_turn.checked_sub(1) {
        Some(turn) => usize::try_from(turn).ok().and_then(|turn| earlier.get(turn)).map(|version| &version.source),
        None => parent.and_then(|parent| parent.source.as_ref()),
    };
    Ok(Rollout {
        skill: score.rubric.skill,
        split,
        task: name.clone(),
        run: run.detail.summary.id.to_string(),
        attempt: attempt.number,
        fix_turn,
        parent: if fix_turn == 0 { attempt.parent } else { Some(attempt.number) },
        stage: attempt.stage.as_str(),
        outcome: attempt.outcome.as_str(),
        prompt,
        before: before.and_then(|source| run.texts.get(source)).cloned(),
        completion,
        reasoning: last.reasoning.as_ref().and_then(|hash| run.texts.get(hash)).cloned(),
        tokens: TokenUsage {
            input: last.input_tokens,
            cached_input: last.cached_input_tokens,
            cache_write: last.cache_write_tokens,
            output: last.output_tokens,
            reasoning: last.reasoning_tokens,
        },
        model: last.model.clone(),
        judge_model: judge_model(attempt, &score),
        scripted: last.scripted,
        prompt_version: last.prompt_version.clone(),
        score,
        speedup: attempt.speedup().map(|speedup| speedup.estimate),
        speedup_over_fastest: over_fastest(attempt),
        parent_speedup_over_fastest: parent.and_then(over_fastest),
        parent_speedup: parent.and_then(Attempt::speedup).map(|speedup| speedup.estimate),
        group: group::Place::default(),
        reference_source: run.bundle.reference_source.clone(),
    })
}

fn task_name(bundle_hash: ArtifactHash, bundle: &TaskBundle) -> TaskName {
    let target = bundle.spec.target.as_str();
    let form = if bundle.spec.has_python_reference() { CandidateForm::Torch } else { CandidateForm::Native };
    let code: String = strip_candidate(&bundle.reference_source, form).chars().filter(|c| !c.is_whitespace()).collect();
    let fingerprint = blake3::hash(format!("{target}\n{code}").as_bytes()).to_hex().to_string();
    TaskName { name: bundle.spec.name.clone(), bundle: bundle_hash, fingerprint, target }
}

/// The model that rated an attempt; none where there is no rating, or a release without roles recorded its call.
fn judge_model(attempt: &Attempt, score: &AttemptScore) -> Option<String> {
    let is_rated = matches!(score.rubric.judge, JudgeOpinion::Rated { .. });
    let call = attempt.calls.iter().rfind(|call| is_rated && call.role == Some(AgentRole::Judge))?;
    Some(call.model.clone())
}

/// `rated` or `judge_unavailable`.
pub(crate) fn judge_state(score: &AttemptScore) -> &'static str {
    match score.rubric.judge {
        JudgeOpinion::Rated { .. } => "rated",
        JudgeOpinion::JudgeUnavailable { .. } => "judge_unavailable",
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use nightshift_protocol::api::{RunSummary, RunView};
    use nightshift_protocol::attempt::AgentTurn;
    use nightshift_protocol::campaign::RunInput;
    use serde_json::{Value, json};

    use super::*;
    use crate::strategy::{initial_digest, view};
    use crate::task_file;

    /// A recorded run. None of its texts is stored.
    fn recorded(history: &str) -> RecordedRun {
        let recorded: Value = serde_json::from_str(history).unwrap();
        let view: RunView = view(&recorded["state"]).unwrap();
        let input: RunInput = serde_json::from_value(recorded["state"]["input"].clone()).unwrap();
        let summary: RunSummary = serde_json::from_value(json!({
            "id": "run_01900000000070008000000000000001", "campaign": "cmp_01900000000070008000000000000001",
            "status": "cancelled", "created_at": 1, "finished_at": 2, "digest": initial_digest(&input), "failure": null,
        }))
        .unwrap();
        let toml = include_str!("../tests/fixtures/scale_and_shift.toml");
        let bundle = task_file::bundle(toml, "task.toml", "int reference;".to_owned()).unwrap();
        let detail =
            RunDetail { summary, view, open_steps: Vec::new(), cost: Vec::new(), plan_differences: Vec::new() };
        RecordedRun { detail, bundle, texts: BTreeMap::new() }
    }

    fn wish() -> Wish {
        let splits = SplitRule { salt: String::new(), validation_share: 0.0, test_share: 0.0, held_out: [].into() };
        Wish { splits, formula: RewardFormula::Published1, with_scripted: true }
    }

    fn left(run: &RecordedRun) -> Vec<(Left, u32)> {
        rollouts(std::slice::from_ref(run), &wish()).unwrap().left.into_iter().collect()
    }

    #[test]
    fn a_session_is_left_out_under_its_own_name() {
        let mut run = recorded(include_str!("../tests/corpus/history/repaired_to_the_target.json"));
        run.detail.view.attempts[0].turns.push(AgentTurn::open(1));
        assert_eq!(left(&run), [(Left::Pruned, 2), (Left::AgentSession, 1)]);
        assert_eq!(Left::AgentSession.as_str(), "agent_session");
    }

    #[test]
    fn a_rating_names_its_model() {
        let run = recorded(include_str!("../tests/corpus/history/repaired_to_the_target.json"));
        let mut attempt = run.detail.view.attempts.last().unwrap().clone();
        let mut call = attempt.calls[0].clone();
        (call.role, call.model) = (Some(AgentRole::Judge), "lab/judge".to_owned());
        attempt.calls.push(call);
        let mut score = score_of(&run.bundle.spec, &run.detail.view, &attempt, RewardFormula::Published1).unwrap();
        score.rubric.judge = JudgeOpinion::JudgeUnavailable { reason: String::new() };
        assert_eq!(judge_model(&attempt, &score), None);
        let scores = score.rubric.rules;
        score.rubric.judge = JudgeOpinion::Rated { scores, major_hacking: false, reasons: Vec::new() };
        assert_eq!(judge_model(&attempt, &score).as_deref(), Some("lab/judge"));
    }

    #[test]
    fn references_that_differ_in_comments_alone_have_one_fingerprint() {
        let fingerprint = |reference: &str, source: &str| {
            let mut bundle = recorded(include_str!("../tests/corpus/history/repaired_to_the_target.json")).bundle;
            bundle.spec.reference = reference.to_owned();
            bundle.reference_source = source.to_owned();
            task_name(ArtifactHash::of(b"bundle"), &bundle).fingerprint
        };
        let python = |source| fingerprint("model.py", source);
        let model = "class Model:\n    def forward(self, x):\n        return x + 1\n";
        let described =
            "# A copy. It's the same.\nclass Model:\n    def forward(self, x):\n        return x + 1  # one\n";
        assert_eq!(python(model), python(described));
        assert_ne!(python(model), python(&model.replace("+ 1", "// 1")));
        let native = |source| fingerprint("reference.cpp", source);
        assert_eq!(native("int a; // one"), native("int a;"));
        assert_ne!(native("int a;"), native("int b;"));
    }

    #[test]
    fn an_attempt_that_was_cut_off_after_its_measurement_gives_no_row() {
        let mut run = recorded(include_str!("../tests/corpus/history/repaired_to_the_target.json"));
        assert_eq!(left(&run), [(Left::Pruned, 3)]);
        let last = run.detail.view.attempts.last_mut().unwrap();
        assert!(last.outcome.is_correct());
        (last.reward, last.confirmation) = (None, None);
        assert_eq!(left(&run), [(Left::Unfinished, 1), (Left::Pruned, 2)]);
    }

    #[test]
    fn versions_that_were_fixed_are_final_while_the_last_one_is_not() {
        let mut run = recorded(include_str!("../tests/corpus/history/fixed_within_an_attempt.json"));
        run.detail.view.attempts.truncate(1);
        assert_eq!(run.detail.view.attempts[0].earlier_versions.len(), 2);
        assert_eq!(left(&run), [(Left::Pruned, 3)]);
        run.detail.view.attempts[0].reward = None;
        assert_eq!(left(&run), [(Left::Unfinished, 1), (Left::Pruned, 2)]);
    }

    #[test]
    fn a_row_has_the_program_that_its_author_started_from() {
        let mut run = recorded(include_str!("../tests/corpus/history/fixed_within_an_attempt.json"));
        let mut sources = BTreeMap::new();
        for attempt in &run.detail.view.attempts {
            let versions = versions::of(attempt);
            for (turn, version) in (0_u32..).zip(&versions) {
                let source = version.source.clone().unwrap();
                sources.insert((attempt.number, turn), format!("program {source}"));
                run.texts.insert(source.clone(), format!("program {source}"));
                for call in versions::writing_calls(version) {
                    run.texts.insert(call.prompt.clone(), "# System\n\nBe brief.\n\n# User\n\nWrite.".to_owned());
                    run.texts.insert(call.reply.clone(), "a reply".to_owned());
                }
            }
        }
        let needed = needed(&run.detail);
        assert!(run.texts.keys().all(|hash| needed.contains(hash)));
        let rows = rollouts(&[run], &wish()).unwrap().rows;
        let found: BTreeMap<(u32, u32), Option<String>> =
            rows.into_iter().map(|row| ((row.attempt, row.fix_turn), row.before)).collect();
        let of = |place| sources.get(&place).cloned();
        // Attempt 1 is a draft. Attempts start from the last version of their parent, fix turns from the version before.
        let expected = [((1, 0), None), ((1, 1), of((1, 0))), ((1, 2), of((1, 1))), ((2, 0), of((1, 2)))];
        for (place, before) in expected.into_iter().chain([((3, 1), of((3, 0))), ((4, 0), of((3, 2)))]) {
            assert_eq!(found.get(&place), Some(&before), "{place:?}");
        }
    }
}
