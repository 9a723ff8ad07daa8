use std::sync::Arc;
use std::time::{Duration, Instant};

use nightshift_evaluator::context::DeviceMonitor as _;
use nightshift_evaluator::lock::{DeviceLock, DeviceMode, lock_driver_within};
use nightshift_protocol::machine::{ComputeMode, Mig};
use nightshift_sandbox::process::CancelFlag;
use nightshift_testbed::executable::write_executable;
use tokio_util::sync::CancellationToken;

use super::fake::{FACTS, FakeDriver, FakeProber, instance, whole};
use super::*;

const SOON: Duration = Duration::from_secs(30);

fn choose(driver: &Arc<FakeDriver>, visible: Option<&str>, listed: Option<&str>) -> Gpus {
    let driver: Arc<dyn Management> = driver.clone();
    Gpus::of(driver, &DeviceChoice::new(visible, listed).unwrap())
}

fn uuids(gpus: &Gpus) -> Vec<&str> {
    gpus.usable().iter().map(|gpu| gpu.facts.uuid.as_str()).collect()
}

fn ill(code: &'static str) -> Health {
    Health::Faulty(DeviceFault { code, reason: "a test process hangs".to_owned() })
}

fn monitor(driver: &Arc<FakeDriver>, prober: &Arc<FakeProber>) -> (Gpus, Arc<DeviceHealthMonitor>) {
    let prober: Arc<dyn Prober> = prober.clone();
    DeviceHealthMonitor::open_within(driver.gpus(), prober, Duration::from_millis(50))
}

fn quarantined(monitor: &DeviceHealthMonitor) -> Vec<(u32, String)> {
    monitor.quarantined().into_iter().map(|ill| (ill.device, ill.quarantine.code)).collect()
}

#[track_caller]
fn until(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < SOON, "it did not happen");
        std::thread::yield_now();
    }
}

// --- which GPUs ---

#[test]
fn a_gpu_is_described_by_the_driver_and_completed_by_cuda() {
    let (gpus, _) = monitor(&FakeDriver::with_whole(1), &Arc::default());
    let facts = &gpus.facts()[0];
    assert_eq!((facts.index, facts.uuid.as_str(), facts.name.as_str()), (0, "GPU-0000", "NVIDIA H200"));
    assert_eq!((facts.driver_version.as_str(), facts.cuda_driver_version.as_str()), ("580.65.06", "13.0"));
    assert_eq!(facts.compute_capability.to_string(), "9.0");
    assert_eq!((facts.multiprocessors, facts.l2_bytes), (FACTS.multiprocessors, FACTS.l2_bytes));
    // Both edges of 3201 MHz over 768 bytes.
    assert_eq!(facts.memory_bytes_per_s, Some(4_916_736_000_000));
    assert_eq!((facts.ecc, facts.sm_clock_max_mhz, facts.persistence), (Some(true), Some(1980), Some(true)));
}

#[test]
fn without_a_driver_there_is_no_gpu_and_it_is_said_why() {
    let gpus = Gpus::none(Absence::Driver(ManagementError::NoDriver));
    assert!(gpus.usable().is_empty() && gpus.management().is_none());
    assert_eq!(gpus.absence().unwrap().to_string(), "the NVIDIA driver is not loaded");
    assert_eq!(FakeDriver::with_whole(0).gpus().absence(), Some(&Absence::NoGpu));
}

#[test]
fn this_machine_is_looked_at_without_harm() {
    // Whether there is a driver or not: a value comes out.
    let gpus = Gpus::open();
    assert_eq!(gpus.usable().is_empty(), gpus.absence().is_some());
}

#[test]
fn the_machine_itself_is_device_0_and_gpus_follow_in_the_order_of_the_bus() {
    let gpus = FakeDriver::with_whole(3).gpus();
    let numbered: Vec<_> = gpus.numbered().map(|(number, gpu)| (number, gpu.facts.index)).collect();
    assert_eq!(numbered, [(1, 0), (2, 1), (3, 2)]);
    assert_eq!(gpus.device(3).unwrap().facts.uuid, "GPU-2000");
    assert!(gpus.device(0).is_none() && gpus.device(4).is_none());
}

#[test]
fn a_partitioned_gpu_is_hidden_and_its_instances_are_devices_of_their_own() {
    let mut parent = whole(1);
    parent.mig = Some(Mig::Parent);
    let driver = FakeDriver::with(vec![Ok(whole(0)), Ok(parent), Ok(instance(1, 0)), Ok(instance(1, 1))]);
    let gpus = driver.gpus();
    assert_eq!(uuids(&gpus), ["GPU-0000", "MIG-10", "MIG-11"]);
    assert!(gpus.hidden()[0].reason.contains("partitioned"));
    assert_eq!(gpus.usable()[1].card_uuid(), "GPU-1000");
    assert_eq!(gpus.usable()[1].environment()[0], ("CUDA_VISIBLE_DEVICES".to_owned(), "MIG-10".to_owned()));
    assert_eq!(uuids(&choose(&driver, None, Some("1:1"))), ["MIG-11"]);
    assert_eq!(uuids(&choose(&driver, Some("MIG-10"), None)), ["MIG-10"]);
}

#[test]
fn devices_that_the_operator_hides_are_not_offered() {
    let driver = FakeDriver::with_whole(3);
    assert_eq!(uuids(&choose(&driver, None, Some("0, 2"))), ["GPU-0000", "GPU-2000"]);
    assert_eq!(uuids(&choose(&driver, Some("GPU-1"), None)), ["GPU-1000"]);
    assert_eq!(uuids(&choose(&driver, Some("1,2"), Some("0,2"))), ["GPU-2000"], "both have to name it");
    let nothing = choose(&driver, Some(""), None);
    assert!(nothing.usable().is_empty());
    assert!(nothing.absence().unwrap().to_string().contains("CUDA_VISIBLE_DEVICES"), "{:?}", nothing.absence());
    assert_eq!(uuids(&choose(&driver, Some("2,-1,0"), None)), ["GPU-2000"], "CUDA looks no further than nothing");
    assert!(DeviceChoice::new(None, Some("0,first")).unwrap_err().to_string().contains("`first`"));
}

#[test]
fn one_that_does_not_answer_or_forbids_contexts_is_hidden_with_the_reason() {
    let (mut forbidden, mut alone) = (whole(1), whole(3));
    forbidden.compute_mode = Some(ComputeMode::Prohibited);
    alone.compute_mode = Some(ComputeMode::ExclusiveProcess);
    let lost = Unreadable { index: 0, uuid: None, why: ManagementError::Lost };
    let gpus = FakeDriver::with(vec![Err(lost), Ok(forbidden), Ok(whole(2)), Ok(alone)]).gpus();
    assert_eq!(uuids(&gpus), ["GPU-2000"]);
    let hidden: Vec<_> = gpus.hidden().iter().map(|hidden| hidden.device.as_str()).collect();
    assert_eq!(hidden, ["GPU 0", "GPU-1000", "GPU-3000"]);
    assert!(gpus.hidden()[0].reason.contains("lost") && gpus.hidden()[1].reason.contains("nvidia-smi -c 0"));
}

// --- how they are ---

#[derive(Debug)]
struct Table;

impl Processes for Table {
    fn kin(&self, pid: u32) -> Kin {
        match pid {
            1..=99 => Kin::Ours,
            100..=199 => Kin::Foreign,
            _ => Kin::Unknown,
        }
    }
}

fn reading() -> Reading {
    Reading {
        sm_clock_mhz: Some(1980),
        memory_clock_mhz: Some(3201),
        temperature_c: Some(50),
        power_w: Some(300),
        throttle: Vec::new(),
        processes: vec![7],
    }
}

/// Why a sample does not count that began under the usual conditions and ended under these.
fn moved(after: Reading) -> Option<String> {
    moved_from(reading(), after)
}

fn moved_from(before: Reading, after: Reading) -> Option<String> {
    let driver = FakeDriver::with_whole(1);
    let gpus = driver.gpus();
    let watch = gpus.watch_among(&gpus.usable()[0], Arc::new(Table)).unwrap();
    driver.reads("GPU-0000", Ok(before));
    let before = watch.observe().unwrap();
    driver.reads("GPU-0000", Ok(after));
    watch.observe().unwrap().changed_since(&before)
}

#[test]
fn equal_conditions_let_a_sample_count() {
    assert_eq!(moved(reading()), None);
    assert_eq!(
        moved(Reading { sm_clock_mhz: Some(1965), power_w: Some(650), temperature_c: Some(58), ..reading() }),
        None
    );
    assert_eq!(moved(Reading { processes: vec![7, 8], ..reading() }), None, "our own processes come and go");
}

#[test]
fn clocks_throttling_heat_and_strangers_reject_a_sample() {
    let reasons = [
        (Reading { sm_clock_mhz: Some(1755), ..reading() }, "multiprocessors"),
        (Reading { memory_clock_mhz: Some(2619), ..reading() }, "memory"),
        (Reading { throttle: vec!["sw_power_cap".to_owned()], ..reading() }, "sw_power_cap"),
        (Reading { temperature_c: Some(70), ..reading() }, "temperature"),
        (Reading { processes: vec![7, 150], ..reading() }, "150"),
        (Reading { processes: vec![7, 4_000], ..reading() }, "4000"),
    ];
    for (after, expected) in reasons {
        let why = moved(after.clone()).unwrap_or_default();
        assert!(why.contains(expected), "{after:?}: {why}");
    }
}

#[test]
fn a_stranger_that_was_there_before_is_no_better_and_one_of_another_container_is_told_by_coming() {
    let shared = Reading { processes: vec![7, 150], ..reading() };
    assert!(moved_from(shared.clone(), shared).unwrap().contains("others"));
    let unknown = Reading { processes: vec![4_000], ..reading() };
    assert_eq!(moved_from(unknown.clone(), unknown), None, "whose it is cannot be seen from here");
}

#[test]
fn what_a_driver_does_not_tell_moves_nothing_and_a_lost_gpu_is_an_error() {
    assert_eq!(moved_from(Reading::default(), Reading::default()), None);
    let driver = FakeDriver::with_whole(1);
    let gpus = driver.gpus();
    let watch = gpus.watch(&gpus.usable()[0]).unwrap();
    driver.reads("GPU-0000", Err(ManagementError::Lost));
    assert_eq!(watch.sample(), Err(ManagementError::Lost));
    assert_eq!(watch.observe(), None);
}

#[test]
fn only_descendants_belong_to_this_worker() {
    let table = tempfile::tempdir().unwrap();
    let process = |pid: u32, name: &str, parent: u32| {
        let folder = table.path().join(pid.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("stat"), format!("{pid} ({name}) S {parent} 1 1 0 -1 0")).unwrap();
    };
    process(1, "init", 0);
    process(10, "nightshift", 1);
    process(11, "a) b (c", 10);
    process(12, "runner", 11);
    process(20, "python", 1);
    process(30, "nightshift", 1);
    process(31, "runner", 30);
    for (pid, program) in [(10, "nightshift"), (20, "python"), (30, "nightshift")] {
        std::os::unix::fs::symlink(format!("/bin/{program}"), table.path().join(format!("{pid}/exe"))).unwrap();
    }
    let processes = ProcessTable::at(table.path().to_path_buf(), 10);
    // Another process of this program takes turns with it.
    assert_eq!([30, 31].map(|pid| processes.kin(pid)), [Kin::Ours; 2]);
    assert_eq!([10, 11, 12].map(|pid| processes.kin(pid)), [Kin::Ours; 3]);
    assert_eq!([1, 20].map(|pid| processes.kin(pid)), [Kin::Foreign; 2]);
    assert_eq!(processes.kin(99), Kin::Unknown);
}

// --- whether they still work ---

#[test]
fn a_gpu_that_fails_its_test_at_the_start_is_quarantined_and_the_others_are_not() {
    let prober = Arc::new(FakeProber::default());
    prober.next("GPU-1000", ill(WEDGED));
    let (gpus, monitor) = monitor(&FakeDriver::with_whole(3), &prober);
    assert_eq!(gpus.usable().len(), 3, "it is there");
    assert_eq!(quarantined(&monitor), [(2, WEDGED.to_owned())]);
}

#[test]
fn a_candidate_s_own_crash_quarantines_nothing() {
    let prober = Arc::new(FakeProber::default());
    let (_, monitor) = monitor(&FakeDriver::with_whole(1), &prober);
    assert_eq!(monitor.after_step(1, Some("CUDA_ERROR_ILLEGAL_ADDRESS"), &[]), Ok(()));
    assert_eq!(prober.asked().len(), 2, "but a fresh process has looked");
    monitor.record_event(&GpuEvent { uuid: Some("GPU-0000".to_owned()), kind: GpuEventKind::Xid(31) });
    assert_eq!(prober.asked().len(), 2, "a program's fault is looked at when its step is over");
    assert_eq!(monitor.after_step(1, None, &[]), Ok(()));
    assert_eq!((prober.asked().len(), quarantined(&monitor).len()), (3, 0));
    assert_eq!(monitor.after_step(1, None, &[]), Ok(()));
    assert_eq!(prober.asked().len(), 3, "and once only");
}

#[test]
fn one_bad_test_is_repeated_and_two_are_believed() {
    let prober = Arc::new(FakeProber::default());
    let (_, monitor) = monitor(&FakeDriver::with_whole(2), &prober);
    prober.next("GPU-0000", ill(WEDGED));
    assert_eq!(monitor.after_step(1, Some("it hung"), &[]), Ok(()));
    prober.always("GPU-0000", ill(LOST));
    let failure = monitor.after_step(1, Some("it hung"), &[]).unwrap_err();
    assert_eq!(failure.code, LOST);
    assert!(failure.message.contains("GPU-0000") && failure.message.contains("elsewhere"), "{failure}");
    assert_eq!(quarantined(&monitor), [(1, LOST.to_owned())]);
    assert_eq!(monitor.after_step(2, None, &[]), Ok(()), "its neighbour is well");
}

#[test]
fn what_cannot_be_tested_stays_in_use_and_is_not_used_when_it_never_was() {
    let prober = Arc::new(FakeProber::default());
    let unclear = Health::Unclear("CUDA_ERROR_OUT_OF_MEMORY while allocating memory".to_owned());
    prober.next("GPU-1000", unclear.clone());
    let (_, monitor) = monitor(&FakeDriver::with_whole(2), &prober);
    assert_eq!(quarantined(&monitor), [(2, UNPROBED.to_owned())]);
    prober.next("GPU-0000", unclear.clone());
    assert_eq!(monitor.after_step(1, Some("it crashed"), &[]), Ok(()), "others may hold its memory");
    let before = monitor.quarantined();
    prober.next("GPU-1000", unclear);
    monitor.retest_unclear();
    assert_eq!(monitor.quarantined(), before, "nothing changed");
    monitor.retest_unclear();
    assert_eq!(quarantined(&monitor), []);
}

#[test]
fn errors_of_the_hardware_quarantine_at_once_and_doubtful_ones_after_a_test() {
    let prober = Arc::new(FakeProber::default());
    let (_, monitor) = monitor(&FakeDriver::with_whole(3), &prober);
    let xid = |index: u32, number| {
        monitor.record_event(&GpuEvent { uuid: Some(format!("GPU-{index}000")), kind: GpuEventKind::Xid(number) });
    };
    xid(0, 79);
    assert_eq!(quarantined(&monitor), [(1, LOST.to_owned())]);
    xid(1, 119);
    assert_eq!(quarantined(&monitor), [(1, LOST.to_owned()), (2, WEDGED.to_owned())]);
    xid(2, 109);
    assert_eq!(quarantined(&monitor).len(), 2, "it passed");
    prober.always("GPU-2000", ill(WEDGED));
    xid(2, 109);
    assert_eq!(quarantined(&monitor).len(), 3);
    let first = monitor.quarantine_of(1).unwrap();
    assert!(first.reason.contains("Xid 79") && first.reason.contains("bus"), "{}", first.reason);
    xid(0, 119);
    assert_eq!(monitor.quarantine_of(1), Some(first), "the first reason counts");
}

/// Tells of an error of the hardware while it tests a GPU that is there, and finds nothing wrong.
#[derive(Debug, Default)]
struct ErrorDuringTest(std::sync::OnceLock<std::sync::Weak<DeviceHealthMonitor>>);

impl Prober for ErrorDuringTest {
    fn probe(&self, _gpu: &Gpu) -> Health {
        if let Some(monitor) = self.0.get().and_then(std::sync::Weak::upgrade) {
            monitor.record_event(&GpuEvent { uuid: Some("GPU-0000".to_owned()), kind: GpuEventKind::Xid(119) });
        }
        Health::Healthy(FACTS)
    }
}

#[test]
fn a_passed_test_lifts_no_quarantine_that_began_while_it_ran() {
    let prober = Arc::new(ErrorDuringTest::default());
    let asked: Arc<dyn Prober> = prober.clone();
    let (_, monitor) =
        DeviceHealthMonitor::open_within(FakeDriver::with_whole(1).gpus(), asked, Duration::from_millis(50));
    prober.0.set(Arc::downgrade(&monitor)).unwrap();
    assert!(monitor.after_step(1, Some("a crash"), &[]).is_err());
    assert_eq!(quarantined(&monitor), [(1, WEDGED.to_owned())]);
}

#[test]
fn an_error_of_a_card_concerns_all_its_instances() {
    let mut parent = whole(0);
    parent.mig = Some(Mig::Parent);
    let driver = FakeDriver::with(vec![Ok(parent), Ok(instance(0, 0)), Ok(instance(0, 1)), Ok(whole(1))]);
    let (_, monitor) = monitor(&driver, &Arc::default());
    monitor.record_event(&GpuEvent { uuid: Some("GPU-0000".to_owned()), kind: GpuEventKind::Xid(95) });
    assert_eq!(quarantined(&monitor), [(1, WEDGED.to_owned()), (2, WEDGED.to_owned())]);
}

#[test]
fn a_released_gpu_is_used_again_when_it_passes_and_quarantined_anew_when_it_does_not() {
    let prober = Arc::new(FakeProber::default());
    let (_, monitor) = monitor(&FakeDriver::with_whole(1), &prober);
    prober.always("GPU-0000", ill(WEDGED));
    monitor.after_step(1, Some("it hung"), &[]).unwrap_err();
    let first = monitor.quarantine_of(1).unwrap();
    monitor.release(&[1]);
    let second = monitor.quarantine_of(1).unwrap();
    assert!(second.incident > first.incident, "a failed release opens a new incident");
    prober.always("GPU-0000", Health::Healthy(FACTS));
    monitor.release(&[1, 9]);
    assert_eq!(monitor.quarantined(), []);
}

#[test]
fn a_step_that_does_not_end_quarantines_its_gpu_only_when_the_gpu_fails_its_test() {
    let prober = Arc::new(FakeProber::default());
    let (_, monitor) = monitor(&FakeDriver::with_whole(3), &prober);
    prober.always("GPU-1000", ill(WEDGED));
    prober.always("GPU-2000", Health::Unclear("no memory is free".to_owned()));
    let hangs = |device| monitor.after_hang(device, "a killed step does not end").map_err(|failure| failure.code);
    assert_eq!((hangs(1), hangs(2)), (Ok(()), Err(WEDGED.to_owned())));
    // The step that does not end may be what holds the memory.
    assert_eq!(hangs(3), Err(UNPROBED.to_owned()));
    prober.always("GPU-2000", Health::Healthy(FACTS));
    monitor.retest_unclear();
    assert_eq!(quarantined(&monitor), [(2, WEDGED.to_owned())]);
}

#[test]
fn every_change_is_told() {
    let prober = Arc::new(FakeProber::default());
    let (_, monitor) = monitor(&FakeDriver::with_whole(1), &prober);
    let mut changes = monitor.subscribe();
    changes.mark_unchanged();
    prober.always("GPU-0000", ill(WEDGED));
    monitor.after_step(1, Some("it hung"), &[]).unwrap_err();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    monitor.after_hang(1, "a killed step does not end").unwrap_err();
    assert!(!changes.has_changed().unwrap(), "nothing changed");
    prober.always("GPU-0000", Health::Healthy(FACTS));
    monitor.release(&[1]);
    assert!(changes.has_changed().unwrap());
}

#[test]
fn the_driver_is_listened_to_until_the_worker_ends() {
    let driver = FakeDriver::with_whole(2);
    let (gpus, monitor) = monitor(&driver, &Arc::default());
    let stop = CancellationToken::new();
    let watch = {
        let (monitor, stop) = (Arc::clone(&monitor), stop.clone());
        std::thread::spawn(move || monitor.watch_events(&gpus, &stop))
    };
    driver.tells(GpuEvent { uuid: Some("GPU-1000".to_owned()), kind: GpuEventKind::Xid(79) });
    until(|| quarantined(&monitor) == [(2, LOST.to_owned())]);
    driver.tells(GpuEvent { uuid: None, kind: GpuEventKind::UncorrectedMemory });
    until(|| quarantined(&monitor).len() == 2);
    stop.cancel();
    watch.join().unwrap();
}

#[test]
fn a_probe_on_a_machine_without_a_driver_is_unclear() {
    let gpus = FakeDriver::with_whole(1).gpus();
    let locks = tempfile::tempdir().unwrap();
    let prober = |program: &str| ChildProber::new(program.into(), locks.path().to_path_buf());
    let prober_of_nothing = prober("/bin/true").within(SOON);
    assert!(matches!(prober_of_nothing.probe(&gpus.usable()[0]), Health::Unclear(_)), "it says nothing");
    let missing = prober("/nowhere/nightshift");
    assert!(matches!(missing.probe(&gpus.usable()[0]), Health::Unclear(_)));
}

#[test]
fn a_probe_that_hangs_is_killed_and_its_gpu_wedged() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hangs");
    write_executable(&program, "#!/bin/sh\necho '{\"line\":\"at\",\"stage\":\"context\"}'\nwhile :; do :; done\n");
    let gpus = FakeDriver::with_whole(1).gpus();
    let health =
        ChildProber::new(program, folder.path().join("locks")).within(Duration::from_secs(5)).probe(&gpus.usable()[0]);
    let Health::Faulty(fault) = health else { panic!("{health:?}") };
    assert_eq!(fault.code, WEDGED);
    assert!(fault.reason.contains("creating a context"), "{}", fault.reason);
}

#[test]
fn a_probe_waits_for_a_confirmation_and_the_wait_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (program, started) = (folder.path().join("probe"), folder.path().join("started"));
    write_executable(&program, &format!("#!/bin/sh\n: > '{}'\n", started.display()));
    let gpus = FakeDriver::with_whole(1).gpus();
    let (gpu, locks) = (&gpus.usable()[0], folder.path().join("locks"));
    let files = locks.join(&gpu.facts.uuid);
    let lock = DeviceLock::between_processes(&files).unwrap();
    let patient = ChildProber::new(program, locks).within(Duration::from_mins(10));
    std::thread::scope(|scope| {
        let confirmation = lock.lock(DeviceMode::Isolated, &CancelFlag::default()).unwrap();
        let probing = scope.spawn(move || patient.probe(gpu));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!started.exists() && !probing.is_finished());
        drop(confirmation);
        probing.join().unwrap();
        assert!(started.exists());
    });
    let _hangs = lock.lock(DeviceMode::Isolated, &CancelFlag::default()).unwrap();
    assert!(lock_driver_within(&files, Duration::from_millis(50)).is_none());
}
