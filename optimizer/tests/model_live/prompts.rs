//! What each agent is told.

use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Stage};
use nightshift_protocol::attempt_memory::{
    AttemptMemory, Candidate, ErrorCluster, Modification, PinnedBest, TriedModification, UntriedModification,
};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::step::{CodeRequest, StepInput, StepOutput};

use crate::fixture::{Bench, agents, attempt, plan_version, prepared};
use nightshift_optimizer::model::Catalog;

const PROGRAM: &str = "int good;\nint x = 1\nint y;\n";

const REPLY: &str = "```cpp\nint x;\n```";

/// What a strategy asks for: the advice on the attempt, in its own scope.
fn modification_of(parent: Option<&Attempt>, subtask: u32) -> Option<Modification> {
    let parent = parent.filter(|parent| parent.subtask == subtask)?;
    Some(Modification {
        text: parent.diagnosis.as_ref()?.modification.clone(),
        from: parent.number,
        diagnosed_on: parent.number,
        expected_gain: Some(1.5),
        repeats: Some(2),
        because: Some("The bounds were off by one.".to_owned()),
    })
}

fn memory() -> AttemptMemory {
    let tried = |text: &str, attempt, failed| TriedModification {
        text: text.to_owned(),
        attempt,
        outcome: AttemptOutcome::CorrectNotFaster,
        expected: Some(1.3),
        measured: Some(if failed { 0.97 } else { 1.2 }),
        failed,
    };
    AttemptMemory {
        best: Some(PinnedBest { attempt: 3, speedup: Interval { estimate: 1.834, low: 1.801, high: 1.866 } }),
        tried: vec![tried("Unroll by four.", 1, true), tried("Fuse the passes.", 2, false)],
        untried: vec![UntriedModification {
            text: "Keep the row in registers.".to_owned(),
            attempt: 3,
            expected_gain: Some(1.3),
            may_be_made_by: None,
        }],
        errors: vec![ErrorCluster {
            fingerprint: "0123456789ab".to_owned(),
            outcome: AttemptOutcome::CompileFailed,
            message: "line 2: expected ';'".to_owned(),
            attempts: vec![1, 2],
        }],
        left_out: 3,
    }
}

/// Returns the prompt that the Coder gets.
fn asked(bench: &Bench, stage: Stage, parent: Option<Attempt>, subtask: u32, fix_turn: u32) -> StepInput {
    StepInput::WriteCode {
        task: bench.task.clone(),
        prepared: Box::new(prepared()),
        request: Box::new(CodeRequest {
            stage,
            plan: plan_version(),
            subtask,
            modification: modification_of(parent.as_ref(), subtask),
            method: None,
            near: None,
            candidate: Some(Candidate { number: 2, of: 4, group: None }),
            parent: parent.map(Box::new),
            fix_turn,
            session: None,
            history: vec!["attempt 1: compile_failed".to_owned()],
            memory: memory(),
            hints: vec!["Try wider tiles.".to_owned()],
        }),
    }
}

/// The prompt that the Coder got.
async fn told(bench: &Bench, stage: Stage, parent: Option<Attempt>, subtask: u32) -> String {
    let input = asked(bench, stage, parent, subtask, 0);
    let output = bench.carry_out(&agents(Catalog::default()), "a", &input).await.unwrap();
    let StepOutput::CodeWritten { calls, .. } = output else { panic!("{output:?}") };
    bench.memory.text(&calls[0].prompt)
}

fn assert_told(prompt: &str, parts: &[&str]) {
    for part in parts {
        assert!(prompt.contains(part), "`{part}` is missing in:\n{prompt}");
    }
}

#[tokio::test]
async fn the_first_program_is_asked_for_with_everything_that_is_known() {
    let bench = Bench::scripted(&[("a", REPLY)]);
    let prompt = told(&bench, Stage::Draft, None, 1).await;
    assert_told(
        &prompt,
        &[
            "You write C++20 programs",
            "| input | `x` | f32 | [rows = 64, cols = 1000] |",
            "| weight | `bias` | f32 | [1000] |",
            "narrow: cols = 3",
            "|result - truth| <= 1e-6 + 1e-5 * |truth|",
            "// the reference",
            "NS_EXPORT int ns_run",
            "Fast CPU 9000, 2 cores usable; instruction sets: avx2, fma",
            "-O3 -march=native",
            "12.35 ms",
            "The rows are short.",
            "1. Fuse the passes (**the current subtask**)",
            "vectorize the exponential",
            "Done at a speedup of 2.500",
            "attempt 1: compile_failed",
            "The best program so far: attempt 3, 1.834x (1.801 to 1.866), confirmed.",
            "Changes that helped, if only a little, and are made already:\n- Fuse the passes. (attempt 2: brought 1.20x, 1.30x was expected)",
            "- Unroll by four. (attempt 1: brought 0.97x, 1.30x was expected)",
            "- compile_failed in attempts 1, 2: line 2: expected ';'",
            "3 older entries are left out.",
            "This is candidate 2 of 4",
            "begin with number 2",
            "## The operator's advice",
            "```text\nTry wider tiles.\n```",
            "in `x`: f32 [rows, cols], row_major",
        ],
    );
    assert!(!prompt.contains("The program to start from"));
}

#[tokio::test]
async fn a_repair_is_told_the_line_that_does_not_compile() {
    let bench = Bench::scripted(&[("a", REPLY)]);
    let parent = attempt(&bench.memory, "compile_failed", PROGRAM);
    let prompt = told(&bench, Stage::RepairCompile, Some(parent), 1).await;
    assert_told(
        &prompt,
        &["candidate.cpp, line 2, column 5: error: expected ';'", "The line reads: `int x = 1`", PROGRAM],
    );
}

#[tokio::test]
async fn a_fix_turn_is_told_the_same_and_a_script_may_have_no_reply_for_it() {
    let key = "subtask1/attempt3/fix1/write_code";
    let bench = Bench::scripted(&[("a", REPLY), ("subtask1.attempt3.fix1.write_code", REPLY)]);
    let failed = || Some(attempt(&bench.memory, "compile_failed", PROGRAM));
    let turn = |fix_turn| asked(&bench, Stage::RepairCompile, failed(), 1, fix_turn);
    let agents = agents(Catalog::default());
    let output = bench.carry_out(&agents, key, &turn(1)).await.unwrap();
    let StepOutput::CodeWritten { calls, .. } = output else { panic!("{output:?}") };
    assert_eq!(bench.memory.text(&calls[0].prompt), told(&bench, Stage::RepairCompile, failed(), 1).await);

    let output = bench.carry_out(&agents, "subtask1/attempt3/fix2/write_code", &turn(2)).await.unwrap();
    let StepOutput::NoCode { code, message, calls } = output else { panic!("{output:?}") };
    assert_eq!((code.as_str(), calls), ("model.script_ended", Vec::new()));
    assert!(message.contains("subtask1.attempt3.fix2.write_code.md"), "{message}");
    let missing = bench.carry_out(&agents, "subtask1/attempt4/write_code", &turn(0)).await.unwrap_err();
    assert_eq!(missing.code, "model.script_ended", "the first program of an attempt has to be there");
}

#[tokio::test]
async fn a_repair_is_told_how_the_program_died_and_what_it_printed() {
    let bench = Bench::scripted(&[("a", REPLY)]);
    let parent = attempt(&bench.memory, "crashed", PROGRAM);
    let prompt = told(&bench, Stage::RepairRuntime, Some(parent), 1).await;
    // What a program printed cannot leave its block.
    assert_told(&prompt, &["the program crashed with SIGSEGV (signal 11)", "````text\nsegfault soon ```\n````"]);
}

#[tokio::test]
async fn a_repair_is_told_which_results_are_wrong() {
    let bench = Bench::scripted(&[("a", REPLY)]);
    let parent = attempt(&bench.memory, "incorrect", PROGRAM);
    let prompt = told(&bench, Stage::RepairCorrectness, Some(parent), 1).await;
    assert_told(
        &prompt,
        &[
            "0 of 1 checked calls were right",
            "shape `narrow`, inputs `declared`: 3 of 9 elements wrong",
            "`y`[1, 2] is a value that is not finite, right is 0.25",
            "Two calls with equal inputs gave different results",
        ],
    );
}

#[tokio::test]
async fn a_repair_is_told_which_rule_was_broken() {
    let bench = Bench::scripted(&[("a", REPLY)]);
    let parent = attempt(&bench.memory, "not_compliant", PROGRAM);
    let prompt = told(&bench, Stage::RepairCompliance, Some(parent), 1).await;
    assert_told(&prompt, &["warning `f`, line 4: It looks odd."]);
}

#[tokio::test]
async fn an_optimization_is_asked_for_one_modification_with_its_evidence() {
    let bench = Bench::scripted(&[("a", REPLY)]);
    let parent = attempt(&bench.memory, "correct_faster", PROGRAM);
    let prompt = told(&bench, Stage::Optimize, Some(parent), 1).await;
    assert_told(
        &prompt,
        &[
            "**Make exactly this one modification:** Inline a polynomial.",
            "Attempt 2 made this change and failed with it. It is asked for again because: The bounds were off by one.",
            "speedup 1.834 (95 % interval 1.801 to 1.866)",
            "3.200 GFLOP/s",
            "bound by memory, 75 % of its limit reached",
            "Calls of the scalar mathematics library: expf",
            "Not vectorized, line 9: control flow",
            "It uses 3.125 % of the allowed error: its largest is 0.020000 times the tolerance (shape `narrow`, inputs `declared`)",
        ],
    );
}

#[tokio::test]
async fn a_new_subtask_does_not_repeat_the_old_diagnosis() {
    let bench = Bench::scripted(&[("a", REPLY)]);
    let parent = attempt(&bench.memory, "correct_faster", PROGRAM);
    let prompt = told(&bench, Stage::Optimize, Some(parent), 2).await;
    assert_told(&prompt, &["2. Tune the tail (**the current subtask**)", "**Carry out the current subtask on it**"]);
    assert!(!prompt.contains("Inline a polynomial."));
}
