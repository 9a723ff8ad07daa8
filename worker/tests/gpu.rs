//! Programs on a GPU: right and wrong ones, fast and slow ones, and those that attack the machine, the clock or their
//! contract. Each test needs a GPU with its driver and nvcc; without them all are reported as skipped, with the reason.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/cuda.rs"]
#[expect(unreachable_pub, clippy::print_stdout, reason = "each test file uses a part of it; it says what it skips")]
mod cuda;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::context::{DevicePlace, ExecutionContext, Place};
use nightshift_evaluator::lock::DeviceLock;
use nightshift_evaluator::measure::{MeasureOptions, Programs, measure};
use nightshift_evaluator::prepare::{Examined, ReferenceLibraries, prepare};
use nightshift_evaluator::program::ProcessPool;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity};
use nightshift_sandbox::process::{CancelFlag, SandboxChoice};
use nightshift_toolchain::Host;

use crate::cuda::{Gpu, REFERENCE, Workshop, gpu, host, machine, program, run_all, task};

fn main() -> ExitCode {
    run_all([
        (
            "an_honest_program_passes_at_every_shape_in_the_sandbox",
            an_honest_program_passes_at_every_shape_in_the_sandbox,
        ),
        ("every_road_of_isolation_leads_to_the_device", every_road_of_isolation_leads_to_the_device),
        (
            "what_a_program_does_to_its_context_is_reported_by_the_drivers_name",
            what_a_program_does_to_its_context_is_reported_by_the_drivers_name,
        ),
        (
            "a_driver_that_cannot_export_memory_lends_it_by_handles",
            a_driver_that_cannot_export_memory_lends_it_by_handles,
        ),
        ("a_kernel_that_never_ends_is_ended_with_its_process", a_kernel_that_never_ends_is_ended_with_its_process),
        ("the_machine_is_out_of_reach", the_machine_is_out_of_reach),
        (
            "a_program_starts_no_threads_from_wherever_it_is_called",
            a_program_starts_no_threads_from_wherever_it_is_called,
        ),
        ("the_rules_of_the_contract_are_watched_on_the_device", the_rules_of_the_contract_are_watched_on_the_device),
        (
            "results_that_are_kept_for_the_same_pointers_are_found",
            results_that_are_kept_for_the_same_pointers_are_found,
        ),
        (
            "a_program_against_itself_is_neither_faster_nor_slower",
            a_program_against_itself_is_neither_faster_nor_slower,
        ),
        ("a_program_that_is_a_little_slower_is_found_slower", a_program_that_is_a_little_slower_is_found_slower),
        ("work_on_other_streams_is_counted", work_on_other_streams_is_counted),
        ("work_that_is_left_for_the_next_call_is_missed", work_that_is_left_for_the_next_call_is_missed),
        ("events_that_lie_gain_nothing", events_that_lie_gain_nothing),
        (
            "a_program_that_stops_working_once_it_is_timed_is_found",
            a_program_that_stops_working_once_it_is_timed_is_found,
        ),
        ("a_program_that_dies_while_it_is_timed_is_reported", a_program_that_dies_while_it_is_timed_is_reported),
        ("a_reference_is_examined_on_the_device", a_reference_is_examined_on_the_device),
    ])
}

/// What every test works with.
struct Bench {
    gpu: &'static Gpu,
    by_handles: bool,
    workshop: Workshop,
    reference: PathBuf,
    truth: PathBuf,
    host: Host,
    cancel: CancelFlag,
    /// Programs that are timed would time each other.
    _alone: MutexGuard<'static, ()>,
}

/// The reference, built once.
static BUILT: LazyLock<Option<(Workshop, PathBuf, PathBuf)>> = LazyLock::new(|| {
    let workshop = Workshop::new(gpu("the reference")?);
    let reference = workshop.library("reference", REFERENCE, &[]);
    let truth = workshop.library("truth", REFERENCE, &["-DNS_REAL=double"]);
    Some((workshop, reference, truth))
});

/// Capacity of the pool of processes.
const CAPACITY: usize = 12;

/// Processes that one test leaves for the next, as a worker's steps do.
static SHARED: LazyLock<(Arc<DeviceLock>, ProcessPool)> = LazyLock::new(|| {
    let lock: Arc<DeviceLock> = Arc::default();
    (Arc::clone(&lock), ProcessPool::new(host(SandboxChoice::Best), lock, CAPACITY, None))
});

fn bench(test: &str) -> Option<Bench> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let gpu = gpu(test)?;
    let (_, reference, truth) = BUILT.as_ref()?;
    Some(Bench {
        gpu,
        by_handles: false,
        workshop: Workshop::new(gpu),
        reference: reference.clone(),
        truth: truth.clone(),
        host: host(SandboxChoice::Best),
        cancel: CancelFlag::default(),
        _alone: alone,
    })
}

impl Bench {
    /// Evaluates something on the device.
    fn evaluate<T>(&self, work: impl FnOnce(&ExecutionContext<'_>) -> T) -> T {
        let (lock, pool) = &*SHARED;
        let place = DevicePlace {
            gpu: Arc::clone(if self.by_handles { &self.gpu.by_handles } else { &self.gpu.context }),
            access: self.gpu.access.clone(),
            libraries: Vec::new(),
            lock: Some(lock),
            // The processes of the pool are isolated as every worker's are.
            pool: Some(pool).filter(|_| self.host.jail.means == SandboxChoice::Best),
            cores: None,
            monitor: None,
        };
        work(&ExecutionContext { host: &self.host, cancel: &self.cancel, place: Place::Device(&place) })
    }

    fn check(&self, preamble: &str, body: &str) -> CheckReport {
        let candidate = self.workshop.library("candidate", &program(preamble, body), &[]);
        self.check_library(candidate)
    }

    fn check_library(&self, candidate: PathBuf) -> CheckReport {
        let libraries = Libraries { candidate, reference: self.reference.clone(), truth: self.truth.clone() };
        let mut seeds = SecretSeeds::from_os().unwrap();
        self.evaluate(|context| check(context, &task(64, 96), &libraries, true, &mut seeds)).unwrap()
    }

    fn end(&self, preamble: &str, body: &str) -> ProcessEnd {
        self.check(preamble, body).end
    }

    fn race(&self, preamble: &str, body: &str) -> (Measurement, Vec<Finding>) {
        let candidate = self.workshop.library("candidate", &program(preamble, body), &[]);
        self.race_of(&candidate, 1024)
    }

    fn race_of(&self, candidate: &std::path::Path, rows: u64) -> (Measurement, Vec<Finding>) {
        match self.try_race(candidate, rows) {
            StepOutput::Measured { measurement, findings } => (*measurement, findings),
            other => panic!("not measured: {other:?}"),
        }
    }

    fn try_race(&self, candidate: &std::path::Path, rows: u64) -> StepOutput {
        let programs =
            Programs { candidate, baseline: &self.reference, truth: &self.truth, baseline_label: "the reference" };
        let (spec, options) = (task(rows, 1024), MeasureOptions::confirmation());
        let machine = MachineFacts { gpus: vec![self.gpu.facts.clone()], ..machine() };
        self.evaluate(|context| measure(context, &spec, &programs, &machine, true, &options)).unwrap()
    }
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// Work that takes a known number of cycles and depends on nothing.
const BUSY: &str = "__global__ void busy(long long cycles, float *y) { long long start = clock64(); \
                    while (clock64() - start < cycles) {} if (cycles < 0) y[0] = 0; }";

fn an_honest_program_passes_at_every_shape_in_the_sandbox() {
    let Some(bench) = bench("an_honest_program_passes_at_every_shape_in_the_sandbox") else { return };
    let report = bench.check("", "HONEST;");
    assert_eq!(report.end, ProcessEnd::Finished, "{}", report.printed);
    assert!(report.cases.iter().all(|case| case.passed), "{:?}", report.cases);
    assert!(
        report.cases.iter().any(|case| case.shape == "odd") && report.cases.iter().any(|case| case.shape == "default")
    );
    assert_eq!(report.deterministic, Some(true));
    assert_eq!(codes(&report.findings), [""; 0]);
    assert!(report.cost.iter().any(|part| part.name == "calls"), "{:?}", report.cost);
}

fn every_road_of_isolation_leads_to_the_device() {
    let Some(mut bench) = bench("every_road_of_isolation_leads_to_the_device") else { return };
    for means in [SandboxChoice::Best, SandboxChoice::Landlock, SandboxChoice::Namespaces] {
        bench.host = host(means);
        let report = bench.check("", "HONEST;");
        assert_eq!(report.end, ProcessEnd::Finished, "{means:?}: {}", report.printed);
    }
}

fn a_driver_that_cannot_export_memory_lends_it_by_handles() {
    let Some(mut bench) = bench("a_driver_that_cannot_export_memory_lends_it_by_handles") else { return };
    bench.by_handles = true;
    for _ in 0..2 {
        let report = bench.check("", "HONEST;");
        assert_eq!(report.end, ProcessEnd::Finished, "{}", report.printed);
        assert!(report.cases.iter().all(|case| case.passed), "{:?}", report.cases);
    }
    let (measurement, findings) = bench.race("", "HONEST;");
    assert!(codes(&findings).is_empty(), "{findings:?}");
    assert!(measurement.verification.is_some_and(|verification| verification.verified_calls >= 16));
    assert!(bench.check("", "HONEST; cudaMemsetAsync(y, 0, 4, stream);").cases.iter().any(|case| !case.passed));
}

fn what_a_program_does_to_its_context_is_reported_by_the_drivers_name() {
    let Some(bench) = bench("what_a_program_does_to_its_context_is_reported_by_the_drivers_name") else { return };
    let fault = |body: &str| match bench.end("#include <cassert>", body) {
        ProcessEnd::DeviceFault { error, .. } => error,
        other => panic!("{body}: {other:?}"),
    };
    assert_eq!(fault("honest<<<1, 32, 0, stream>>>((float *)16, w, b, y, n, columns);"), "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(
        fault("honest<<<1, 32, 0, stream>>>((float *)((char *)x + 1), w, b, y, n, columns);"),
        "CUDA_ERROR_MISALIGNED_ADDRESS"
    );
    assert_eq!(
        fault("void *p = nullptr; int e = cudaMalloc(&p, 1ull << 44); if (e) return e;"),
        "CUDA_ERROR_OUT_OF_MEMORY"
    );
}

fn a_kernel_that_never_ends_is_ended_with_its_process() {
    let Some(bench) = bench("a_kernel_that_never_ends_is_ended_with_its_process") else { return };
    let spin =
        "__global__ void spin(volatile float *y) { while (y[0] != 12345.f) asm volatile(\"nanosleep.u32 100;\"); }";
    assert_eq!(bench.end(spin, "spin<<<1, 1, 0, stream>>>(y);"), ProcessEnd::TimedOut { limit_ms: 2_000 });
    // The device works on as before.
    assert_eq!(bench.end("", "HONEST;"), ProcessEnd::Finished);
}

fn the_machine_is_out_of_reach() {
    let Some(bench) = bench("the_machine_is_out_of_reach") else { return };
    let search = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <cstring>
extern char **environ;
static int reach() {
    if (fork() >= 0) return 1;
    if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_INET6, SOCK_DGRAM, 0) >= 0) return 2;
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0) return 3;
    for (const char *path : {"/tmp/left", "/dev/shm/left", "/var/tmp/left", "/left", "/root/left", "left"})
        if (open(path, O_CREAT | O_RDWR, 0600) >= 0) return 4;
    for (const char *path : {"/etc/passwd", "/root/.bashrc", "/proc/1/environ", "/proc/1/mem"})
        if (open(path, O_RDONLY) >= 0) return 5;
    for (char **entry = environ; *entry; entry++)
        if (strncmp(*entry, "CUDA_", 5) != 0 && strncmp(*entry, "LD_LIBRARY_PATH=", 16) != 0) return 6;
    itimerval soon = {{0, 0}, {0, 1000}};
    if (setitimer(ITIMER_REAL, &soon, nullptr) == 0) return 7;
    char *argv[] = {nullptr};
    if (execve("/bin/true", argv, argv) >= 0) return 8;
    return 0;
}
"#;
    let report = bench.check(search, "if (int found = reach()) return found; HONEST;");
    assert_eq!(report.end, ProcessEnd::Finished, "{}", report.printed);
    assert!(report.cases.iter().all(|case| case.passed));
}

fn a_program_starts_no_threads_from_wherever_it_is_called() {
    let Some(bench) = bench("a_program_starts_no_threads_from_wherever_it_is_called") else { return };
    let attempt = "#include <pthread.h>\nstatic void *nothing(void *) { return nullptr; }\n\
                   static int started() { pthread_t t; return pthread_create(&t, nullptr, nothing, nullptr) == 0; }\n\
                   static int from_callback; static void callback(void *) { from_callback = started(); }";
    let body = "if (started()) return 90; HONEST; cudaLaunchHostFunc(stream, callback, nullptr); \
                int e = cudaStreamSynchronize(stream); if (e) return e; if (from_callback) return 91;";
    let report = bench.check(attempt, body);
    assert_eq!(report.end, ProcessEnd::Finished, "{}", report.printed);
}

fn the_rules_of_the_contract_are_watched_on_the_device() {
    let Some(bench) = bench("the_rules_of_the_contract_are_watched_on_the_device") else { return };
    let found = |preamble: &str, body: &str| {
        let report = bench.check(preamble, body);
        assert_eq!(report.end, ProcessEnd::Finished, "{body}: {}", report.printed);
        report.findings.into_iter().map(|finding| finding.code).collect::<Vec<_>>()
    };
    let expect = |body: &str, code: &str| {
        let codes = found("__global__ void put(float *p) { *p = 1; }", body);
        assert!(codes.iter().any(|found| found == code), "{body}: {codes:?}");
    };
    expect("HONEST; put<<<1, 1, 0, stream>>>(x + 1);", "input_modified");
    expect("HONEST; put<<<1, 1, 0, stream>>>(w + 1);", "input_modified");
    expect("HONEST; put<<<1, 1, 0, stream>>>(y - 1);", "canary_overwritten");
    expect("HONEST; put<<<1, 1, 0, stream>>>(y + n);", "canary_overwritten");
    expect("HONEST; put<<<1, 1, 0, stream>>>((float *)workspace + NS_WORKSPACE_BYTES / 4);", "canary_overwritten");
    expect("n -= 1; HONEST;", "output_not_written");
    let constant = bench.check("", "cudaMemsetAsync(y, 0, n * 4, stream);");
    assert!(constant.cases.iter().any(|case| !case.passed), "{:?}", constant.cases);
}

fn results_that_are_kept_for_the_same_pointers_are_found() {
    let Some(bench) = bench("results_that_are_kept_for_the_same_pointers_are_found") else { return };
    let memo = "static float *memo; static int64_t size;";
    let body = "if (!memo || size != n) { HONEST; cudaMalloc(&memo, n * 4); size = n; \
                cudaMemcpyAsync(memo, y, n * 4, cudaMemcpyDeviceToDevice, stream); } \
                else cudaMemcpyAsync(y, memo, n * 4, cudaMemcpyDeviceToDevice, stream);";
    let report = bench.check(memo, body);
    assert!(codes(&report.findings).contains(&"stale_output"), "{:?} {:?}", report.end, report.findings);
}

fn a_program_against_itself_is_neither_faster_nor_slower() {
    let Some(bench) = bench("a_program_against_itself_is_neither_faster_nor_slower") else { return };
    // What processes differ by weighs more in short calls.
    for (rows, widest) in [(8, 1.25), (4096, 1.08)] {
        let (measurement, findings) = bench.race_of(&bench.reference, rows);
        let speedup = measurement.speedup;
        assert!((0.95..1.05).contains(&speedup.estimate), "{rows}: {speedup:?}");
        assert!(speedup.high / speedup.low < widest, "{rows}: {speedup:?}");
        assert_eq!(codes(&findings), [""; 0], "{findings:?}");
        let device = measurement.device.unwrap();
        assert!(device.exclusive_ms > 0.0 && device.device_time.is_some(), "{device:?}");
        assert!(device.calls_per_sample.is_some_and(|calls| calls > 1), "{device:?}");
        assert!(device.lone.is_some(), "{device:?}");
        let verification = measurement.verification.unwrap();
        assert_eq!(verification.verified_calls, verification.timed_calls);
    }
}

fn a_program_that_is_a_little_slower_is_found_slower() {
    let Some(bench) = bench("a_program_that_is_a_little_slower_is_found_slower") else { return };
    let (same, _) = bench.race_of(&bench.reference, 1024);
    // A fifth of the call more, whatever the device's clock is.
    let clock_ghz = 1.0;
    let cycles = same.baseline_median_ns * 0.2 * clock_ghz;
    let body = format!("HONEST; busy<<<1, 1, 0, stream>>>({}ll, y);", cycles.round());
    let (slower, findings) = bench.race(BUSY, &body);
    assert!(slower.speedup.high < 1.0, "{:?}", slower.speedup);
    assert_eq!(codes(&findings), [""; 0], "{findings:?}");
}

/// Makes a stream that waits for no other one.
const OTHER_STREAM: &str = "static cudaStream_t other; \
    static void make() { if (!other) cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking); }";

fn work_on_other_streams_is_counted() {
    let Some(bench) = bench("work_on_other_streams_is_counted") else { return };
    // Left behind for others to wait for: the device has to be at rest before a call counts as done.
    let preamble = format!("{BUSY}\n{OTHER_STREAM}");
    let (late, findings) = bench.race(&preamble, "make(); HONEST; busy<<<1, 1, 0, other>>>(400000ll, y);");
    assert!(late.speedup.high < 0.5, "{:?} {findings:?}", late.speedup);
    // What the call's stream does not wait for is late.
    let report = bench.check(&preamble, "make(); busy<<<1, 1, 0, other>>>(2000000ll, y); HONEST_ON(other);");
    assert!(codes(&report.findings).contains(&"output_late"), "{report:?}");
    // A stream that begins behind the call's, and that the call's waits for, is as right and as fast.
    let joined = format!(
        "{OTHER_STREAM} static void follow(cudaStream_t later, cudaStream_t earlier) {{ static cudaEvent_t event; \
         if (!event) cudaEventCreateWithFlags(&event, cudaEventDisableTiming); \
         cudaEventRecord(event, earlier); cudaStreamWaitEvent(later, event, 0); }}"
    );
    let (same, findings) =
        bench.race(&joined, "make(); follow(other, stream); HONEST_ON(other); follow(stream, other);");
    assert!(findings.iter().all(|finding| finding.severity != Severity::Violation), "{findings:?}");
    assert!(same.speedup.low < 1.05, "{:?}", same.speedup);
}

fn work_that_is_left_for_the_next_call_is_missed() {
    let Some(bench) = bench("work_that_is_left_for_the_next_call_is_missed") else { return };
    let queue = "static float *queued[4]; \
        static void catch_up(int64_t n, int64_t columns, cudaStream_t stream) { if (queued[0]) \
        honest<<<(n + 255) / 256, 256, 0, stream>>>(queued[0], queued[1], queued[2], queued[3], n, columns); }";
    let body = "catch_up(n, columns, stream); queued[0] = x; queued[1] = w; queued[2] = b; queued[3] = y;";
    let (_, findings) = bench.race(queue, body);
    assert!(codes(&findings).contains(&"timed_output_wrong"), "{findings:?}");
}

fn events_that_lie_gain_nothing() {
    let Some(bench) = bench("events_that_lie_gain_nothing") else { return };
    // Overwrites the driver's function that tells the time between two events, and the clock of the process.
    let forge = r#"
#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cstdint>
#include <cstring>
static int forged(float *ms, void *, void *) { *ms = 0.001f; return 0; }
static int forged_clock(clockid_t, struct timespec *now) { static long t; now->tv_sec = 0; now->tv_nsec = t += 100; return 0; }
static void detour(void *function, void *to) {
    if (!function) return;
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    memcpy(jump + 2, &to, 8);
    uintptr_t page = (uintptr_t)function & ~(uintptr_t)4095;
    if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) == 0) memcpy(function, jump, sizeof jump);
}
static void forge() {
    static bool done; if (done) return; done = true;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    detour(dlsym(driver, "cuEventElapsedTime_v2"), (void *)forged);
    detour(dlsym(driver, "cuEventElapsedTime"), (void *)forged);
    detour(dlsym(RTLD_DEFAULT, "clock_gettime"), (void *)forged_clock);
}
"#;
    let (measurement, findings) =
        bench.race(&format!("{BUSY}\n{forge}"), "forge(); HONEST; busy<<<1, 1, 0, stream>>>(100000ll, y);");
    assert!(measurement.speedup.high < 1.0, "{:?} {findings:?}", measurement.speedup);
    // It did lie: what its process tells of the device's time is far from what counts.
    let told = measurement.device.unwrap().device_time.unwrap();
    assert!(told.candidate_ns < 0.2 * measurement.candidate_median_ns, "{told:?}");
}

fn a_program_that_stops_working_once_it_is_timed_is_found() {
    let Some(bench) = bench("a_program_that_stops_working_once_it_is_timed_is_found") else { return };
    let (_, findings) = bench.race("static int calls;", "if (calls++ < 3) { HONEST; }");
    let told = codes(&findings);
    assert!(told.contains(&"output_not_written") && told.contains(&"timed_output_wrong"), "{findings:?}");
    // Keeps results by what the inputs begin with.
    let memo = r"
#include <map>
static std::map<unsigned, float *> known;
";
    let body = "unsigned key; cudaMemcpyAsync(&key, x, 4, cudaMemcpyDeviceToHost, stream); cudaStreamSynchronize(stream); \
                float *&kept = known[key]; \
                if (kept) { cudaMemcpyAsync(y, kept, n * 4, cudaMemcpyDeviceToDevice, stream); } \
                else { HONEST; cudaMalloc(&kept, n * 4); cudaMemcpyAsync(kept, y, n * 4, cudaMemcpyDeviceToDevice, stream); }";
    let candidate = bench.workshop.library("memo", &program(memo, body), &[]);
    let (measurement, _) = bench.race_of(&candidate, 64);
    // No two calls have the same inputs, so that it never pays.
    assert!(measurement.speedup.high < 1.0, "{:?}", measurement.speedup);
}

fn a_program_that_dies_while_it_is_timed_is_reported() {
    let Some(bench) = bench("a_program_that_dies_while_it_is_timed_is_reported") else { return };
    let body =
        "static int calls; if (calls++ > 5) honest<<<1, 32, 0, stream>>>((float *)16, w, b, y, n, columns); HONEST;";
    let candidate = bench.workshop.library("dies", &program("", body), &[]);
    match bench.try_race(&candidate, 64) {
        StepOutput::MeasureFailed { end: ProcessEnd::DeviceFault { error, .. }, .. } => {
            assert_eq!(error, "CUDA_ERROR_ILLEGAL_ADDRESS");
        }
        other => panic!("{other:?}"),
    }
}

fn a_reference_is_examined_on_the_device() {
    let Some(bench) = bench("a_reference_is_examined_on_the_device") else { return };
    let examine = |reference: PathBuf, truth: PathBuf| {
        let libraries = ReferenceLibraries { reference, truth };
        let mut seeds = SecretSeeds::from_os().unwrap();
        bench.evaluate(|context| prepare(context, &task(64, 96), &libraries, &mut seeds)).unwrap()
    };
    match examine(bench.reference.clone(), bench.truth.clone()) {
        Examined::Usable(facts) => {
            assert!(facts.baseline_median_ns > 100.0 && facts.baseline_median_ns < 1e6, "{facts:?}");
            assert!(facts.warnings.is_empty(), "{facts:?}");
        }
        rejected @ Examined::Rejected { .. } => panic!("{rejected:?}"),
    }
    let constant = program("", "cudaMemsetAsync(y, 0, n * sizeof(*y), stream);").replace("float", "ns_real");
    let reference = bench.workshop.library("constant", &constant, &[]);
    let truth = bench.workshop.library("constant-truth", &constant, &["-DNS_REAL=double"]);
    match examine(reference, truth) {
        Examined::Usable(facts) => {
            assert!(codes(&facts.warnings).contains(&"constant_output"), "{facts:?}");
            assert!(codes(&facts.warnings).contains(&"input_has_no_effect"), "{facts:?}");
        }
        rejected @ Examined::Rejected { .. } => panic!("{rejected:?}"),
    }
}
