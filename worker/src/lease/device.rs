//! What becomes of steps on GPUs that fall ill, and of the GPUs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use nightshift_protocol::api::{LeasedStep, QuarantinedDevice};
use nightshift_protocol::machine::Offers;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::verdict::ProcessEnd;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::carry::Ended;
use super::held::{Hold, StopCause};
use super::life::Life;
use super::slots::Place;
use super::{Work, WorkerError};
use crate::gpu::{Gpus, LOST, WEDGED, Ward};
use crate::port::{Port, PortError};

impl<P: Port, W: Work> Life<P, W> {
    /// Carries a step out, and looks afterwards at the device that it was on.
    pub(super) async fn at_its_place(&self, step: &LeasedStep, hold: &Arc<Hold>, place: Place) -> Ended {
        let (ended, survivors) = self.on_a_thread(step, hold).await;
        let Some((ward, device)) = self.ward.clone().zip(place.device()) else { return ended };
        let Some(result) = &ended else {
            ward.never_ends(device);
            self.keep_off_the_ill(&ward);
            let quarantine = ward.quarantine_of(device)?;
            let message =
                format!("the step was killed and does not end ({}): it is tried again elsewhere", quarantine.reason);
            return Some(Err(StepFailure::retriable(WEDGED, message)));
        };
        let suspicion = match hold.cause() {
            None | Some(StopCause::TimedOut) => suspicion(result),
            // Killed in the middle of whatever it did: that says nothing.
            Some(StopCause::Lost | StopCause::Cancelled | StopCause::ShuttingDown) => None,
        };
        let looked = {
            let ward = Arc::clone(&ward);
            tokio::task::spawn_blocking(move || ward.after_step(device, suspicion.as_deref(), &survivors)).await
        };
        // Before the place is left: nothing more is stated to be free there.
        self.keep_off_the_ill(&ward);
        match looked {
            Ok(Err(failure)) => Some(Err(failure)),
            _ => ended,
        }
    }

    /// Follows what becomes of the devices, until this life is over.
    pub(super) async fn mind_devices(self: Arc<Self>) {
        let Some(ward) = self.ward.clone() else { return };
        let mut changes = ward.subscribe();
        loop {
            changes.borrow_and_update();
            self.keep_off_the_ill(&ward);
            match self.unless_over(changes.changed()).await {
                Some(Ok(())) => {}
                None | Some(Err(_)) => return,
            }
        }
    }

    fn keep_off_the_ill(&self, ward: &Ward) {
        let ill: BTreeSet<u32> = ward.quarantined().into_iter().map(|ill| ill.device).collect();
        self.slots.withdraw_only(&ill);
    }

    /// Tests devices that an operator released; what passes is stated to be free again.
    pub(super) fn release(&self, devices: Vec<u32>) {
        if let Some(ward) = self.ward.clone().filter(|_| !devices.is_empty()) {
            // Nobody waits for it: the next heartbeat tells what came out.
            drop(tokio::task::spawn_blocking(move || ward.release(&devices)));
        }
    }
}

/// What speaks against the device that this came from.
fn suspicion(result: &Result<StepOutput, StepFailure>) -> Option<String> {
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

/// What a life told the server of its devices.
#[derive(Debug)]
pub(super) struct Told(Mutex<Vec<QuarantinedDevice>>);

impl Told {
    /// What the registration told.
    pub(super) fn new(offers: &Offers) -> Self {
        let quarantined = offers.devices.iter().filter_map(|device| {
            Some(QuarantinedDevice { device: device.index, quarantine: device.quarantine.clone()? })
        });
        Self(Mutex::new(quarantined.collect()))
    }

    /// What the next heartbeat has to say: everything that is quarantined, also when it is no news, since the answer
    /// tells what was released; nothing when there is nothing and the server knows that.
    pub(super) fn news(&self, ward: Option<&Ward>) -> Option<Vec<QuarantinedDevice>> {
        let quarantined = ward?.quarantined();
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!quarantined.is_empty() || *told != quarantined).then_some(quarantined)
    }

    /// The server has it.
    pub(super) fn came_through(&self, news: Option<Vec<QuarantinedDevice>>) {
        if let Some(news) = news {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = news;
        }
    }
}

/// Offers quarantined devices as what they are.
pub(super) fn mark_quarantined(offers: &mut Offers, ward: Option<&Ward>) {
    let Some(ward) = ward else { return };
    for device in &mut offers.devices {
        device.quarantine = ward.quarantine_of(device.index);
    }
}

/// Listens to the driver on a thread of its own, until the guard is dropped.
pub(super) fn keep_watch(ward: &Arc<Ward>, gpus: Gpus) -> Result<DropGuard, WorkerError> {
    let stop = CancellationToken::new();
    let (ward, until) = (Arc::clone(ward), stop.clone());
    let started =
        std::thread::Builder::new().name("GPU watch".to_owned()).spawn(move || ward.keep_watch(&gpus, &until));
    started.map_err(|error| {
        let message = format!("no thread could be started to watch the GPUs: {error}");
        WorkerError::Refused(PortError { code: "worker.overloaded".to_owned(), message, transient: false })
    })?;
    Ok(stop.drop_guard())
}
