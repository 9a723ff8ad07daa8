//! What a session tells the server of its devices, and what failures say about them.

use std::sync::{Arc, Mutex, PoisonError};

use nightshift_protocol::api::QuarantinedDevice;
use nightshift_protocol::machine::Offers;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::verdict::ProcessEnd;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::WorkerError;
use crate::gpu::{DeviceHealthMonitor, Gpus, LOST, WEDGED};
use crate::server_api::ServerApiError;

/// What speaks against the device that this came from.
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

/// Whether it is the device that kept a step from being carried out.
pub(super) fn is_of_a_device(failure: &StepFailure) -> bool {
    failure.code == WEDGED || failure.code == LOST
}

/// What a session told the server of its devices.
#[derive(Debug)]
pub(super) struct ReportedQuarantines(Mutex<Vec<QuarantinedDevice>>);

impl ReportedQuarantines {
    /// What the registration told.
    pub(super) fn new(offers: &Offers) -> Self {
        let quarantined = offers.devices.iter().filter_map(|device| {
            Some(QuarantinedDevice { device: device.index, quarantine: device.quarantine.clone()? })
        });
        Self(Mutex::new(quarantined.collect()))
    }

    /// What the next heartbeat has to say: everything that is quarantined, also when it is no news, since the answer
    /// tells what was released; nothing when there is nothing and the server knows that.
    pub(super) fn to_report(&self, monitor: Option<&DeviceHealthMonitor>) -> Option<Vec<QuarantinedDevice>> {
        let quarantined = monitor?.quarantined();
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!quarantined.is_empty() || *told != quarantined).then_some(quarantined)
    }

    /// The server has it.
    pub(super) fn acknowledge(&self, news: Option<Vec<QuarantinedDevice>>) {
        if let Some(news) = news {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = news;
        }
    }
}

/// Offers quarantined devices as what they are.
pub(super) fn mark_quarantined(offers: &mut Offers, monitor: Option<&DeviceHealthMonitor>) {
    let Some(monitor) = monitor else { return };
    for device in &mut offers.devices {
        device.quarantine = monitor.quarantine_of(device.index);
    }
}

/// Listens to the driver on a thread of its own, until the guard is dropped.
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
