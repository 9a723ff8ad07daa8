//! Programs that are right, wrong, broken and hostile, and what a check says about each.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/workshop.rs"]
#[expect(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
mod workshop;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::context::{ExecutionContext, Place};
use nightshift_evaluator::memory::HostMemory;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::{FailureClass, StepFailure};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::{ProcessEnd, Severity};
use nightshift_sandbox::process::{CancelFlag, SandboxChoice};
use workshop::{REFERENCE, ROADS, Workshop, host, program, task};

/// Reference and truth, built once.
static ORACLE: LazyLock<(Workshop, PathBuf, PathBuf)> = LazyLock::new(|| {
    let workshop = Workshop::new();
    let reference = workshop.library("reference", REFERENCE, &[]);
    let truth = workshop.library("truth", REFERENCE, &["-DNS_REAL=double"]);
    (workshop, reference, truth)
});

fn check_library(candidate: &Path, means: SandboxChoice, require: bool) -> Result<CheckReport, StepFailure> {
    check_library_of(&task(), candidate, means, require)
}

fn check_library_of(
    task: &TaskSpec,
    candidate: &Path,
    means: SandboxChoice,
    require: bool,
) -> Result<CheckReport, StepFailure> {
    let (_, reference, truth) = &*ORACLE;
    let libraries = Libraries { candidate: candidate.to_owned(), reference: reference.clone(), truth: truth.clone() };
    check_in(means, task, &libraries, require)
}

fn check_with(
    task: &TaskSpec,
    (candidate, reference, truth): (&Path, &Path, &Path),
) -> Result<CheckReport, StepFailure> {
    let [candidate, reference, truth] = [candidate, reference, truth].map(Path::to_owned);
    check_in(SandboxChoice::Best, task, &Libraries { candidate, reference, truth }, true)
}

fn check_in(
    means: SandboxChoice,
    task: &TaskSpec,
    libraries: &Libraries,
    require: bool,
) -> Result<CheckReport, StepFailure> {
    let (host, cancel, memory) = (host(means), CancelFlag::default(), HostMemory::new(None));
    let context = ExecutionContext { host: &host, cancel: &cancel, place: Place::Host(&memory) };
    check(&context, task, libraries, require, &mut SecretSeeds::from_os().unwrap())
}

fn check_source(source: &str) -> CheckReport {
    let workshop = Workshop::new();
    let library = workshop.library("candidate", source, &[]);
    check_library(&library, SandboxChoice::Best, true).unwrap()
}

fn check_body(preamble: &str, body: &str) -> CheckReport {
    check_source(&program(preamble, body))
}

fn codes(report: &CheckReport) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.code.as_str()).collect()
}

#[test]
fn a_right_program_passes_every_case_at_every_shape() {
    let report = check_body("", "HONEST");
    assert_eq!(report.end, ProcessEnd::Finished);
    assert!(report.cases.iter().all(|case| case.passed), "{:?}", report.cases);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.deterministic, Some(true));
    for shape in ["default", "odd"] {
        let names = "declared repeat same_pointers scaled_up scaled_down signs_flipped mostly_zero other_addresses";
        for inputs in names.split(' ') {
            assert!(
                report.cases.iter().any(|case| case.shape == shape && case.inputs == inputs),
                "{inputs} at {shape} is missing"
            );
        }
    }
    // One of the weights is scaled before the first call, and the other one is changed later.
    for ways in [&["scaled:w", "changed:w"][..], &["scaled:b", "changed:b"], &["changed:x"]] {
        assert!(report.cases.iter().any(|case| ways.contains(&case.inputs.as_str())), "{ways:?} are missing");
    }
    // What was compared with the truth.
    let judged = report.cases.iter().filter(|case| !case.inputs.contains(':') && case.inputs != "other_addresses");
    let elements: u64 = judged.map(|case| case.elements).sum();
    assert_eq!(report.error_histogram.iter().sum::<u64>(), elements);
}

#[test]
fn weights_that_were_prepared_once_are_used_and_freed() {
    let preamble = r"
#include <cstdlib>
#include <cstring>
static int live = 0;
int ns_init(const ns_tensor *params, int32_t, void **state) {
    if (live != 0) return 5;
    live = 1;
    int64_t columns = params[0].shape[0];
    float *packed = (float *)malloc(2 * columns * sizeof(float));
    memcpy(packed, params[0].data, columns * sizeof(float));
    memcpy(packed + columns, params[1].data, columns * sizeof(float));
    *state = packed;
    return 0;
}
void ns_free(void *state) { live = 0; free(state); }
";
    let report = check_body(preamble, "float *p = (float *)state; EVERY(y[i] = x[i] * p[c] + p[columns + c])");
    assert_eq!(report.end, ProcessEnd::Finished);
    assert!(report.cases.iter().all(|case| case.passed) && report.findings.is_empty(), "{report:?}");
}

#[test]
fn wrong_values_are_found_with_their_place() {
    let report = check_body("", "HONEST y[columns + 2] += 1.0f;");
    assert_eq!(report.end, ProcessEnd::Finished);
    let case = report.cases.first().unwrap();
    assert!(!case.passed);
    assert_eq!(case.wrong_elements, 1);
    assert_eq!(case.worst.as_ref().unwrap().index, [1, 2]);
    assert_eq!(case.worst.as_ref().unwrap().tensor, "y");
    // The smallest shape told enough.
    assert!(report.cases.len() <= 3 && report.cases.iter().all(|case| case.shape == "odd"));
}

#[test]
fn a_program_that_is_only_right_for_one_shape_is_found_out() {
    let report = check_body("", "if (columns == 13) { HONEST } else { EVERY(y[i] = 0) }");
    assert!(report.cases.iter().any(|case| case.shape == "odd" && case.passed));
    assert!(report.cases.iter().any(|case| case.shape == "default" && !case.passed));
}

#[test]
fn values_that_are_not_finite_are_wrong() {
    let report = check_body("", "HONEST y[0] = 0.0f / (x[0] - x[0]);");
    let case = report.cases.first().unwrap();
    assert!(!case.passed);
    assert_eq!(case.worst.as_ref().unwrap().candidate, None);
}

#[test]
fn a_write_beside_a_buffer_is_found() {
    let report = check_body("", "HONEST y[rows * columns] = 1.0f;");
    assert!(codes(&report).contains(&"canary_overwritten"), "{report:?}");
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Violation));
}

#[test]
fn changed_inputs_and_weights_are_found() {
    let report = check_body("", "HONEST x[3] = 0.0f; w[0] += 1.0f;");
    let messages: String = report.findings.iter().map(|finding| finding.message.clone()).collect();
    assert!(codes(&report).iter().all(|code| *code == "input_modified"), "{report:?}");
    assert!(messages.contains("`x`") && messages.contains("`w`"), "{messages}");
}

#[test]
fn an_output_that_is_not_written_throughout_is_found() {
    let report = check_body("", "EVERY(if (i != 4) y[i] = x[i] * w[c] + b[c])");
    assert!(codes(&report).contains(&"output_not_written"), "{report:?}");
    assert!(report.cases.iter().any(|case| !case.passed));
}

#[test]
fn results_that_are_kept_by_address_are_found() {
    let preamble = "#include <map>\n#include <vector>\nstatic std::map<void *, std::vector<float>> known;";
    let body = "auto &kept = known[x]; if (kept.empty()) { HONEST kept.assign(y, y + rows * columns); } \
                for (size_t i = 0; i < kept.size(); i++) y[i] = kept[i];";
    let report = check_body(preamble, body);
    assert!(codes(&report).contains(&"stale_output"), "{report:?}");
    assert!(report.cases.iter().any(|case| case.inputs == "same_pointers" && !case.passed));
}

#[test]
fn a_program_that_looks_at_samples_of_its_input_is_found() {
    let preamble = "static float seen[64], kept[64 * 128], first; static int calls;";
    // Rows whose first element is the one of the call before get their old results.
    let body = "if (first != w[0] + b[0]) calls = 0; first = w[0] + b[0]; \
                for (int64_t r = 0; r < rows; r++) { \
                  if (calls == 0 || seen[r] != x[r * columns]) \
                    for (int64_t k = 0; k < columns; k++) kept[r * columns + k] = x[r * columns + k] * w[k] + b[k]; \
                  seen[r] = x[r * columns]; \
                  for (int64_t k = 0; k < columns; k++) y[r * columns + k] = kept[r * columns + k]; } \
                calls++;";
    let report = check_body(preamble, body);
    assert!(report.cases.iter().any(|case| case.inputs == "changed:x" && !case.passed), "{:?}", report.cases);
}

#[test]
fn tensors_are_changed_at_the_first_shape_at_which_that_matters() {
    let workshop = Workshop::new();
    // Of one column, all results are zero.
    let source = REFERENCE.replace("x[r * columns + c] * w[c] + b[c]", "x[r * columns + c] - x[r * columns]");
    let reference = workshop.library("reference", &source, &[]);
    let truth = workshop.library("truth", &source, &["-DNS_REAL=double"]);
    let mut spec = task();
    spec.variants[0].dims.insert("columns".to_owned(), 1);
    // Rows whose last element is that of the call before get their old results.
    let remembers = "static float kept[64 * 128];";
    let body = "for (int64_t r = 0; r < rows; r++) { int64_t last = (r + 1) * columns - 1; \
                  if (kept[last] != x[last] - x[r * columns]) \
                    for (int64_t i = r * columns; i <= last; i++) kept[i] = x[i] - x[r * columns]; } \
                EVERY(y[i] = kept[i])";
    for (name, preamble, body, is_right) in
        [("honest", "", "EVERY(y[i] = x[i] - x[r * columns])", true), ("remembers", remembers, body, false)]
    {
        let candidate = workshop.library(name, &program(preamble, body), &[]);
        let report = check_with(&spec, (&candidate, &reference, &truth)).unwrap();
        let changed = report.cases.iter().filter(|case| case.inputs == "changed:x");
        let failed = changed.clone().any(|case| !case.passed);
        assert!(changed.clone().all(|case| case.shape == "default") && changed.count() > 0, "{:?}", report.cases);
        assert_eq!(failed, !is_right, "{name}: {:?}", report.cases);
    }
}

#[test]
fn a_reference_with_varying_results_is_a_fault_of_the_task() {
    let workshop = Workshop::new();
    let source = REFERENCE.replace("return 0;", "static int calls; y[3] += calls++; return 0;");
    let reference = workshop.library("reference", &source, &[]);
    let truth = workshop.library("truth", &source, &["-DNS_REAL=double"]);
    let candidate = workshop.library("candidate", &program("", "HONEST"), &[]);
    let failure = check_with(&task(), (&candidate, &reference, &truth)).unwrap_err();
    assert_eq!(failure.code, "task.reference_not_deterministic", "{failure}");
}

#[test]
fn a_program_that_takes_a_sample_of_zeros_for_a_row_of_zeros_is_found() {
    let body = "for (int64_t r = 0; r < rows; r++) { \
                  bool zero = x[r * columns] == 0 && x[r * columns + columns / 2] == 0; \
                  for (int64_t k = 0; k < columns; k++) y[r * columns + k] = zero ? b[k] : x[r * columns + k] * w[k] + b[k]; }";
    let report = check_body("", body);
    assert!(report.cases.iter().any(|case| case.inputs == "mostly_zero" && !case.passed), "{:?}", report.cases);
    assert!(report.cases.iter().all(|case| case.inputs == "mostly_zero" || case.passed), "{:?}", report.cases);
}

#[test]
fn a_program_that_computes_only_what_looks_unwritten_is_found() {
    // The pattern is the same in the whole output, and no result is.
    let body = "bool pattern = ((uint32_t *)y)[1] == ((uint32_t *)y)[5] && ((uint32_t *)y)[5] == ((uint32_t *)y)[9]; \
                if (pattern) { HONEST }";
    let report = check_body("", body);
    assert!(report.cases.iter().any(|case| case.inputs == "same_pointers" && !case.passed), "{:?}", report.cases);
    assert!(codes(&report).contains(&"stale_output"), "{report:?}");
}

#[test]
fn a_constant_result_is_wrong_and_nothing_worse() {
    let report = check_body("", "EVERY(y[i] = 0)");
    assert!(report.cases.iter().any(|case| !case.passed));
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn weights_that_are_kept_from_before_are_found() {
    let preamble = "#include <vector>\nstatic std::vector<float> kept, added;";
    // Both weights: with one of them, the outputs follow the other, and nothing tells why they are wrong.
    let body = "if (kept.empty()) { kept.assign(w, w + columns); added.assign(b, b + columns); } \
                EVERY(y[i] = x[i] * kept[c] + added[c])";
    let report = check_body(preamble, body);
    // Which code depends on which weight was scaled first.
    let told = codes(&report);
    assert!(told.contains(&"stale_weights") || told.contains(&"ignores_parameter"), "{report:?}");
    assert!(report.cases.iter().any(|case| !case.passed));
}

#[test]
fn weights_that_are_never_looked_at_make_wrong_results() {
    let report = check_body("", "EVERY(y[i] = x[i] + b[c])");
    assert!(report.cases.iter().any(|case| !case.passed));
}

#[test]
fn lost_precision_within_tolerance_is_told_and_does_not_pass() {
    let preamble = "#include <cstring>\nstatic float cut(float v) { uint32_t u; memcpy(&u, &v, 4); u &= 0xFFFFFC00u; \
                    memcpy(&v, &u, 4); return v; }";
    let report = check_body(preamble, "EVERY(y[i] = cut(x[i] * w[c] + b[c]))");
    let first = report.cases.iter().find(|case| !case.inputs.contains(':')).unwrap();
    assert_eq!(first.wrong_elements, 0, "{first:?}");
    assert!(!first.passed, "{first:?}");
    assert!(codes(&report).contains(&"less_precise_than_reference"), "{report:?}");
}

#[test]
fn different_bits_for_equal_inputs_are_told() {
    let report = check_body("static int calls = 0;", "calls++; HONEST y[0] += 1e-6f * (calls % 2);");
    assert_eq!(report.deterministic, Some(false));
    assert!(codes(&report).contains(&"not_deterministic"));
}

#[test]
fn crashes_are_reported_as_what_they_are() {
    let crash = |body: &str| check_body("#include <cstdlib>\n#include <stdexcept>", body).end;
    let signal = |signal: i32, name: &str| ProcessEnd::Crashed { signal, signal_name: name.to_owned() };
    assert_eq!(crash("*(volatile int *)8 = 1;"), signal(libc::SIGSEGV, "SIGSEGV"));
    assert_eq!(crash("abort();"), signal(libc::SIGABRT, "SIGABRT"));
    assert_eq!(crash("throw std::runtime_error(\"no\");"), signal(libc::SIGABRT, "SIGABRT"));
    let thrown = check_body("#include <stdexcept>", "throw std::runtime_error(\"no such row\");");
    assert!(thrown.printed.contains("no such row"), "{thrown:?}");
    assert_eq!(crash("exit(0);"), ProcessEnd::Exited { status: 0 });
    assert_eq!(crash("return 7;"), ProcessEnd::CallFailed { entry_point: "ns_run".to_owned(), status: 7 });
}

#[test]
fn what_a_program_prints_is_kept_but_never_believed() {
    let report = check_body("#include <cstdio>", "printf(\"speedup: 100\\n\"); fflush(stdout); HONEST");
    assert!(report.printed.contains("speedup: 100"));
    assert!(report.cases.iter().all(|case| case.passed));
}

#[test]
fn a_call_that_hangs_is_ended() {
    let limit_ms = 2_000;
    let mut hasty = task();
    hasty.limits.call_timeout_ms = limit_ms;
    let end = |preamble: &str, body: &str| {
        let workshop = Workshop::new();
        let library = workshop.library("candidate", &program(preamble, body), &[]);
        check_library_of(&hasty, &library, SandboxChoice::Best, true).unwrap().end
    };
    assert_eq!(end("", "for (volatile int i = 0;;) i = i;"), ProcessEnd::TimedOut { limit_ms });
    // Loading a program may take longer than a call.
    let stays = "__attribute__((constructor)) static void stay() { for (volatile int i = 0;;) i = i; }";
    assert_eq!(end(stays, "HONEST"), ProcessEnd::TimedOut { limit_ms: limit_ms + 2_000 });
}

#[test]
fn memory_is_limited_whether_it_is_eaten_slowly_or_at_once() {
    // On a busy machine, eating takes its time: what ends it is to be the limit of memory, not the one of time.
    let mut patient = task();
    patient.limits.call_timeout_ms = 30_000;
    let eaten = |body: &str| {
        let workshop = Workshop::new();
        let source = program("#include <cstdlib>\n#include <cstring>\n#include <vector>", body);
        let library = workshop.library("candidate", &source, &[]);
        check_library_of(&patient, &library, SandboxChoice::Best, true).unwrap().end
    };
    let slowly = eaten("for (;;) { char *p = (char *)malloc(1 << 20); memset(p, 1, 1 << 20); }");
    assert!(matches!(slowly, ProcessEnd::MemoryExceeded { limit_bytes: 67_108_864, .. }), "{slowly:?}");
    let at_once = eaten("std::vector<char> all(64ull << 30); y[0] = all[columns];");
    assert!(matches!(at_once, ProcessEnd::MemoryExceeded { .. }), "{at_once:?}");
}

#[test]
fn a_flood_of_output_ends_the_program() {
    let end = check_body("#include <cstdio>", "for (;;) puts(\"more\");").end;
    assert!(matches!(end, ProcessEnd::OutputExceeded { .. }), "{end:?}");
}

#[test]
fn a_reference_that_cannot_be_loaded_is_a_fault_of_the_task() {
    let (workshop, _, truth) = &*ORACLE;
    let nothing = workshop.library("nothing", "extern \"C\" int something_else() { return 0; }", &[]);
    let libraries = Libraries { candidate: nothing.clone(), reference: nothing, truth: truth.clone() };
    let mut seeds = SecretSeeds::from_os().unwrap();
    let (host, cancel, memory) = (host(SandboxChoice::Best), CancelFlag::default(), HostMemory::new(None));
    let context = ExecutionContext { host: &host, cancel: &cancel, place: Place::Host(&memory) };
    let checked = check(&context, &task(), &libraries, true, &mut seeds);
    let failure = checked.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.class), ("reference.failed", FailureClass::Retriable), "{failure}");
}

#[test]
fn a_library_without_the_entry_point_is_not_loaded() {
    let report = check_source("extern \"C\" int something_else() { return 0; }");
    assert!(matches!(&report.end, ProcessEnd::LoadFailed { message } if message.contains("ns_run")), "{report:?}");
}

#[test]
fn a_forged_answer_breaks_the_protocol() {
    let preamble = "#include <unistd.h>\n#include <cstring>";
    let body = r#"
    const char *forged = "{\"nonce\":1,\"status\":0,\"elapsed_ns\":1,\"load_error\":null}";
    for (int fd = 3; fd < 64; fd++) { ssize_t n = write(fd, forged, strlen(forged)); (void)n; }
    HONEST
"#;
    let report = check_body(preamble, body);
    assert!(matches!(report.end, ProcessEnd::ProtocolBroken { .. }), "{:?}", report.end);
}

#[test]
fn a_closed_socket_is_noticed() {
    let report = check_body("#include <unistd.h>", "for (int fd = 3; fd < 64; fd++) close(fd); HONEST");
    assert_eq!(report.end, ProcessEnd::Exited { status: 0 });
}

/// Tries everything that is forbidden, and returns the number of the first thing that it could do.
const BURGLAR: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
static void *nothing(void *) { return nullptr; }
static int burgle() {
    pthread_t thread;
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0) return 1;
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0) return 2;
    if (open("/etc/passwd", O_RDONLY) >= 0) return 3;
    if (open(SECRET, O_RDONLY) >= 0) return 4;
    if (open(OUTSIDE, O_WRONLY | O_CREAT, 0600) >= 0) return 5;
    if (open("/tmp/nightshift-burglar", O_WRONLY | O_CREAT, 0600) >= 0) return 6;
    if (open("/dev/shm/nightshift-burglar", O_WRONLY | O_CREAT, 0600) >= 0) return 7;
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) return 8;
    if (pthread_create(&thread, nullptr, nothing, nullptr) == 0) return 9;
    if (kill(getppid(), SIGKILL) == 0) return 10;
    if (kill(-1, SIGTERM) == 0) return 11;
    if (ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0) return 12;
    if (syscall(SYS_memfd_create, "x", 0) >= 0) return 13;
    if (open("/proc/self/environ", O_RDONLY) >= 0) return 14;
    if (prctl(PR_SET_PDEATHSIG, 0) == 0) return 15;
    if (setsid() > 0) return 16;
    char *const args[] = {(char *)"/bin/true", nullptr};
    if (access("/bin/true", X_OK) == 0 && execv("/bin/true", args) == 0) return 17;
    if (open("/", O_RDONLY | O_DIRECTORY) >= 0 && open("/home", O_RDONLY) >= 0) return 18;
    if (open(LIBRARY, O_WRONLY) >= 0) return 19;
    return 0;
}
"#;

#[test]
fn a_burglar_gets_nowhere_on_any_road() {
    let workshop = Workshop::new();
    let secret = workshop.path().join("secret");
    std::fs::write(&secret, "hidden").unwrap();
    let define = |name: &str, path: &Path| format!("-D{name}=\"{}\"", path.display());
    let defines = [
        define("SECRET", &secret),
        define("OUTSIDE", &workshop.path().join("outside")),
        define("LIBRARY", &workshop.path().join("burglar.so")),
    ];
    let flags: Vec<&str> = defines.iter().map(String::as_str).collect();
    let source = program(BURGLAR, "if (int found = burgle()) return found; HONEST");
    let library = workshop.library("burglar", &source, &flags);
    for means in ROADS {
        let report = check_library(&library, means, true).unwrap();
        assert_eq!(report.end, ProcessEnd::Finished, "{means:?}: {}", report.printed);
        assert!(report.cases.iter().all(|case| case.passed), "{means:?}");
    }
    assert!(!workshop.path().join("outside").exists());
    // Without isolation it succeeds at the first try: the attempts are real.
    let report = check_library(&library, SandboxChoice::None, false).unwrap();
    assert_eq!(report.end, ProcessEnd::CallFailed { entry_point: "ns_run".to_owned(), status: 1 });
}

#[test]
fn code_of_an_unknown_author_is_not_even_loaded_without_isolation() {
    let (workshop, outside) = (Workshop::new(), tempfile::tempdir().unwrap());
    let trace = outside.path().join("trace");
    let preamble = format!(
        "#include <cstdio>\n__attribute__((constructor)) static void leave() {{ if (FILE *f = fopen(\"{}\", \"w\")) fclose(f); }}",
        trace.display()
    );
    let library = workshop.library("constructor", &program(&preamble, "HONEST"), &[]);
    let failure = check_library(&library, SandboxChoice::None, true).unwrap_err();
    assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Fatal, "sandbox.insufficient"));
    assert!(failure.message.contains("--allow-unsandboxed") && failure.message.contains("landlock"), "{failure}");
    assert!(!trace.exists(), "the library was loaded");
    // With isolation it is loaded, and its constructor is as restricted as the rest of it.
    let report = check_library(&library, SandboxChoice::Best, true).unwrap();
    assert!(report.cases.iter().all(|case| case.passed));
    assert!(!trace.exists(), "the constructor wrote outside");
    // The owner of the machine may allow it.
    check_library(&library, SandboxChoice::None, false).unwrap();
    assert!(trace.exists());
}

#[test]
fn a_cancelled_check_ends_as_cancelled() {
    let (_, reference, truth) = &*ORACLE;
    let libraries = Libraries { candidate: reference.clone(), reference: reference.clone(), truth: truth.clone() };
    let cancel = CancelFlag::default();
    cancel.cancel();
    let mut seeds = SecretSeeds::fixed(1);
    let (host, memory) = (host(SandboxChoice::Best), HostMemory::new(None));
    let context = ExecutionContext { host: &host, cancel: &cancel, place: Place::Host(&memory) };
    let failure = check(&context, &task(), &libraries, true, &mut seeds).unwrap_err();
    assert_eq!(failure.code, "step.cancelled");
}
