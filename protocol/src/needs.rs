//! What a step may ask of a machine, as one canonical text (its route), and whether a machine's offers suffice.
//!
//! `worker/cuda/exclusive?cc=9.0&memory=85899345920&tools=ncu,nsys&labels=pool=night`: equal needs give equal texts, and
//! every text that [`Needs::route`] writes is read back by [`Needs::parse_route`] as the same needs.

use std::collections::BTreeSet;

use crate::capability::invalid;
pub use crate::capability::{ComputeCapability, InvalidNeed, Label, MAX_LABEL_CHARS, Tool};
use crate::machine::{DeviceOffer, DeviceUse, Executor, Needs, Offers};
use crate::target::Target;

impl Needs {
    /// The canonical text.
    #[must_use]
    pub fn route(&self) -> String {
        let target = self.target.map_or("-", Target::as_str);
        let executor = match self.executor {
            Executor::Agent => "agent",
            Executor::Worker => "worker",
        };
        let device = match self.device {
            DeviceUse::None => "none",
            DeviceUse::Shared => "shared",
            DeviceUse::Exclusive => "exclusive",
        };
        let mut more = Vec::new();
        if let Some(capability) = self.compute_capability {
            more.push(format!("cc={capability}"));
        }
        if let Some(bytes) = self.device_memory_bytes {
            more.push(format!("memory={bytes}"));
        }
        if !self.tools.is_empty() {
            more.push(format!("tools={}", joined(self.tools.iter().map(|tool| tool.as_str()))));
        }
        if !self.labels.is_empty() {
            more.push(format!("labels={}", joined(self.labels.iter().map(Label::as_str))));
        }
        let more = if more.is_empty() { String::new() } else { format!("?{}", more.join("&")) };
        format!("{executor}/{target}/{device}{more}")
    }

    /// Reads a canonical text.
    pub fn parse_route(text: &str) -> Result<Self, InvalidNeed> {
        let wrong = || invalid(text, "a route such as worker/cpu/exclusive");
        let (plain, more) = text.split_once('?').map_or((text, ""), |(plain, more)| (plain, more));
        let parts: Vec<&str> = plain.split('/').collect();
        let [executor, target, device] = parts.as_slice() else { return Err(wrong()) };
        let mut needs = match *executor {
            "agent" => Self::agent(),
            "worker" => Self::worker(Target::Cpu, DeviceUse::None),
            _ => return Err(wrong()),
        };
        needs.target = match *target {
            "-" => None,
            target => Some(Target::ALL.into_iter().find(|known| known.as_str() == target).ok_or_else(wrong)?),
        };
        needs.device = match *device {
            "none" => DeviceUse::None,
            "shared" => DeviceUse::Shared,
            "exclusive" => DeviceUse::Exclusive,
            _ => return Err(wrong()),
        };
        for part in more.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            match name {
                "cc" => needs.compute_capability = Some(value.parse()?),
                "memory" => needs.device_memory_bytes = Some(value.parse().map_err(|_| wrong())?),
                "tools" => needs.tools = value.split(',').map(str::parse).collect::<Result<BTreeSet<_>, _>>()?,
                "labels" => needs.labels = value.split(',').map(str::parse).collect::<Result<BTreeSet<_>, _>>()?,
                _ => return Err(wrong()),
            }
        }
        Ok(needs)
    }

    /// Whether the machine as such suffices: executor, target, tools and labels. Devices are asked one by one.
    #[must_use]
    pub fn fit_machine(&self, offers: &Offers) -> bool {
        self.executor == Executor::Worker
            && self.target.is_some_and(|target| offers.targets.contains(&target))
            && self.tools.is_subset(&offers.tools)
            && self.labels.is_subset(&offers.labels)
    }

    /// Whether this device suffices, for needs with a device.
    #[must_use]
    pub fn fit_device(&self, device: &DeviceOffer) -> bool {
        device.quarantine.is_none()
            && self.target == Some(device.target)
            && self.compute_capability.is_none_or(|least| device.compute_capability.is_some_and(|has| has >= least))
            && self.device_memory_bytes.is_none_or(|least| device.memory_bytes >= least)
    }

    /// Whether the machine can carry it out at all, when nothing else runs on it.
    #[must_use]
    pub fn fit(&self, offers: &Offers) -> bool {
        self.fit_machine(offers)
            && match self.device {
                DeviceUse::None => offers.cpu_slots > 0,
                DeviceUse::Shared | DeviceUse::Exclusive => offers.devices.iter().any(|device| self.fit_device(device)),
            }
    }

    /// What of it this machine lacks, in words: empty when nothing is lacking.
    #[must_use]
    pub fn lacking(&self, offers: &Offers) -> Vec<String> {
        let mut lacking = Vec::new();
        if let Some(target) = self.target
            && !offers.targets.contains(&target)
        {
            lacking.push(format!("target {}", target.as_str()));
        }
        lacking.extend(self.tools.difference(&offers.tools).map(|tool| tool.as_str().to_owned()));
        lacking.extend(self.labels.difference(&offers.labels).map(|label| format!("label {}", label.as_str())));
        if self.device != DeviceUse::None && !offers.devices.iter().any(|device| self.fit_device(device)) {
            let capability = self.compute_capability.map(|least| format!(" of compute capability {least}"));
            let memory = self.device_memory_bytes.map(|least| format!(" with {} GiB", least >> 30));
            let would_fit = |device: &DeviceOffer| {
                device.quarantine.is_some() && self.fit_device(&DeviceOffer { quarantine: None, ..device.clone() })
            };
            let well = if offers.devices.iter().any(would_fit) { " that is not quarantined" } else { "" };
            lacking.push(format!("a device{}{}{well}", capability.unwrap_or_default(), memory.unwrap_or_default()));
        }
        lacking
    }
}

fn joined<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    parts.collect::<Vec<_>>().join(",")
}
