//! Reports quarantined devices to the server, and finds device faults in failures.

use std::sync::{Arc, Mutex, PoisonError};

use nightshift_protocol::api::QuarantinedDevice;
use nightshift_protocol::machine::Offers;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::verdict::ProcessEnd;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::WorkerError;
use crate::gpu::{DeviceHealthMonitor, Gpus, LOST, WEDGED};
use crate::server_api::ServerApiError;

/// Returns the suspicion against the device that a result raises.
pub(super) fn suspicion(result: &Result<StepOutput, StepFailure>) -> Option<String> {
    let of_end = |end: &ProcessEnd| {
        matches!(end, ProcessEnd::DeviceFault { .. } | ProcessEnd::TimedOut { .. }).then(|| end.describe())
    };
    match result {
        Ok(StepOutput::Checked { report }) => of_end(&report.end),
        Ok(StepOutput::MeasureFailed { end, .. }) => of_end(end),
        Ok(StepOutput::TaskRejected { code, .. }) => Some(code.clone()),
        Ok(_) => None,
        Err(failure) => Some(failure.to_string()),
    }
}

/// Returns whether a failure is a fault of the device.
pub(super) fn is_of_a_device(failure: &StepFailure) -> bool {
    failure.code == WEDGED || failure.code == LOST
}

/// The quarantines that the server knows.
#[derive(Debug)]
pub(super) struct ReportedQuarantines(Mutex<Vec<QuarantinedDevice>>);

impl ReportedQuarantines {
    /// Creates the state after the registration.
    pub(super) fn new(offers: &Offers) -> Self {
        let quarantined = offers.devices.iter().filter_map(|device| {
            Some(QuarantinedDevice { device: device.index, quarantine: device.quarantine.clone()? })
        });
        Self(Mutex::new(quarantined.collect()))
    }

    /// Returns the quarantines for the next heartbeat: all of them, because the answer names released ones. Returns `None`
    /// when there are none and the server knows that.
    pub(super) fn to_report(&self, monitor: Option<&DeviceHealthMonitor>) -> Option<Vec<QuarantinedDevice>> {
        let quarantined = monitor?.quarantined();
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!quarantined.is_empty() || *told != quarantined).then_some(quarantined)
    }

    /// Records that the server received these quarantines.
    pub(super) fn acknowledge(&self, news: Option<Vec<QuarantinedDevice>>) {
        if let Some(news) = news {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = news;
        }
    }
}

/// Marks quarantined devices in the capabilities.
pub(super) fn mark_quarantined(offers: &mut Offers, monitor: Option<&DeviceHealthMonitor>) {
    let Some(monitor) = monitor else { return };
    for device in &mut offers.devices {
        device.quarantine = monitor.quarantine_of(device.index);
    }
}

/// Watches events of the driver on a thread until the guard is dropped.
pub(super) fn watch_events(monitor: &Arc<DeviceHealthMonitor>, gpus: Gpus) -> Result<DropGuard, WorkerError> {
    let stop = CancellationToken::new();
    let (monitor, until) = (Arc::clone(monitor), stop.clone());
    let started =
        std::thread::Builder::new().name("GPU watch".to_owned()).spawn(move || monitor.watch_events(&gpus, &until));
    started.map_err(|error| {
        let message = format!("no thread could be started to watch the GPUs: {error}");
        WorkerError::Refused(ServerApiError { code: "worker.overloaded".to_owned(), message, transient: false })
    })?;
    Ok(stop.drop_guard())
}
