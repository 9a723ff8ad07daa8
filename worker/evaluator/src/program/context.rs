//! Where an evaluation runs.

use std::path::PathBuf;
use std::sync::Arc;

use nightshift_protocol::measurement::DeviceConditions;
use nightshift_sandbox::DeviceAccess;
use nightshift_sandbox::process::{CancelFlag, ProcessError};
use nightshift_toolchain::Host;

use super::pool::ProcessPool;
use crate::cores::TimedCores;
use crate::device::Gpu;
use crate::lock::{DeviceGuard, DeviceLock, DeviceMode, holds_guard};
use crate::memory::HostMemory;

/// Where an evaluation runs.
#[derive(Debug, Clone, Copy)]
pub struct ExecutionContext<'a> {
    /// What programs are run with.
    pub host: &'a Host,
    /// Ends everything.
    pub cancel: &'a CancelFlag,
    /// Where programs compute.
    pub place: Place<'a>,
}

/// Where programs compute.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// On the host.
    Host(&'a HostMemory),
    /// On a device.
    Device(&'a DevicePlace<'a>),
}

/// A device, and what the evaluations that use it share.
#[derive(Debug)]
pub struct DevicePlace<'a> {
    /// The evaluator's context on the device.
    pub gpu: Arc<Gpu>,
    /// How a sandboxed process gets to the device.
    pub access: DeviceAccess,
    /// Libraries of the toolkit that programs may rely on.
    pub libraries: Vec<PathBuf>,
    /// Keeps evaluations apart; none where there is one at a time.
    pub lock: Option<&'a DeviceLock>,
    /// Processes that wait for programs; none where every evaluation starts its own.
    pub pool: Option<&'a ProcessPool>,
    /// Cores of the host for what is timed; none where none are reserved.
    pub cores: Option<&'a TimedCores>,
    /// Observes the device while it is measured on.
    pub monitor: Option<&'a dyn DeviceMonitor>,
}

/// Observes a device.
pub trait DeviceMonitor: std::fmt::Debug + Sync {
    /// Returns the state of the device now; none where it cannot be read.
    fn observe(&self) -> Option<ObservedConditions>;
}

/// The state of a device at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedConditions {
    /// Clocks, temperature and power.
    pub conditions: DeviceConditions,
    /// Reasons why the device is slower than it could be, and processes that do not belong to the worker: a change of these
    /// makes samples incomparable.
    pub disturbances: Vec<String>,
    /// Processes on it that are surely not the worker's.
    pub foreign_processes: u32,
}

/// Largest change of the multiprocessors' clock between comparable samples, in hundredths.
const MAX_CLOCK_CHANGE_PERCENT: u32 = 3;

/// Largest change of the temperature between comparable samples, in degrees.
const MAX_TEMPERATURE_CHANGE_C: u32 = 15;

impl ObservedConditions {
    /// Returns why what was timed since an earlier observation does not count, and nothing where it does.
    ///
    /// Power as such is no reason: each program draws its own. That it made the device slower is one.
    #[must_use]
    pub fn changed_since(&self, before: &Self) -> Option<String> {
        let (was, is) = (&before.conditions, &self.conditions);
        if let Some((was, is)) = was.sm_clock_mhz.zip(is.sm_clock_mhz)
            && was.abs_diff(is) * 100 > was.max(is) * MAX_CLOCK_CHANGE_PERCENT
        {
            return Some(format!("the clock of the multiprocessors went from {was} to {is} MHz"));
        }
        if let Some((was, is)) = was.memory_clock_mhz.zip(is.memory_clock_mhz)
            && was != is
        {
            return Some(format!("the clock of the memory went from {was} to {is} MHz"));
        }
        if let Some((was, is)) = was.temperature_c.zip(is.temperature_c)
            && was.abs_diff(is) > MAX_TEMPERATURE_CHANGE_C
        {
            return Some(format!("the temperature went from {was} to {is} degrees"));
        }
        let differs = |one: &Self, other: &Self| {
            one.disturbances.iter().find(|disturbance| !other.disturbances.contains(disturbance)).cloned()
        };
        let foreign = (self.foreign_processes > 0)
            .then(|| format!("{} processes of others are on the GPU", self.foreign_processes));
        differs(self, before).or_else(|| differs(before, self).map(|gone| format!("no longer: {gone}"))).or(foreign)
    }
}

impl<'a> ExecutionContext<'a> {
    /// The device; none on the host.
    #[must_use]
    pub fn device(&self) -> Option<&'a DevicePlace<'a>> {
        match self.place {
            Place::Host(_) => None,
            Place::Device(device) => Some(device),
        }
    }

    /// Waits until the device may be used in this mode. Returns nothing where evaluations need not be kept apart. Fails when the work is
    /// cancelled; processes are ended then without a guard.
    pub(crate) fn lock(&self, mode: DeviceMode) -> Result<Option<DeviceGuard<'a>>, ProcessError> {
        debug_assert!(!holds_guard(), "a thread that holds a guard may wait for itself");
        self.device().and_then(|device| device.lock).map(|lock| lock.lock(mode, self.cancel)).transpose()
    }

    /// Cores of the host for what is timed.
    pub(crate) fn cores(&self) -> Option<&'a TimedCores> {
        self.device().and_then(|device| device.cores)
    }

    /// The processes that wait for programs.
    pub(crate) fn pool(&self) -> Option<&'a ProcessPool> {
        self.device().and_then(|device| device.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_changed_meanwhile_rejects_what_was_timed() {
        let at = |clock: u32, disturbances: &[&str]| ObservedConditions {
            conditions: DeviceConditions { sm_clock_mhz: Some(clock), ..DeviceConditions::default() },
            disturbances: disturbances.iter().map(|text| (*text).to_owned()).collect(),
            foreign_processes: 0,
        };
        let throttled = at(1980, &["throttled: power"]);
        assert_eq!(at(1975, &[]).changed_since(&at(1980, &[])), None);
        assert!(at(1500, &[]).changed_since(&at(1980, &[])).is_some());
        assert!(throttled.changed_since(&at(1980, &[])).is_some());
        assert!(at(1980, &[]).changed_since(&throttled).is_some());
        assert_eq!(throttled.changed_since(&throttled), None);
        let shared = ObservedConditions { foreign_processes: 1, ..at(1980, &[]) };
        assert!(shared.changed_since(&shared).is_some());
    }
}
