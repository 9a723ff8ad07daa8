//! How a GPU is while something is timed on it, and whether that changed so much that a sample does not count.

use std::sync::Arc;

use super::management::{Management, ManagementError};
use super::processes::{Kin, Processes};

/// Largest change of the multiprocessors' clock that two samples may differ by, in hundredths.
const MAX_CLOCK_CHANGE_PERCENT: u32 = 3;
/// Largest change of temperature that two samples may differ by, in degrees.
const MAX_TEMPERATURE_CHANGE_C: u32 = 15;

/// Watches one device.
#[derive(Debug, Clone)]
pub struct Watch {
    management: Arc<dyn Management>,
    uuid: String,
    processes: Arc<dyn Processes>,
}

/// How a device is at one moment. What the driver does not tell is none.
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
    /// Why it is slower than it could be, in alphabetical order.
    pub throttle: Vec<String>,
    /// Processes on it that are surely not of this worker.
    pub foreign_processes: u32,
    /// Numbers of the processes on it that are not known to be ours.
    strangers: Vec<u32>,
}

impl Watch {
    pub(super) fn new(management: Arc<dyn Management>, uuid: String, processes: Arc<dyn Processes>) -> Self {
        Self { management, uuid, processes }
    }

    /// How the device is now.
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

impl Conditions {
    /// Why a sample that began under `before` and ended under these conditions does not count; none when it does.
    ///
    /// Power as such is no reason: each program draws its own. That it made the GPU slower is one.
    #[must_use]
    pub fn moved_since(&self, before: &Self) -> Option<String> {
        if let Some((was, is)) = before.sm_clock_mhz.zip(self.sm_clock_mhz)
            && was.abs_diff(is) * 100 > was.max(is) * MAX_CLOCK_CHANGE_PERCENT
        {
            return Some(format!("the clock of the multiprocessors went from {was} to {is} MHz"));
        }
        if let Some((was, is)) = before.memory_clock_mhz.zip(self.memory_clock_mhz)
            && was != is
        {
            return Some(format!("the clock of the memory went from {was} to {is} MHz"));
        }
        if let Some(new) = self.throttle.iter().find(|reason| !before.throttle.contains(reason)) {
            return Some(format!("the GPU became slower by itself ({new})"));
        }
        if let Some(gone) = before.throttle.iter().find(|reason| !self.throttle.contains(reason)) {
            return Some(format!("the GPU had been slower by itself and is no longer ({gone})"));
        }
        if let Some((was, is)) = before.temperature_c.zip(self.temperature_c)
            && was.abs_diff(is) > MAX_TEMPERATURE_CHANGE_C
        {
            return Some(format!("the temperature went from {was} to {is} degrees"));
        }
        if let Some(pid) = self.strangers.iter().find(|pid| !before.strangers.contains(pid)) {
            return Some(format!("another process ({pid}) came to the GPU"));
        }
        (self.foreign_processes > 0).then(|| format!("{} processes of others are on the GPU", self.foreign_processes))
    }
}
