//! Steps as a worker carries them out: with the real compiler, in the real jail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/findings.rs"]
mod findings;

use std::path::Path;
use std::time::{Duration, Instant};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::step::{FailureClass, StepInput, StepOutput};
use nightshift_protocol::task::{CandidateForm, TaskBundle};
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::CancelFlag;
use nightshift_testbed::executable::write_executable;
use nightshift_toolchain::build::{Compiler, Role, build_key};
use nightshift_worker::execute::{Submission, Verifier, VerifyOptions, Workbench, examine, find_cpp_toolchain};

use self::bench::{Bench, CHILD, Store, config};
use self::findings::violations;

/// Two loops that vectorize, one that calls the scalar mathematics library.
const PROGRAM: &str = r#"#include "nightshift.h"
#include <cmath>
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t n = inputs[0].shape[0];
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * 2.0f + x[i] * x[i];
    for (int64_t i = 0; i < n; i++) y[i] += std::exp(x[i]);
    return 0;
}
"#;

fn text(bench: &Bench, hash: &ArtifactHash) -> String {
    match bench.store.get(hash) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => panic!("{error}"),
    }
}

fn first_error(report: &BuildReport) -> &str {
    report.messages.iter().find(|message| message.severity == "error").map_or("", |message| &message.message)
}

#[test]
fn a_program_is_compiled_once_and_then_answered_from_the_cache() {
    let bench = Bench::new();
    let first = bench.build(PROGRAM);
    assert_eq!(first.end, ProcessEnd::Finished, "{:?}", first.messages);
    assert!(!first.cached && first.library.is_some());
    let second = bench.build(PROGRAM);
    assert!(second.cached);
    assert_eq!((&second.library, &second.report), (&first.library, &first.report));

    let other = bench.build(&PROGRAM.replace("2.0f", "3.0f"));
    assert!(!other.cached);
    assert_ne!((&other.build_key, &other.library), (&first.build_key, &first.library));
}

#[test]
fn the_same_source_gives_the_same_library_in_any_folder() {
    assert_eq!(Bench::new().build(PROGRAM).library, Bench::new().build(PROGRAM).library);
}

#[test]
fn the_compilers_report_tells_of_loops_instructions_and_mathematics() {
    let CompilerReport {
        vectorized_loops,
        missed_loops,
        instructions,
        wide_vector_instructions,
        scalar_math_calls,
        library_bytes,
        inner_loop,
        ..
    } = Bench::new().build(PROGRAM).report;
    assert!(vectorized_loops.iter().any(|note| note.line == 7), "{vectorized_loops:?}");
    assert!(missed_loops.iter().any(|note| note.line == 8), "{missed_loops:?}");
    assert_eq!(scalar_math_calls, ["expf"]);
    assert!(instructions > 20 && instructions < 2_000, "{instructions}");
    let is_wide_machine = nightshift_toolchain::machine::this_hardware().features.iter().any(|name| name == "avx2");
    assert_eq!(wide_vector_instructions > 0, is_wide_machine);
    assert!(library_bytes > 1_000);
    assert!(inner_loop.is_some_and(|found| found.arithmetic > 0 && !found.assembly.is_empty()));
}

#[test]
fn a_program_that_does_not_compile_is_a_result_with_its_messages() {
    let bench = Bench::new();
    let report = bench.build(&PROGRAM.replace("std::exp", "std::expp"));
    assert_eq!((report.library.as_ref(), &report.end), (None, &ProcessEnd::Exited { status: 1 }));
    assert!(first_error(&report).contains("expp"), "{:?}", report.messages);
    assert_eq!(
        report.messages.first().map(|message| (message.file.as_str(), message.line)),
        Some(("candidate.cpp", 8))
    );
    let log = text(&bench, &report.log);
    assert!(log.contains("expp") && !log.contains("/build-"), "{log}");
    assert!(bench.build(&PROGRAM.replace("std::exp", "std::expp")).cached);
}

#[test]
fn a_program_without_its_entry_point_counts_as_not_compiled() {
    let report = Bench::new().build(&PROGRAM.replace("NS_EXPORT int ns_run", "extern \"C\" int run"));
    assert_eq!(report.library, None);
    assert!(first_error(&report).contains("missing ns_run"), "{:?}", report.messages);
}

#[test]
fn an_undefined_symbol_is_reported_by_the_linker() {
    let report = Bench::new()
        .build(&format!("extern \"C\" float elsewhere(float);\n{}", PROGRAM.replace("std::exp", "elsewhere")));
    assert_eq!(report.library, None);
    assert!(first_error(&report).contains("elsewhere"), "{:?}", report.messages);
}

#[test]
fn a_program_that_compiles_forever_is_contained() {
    let doublings: String =
        (1..40).map(|n| format!("#define A{n} A{} A{}\n", n - 1, n - 1)).collect::<Vec<_>>().concat();
    let bomb = format!("#define A0 +1\n{doublings}int x = A39;\n{PROGRAM}");
    let begin = Instant::now();
    let report = Bench::new().build_within(&bomb, 1_500);
    assert!(matches!(report.end, ProcessEnd::TimedOut { .. } | ProcessEnd::MemoryExceeded { .. }), "{:?}", report.end);
    assert_eq!(report.library, None);
    assert!(!first_error(&report).is_empty());
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_program_that_floods_the_log_is_contained() {
    let warnings = format!("#warning \"{}\"\n", "all is well ".repeat(8)).repeat(20_000);
    let report = Bench::new().build(&format!("{warnings}{PROGRAM}"));
    assert!(matches!(report.end, ProcessEnd::OutputExceeded { .. }), "{:?}", report.end);
    assert_eq!(report.library, None);
}

#[test]
fn a_damaged_cache_entry_is_built_again() {
    let bench = Bench::new();
    let first = bench.build(PROGRAM);
    let entry = bench.folder.path().join("cache/builds").join(&first.build_key).join("library.so");
    assert!(std::fs::write(entry, b"damage").is_ok());
    let second = bench.build(PROGRAM);
    assert!(!second.cached);
    assert_eq!(second.library, first.library);
}

#[test]
fn a_cancelled_build_ends_at_once() {
    let bench = Bench::new();
    let doublings: String =
        (1..40).map(|n| format!("#define A{n} A{} A{}\n", n - 1, n - 1)).collect::<Vec<_>>().concat();
    let (task, source) =
        (bench.task("", "cpu", 60_000), bench.put(&format!("#define A0 +1\n{doublings}int x = A39;\n")));
    let cancel = CancelFlag::default();
    cancel.cancel();
    let begin = Instant::now();
    let result = bench.inner.execute(&StepInput::Build { task, source, sandbox_required: false }, &cancel);
    assert_eq!(result.err().map(|failure| failure.code), Some("step.cancelled".to_owned()));
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn no_step_leaves_a_folder_behind() {
    let bench = Bench::new();
    bench.build(PROGRAM);
    let scratch = bench.folder.path().join("scratch");
    drop(bench.inner);
    assert_eq!(std::fs::read_dir(scratch).map(Iterator::count).ok(), Some(0));
}

#[test]
fn a_reference_that_does_not_compile_rejects_the_task() {
    let bench = Bench::new();
    let task = bench.task("#include \"nightshift.h\"\nint x = nothing;\n", "cpu", 60_000);
    let Ok(StepOutput::TaskRejected { code, message, log }) = bench.execute(&StepInput::PrepareTask { task }) else {
        panic!("not rejected")
    };
    assert_eq!(code, "task.reference_does_not_compile");
    assert!(message.contains("reference.cpp:2") && message.contains("nothing"), "{message}");
    assert!(log.is_some_and(|log| text(&bench, &log).contains("nothing")));
}

#[test]
fn a_reference_that_compiles_in_single_precision_only_rejects_the_task() {
    let bench = Bench::new();
    let only_float = format!("{PROGRAM}static_assert(sizeof(ns_real) == 4, \"single precision only\");\n");
    let task = bench.task(&only_float, "cpu", 60_000);
    let Ok(StepOutput::TaskRejected { message, .. }) = bench.execute(&StepInput::PrepareTask { task }) else {
        panic!("not rejected")
    };
    assert!(message.contains("NS_REAL") && message.contains("single precision only"), "{message}");
}

/// What every step of one candidate gives, from the task to the profile.
#[test]
fn a_candidate_goes_all_the_way_from_the_task_to_its_profile() {
    let bench = Bench::new();
    let reference = PROGRAM.replace("float", "ns_real").replace("2.0f", "ns_real(2)");
    let task = bench.task(&reference, "cpu", 60_000);
    let prepared = match bench.execute(&StepInput::PrepareTask { task: task.clone() }) {
        Ok(StepOutput::TaskPrepared { prepared }) => prepared,
        other => panic!("not prepared: {other:?}"),
    };
    assert!(prepared.baseline_median_ns > 0.0);
    assert_ne!(prepared.reference_library, prepared.truth_library);

    let build = bench.build(PROGRAM);
    let Some(library) = build.library.clone() else { panic!("not built: {:?}", build.messages) };
    let reference_library = prepared.reference_library.clone();
    let check = StepInput::Check {
        task: task.clone(),
        library: library.clone(),
        reference_library: reference_library.clone(),
        truth_library: prepared.truth_library.clone(),
        sandbox_required: false,
    };
    let Ok(StepOutput::Checked { report }) = bench.execute(&check) else { panic!("not checked") };
    assert_eq!(report.end, ProcessEnd::Finished);
    assert!(!report.cases.is_empty() && report.cases.iter().all(|case| case.passed), "{:?}", report.cases);

    let measure =
        StepInput::Measure { task: task.clone(), library, reference_library, confirms: false, sandbox_required: false };
    let measurement = match bench.execute(&measure) {
        Ok(StepOutput::Measured { measurement, findings }) => {
            assert_eq!(violations(&findings), [""; 0], "{findings:?}");
            measurement
        }
        other => panic!("not measured: {other:?}"),
    };
    // The same program in the same time, with more operations than any machine could have done.
    let StepInput::Measure { library, reference_library, .. } = measure else { panic!("it is a measurement") };
    let task_of_a_giant = bench.task_of(1e13, &reference, "cpu", 60_000);
    let measure = StepInput::Measure {
        task: task_of_a_giant,
        library,
        reference_library,
        confirms: false,
        sandbox_required: false,
    };
    match bench.execute(&measure) {
        Ok(StepOutput::Measured { findings, .. }) => {
            assert_eq!(violations(&findings), ["faster_than_roofline"], "{findings:?}");
        }
        other => panic!("not measured: {other:?}"),
    }
    assert!(measurement.baseline.contains("reference.cpp"), "{}", measurement.baseline);
    assert_eq!(measurement.machine, *bench.inner.machine());

    let build = Box::new(build);
    let profile = match bench.execute(&StepInput::Profile {
        task,
        build,
        measurement,
        library: None,
        source: None,
        sandbox_required: false,
    }) {
        Ok(StepOutput::Profiled { profile }) => profile,
        other => panic!("not profiled: {other:?}"),
    };
    assert!(profile.peak_flops_per_s > 1e8 && profile.peak_bytes_per_s > 1e8, "{profile:?}");
    assert!(profile.roofline_share.is_some_and(|share| share > 0.0 && share <= 1.0), "{profile:?}");
    assert_eq!(profile.compiler.scalar_math_calls, ["expf"]);
}

#[test]
fn a_task_for_another_target_is_refused() {
    let bench = Bench::new();
    let task = bench.task("", "cuda", 60_000);
    let Err(failure) = bench.execute(&StepInput::PrepareTask { task }) else { panic!("not refused") };
    assert_eq!((failure.code.as_str(), failure.class), ("worker.unsupported_target", FailureClass::Fatal));
}

#[test]
fn a_stored_task_that_cannot_be_read_is_a_fatal_failure() {
    let bench = Bench::new();
    let task = bench.put("{\"spec\": 7}");
    let Err(failure) = bench.execute(&StepInput::PrepareTask { task }) else { panic!("not refused") };
    assert_eq!((failure.code.as_str(), failure.class), ("task.malformed", FailureClass::Fatal));
}

#[test]
fn the_address_of_a_build_depends_on_source_role_and_toolchain() {
    let bench = Bench::new();
    let Some(toolchain) = bench.inner.machine().cpp_toolchain.clone() else { panic!("no compiler") };
    let key = build_key(PROGRAM, Role::Reference, &Compiler::Cpp(&toolchain));
    assert_ne!(key, build_key(PROGRAM, Role::Truth, &Compiler::Cpp(&toolchain)));
    let mut other = toolchain;
    other.fingerprint.push('x');
    assert_ne!(key, build_key(PROGRAM, Role::Reference, &Compiler::Cpp(&other)));
}

#[test]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn a_machine_is_described_with_its_compiler_and_its_sandbox() {
    let scratch = tempfile::tempdir().unwrap();
    let facts = examine(Path::new(CHILD), None, scratch.path());
    let toolchain = facts.cpp_toolchain.unwrap();
    assert!(Path::new(&toolchain.path).is_absolute() && toolchain.version.len() > 3);
    assert!(facts.cores >= 1 && facts.memory_bytes > 0);
    assert!(facts.sandbox.means.iter().any(|means| means.in_force), "{:?}", facts.sandbox);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn a_configured_compiler_is_really_run() {
    let folder = tempfile::tempdir().unwrap();
    for (name, script, code) in [
        (
            "old",
            "[ \"$1\" = --version ] && echo 'old 4.8' && exit 0\necho \"error: invalid value 'c++20'\" >&2; exit 1",
            "toolchain.too_old",
        ),
        ("silent", "exit 0", "toolchain.broken"),
        (
            "failing",
            "[ \"$1\" = --version ] && echo 'x 1' && exit 0\necho 'ld: cannot find -lstdc++' >&2; exit 1",
            "toolchain.broken",
        ),
    ] {
        let path = folder.path().join(name);
        write_executable(&path, &format!("#!/bin/sh\n{script}\n"));
        let scratch = folder.path().join("scratch");
        let error = find_cpp_toolchain(Path::new(CHILD), path.to_str(), &scratch).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
    }
    let missing =
        find_cpp_toolchain(Path::new(CHILD), Some("/nowhere/g++"), &folder.path().join("scratch")).unwrap_err();
    assert_eq!(missing.code(), "toolchain.no_cpp_compiler");
}

/// A compiler that builds everything but the program by which a profile measures the peaks.
fn compiler_without_roofline(folder: &Path) -> String {
    let compiler = folder.join("g++");
    write_executable(
        &compiler,
        "#!/bin/sh\nfor arg in \"$@\"; do [ \"$arg\" = roofline.cpp ] && exit 1; done\nexec /usr/bin/g++ \"$@\"\n",
    );
    compiler.display().to_string()
}

#[test]
fn a_profile_that_fails_leaves_the_verdict() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Store::default());
    let config = config(folder.path(), Some(compiler_without_roofline(folder.path())));
    let bench = Workbench::open(&config, Box::new(store.clone())).unwrap();
    let spec = "schema = 1\nname = \"t\"\ntitle = \"t\"\ndescription = \"t\"\ntarget = \"cpu\"\nreference = \"reference.cpp\"\n\
                inputs = [{ name = \"x\", dtype = \"f32\", shape = [1024] }]\n\
                outputs = [{ name = \"y\", dtype = \"f32\", shape = [1024] }]\n\
                tolerance = { atol = 1e-5, rtol = 1e-5 }\n";
    // The truth is built in double precision.
    let program = PROGRAM.replace("float", "ns_real");
    let task =
        TaskBundle { spec: toml::from_str(spec).unwrap(), reference_source: program.clone(), library_source: None };
    let going_on = CancelFlag::default();
    let options = VerifyOptions { profile: true, require_sandbox: false };
    let verifier = Verifier::new(&bench, task, options, &going_on).unwrap();
    let submission = Submission { source: program, form: CandidateForm::Native };
    let judgement = verifier.judge(verifier.build(&submission).unwrap()).unwrap();
    assert!(judgement.outcome.is_correct() && judgement.measurement.is_some(), "{judgement:?}");
    assert_eq!(judgement.profile, None);
    assert_eq!(judgement.profile_failure.unwrap().code, "profile.peaks_unknown");
}
