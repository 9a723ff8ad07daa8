//! Timings on the right side of one, and tasks whose references can or cannot be used.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/workshop.rs"]
#[expect(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
mod workshop;

use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nightshift_evaluator::context::{ExecutionContext, Place};
use nightshift_evaluator::measure::{MeasureOptions, Programs, measure};
use nightshift_evaluator::memory::HostMemory;
use nightshift_evaluator::prepare::{Examined, ReferenceLibraries, prepare};
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity};
use nightshift_sandbox::process::{CancelFlag, JailedCommand, SandboxChoice, run_jailed};
use nightshift_toolchain::Host;
use workshop::{REFERENCE, Workshop, host, limits, machine, program, task};

/// The small task with more work in a call: large enough for a clock.
fn timed_task() -> TaskSpec {
    let mut spec = task();
    spec.dims.insert("rows".to_owned(), 256);
    spec.dims.insert("columns".to_owned(), 512);
    spec.flops = Some(2.0 * 256.0 * 512.0);
    // No call takes so long; on a machine with other work the slow ones here were ended before their turn came.
    spec.limits.call_timeout_ms = 10_000;
    spec
}

/// The reference in double precision, built once.
static TRUTH: LazyLock<(Workshop, PathBuf)> = LazyLock::new(|| {
    let workshop = Workshop::new();
    let truth = workshop.library("truth", REFERENCE, &["-DNS_REAL=double"]);
    (workshop, truth)
});

fn race(candidate: &Path, baseline: &Path) -> Result<StepOutput, StepFailure> {
    let options = MeasureOptions { max_wall_ms: 800, ..MeasureOptions::on_host(false) };
    race_at(&timed_task(), candidate, baseline, &options)
}

fn race_at(
    spec: &TaskSpec,
    candidate: &Path,
    baseline: &Path,
    options: &MeasureOptions,
) -> Result<StepOutput, StepFailure> {
    // Measurements keep to the same core: side by side they would measure each other.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    race_on(&host(SandboxChoice::Best), spec, candidate, baseline, options)
}

fn race_on(
    host: &Host,
    spec: &TaskSpec,
    candidate: &Path,
    baseline: &Path,
    options: &MeasureOptions,
) -> Result<StepOutput, StepFailure> {
    let cancel = CancelFlag::default();
    let memory = HostMemory::new(machine().last_level_cache_bytes);
    let context = ExecutionContext { host, cancel: &cancel, place: Place::Host(&memory) };
    let programs = Programs { candidate, baseline, truth: &TRUTH.1, baseline_label: "reference -O2" };
    measure(&context, spec, &programs, &machine(), true, options)
}

fn measured(output: StepOutput) -> (Measurement, Vec<Finding>) {
    match output {
        StepOutput::Measured { measurement, findings } => (*measurement, findings),
        other => panic!("not measured: {other:?}"),
    }
}

/// Returns the codes of the findings that accuse the program. Warnings say how the machine was meanwhile, and a test does not
/// know which other work it had.
fn violations(findings: &[Finding]) -> Vec<&str> {
    let accusing = findings.iter().filter(|finding| finding.severity == Severity::Violation);
    accusing.map(|finding| finding.code.as_str()).collect()
}

/// The work of the task, as often as asked; the compiler cannot leave any of it out.
fn repeated(times: u32) -> String {
    program(
        "",
        &format!("for (int t = 0; t < {times}; t++) {{ HONEST asm volatile(\"\" : : \"r\"(y) : \"memory\"); }}"),
    )
}

/// Measures anew until the speedup is as expected, a few times at most. Other work on the machine makes one measurement wrong; a
/// fault of the evaluator makes all of them wrong.
fn measured_as_expected(
    candidate: &Path,
    baseline: &Path,
    is_expected: impl Fn(&Measurement, &[Finding]) -> bool,
) -> Measurement {
    let mut unexpected = Vec::new();
    for _ in 0..5 {
        let (measurement, findings) = measured(race(candidate, baseline).unwrap());
        if is_expected(&measurement, &findings) {
            return measurement;
        }
        unexpected.push((measurement.speedup, findings));
    }
    panic!("no measurement came to what is expected: {unexpected:#?}");
}

#[test]
fn four_times_the_work_is_more_than_twice_as_slow() {
    let workshop = Workshop::new();
    let (fast, slow) = (workshop.library("fast", &repeated(20), &[]), workshop.library("slow", &repeated(80), &[]));
    let faster = measured_as_expected(&fast, &slow, |measurement, findings| {
        measurement.speedup.low > 2.0 && violations(findings).is_empty()
    });
    let slower = measured_as_expected(&slow, &fast, |measurement, _| measurement.speedup.high < 0.5);
    assert!(slower.speedup.low > 0.0, "{:?}", slower.speedup);

    assert!(faster.speedup.low <= faster.speedup.estimate && faster.speedup.estimate <= faster.speedup.high);
    assert_eq!(faster.baseline_samples_ns.len(), faster.candidate_samples_ns.len());
    assert!(faster.baseline_samples_ns.len() >= 3);
    assert!(faster.outside_to_inside_time >= 1.0);
    assert!(faster.achieved_flops_per_s.unwrap() > 1e6 && faster.achieved_bytes_per_s.is_none());
    assert_eq!(faster.baseline, "reference -O2");
    assert!(faster.sandbox.is_sufficient());
}

#[test]
fn a_program_that_counts_windows_does_not_know_which_are_searched() {
    let workshop = Workshop::new();
    // Calls are so long that each has a window of its own.
    let wait = "auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(600); \
                while (std::chrono::steady_clock::now() < end) {}";
    let slow = |name: &str, after: &str| {
        let source = program("#include <chrono>\nstatic int calls;", &format!("HONEST {wait} {after}"));
        workshop.library(name, &source, &[])
    };
    let baseline = slow("baseline", "");
    // Three first calls and four that tell how long one takes come before the timed ones.
    let candidate = slow("candidate", "if (++calls > 8 && calls % 4 != 0) x[3] = 0.0f;");
    let options = MeasureOptions { process_pairs: 1, most_process_pairs: 1, ..MeasureOptions::on_host(true) };
    let (_, findings) = measured(race_at(&timed_task(), &candidate, &baseline, &options).unwrap());
    assert!(violations(&findings).contains(&"input_modified"), "{findings:?}");
}

#[test]
fn a_program_against_itself_is_neither_faster_nor_slower() {
    let workshop = Workshop::new();
    let same = workshop.library("same", &repeated(20), &[]);
    measured_as_expected(&same, &same, |measurement, findings| {
        (0.75..1.35).contains(&measurement.speedup.estimate) && violations(findings).is_empty()
    });
}

#[test]
fn other_processes_stop_while_a_confirmation_is_timed() {
    let (workshop, folder) = (Workshop::new(), tempfile::tempdir().unwrap());
    let (same, host) = (workshop.library("same", &repeated(20), &[]), host(SandboxChoice::Best));
    let other = JailedCommand {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), "echo > running; while [ ! -e over ]; do sleep 0.01; done".into()],
        read_only: Vec::new(),
        scratch: folder.path().canonicalize().unwrap(),
        env: Vec::new(),
        limits: limits(),
    };
    let began = Instant::now();
    let (measurement, other) = std::thread::scope(|scope| {
        let runs = scope.spawn(|| run_jailed(&host.jail, &other, &CancelFlag::default()).unwrap());
        while !folder.path().join("running").exists() {
            assert!(!runs.is_finished() && began.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(1));
        }
        let (measurement, _) =
            measured(race_on(&host, &timed_task(), &same, &same, &MeasureOptions::on_host(true)).unwrap());
        std::fs::write(folder.path().join("over"), "").unwrap();
        (measurement, runs.join().unwrap())
    });
    assert_eq!(other.end, ProcessEnd::Finished);
    let stopped = began.elapsed().saturating_sub(Duration::from_millis(other.wall_ms));
    let timed_ns = measurement.baseline_samples_ns.iter().chain(&measurement.candidate_samples_ns).sum();
    assert!(stopped > Duration::from_nanos(timed_ns), "stopped for {stopped:?} of {timed_ns} ns");
}

#[test]
fn wrong_results_of_timed_calls_are_a_violation() {
    let workshop = Workshop::new();
    let baseline = workshop.library("baseline", REFERENCE, &[]);
    // Right for as long as it may believe that it is being checked.
    let lazy = workshop.library(
        "lazy",
        &program("static int calls;", "if (calls++ < 5) { HONEST } else { EVERY(y[i] = 0) }"),
        &[],
    );
    let (_, findings) = measured(race(&lazy, &baseline).unwrap());
    assert!(
        findings.iter().any(|finding| finding.code == "timed_output_wrong" && finding.severity == Severity::Violation),
        "{findings:?}"
    );
    let idle = workshop.library("idle", &program("", ""), &[]);
    let (_, findings) = measured(race(&idle, &baseline).unwrap());
    assert!(findings.iter().any(|finding| finding.code == "output_not_written"), "{findings:?}");
}

#[test]
fn a_program_that_turns_wrong_after_the_timed_calls_is_found() {
    let workshop = Workshop::new();
    let baseline = workshop.library("baseline", REFERENCE, &[]);
    // Windows of the small task have 64 calls: 21 pairs of them and some lone calls are timed.
    let late = workshop.library(
        "late",
        &program("static int calls;", "if (++calls < 1500) { HONEST } else { EVERY(y[i] = 0) }"),
        &[],
    );
    let options = MeasureOptions { process_pairs: 1, most_process_pairs: 1, ..MeasureOptions::on_host(true) };
    let options = MeasureOptions { min_windows: 16, max_windows: 16, ..options };
    let (measurement, findings) = measured(race_at(&task(), &late, &baseline, &options).unwrap());
    let verification = measurement.verification.unwrap();
    assert_eq!(verification.timed_calls, verification.verified_calls);
    assert!(verification.later_calls > 0, "{verification:?}");
    assert!(findings.iter().any(|finding| finding.code == "late_skipping"), "{findings:?}");
    let first = MeasureOptions { confirms: false, ..options };
    let (measurement, findings) = measured(race_at(&task(), &late, &baseline, &first).unwrap());
    let by_output = |finding: &Finding| ["late_skipping", "timed_output_wrong"].contains(&finding.code.as_str());
    assert!(!findings.iter().any(by_output) && measurement.verification.unwrap().later_calls == 0, "{findings:?}");
}

#[test]
fn a_program_that_leaves_out_what_scaled_inputs_need_is_found() {
    let workshop = Workshop::new();
    let baseline = workshop.library("baseline", REFERENCE, &[]);
    // Values have a normal distribution.
    let clips = "if (++calls < 3) { HONEST } else { EVERY(y[i] = (x[i] < 6.5f ? x[i] : 0) * w[c] + b[c]) }";
    let options = MeasureOptions { process_pairs: 1, most_process_pairs: 1, ..MeasureOptions::on_host(true) };
    for (name, body, is_wrong) in [("clips", clips, true), ("honest", "HONEST", false)] {
        let candidate = workshop.library(name, &program("static int calls;", body), &[]);
        let (_, findings) = measured(race_at(&task(), &candidate, &baseline, &options).unwrap());
        let of_scaled = |finding: &Finding| finding.message.contains("on inputs of another size or sign");
        assert_eq!(findings.iter().any(of_scaled), is_wrong, "{name}: {findings:?}");
    }
}

#[test]
fn results_that_get_rough_once_they_are_timed_are_a_violation() {
    let workshop = Workshop::new();
    let baseline = workshop.library("baseline", REFERENCE, &[]);
    let preamble = "#include <cstring>\nstatic int calls;\nstatic float cut(float v) { uint32_t u; memcpy(&u, &v, 4); \
                    u &= 0xFFFFFC00u; memcpy(&v, &u, 4); return v; }";
    // Within tolerance, so that no single element is wrong; a check would not let it pass.
    let body = "if (calls++ < 2) { HONEST } else { EVERY(y[i] = cut(x[i] * w[c] + b[c])) }";
    let rough = workshop.library("rough", &program(preamble, body), &[]);
    let (_, findings) = measured(race(&rough, &baseline).unwrap());
    let codes = violations(&findings);
    // The tolerance is small beside what was cut, so that a single element may be wrong besides.
    assert!(codes.contains(&"timed_output_imprecise"), "{findings:?}");
    assert!(codes.iter().all(|code| code.starts_with("timed_output_")), "{findings:?}");
}

/// A program that takes the conversation over: once its first call is done, a timer interrupts the runner's wait for
/// the next request, and the handler answers from then on. `WORK(times)` is the work of the task, `reply` sends what it
/// likes as the time of the calls, `request` waits for a request and gives its number.
const USURPER: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
static const float *x, *w, *b;
static float *y;
static int64_t rows, columns;
#define WORK(times) for (int t = 0; t < times; t++) { \
    for (int64_t r = 0; r < rows; r++) for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * w[c] + b[c]; \
    asm volatile("" : : "r"(y) : "memory"); }
static int channel() {
    for (int fd = 3; fd < 64; fd++) {
        int type = 0;
        socklen_t size = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET) return fd;
    }
    return -1;
}
static unsigned long long request(int flags) {
    char text[4096];
    ssize_t size = recv(channel(), text, sizeof text - 1, flags);
    if (size == 0) _Exit(0);
    if (size < 0) return 0;
    text[size] = 0;
    const char *digits = strpbrk(text, "0123456789");
    return digits ? strtoull(digits, nullptr, 10) : 0;
}
static void reply(unsigned long long nonce, long long events_ns) {
    char text[256];
    int size = snprintf(text, sizeof text, "{\"nonce\":%llu,\"status\":0,\"events_ns\":%lld}", nonce, events_ns);
    send(channel(), text, size, 0);
}
static void take_over(int);
static void arm() {
    signal(SIGALRM, take_over);
    // The wait for the next request begins some microseconds after the call; a signal that comes while the process is stopped is
    // delivered before that request.
    itimerval soon = {{0, 4000}, {0, 500}};
    setitimer(ITIMER_REAL, &soon, nullptr);
}
NS_EXPORT int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *) {
    x = (const float *)in[0].data, w = (const float *)in[1].data, b = (const float *)in[2].data, y = (float *)out[0].data;
    rows = in[0].shape[0], columns = in[0].shape[1];
    WORK(20)
    arm();
    return 0;
}
"#;

/// Races until a usurper is lucky enough to come between two calls.
const TAKE_OVERS: u32 = 8;

/// Races a usurper against the same work done honestly: it may not win, whatever else the machine does.
fn assert_no_gain(name: &str, handler: &str) {
    let mut gains = Vec::new();
    for _ in 0..3 {
        let (measurement, findings) = raced(name, handler);
        if measurement.speedup.low < 1.15 {
            return;
        }
        gains.push((measurement.speedup, findings));
    }
    panic!("{name} won each of several races: {gains:#?}");
}

/// What came of such a race.
fn raced(name: &str, handler: &str) -> (Measurement, Vec<Finding>) {
    let workshop = Workshop::new();
    let honest = workshop.library("honest", &repeated(20), &[]);
    let source = format!("#include \"nightshift.h\"\n{USURPER}\n{handler}");
    let usurper = workshop.library(name, &source, &[]);
    for _ in 0..TAKE_OVERS {
        match race(&usurper, &honest).unwrap() {
            // The signal arrived during a call, which then got no answer. The program gains nothing, but nothing is proved.
            StepOutput::MeasureFailed { end: ProcessEnd::TimedOut { .. }, .. } => {}
            other => return measured(other),
        }
    }
    panic!("{name}: no usurper came between two calls in {TAKE_OVERS} races");
}

#[test]
fn a_forged_time_is_not_believed() {
    assert_no_gain(
        "forger",
        "static void take_over(int) { for (;;) { auto n = request(0); WORK(20) reply(n, 1000); } }",
    );
}

#[test]
fn work_between_two_calls_counts() {
    // The inputs are in shared memory before the request arrives: a program that watches them can begin early.
    let early = r"
static void take_over(int) {
    for (;;) {
        WORK(20)
        if (auto n = request(MSG_DONTWAIT)) { WORK(1) reply(n, 50000); }
    }
}";
    assert_no_gain("early", early);
}

#[test]
fn no_time_is_stolen_from_the_baseline() {
    // Honest within its calls, it would keep the core busy between them; but it is stopped then.
    let thief = "static void take_over(int) { WORK(10) }";
    assert_no_gain("thief", thief);
}

#[test]
fn a_program_that_dies_while_it_is_timed_is_reported_as_that() {
    let workshop = Workshop::new();
    let baseline = workshop.library("baseline", REFERENCE, &[]);
    let dies = "if (calls++ == 4) { std::fputs(\"the fifth call\\n\", stderr); abort(); } HONEST";
    let mortal = program("#include <cstdio>\n#include <cstdlib>\nstatic int calls;", dies);
    let mortal = workshop.library("mortal", &mortal, &[]);
    match race(&mortal, &baseline).unwrap() {
        StepOutput::MeasureFailed { end: ProcessEnd::Crashed { signal, .. }, printed, .. } => {
            assert_eq!((signal, printed.trim()), (libc::SIGABRT, "the fifth call"));
        }
        other => panic!("{other:?}"),
    }
    let failure = race(&baseline, &mortal).unwrap_err();
    assert_eq!(failure.code, "reference.failed");
}

fn examine(reference: &str) -> Examined {
    examine_for(&task(), reference)
}

fn examine_for(task: &TaskSpec, reference: &str) -> Examined {
    let workshop = Workshop::new();
    let libraries = ReferenceLibraries {
        reference: workshop.library("reference", reference, &[]),
        truth: workshop.library("truth", reference, &["-DNS_REAL=double"]),
    };
    let (host, cancel) = (host(SandboxChoice::Best), CancelFlag::default());
    let memory = HostMemory::new(machine().last_level_cache_bytes);
    let context = ExecutionContext { host: &host, cancel: &cancel, place: Place::Host(&memory) };
    prepare(&context, task, &libraries, &mut SecretSeeds::fixed(3)).unwrap()
}

fn rejection(examined: Examined) -> String {
    match examined {
        Examined::Rejected { code, .. } => code,
        Examined::Usable(facts) => panic!("usable: {facts:?}"),
    }
}

/// A reference in the element type of the build.
fn reference(preamble: &str, body: &str) -> String {
    program(preamble, body).replace("float *", "ns_real *")
}

#[test]
fn a_good_reference_gives_its_facts() {
    match examine(REFERENCE) {
        Examined::Usable(facts) => {
            assert!(facts.baseline_median_ns > 100.0);
            assert!(facts.reference_normalized_error > 0.0 && facts.reference_normalized_error < 0.1, "{facts:?}");
            assert!(facts.warnings.is_empty(), "{facts:?}");
        }
        rejected @ Examined::Rejected { .. } => panic!("{rejected:?}"),
    }
}

#[test]
fn a_reference_that_changes_its_mind_is_rejected() {
    let code = rejection(examine(&reference("static int calls;", "calls++; HONEST y[0] += calls;")));
    assert_eq!(code, "task.reference_not_deterministic");
}

#[test]
fn a_reference_that_breaks_down_is_rejected_for_what_happened() {
    assert_eq!(rejection(examine(&reference("#include <cstdlib>", "abort();"))), "task.reference_crashes");
    assert_eq!(rejection(examine(&reference("", "return 3;"))), "task.reference_returns_error");
    let mut hasty = task();
    hasty.limits.call_timeout_ms = 400;
    let hangs = reference("", "for (volatile int i = 0;;) i = i;");
    assert_eq!(rejection(examine_for(&hasty, &hangs)), "task.reference_hangs");
    assert_eq!(rejection(examine("extern \"C\" int nothing() { return 0; }")), "task.reference_does_not_load");
}

#[test]
fn a_reference_that_breaks_down_is_rejected_with_its_last_words() {
    for body in [
        r#"fputs("begun\nno room\x1b[2J for it\n", stderr); return 3;"#,
        r#"if (sizeof(ns_real) == 8) { fputs("no room\x1b[2J for it\n", stderr); return 3; } HONEST"#,
    ] {
        let examined = examine(&reference("#include <cstdio>", body));
        let Examined::Rejected { message, printed, .. } = &examined else { panic!("{examined:?}") };
        assert!(message.contains("the error status 3: no room\u{fffd}[2J for it (all"), "{message}");
        assert!(printed.contains("no room\u{1b}[2J for it"), "{printed}");
    }
}

#[test]
fn a_reference_that_breaks_the_contract_is_rejected() {
    assert_eq!(rejection(examine(&reference("", "HONEST x[0] = 0;"))), "task.reference_breaks_contract");
    assert_eq!(rejection(examine(&reference("", "HONEST y[1] /= y[1] - y[1];"))), "task.reference_not_finite");
}

#[test]
fn a_reference_that_misses_its_tolerance_keeps_its_task_unless_it_is_meaningless() {
    let off_by = |error: &str| examine(&reference("", &format!("HONEST if (sizeof(ns_real) == 4) y[5] += {error};")));
    assert_eq!(rejection(off_by("1000")), "task.reference_meaningless");
    let Examined::Usable(facts) = off_by("0.001f") else { panic!("rejected") };
    assert!(facts.reference_normalized_error > 1.0, "{facts:?}");
}

#[test]
fn a_degenerate_task_is_usable_with_warnings() {
    let codes = |examined: Examined| match examined {
        Examined::Usable(facts) => facts.warnings.into_iter().map(|finding| finding.code).collect::<Vec<_>>(),
        rejected @ Examined::Rejected { .. } => panic!("{rejected:?}"),
    };
    let constant = codes(examine(&reference("", "EVERY(y[i] = 1)")));
    assert!(constant.contains(&"constant_output".to_owned()) && constant.contains(&"input_has_no_effect".to_owned()));
    let no_bias = codes(examine(&reference("", "EVERY(y[i] = x[i] * w[c])")));
    assert_eq!(no_bias, ["parameter_has_no_effect"]);
}

#[test]
fn a_missing_library_is_a_failure_of_the_step() {
    let missing = PathBuf::from("/no/such/library.so");
    let failure = race(&missing, &missing).unwrap_err();
    assert_eq!(failure.code, "process.os");
}
