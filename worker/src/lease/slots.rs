//! What a worker has free, and what it has said to be free: processor slots and, for each device, places to share it
//! or the device alone.
//!
//! Nothing is said twice: what a call that is on its way says to be free belongs to that call until it is answered, so
//! that the answers to all of them together never bring more than there is room for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nightshift_protocol::api::{FreeDevice, FreeSlots, LeasedStep};
use nightshift_protocol::machine::{DeviceUse, Needs, Offers};
use tokio::sync::Notify;

use super::usage::Usage;

/// Where a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the processor, without a device.
    Cpu,
    /// On a device, beside others.
    Shared(u32),
    /// On a device, alone.
    Exclusive(u32),
}

impl Place {
    /// Where this step is to run; none when its route cannot be read or names a device without a number.
    pub(super) fn of(step: &LeasedStep) -> Option<Self> {
        let needs = Needs::parse_route(&step.route).ok()?;
        match (needs.device, step.device) {
            (DeviceUse::None, _) => Some(Self::Cpu),
            (DeviceUse::Shared, Some(index)) => Some(Self::Shared(index)),
            (DeviceUse::Exclusive, Some(index)) => Some(Self::Exclusive(index)),
            (_, None) => None,
        }
    }

    /// The device, when it is on one.
    pub(super) fn device(self) -> Option<u32> {
        match self {
            Self::Cpu => None,
            Self::Shared(index) | Self::Exclusive(index) => Some(index),
        }
    }
}

/// All slots of a worker.
#[derive(Debug)]
pub(super) struct Slots {
    table: Mutex<Table>,
    /// Told whenever something becomes free.
    pub(super) freed: Notify,
}

#[derive(Debug)]
struct Table {
    cpu_total: u32,
    cpu_held: u32,
    cpu_stated: u32,
    devices: Vec<Device>,
}

#[derive(Debug)]
struct Device {
    index: u32,
    places: u32,
    held: Occupancy,
    /// Whether a call that is on its way says something of it to be free: one at a time, or else an exclusive step
    /// could wait for ever behind calls that each keep a shared place.
    stated: bool,
    /// Whether nothing may begin on it: it is quarantined.
    withdrawn: bool,
    usage: Usage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occupancy {
    Shared(u32),
    Exclusive,
}

impl Device {
    fn free(&self) -> Option<FreeDevice> {
        let Occupancy::Shared(held) = self.held else { return None };
        if self.withdrawn {
            return None;
        }
        let free = FreeDevice { index: self.index, exclusive: held == 0, shared: self.places.saturating_sub(held) };
        (free.exclusive || free.shared > 0).then_some(free)
    }

    fn put(&mut self, held: Occupancy) {
        self.held = held;
        self.usage.set(!self.is_idle(), Instant::now());
    }

    fn is_idle(&self) -> bool {
        self.held == Occupancy::Shared(0)
    }
}

impl Table {
    fn device(&mut self, index: u32) -> Option<&mut Device> {
        self.devices.iter_mut().find(|device| device.index == index)
    }

    fn state_devices(&mut self, which: impl Fn(&Device) -> bool) -> Vec<FreeDevice> {
        let mut stated = Vec::new();
        for device in self.devices.iter_mut().filter(|device| !device.stated && which(device)) {
            if let Some(free) = device.free() {
                device.stated = true;
                stated.push(free);
            }
        }
        stated
    }

    /// Puts a step at a place; false when there is no room.
    fn hold(&mut self, place: Place) -> bool {
        match place {
            Place::Cpu => {
                let fits = self.cpu_held < self.cpu_total;
                self.cpu_held += u32::from(fits);
                fits
            }
            Place::Shared(index) => {
                let Some(device) = self.device(index) else { return false };
                match device.held {
                    Occupancy::Shared(held) if held < device.places && !device.withdrawn => {
                        device.put(Occupancy::Shared(held + 1));
                    }
                    _ => return false,
                }
                true
            }
            Place::Exclusive(index) => {
                let Some(device) = self.device(index).filter(|device| device.is_idle() && !device.withdrawn) else {
                    return false;
                };
                device.put(Occupancy::Exclusive);
                true
            }
        }
    }

    fn release(&mut self, place: Place) {
        match place {
            Place::Cpu => self.cpu_held = self.cpu_held.saturating_sub(1),
            Place::Shared(index) | Place::Exclusive(index) => {
                if let Some(device) = self.device(index) {
                    device.put(match device.held {
                        Occupancy::Shared(held) => Occupancy::Shared(held.saturating_sub(1)),
                        Occupancy::Exclusive => Occupancy::Shared(0),
                    });
                }
            }
        }
    }
}

impl Slots {
    /// The slots of a machine on which nothing runs.
    pub(super) fn new(offers: &Offers) -> Arc<Self> {
        let begin = Instant::now();
        let device = |offer: &nightshift_protocol::machine::DeviceOffer| Device {
            index: offer.index,
            places: offer.shared_slots,
            held: Occupancy::Shared(0),
            stated: false,
            withdrawn: offer.quarantine.is_some(),
            usage: Usage::new(begin),
        };
        let devices = offers.devices.iter().map(device).collect();
        let table = Table { cpu_total: offers.cpu_slots, cpu_held: 0, cpu_stated: 0, devices };
        Arc::new(Self { table: Mutex::new(table), freed: Notify::new() })
    }

    /// States all processor slots and all devices on which nothing is: nothing but the answer changes what of them is
    /// free. None when nothing of that kind is free.
    pub(super) fn state_idle(self: &Arc<Self>) -> Option<Statement> {
        let mut table = self.table();
        let cpu = table.cpu_total.saturating_sub(table.cpu_held + table.cpu_stated);
        table.cpu_stated += cpu;
        let devices = table.state_devices(Device::is_idle);
        drop(table);
        self.statement(cpu, devices)
    }

    /// States places beside steps that are on a device already. None when there are none.
    pub(super) fn state_shared(self: &Arc<Self>) -> Option<Statement> {
        let devices = self.table().state_devices(|device| !device.is_idle());
        self.statement(0, devices)
    }

    fn statement(self: &Arc<Self>, cpu: u32, devices: Vec<FreeDevice>) -> Option<Statement> {
        (cpu > 0 || !devices.is_empty()).then(|| Statement { slots: Arc::clone(self), cpu, devices })
    }

    /// For each device, for how long of the last hour a step was on it, and how long that hour is so far.
    pub(super) fn uses(&self, now: Instant) -> Vec<(u32, Duration, Duration)> {
        let table = self.table();
        let of = |device: &Device| {
            let (used, of) = device.usage.of_the_last_hour(now);
            (device.index, used, of)
        };
        table.devices.iter().map(of).collect()
    }

    /// Keeps everything off these devices from now on, and nothing off the others.
    pub(super) fn withdraw_only(&self, devices: &BTreeSet<u32>) {
        for device in &mut self.table().devices {
            device.withdrawn = devices.contains(&device.index);
        }
        self.freed.notify_waiters();
    }

    /// Returns whether nothing may begin on a device.
    pub(super) fn is_withdrawn(&self, index: u32) -> bool {
        self.table().device(index).is_some_and(|device| device.withdrawn)
    }

    /// Waits for room for a step that came without having been asked for.
    pub(super) async fn wait_for(self: &Arc<Self>, place: Place) -> Option<Slot> {
        loop {
            // Before the look: what becomes free in between counts.
            let freed = self.freed.notified();
            if let Place::Shared(index) | Place::Exclusive(index) = place
                && self.table().device(index).is_none_or(|device| device.withdrawn)
            {
                return None;
            }
            if let Some(slot) = self.try_hold_unstated(place) {
                return Some(slot);
            }
            freed.await;
        }
    }

    fn try_hold_unstated(self: &Arc<Self>, place: Place) -> Option<Slot> {
        let mut table = self.table();
        let is_unstated = match place {
            Place::Cpu => table.cpu_held + table.cpu_stated < table.cpu_total,
            Place::Shared(index) | Place::Exclusive(index) => table.device(index).is_some_and(|device| !device.stated),
        };
        let held = is_unstated && table.hold(place);
        drop(table);
        held.then(|| Slot { slots: Arc::clone(self), place: Some(place) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is a few assignments that cannot panic: the table is whole whatever happened elsewhere.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call that is on its way says to be free. What is not taken from it is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Statement {
    slots: Arc<Slots>,
    cpu: u32,
    devices: Vec<FreeDevice>,
}

impl Statement {
    /// As the call says it.
    pub(super) fn free(&self) -> FreeSlots {
        FreeSlots { cpu: self.cpu, devices: self.devices.clone() }
    }

    /// Takes the slot for a step of the answer; none when the answer brought more than was stated.
    pub(super) fn take(&mut self, place: Place) -> Option<Slot> {
        match place {
            Place::Cpu if self.cpu == 0 => return None,
            Place::Shared(index) | Place::Exclusive(index)
                if !self.devices.iter().any(|device| device.index == index) =>
            {
                return None;
            }
            _ => {}
        }
        let mut table = self.slots.table();
        if !table.hold(place) {
            return None;
        }
        if place == Place::Cpu {
            self.cpu -= 1;
            table.cpu_stated = table.cpu_stated.saturating_sub(1);
        }
        drop(table);
        Some(Slot { slots: Arc::clone(&self.slots), place: Some(place) })
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        {
            let mut table = self.slots.table();
            table.cpu_stated = table.cpu_stated.saturating_sub(self.cpu);
            for stated in &self.devices {
                if let Some(device) = table.device(stated.index) {
                    device.stated = false;
                }
            }
        }
        self.slots.freed.notify_waiters();
    }
}

/// The room that one step takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    /// None once it was left.
    place: Option<Place>,
}

impl Slot {
    /// Leaves the place and states in the same moment what is free there now; nothing, while another call states it.
    pub(super) fn leave_and_state(mut self) -> Option<Statement> {
        let slots = Arc::clone(&self.slots);
        let place = self.place.take()?;
        let mut table = slots.table();
        table.release(place);
        let (cpu, devices) = match place {
            Place::Cpu => {
                table.cpu_stated += 1;
                (1, Vec::new())
            }
            Place::Shared(index) | Place::Exclusive(index) => (0, table.state_devices(|device| device.index == index)),
        };
        drop(table);
        slots.statement(cpu, devices)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.slots.table().release(place);
        }
        self.slots.freed.notify_waiters();
    }
}
