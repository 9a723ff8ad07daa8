//! Builds, runs and uses exported programs with this machine's compiler, as a user does after an export.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

#[path = "support/exported.rs"]
mod exported;

use std::path::Path;

use exported::{attempt, built, model_task, printed, run_id};
use nightshift_optimizer::export::{ExportError, Program, model_new, project};
use nightshift_optimizer::reply::extract_code;
use nightshift_optimizer::task_file;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
use nightshift_protocol::task::{CandidateForm, TaskBundle, TorchSpec};
use serde_json::json;

const TASK: &str = include_str!("fixtures/scale_and_shift.toml");
const REFERENCE: &str = include_str!("fixtures/scale_and_shift_reference.cpp");
const PROGRAM: &str = include_str!("fixtures/scale_and_shift.cpp");

fn task() -> TaskBundle {
    task_file::bundle(TASK, "task.toml", REFERENCE.to_owned()).unwrap()
}

#[test]
fn a_project_says_of_a_right_program_that_it_is_right_and_of_a_wrong_one_that_it_is_wrong() {
    let (folder, wrong) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = built(folder.path(), &task(), PROGRAM);
    let said = printed(folder.path(), &format!("{program} --samples 3"), 0);
    assert!(said.ends_with("scale_and_shift: right\n"), "{said}");
    assert!(said.contains("narrow, draw 3: right") && said.contains("times as fast"), "{said}");

    let source = PROGRAM.replace("outputs[1].data)[0] = (int32_t)rows", "outputs[1].data)[0] = 5");
    assert_ne!(source, PROGRAM);
    let program = built(wrong.path(), &task(), &source);
    let said = printed(wrong.path(), &format!("{program} --samples 0"), 1);
    assert!(said.contains("worst: rows, element 0: 5 in place of 4"), "{said}");
    assert!(said.ends_with("scale_and_shift: WRONG\n"), "{said}");
}

#[test]
fn a_bundled_example_is_right_outside_of_nightshift() {
    let toml = include_str!("../../examples/layernorm_gelu/task.toml");
    let reference = include_str!("../../examples/layernorm_gelu/reference.cpp");
    let reply = include_str!("../../examples/layernorm_gelu/replies/subtask1.attempt3.write_code.md");
    let task = task_file::bundle(toml, "task.toml", reference.to_owned()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), &task, &extract_code(reply, CandidateForm::Native).unwrap());
    let said = printed(folder.path(), &format!("{program} --samples 1"), 0);
    assert!(said.ends_with("layernorm_gelu: right\n"), "{said}");
}

#[test]
fn a_model_new_is_used_in_place_of_the_reference() {
    let (run, attempt, task) = (run_id(), attempt(AttemptOutcome::CorrectNotFaster), task());
    let text = model_new(&Program { run: &run, attempt: &attempt, task: &task, source: PROGRAM }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model_new.py"), text).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let use_it = format!(
        "PYTHONDONTWRITEBYTECODE=1 NIGHTSHIFT_CACHE_DIR=cache PYTHONPATH=.:{0}/torch_stand_in python3 {0}/use_model_new.py",
        fixtures.display()
    );
    assert_eq!(printed(folder.path(), &use_it, 0), "used\n");
    // Built once.
    assert_eq!(std::fs::read_dir(folder.path().join("cache")).unwrap().count(), 1);
    let said = printed(folder.path(), &format!("CXX=false {use_it}"), 1);
    assert!(said.contains("RuntimeError: scale_and_shift does not compile:\nfalse -std=c++20"), "{said}");
}

#[test]
fn what_is_not_right_says_so_at_its_top() {
    let (run, attempt, task) = (run_id(), attempt(AttemptOutcome::Incorrect), task());
    let program = Program { run: &run, attempt: &attempt, task: &task, source: PROGRAM };
    let warning = "WARNING: this attempt was not found to be right (outcome: incorrect)";
    let python = model_new(&program).unwrap();
    assert!(python.lines().nth(1).unwrap().contains(warning) && python.contains("warnings.warn("), "{python}");
    let files = project(&program).unwrap();
    let file = |name: &str| files.iter().find(|file| file.name == name).unwrap().text.as_str();
    assert!(file("README.md").lines().nth(2).unwrap().contains(warning));
    assert!(file("CMakeLists.txt").contains("message(WARNING"));
    assert_eq!(file("candidate.cpp"), PROGRAM, "the source itself stays as it is");
}

#[test]
fn a_project_for_a_gpu_names_its_architecture_and_libraries() {
    let toml = include_str!("../../examples/cuda_gemm_bias_relu/task.toml");
    let task = task_file::bundle(toml, "task.toml", "// a reference".to_owned()).unwrap();
    let (run, mut attempt) = (run_id(), attempt(AttemptOutcome::CorrectFaster));
    let build = |arch: &str| {
        serde_json::from_value(json!({
            "library": null, "end": { "kind": "finished" }, "messages": [], "log": format!("{:064}", 0),
            "toolchain": {
                "program": "nvcc", "path": "/nvcc", "version": "nvcc\n#include </etc/passwd>", "flags": ["-O3"],
                "fingerprint": "f",
            },
            "build_key": "k", "cached": false, "duration_ms": 1,
            "report": {
                "vectorized_loops": [], "missed_loops": [], "instructions": 0, "wide_vector_instructions": 0,
                "fma_instructions": 0, "scalar_math_calls": [], "library_bytes": 0,
            },
            "cuda": { "arch": arch, "kernels": [], "libraries": [], "uncounted": null },
            "sandbox": { "isolates_files": true, "isolates_network": true, "means": [] },
        }))
        .unwrap()
    };
    attempt.build = Some(build("sm_90a"));
    let cmake = |attempt: &Attempt| {
        let files = project(&Program { run: &run, attempt, task: &task, source: "// a program" }).unwrap();
        assert!(
            files.iter().any(|file| file.name == "candidate.cu")
                && files.iter().any(|file| file.name == "reference.cu")
        );
        files.iter().map(|file| file.text.as_str()).collect::<String>()
    };
    let text = cmake(&attempt);
    for part in [
        "set(CMAKE_CUDA_ARCHITECTURES 90a-real)",
        "CUDA::cublasLt",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-lcublasLt",
        "NS_TRUTH",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("\n#include </etc/passwd>"), "what a worker says stays within its line");
    let python = model_new(&Program { run: &run, attempt: &attempt, task: &task, source: "" }).unwrap();
    assert!(python.contains("VERIFIED_ARCH = \"sm_90a\"") && python.contains("MIN_CAPABILITY = (8, 0)"), "{python}");
    // What is no architecture is not built with.
    attempt.build = Some(build("sm_90\" /bin/sh"));
    assert!(cmake(&attempt).contains("set(CMAKE_CUDA_ARCHITECTURES native)"));
}

#[test]
fn a_program_for_pytorch_is_no_project_and_its_own_model_new() {
    let mut task = task();
    task.spec.form = CandidateForm::Torch;
    let (run, attempt) = (run_id(), attempt(AttemptOutcome::CorrectFaster));
    let program = Program { run: &run, attempt: &attempt, task: &task, source: "class ModelNew: ...\n" };
    let refused = project(&program).unwrap_err();
    assert_eq!((refused.code(), &refused), ("attempt.torch_form", &ExportError::TorchForm));
    assert_eq!(model_new(&program).unwrap(), program.source);
}

#[test]
fn a_program_for_a_model_is_a_model_new_with_the_state_of_that_model() {
    let mut task = task();
    task.spec.reference = "reference.py".to_owned();
    let state: Vec<String> = task.spec.params.iter().map(|param| format!("inner.{}", param.name)).collect();
    task.spec.torch = Some(TorchSpec { state: state.clone(), ..TorchSpec::default() });
    task.reference_source = "class Model:\n    pass\n".to_owned();
    let (run, attempt) = (run_id(), attempt(AttemptOutcome::CorrectFaster));
    let program = Program { run: &run, attempt: &attempt, task: &task, source: PROGRAM };
    let text = model_new(&program).unwrap();
    assert!(!state.is_empty() && state.iter().all(|name| text.contains(&format!("\"{name}\""))), "{text}");
    let call: Vec<String> = task.spec.inputs.iter().map(|input| format!("{{\"input\": \"{}\"}}", input.name)).collect();
    assert!(
        text.contains(&format!("\"call\": [{}]", call.join(", "))) && text.contains("\"class Model:\\n\""),
        "{text}"
    );
}

#[test]
fn a_project_for_a_model_asks_the_model() {
    let stand_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch_stand_in");
    let with_it = format!("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={}", stand_in.display());
    let (folder, wrong) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = built(folder.path(), &model_task(), PROGRAM);
    let said = printed(folder.path(), &format!("{with_it} {program} --samples 3"), 0);
    assert!(said.ends_with("scale_and_shift: right\n") && said.contains("default, draw 3: right"), "{said}");
    assert!(said.contains("times as fast (medians of 3 samples, the model in a process of its own)"), "{said}");

    let source = PROGRAM.replace("outputs[1].data)[0] = (int32_t)rows", "outputs[1].data)[0] = 5");
    let program = built(wrong.path(), &model_task(), &source);
    let said = printed(wrong.path(), &format!("{with_it} {program} --samples 0"), 1);
    assert!(said.contains("worst: rows, element 0: 5 in place of 4"), "{said}");
    // What is missing is said.
    let said = printed(wrong.path(), &format!("PYTHON=no-such-python {program}"), 2);
    assert!(
        said.contains("no-such-python cannot be run: set PYTHON to a Python interpreter that has PyTorch"),
        "{said}"
    );
    let said = printed(wrong.path(), &format!("PYTHON=false {program}"), 2);
    assert!(said.contains("the model gave no answers"), "{said}");
    let left = printed(wrong.path(), &format!("mkdir no && {{ TMPDIR=$PWD/no PYTHON=false {program}; ls no; }}"), 0);
    assert!(left.ends_with("another one)\n"), "nothing is left behind: {left}");
    let said = printed(wrong.path(), &format!("TMPDIR=$PWD/nowhere {program}"), 2);
    assert!(said.contains("error: ") && said.contains("nowhere"), "{said}");
    for options in ["--seed abc", "--samples -4", "--samples 1x"] {
        let said = printed(wrong.path(), &format!("{program} {options}"), 2);
        assert!(said.contains("is no whole number; usage: compare"), "{said}");
    }
    let left = printed(
        wrong.path(),
        &format!("mkdir own && {{ TMPDIR=$PWD/own {with_it} {program} --samples 0; ls own; }}"),
        0,
    );
    assert!(left.ends_with("WRONG\n"), "nothing is left behind: {left}");
}
