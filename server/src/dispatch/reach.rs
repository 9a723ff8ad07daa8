//! The steps that a worker can begin: matching routes, in the lanes of a claim.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use nightshift_engine::store::{ClaimRequest, DeviceLane};
use nightshift_protocol::api::{FreeDevice, FreeSlots};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::machine::{DeviceOffer, DeviceUse, Executor, Needs, Offers};
use nightshift_protocol::time::TimestampMs;

/// Maximum number of routes per claim. If more match, the ones with the lowest ranks are named.
pub(super) const MAX_REACH: usize = 256;

/// A taker of steps.
#[derive(Debug, Clone)]
pub(crate) enum Taker {
    /// The agents of this server.
    Agents {
        /// Free slots for steps.
        slots: u32,
    },
    /// A worker.
    Machine {
        /// Its offers.
        offers: Arc<Offers>,
        /// Its free slots.
        free: FreeSlots,
    },
}

impl Taker {
    /// Creates the taker of a worker, with its free slots limited to its offers.
    pub(crate) fn machine(offers: &Arc<Offers>, free: &FreeSlots) -> Self {
        let mut seen = BTreeSet::new();
        let devices = free.devices.iter().filter_map(|device| {
            let offer = offer_of(offers, device.index)?;
            seen.insert(device.index).then(|| FreeDevice { shared: device.shared.min(offer.shared_slots), ..*device })
        });
        let free = FreeSlots { cpu: free.cpu.min(offers.cpu_slots), devices: devices.collect() };
        Self::Machine { offers: offers.clone(), free }
    }

    /// Returns a text of everything that decides what can begin. Takers with equal texts are of one kind.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Agents { slots } => format!("agents {slots}"),
            Self::Machine { offers, free } => {
                let devices: Vec<_> = offers
                    .devices
                    .iter()
                    .map(|device| (device.index, device.target, device.compute_capability, device.memory_bytes))
                    .collect();
                let free_devices: Vec<_> =
                    free.devices.iter().map(|device| (device.index, device.exclusive, device.shared)).collect();
                format!(
                    "{:?} {:?} {:?} {devices:?} {} {free_devices:?}",
                    offers.targets, offers.tools, offers.labels, free.cpu
                )
            }
        }
    }
}

fn offer_of(offers: &Offers, index: u32) -> Option<&DeviceOffer> {
    offers.devices.iter().find(|device| device.index == index)
}

/// The matching routes, as a claim names them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach {
    routes: Vec<String>,
    cpu_slots: u32,
    devices: Vec<DeviceLane>,
    all: HashSet<String>,
}

impl Reach {
    /// Returns the matching ones of these routes.
    pub(crate) fn new<'a>(taker: &Taker, routes: impl Iterator<Item = (&'a str, &'a Needs)>) -> Self {
        let mut reach = match taker {
            Taker::Agents { slots } => Self { cpu_slots: *slots, ..Self::default() },
            Taker::Machine { free, .. } => Self {
                cpu_slots: free.cpu,
                devices: free
                    .devices
                    .iter()
                    .map(|device| DeviceLane {
                        device: device.index,
                        exclusive: Vec::new(),
                        shared: Vec::new(),
                        shared_slots: device.shared,
                    })
                    .collect(),
                ..Self::default()
            },
        };
        for (route, needs) in routes {
            if reach.is_full() {
                break;
            }
            reach.add(taker, route, needs);
        }
        reach
    }

    /// Adds a new route if it matches, unless the limit is reached.
    pub(super) fn add(&mut self, taker: &Taker, route: &str, needs: &Needs) {
        if !self.is_full() && self.add_to_lanes(taker, route, needs) {
            self.all.insert(route.to_owned());
        }
    }

    /// Returns whether it holds the maximum number of routes.
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= MAX_REACH
    }

    /// Adds a route where it matches. Returns whether it matches any lane.
    fn add_to_lanes(&mut self, taker: &Taker, route: &str, needs: &Needs) -> bool {
        let (offers, free) = match taker {
            Taker::Agents { .. } => {
                let fits = needs.executor == Executor::Agent && self.cpu_slots > 0;
                if fits {
                    self.routes.push(route.to_owned());
                }
                return fits;
            }
            Taker::Machine { offers, free } => (offers, free),
        };
        if !needs.fit_machine(offers) {
            return false;
        }
        if needs.device == DeviceUse::None {
            if free.cpu > 0 {
                self.routes.push(route.to_owned());
            }
            return free.cpu > 0;
        }
        let mut fits = false;
        for (lane, free) in self.devices.iter_mut().zip(&free.devices) {
            if !offer_of(offers, free.index).is_some_and(|offer| needs.fit_device(offer)) {
                continue;
            }
            if needs.device == DeviceUse::Exclusive && free.exclusive {
                lane.exclusive.push(route.to_owned());
                fits = true;
            } else if needs.device == DeviceUse::Shared && free.shared > 0 {
                lane.shared.push(route.to_owned());
                fits = true;
            }
        }
        fits
    }

    /// Returns whether a step of this route can begin.
    pub(crate) fn contains(&self, route: &str) -> bool {
        self.all.contains(route)
    }

    /// Returns whether no step of any known route can begin.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the claim for all matching routes.
    pub(crate) fn request(&self, worker: &WorkerId, at: TimestampMs, expires_at: TimestampMs) -> ClaimRequest {
        ClaimRequest {
            worker: worker.clone(),
            routes: self.routes.clone(),
            cpu_slots: self.cpu_slots,
            devices: self
                .devices
                .iter()
                .filter(|lane| !lane.exclusive.is_empty() || !lane.shared.is_empty())
                .cloned()
                .collect(),
            at,
            expires_at,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::machine::{MachineFacts, SandboxReport};
    use nightshift_protocol::task::Target;
    use uuid::Uuid;

    use super::*;

    fn offers() -> Arc<Offers> {
        let device = |index: u32, memory_bytes: u64| DeviceOffer {
            index,
            target: Target::Cuda,
            name: "gpu".to_owned(),
            uuid: None,
            compute_capability: Some("9.0".parse().unwrap()),
            memory_bytes,
            shared_slots: 2,
            quarantine: None,
        };
        Arc::new(Offers {
            targets: vec![Target::Cpu, Target::Cuda],
            cpu_slots: 4,
            devices: vec![device(0, 1 << 30), device(1, 64 << 30)],
            tools: BTreeSet::new(),
            labels: BTreeSet::new(),
            machine: MachineFacts {
                host: String::new(),
                os: String::new(),
                processor: String::new(),
                cores: 1,
                features: Vec::new(),
                memory_bytes: 0,
                last_level_cache_bytes: None,
                core: None,
                cpp_toolchain: None,
                cuda_toolchain: None,
                gpus: Vec::new(),
                sandbox: SandboxReport::default(),
            },
        })
    }

    fn claim(free: &FreeSlots, routes: &[&str]) -> ClaimRequest {
        let taker = Taker::machine(&offers(), free);
        let parsed: Vec<(&str, Needs)> =
            routes.iter().map(|route| (*route, Needs::parse_route(route).unwrap())).collect();
        let reach = Reach::new(&taker, parsed.iter().map(|(route, needs)| (*route, needs)));
        reach.request(&WorkerId::from_uuid(Uuid::nil()), TimestampMs(1), TimestampMs(2))
    }

    fn device(index: u32, exclusive: bool, shared: u32) -> FreeDevice {
        FreeDevice { index, exclusive, shared }
    }

    #[test]
    fn a_route_is_claimed_on_each_device_that_suffices() {
        let free = FreeSlots { cpu: 1, devices: vec![device(0, true, 2), device(1, true, 2)] };
        let large = "worker/cuda/exclusive?memory=10000000000";
        let request =
            claim(&free, &["worker/cuda/none", "worker/cuda/exclusive", large, "worker/cuda/shared", "agent/-/none"]);
        assert_eq!((request.routes, request.cpu_slots), (vec!["worker/cuda/none".to_owned()], 1));
        let lanes: Vec<_> = request.devices.iter().map(|lane| (lane.exclusive.len(), lane.shared.len())).collect();
        assert_eq!(lanes, [(1, 1), (2, 1)]);
    }

    #[test]
    fn a_busy_device_is_left_out() {
        let free = FreeSlots { cpu: 0, devices: vec![device(0, false, 0), device(1, false, 1)] };
        let request = claim(&free, &["worker/cuda/none", "worker/cuda/exclusive", "worker/cuda/shared"]);
        assert!(request.routes.is_empty());
        let lanes: Vec<_> = request.devices.iter().map(|lane| (lane.device, lane.exclusive.len())).collect();
        assert_eq!(lanes, [(1, 0)]);
    }

    #[test]
    fn a_claim_is_limited_to_the_offers() {
        let devices = vec![device(0, false, 1_000), device(0, true, 1), device(7, true, 1)];
        let request = claim(&FreeSlots { cpu: u32::MAX, devices }, &["worker/cuda/none", "worker/cuda/shared"]);
        assert_eq!(request.cpu_slots, 4);
        let lanes: Vec<_> = request.devices.iter().map(|lane| (lane.device, lane.shared_slots)).collect();
        assert_eq!(lanes, [(0, 2)]);
    }
}
