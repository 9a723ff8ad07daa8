//! The GPUs of this machine: discovery, selection, state and health.
//!
//! The driver's management library is loaded at run time. On a machine without GPU or driver, the list of GPUs is empty
//! and holds the reason. This module starts no kernel and holds no context in the worker's process.

mod choice;
mod device_health;
mod discovery;
#[cfg(test)]
pub(crate) mod fake;
mod health;
mod management;
#[expect(unsafe_code, reason = "two questions that the wrapper of the management library does not have")]
mod nvml;
#[expect(unsafe_code, reason = "calls the driver")]
mod probe;
mod processes;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
mod watch;
mod xid;

/// First argument of the child process that tests a GPU.
pub(crate) const PROBE_ARGUMENT: &str = "__probe_gpu";

pub use self::choice::{DeviceChoice, InvalidChoice};
pub use self::device_health::{DeviceHealthMonitor, RETEST_INTERVAL, SURVIVOR_LIMIT};
pub use self::discovery::{Absence, FIRST_DEVICE, Gpu, Gpus, Hidden};
pub use self::health::{ChildProber, DeviceFault, Health, LOST, PROBE_LIMIT, Prober, UNPROBED, WEDGED};
pub use self::management::{
    FoundGpu, GpuEvent, GpuEventKind, Management, ManagementError, Reading, Unreadable, Versions,
};
pub use self::nvml::Nvml;
pub(crate) use self::probe::probe_main;
pub use self::processes::{Kin, ProcessTable, Processes};
pub use self::watch::{Conditions, Watch};
