//! Splits an attempt into the versions of its program. Each version has its own prompt, reply and outcome.

use std::borrow::Cow;

use nightshift_protocol::attempt::{Attempt, AttemptOutcome, EarlierVersion, Stage};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::rubric::{JudgeOpinion, Rubric};
use nightshift_protocol::verdict::{Answer, Verdict};

/// The versions of an attempt's program, oldest first. Without fix turns, it is the attempt. An attempt of an agent
/// session is one as well: rows do not hold conversations of many turns.
pub(super) fn of(attempt: &Attempt) -> Vec<Cow<'_, Attempt>> {
    if !attempt.turns.is_empty() {
        return vec![Cow::Borrowed(attempt)];
    }
    let mut versions = Vec::with_capacity(attempt.earlier_versions.len() + 1);
    let (mut stage, mut calls) = (attempt.stage, attempt.calls.as_slice());
    for earlier in &attempt.earlier_versions {
        let (own, later) = calls.split_at(writing(calls));
        versions.push(Cow::Owned(failed(attempt, earlier, stage, own)));
        calls = later;
        stage = match earlier.outcome {
            AttemptOutcome::NotCompliant => Stage::RepairCompliance,
            _ => Stage::RepairCompile,
        };
    }
    versions.push(if versions.is_empty() {
        Cow::Borrowed(attempt)
    } else {
        // The judge rated the attempt for what was first asked for, and this answer was asked to fix a program. A rating of
        // major hacking stays, because it applies to the program and sets its reward to 0.
        let calls = calls.to_vec();
        let rubric = attempt.rubric.clone().filter(saw_grave_cheat);
        Cow::Owned(Attempt { stage, calls, rubric, earlier_versions: Vec::new(), ..attempt.clone() })
    });
    versions
}

fn saw_grave_cheat(rubric: &Rubric) -> bool {
    matches!(rubric.judge, JudgeOpinion::Rated { major_hacking: true, .. })
}

/// The calls that wrote the program of a version.
pub(super) fn writing_calls(version: &Attempt) -> &[ModelCallSummary] {
    version.calls.get(..writing(&version.calls)).unwrap_or_default()
}

/// How many calls the first step made: those of the next one begin with turn 1 again.
fn writing(calls: &[ModelCallSummary]) -> usize {
    calls.iter().skip(1).position(|call| call.turn == 1).map_or(calls.len(), |place| place + 1)
}

/// A version that was fixed later: nothing that came after it belongs to it.
fn failed(attempt: &Attempt, version: &EarlierVersion, stage: Stage, calls: &[ModelCallSummary]) -> Attempt {
    let mut verdict = Verdict::default();
    match version.outcome {
        AttemptOutcome::NotCompliant => verdict.contract_compliant = Answer::Fail,
        _ => verdict.compiled = Answer::Fail,
    }
    Attempt {
        parent: attempt.parent,
        modification: attempt.modification.clone(),
        candidate: attempt.candidate,
        outcome: version.outcome,
        source: Some(version.source.clone()),
        verdict,
        findings: version.findings.clone(),
        build: version.build.clone(),
        calls: calls.to_vec(),
        ..Attempt::new(attempt.number, attempt.plan_version, attempt.subtask, stage)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use nightshift_protocol::artifact::ArtifactHash;
    use serde_json::{Value, json};

    use super::*;

    fn call(name: &str, turn: u32) -> Value {
        let (prompt, reply) = (format!("prompt of {name}"), format!("reply of {name}"));
        json!({
            "model": "lab/some", "scripted": false, "prompt_version": "p", "latency_ms": 5, "turn": turn,
            "prompt": ArtifactHash::of(prompt.as_bytes()), "reply": ArtifactHash::of(reply.as_bytes()),
            "input_tokens": 11, "output_tokens": 22, "price_microusd": 242,
        })
    }

    fn earlier(name: &str, outcome: &str) -> Value {
        json!({ "source": ArtifactHash::of(name.as_bytes()), "outcome": outcome })
    }

    fn attempt(versions: &[Value], calls: &[Value]) -> Attempt {
        serde_json::from_value(json!({
            "number": 4, "plan_version": 1, "subtask": 1, "stage": "optimize", "parent": 2,
            "outcome": "correct_faster", "source": ArtifactHash::of(b"last"), "earlier_versions": versions,
            "verdict": { "compiled": "pass", "numerically_correct": "pass", "contract_compliant": "pass", "fast": "pass",
                         "custom_kernel_time_share": null },
            "findings": [], "calls": calls,
        }))
        .unwrap()
    }

    /// Stage, outcome and source of each version, with the turns of the calls that wrote it.
    fn told(attempt: &Attempt) -> Vec<(Stage, &'static str, ArtifactHash, Vec<u32>)> {
        let told = |version: &Cow<'_, Attempt>| {
            let turns = writing_calls(version).iter().map(|call| call.turn).collect();
            (version.stage, version.outcome.as_str(), version.source.clone().unwrap(), turns)
        };
        of(attempt).iter().map(told).collect()
    }

    #[test]
    fn each_version_has_its_own_question_answer_and_outcome() {
        let versions = [earlier("first", "not_compliant"), earlier("second", "compile_failed")];
        let calls = [call("a", 1), call("b", 1), call("b", 2), call("c", 1), call("diagnose", 1)];
        let source = |name: &str| ArtifactHash::of(name.as_bytes());
        assert_eq!(
            told(&attempt(&versions, &calls)),
            [
                (Stage::Optimize, "not_compliant", source("first"), vec![1]),
                (Stage::RepairCompliance, "compile_failed", source("second"), vec![1, 2]),
                (Stage::RepairCompile, "correct_faster", source("last"), vec![1]),
            ]
        );
        let attempt = attempt(&versions, &calls);
        let all = of(&attempt);
        assert_eq!(writing_calls(&all[2])[0].reply, ArtifactHash::of(b"reply of c"));
        assert_eq!((all[0].verdict.contract_compliant, all[1].verdict.compiled), (Answer::Fail, Answer::Fail));
        assert!(all.iter().all(|version| version.rubric.is_none()), "the judge rated what was first asked for");
    }

    #[test]
    fn a_grave_cheat_that_the_judge_saw_is_one_of_the_last_version() {
        let scores = json!({ "anti_hacking": 1, "cuda_engineering": 4, "operator_coverage": 4, "skill_compliance": 4 });
        let judged = |major_hacking: bool| {
            let mut attempt = attempt(&[earlier("first", "not_compliant")], &[call("a", 1), call("b", 1)]);
            attempt.rubric = serde_json::from_value(json!({
                "skill": "refinement", "rules": scores, "rule_reasons": [], "rule_major_hacking": false,
                "judge": { "state": "rated", "scores": scores, "major_hacking": major_hacking, "reasons": [] },
            }))
            .unwrap();
            of(&attempt).iter().map(|version| version.rubric.is_some()).collect::<Vec<_>>()
        };
        assert_eq!((judged(true), judged(false)), (vec![false, true], vec![false, false]));
    }

    #[test]
    fn without_fix_turns_it_is_the_attempt() {
        let attempt = attempt(&[], &[call("a", 1), call("a", 2), call("judge", 1)]);
        assert_eq!(of(&attempt), [Cow::Borrowed(&attempt)]);
        assert_eq!(writing_calls(&attempt).len(), 2);
        assert!(writing_calls(&self::attempt(&[], &[])).is_empty());
    }
}
