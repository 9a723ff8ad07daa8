//! Discovers the GPUs of this machine and selects those that this worker may use.

use std::sync::Arc;

use nightshift_protocol::machine::{ComputeMode, CudaFacts, GpuFacts, Mig, memory_bandwidth};

use super::choice::DeviceChoice;
use super::management::{FoundGpu, Management, ManagementError, Unreadable, Versions};
use super::nvml::Nvml;
use super::processes::{ProcessTable, Processes};
use super::watch::Watch;

/// Number of the first GPU of a worker. Lower numbers are the machine itself, as a device of the `cpu` target.
pub const FIRST_DEVICE: u32 = 1;

/// The reason why this worker has no GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// There is no driver, or it does not answer.
    #[error(transparent)]
    Driver(#[from] ManagementError),
    /// The driver finds no GPU.
    #[error("the driver knows no GPU")]
    NoGpu,
    /// There are GPUs, but none may be used.
    #[error("none of {0} GPUs may be used: {1}")]
    AllHidden(usize, String),
}

/// A device that exists but is not offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// Its name, or its number without a name.
    pub device: String,
    /// Why it is not offered.
    pub reason: String,
}

/// A device that this worker may use: a GPU, or an instance of a partitioned one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Facts.
    pub facts: GpuFacts,
    /// Number of its device node.
    pub minor: Option<u32>,
    /// Its index among all devices of this machine, including those that this worker may not use.
    pub place: usize,
}

impl Gpu {
    /// Returns the environment variables with which a child process sees only this device, as its device 0.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        vec![
            ("CUDA_VISIBLE_DEVICES".to_owned(), self.facts.uuid.clone()),
            ("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()),
        ]
    }

    /// Returns the UUID that driver events use, which is that of the whole card.
    #[must_use]
    pub fn card_uuid(&self) -> &str {
        match &self.facts.mig {
            Some(Mig::Instance { parent_uuid, .. }) => parent_uuid,
            _ => &self.facts.uuid,
        }
    }
}

/// The GPUs of this machine, or the reason why there are none.
#[derive(Debug, Clone)]
pub struct Gpus {
    management: Option<Arc<dyn Management>>,
    usable: Vec<Gpu>,
    hidden: Vec<Hidden>,
    absence: Option<Absence>,
    places: usize,
}

impl Gpus {
    /// Discovers all GPUs of this machine.
    #[must_use]
    pub fn open() -> Self {
        Self::open_with(&DeviceChoice::default())
    }

    /// Discovers the selected GPUs of this machine.
    #[must_use]
    pub fn open_with(choice: &DeviceChoice) -> Self {
        match Nvml::open() {
            Ok(nvml) => Self::of(Arc::new(nvml), choice),
            Err(error) => Self::none(Absence::Driver(error)),
        }
    }

    /// Returns an empty list with its reason.
    #[must_use]
    pub fn none(absence: Absence) -> Self {
        Self { management: None, usable: Vec::new(), hidden: Vec::new(), absence: Some(absence), places: 0 }
    }

    /// Discovers the selected GPUs of this driver.
    #[must_use]
    pub fn of(management: Arc<dyn Management>, choice: &DeviceChoice) -> Self {
        let (versions, found) = match management.versions().and_then(|versions| Ok((versions, management.gpus()?))) {
            Ok(answers) => answers,
            Err(error) => return Self::none(Absence::Driver(error)),
        };
        let (mut usable, mut hidden) = (Vec::new(), Vec::new());
        let mut instances = 0;
        let places = found.len();
        for (place, found) in found.into_iter().enumerate() {
            match found {
                Ok(found) => {
                    let instance = matches!(found.mig, Some(Mig::Instance { .. })).then_some(instances);
                    instances = instance.map_or(0, |number| number + 1);
                    match unusable(&found).or_else(|| choice.hides(&found, instance)) {
                        Some(reason) => hidden.push(Hidden { device: found.uuid, reason: reason.to_owned() }),
                        None => usable.push(Gpu { minor: found.minor, place, facts: facts(found, &versions) }),
                    }
                }
                Err(Unreadable { index, uuid, why }) => {
                    let device = uuid.unwrap_or_else(|| format!("GPU {index}"));
                    hidden.push(Hidden { device, reason: why.to_string() });
                }
            }
        }
        let absence = usable.is_empty().then(|| match hidden.first() {
            None => Absence::NoGpu,
            Some(first) => Absence::AllHidden(hidden.len(), format!("{}: {}", first.device, first.reason)),
        });
        Self { management: Some(management), usable, hidden, absence, places }
    }

    /// Returns the usable GPUs in the order of the bus.
    #[must_use]
    pub fn usable(&self) -> &[Gpu] {
        &self.usable
    }

    /// Returns the number of devices of this machine, including those that this worker may not use.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places
    }

    /// Returns the usable GPUs with their device numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &Gpu)> {
        (FIRST_DEVICE..).zip(&self.usable)
    }

    /// Returns the GPU with this device number.
    #[must_use]
    pub fn device(&self, number: u32) -> Option<&Gpu> {
        self.numbered().find(|(device, _)| *device == number).map(|(_, gpu)| gpu)
    }

    /// Adds the facts about a device that only CUDA reports.
    pub(super) fn complete(&mut self, number: u32, told: &CudaFacts) {
        let Some(gpu) = number.checked_sub(FIRST_DEVICE).and_then(|place| self.usable.get_mut(place as usize)) else {
            return;
        };
        gpu.facts.complete(told);
    }

    /// Returns the devices that are not offered.
    #[must_use]
    pub fn hidden(&self) -> &[Hidden] {
        &self.hidden
    }

    /// Returns why there is no GPU; `None` when there is one.
    #[must_use]
    pub fn absence(&self) -> Option<&Absence> {
        self.absence.as_ref()
    }

    /// Returns the facts of the GPUs.
    #[must_use]
    pub fn facts(&self) -> Vec<GpuFacts> {
        self.usable.iter().map(|gpu| gpu.facts.clone()).collect()
    }

    /// Starts watching the state of a device. The system's process table separates this worker's processes from others.
    #[must_use]
    pub fn watch(&self, gpu: &Gpu) -> Option<Watch> {
        self.watch_among(gpu, Arc::new(ProcessTable::of_this_process()))
    }

    /// Like [`Self::watch`], with another table of processes.
    #[must_use]
    pub fn watch_among(&self, gpu: &Gpu, processes: Arc<dyn Processes>) -> Option<Watch> {
        let management = self.management.clone()?;
        Some(Watch::new(management, gpu.facts.uuid.clone(), processes))
    }

    /// Returns the driver's management library, when there is one.
    #[must_use]
    pub fn management(&self) -> Option<&Arc<dyn Management>> {
        self.management.as_ref()
    }
}

/// Returns why no program can run on this GPU; `None` when it is usable.
fn unusable(found: &FoundGpu) -> Option<&'static str> {
    if found.mig == Some(Mig::Parent) {
        return Some("it is partitioned: its instances are devices of their own");
    }
    match found.compute_mode {
        Some(ComputeMode::Prohibited) => Some("its compute mode prohibits contexts (`nvidia-smi -c 0` permits them)"),
        // Candidate and baseline use it in turn, each in its own process.
        Some(ComputeMode::ExclusiveProcess) => {
            Some("its compute mode allows one process at a time, and a step needs several (`nvidia-smi -c 0`)")
        }
        Some(ComputeMode::Shared) | None => None,
    }
}

fn facts(found: FoundGpu, versions: &Versions) -> GpuFacts {
    let memory_bytes_per_s = found
        .memory_clock_max_mhz
        .zip(found.memory_bus_bits)
        .map(|(mhz, bits)| memory_bandwidth((u64::from(mhz) * 1_000, u64::from(bits))));
    GpuFacts {
        index: found.index,
        name: found.name,
        uuid: found.uuid,
        compute_capability: found.compute_capability,
        memory_bytes: found.memory_bytes,
        driver_version: versions.driver.clone(),
        cuda_driver_version: format!("{}.{}", versions.cuda.0, versions.cuda.1),
        ecc: found.ecc,
        ecc_uncorrected: found.ecc_uncorrected,
        mig: found.mig,
        sm_clock_max_mhz: found.sm_clock_max_mhz,
        memory_clock_max_mhz: found.memory_clock_max_mhz,
        multiprocessors: found.multiprocessors,
        l2_bytes: None,
        memory_bytes_per_s,
        power_limit_w: found.power_limit_w,
        persistence: found.persistence,
        compute_mode: found.compute_mode,
        pci_bus_id: found.pci_bus_id,
    }
}
