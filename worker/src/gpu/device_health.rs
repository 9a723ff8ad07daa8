//! Monitors the health of this worker's GPUs, and quarantines faulty ones.
//!
//! A device is quarantined when a fresh process cannot use it, when a process on it cannot be killed, or when the driver
//! reports an error that requires a reset. A crash of a program does not quarantine its device.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nightshift_protocol::api::QuarantinedDevice;
use nightshift_protocol::machine::Quarantine;
use nightshift_protocol::step::StepFailure;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::discovery::{Gpu, Gpus};
use super::health::{DeviceFault, Health, LOST, Prober, UNPROBED, WEDGED};
use super::management::{GpuEvent, GpuEventKind, Management};
use super::xid::{self, Meaning};
use nightshift_sandbox::process::Survivor;

/// How long a killed process may survive before its device counts as wedged.
pub const SURVIVOR_LIMIT: Duration = Duration::from_secs(10);
/// Interval of tests of devices with an unclear result.
pub const RETEST_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of checks whether a killed process is gone.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The reason of a test, which decides what an unclear result means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeReason {
    /// A suspicion about a device in use: an unclear result changes nothing.
    InUse,
    /// A user released the device, or a killed step on it does not end: an unclear result quarantines it.
    Untrusted,
    /// An unclear result before: the device stays quarantined.
    Again,
}

/// The GPUs of a worker with their quarantines.
#[derive(Debug)]
pub struct DeviceHealthMonitor {
    entries: Vec<DeviceEntry>,
    prober: Arc<dyn Prober>,
    management: Option<Arc<dyn Management>>,
    table: Mutex<Table>,
    /// Counts the changes.
    changed: watch::Sender<u64>,
    survivor_limit: Duration,
}

#[derive(Debug)]
struct DeviceEntry {
    device: u32,
    gpu: Gpu,
    /// Held during a test, because two tests would disturb each other.
    testing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    incidents: u64,
    quarantined: BTreeMap<u32, Quarantine>,
    /// Driver events of each device since its last test.
    driver_reports: BTreeMap<u32, String>,
}

impl DeviceHealthMonitor {
    /// Tests all GPUs and returns them with the facts that the tests found. Blocks.
    pub fn open(gpus: Gpus, prober: Arc<dyn Prober>) -> (Gpus, Arc<Self>) {
        Self::open_within(gpus, prober, SURVIVOR_LIMIT)
    }

    /// Like [`Self::open`], with another limit for processes that do not end.
    pub fn open_within(mut gpus: Gpus, prober: Arc<dyn Prober>, survivor_limit: Duration) -> (Gpus, Arc<Self>) {
        let health: Vec<(u32, Health)> = std::thread::scope(|scope| {
            let prober = &prober;
            let tests: Vec<_> =
                gpus.numbered().map(|(device, gpu)| (device, scope.spawn(move || prober.probe(gpu)))).collect();
            let broken = || Health::Unclear("its test panicked".to_owned());
            tests.into_iter().map(|(device, test)| (device, test.join().unwrap_or_else(|_| broken()))).collect()
        });
        for (device, health) in &health {
            if let Health::Healthy(facts) = health {
                gpus.complete(*device, facts);
            }
        }
        let entries = gpus
            .numbered()
            .map(|(device, gpu)| DeviceEntry { device, gpu: gpu.clone(), testing: Mutex::new(()) })
            .collect();
        let monitor = Self {
            entries,
            prober,
            management: gpus.management().cloned(),
            table: Mutex::default(),
            changed: watch::Sender::new(0),
            survivor_limit,
        };
        for (device, health) in health {
            monitor.record_probe(device, health, ProbeReason::Untrusted, None);
        }
        (gpus, Arc::new(monitor))
    }

    /// Returns the quarantined devices, ordered by their numbers.
    #[must_use]
    pub fn quarantined(&self) -> Vec<QuarantinedDevice> {
        let table = self.table();
        let devices = table.quarantined.iter();
        devices
            .map(|(device, quarantine)| QuarantinedDevice { device: *device, quarantine: quarantine.clone() })
            .collect()
    }

    /// Returns the quarantine of a device.
    #[must_use]
    pub fn quarantine_of(&self, device: u32) -> Option<Quarantine> {
        self.table().quarantined.get(&device).cloned()
    }

    /// Returns temperatures in degrees Celsius by device number, without unknown ones. Instances have the temperature of
    /// their GPU. Blocks.
    pub(crate) fn temperatures(&self) -> BTreeMap<u32, u32> {
        let Some(management) = &self.management else { return BTreeMap::new() };
        let of =
            |entry: &DeviceEntry| Some((entry.device, management.read(entry.gpu.card_uuid()).ok()?.temperature_c?));
        self.entries.iter().filter_map(of).collect()
    }

    /// Returns a receiver that is notified of every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Checks a device after a step, and tests it when there is a `suspicion` or a driver event. `survivors` are the processes
    /// that the step could not end. Blocks.
    ///
    /// # Errors
    /// When the device is quarantined: the result of the step cannot be trusted.
    pub(crate) fn after_step(
        &self,
        device: u32,
        suspicion: Option<&str>,
        survivors: &[Survivor],
    ) -> Result<(), StepFailure> {
        let Some(entry) = self.entry(device) else { return Ok(()) };
        if let Some(survivor) = self.wait_for_survivors(survivors) {
            let pid = survivor.pid();
            let reason = format!("process {pid} of a step cannot be killed: the driver does not release it");
            self.quarantine(device, &DeviceFault { code: WEDGED, reason });
        }
        let driver_report = self.table().driver_reports.remove(&device);
        if self.quarantine_of(device).is_none()
            && let Some(why) = suspicion.or(driver_report.as_deref())
        {
            tracing::info!(device, gpu.uuid = %entry.gpu.facts.uuid, "a GPU is tested after a step: {why}");
            self.test(entry, ProbeReason::InUse);
        }
        self.in_use(entry)
    }

    /// Tests a device on which a killed step does not end: the thread of the step may be busy with something else. Blocks.
    ///
    /// # Errors
    /// When the device is quarantined.
    pub(crate) fn after_hang(&self, device: u32, why: &str) -> Result<(), StepFailure> {
        let Some(entry) = self.entry(device) else { return Ok(()) };
        if self.quarantine_of(device).is_none() {
            tracing::warn!(device, gpu.uuid = %entry.gpu.facts.uuid, "a GPU is tested: {why}");
            self.test(entry, ProbeReason::Untrusted);
        }
        self.in_use(entry)
    }

    fn in_use(&self, entry: &DeviceEntry) -> Result<(), StepFailure> {
        let Some(quarantine) = self.quarantine_of(entry.device) else { return Ok(()) };
        let (uuid, reason) = (&entry.gpu.facts.uuid, quarantine.reason);
        let message = format!("the GPU {uuid} is out of order ({reason}): the step is tried again elsewhere");
        Err(StepFailure::retriable(quarantine.code, message))
    }

    /// Records an event of the driver, and tests the devices that it makes doubtful. Blocks.
    pub fn record_event(&self, event: &GpuEvent) {
        let (meaning, words) = match event.kind {
            GpuEventKind::Xid(number) => (xid::meaning(number), xid::describe(number)),
            GpuEventKind::UncorrectedMemory => (Meaning::Broken, "memory error that cannot be corrected".to_owned()),
        };
        let concerned = |entry: &&DeviceEntry| event.uuid.as_deref().is_none_or(|uuid| uuid == entry.gpu.card_uuid());
        for entry in self.entries.iter().filter(concerned) {
            tracing::warn!(device = entry.device, gpu.uuid = %entry.gpu.facts.uuid, "the driver reports a GPU error: {words}");
            match meaning {
                Meaning::Program => {
                    self.table().driver_reports.insert(entry.device, words.clone());
                }
                Meaning::Doubtful if self.quarantine_of(entry.device).is_none() => self.test(entry, ProbeReason::InUse),
                Meaning::Doubtful => {}
                Meaning::Broken => self.quarantine(entry.device, &DeviceFault { code: WEDGED, reason: words.clone() }),
                Meaning::Gone => self.quarantine(entry.device, &DeviceFault { code: LOST, reason: words.clone() }),
            }
        }
    }

    /// Tests quarantined devices again, and releases those that pass. Blocks.
    pub fn release(&self, devices: &[u32]) {
        for entry in self.entries.iter().filter(|entry| devices.contains(&entry.device)) {
            if self.quarantine_of(entry.device).is_some() {
                tracing::info!(device = entry.device, gpu.uuid = %entry.gpu.facts.uuid, "a released GPU is tested");
                self.test(entry, ProbeReason::Untrusted);
            }
        }
    }

    /// Tests devices with an unclear result again. Blocks.
    pub fn retest_unclear(&self) {
        let unclear =
            |entry: &&DeviceEntry| self.quarantine_of(entry.device).is_some_and(|known| known.code == UNPROBED);
        self.entries.iter().filter(unclear).for_each(|entry| self.test(entry, ProbeReason::Again));
    }

    /// Handles events of the driver and repeats unclear tests until `stop` is cancelled. Blocks, so it needs its own thread.
    pub fn watch_events(&self, gpus: &Gpus, stop: &CancellationToken) {
        let Some(management) = gpus.management().filter(|_| !self.entries.is_empty()) else { return };
        let mut tested_at = Instant::now();
        while !stop.is_cancelled() {
            // The driver refuses to report events of a lost GPU.
            let is_lost =
                |entry: &&DeviceEntry| self.quarantine_of(entry.device).is_some_and(|known| known.code == LOST);
            let there = self.entries.iter().filter(|entry| !is_lost(entry));
            let mut cards: Vec<String> = there.map(|entry| entry.gpu.card_uuid().to_owned()).collect();
            cards.sort_unstable();
            cards.dedup();
            let listened = management.listen(&cards, &mut |event| {
                if let Some(event) = event {
                    self.record_event(&event);
                }
                if tested_at.elapsed() >= RETEST_INTERVAL {
                    self.retest_unclear();
                    tested_at = Instant::now();
                }
                if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if let Err(error) = listened {
                tracing::warn!(error = %error, "the driver reports no GPU events: faults are found only by steps");
                if error.is_of_the_gpu() {
                    let in_use = |entry: &&DeviceEntry| self.quarantine_of(entry.device).is_none();
                    self.entries.iter().filter(in_use).for_each(|entry| self.test(entry, ProbeReason::InUse));
                }
                while !stop.is_cancelled() && tested_at.elapsed() < RETEST_INTERVAL {
                    std::thread::park_timeout(Duration::from_millis(200));
                }
                self.retest_unclear();
                tested_at = Instant::now();
            }
        }
    }

    /// Waits for the survivors to end. Returns one that still runs after the time limit.
    fn wait_for_survivors<'a>(&self, survivors: &'a [Survivor]) -> Option<&'a Survivor> {
        let until = Instant::now() + self.survivor_limit;
        loop {
            let there = survivors.iter().find(|survivor| survivor.is_running())?;
            if Instant::now() >= until {
                return Some(there);
            }
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }

    /// Tests a device. A fault counts only when a second test confirms it.
    fn test(&self, entry: &DeviceEntry, reason: ProbeReason) {
        let _one_at_a_time = entry.testing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.incident(entry.device);
        let mut health = self.prober.probe(&entry.gpu);
        if matches!(health, Health::Faulty(_)) {
            health = self.prober.probe(&entry.gpu);
        }
        self.record_probe(entry.device, health, reason, before);
    }

    /// Returns the number of the incident for which a device is quarantined.
    fn incident(&self, device: u32) -> Option<u64> {
        self.table().quarantined.get(&device).map(|quarantine| quarantine.incident)
    }

    /// Records the result of a test that began when the device was quarantined for this incident.
    fn record_probe(&self, device: u32, health: Health, reason: ProbeReason, before: Option<u64>) {
        let fault = match health {
            // What the driver reported during the test may need a reset although the test passes.
            Health::Healthy(_) if self.incident(device) != before => return,
            Health::Healthy(_) => return self.lift_quarantine(device),
            Health::Faulty(fault) => fault,
            Health::Unclear(why) if reason == ProbeReason::Untrusted => {
                DeviceFault { code: UNPROBED, reason: format!("it cannot be tested: {why}") }
            }
            Health::Unclear(reason) => {
                tracing::warn!(device, "a GPU cannot be tested: {reason}");
                return;
            }
        };
        if reason != ProbeReason::InUse {
            self.table().quarantined.remove(&device);
        }
        self.quarantine(device, &fault);
    }

    /// Quarantines a device. A device that is already quarantined keeps its first reason.
    fn quarantine(&self, device: u32, fault: &DeviceFault) {
        let mut table = self.table();
        if table.quarantined.contains_key(&device) {
            return;
        }
        table.incidents += 1;
        let quarantine = Quarantine {
            incident: table.incidents,
            code: fault.code.to_owned(),
            reason: fault.reason.clone(),
            since: None,
        };
        table.quarantined.insert(device, quarantine);
        drop(table);
        tracing::error!(device, code = fault.code, "a GPU is quarantined: {}", fault.reason);
        self.changed.send_modify(|version| *version += 1);
    }

    fn lift_quarantine(&self, device: u32) {
        let mut table = self.table();
        table.driver_reports.remove(&device);
        let lifted = table.quarantined.remove(&device);
        drop(table);
        if lifted.is_some() {
            tracing::info!(device, "a GPU passed its test and may be used again");
            self.changed.send_modify(|version| *version += 1);
        }
    }

    fn entry(&self, device: u32) -> Option<&DeviceEntry> {
        self.entries.iter().find(|entry| entry.device == device)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is a single insert or remove, so a panic leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
