//! Checks and measurements on a device, tried without one: a driver that is made of the host's memory and clock takes the place
//! of the real one, and the evaluator's kernels are built for the host. What a GPU itself does is told by the worker's `gpu.rs`.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/workshop.rs"]
#[expect(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
mod workshop;

#[path = "support/drawn.rs"]
mod drawn;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::context::{DevicePlace, ExecutionContext, Place};
use nightshift_evaluator::device::{Gpu, KERNELS_SOURCE};
use nightshift_evaluator::lock::{DeviceLock, DeviceMode};
use nightshift_evaluator::measure::{MeasureOptions, Programs, measure};
use nightshift_evaluator::prepare::{Examined, ReferenceLibraries, prepare};
use nightshift_evaluator::program::ProcessPool;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::{CheckCase, Finding, ProcessEnd};
use nightshift_sandbox::DeviceAccess;
use nightshift_sandbox::process::{CancelFlag, SandboxChoice};
use workshop::{REFERENCE, Workshop, host, machine, program, task};

/// Where the driver and the kernels were built, for the process that runs the tests.
const FOLDER: &str = "NIGHTSHIFT_TEST_DRIVER_FOLDER";

/// Set for the process whose tests lose the GPU.
const LOSES: &str = "NIGHTSHIFT_TEST_LOSES_GPU";

/// Number of measurements that the test makes until a window has several calls.
const TRIES: usize = 8;

/// Threads of one program beside another one.
const SIDE_BY_SIDE: usize = 3;

/// Maximum number of measurements until one is not disturbed by other work of the machine.
const MOST_TRIALS: usize = 4;

/// Findings that rest on the clock, which a machine with other work moves.
const BY_TIME: [&str; 3] = ["work_outside_call", "calls_overlap", "baseline_disturbed"];

/// The loader finds libraries by an environment that is read when a process starts: the tests run in other processes. The test
/// that loses the GPU has a driver, and a process, of its own.
fn main() -> ExitCode {
    if std::env::var_os(FOLDER).is_none() {
        let all_passed = [false, true].map(passed_with_driver).iter().all(|passed| *passed);
        return if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let tests = if std::env::var_os(LOSES).is_some() { TESTS_THAT_LOSE_THE_GPU } else { TESTS };
    let trials = tests.iter().map(|(name, test)| {
        Trial::test(*name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Builds driver and kernels, and runs the tests, or those that lose the GPU, in a process that finds them.
fn passed_with_driver(loses_the_gpu: bool) -> bool {
    let workshop = Workshop::new();
    workshop.library("libcuda", include_str!("fixtures/fake_driver.cpp"), &[]);
    let folder = workshop.path().canonicalize().unwrap();
    workshop.library("kernels", KERNELS_SOURCE, &["-ffp-contract=off"]);
    #[expect(clippy::disallowed_methods, reason = "runs these tests once more")]
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(std::env::args_os().skip(1)).env(FOLDER, &folder).env("LD_LIBRARY_PATH", &folder);
    if loses_the_gpu {
        again.env(LOSES, "1");
    }
    again.status().unwrap().success()
}

type Tests = &'static [(&'static str, fn())];

/// Tests with their names.
macro_rules! tests {
    ($($($test:ident)::+,)*) => { &[$((stringify!($($test)::+), $($test)::+)),*] };
}

const TESTS_THAT_LOSE_THE_GPU: Tests = tests![a_gpu_that_is_lost_is_no_verdict_on_the_program,];

const TESTS: Tests = tests![
    a_right_program_passes_and_is_timed,
    wrong_programs_are_found_as_on_the_host,
    wrong_results_of_timed_calls_are_found,
    results_that_come_after_the_work_of_the_stream_are_found,
    an_operation_lies_between_calls_in_a_row,
    a_program_that_turns_wrong_late_is_found,
    processes_that_wait_serve_as_fresh_ones_do,
    no_process_that_ran_a_candidate_is_kept,
    steps_on_one_device_take_turns_and_all_come_to_their_end,
    while_a_trusted_program_compiles_others_have_the_device_alone,
    a_driver_that_cannot_export_memory_lends_it_by_handles,
    a_reference_is_prepared_on_a_device,
    on_a_device_a_reference_may_differ_in_its_last_bits_and_not_by_more,
    drawn::values_drawn_on_a_device_follow_their_distribution_and_are_independent,
    drawn::values_drawn_on_a_device_change_as_a_draw_says,
    drawn::values_drawn_on_a_device_are_found_again,
];

/// What all tests start from, built once.
struct Ground {
    _workshop: Workshop,
    reference: PathBuf,
    truth: PathBuf,
    access: DeviceAccess,
    gpu: Arc<Gpu>,
}

static GROUND: LazyLock<Ground> = LazyLock::new(|| {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let workshop = Workshop::new();
    // The driver takes the path of a library as a module.
    let kernels = folder.join("kernels.so");
    let gpu = Gpu::open(None, kernels.to_str().unwrap().as_bytes()).unwrap();
    Ground {
        reference: workshop.library("reference", REFERENCE, &[]),
        truth: workshop.library("truth", REFERENCE, &["-DNS_REAL=double"]),
        access: DeviceAccess {
            visible: "0".to_owned(),
            nodes: Vec::new(),
            shared_nodes: None,
            library_folders: vec![folder],
        },
        gpu: Arc::new(gpu),
        _workshop: workshop,
    }
});

fn spec() -> TaskSpec {
    let mut spec = task();
    spec.limits.memory_bytes = 1 << 30;
    spec.limits.call_timeout_ms = 10_000;
    spec
}

/// What steps on the device share.
struct Shared {
    lock: Arc<DeviceLock>,
    pool: ProcessPool,
}

impl Shared {
    fn new(capacity: usize) -> Self {
        let lock: Arc<DeviceLock> = Arc::default();
        Self { pool: ProcessPool::new(host(SandboxChoice::Best), Arc::clone(&lock), capacity, None), lock }
    }
}

fn on_device<T>(shared: Option<&Shared>, work: impl FnOnce(&ExecutionContext<'_>) -> T) -> T {
    on_gpu(&GROUND.gpu, SandboxChoice::Best, shared, work)
}

fn on_gpu<T>(
    gpu: &Arc<Gpu>,
    means: SandboxChoice,
    shared: Option<&Shared>,
    work: impl FnOnce(&ExecutionContext<'_>) -> T,
) -> T {
    let (host, cancel) = (host(means), CancelFlag::default());
    let place = DevicePlace {
        gpu: Arc::clone(gpu),
        access: GROUND.access.clone(),
        libraries: Vec::new(),
        lock: shared.map(|shared| &*shared.lock),
        pool: shared.map(|shared| &shared.pool),
        cores: None,
        monitor: None,
    };
    work(&ExecutionContext { host: &host, cancel: &cancel, place: Place::Device(&place) })
}

fn built(name: &str, preamble: &str, body: &str) -> (Workshop, PathBuf) {
    let workshop = Workshop::new();
    let library = workshop.library(name, &program(preamble, body), &[]);
    (workshop, library)
}

fn libraries(candidate: &Path) -> Libraries {
    Libraries { candidate: candidate.to_owned(), reference: GROUND.reference.clone(), truth: GROUND.truth.clone() }
}

fn checked(shared: Option<&Shared>, candidate: &Path) -> CheckReport {
    let libraries = libraries(candidate);
    let mut seeds = SecretSeeds::from_os().unwrap();
    on_device(shared, |context| check(context, &spec(), &libraries, true, &mut seeds)).unwrap()
}

fn raced(shared: Option<&Shared>, candidate: &Path, confirms: bool) -> (Measurement, Vec<Finding>) {
    let programs =
        Programs { candidate, baseline: &GROUND.reference, truth: &GROUND.truth, baseline_label: "the reference" };
    let options = MeasureOptions {
        confirms,
        process_pairs: if confirms { 2 } else { 1 },
        most_process_pairs: 2,
        ..MeasureOptions::first()
    };
    let once = || on_device(shared, |context| measure(context, &spec(), &programs, &machine(), true, &options));
    match undisturbed(once).unwrap() {
        StepOutput::Measured { measurement, findings } => (*measurement, findings),
        other => panic!("not measured: {other:?}"),
    }
}

/// Measures again where other tests kept the machine busy meanwhile, as a worker does.
fn undisturbed(measured: impl Fn() -> Result<StepOutput, StepFailure>) -> Result<StepOutput, StepFailure> {
    let disturbed = |output: &Result<StepOutput, StepFailure>| {
        output.as_ref().is_err_and(|failure| failure.code == "gpu.disturbed")
    };
    (0..MOST_TRIALS).map(|_| measured()).find(|output| !disturbed(output)).unwrap_or_else(&measured)
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.as_str()).filter(|code| !BY_TIME.contains(code)).collect()
}

fn a_right_program_passes_and_is_timed() {
    let (_kept, honest) = built("honest", "", "HONEST");
    let report = checked(None, &honest);
    assert_eq!(report.end, ProcessEnd::Finished);
    assert!(report.cases.iter().all(|case| case.passed), "{:?}", report.cases);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.deterministic, Some(true));
    for inputs in ["declared", "repeat", "same_pointers", "scaled_up", "changed_weights", "mostly_zero", "changed:x"] {
        assert!(report.cases.iter().any(|case| case.inputs == inputs), "{inputs} is missing");
    }
    let (measurement, findings) = raced(None, &honest, false);
    assert!(codes(&findings).is_empty(), "{findings:?}");
    let verification = measurement.verification.unwrap();
    assert_eq!(verification.timed_calls, verification.verified_calls);
    assert!(verification.timed_calls >= 16, "{verification:?}");
}

fn wrong_programs_are_found_as_on_the_host() {
    for (preamble, body, code) in [
        ("", "HONEST y[columns + 2] += 1.0f;", None),
        ("", "HONEST y[rows * columns] = 1.0f;", Some("canary_overwritten")),
        ("", "HONEST x[3] = 0.0f;", Some("input_modified")),
        ("", "EVERY(if (i != 4) y[i] = x[i] * w[c] + b[c])", Some("output_not_written")),
        ("static float first; static int calls;", "HONEST if (calls++ == 0) first = y[0]; y[0] = first;", None),
        ("static float *first;", "if (!first) first = x; x = first; HONEST", None),
    ] {
        let (_kept, candidate) = built("wrong", preamble, body);
        let report = checked(None, &candidate);
        let is_found = report.findings.iter().any(|finding| Some(finding.code.as_str()) == code);
        assert!(is_found || report.cases.iter().any(|case| !case.passed), "{body}: {report:?}");
        assert!(code.is_none() || is_found, "{body}: {:?}", report.findings);
        assert!(!codes(&report.findings).contains(&"output_late"), "{body} is wrong, and not late: {report:?}");
    }
    let (_kept, ends) = built("ends", "", "return 3;");
    assert!(matches!(checked(None, &ends).end, ProcessEnd::CallFailed { .. }));
}

fn wrong_results_of_timed_calls_are_found() {
    let memo = "static float first; static int calls;";
    let (_kept, rude) = built("rude", memo, "HONEST if (calls++ == 0) first = y[0]; y[0] = first;");
    let (_, findings) = raced(None, &rude, false);
    assert!(codes(&findings).contains(&"timed_output_wrong"), "{findings:?}");
    let (_also, oversteps) = built("oversteps", "static int calls;", "HONEST if (++calls > 20) y[rows * columns] = 3;");
    let (_, findings) = raced(None, &oversteps, false);
    assert!(codes(&findings).contains(&"canary_overwritten"), "{findings:?}");
}

fn results_that_come_after_the_work_of_the_stream_are_found() {
    let preamble = "#include <dlfcn.h>\n#include <cstring>\n#include <vector>\nstatic std::vector<float> kept; static float *to;\n\
                    static void finish() { memcpy(to, kept.data(), kept.size() * sizeof(float)); }";
    let body = "HONEST auto later = (void (*)(void (*)()))dlsym(dlopen(\"libcuda.so\", RTLD_NOW), \"fake_later\"); \
                kept.assign(y, y + rows * columns); to = y; memset(y, 0, kept.size() * sizeof(float)); later(finish);";
    let (_kept, late) = built("later", preamble, body);
    let report = checked(None, &late);
    assert!(codes(&report.findings).contains(&"output_late"), "{report:?}");
    let usual = |case: &&CheckCase| case.inputs != "in_stream_order";
    assert!(report.cases.iter().filter(usual).all(|case| case.passed), "{:?}", report.cases);
}

/// Returns whether a process of this name runs.
fn is_running(name: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .map(|process| process.path().join("comm"))
        .any(|comm| std::fs::read_to_string(comm).is_ok_and(|running| running.trim_end() == name))
}

fn a_gpu_that_is_lost_is_no_verdict_on_the_program() {
    // The program's call names its process, waits until the GPU is lost, and returns an error as if it had caused that.
    let body = "prctl(PR_SET_NAME, \"in-the-call\"); \
                auto wait = (int (*)())dlsym(dlopen(\"libcuda.so\", RTLD_NOW), \"cuCtxSynchronize\"); \
                for (auto start = time(nullptr); time(nullptr) - start < 8;) if (wait() != 0) return 719; HONEST";
    let (_kept, waits) = built("waits", "#include <ctime>\n#include <dlfcn.h>\n#include <sys/prctl.h>", body);
    let lost = PathBuf::from(std::env::var_os(FOLDER).unwrap()).join("lost");
    let libraries = libraries(&waits);
    let mut seeds = SecretSeeds::from_os().unwrap();
    let is_over = AtomicBool::new(false);
    let judged = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && !is_running("in-the-call") {
                std::thread::yield_now();
            }
            std::fs::write(&lost, "").unwrap();
        });
        let judged = on_device(None, |context| check(context, &spec(), &libraries, true, &mut seeds));
        is_over.store(true, Ordering::Relaxed);
        judged
    });
    let failure = judged.unwrap_err();
    assert_eq!(failure.code, "gpu.unusable", "{failure:?}");
}

fn an_operation_lies_between_calls_in_a_row() {
    let body = "auto operations = (long (*)())dlsym(dlopen(\"libcuda.so\", RTLD_NOW), \"fake_operations\"); \
                long now = operations(); if (now == seen) return 9; seen = now; HONEST";
    let (_kept, looks) = built("looks", "#include <dlfcn.h>\nstatic long seen;", body);
    // A busy machine makes calls look so long that each has a window of its own: then there is no row.
    let calls = (0..TRIES).find_map(|_| {
        let (measurement, findings) = raced(None, &looks, true);
        assert!(codes(&findings).is_empty(), "{findings:?}");
        measurement.device.and_then(|device| device.calls_per_sample).filter(|calls| *calls > 1)
    });
    assert!(calls.is_some(), "no window has several calls");
}

fn a_program_that_turns_wrong_late_is_found() {
    // Up to 17 calls come before the first one that is timed: first calls, and those that tell how long one takes, which others lead.
    let (_kept, late) = built(
        "late",
        "static int calls;",
        "if (++calls < 22) { HONEST } else { EVERY(y[i] = i < 8 ? 0 : x[i] * w[c] + b[c]) }",
    );
    let (_, findings) = raced(None, &late, true);
    assert!(codes(&findings).contains(&"late_skipping"), "{findings:?}");
}

fn processes_that_wait_serve_as_fresh_ones_do() {
    let shared = Shared::new(12);
    let (_kept, honest) = built("honest", "", "HONEST");
    let memo = "static float first; static int calls;";
    let (_also, rude) = built("rude", memo, "HONEST if (calls++ == 0) first = y[0]; y[0] = first;");
    for (candidate, passes) in [(&honest, true), (&rude, false), (&honest, true), (&honest, true)] {
        let report = checked(Some(&shared), candidate);
        assert_eq!(report.end, ProcessEnd::Finished);
        assert_eq!(report.cases.iter().all(|case| case.passed), passes, "{:?}", report.cases);
        let (_, findings) = raced(Some(&shared), candidate, false);
        assert_eq!(codes(&findings).is_empty(), passes, "{findings:?}");
    }
    shared.pool.clear(&CancelFlag::default());
    assert!(codes(&raced(Some(&shared), &honest, true).1).is_empty());
}

fn no_process_that_ran_a_candidate_is_kept() {
    // A process that another candidate ran in has its mark.
    let (_kept, looks) = built("looks", "#include <cstdlib>", "HONEST if (getenv(\"RAN\")) return 8;");
    let (_also, marks) = built("marks", "#include <cstdlib>", "HONEST setenv(\"RAN\", \"1\", 1);");
    let shared = Shared::new(12);
    for candidate in [&marks, &looks, &marks, &looks] {
        assert_eq!(checked(Some(&shared), candidate).end, ProcessEnd::Finished);
    }
    assert!(codes(&raced(Some(&shared), &marks, false).1).is_empty());
    assert!(codes(&raced(Some(&shared), &looks, false).1).is_empty());
    assert!(codes(&raced(Some(&shared), &looks, true).1).is_empty());
}

fn steps_on_one_device_take_turns_and_all_come_to_their_end() {
    let shared = Shared::new(12);
    let (_kept, honest) = built("honest", "", "HONEST");
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| assert_eq!(checked(Some(&shared), &honest).end, ProcessEnd::Finished));
            scope.spawn(|| assert!(codes(&raced(Some(&shared), &honest, true).1).is_empty()));
        }
    });
}

fn while_a_trusted_program_compiles_others_have_the_device_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (began, go) = (folder.path().join("began"), folder.path().join("go"));
    // Its first call ends when another user of the device has had it alone, and fails when that does not happen.
    let body = format!(
        "if (first) {{ first = false; fclose(fopen(\"{began}\", \"w\")); for (int i = 0; i < 3000 && access(\"{go}\", F_OK); ++i) usleep(10000); \
         if (access(\"{go}\", F_OK)) return 9; }} HONEST",
        began = began.display(),
        go = go.display()
    );
    let preamble = "#include <cstdio>\n#include <unistd.h>\nstatic bool first = true;";
    let (_kept, compiles) = built("compiles", preamble, &body);
    let (host, cancel, lock) = (host(SandboxChoice::None), CancelFlag::default(), DeviceLock::default());
    let place = DevicePlace {
        gpu: Arc::clone(&GROUND.gpu),
        access: GROUND.access.clone(),
        libraries: Vec::new(),
        lock: Some(&lock),
        pool: None,
        cores: None,
        monitor: None,
    };
    let context = ExecutionContext { host: &host, cancel: &cancel, place: Place::Device(&place) };
    let programs = Programs {
        candidate: &compiles,
        baseline: &GROUND.reference,
        truth: &GROUND.truth,
        baseline_label: "the reference",
    };
    let mut spec = spec();
    spec.limits.call_timeout_ms = 60_000;
    let options = MeasureOptions { compiles: true, process_pairs: 1, most_process_pairs: 1, ..MeasureOptions::first() };
    let measured = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..6_000 {
                if began.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _alone = lock.lock(DeviceMode::Exclusive, &CancelFlag::default()).unwrap();
            std::fs::write(&go, "").unwrap();
        });
        measure(&context, &spec, &programs, &machine(), false, &options)
    });
    let Ok(StepOutput::Measured { findings, .. }) = measured else { panic!("not measured: {measured:?}") };
    assert!(codes(&findings).is_empty(), "{findings:?}");
}

fn a_driver_that_cannot_export_memory_lends_it_by_handles() {
    let kernels = PathBuf::from(std::env::var_os(FOLDER).unwrap()).join("kernels.so");
    let gpu = Gpu::open(None, kernels.to_str().unwrap().as_bytes()).unwrap().without_descriptors();
    let gpu = Arc::new(gpu);
    // This driver lends memory through files, which a sandbox refuses.
    let check_on = |candidate: &Path| {
        let libraries = libraries(candidate);
        let mut seeds = SecretSeeds::from_os().unwrap();
        let checked =
            on_gpu(&gpu, SandboxChoice::None, None, |context| check(context, &spec(), &libraries, false, &mut seeds));
        checked.unwrap()
    };
    let (_kept, honest) = built("honest", "", "HONEST");
    let report = check_on(&honest);
    assert!(report.end == ProcessEnd::Finished && report.cases.iter().all(|case| case.passed), "{report:?}");
    let (_also, wrong) = built("wrong", "", "HONEST y[columns + 2] += 1.0f;");
    let report = check_on(&wrong);
    assert!(report.end == ProcessEnd::Finished && report.cases.iter().any(|case| !case.passed), "{report:?}");
    let programs = Programs {
        candidate: &honest,
        baseline: &GROUND.reference,
        truth: &GROUND.truth,
        baseline_label: "the reference",
    };
    let options = MeasureOptions { confirms: true, quiet: true, ..MeasureOptions::first() };
    let measured = undisturbed(|| {
        on_gpu(&gpu, SandboxChoice::None, None, |context| {
            measure(context, &spec(), &programs, &machine(), false, &options)
        })
    });
    let Ok(StepOutput::Measured { findings, .. }) = measured else { panic!("not measured: {measured:?}") };
    assert!(codes(&findings).is_empty(), "{findings:?}");
}

fn a_reference_is_prepared_on_a_device() {
    let libraries = ReferenceLibraries { reference: GROUND.reference.clone(), truth: GROUND.truth.clone() };
    let mut seeds = SecretSeeds::from_os().unwrap();
    let examined = on_device(None, |context| prepare(context, &spec(), &libraries, &mut seeds));
    assert!(matches!(&examined, Ok(Examined::Usable(facts)) if facts.baseline_median_ns > 0.0), "{examined:?}");
}

/// The reference, moved by a part of the tolerance at every second call.
fn prepared_with(part_of_tolerance: &str) -> Examined {
    let drifts = format!(
        "static int calls = 0; if (++calls % 2) y[0] += (ns_real)(1e-4 * (1 + (y[0] < 0 ? -y[0] : y[0])) * {part_of_tolerance});\n    return 0;\n}}\n"
    );
    let (head, _) = REFERENCE.rsplit_once("return 0;").unwrap();
    let workshop = Workshop::new();
    let source = format!("{head}{drifts}");
    let reference = workshop.library("reference", &source, &[]);
    let libraries = ReferenceLibraries { reference, truth: GROUND.truth.clone() };
    let mut seeds = SecretSeeds::from_os().unwrap();
    on_device(None, |context| prepare(context, &spec(), &libraries, &mut seeds)).unwrap()
}

fn on_a_device_a_reference_may_differ_in_its_last_bits_and_not_by_more() {
    let Examined::Usable(facts) = prepared_with("0.2") else { panic!("a small difference is refused") };
    assert_eq!(codes(&facts.warnings), ["reference_not_bitwise_deterministic"], "{:?}", facts.warnings);
    let Examined::Rejected { code, .. } = prepared_with("0.9") else { panic!("a large difference is accepted") };
    assert_eq!(code, "task.reference_not_deterministic");
}
