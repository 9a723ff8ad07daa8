//! Exported programs for a GPU: built by nvcc, checked by their own project, and used from `PyTorch`. What the machine lacks is
//! said, and the test reported as skipped.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and says what it skips")]

#[path = "support/exported.rs"]
mod exported;

use std::path::Path;
use std::process::ExitCode;

use exported::{attempt, built, model_task, printed, run_id, shell};
use libtest_mimic::{Arguments, Failed, Trial};
use nightshift_optimizer::export::{Program, model_new};
use nightshift_optimizer::reply::extract_code;
use nightshift_optimizer::task_file;
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::task::{CandidateForm, TaskBundle, TorchSpec};

/// What `PyTorch` says to a task, by the names of inputs `i` and weights `w`.
const EXAMPLES: [(&str, &str, &str); 2] = [
    ("cuda_row_softmax", "subtask1.attempt4.write_code", "torch.softmax(i[0].double(), -1)"),
    (
        "cuda_gemm_bias_relu",
        "subtask1.attempt4.write_code",
        "torch.relu(i[0].double() @ w['w'].double() + w['bias'].double())",
    ),
];
const PYTORCH_OF_PROCESSORS: &str = "${NIGHTSHIFT_TEST_PYTHON:-python3} -c 'import torch'";
const GPU: &str = "nvidia-smi -L | grep -q GPU && nvcc --version";
const PYTORCH: &str = "nvcc --version && python3 -c 'import torch; assert torch.cuda.is_available()'";

fn example(name: &str, reply: &str) -> (TaskBundle, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    let text = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let task = task_file::bundle(&text("task.toml"), "task.toml", text("reference.cu")).unwrap();
    let source = extract_code(&text(&format!("replies/{reply}.md")), CandidateForm::Native).unwrap();
    (task, source)
}

fn is_right_outside(name: &str, reply: &str) {
    let (task, source) = example(name, reply);
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), &task, &source);
    let said = printed(folder.path(), &program, 0);
    assert!(said.ends_with(&format!("{name}: right\n")) && said.contains("times as fast"), "{said}");
    println!("{said}");
}

/// The same task with a model of `PyTorch` as its reference.
fn asks_the_model() {
    let (name, reply, _) = EXAMPLES[0];
    let (mut task, source) = example(name, reply);
    "reference.py".clone_into(&mut task.spec.reference);
    task.spec.torch = Some(TorchSpec::default());
    let model = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, dim=-1)\n";
    model.clone_into(&mut task.reference_source);
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), &task, &source);
    let said = printed(folder.path(), &program, 0);
    assert!(
        said.ends_with(&format!("{name}: right\n")) && said.contains("the model in a process of its own"),
        "{said}"
    );
    println!("{said}");
}

fn asks_the_model_on_a_processor() {
    let folder = tempfile::tempdir().unwrap();
    let program = built(folder.path(), &model_task(), include_str!("fixtures/scale_and_shift.cpp"));
    let said = printed(folder.path(), &format!("PYTHON=${{NIGHTSHIFT_TEST_PYTHON:-python3}} {program}"), 0);
    assert!(said.ends_with("scale_and_shift: right\n"), "{said}");
    println!("{said}");
}

fn is_used_in_place_of_the_model() {
    let (task, source) = (model_task(), include_str!("fixtures/scale_and_shift.cpp"));
    let (run, attempt) = (run_id(), attempt(AttemptOutcome::CorrectFaster));
    let text = model_new(&Program { run: &run, attempt: &attempt, task: &task, source }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model_new.py"), text).unwrap();
    let use_it = include_str!("fixtures/use_model_new_of_model.py");
    std::fs::write(folder.path().join("use_it.py"), use_it).unwrap();
    let python = "NIGHTSHIFT_CACHE_DIR=cache ${NIGHTSHIFT_TEST_PYTHON:-python3}";
    assert_eq!(printed(folder.path(), &format!("{python} use_it.py"), 0), "used\n");
    printed(folder.path(), &format!("{python} model_new.py"), 0);
}

fn is_used_from_pytorch(name: &str, reply: &str, expected: &str) {
    let (task, source) = example(name, reply);
    let (run, attempt) = (run_id(), attempt(AttemptOutcome::CorrectFaster));
    let text = model_new(&Program { run: &run, attempt: &attempt, task: &task, source: &source }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model_new.py"), text).unwrap();
    let tolerance = &task.spec.tolerance;
    let use_it = format!(
        "import copy, torch, model_new\n\
         for shape in model_new.CONTRACT:\n\
         \x20   m = model_new.ModelNew(shape=shape).cuda()\n\
         \x20   i = [x.cuda() for x in model_new.get_inputs(shape)]\n\
         \x20   w = dict(m.state_dict())\n\
         \x20   def check(m):\n\
         \x20       torch.testing.assert_close(m(*i).double(), {expected}, atol={:?}, rtol={:?})\n\
         \x20   check(m)\n\
         \x20   check(copy.deepcopy(m))\n\
         \x20   for name in w:\n\
         \x20       w[name].mul_(0.5)\n\
         \x20   check(m)\n\
         \x20   with torch.cuda.stream(torch.cuda.Stream()):\n\
         \x20       check(m)\n\
         torch.cuda.synchronize()\n",
        tolerance.atol, tolerance.rtol
    );
    std::fs::write(folder.path().join("use_it.py"), use_it).unwrap();
    printed(folder.path(), "NIGHTSHIFT_CACHE_DIR=cache python3 use_it.py", 0);
    printed(folder.path(), "NIGHTSHIFT_CACHE_DIR=cache python3 model_new.py", 0);
}

fn trial(name: String, needs: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    let is_there = shell(Path::new("."), needs).status.success();
    if !is_there {
        println!("skipped `{name}`: this machine lacks what it needs: {needs}");
    }
    let test = move || -> Result<(), Failed> {
        test();
        Ok(())
    };
    Trial::test(name, test).with_ignored_flag(!is_there)
}

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for (name, reply, expected) in EXAMPLES {
        trials
            .push(trial(format!("{name}_is_right_outside_of_nightshift"), GPU, move || is_right_outside(name, reply)));
        trials.push(trial(format!("{name}_is_used_from_pytorch"), PYTORCH, move || {
            is_used_from_pytorch(name, reply, expected);
        }));
    }
    trials.push(trial("a_project_for_a_model_asks_it".to_owned(), PYTORCH, asks_the_model));
    let test = asks_the_model_on_a_processor;
    trials.push(trial("a_project_for_a_model_asks_it_on_a_processor".to_owned(), PYTORCH_OF_PROCESSORS, test));
    let (name, test) = ("a_model_new_takes_the_place_of_the_model_on_a_processor", is_used_in_place_of_the_model);
    trials.push(trial(name.to_owned(), PYTORCH_OF_PROCESSORS, test));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
