//! Reads the state of a GPU while programs are timed on it.

use std::sync::Arc;

use nightshift_evaluator::context::{DeviceMonitor, ObservedConditions};
use nightshift_protocol::measurement::DeviceConditions;

use super::management::{Management, ManagementError};
use super::processes::{Kin, Processes};

/// A reader of one device's state.
#[derive(Debug, Clone)]
pub struct Watch {
    management: Arc<dyn Management>,
    uuid: String,
    processes: Arc<dyn Processes>,
}

/// The state of a device at one moment. Values that the driver does not report are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Clock of the multiprocessors in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power in watts.
    pub power_w: Option<u32>,
    /// Throttle reasons, in alphabetical order.
    pub throttle: Vec<String>,
    /// Number of processes on it that belong to others.
    pub foreign_processes: u32,
    /// Ids of the processes on it that are not known to belong to this worker.
    strangers: Vec<u32>,
}

impl Watch {
    pub(super) fn new(management: Arc<dyn Management>, uuid: String, processes: Arc<dyn Processes>) -> Self {
        Self { management, uuid, processes }
    }

    /// Reads the current state of the device.
    pub fn sample(&self) -> Result<Conditions, ManagementError> {
        let reading = self.management.read(&self.uuid)?;
        let mut throttle = reading.throttle;
        throttle.sort_unstable();
        throttle.dedup();
        let mut strangers: Vec<(u32, Kin)> = reading
            .processes
            .into_iter()
            .map(|pid| (pid, self.processes.kin(pid)))
            .filter(|(_, kin)| *kin != Kin::Ours)
            .collect();
        strangers.sort_unstable_by_key(|(pid, _)| *pid);
        strangers.dedup_by_key(|(pid, _)| *pid);
        let foreign = strangers.iter().filter(|(_, kin)| *kin == Kin::Foreign).count();
        Ok(Conditions {
            sm_clock_mhz: reading.sm_clock_mhz,
            memory_clock_mhz: reading.memory_clock_mhz,
            temperature_c: reading.temperature_c,
            power_w: reading.power_w,
            throttle,
            foreign_processes: u32::try_from(foreign).unwrap_or(u32::MAX),
            strangers: strangers.into_iter().map(|(pid, _)| pid).collect(),
        })
    }
}

impl DeviceMonitor for Watch {
    fn observe(&self) -> Option<ObservedConditions> {
        let found =
            self.sample().map_err(|error| tracing::debug!(error = %error, "a GPU could not be observed")).ok()?;
        let throttled = found.throttle.iter().map(|reason| format!("the GPU is slower by itself ({reason})"));
        let strangers = found.strangers.iter().map(|pid| format!("another process ({pid}) is on the GPU"));
        Some(ObservedConditions {
            disturbances: throttled.chain(strangers).collect(),
            foreign_processes: found.foreign_processes,
            conditions: DeviceConditions {
                sm_clock_mhz: found.sm_clock_mhz,
                memory_clock_mhz: found.memory_clock_mhz,
                temperature_c: found.temperature_c,
                power_w: found.power_w,
            },
        })
    }
}
