//! Programs for a model of `PyTorch`, checked without `PyTorch`: by golden data that were made with it. The file is renewed by
//! `NIGHTSHIFT_UPDATE_GOLDEN=1 cargo test -p nightshift-worker --test torch`, on a machine that has `PyTorch`.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/bench.rs"]
#[expect(dead_code, reason = "each test file uses a part of it")]
mod bench;
#[path = "torch/programs.rs"]
#[expect(dead_code, reason = "each test file uses a part of it")]
mod programs;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::TaskBundle;
use nightshift_protocol::verdict::ProcessEnd;

use crate::bench::Bench;
use crate::programs::{LINEAR, native, task};

const GOLDEN: &[u8] = include_bytes!("golden/linear.safetensors");

fn checked_by(golden: &[u8], program: &str) -> Result<CheckReport, StepFailure> {
    let bench = Bench::new();
    let bundle = TaskBundle { spec: task(), reference_source: LINEAR.to_owned(), library_source: None };
    let task = bench.put(&serde_json::to_string(&bundle).unwrap());
    let source = bench.put(program);
    let built = bench.execute(&StepInput::Build { task: task.clone(), source, sandbox_required: false })?;
    let StepOutput::Built { report } = built else { panic!("{built:?}") };
    let reference = ArtifactHash::of(LINEAR.as_bytes());
    let check = StepInput::Check {
        task,
        library: report.library.unwrap(),
        reference_library: reference.clone(),
        truth_library: reference,
        sandbox_required: false,
        golden: Some(bench.store.keep(golden)),
    };
    match bench.execute(&check)? {
        StepOutput::Checked { report } => Ok(*report),
        other => panic!("{other:?}"),
    }
}

fn codes(report: &CheckReport) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.code.as_str()).collect()
}

#[test]
fn a_right_program_passes_by_golden_data() {
    let report = checked_by(GOLDEN, &native("if (v < 0) v = 0;")).unwrap();
    assert_eq!(report.end, ProcessEnd::Finished);
    let names: Vec<&str> = report.cases.iter().map(|case| case.inputs.as_str()).collect();
    assert!(names.contains(&"changed_weights") && names.contains(&"scaled_up"), "{names:?}");
    // What the reference is asked besides is not recorded.
    assert!(names.iter().all(|name| !name.contains(':')), "{names:?}");
    assert!(report.cases.iter().all(|case| case.passed), "{:?}", report.cases);
    assert_eq!((report.deterministic, codes(&report)), (Some(true), Vec::new()));
    assert!(report.cases.iter().any(|case| case.reference_normalized_error > 0.0));
}

#[test]
fn a_wrong_program_does_not_pass_by_golden_data() {
    let report = checked_by(GOLDEN, &native("if (v < 0.3f) v = 0;")).unwrap();
    assert!(report.cases.iter().any(|case| !case.passed), "{:?}", report.cases);
    let unchanging = native(
        "static float kept[8][16]; static int calls; if (calls++ < 128) kept[r][o] = v < 0 ? 0 : v; v = kept[r][o];",
    );
    assert_eq!(codes(&checked_by(GOLDEN, &unchanging).unwrap()), ["stale_output"]);
}

#[test]
fn golden_data_that_are_damaged_or_of_another_task_are_refused() {
    let text = String::from_utf8_lossy(GOLDEN);
    assert!(text.contains("answer0/truth/output"));
    for damaged in [&GOLDEN[..GOLDEN.len() / 2], &b"nothing"[..]] {
        assert_eq!(checked_by(damaged, &native("")).unwrap_err().code, "task.golden_unusable");
    }
    let mut other = GOLDEN.to_vec();
    let place = GOLDEN.windows(7).position(|part| part == b"answer0").unwrap();
    other[place] = b'A';
    assert_eq!(checked_by(&other, &native("")).unwrap_err().code, "task.golden_unusable");
}
