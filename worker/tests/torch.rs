//! Models of `PyTorch` as references and as candidates, on the host. Each test needs a Python installation with `PyTorch`: the one that
//! `NIGHTSHIFT_TEST_PYTHON` names, or the first of the search path that has it. Without one all are reported as skipped,
//! with the reason.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/bench.rs"]
#[expect(dead_code, reason = "each test file uses a part of it")]
mod bench;
#[path = "torch/draws.rs"]
mod draws;
#[path = "support/findings.rs"]
mod findings;
#[path = "torch/inspection.rs"]
mod inspection;
#[path = "torch/programs.rs"]
mod programs;
#[path = "torch/runner.rs"]
mod runner;
#[path = "support/torch.rs"]
mod torch;
#[path = "support/workshop.rs"]
#[expect(unreachable_pub, dead_code, reason = "each test file uses a part of it")]
mod workshop;

use std::process::ExitCode;

use nightshift_evaluator::measure::{MeasureOptions, Programs, measure};
use nightshift_evaluator::prepare::{Examined, ReferenceLibraries, prepare};
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{BuildReport, CheckReport};
use nightshift_protocol::step::{PreparedTask, StepInput, StepOutput};
use nightshift_protocol::task::{CandidateForm, TaskBundle, TaskGoal, TaskSpec, Tolerance};
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_worker::execute::Workbench;
use nightshift_worker::lease::WorkerConfig;

use crate::findings::violations;
use crate::inspection::{
    a_file_says_what_it_needs, an_endless_file_and_a_giant_one_are_ended, files_that_cannot_be_tasks_are_told_why,
    inputs_are_drawn_as_the_file_draws_them, objects_reach_the_model_and_what_was_fetched_before_is_there,
    operators_say_from_which_others_they_read, what_has_to_be_moved_and_computed_is_counted,
    what_is_too_large_to_be_made_is_drawn_as_a_smaller_one,
};
use crate::programs::{LINEAR, MODEL_NEW, native, task};
use crate::runner::outputs_that_take_the_place_of_inputs_are_those_of_the_inputs;
use crate::torch::{Bench, run_all};

fn main() -> ExitCode {
    run_all([
        ("a_file_says_what_it_needs", a_file_says_what_it_needs),
        ("inputs_are_drawn_as_the_file_draws_them", inputs_are_drawn_as_the_file_draws_them),
        (
            "what_is_too_large_to_be_made_is_drawn_as_a_smaller_one",
            what_is_too_large_to_be_made_is_drawn_as_a_smaller_one,
        ),
        ("operators_say_from_which_others_they_read", operators_say_from_which_others_they_read),
        ("what_has_to_be_moved_and_computed_is_counted", what_has_to_be_moved_and_computed_is_counted),
        (
            "objects_reach_the_model_and_what_was_fetched_before_is_there",
            objects_reach_the_model_and_what_was_fetched_before_is_there,
        ),
        ("a_model_may_have_many_weights", a_model_may_have_many_weights),
        ("a_weight_of_two_layers_is_handed_to_both", a_weight_of_two_layers_is_handed_to_both),
        ("a_mask_stays_as_the_model_makes_it", a_mask_stays_as_the_model_makes_it),
        ("what_algebra_cancels_may_be_left_out", what_algebra_cancels_may_be_left_out),
        ("files_that_cannot_be_tasks_are_told_why", files_that_cannot_be_tasks_are_told_why),
        ("an_endless_file_and_a_giant_one_are_ended", an_endless_file_and_a_giant_one_are_ended),
        ("a_model_is_a_usable_reference", a_model_is_a_usable_reference),
        ("a_constant_model_is_found_out", a_constant_model_is_found_out),
        ("a_random_model_is_refused", a_random_model_is_refused),
        ("a_reference_is_held_to_its_task", a_reference_is_held_to_its_task),
        ("a_native_program_is_compared_with_the_model", a_native_program_is_compared_with_the_model),
        ("a_program_of_pytorch_is_compared_with_the_model", a_program_of_pytorch_is_compared_with_the_model),
        ("programs_that_cheat_or_break_are_found_out", programs_that_cheat_or_break_are_found_out),
        (
            "the_reference_wrapped_as_a_program_is_as_fast_as_itself",
            the_reference_wrapped_as_a_program_is_as_fast_as_itself,
        ),
        ("the_steps_of_both_forms_go_well", the_steps_of_both_forms_go_well),
        ("an_extension_is_built_ahead_of_its_first_call", an_extension_is_built_ahead_of_its_first_call),
        ("a_task_is_prepared_once", a_task_is_prepared_once),
        (
            "outputs_that_take_the_place_of_inputs_are_those_of_the_inputs",
            outputs_that_take_the_place_of_inputs_are_those_of_the_inputs,
        ),
        (
            "a_program_reaches_neither_files_nor_processes_nor_the_network",
            a_program_reaches_neither_files_nor_processes_nor_the_network,
        ),
    ])
}

fn checked(bench: &Bench, candidate: &std::path::Path, spec: &TaskSpec) -> CheckReport {
    bench.check(candidate, &bench.file("reference.py", LINEAR), spec)
}

fn passed(report: &CheckReport) -> bool {
    report.end == ProcessEnd::Finished && report.cases.iter().all(|case| case.passed) && report.findings.is_empty()
}

/// Builds and checks a program by the steps of a worker.
fn judged(worker: &bench::Bench, task: &ArtifactHash, prepared: &PreparedTask, program: &str) -> Box<CheckReport> {
    let source = worker.put(program);
    let built = worker.execute(&StepInput::Build { task: task.clone(), source, sandbox_required: false });
    let Ok(StepOutput::Built { report }) = built else { panic!("{built:?}") };
    let check = StepInput::Check {
        task: task.clone(),
        library: report.library.unwrap(),
        reference_library: prepared.reference_library.clone(),
        truth_library: prepared.truth_library.clone(),
        sandbox_required: false,
    };
    let checked = worker.execute(&check).unwrap();
    let StepOutput::Checked { report } = checked else { panic!("{checked:?}") };
    report
}

fn a_model_may_have_many_weights(bench: &Bench) {
    let found = bench.inspect(&programs::deep("Model")).unwrap();
    assert_eq!(found.params.len(), 702);
    let mut spec = task();
    spec.torch.as_mut().unwrap().state = found.params.iter().filter_map(|param| param.state.clone()).collect();
    spec.params = found.params.iter().map(programs::weight).collect();
    let reference = bench.file("deep.py", &programs::deep("Model"));
    let right = programs::deep("ModelNew");
    let wrong = right.replace("list(self.layers)).sum()", "list(self.layers)).sum() * 2.0");
    for (program, passes) in [(right.as_str(), true), (&wrong, false)] {
        let report = bench.check(&bench.file("candidate.py", program), &reference, &spec);
        assert_eq!(passed(&report), passes, "{:?} {:?}", report.end, report.findings);
    }
}

fn a_weight_of_two_layers_is_handed_to_both(bench: &Bench) {
    let found = bench.inspect(&programs::tied("Model")).unwrap();
    let states: Vec<_> = found.params.iter().filter_map(|param| param.state.clone()).collect();
    assert_eq!(states, ["linear.weight", "linear.bias", "a.weight", "a.bias", "b.bias"]);
    let mut spec = TaskSpec { form: CandidateForm::Torch, ..task() };
    spec.torch.as_mut().unwrap().state = states;
    spec.params = found.params.iter().map(programs::weight).collect();
    let (worker, _, _) = workbench(bench, CandidateForm::Torch);
    let bundle = TaskBundle { spec: spec.clone(), reference_source: programs::tied("Model"), library_source: None };
    let task = worker.put(&serde_json::to_string(&bundle).unwrap());
    let prepared = worker.execute(&StepInput::PrepareTask { task }).unwrap();
    let StepOutput::TaskPrepared { prepared } = prepared else { panic!("{prepared:?}") };
    assert_eq!(prepared.warnings, [], "every weight has an effect");

    let reference = bench.file("tied.py", &programs::tied("Model"));
    let right = programs::tied("ModelNew");
    let as_built = right.replace(
        "self.b.weight = self.a.weight",
        "self.b.weight = self.a.weight\n        self.c = self.a.weight.detach().clone()",
    );
    let wrong = as_built
        .replace("self.b(torch.sin", "torch.nn.functional.linear(bias=self.b.bias, weight=self.c, input=torch.sin");
    for (program, passes) in [(right, true), (as_built, true), (wrong, false)] {
        let report = bench.check(&bench.file("candidate.py", &program), &reference, &spec);
        assert_eq!(passed(&report), passes, "{program}\n{report:?}");
    }
}

fn a_mask_stays_as_the_model_makes_it(bench: &Bench) {
    let found = bench.inspect(&programs::masked("Model")).unwrap();
    assert_eq!(found.constants, ["mask"], "neither what is drawn nor what is constant: {found:?}");
    let states: Vec<_> = found.params.iter().filter_map(|param| param.state.as_deref()).collect();
    assert_eq!(states, ["noise", "level", "linear.weight", "linear.bias"]);

    let state: Vec<String> = states.into_iter().map(ToOwned::to_owned).collect();
    let mut spec = TaskSpec { form: CandidateForm::Torch, params: programs::masked_params(), ..task() };
    let torch = spec.torch.as_mut().unwrap();
    (torch.state, torch.constants) = (state, found.constants);
    let (worker, _, _) = workbench(bench, CandidateForm::Torch);
    let reference_source = programs::masked("Model");
    let task =
        worker.put(&serde_json::to_string(&TaskBundle { spec, reference_source, library_source: None }).unwrap());
    let prepared = worker.execute(&StepInput::PrepareTask { task: task.clone() }).unwrap();
    let StepOutput::TaskPrepared { prepared } = prepared else { panic!("{prepared:?}") };
    assert_eq!(prepared.warnings, [], "every weight has an effect");
    let right = programs::masked("ModelNew");
    let named_otherwise = right.replace("self.mask", "self.causal").replace("\"mask\"", "\"causal\"");
    let not_kept = named_otherwise.replace("torch.ones(8, 16))", "torch.ones(8, 16)), persistent=False");
    let wrong = right.replace("masked_fill(self.mask == 0, 0.0)", "masked_fill(self.mask > 1, 0.0)");
    for (program, passes) in [(right, true), (not_kept, true), (wrong, false)] {
        let report = judged(&worker, &task, &prepared, &program);
        assert_eq!(passed(&report), passes, "{program}\n{report:?}");
    }
}

fn what_algebra_cancels_may_be_left_out(bench: &Bench) {
    let (worker, _, _) = workbench(bench, CandidateForm::Torch);
    let around_its_mean = |call: &str| format!("h = {call}\n        return (h - h.mean(0)) * 3.0");
    let reference_source =
        LINEAR.replace("return torch.relu(self.linear(x)) * self.scale", &around_its_mean("self.linear(x)"));
    let spec = TaskSpec { form: CandidateForm::Torch, ..task() };
    let task =
        worker.put(&serde_json::to_string(&TaskBundle { spec, reference_source, library_source: None }).unwrap());
    let prepared = worker.execute(&StepInput::PrepareTask { task: task.clone() }).unwrap();
    let StepOutput::TaskPrepared { prepared } = prepared else { panic!("{prepared:?}") };
    let warnings: Vec<_> = prepared.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(warnings, ["parameter_has_no_effect"], "the bias: {:?}", prepared.warnings);
    let of_program = "return torch.relu(x @ self.linear.weight.t() + self.linear.bias) * 3.0";
    let in_double = "(x.double() @ self.linear.weight.t().double() + self.linear.bias.double()).float()";
    for (call, passes) in [("x @ self.linear.weight.t()", true), (in_double, true), ("x @ x.t() @ x[:, :16]", false)] {
        let report = judged(&worker, &task, &prepared, &MODEL_NEW.replace(of_program, &around_its_mean(call)));
        assert_eq!(passed(&report), passes, "{call}\n{report:?}");
    }
}

fn examined(bench: &Bench, source: &str) -> Examined {
    let reference = bench.file("examined.py", source);
    let libraries = ReferenceLibraries { truth: reference.clone(), reference };
    bench.evaluate(|context| prepare(context, &task(), &libraries, &mut SecretSeeds::fixed(3))).unwrap()
}

fn a_model_is_a_usable_reference(bench: &Bench) {
    let Examined::Usable(facts) = examined(bench, LINEAR) else { panic!("{:?}", examined(bench, LINEAR)) };
    assert!(facts.baseline_median_ns > 1_000.0, "{facts:?}");
    assert!(facts.reference_normalized_error > 0.0 && facts.reference_normalized_error < 0.5, "{facts:?}");
    assert_eq!(facts.warnings, []);
}

fn a_constant_model_is_found_out(bench: &Bench) {
    let constant =
        LINEAR.replace("return torch.relu(self.linear(x)) * self.scale", "return self.linear(x).clamp(3, 3)");
    let Examined::Usable(facts) = examined(bench, &constant) else { panic!("a constant is usable, with warnings") };
    let codes: Vec<&str> = facts.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, ["constant_output", "input_has_no_effect", "parameter_has_no_effect", "parameter_has_no_effect"]);
}

fn a_random_model_is_refused(bench: &Bench) {
    let random = LINEAR.replace("* self.scale", "* torch.rand(1)");
    let refused = examined(bench, &random);
    assert!(
        matches!(&refused, Examined::Rejected { code, .. } if code == "task.reference_not_deterministic"),
        "{refused:?}"
    );
    let broken = examined(bench, &LINEAR.replace("torch.relu", "torch.no_such_function"));
    let Examined::Rejected { code, printed, .. } = &broken else { panic!("{broken:?}") };
    assert_eq!(code, "task.reference_returns_error");
    assert!(printed.contains("no_such_function"), "{printed}");
}

fn a_reference_is_held_to_its_task(bench: &Bench) {
    let refused = examined(bench, &LINEAR.replace("nn.Linear(fan_in, fan_out)", "nn.Linear(fan_in, fan_out + 1)"));
    let Examined::Rejected { code, message, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(code, "task.reference_does_not_load");
    assert!(message.contains("`linear.weight` has the shape [17, 32], and task.toml's has [16, 32]"), "{message}");
    let refused = examined(bench, &LINEAR.replace("* self.scale", "[:4] * self.scale"));
    let Examined::Rejected { message, .. } = &refused else { panic!("{refused:?}") };
    let said = "the error status 2: forward gave a tensor of the shape [4, 16], and task.toml's has [8, 16]";
    assert!(message.contains(said), "{message}");
}

fn a_native_program_is_compared_with_the_model(bench: &Bench) {
    let spec = task();
    let right = bench.shop.library("right", &native("if (v < 0) v = 0;"), &[]);
    let report = checked(bench, &right, &spec);
    assert!(passed(&report), "{report:?}");
    assert_eq!(report.deterministic, Some(true));
    let wrong = bench.shop.library("wrong", &native(""), &[]);
    let report = checked(bench, &wrong, &spec);
    assert!(report.cases.iter().any(|case| !case.passed), "{report:?}");
}

fn a_program_of_pytorch_is_compared_with_the_model(bench: &Bench) {
    let spec = task();
    let right = bench.file("candidate.py", MODEL_NEW);
    let report = checked(bench, &right, &spec);
    assert!(passed(&report), "{report:?}");

    // The reference itself, with other names for its state: they are taken in their order.
    let renamed = LINEAR.replace("class Model(", "class ModelNew(").replace("self.linear", "self.fc");
    let report = checked(bench, &bench.file("renamed.py", &renamed), &spec);
    assert!(passed(&report), "{report:?}");
}

fn programs_that_cheat_or_break_are_found_out(bench: &Bench) {
    let spec = task();
    for (name, body, sign) in programs::attacks() {
        let source =
            MODEL_NEW.replace("        return torch.relu(x @ self.linear.weight.t() + self.linear.bias) * 3.0\n", body);
        assert_ne!(source, MODEL_NEW, "{name}");
        let report = checked(bench, &bench.file(&format!("{name}.py"), &source), &spec);
        assert!(!passed(&report), "{name}: {report:?}");
        let told = format!("{report:?}");
        assert!(told.contains(sign), "{name}: {told}");
    }
    for (name, from, to, sign) in programs::breakages() {
        let source = MODEL_NEW.replace(from, to);
        assert_ne!(source, MODEL_NEW, "{name}");
        let report = checked(bench, &bench.file(&format!("{name}.py"), &source), &spec);
        let ProcessEnd::LoadFailed { message } = &report.end else { panic!("{name}: {report:?}") };
        assert!(message.contains(sign), "{name}: {message}");
    }
}

fn the_reference_wrapped_as_a_program_is_as_fast_as_itself(bench: &Bench) {
    let spec = programs::larger_task();
    let reference = bench.file("reference.py", &programs::larger());
    let wrapped = bench.file("wrapped.py", &programs::larger().replace("class Model(", "class ModelNew("));
    let options = MeasureOptions { max_windows: 41, ..MeasureOptions::on_host(false) };
    let programs = Programs { candidate: &wrapped, baseline: &reference, truth: &reference, baseline_label: "eager" };
    let machine = workshop::machine();
    let output = bench.evaluate(|context| measure(context, &spec, &programs, &machine, false, &options));
    let Ok(StepOutput::Measured { measurement, findings }) = output else { panic!("{output:?}") };
    // On a machine where others work, the same program is measured as the same within some tens of a percent.
    let speedup = measurement.speedup;
    assert!(speedup.estimate > 0.6 && speedup.estimate < 1.7, "{speedup:?}");
    assert_eq!(violations(&findings), [""; 0], "{findings:?}");
}

/// A worker's bench that has this Python, and the task of [`LINEAR`] for programs of a form.
fn workbench(bench: &Bench, form: CandidateForm) -> (bench::Bench, ArtifactHash, PreparedTask) {
    let (folder, store) = (tempfile::tempdir().unwrap(), bench::Store::default());
    let config = WorkerConfig { python: Some(bench.python.program.clone()), ..bench::config(folder.path(), None) };
    let inner = Workbench::open(&config, Box::new(store.clone())).unwrap();
    let worker = bench::Bench { inner, store, folder };
    let bundle =
        TaskBundle { spec: TaskSpec { form, ..task() }, reference_source: LINEAR.to_owned(), library_source: None };
    let task = worker.put(&serde_json::to_string(&bundle).unwrap());
    let prepared = worker.execute(&StepInput::PrepareTask { task: task.clone() }).unwrap();
    let StepOutput::TaskPrepared { prepared } = prepared else { panic!("{prepared:?}") };
    (worker, task, *prepared)
}

fn the_steps_of_both_forms_go_well(bench: &Bench) {
    let right = native("if (v < 0) v = 0;");
    for (form, program) in [(CandidateForm::Native, right.as_str()), (CandidateForm::Torch, MODEL_NEW)] {
        let (worker, task, prepared) = workbench(bench, form);
        assert!(prepared.reference.toolchain.version.contains("PyTorch"), "{prepared:?}");
        let build = |source: &str| {
            let source = worker.put(source);
            let built = worker.execute(&StepInput::Build { task: task.clone(), source, sandbox_required: false });
            let Ok(StepOutput::Built { report }) = built else { panic!("{built:?}") };
            *report
        };
        let report = build(program);
        let library = report.library.clone().unwrap();
        let (reference_library, truth_library) = (prepared.reference_library, prepared.truth_library);
        let check = StepInput::Check {
            task: task.clone(),
            library: library.clone(),
            reference_library: reference_library.clone(),
            truth_library,
            sandbox_required: false,
        };
        let checked = worker.execute(&check).unwrap();
        let StepOutput::Checked { report: checked } = checked else { panic!("{checked:?}") };
        assert!(passed(&checked), "{checked:?}");
        let measure = StepInput::Measure {
            task: task.clone(),
            library,
            reference_library,
            confirms: false,
            sandbox_required: false,
        };
        let measured = worker.execute(&measure).unwrap();
        let StepOutput::Measured { measurement, findings } = measured else { panic!("{measured:?}") };
        assert!(measurement.baseline.starts_with("reference.py, eager PyTorch "), "{}", measurement.baseline);
        assert_eq!(violations(&findings), [""; 0], "{findings:?}");
        if form == CandidateForm::Torch {
            let wrong = build("import torch\n\nclass ModelNew(torch.nn.Module:\n    pass\n");
            assert_eq!((wrong.library, wrong.messages[0].line), (None, 3), "{:?}", wrong.messages);
            let nameless = build("class Other:\n    pass\n");
            assert!(nameless.messages[0].message.contains("no class ModelNew"), "{:?}", nameless.messages);
        }
    }
}

fn an_extension_is_built_ahead_of_its_first_call(bench: &Bench) {
    let (worker, task, prepared) = workbench(bench, CandidateForm::Torch);
    let build = |source: &str| {
        let source = worker.put(source);
        let built = worker.execute(&StepInput::Build { task: task.clone(), source, sandbox_required: false });
        let Ok(StepOutput::Built { report }) = built else { panic!("{built:?}") };
        *report
    };
    let report = build(programs::EXTENSION);
    let library = report.library.clone().unwrap_or_else(|| panic!("{:?}", report.messages));
    let is_right = |library| {
        let checked = worker.execute(&StepInput::Check {
            task: task.clone(),
            library,
            reference_library: prepared.reference_library.clone(),
            truth_library: prepared.truth_library.clone(),
            sandbox_required: false,
        });
        let Ok(StepOutput::Checked { report }) = checked else { panic!("{checked:?}") };
        assert!(passed(&report), "{report:?}");
    };
    is_right(library);
    assert!(build(programs::EXTENSION).cached, "an equal source is built once");
    let late = build(programs::LATE_EXTENSIONS);
    is_right(late.library.unwrap_or_else(|| panic!("{:?}", late.messages)));

    // Comments are no part of what is built.
    let reworded = build(&programs::EXTENSION.replace("import torch\n", "import torch  # In other words.\n"));
    assert!(reworded.cached && reworded.library == report.library, "{reworded:?}");
    is_right(reworded.library.unwrap());
    assert!(!build(&programs::EXTENSION.replace("3.0", "2.0")).cached, "another program");
    assert!(!build(&format!("# Its lines are others.\n{}", programs::EXTENSION)).cached);
    let text_of = |report: &BuildReport| worker.store.get(report.library.as_ref().unwrap()).unwrap();
    let text = String::from_utf8(text_of(&report)).unwrap();
    let (source, _) = text.split_once("#nightshift-machine ").unwrap();
    let unusable_here = format!("{source}#nightshift-machine another\n#nightshift-extension scaled_relu AAAA\n");
    is_right(worker.put(&unusable_here));
    let names_no_machine = |line: &&str| !line.starts_with("#nightshift-machine ");
    is_right(worker.put(&text.split_inclusive('\n').filter(names_no_machine).collect::<String>()));
    let hidden = build(&format!("# -*- coding: utf-7 -*-\n#+AAo-raise SystemExit(3)\n{MODEL_NEW}"));
    let text = String::from_utf8(text_of(&hidden)).unwrap();
    assert!(!text.contains('#') && text.trim_start().starts_with("import torch"), "{text}");
    let ends_nothing = build(&format!("# A comment\rraise SystemExit(3)\n{MODEL_NEW}"));
    assert!(ends_nothing.messages[0].message.contains("carriage returns"), "{:?}", ends_nothing.messages);
    let marked = build(&format!("{}#nightshift-extension scaled_relu AAAA\n", programs::EXTENSION));
    assert!(marked.messages[0].message.contains("only the builder writes"), "{:?}", marked.messages);

    let surrogate = build(&format!("{}raise RuntimeError('\\udc80')\n", programs::EXTENSION));
    assert!(surrogate.messages[0].message.contains("RuntimeError: \\udc80"), "{:?}", surrogate.messages);
    let wrong = build(&programs::EXTENSION.replace("torch::relu(x)", "torch::no_such_thing(x)"));
    assert_eq!(wrong.library, None);
    let said: Vec<&str> = wrong.messages.iter().map(|message| message.message.as_str()).collect();
    assert!(said.iter().any(|message| message.contains("no_such_thing")), "{said:?}");
    let marked = build(&format!("{MODEL_NEW}#nightshift-extension scaled_relu AAAA\n"));
    assert!(marked.messages[0].message.contains("only the builder writes"), "{:?}", marked.messages);
}

fn a_task_is_prepared_once(bench: &Bench) {
    let (worker, _, first) = workbench(bench, CandidateForm::Native);
    let prepare = |spec: TaskSpec, source: &str| {
        let bundle = TaskBundle { spec, reference_source: source.to_owned(), library_source: None };
        let task = worker.put(&serde_json::to_string(&bundle).unwrap());
        let prepared = worker.execute(&StepInput::PrepareTask { task }).unwrap();
        let StepOutput::TaskPrepared { prepared } = prepared else { panic!("{prepared:?}") };
        let known = prepared.cost.iter().any(|part| part.name == "found as it was prepared before");
        (*prepared, known)
    };
    let native = TaskSpec { form: CandidateForm::Native, ..task() };
    let goal = TaskGoal { max_attempts: Some(3), ..native.goal.clone() };
    let (again, known) = prepare(TaskSpec { goal, title: "Another".to_owned(), ..native.clone() }, LINEAR);
    assert!(known, "what people and the search are told is not examined: {:?}", again.cost);
    assert!(again.reference.cached, "it is built once, too");
    let (cost, reference) = (first.cost.clone(), first.reference.clone());
    assert_eq!(PreparedTask { cost, reference, ..again }, first);
    let precise = TaskSpec { tolerance: Tolerance { rtol: 1e-3, ..native.tolerance }, ..native.clone() };
    assert!(!prepare(precise, LINEAR).1, "another tolerance is another task");
    assert!(!prepare(native, &format!("{LINEAR}\n# changed\n")).1, "another model is another task");
}

fn a_program_reaches_neither_files_nor_processes_nor_the_network(bench: &Bench) {
    let secret = bench.file("secret.txt", "secret").display().to_string();
    let probe = format!(
        "        import os, socket, threading
        reached = []
        def tried(name, act):
            try:
                act()
                reached.append(name)
            except Exception:
                pass
        tried('file', lambda: open({secret:?}).read())
        tried('write', lambda: open('/tmp/reached', 'w'))
        tried('process', lambda: os.system('true') == 0 or 1 / 0)
        tried('fork', os.fork)
        tried('socket', lambda: socket.create_connection(('127.0.0.1', 80), 1))
        tried('thread', lambda: threading.Thread(target=print).start())
        raise ValueError('reached: ' + ' '.join(reached) + '.')\n"
    );
    let source =
        MODEL_NEW.replace("        return torch.relu(x @ self.linear.weight.t() + self.linear.bias) * 3.0\n", &probe);
    let report = checked(bench, &bench.file("probe.py", &source), &task());
    assert!(report.printed.contains("reached: ."), "{}", report.printed);
}
