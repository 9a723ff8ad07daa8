//! Handles faulty GPUs and the steps on them.

use std::collections::BTreeSet;
use std::sync::Arc;

use nightshift_protocol::api::LeasedStep;

use super::Work;
use super::carry::Ended;
use super::device::suspicion;
use super::held::{HeldStep, StopCause};
use super::session::WorkerSession;
use super::slots::Place;
use crate::gpu::DeviceHealthMonitor;
use crate::server_api::ServerApi;

impl<P: ServerApi, W: Work> WorkerSession<P, W> {
    /// Carries out a step, and checks its device afterwards.
    pub(super) async fn at_its_place(&self, step: &LeasedStep, hold: &Arc<HeldStep>, place: Place) -> Ended {
        let (ended, survivors) = self.on_a_thread(step, hold).await;
        let Some((monitor, device)) = self.monitor.clone().zip(place.device()) else { return ended };
        let suspicion = match (&ended, hold.cause()) {
            // The worker ends, and its quarantines with it.
            (None, Some(StopCause::ShuttingDown)) => return None,
            (None, _) => Some("a killed step on it does not end".to_owned()),
            (Some(result), None | Some(StopCause::TimedOut)) => suspicion(result),
            // The end of a killed step says nothing about the device.
            (Some(_), Some(StopCause::Lost | StopCause::Cancelled | StopCause::ShuttingDown)) => None,
        };
        let (hangs, looks) = (ended.is_none(), Arc::clone(&monitor));
        let looked = tokio::task::spawn_blocking(move || match suspicion {
            Some(why) if hangs => looks.after_hang(device, &why),
            suspicion => looks.after_step(device, suspicion.as_deref(), &survivors),
        });
        let looked = looked.await;
        // Before the slot is released, so that no claim states it.
        self.withdraw_quarantined(&monitor);
        match looked {
            Ok(Err(failure)) => Some(Err(failure)),
            _ => ended,
        }
    }

    /// Follows changes of device health until this session is over.
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

    /// Tests devices that an operator released. Devices that pass are offered again.
    pub(super) fn release(&self, devices: Vec<u32>) {
        if let Some(monitor) = self.monitor.clone().filter(|_| !devices.is_empty()) {
            // The next heartbeat reports the result.
            drop(tokio::task::spawn_blocking(move || monitor.release(&devices)));
        }
    }
}
