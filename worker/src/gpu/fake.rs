//! A driver in memory, and a prober that says what it is told to say.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::machine::{ComputeMode, CudaFacts, Mig};
use nightshift_protocol::needs::ComputeCapability;

use super::discovery::Gpu;
use super::health::{Health, Prober};
use super::management::{FoundGpu, GpuEvent, Management, ManagementError, Reading, Unreadable, Versions};
use super::{DeviceChoice, Gpus};

/// A driver in memory.
#[derive(Debug, Default)]
pub(crate) struct FakeDriver {
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct State {
    gpus: Vec<Result<FoundGpu, Unreadable>>,
    readings: BTreeMap<String, Result<Reading, ManagementError>>,
    events: VecDeque<GpuEvent>,
}

/// A whole GPU of this number.
pub(crate) fn whole(index: u32) -> FoundGpu {
    FoundGpu {
        index,
        name: "NVIDIA H200".to_owned(),
        uuid: format!("GPU-{index}000"),
        compute_capability: ComputeCapability { major: 9, minor: 0 },
        memory_bytes: 150_754_820_096,
        minor: Some(index),
        pci_bus_id: Some(format!("00000000:{index:02X}:00.0")),
        mig: None,
        ecc: Some(true),
        ecc_uncorrected: Some(0),
        sm_clock_max_mhz: Some(1980),
        memory_clock_max_mhz: Some(3201),
        memory_bus_bits: Some(6144),
        multiprocessors: Some(132),
        power_limit_w: Some(700),
        persistence: Some(true),
        compute_mode: Some(ComputeMode::Shared),
    }
}

/// An instance of a partitioned GPU.
pub(crate) fn instance(index: u32, number: u32) -> FoundGpu {
    FoundGpu {
        name: "NVIDIA H200 MIG 1g.18gb".to_owned(),
        uuid: format!("MIG-{index}{number}"),
        memory_bytes: 18 << 30,
        multiprocessors: Some(16),
        memory_bus_bits: None,
        mig: Some(Mig::Instance {
            parent_uuid: format!("GPU-{index}000"),
            gpu_instance: Some(number + 7),
            compute_instance: Some(0),
        }),
        ..whole(index)
    }
}

impl FakeDriver {
    /// With these GPUs.
    pub(crate) fn with(gpus: Vec<Result<FoundGpu, Unreadable>>) -> Arc<Self> {
        let driver = Self::default();
        driver.state().gpus = gpus;
        Arc::new(driver)
    }

    /// With so many whole GPUs.
    pub(crate) fn with_whole(count: u32) -> Arc<Self> {
        Self::with((0..count).map(|index| Ok(whole(index))).collect())
    }

    /// How a GPU is from now on.
    pub(crate) fn reads(&self, uuid: &str, reading: Result<Reading, ManagementError>) {
        self.state().readings.insert(uuid.to_owned(), reading);
    }

    /// Tells something.
    pub(crate) fn tells(&self, event: GpuEvent) {
        self.state().events.push_back(event);
        self.told.notify_all();
    }

    /// Its GPUs, all of them.
    pub(crate) fn gpus(self: &Arc<Self>) -> Gpus {
        let driver: Arc<dyn Management> = self.clone();
        Gpus::of(driver, &DeviceChoice::default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Management for FakeDriver {
    fn versions(&self) -> Result<Versions, ManagementError> {
        Ok(Versions { driver: "580.65.06".to_owned(), cuda: (13, 0) })
    }

    fn gpus(&self) -> Result<Vec<Result<FoundGpu, Unreadable>>, ManagementError> {
        Ok(self.state().gpus.clone())
    }

    fn read(&self, uuid: &str) -> Result<Reading, ManagementError> {
        self.state().readings.get(uuid).cloned().unwrap_or_else(|| Ok(Reading::default()))
    }

    fn listen(
        &self,
        _uuids: &[String],
        tell: &mut dyn FnMut(Option<GpuEvent>) -> ControlFlow<()>,
    ) -> Result<(), ManagementError> {
        loop {
            let event = {
                let state = self.state();
                let waited =
                    self.told.wait_timeout_while(state, Duration::from_millis(20), |state| state.events.is_empty());
                waited.unwrap_or_else(PoisonError::into_inner).0.events.pop_front()
            };
            if tell(event).is_break() {
                return Ok(());
            }
        }
    }
}

/// Says what it is told to say; otherwise that all is well.
#[derive(Debug, Default)]
pub(crate) struct FakeProber {
    answers: Mutex<BTreeMap<String, VecDeque<Health>>>,
    always: Mutex<BTreeMap<String, Health>>,
    asked: Mutex<Vec<String>>,
}

/// What CUDA tells of the fake GPUs.
pub(crate) const FACTS: CudaFacts = CudaFacts {
    multiprocessors: Some(132),
    l2_bytes: Some(60 << 20),
    memory_clock_khz: Some(3_201_000),
    memory_bus_bits: Some(6144),
};

impl FakeProber {
    /// The next answer for a GPU, behind those that were given before.
    pub(crate) fn next(&self, uuid: &str, health: Health) {
        lock(&self.answers).entry(uuid.to_owned()).or_default().push_back(health);
    }

    /// Every answer for a GPU from now on, when no other is next.
    pub(crate) fn always(&self, uuid: &str, health: Health) {
        lock(&self.always).insert(uuid.to_owned(), health);
    }

    /// Which GPUs were tested, in their order.
    pub(crate) fn asked(&self) -> Vec<String> {
        lock(&self.asked).clone()
    }
}

impl Prober for FakeProber {
    fn probe(&self, gpu: &Gpu) -> Health {
        let uuid = gpu.facts.uuid.clone();
        lock(&self.asked).push(uuid.clone());
        let next = lock(&self.answers).get_mut(&uuid).and_then(VecDeque::pop_front);
        let always = lock(&self.always).get(&uuid).cloned();
        next.or(always).unwrap_or(Health::Healthy(FACTS))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
