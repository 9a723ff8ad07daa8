//! Which GPUs of this worker are out of order, and how that is found out.
//!
//! A device is quarantined when a fresh process of ours cannot use it, when a process on it cannot be killed, or when
//! the driver tells an error after which it needs a reset. That a program crashed on it is none of these.

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

/// How long a killed process may be kept by its device before that counts as wedged.
pub const SURVIVOR_LIMIT: Duration = Duration::from_secs(10);
/// How often a device that could not be tested is tested again.
pub const RETEST_INTERVAL: Duration = Duration::from_secs(30);
/// How often something that may pass is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Who asks for a test, which decides what an unclear one means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeReason {
    /// A doubt about a device in use: what cannot be found out changes nothing.
    InUse,
    /// A person released it: they are to see that it did not help.
    Release,
    /// It was unclear before, and may stay so.
    Again,
}

/// The GPUs of a worker and what is wrong with them.
#[derive(Debug)]
pub struct DeviceHealthMonitor {
    entries: Vec<DeviceEntry>,
    prober: Arc<dyn Prober>,
    management: Option<Arc<dyn Management>>,
    table: Mutex<Table>,
    /// Goes up with every change.
    changed: watch::Sender<u64>,
    survivor_limit: Duration,
}

#[derive(Debug)]
struct DeviceEntry {
    device: u32,
    gpu: Gpu,
    /// One test at a time: a second one would disturb the first.
    testing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    incidents: u64,
    quarantined: BTreeMap<u32, Quarantine>,
    /// What the driver told of devices since their last test.
    driver_reports: BTreeMap<u32, String>,
}

impl DeviceHealthMonitor {
    /// Tests all GPUs. Gives them back with the facts that only such a test brings. Blocks.
    pub fn open(gpus: Gpus, prober: Arc<dyn Prober>) -> (Gpus, Arc<Self>) {
        Self::open_within(gpus, prober, SURVIVOR_LIMIT)
    }

    /// Like [`Self::open`], with another limit for processes that do not end.
    pub fn open_within(mut gpus: Gpus, prober: Arc<dyn Prober>, survivor_limit: Duration) -> (Gpus, Arc<Self>) {
        let health: Vec<(u32, Health)> = std::thread::scope(|scope| {
            let prober = &prober;
            let tests: Vec<_> =
                gpus.numbered().map(|(device, gpu)| (device, scope.spawn(move || prober.probe(gpu)))).collect();
            let broken = || Health::Unclear("its test broke down".to_owned());
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
            monitor.record_probe(device, health, ProbeReason::Release);
        }
        (gpus, Arc::new(monitor))
    }

    /// Devices on which nothing may run, by their numbers.
    #[must_use]
    pub fn quarantined(&self) -> Vec<QuarantinedDevice> {
        let table = self.table();
        let devices = table.quarantined.iter();
        devices
            .map(|(device, quarantine)| QuarantinedDevice { device: *device, quarantine: quarantine.clone() })
            .collect()
    }

    /// Why nothing may run on a device.
    #[must_use]
    pub fn quarantine_of(&self, device: u32) -> Option<Quarantine> {
        self.table().quarantined.get(&device).cloned()
    }

    /// In degrees Celsius, by the numbers of the GPUs; those that the driver does not tell are left out. Instances are as
    /// hot as their GPU. Blocks.
    pub(crate) fn temperatures(&self) -> BTreeMap<u32, u32> {
        let Some(management) = &self.management else { return BTreeMap::new() };
        let of =
            |entry: &DeviceEntry| Some((entry.device, management.read(entry.gpu.card_uuid()).ok()?.temperature_c?));
        self.entries.iter().filter_map(of).collect()
    }

    /// Told of every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Looks at a device after a step: tests it when something speaks against it, `suspicion` in words. `survivors` are
    /// the processes that the step could not end. Gives the failure of the step when the device is out of order: whatever the step brought
    /// is not to be trusted. Blocks.
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
        match self.quarantine_of(device) {
            None => Ok(()),
            Some(quarantine) => Err(StepFailure::retriable(
                quarantine.code,
                format!(
                    "the GPU {} is out of order ({}): the step is tried again elsewhere",
                    entry.gpu.facts.uuid, quarantine.reason
                ),
            )),
        }
    }

    /// The work of a step does not end although it was killed.
    pub(crate) fn record_hang(&self, device: u32) {
        if self.entry(device).is_some() {
            let reason = "a step on it was killed and does not end".to_owned();
            self.quarantine(device, &DeviceFault { code: WEDGED, reason });
        }
    }

    /// Takes in what the driver tells. Tests devices that it casts doubt on. Blocks.
    pub fn record_event(&self, event: &GpuEvent) {
        let (meaning, words) = match event.kind {
            GpuEventKind::Xid(number) => (xid::meaning(number), xid::describe(number)),
            GpuEventKind::UncorrectedMemory => (Meaning::Broken, "memory error that cannot be corrected".to_owned()),
        };
        let concerned = |entry: &&DeviceEntry| event.uuid.as_deref().is_none_or(|uuid| uuid == entry.gpu.card_uuid());
        for entry in self.entries.iter().filter(concerned) {
            tracing::warn!(device = entry.device, gpu.uuid = %entry.gpu.facts.uuid, "the driver tells of a GPU: {words}");
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

    /// Tests quarantined devices again; those that pass are free. Blocks.
    pub fn release(&self, devices: &[u32]) {
        for entry in self.entries.iter().filter(|entry| devices.contains(&entry.device)) {
            if self.quarantine_of(entry.device).is_some() {
                tracing::info!(device = entry.device, gpu.uuid = %entry.gpu.facts.uuid, "a released GPU is tested");
                self.test(entry, ProbeReason::Release);
            }
        }
    }

    /// Tests those devices again of which it could not be found out how they are. Blocks.
    pub fn retest_unclear(&self) {
        let unclear =
            |entry: &&DeviceEntry| self.quarantine_of(entry.device).is_some_and(|known| known.code == UNPROBED);
        self.entries.iter().filter(unclear).for_each(|entry| self.test(entry, ProbeReason::Again));
    }

    /// Listens to the driver, and looks again at what was unclear, until it is told to stop. Blocks: runs on a thread
    /// of its own.
    pub fn watch_events(&self, gpus: &Gpus, stop: &CancellationToken) {
        let Some(management) = gpus.management().filter(|_| !self.entries.is_empty()) else { return };
        let mut cards: Vec<String> = self.entries.iter().map(|entry| entry.gpu.card_uuid().to_owned()).collect();
        cards.sort_unstable();
        cards.dedup();
        let mut tested_at = Instant::now();
        while !stop.is_cancelled() {
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
                tracing::warn!(error = %error, "the driver tells no events of its GPUs: faults are seen with steps only");
                if error.is_of_the_gpu() {
                    self.entries.iter().for_each(|entry| self.test(entry, ProbeReason::InUse));
                }
                while !stop.is_cancelled() && tested_at.elapsed() < RETEST_INTERVAL {
                    std::thread::park_timeout(Duration::from_millis(200));
                }
                self.retest_unclear();
                tested_at = Instant::now();
            }
        }
    }

    /// One that is still there when the time for being gone is over.
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

    /// Tests a device, twice before it counts as ill.
    fn test(&self, entry: &DeviceEntry, reason: ProbeReason) {
        let _one_at_a_time = entry.testing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut health = self.prober.probe(&entry.gpu);
        if matches!(health, Health::Faulty(_)) {
            health = self.prober.probe(&entry.gpu);
        }
        self.record_probe(entry.device, health, reason);
    }

    fn record_probe(&self, device: u32, health: Health, reason: ProbeReason) {
        let fault = match health {
            Health::Healthy(_) => return self.lift_quarantine(device),
            Health::Faulty(fault) => fault,
            Health::Unclear(why) if reason == ProbeReason::Release => {
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

    /// Keeps steps off a device. The first reason counts: what follows from it is no news.
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
        // Every change is a single insert or remove: a panic elsewhere leaves the table whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
