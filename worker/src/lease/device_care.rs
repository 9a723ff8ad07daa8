//! What becomes of steps on GPUs that fall ill, and of the GPUs.

use std::collections::BTreeSet;
use std::sync::Arc;

use nightshift_protocol::api::LeasedStep;
use nightshift_protocol::step::StepFailure;

use super::Work;
use super::carry::Ended;
use super::device::suspicion;
use super::held::{HeldStep, StopCause};
use super::session::WorkerSession;
use super::slots::Place;
use crate::gpu::{DeviceHealthMonitor, WEDGED};
use crate::server_api::ServerApi;

impl<P: ServerApi, W: Work> WorkerSession<P, W> {
    /// Carries a step out, and looks afterwards at the device that it was on.
    pub(super) async fn at_its_place(&self, step: &LeasedStep, hold: &Arc<HeldStep>, place: Place) -> Ended {
        let (ended, survivors) = self.on_a_thread(step, hold).await;
        let Some((monitor, device)) = self.monitor.clone().zip(place.device()) else { return ended };
        let Some(result) = &ended else {
            monitor.record_hang(device);
            self.withdraw_quarantined(&monitor);
            let quarantine = monitor.quarantine_of(device)?;
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
            let monitor = Arc::clone(&monitor);
            tokio::task::spawn_blocking(move || monitor.after_step(device, suspicion.as_deref(), &survivors)).await
        };
        // Before the place is left: nothing more is stated to be free there.
        self.withdraw_quarantined(&monitor);
        match looked {
            Ok(Err(failure)) => Some(Err(failure)),
            _ => ended,
        }
    }

    /// Follows what becomes of the devices, until this session is over.
    pub(super) async fn mind_devices(self: Arc<Self>) {
        let Some(monitor) = self.monitor.clone() else { return };
        let mut changes = monitor.subscribe();
        loop {
            changes.borrow_and_update();
            self.withdraw_quarantined(&monitor);
            match self.unless_over(changes.changed()).await {
                Some(Ok(())) => {}
                None | Some(Err(_)) => return,
            }
        }
    }

    fn withdraw_quarantined(&self, monitor: &DeviceHealthMonitor) {
        let ill: BTreeSet<u32> = monitor.quarantined().into_iter().map(|ill| ill.device).collect();
        self.slots.withdraw_only(&ill);
    }

    /// Tests devices that an operator released; what passes is stated to be free again.
    pub(super) fn release(&self, devices: Vec<u32>) {
        if let Some(monitor) = self.monitor.clone().filter(|_| !devices.is_empty()) {
            // The next heartbeat reports the result.
            drop(tokio::task::spawn_blocking(move || monitor.release(&devices)));
        }
    }
}
