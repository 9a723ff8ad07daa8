//! The management library of a real driver.

use std::ops::ControlFlow;
use std::path::Path;

use nightshift_protocol::machine::{ComputeMode, Mig};
use nightshift_protocol::needs::ComputeCapability;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::device::Device;
use nvml_wrapper::enum_wrappers::device::{self as wrapped, Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;

use super::management::{FoundGpu, GpuEvent, GpuEventKind, Management, ManagementError, Reading, Unreadable, Versions};
use nightshift_sandbox::DRIVER_FOLDERS;

/// The library's file.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Time limit of one wait for an event.
const EVENT_WAIT_MS: u32 = 500;
/// Errors without their own constant.
const UNKNOWN_XID: u64 = 999;
/// Throttle reasons with their names. Idleness, and clocks that the operator or an application set, are left out: they
/// affect every program alike.
const THROTTLES: [(ThrottleReasons, &str); 6] = [
    (ThrottleReasons::SW_POWER_CAP, "sw_power_cap"),
    (ThrottleReasons::HW_SLOWDOWN, "hw_slowdown"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hw_thermal_slowdown"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "hw_power_brake"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "sw_thermal_slowdown"),
    (ThrottleReasons::SYNC_BOOST, "sync_boost"),
];

/// The management library of a real driver.
#[derive(Debug)]
pub struct Nvml(nvml_wrapper::Nvml);

impl Nvml {
    /// Loads the library and connects to the driver.
    pub fn open() -> Result<Self, ManagementError> {
        let error = match nvml_wrapper::Nvml::init() {
            Ok(nvml) => return Ok(Self(nvml)),
            Err(error) => told(error),
        };
        if matches!(error, ManagementError::NoLibrary(_)) {
            // The default location of drivers that are not in the loader's path.
            let paths =
                DRIVER_FOLDERS.iter().map(|folder| Path::new(folder).join(LIBRARY)).filter(|path| path.exists());
            for path in paths {
                match nvml_wrapper::Nvml::builder().lib_path(path.as_os_str()).init() {
                    Ok(nvml) => return Ok(Self(nvml)),
                    Err(error) => {
                        tracing::debug!(path = %path.display(), error = %error, "a management library is of no use");
                    }
                }
            }
        }
        Err(error)
    }

    fn found(index: u32, device: &Device<'_>, mig: Option<Mig>) -> Result<FoundGpu, NvmlError> {
        let of_instance = matches!(mig, Some(Mig::Instance { .. }));
        // Properties of the whole card are read from the card.
        let parent = if of_instance { device.mig_parent_device().ok() } else { None };
        let card = parent.as_ref().unwrap_or(device);
        let capability = card.cuda_compute_capability()?;
        let attributes = if of_instance { device.attributes().ok() } else { None };
        let number = |value: i32| u32::try_from(value).unwrap_or_default();
        let compute_capability = ComputeCapability { major: number(capability.major), minor: number(capability.minor) };
        let cores = card.num_cores().ok().filter(|_| !of_instance);
        Ok(FoundGpu {
            index,
            name: device.name().or_else(|_| card.name())?,
            uuid: device.uuid()?,
            compute_capability,
            memory_bytes: device.memory_info().or_else(|_| card.memory_info())?.total,
            minor: card.minor_number().ok(),
            pci_bus_id: card.pci_info().ok().map(|pci| pci.bus_id),
            ecc: card.is_ecc_enabled().ok().map(|ecc| ecc.currently_enabled),
            ecc_uncorrected: card.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
            sm_clock_max_mhz: card.max_clock_info(Clock::SM).ok(),
            memory_clock_max_mhz: card.max_clock_info(Clock::Memory).ok(),
            memory_bus_bits: card.memory_bus_width().ok().filter(|_| !of_instance),
            multiprocessors: attributes
                .map(|attributes| attributes.multiprocessor_count)
                .or_else(|| cores.zip(cores_of_each(compute_capability)).map(|(cores, each)| cores / each)),
            power_limit_w: card.enforced_power_limit().ok().map(|milliwatts| milliwatts / 1000),
            persistence: card.is_in_persistent_mode().ok(),
            compute_mode: card.compute_mode().ok().map(compute_mode),
            mig,
        })
    }

    fn instances(&self, index: u32, parent: &Device<'_>, parent_uuid: &str) -> Vec<Result<FoundGpu, Unreadable>> {
        let count = parent.mig_device_count().unwrap_or(0);
        // Instance numbers can have gaps.
        let existing = (0..count).filter_map(|number| parent.mig_device_by_index(number).ok());
        existing
            .map(|device| {
                let mig = Mig::Instance {
                    parent_uuid: parent_uuid.to_owned(),
                    gpu_instance: self.instance_number(&device, Level::Gpu),
                    compute_instance: self.instance_number(&device, Level::Compute),
                };
                Self::found(index, &device, Some(mig)).map_err(|error| unreadable(index, device.uuid().ok(), error))
            })
            .collect()
    }

    /// Returns the number of the GPU instance or the compute instance of a device.
    fn instance_number(&self, device: &Device<'_>, level: Level) -> Option<u32> {
        let library = self.0.lib();
        let mut number = 0;
        // SAFETY: the handle belongs to a living device of this library, and the library writes one number.
        let status = unsafe {
            match level {
                Level::Gpu => library.nvmlDeviceGetGpuInstanceId.as_ref().ok()?(device.handle(), &raw mut number),
                Level::Compute => {
                    library.nvmlDeviceGetComputeInstanceId.as_ref().ok()?(device.handle(), &raw mut number)
                }
            }
        };
        (status == 0).then_some(number)
    }

    fn read_one(&self, index: u32) -> Vec<Result<FoundGpu, Unreadable>> {
        let device = match self.0.device_by_index(index) {
            Ok(device) => device,
            Err(error) => return vec![Err(unreadable(index, None, error))],
        };
        let partitioned = device.mig_mode().is_ok_and(|mode| mode.current != 0);
        let card = Self::found(index, &device, partitioned.then_some(Mig::Parent));
        let card = card.map_err(|error| unreadable(index, device.uuid().ok(), error));
        let instances = match &card {
            Ok(card) if partitioned => self.instances(index, &device, &card.uuid),
            _ => Vec::new(),
        };
        std::iter::once(card).chain(instances).collect()
    }
}

/// The kind of an instance.
#[derive(Debug, Clone, Copy)]
enum Level {
    Gpu,
    Compute,
}

impl Management for Nvml {
    fn versions(&self) -> Result<Versions, ManagementError> {
        let cuda = self.0.sys_cuda_driver_version().map_err(told)?;
        let part = |value: i32| u32::try_from(value).unwrap_or_default();
        Ok(Versions {
            driver: self.0.sys_driver_version().map_err(told)?,
            cuda: (
                part(nvml_wrapper::cuda_driver_version_major(cuda)),
                part(nvml_wrapper::cuda_driver_version_minor(cuda)),
            ),
        })
    }

    fn gpus(&self) -> Result<Vec<Result<FoundGpu, Unreadable>>, ManagementError> {
        let count = self.0.device_count().map_err(told)?;
        Ok((0..count).flat_map(|index| self.read_one(index)).collect())
    }

    fn read(&self, uuid: &str) -> Result<Reading, ManagementError> {
        let device = self.0.device_by_uuid(uuid).map_err(told)?;
        let is_instance = device.mig_is_mig_device_handle().unwrap_or(false);
        let parent = if is_instance { device.mig_parent_device().ok() } else { None };
        let card = parent.as_ref().unwrap_or(&device);
        let throttle = known(card.current_throttle_reasons())?.unwrap_or(ThrottleReasons::NONE);
        Ok(Reading {
            sm_clock_mhz: known(card.clock_info(Clock::SM))?,
            memory_clock_mhz: known(card.clock_info(Clock::Memory))?,
            temperature_c: known(card.temperature(TemperatureSensor::Gpu))?,
            power_w: known(card.power_usage())?.map(|milliwatts| milliwatts / 1000),
            throttle: THROTTLES
                .iter()
                .filter(|(reason, _)| throttle.contains(*reason))
                .map(|(_, name)| (*name).to_owned())
                .collect(),
            processes: known(device.running_compute_processes())?
                .unwrap_or_default()
                .into_iter()
                .map(|process| process.pid)
                .collect(),
        })
    }

    fn listen(
        &self,
        uuids: &[String],
        tell: &mut dyn FnMut(Option<GpuEvent>) -> ControlFlow<()>,
    ) -> Result<(), ManagementError> {
        let mut refused = Vec::new();
        // A refusal uses the set up, and says nothing about the other GPUs.
        let set = loop {
            match self.events_of(uuids.iter().filter(|uuid| !refused.contains(uuid))) {
                Ok(set) => break set,
                Err((Some(uuid), error)) if refused.len() + 1 < uuids.len() => {
                    tracing::warn!(gpu.uuid = %uuid, error = %error, "the driver reports no events of a GPU");
                    refused.push(uuid);
                }
                Err((_, error)) => return Err(error),
            }
        };
        loop {
            let event = match set.wait(EVENT_WAIT_MS) {
                Ok(event) => {
                    let kind = match event.event_data {
                        Some(XidError::Value(number)) => GpuEventKind::Xid(number),
                        Some(XidError::Unknown) => GpuEventKind::Xid(UNKNOWN_XID),
                        None => GpuEventKind::UncorrectedMemory,
                    };
                    Some(GpuEvent { uuid: event.device.uuid().ok(), kind })
                }
                Err(NvmlError::Timeout) => None,
                Err(error) => return Err(told(error)),
            };
            if tell(event).is_break() {
                return Ok(());
            }
        }
    }
}

impl Nvml {
    /// Asks the driver to report the errors of these GPUs. The error names the GPU that it refuses.
    fn events_of<'a>(
        &self,
        uuids: impl Iterator<Item = &'a String>,
    ) -> Result<EventSet<'_>, (Option<&'a String>, ManagementError)> {
        let mut set = self.0.create_event_set().map_err(|error| (None, told(error)))?;
        for uuid in uuids {
            let refused = |error| (Some(uuid), told(error));
            let device = self.0.device_by_uuid(uuid.as_str()).map_err(refused)?;
            let events = EventTypes::CRITICAL_XID_ERROR | EventTypes::DOUBLE_BIT_ECC_ERROR;
            let events = device.supported_event_types().map_or(events, |supported| supported & events);
            set = device.register_events(events, set).map_err(|error| refused(error.error))?;
        }
        Ok(set)
    }
}

/// Returns the number of cores of a multiprocessor; `None` for unknown architectures.
fn cores_of_each(capability: ComputeCapability) -> Option<u32> {
    match (capability.major, capability.minor) {
        (7, _) | (8, 0) => Some(64),
        (8 | 9 | 10 | 12, _) => Some(128),
        _ => None,
    }
}

fn compute_mode(mode: wrapped::ComputeMode) -> ComputeMode {
    match mode {
        wrapped::ComputeMode::Default => ComputeMode::Shared,
        wrapped::ComputeMode::ExclusiveThread | wrapped::ComputeMode::ExclusiveProcess => ComputeMode::ExclusiveProcess,
        wrapped::ComputeMode::Prohibited => ComputeMode::Prohibited,
    }
}

fn unreadable(index: u32, uuid: Option<String>, error: NvmlError) -> Unreadable {
    Unreadable { index, uuid, why: told(error) }
}

/// Returns `None` for values that the driver does not offer.
///
/// # Errors
/// When the GPU is faulty.
fn known<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, ManagementError> {
    match answer.map_err(told) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_of_the_gpu() => Err(error),
        Err(_) => Ok(None),
    }
}

fn told(error: NvmlError) -> ManagementError {
    match error {
        NvmlError::LibloadingError(cause) => ManagementError::NoLibrary(cause.to_string()),
        NvmlError::LibraryNotFound => ManagementError::NoLibrary("a part of it is missing".to_owned()),
        NvmlError::DriverNotLoaded => ManagementError::NoDriver,
        NvmlError::NoPermission | NvmlError::OperatingSystem => ManagementError::NoPermission,
        NvmlError::LibRmVersionMismatch => ManagementError::VersionMismatch,
        NvmlError::GpuLost => ManagementError::Lost,
        NvmlError::ResetRequired => ManagementError::NeedsReset,
        NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
            ManagementError::Unsupported
        }
        other => ManagementError::Other(other.to_string()),
    }
}
