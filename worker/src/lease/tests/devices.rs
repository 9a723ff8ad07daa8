//! Several GPUs, and what becomes of steps on those that fall ill.

use std::sync::Arc;
use std::time::Duration;

use nightshift_protocol::api::{FreeSlots, RegisterWorker, TryOutcome};
use nightshift_protocol::id::StepId;

use super::Outcome;
use super::fake::{
    EXCLUSIVE, FakeServer, FakeWork, Running, ServerState, failure_of, introduction_with_devices, start_with_gpus,
};
use crate::gpu::fake::{FACTS, FakeDriver, FakeProber};
use crate::gpu::{DeviceFault, DeviceHealthMonitor, GpuEvent, GpuEventKind, Health, LOST, Prober, Reading, WEDGED};

/// A worker with three GPUs and nothing else, and how they are found to be.
fn three_gpus(work: FakeWork) -> (Running, Arc<DeviceHealthMonitor>, Arc<FakeProber>) {
    let prober = Arc::new(FakeProber::default());
    let asked: Arc<dyn Prober> = prober.clone();
    let (_, monitor) =
        DeviceHealthMonitor::open_within(FakeDriver::with_whole(3).gpus(), asked, Duration::from_millis(50));
    let running = start_with_gpus(FakeServer::default(), work, introduction(), Arc::clone(&monitor));
    (running, monitor, prober)
}

fn introduction() -> RegisterWorker {
    let mut introduction = introduction_with_devices(false, 1, 4);
    introduction.offers.devices.remove(0);
    introduction
}

fn ill(code: &'static str) -> Health {
    Health::Faulty(DeviceFault { code, reason: "a test process hangs".to_owned() })
}

fn lost(index: u32) -> GpuEvent {
    GpuEvent { uuid: Some(format!("GPU-{index}000")), kind: GpuEventKind::Xid(79) }
}

/// Numbers of the devices that a call says to be free.
fn devices(free: &FreeSlots) -> Vec<u32> {
    let mut devices: Vec<u32> = free.devices.iter().map(|device| device.index).collect();
    devices.sort_unstable();
    devices
}

/// What the server knows to be quarantined.
fn known(state: &ServerState) -> Option<Vec<u32>> {
    state.told.last().map(|told| told.iter().map(|ill| ill.device).collect())
}

fn outcome(running: &Running, step: &StepId) -> TryOutcome {
    let state = running.server.state();
    let found = state.committed.iter().find(|(committed, _)| committed == step);
    found.map_or_else(|| panic!("{step} is not committed"), |(_, outcome)| outcome.clone())
}

#[tokio::test]
async fn each_gpu_is_given_to_one_exclusive_step_at_a_time_under_its_own_number() -> Outcome {
    let (running, ..) = three_gpus(FakeWork::default());
    for n in 1..=5 {
        running.server.offer(n, EXCLUSIVE, 60_000);
    }
    running.work.until("all GPUs are busy", |state| state.running.len() == 3).await;
    {
        let state = running.work.state();
        let mut busy: Vec<u32> =
            state.on_devices.iter().filter(|(_, there)| !there.is_empty()).map(|(device, _)| *device).collect();
        busy.sort_unstable();
        assert_eq!(busy, [1, 2, 3]);
    }
    running.work.change(|state| state.let_go = true);
    running.until_committed(5).await;
    assert_eq!(running.work.state().disturbed, 0);
    running.end().await
}

#[tokio::test]
async fn a_step_on_a_gpu_that_breaks_is_tried_elsewhere_and_the_gpu_is_not_offered_again() -> Outcome {
    let (running, _ward, prober) = three_gpus(FakeWork::default());
    prober.always("GPU-1000", ill(WEDGED));
    let steps: Vec<StepId> = (1..=3).map(|n| running.server.offer(n, EXCLUSIVE, 60_000)).collect();
    running.work.until("all GPUs are busy", |state| state.running.len() == 3).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(3).await;
    let failed: Vec<TryOutcome> = steps
        .iter()
        .map(|step| outcome(&running, step))
        .filter(|outcome| matches!(outcome, TryOutcome::Failed { .. }))
        .collect();
    let [failure] = failed.as_slice() else { panic!("one of them was on the broken GPU: {failed:?}") };
    assert_eq!(failure_of(failure).code, WEDGED);
    running.server.until("the server is told", |state| known(state) == Some(vec![2])).await;
    // Whatever is stated from now on, the broken GPU is not in it.
    running.server.change(|state| state.asked.clear());
    let next: Vec<StepId> = (4..=9).map(|n| running.server.offer(n, EXCLUSIVE, 60_000)).collect();
    running.until_committed(9).await;
    for step in &next {
        assert!(matches!(outcome(&running, step), TryOutcome::Completed { .. }), "{step}");
    }
    assert!(running.server.state().asked.iter().all(|free| !devices(free).contains(&2)));
    running.end().await
}

#[tokio::test]
async fn what_the_driver_tells_in_the_middle_of_a_step_spoils_its_result() -> Outcome {
    let (running, monitor, _) = three_gpus(FakeWork::default());
    let steps: Vec<StepId> = (1..=3).map(|n| running.server.offer(n, EXCLUSIVE, 60_000)).collect();
    running.work.until("all GPUs are busy", |state| state.running.len() == 3).await;
    monitor.record_event(&lost(0));
    running.server.until("the server is told at once", |state| known(state) == Some(vec![1])).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(3).await;
    let failures: Vec<String> = steps
        .iter()
        .filter_map(|step| match outcome(&running, step) {
            TryOutcome::Failed { failure } => Some(failure.code),
            _ => None,
        })
        .collect();
    assert_eq!(failures, [LOST]);
    running.end().await
}

#[tokio::test]
async fn a_released_gpu_that_passes_its_test_is_offered_again() -> Outcome {
    let (running, monitor, prober) = three_gpus(FakeWork::free_running());
    prober.always("GPU-2000", ill(LOST));
    monitor.record_event(&lost(2));
    running.server.until("the server is told", |state| known(state) == Some(vec![3])).await;
    running.server.change(|state| state.released = vec![3]);
    running
        .server
        .until("it did not help", |state| {
            state.told.last().and_then(|told| told.first()).is_some_and(|ill| ill.quarantine.incident > 1)
        })
        .await;
    prober.always("GPU-2000", Health::Healthy(FACTS));
    running.server.until("the server knows that it is well", |state| known(state) == Some(Vec::new())).await;
    running
        .server
        .until("it is stated to be free", |state| state.on_their_way.iter().any(|free| devices(free).contains(&3)))
        .await;
    running.end().await
}

#[tokio::test]
async fn a_step_that_comes_for_a_gpu_that_fell_ill_meanwhile_is_given_back_unbegun() -> Outcome {
    let (running, monitor, _) = three_gpus(FakeWork::free_running());
    running
        .server
        .until("all are stated", |state| state.on_their_way.iter().any(|free| devices(free).len() == 3))
        .await;
    for index in 0..3 {
        monitor.record_event(&lost(index));
    }
    running.server.until("the server is told", |state| known(state) == Some(vec![1, 2, 3])).await;
    let step = running.server.offer(1, EXCLUSIVE, 60_000);
    running.until_committed(1).await;
    assert_eq!(outcome(&running, &step), TryOutcome::Cancelled);
    assert_eq!(running.work.state().most_running, 0);
    running.end().await
}

#[tokio::test]
async fn a_step_that_does_not_end_when_it_is_killed_takes_only_a_broken_gpu_with_it() -> Outcome {
    let deaf = FakeWork::default();
    deaf.change(|state| state.deaf = true);
    let (running, monitor, prober) = three_gpus(deaf);
    let first = running.server.offer(1, EXCLUSIVE, 50);
    running.until_committed(1).await;
    assert_eq!(failure_of(&outcome(&running, &first)).code, "worker.step_timed_out");
    assert_eq!(monitor.quarantined(), [], "a GPU that passes its test is well");
    for uuid in ["GPU-0000", "GPU-1000", "GPU-2000"] {
        prober.always(uuid, ill(WEDGED));
    }
    let second = running.server.offer(2, EXCLUSIVE, 50);
    running.until_committed(2).await;
    assert_eq!(failure_of(&outcome(&running, &second)).code, WEDGED);
    assert_eq!(monitor.quarantined().len(), 1);
    running.work.change(|state| state.let_go = true);
    running.end().await
}

#[tokio::test]
async fn a_worker_that_registers_anew_says_which_of_its_gpus_are_ill() -> Outcome {
    let (running, monitor, _) = three_gpus(FakeWork::free_running());
    running.server.until("it is registered", |state| state.registrations == 1).await;
    monitor.record_event(&lost(1));
    running.server.change(|state| state.known = None);
    running.server.until("it is registered anew", |state| state.registrations == 2).await;
    {
        let state = running.server.state();
        let ill: Vec<u32> =
            state.offered.iter().filter(|offer| offer.quarantine.is_some()).map(|offer| offer.index).collect();
        assert_eq!(ill, [2]);
    }
    running.end().await
}

#[tokio::test]
async fn heartbeats_tell_how_hot_each_gpu_is_and_leave_out_what_the_driver_does_not_tell() -> Outcome {
    let driver = FakeDriver::with_whole(2);
    driver.reads("GPU-0000", Ok(Reading { temperature_c: Some(61), ..Reading::default() }));
    let prober: Arc<dyn Prober> = Arc::new(FakeProber::default());
    let (_, monitor) = DeviceHealthMonitor::open_within(driver.gpus(), prober, Duration::from_millis(50));
    let running = start_with_gpus(FakeServer::default(), FakeWork::free_running(), introduction(), monitor);
    running.server.until("a reading", |state| !state.readings.is_empty()).await;
    let told = running.server.state().readings.clone();
    let temperatures: Vec<_> = told.iter().map(|reading| (reading.device, reading.temperature_c)).collect();
    assert_eq!(temperatures[..2], [(1, Some(61)), (2, None)]);
    assert!(told.iter().all(|reading| reading.busy_ms <= reading.over_ms));
    running.end().await
}
