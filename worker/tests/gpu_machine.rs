//! GPUs of this machine, with the real driver. Without one, the tests are reported as skipped, with the reason.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "plays programs whose output the tests read")]
#![expect(unsafe_code, reason = "plays a program that uses the GPU, and one that crashes on it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};
use libtest_mimic::{Arguments, Trial};
use nightshift_evaluator::context::DeviceMonitor as _;
use nightshift_worker::gpu::{ChildProber, DeviceHealthMonitor, GpuEvent, GpuEventKind, Gpus, Health, Prober};

/// Starts and restarts of this very file as another program.
const HOLD: &str = "hold-a-context";
const CRASH: &str = "crash-on-the-gpu";
/// A kernel that stores to an unmapped address.
const BAD_STORE: &std::ffi::CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .entry bad_store() {
    .reg .b64 %a;
    .reg .b32 %v;
    mov.u64 %a, 16;
    mov.u32 %v, 7;
    st.global.u32 [%a], %v;
    ret;
}
";

/// A test on the GPUs, with its name.
type GpuTest = (&'static str, fn(&Gpus));

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        // `ChildProber` starts its own executable: here that is this file.
        Some("__probe_gpu") => {
            let args: Vec<_> = std::env::args_os().collect();
            let status = nightshift_worker::child_main(&args).unwrap_or(2);
            return ExitCode::from(u8::try_from(status).unwrap_or(2));
        }
        Some(HOLD) => return hold(),
        Some(CRASH) => return crash(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let gpus = Arc::new(Gpus::open());
    if let Some(absence) = gpus.absence() {
        eprintln!("skipped: tests with a GPU: {absence}");
    }
    let tests: [GpuTest; 5] = [
        ("each_gpu_is_described_whole", each_gpu_is_described_whole),
        ("each_gpu_passes_its_test", each_gpu_passes_its_test),
        ("conditions_are_read_and_compared", conditions_are_read_and_compared),
        ("a_context_of_our_own_child_is_no_stranger_s", a_context_of_our_own_child_is_no_stranger_s),
        ("a_crash_of_a_program_is_told_and_leaves_the_gpu_well", a_crash_of_a_program_is_told_and_leaves_the_gpu_well),
    ];
    let is_missing = gpus.absence().is_some();
    let trials = tests.map(|(name, test)| {
        let gpus = Arc::clone(&gpus);
        Trial::test(name, move || {
            test(&gpus);
            Ok(())
        })
        .with_ignored_flag(is_missing)
    });
    // One after the other: they use the same GPUs.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, trials.into_iter().collect()).exit_code()
}

fn prober() -> ChildProber {
    ChildProber::new(std::env::current_exe().unwrap(), std::env::temp_dir().join("nightshift-test-locks"))
}

fn each_gpu_is_described_whole(gpus: &Gpus) {
    let (gpus, _) = DeviceHealthMonitor::open(gpus.clone(), Arc::new(prober()));
    for facts in gpus.facts() {
        eprintln!("{facts:#?}");
        assert!(facts.uuid.starts_with("GPU-") || facts.uuid.starts_with("MIG-"));
        assert!(facts.memory_bytes > 1 << 30 && facts.compute_capability.major >= 5);
        assert!(facts.multiprocessors.unwrap() > 0 && facts.l2_bytes.unwrap() > 1 << 18);
        assert!(facts.mig.is_some() || facts.memory_bytes_per_s.unwrap() > 10_000_000_000);
        assert!(facts.cuda_driver_version.contains('.') && !facts.driver_version.is_empty());
    }
}

fn each_gpu_passes_its_test(gpus: &Gpus) {
    for gpu in gpus.usable() {
        let began = Instant::now();
        let health = prober().probe(gpu);
        eprintln!("{}: {health:?} after {:?}", gpu.facts.uuid, began.elapsed());
        assert!(matches!(health, Health::Healthy(_)));
    }
}

fn conditions_are_read_and_compared(gpus: &Gpus) {
    for gpu in gpus.usable() {
        let watch = gpus.watch(gpu).unwrap();
        let first = watch.observe().unwrap();
        let began = Instant::now();
        let second = watch.observe().unwrap();
        eprintln!("{second:?} in {:?}, changed: {:?}", began.elapsed(), second.changed_since(&first));
        assert!((5..120).contains(&second.conditions.temperature_c.unwrap()));
        assert!(second.conditions.sm_clock_mhz.unwrap() > 0);
    }
}

fn a_context_of_our_own_child_is_no_stranger_s(gpus: &Gpus) {
    let gpu = &gpus.usable()[0];
    let watch = gpus.watch(gpu).unwrap();
    let before = watch.sample().unwrap();
    let mut child = start(HOLD, gpu);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "here");
    let during = watch.sample().unwrap();
    let listed = gpus.management().unwrap().read(&gpu.facts.uuid).unwrap().processes;
    eprintln!("the driver lists {listed:?} while our child {} holds a context", child.id());
    assert_eq!(during.foreign_processes, before.foreign_processes);
    drop(child.stdin.take());
    child.wait().unwrap();
}

fn a_crash_of_a_program_is_told_and_leaves_the_gpu_well(gpus: &Gpus) {
    let gpu = &gpus.usable()[0];
    let cards = [gpu.card_uuid().to_owned()];
    let over = AtomicBool::new(false);
    let (said, heard) = std::sync::mpsc::channel::<GpuEvent>();
    std::thread::scope(|scope| {
        let driver = gpus.management().unwrap();
        let over = &over;
        scope.spawn(move || {
            let listened = driver.listen(&cards, &mut |event| {
                if let Some(event) = event {
                    said.send(event).unwrap();
                }
                if over.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            eprintln!("listening ended with {listened:?}");
        });
        let mut child = start(CRASH, gpu);
        let mut told = String::new();
        child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        child.wait().unwrap();
        eprintln!("the program that crashed got {}", told.trim());
        let event = heard.recv_timeout(Duration::from_secs(5));
        eprintln!("the driver tells {event:?}");
        over.store(true, Ordering::Relaxed);
        assert!(told.contains("ILLEGAL_ADDRESS"), "{told}");
        // Some drivers, and virtual machines, tell no events: then the test after the step is all there is.
        if let Ok(event) = event {
            assert!(matches!(event.kind, GpuEventKind::Xid(13 | 31 | 43 | 45)), "{event:?}");
        }
    });
    let (_, monitor) = DeviceHealthMonitor::open(gpus.clone(), Arc::new(prober()));
    monitor.record_event(&GpuEvent { uuid: Some(gpu.card_uuid().to_owned()), kind: GpuEventKind::Xid(31) });
    assert!(monitor.quarantined().is_empty(), "a program's own crash: {:?}", monitor.quarantined());
}

fn start(what: &str, gpu: &nightshift_worker::gpu::Gpu) -> Child {
    #[expect(clippy::disallowed_methods, reason = "a test starts its own programs")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(what).envs(gpu.environment()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Holds a context until its standard input ends.
fn hold() -> ExitCode {
    context();
    println!("here");
    std::io::stdout().flush().unwrap();
    let mut nothing = String::new();
    std::io::stdin().read_to_string(&mut nothing).unwrap();
    ExitCode::SUCCESS
}

/// Runs a kernel that stores where it may not, and says what the driver answers.
fn crash() -> ExitCode {
    context();
    // SAFETY: a context is current; the kernel takes no arguments.
    let answer = unsafe {
        let module = result::module::load_data(BAD_STORE.as_ptr().cast()).unwrap();
        let kernel = result::module::get_function(module, c"bad_store".to_owned()).unwrap();
        let stream = result::stream::null();
        result::launch_kernel(kernel, (1, 1, 1), (1, 1, 1), 0, stream, &mut []).unwrap();
        sys::cuCtxSynchronize()
    };
    println!("{answer:?}");
    ExitCode::SUCCESS
}

fn context() {
    result::init().unwrap();
    let device = result::device::get(0).unwrap();
    // SAFETY: the device was just given by the driver.
    unsafe { result::ctx::set_current(result::primary_ctx::retain(device).unwrap()).unwrap() };
}
