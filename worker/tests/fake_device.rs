//! What surrounds a device, tried without one: checks and measurements of programs for the processor, whose runner takes a
//! driver that is made of the host's memory and clock for a real one. What a GPU itself does is told by `gpu.rs`.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/workshop.rs"]
#[expect(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
mod workshop;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::measurement::{CompilerReport, Measurement};
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::task::{DType, TaskSpec, TorchSpec};
use nightshift_protocol::verdict::{Finding, ProcessEnd};
use nightshift_sandbox::process::{CancelFlag, JailedCommand, SandboxChoice, run_jailed_on_device};
use nightshift_sandbox::{DeviceAccess, Queues};
use nightshift_worker::artifacts::ArtifactError;
use nightshift_worker::check::{Libraries, check_on};
use nightshift_worker::inputs::{InputKind, SecretSeeds, generate_all};
use nightshift_worker::known::KnownQuestions;
use nightshift_worker::measure::{DeviceMeasureOptions, Programs, measure_on_device};
use nightshift_worker::prepare::{Examined, ReferenceLibraries, prepare_on};
use nightshift_worker::profilers::{MissingTool, Profilers, Replay, Subject, profile};
use nightshift_worker::runner::{DeviceUse, Gate, Grounds, Standby, write_replay};
use tempfile::TempDir;
use workshop::{REFERENCE, Workshop, host, machine, program, task};

/// Threads of one program beside another one.
const SIDE_BY_SIDE: usize = 3;

/// What all tests start from, built once.
struct Ground {
    _workshop: Workshop,
    reference: PathBuf,
    truth: PathBuf,
    device: DeviceUse,
}

static GROUND: LazyLock<Ground> = LazyLock::new(|| {
    let workshop = Workshop::new();
    let driver = include_str!("fixtures/fake_driver.cpp");
    workshop.library("libcuda", driver, &[]);
    let folder = workshop.path().canonicalize().unwrap();
    Ground {
        reference: workshop.library("reference", REFERENCE, &[]),
        truth: workshop.library("truth", REFERENCE, &["-DNS_REAL=double"]),
        device: DeviceUse {
            access: DeviceAccess {
                visible: "0".to_owned(),
                nodes: Vec::new(),
                shared_nodes: None,
                library_folders: vec![folder],
                queues: Queues::Usual,
            },
            libraries: Vec::new(),
        },
        _workshop: workshop,
    }
});

fn spec() -> TaskSpec {
    let mut spec = task();
    spec.limits.memory_bytes = 1 << 30;
    spec.limits.call_timeout_ms = 10_000;
    spec
}

fn with_grounds<T>(gate: Option<&Gate>, work: impl FnOnce(&Grounds<'_>) -> T) -> T {
    let (host, cancel) = (host(SandboxChoice::Best), CancelFlag::default());
    work(&Grounds { host: &host, device: Some(&GROUND.device), cancel: &cancel, gate, standby: None })
}

/// Processes on standby with room for so many contexts, and the folder in which they read their libraries.
fn standby(room: usize) -> (Standby, Arc<Gate>, TempDir) {
    standby_that_knows(room, u64::MAX)
}

/// The same, that keeps questions about outputs with so many elements.
fn standby_that_knows(room: usize, fewest_elements: u64) -> (Standby, Arc<Gate>, TempDir) {
    let (gate, scratch) = (Arc::default(), tempfile::tempdir().unwrap());
    let folder = scratch.path().canonicalize().unwrap();
    let known = KnownQuestions::new(1 << 30).of_small_outputs(fewest_elements);
    (Standby::new(host(SandboxChoice::Best), folder, Arc::clone(&gate), room, known), gate, scratch)
}

fn with_standby<T>(standby: &Standby, gate: &Gate, work: impl FnOnce(&Grounds<'_>) -> T) -> T {
    let (host, cancel) = (host(SandboxChoice::Best), CancelFlag::default());
    let (gate, standby) = (Some(gate), Some(standby));
    work(&Grounds { host: &host, device: Some(&GROUND.device), cancel: &cancel, gate, standby })
}

fn libraries(candidate: &Path) -> Libraries {
    let (reference, truth) = (GROUND.reference.clone(), GROUND.truth.clone());
    Libraries { candidate: candidate.to_path_buf(), reference, truth }
}

/// Waits, bounded, until so many trusted and spare processes are kept.
fn wait_for_kept(standby: &Standby, trusted: usize, spare: RangeInclusive<usize>) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let kept = standby.kept();
        if kept.0 == trusted && spare.contains(&kept.1) {
            return;
        }
        assert!(Instant::now() < until, "{kept:?} are kept instead of {trusted} and {spare:?}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn what_is_on_standby_serves_the_next_steps_and_judges_as_a_fresh_process_does() {
    let (standby, gate, _scratch) = standby(12);
    let (_kept, honest) = built("honest", "", "HONEST;");
    // Of a program that keeps what it computed, a process that served another one would know nothing.
    let memo = "static float first; static int calls;";
    let (_also, rude) = built("rude", memo, "HONEST; if (calls++ == 0) first = y[0]; y[0] = first;");
    let mut seeds = SecretSeeds::from_os().unwrap();
    for (candidate, passes) in [(&honest, true), (&rude, false), (&honest, true), (&honest, true)] {
        let check = |grounds: &Grounds<'_>| check_on(grounds, &spec(), &libraries(candidate), true, &mut seeds);
        let report = with_standby(&standby, &gate, check).unwrap();
        assert_eq!(report.end, ProcessEnd::Finished);
        assert_eq!(report.cases.iter().all(|case| case.passed), passes, "{:?}", report.cases);
        // Processes of the next programs are ready before they are asked for, as many as there were programs lately but no
        // more than a part of the device's room; the reference and the truth have one each.
        wait_for_kept(&standby, 2, 2..=3);
        let programs = Programs {
            candidate,
            baseline: &GROUND.reference,
            truth: &GROUND.truth,
            baseline_label: "the reference",
            confirms: false,
        };
        let options = DeviceMeasureOptions::default();
        let measure =
            |grounds: &Grounds<'_>| measure_on_device(grounds, &spec(), &programs, &machine(), None, true, &options);
        let output = with_standby(&standby, &gate, measure).unwrap();
        let StepOutput::Measured { findings, .. } = output else { panic!("not measured: {output:?}") };
        assert_eq!(codes(&findings).is_empty(), passes, "{findings:?}");
        assert_eq!(standby.kept().0, 2);
    }
    standby.clear();
    wait_for_kept(&standby, 0, 0..=0);
}

#[test]
fn of_a_model_s_task_the_process_that_passed_its_check_is_timed_once_and_never_confirmed() {
    let (standby, gate, _scratch) = standby(12);
    // The libraries of a task of PyTorch may as well be native ones, as far as this goes.
    let of_a_model = TaskSpec { torch: Some(TorchSpec::default()), ..spec() };
    // What it prints keeps it from nothing.
    let (_kept, honest) = built(
        "honest",
        "#include <cstdio>\nstatic int calls;",
        "HONEST; if (calls++ == 0) std::fputs(\"here\\n\", stderr);",
    );
    let (_also, wrong) = built("wrong", "", "HONEST; y[0] += 1.0f;");
    let mut seeds = SecretSeeds::from_os().unwrap();
    let mut passes = |candidate: &Path, spec: &TaskSpec| {
        let check = |grounds: &Grounds<'_>| check_on(grounds, spec, &libraries(candidate), true, &mut seeds);
        with_standby(&standby, &gate, check).unwrap().cases.iter().all(|case| case.passed)
    };
    let measure = |confirms: bool| {
        let (baseline, truth) = (&GROUND.reference, &GROUND.truth);
        let programs = Programs { candidate: &honest, baseline, truth, baseline_label: "the reference", confirms };
        let options = DeviceMeasureOptions::default();
        let measure = |grounds: &Grounds<'_>| {
            measure_on_device(grounds, &of_a_model, &programs, &machine(), None, true, &options)
        };
        let output = with_standby(&standby, &gate, measure).unwrap();
        let StepOutput::Measured { findings, .. } = output else { panic!("not measured: {output:?}") };
        assert!(codes(&findings).is_empty(), "{findings:?}");
    };
    // Beside the reference and the truth.
    assert!(passes(&honest, &of_a_model));
    assert_eq!(standby.kept().0, 3);
    measure(true);
    assert_eq!(standby.kept().0, 3, "a confirmation leaves it alone");
    measure(false);
    assert_eq!(standby.kept().0, 2, "it served, and ended");
    measure(false);
    assert_eq!(standby.kept().0, 2, "a new one served in its place");
    assert!(!passes(&wrong, &of_a_model));
    assert_eq!(standby.kept().0, 2, "what is wrong is not kept");
    assert!(passes(&honest, &spec()));
    assert_eq!(standby.kept().0, 4, "of other tasks the reference and the truth are, and nothing else");
}

#[test]
fn programs_of_a_task_are_asked_the_same_until_something_is_told_of_the_answers() {
    let (standby, gate, _scratch) = standby_that_knows(12, 1);
    let (_kept, honest) = built("honest", "", "HONEST;");
    let (_also, wrong) = built("wrong", "", "HONEST; y[rows * columns - 1] += 1.0f;");
    let (_too, forgets) = built("forgets", "static float *first;", "if (!first) { HONEST; first = y; }");
    let says = "#include <cstdio>\nstatic int calls;";
    let (_there, talks) = built("talks", says, "HONEST; if (calls++ == 0) std::fprintf(stderr, \"%f\\n\", x[0]);");
    let mut seeds = SecretSeeds::from_os().unwrap();
    let mut checked = |candidate: &Path, spec: &TaskSpec| {
        let check = |grounds: &Grounds<'_>| check_on(grounds, spec, &libraries(candidate), true, &mut seeds);
        let report = with_standby(&standby, &gate, check).unwrap();
        let asked_reference = standby.kept().0 == 2;
        standby.end_kept();
        (report, asked_reference)
    };
    let passes = |report: &CheckReport| report.cases.iter().all(|case| case.passed);
    let (first, asked) = checked(&honest, &spec());
    assert!(passes(&first) && asked);
    assert!(standby.known().kept_bytes() > 0);
    let (second, asked) = checked(&honest, &spec());
    assert!(!asked, "the answers are known");
    // The same cases, with the same errors: they were asked the same.
    assert_eq!((&second.cases, &second.error_histogram), (&first.cases, &first.error_histogram));
    assert_eq!((second.deterministic, codes(&second.findings).is_empty()), (Some(true), true));
    let mut other = spec();
    other.tolerance.atol *= 2.0;
    assert!(checked(&honest, &other).1, "of another tolerance nothing is known");
    for (candidate, passes_too) in [(&wrong, false), (&forgets, false), (&talks, true)] {
        let (report, asked) = checked(candidate, &spec());
        assert!(!asked, "{}", candidate.display());
        assert_eq!(passes(&report), passes_too, "{:?}", report.cases);
        let (report, asked) = checked(&honest, &spec());
        assert!(passes(&report) && asked, "after {} others are asked", candidate.display());
    }
    // One that ends is asked once more beside the reference, and what it was told of is not asked again.
    let (_here, ends) = built("ends", "static int calls;", "if (calls++ > 0) return 1; HONEST; y[0] += 1.0f;");
    let (report, asked) = checked(&ends, &spec());
    assert!(asked && matches!(report.end, ProcessEnd::CallFailed { .. }), "{:?}", report.end);
    assert!(checked(&honest, &spec()).1, "it may have said what it was asked");
    // What is asked of one that talks is not kept at all.
    standby.clear();
    assert!(checked(&talks, &spec()).1 && checked(&honest, &spec()).1);
    // Memory is for contexts and for tensors of steps before.
    assert!(standby.known().kept_bytes() > 0);
    let withheld = standby.withhold(usize::MAX);
    assert_eq!(standby.known().kept_bytes(), 0);
    assert!(checked(&honest, &spec()).0.end == ProcessEnd::Finished && standby.known().kept_bytes() == 0);
    drop(withheld);
}

#[test]
fn first_measurements_of_a_task_share_inputs_and_confirmations_do_not() {
    let (standby, gate, _scratch) = standby_that_knows(12, 1);
    let (_kept, honest) = built("honest", "", "HONEST;");
    let memo = "static float first; static int calls;";
    let (_also, rude) = built("rude", memo, "HONEST; if (calls++ == 0) first = y[0]; y[0] = first;");
    let (_too, oversteps) = built("oversteps", "static int calls;", "HONEST; if (++calls > 20) y[rows * columns] = 3;");
    let raced = |candidate: &Path, confirms: bool| {
        let (baseline, truth) = (&GROUND.reference, &GROUND.truth);
        let programs = Programs { candidate, baseline, truth, baseline_label: "the reference", confirms };
        let options = DeviceMeasureOptions::default();
        let measure =
            |grounds: &Grounds<'_>| measure_on_device(grounds, &spec(), &programs, &machine(), None, true, &options);
        let output = with_standby(&standby, &gate, measure).unwrap();
        let StepOutput::Measured { findings, .. } = output else { panic!("not measured: {output:?}") };
        let asked_truth = standby.kept().0 == 1;
        standby.end_kept();
        (codes(&findings).into_iter().map(str::to_owned).collect::<Vec<_>>(), asked_truth)
    };
    assert_eq!(raced(&honest, true), (Vec::new(), true));
    assert_eq!(standby.known().kept_bytes(), 0, "what a result rests on is asked nobody else");
    assert_eq!(raced(&honest, false), (Vec::new(), true));
    let bytes = standby.known().kept_bytes();
    assert!(bytes > 0);
    assert_eq!(raced(&honest, false), (Vec::new(), false));
    assert_eq!(raced(&honest, true), (Vec::new(), true), "a confirmation asks the truth itself");
    assert_eq!(standby.known().kept_bytes(), bytes);
    for (candidate, code) in [(&rude, "timed_output_wrong"), (&oversteps, "canary_overwritten")] {
        let (found, asked) = raced(candidate, false);
        assert!(found.iter().any(|found| found == code) && !asked, "{found:?}");
        assert_eq!(standby.known().kept_bytes(), 0, "what was found may tell of the answers");
        assert_eq!(raced(&honest, false), (Vec::new(), true));
    }
    // Also by the truth that is asked then and there.
    standby.clear();
    assert!(raced(&rude, false).0.iter().any(|found| found == "timed_output_wrong"));
}

#[test]
fn what_is_only_kept_makes_room_for_what_is_asked_for() {
    let (standby, gate, _scratch) = standby(3);
    let (_kept, honest) = built("honest", "", "HONEST;");
    let mut seeds = SecretSeeds::from_os().unwrap();
    let check = |grounds: &Grounds<'_>| check_on(grounds, &spec(), &libraries(&honest), true, &mut seeds);
    assert_eq!(with_standby(&standby, &gate, check).unwrap().end, ProcessEnd::Finished);
    assert_eq!(standby.kept().0, 2);
    let mut left = Vec::new();
    for places in 1..=4_usize {
        left.push(standby.place(false));
        let (trusted, spare) = standby.kept();
        assert!(trusted + spare + places <= 3 || trusted + spare == 0, "{trusted} and {spare} beside {places}");
    }
}

#[test]
fn what_is_only_kept_leaves_its_memory_to_large_tensors() {
    let (standby, gate, _scratch) = standby(12);
    let (_kept, honest) = built("honest", "", "HONEST;");
    let mut seeds = SecretSeeds::from_os().unwrap();
    let mut check = || {
        let check = |grounds: &Grounds<'_>| check_on(grounds, &spec(), &libraries(&honest), true, &mut seeds);
        assert_eq!(with_standby(&standby, &gate, check).unwrap().end, ProcessEnd::Finished);
    };
    check();
    wait_for_kept(&standby, 2, 1..=3);
    let most = standby.withhold(9);
    wait_for_kept(&standby, 2, 0..=1);
    let all = standby.withhold(usize::MAX);
    wait_for_kept(&standby, 0, 0..=0);
    // Nothing is kept, and nothing is missing.
    check();
    wait_for_kept(&standby, 0, 0..=0);
    drop(all);
    drop(most);
    check();
    wait_for_kept(&standby, 2, 0..=3);
}

#[test]
fn of_large_tensors_less_is_kept_and_as_much_found() {
    let (_kept, honest) = built("honest", "", "HONEST;");
    let memo = "static float first; static int calls;";
    let (_also, rude) = built("rude", memo, "HONEST; if (calls++ == 0) first = y[0]; y[0] = first;");
    let options = DeviceMeasureOptions { large_bytes: 0, ..DeviceMeasureOptions::default() };
    for (candidate, passes) in [(&honest, true), (&rude, false)] {
        let programs = Programs {
            candidate,
            baseline: &GROUND.reference,
            truth: &GROUND.truth,
            baseline_label: "the reference",
            confirms: false,
        };
        let measure =
            |grounds: &Grounds<'_>| measure_on_device(grounds, &spec(), &programs, &machine(), None, true, &options);
        let StepOutput::Measured { findings, .. } = with_grounds(None, measure).unwrap() else {
            panic!("not measured")
        };
        assert_eq!(codes(&findings).is_empty(), passes, "{findings:?}");
    }
}

#[test]
fn another_library_or_another_limit_gets_a_process_of_its_own() {
    let (standby, gate, _scratch) = standby(12);
    let (_kept, honest) = built("honest", "", "HONEST;");
    let other = Workshop::new();
    let other_reference = other.library("other", &format!("{REFERENCE}\n// Another one."), &["-DOTHER"]);
    let mut patient = spec();
    patient.limits.call_timeout_ms += 1;
    let mut seeds = SecretSeeds::from_os().unwrap();
    for (spec, reference, kept) in [
        (spec(), &GROUND.reference, 2),
        (spec(), &GROUND.reference, 2),
        (patient, &GROUND.reference, 4),
        (spec(), &other_reference, if same_bytes(&other_reference, &GROUND.reference) { 4 } else { 5 }),
    ] {
        let libraries = Libraries { reference: reference.clone(), ..libraries(&honest) };
        let check = |grounds: &Grounds<'_>| check_on(grounds, &spec, &libraries, true, &mut seeds);
        assert_eq!(with_standby(&standby, &gate, check).unwrap().end, ProcessEnd::Finished);
        assert_eq!(standby.kept().0, kept);
    }
}

fn same_bytes(left: &Path, right: &Path) -> bool {
    std::fs::read(left).unwrap() == std::fs::read(right).unwrap()
}

fn checked(candidate: &Path, gate: Option<&Gate>) -> CheckReport {
    let mut seeds = SecretSeeds::from_os().unwrap();
    with_grounds(gate, |grounds| check_on(grounds, &spec(), &libraries(candidate), true, &mut seeds)).unwrap()
}

fn raced(candidate: &Path, gate: Option<&Gate>) -> (Measurement, Vec<Finding>) {
    let baseline_label = "the reference";
    let programs =
        Programs { candidate, baseline: &GROUND.reference, truth: &GROUND.truth, baseline_label, confirms: true };
    let options = DeviceMeasureOptions::default();
    let output =
        with_grounds(gate, |grounds| measure_on_device(grounds, &spec(), &programs, &machine(), None, true, &options));
    match output.unwrap() {
        StepOutput::Measured { measurement, findings } => (*measurement, findings),
        other => panic!("not measured: {other:?}"),
    }
}

/// What was found, but for what the clock of a machine with other work may say.
fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.as_str()).filter(|code| *code != "timing_mismatch").collect()
}

/// Late in rows alone, whose calls work at one address, and so many times; then `then`, with `rotated` telling whether the call works
/// at another address than the one before.
fn late_in_rows(name: &str, times: usize, then: &str) -> (Workshop, PathBuf) {
    let state = "#include <unistd.h>\nstatic float *last; static bool rotates; static int late;";
    let body = "bool rotated = y != last; if (rotated) { rotates = rotates || last; last = y; } \
                else if (rotates && late < TIMES) { usleep(500); ++late; } THEN";
    built(name, state, &body.replace("THEN", then).replace("TIMES", &times.to_string()))
}

/// As often as there are such calls the first time.
const ONCE: usize = 315;

fn measured_first(candidate: &Path, large_bytes: u64) -> (Measurement, Vec<Finding>) {
    let (baseline, truth) = (&GROUND.reference, &GROUND.truth);
    let programs = Programs { candidate, baseline, truth, baseline_label: "the reference", confirms: false };
    let options = DeviceMeasureOptions { graphs: false, large_bytes, ..DeviceMeasureOptions::first() };
    let gate = Gate::default();
    let output = with_grounds(Some(&gate), |grounds| {
        measure_on_device(grounds, &spec(), &programs, &machine(), None, true, &options).unwrap()
    });
    let StepOutput::Measured { measurement, findings } = output else { panic!("not measured: {output:?}") };
    (*measurement, findings)
}

fn was_repeated(measurement: &Measurement) -> bool {
    let device = measurement.device.as_ref().unwrap();
    device.rejected_because.iter().any(|reason| reason.contains("seemed to hide time")) && device.rejected_samples > 0
}

#[test]
fn a_first_measurement_that_was_disturbed_is_repeated_before_anybody_is_accused() {
    let (_kept, disturbed) = late_in_rows("disturbed", ONCE, "HONEST;");
    let (measurement, findings) = measured_first(&disturbed, DeviceMeasureOptions::default().large_bytes);
    assert_eq!(codes(&findings), [""; 0], "{findings:?}");
    assert!(was_repeated(&measurement), "{:?}", measurement.device);
    // Beside nothing at all there is nobody else to be blamed.
    let (_also_kept, hides) = late_in_rows("hides", 1_000_000, "HONEST;");
    let (measurement, findings) = raced(&hides, Some(&Gate::default()));
    assert!(findings.iter().any(|finding| finding.code == "timing_mismatch"), "{findings:?}");
    assert!(!was_repeated(&measurement));
}

#[test]
fn what_the_calls_that_count_left_behind_is_looked_at() {
    // Honest until it was late often enough to be timed again; one call is looked at, with large tensors.
    let (_kept, idle) = late_in_rows("idle", ONCE, "if (rotated && late == TIMES) return 0; HONEST;");
    let (measurement, findings) = measured_first(&idle, 1);
    assert!(was_repeated(&measurement), "{:?}", measurement.device);
    assert!(codes(&findings).contains(&"output_not_written"), "{findings:?}");
}

fn built(name: &str, preamble: &str, body: &str) -> (Workshop, PathBuf) {
    let workshop = Workshop::new();
    let library = workshop.library(name, &program(preamble, body), &[]);
    (workshop, library)
}

#[test]
fn short_calls_share_a_sample_and_each_works_on_data_of_its_own() {
    let (_kept, honest) = built("honest", "", "HONEST;");
    let (measurement, findings) = raced(&honest, None);
    assert_eq!(codes(&findings), [""; 0], "{findings:?}");
    let device = measurement.device.unwrap();
    assert!(device.calls_per_sample.unwrap() > 1, "{device:?}");
    assert!(device.rows.is_some() && device.graph.is_none());
    // On a machine with other work the time for more may be over.
    assert!(!measurement.candidate_samples_ns.is_empty());
    assert_eq!(measurement.candidate_samples_ns.len(), measurement.baseline_samples_ns.len());
}

#[test]
fn a_result_that_is_kept_for_the_next_call_is_wrong_there() {
    let memo = "#include <cstring>\n#include <vector>\nstatic std::vector<float> memo;";
    let remembers = "if ((int64_t)memo.size() != rows * columns) { HONEST; memo.assign(y, y + rows * columns); } \
                     memcpy(y, memo.data(), memo.size() * 4);";
    let (_kept, library) = built("remembers", memo, remembers);
    let (_, findings) = raced(&library, None);
    assert!(codes(&findings).contains(&"timed_output_wrong"), "{findings:?}");
}

#[test]
fn a_program_that_works_once_for_each_address_is_found_out() {
    let seen = "#include <set>\nstatic std::set<float *> seen;";
    let (_kept, library) = built("lazy", seen, "if (!seen.insert(y).second) return 0; HONEST;");
    let (_, findings) = raced(&library, None);
    let codes = codes(&findings);
    assert!(codes.contains(&"output_not_written") && codes.contains(&"timed_output_wrong"), "{findings:?}");
}

#[test]
fn a_program_that_writes_to_its_inputs_or_beside_its_outputs_is_found_out_in_timed_calls() {
    // Not in its first calls, which are looked at, too.
    for (name, body, code) in [
        ("overwrites", "static int calls; HONEST; if (++calls > 20) x[1] = 3;", "input_modified"),
        ("oversteps", "static int calls; HONEST; if (++calls > 20) y[rows * columns] = 3;", "canary_overwritten"),
    ] {
        let (_kept, library) = built(name, "", body);
        let (_, findings) = raced(&library, None);
        assert!(codes(&findings).contains(&code), "{name}: {findings:?}");
    }
}

#[test]
fn a_check_on_a_device_tells_right_from_wrong() {
    let (_kept, honest) = built("honest", "", "HONEST;");
    let report = checked(&honest, None);
    assert_eq!((report.end, codes(&report.findings)), (ProcessEnd::Finished, Vec::new()));
    assert!(report.cases.len() > 10 && report.cases.iter().all(|case| case.passed));
    let (_kept, wrong) = built("wrong", "", "HONEST; y[rows * columns - 1] += 1;");
    assert!(checked(&wrong, None).cases.iter().any(|case| !case.passed));
}

/// The same task on tensors of 16 bits, as a compiler for the processor has them.
const SHORT_REFERENCE: &str = r#"
typedef _Float16 __half;
#include "nightshift.h"
int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *) {
    const ns_f16 *x = (const ns_f16 *)in[0].data, *w = (const ns_f16 *)in[1].data, *b = (const ns_f16 *)in[2].data;
    ns_f16 *y = (ns_f16 *)out[0].data;
    int64_t rows = in[0].shape[0], columns = in[0].shape[1];
    if (in[0].dtype != (sizeof(ns_f16) == 2 ? NS_F16 : NS_F64)) return 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            int64_t i = r * columns + c;
            y[i] = ns_f16(ns_real(x[i]) * ns_real(w[c]) + ns_real(b[c]) CHANGE);
        }
    return 0;
}
"#;

#[test]
fn tensors_of_16_bits_are_compared_with_a_truth_of_64() {
    let workshop = Workshop::new();
    let source = |change: &str| SHORT_REFERENCE.replace("CHANGE", change);
    let reference = workshop.library("reference", &source(""), &[]);
    let truth = workshop.library("truth", &source(""), &["-DNS_REAL=double", "-DNS_TRUTH"]);
    // Four times as far from the truth as rounding takes the reference, and still within the task's tolerance.
    let careless = workshop.library("careless", &source("* ns_real(1.004)"), &[]);
    let wrong = workshop.library("wrong", &source("+ ns_real(r == 0 && c == 0)"), &[]);
    let mut spec = spec();
    for tensor in spec.inputs.iter_mut().chain(&mut spec.params).chain(&mut spec.outputs) {
        tensor.dtype = DType::F16;
    }
    (spec.tolerance.atol, spec.tolerance.rtol) = (1e-2, 1e-2);
    spec.tolerance.reference_error_factor = 4.0;
    for (candidate, passes) in [(&reference, true), (&careless, false), (&wrong, false)] {
        let libraries = Libraries { candidate: candidate.clone(), reference: reference.clone(), truth: truth.clone() };
        let mut seeds = SecretSeeds::from_os().unwrap();
        let report = with_grounds(None, |grounds| check_on(grounds, &spec, &libraries, true, &mut seeds)).unwrap();
        assert_eq!(report.end, ProcessEnd::Finished, "{}", report.printed);
        assert_eq!(report.cases.iter().all(|case| case.passed), passes, "{:?}", report.cases);
        let breaks = codes(&report.findings).into_iter().any(|code| code != "less_precise_than_reference");
        assert!(!breaks, "{:?}", report.findings);
    }
    let programs = Programs {
        candidate: &reference,
        baseline: &reference,
        truth: &truth,
        baseline_label: "itself",
        confirms: true,
    };
    let options = DeviceMeasureOptions::default();
    let output =
        with_grounds(None, |grounds| measure_on_device(grounds, &spec, &programs, &machine(), None, true, &options));
    let Ok(StepOutput::Measured { findings, .. }) = output else { panic!("not measured: {output:?}") };
    assert_eq!(codes(&findings), [""; 0], "{findings:?}");
}

#[test]
fn a_reference_is_prepared_on_a_device() {
    let libraries = ReferenceLibraries { reference: GROUND.reference.clone(), truth: GROUND.truth.clone() };
    let mut seeds = SecretSeeds::from_os().unwrap();
    let examined = with_grounds(None, |grounds| prepare_on(grounds, &spec(), &libraries, &machine(), &mut seeds));
    assert!(matches!(examined, Ok(Examined::Usable(facts)) if facts.baseline_median_ns > 0.0));
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
    with_grounds(None, |grounds| prepare_on(grounds, &spec(), &libraries, &machine(), &mut seeds)).unwrap()
}

#[test]
fn on_a_device_a_reference_may_differ_in_its_last_bits_and_not_by_more() {
    let Examined::Usable(facts) = prepared_with("0.2") else { panic!("a small difference is refused") };
    assert_eq!(codes(&facts.warnings), ["reference_not_bitwise_deterministic"], "{:?}", facts.warnings);
    let Examined::Rejected { code, .. } = prepared_with("0.9") else { panic!("a large difference is accepted") };
    assert_eq!(code, "task.reference_not_deterministic");
}

#[test]
fn checks_and_measurements_of_one_device_take_turns_and_all_come_to_their_end() {
    let (_kept, honest) = built("honest", "", "HONEST;");
    let gate = Gate::default();
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| assert_eq!(checked(&honest, Some(&gate)).end, ProcessEnd::Finished));
            scope.spawn(|| assert_eq!(codes(&raced(&honest, Some(&gate)).1), [""; 0]));
        }
    });
}

/// A profile of an honest program by a worker that finds no tool but CUPTI, whose answer to being asked for records is this.
fn profiled(refused: &str) -> Profile {
    let (_kept, honest) = built("honest", "", "HONEST;");
    let cupti = Workshop::new();
    let library =
        cupti.library("libcupti", include_str!("fixtures/fake_cupti.cpp"), &[&format!("-DREFUSED={refused}")]);
    let toolkit = library.parent().unwrap().canonicalize().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().canonicalize().unwrap();
    let shapes = spec().default_shapes().unwrap();
    let inputs = generate_all(&shapes.inputs, 1, InputKind::Declared);
    let params = generate_all(&shapes.params, 2, InputKind::Declared);
    let plan = write_replay(&folder, &honest, &GROUND.device, &shapes, &params, &inputs).unwrap();
    let (host, access) = (host(SandboxChoice::Best).jail, &GROUND.device.access);
    let run = |command: &JailedCommand| run_jailed_on_device(&host, command, access, &CancelFlag::default());
    let keep = |bytes: &[u8]| -> Result<ArtifactHash, ArtifactError> { Ok(ArtifactHash::of(bytes)) };
    let replay = Replay {
        run: &run,
        executable: &host.executable,
        plan: &plan,
        in_python: false,
        readable: &[folder.clone(), honest.parent().unwrap().canonicalize().unwrap()],
        library_path: &access.library_folders,
        env: &access.environment(),
        scratch: &folder,
        put: &keep,
    };
    let missing = || Err(MissingTool { reason: "not there".to_owned(), remedy: "get it".to_owned() });
    let found = Profilers::find(&[], &[toolkit], &folder, &run);
    let profilers = Profilers { nsys: missing(), ncu: missing(), compute_sanitizer: missing(), ..found };
    let compiler = CompilerReport::default();
    let subject = Subject { compiler: &compiler, cuda: None, gpu: None, flops: None, bytes: None, median_ns: None };
    profile(&profilers, &replay, &subject).unwrap()
}

#[test]
fn a_program_traces_itself_where_no_tool_can_be_put_in_front_of_it() {
    let profile = profiled("0");
    let tiers: Vec<_> = profile.tiers.iter().map(|tier| (tier.tool.as_str(), tier.used)).collect();
    assert!(tiers.starts_with(&[("nsys", false), ("cupti", true)]), "{:#?}", profile.tiers);
    let timeline = profile.timeline.unwrap();
    assert_eq!((timeline.calls, timeline.kernels.len()), (5, 1));
    assert_eq!(timeline.kernels[0].name, "double(float const*, float*, long)");
    assert_eq!(timeline.kernels[0].times.count, 5);
    assert!(profile.trace.is_some());
}

#[test]
fn a_program_that_may_not_trace_itself_says_so_and_is_profiled_without() {
    let profile = profiled("35");
    let tier = profile.tiers.iter().find(|tier| tier.tool == "cupti").unwrap();
    assert!(!tier.used && profile.timeline.is_none());
    assert!(tier.reason.as_ref().unwrap().contains("asking for records: CUPTI_ERROR_UNKNOWN"), "{tier:?}");
}
