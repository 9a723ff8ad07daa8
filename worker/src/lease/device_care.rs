//! What becomes of steps on GPUs that fall ill, and of the GPUs.

use std::collections::BTreeSet;
use std::sync::Arc;

use nightshift_protocol::api::LeasedStep;
use nightshift_protocol::step::StepFailure;

use super::Work;
use super::carry::Ended;
use super::device::suspicion;
use super::held::{Hold, StopCause};
use super::life::Life;
use super::slots::Place;
use crate::gpu::{WEDGED, Ward};
use crate::port::Port;

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
            // The next heartbeat reports the result.
            drop(tokio::task::spawn_blocking(move || ward.release(&devices)));
        }
    }
}
