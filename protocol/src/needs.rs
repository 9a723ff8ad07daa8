//! What a step may ask of a machine, as one canonical text (its route), and whether a machine's offers suffice.
//!
//! `worker/cuda/exclusive?cc=9.0&memory=85899345920&tools=ncu,nsys&labels=pool=night`: equal needs give equal texts, and
//! every text that [`Needs::route`] writes is read back by [`Needs::parse_route`] as the same needs.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::machine::{DeviceOffer, DeviceUse, Executor, Needs, Offers};
use crate::task::Target;

/// Longest label, in characters.
pub const MAX_LABEL_CHARS: usize = 64;

/// A text that is none of what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}")]
pub struct InvalidNeed {
    /// What was given.
    pub text: String,
    /// What was expected, with its article.
    pub what: &'static str,
}

fn invalid(text: &str, what: &'static str) -> InvalidNeed {
    InvalidNeed { text: text.to_owned(), what }
}

/// Compute capability of a GPU, for example `9.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    /// Before the dot.
    pub major: u32,
    /// After the dot.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ComputeCapability {
    type Err = InvalidNeed;

    fn from_str(text: &str) -> Result<Self, InvalidNeed> {
        let wrong = || invalid(text, "a compute capability such as 9.0");
        let (major, minor) = text.split_once('.').ok_or_else(wrong)?;
        Ok(Self { major: major.parse().map_err(|_| wrong())?, minor: minor.parse().map_err(|_| wrong())? })
    }
}

/// A tool of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// The CUDA compiler.
    Nvcc,
    /// Nsight Systems.
    Nsys,
    /// Nsight Compute.
    Ncu,
    /// The memory and race checker.
    ComputeSanitizer,
    /// `PyTorch`.
    Torch,
}

impl Tool {
    /// Every tool.
    pub const ALL: [Self; 5] = [Self::Nvcc, Self::Nsys, Self::Ncu, Self::ComputeSanitizer, Self::Torch];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nvcc => "nvcc",
            Self::Nsys => "nsys",
            Self::Ncu => "ncu",
            Self::ComputeSanitizer => "compute_sanitizer",
            Self::Torch => "torch",
        }
    }
}

impl FromStr for Tool {
    type Err = InvalidNeed;

    fn from_str(text: &str) -> Result<Self, InvalidNeed> {
        let found = Self::ALL.into_iter().find(|tool| tool.as_str() == text);
        found.ok_or_else(|| invalid(text, "a tool: nvcc, nsys, ncu, compute_sanitizer or torch"))
    }
}

/// A label of a machine: letters, digits, `.`, `_`, `-` and `=`, at most [`MAX_LABEL_CHARS`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

impl Label {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Label {
    type Err = InvalidNeed;

    fn from_str(text: &str) -> Result<Self, InvalidNeed> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '=');
        if text.is_empty() || text.chars().count() > MAX_LABEL_CHARS || !text.chars().all(fits) {
            return Err(invalid(text, "a label: up to 64 letters, digits, `.`, `_`, `-` and `=`, as in pool=night"));
        }
        Ok(Self(text.to_owned()))
    }
}

macro_rules! text_conversions {
    ($name:ident, $self:ident => $text:expr) => {
        impl TryFrom<String> for $name {
            type Error = InvalidNeed;

            fn try_from(text: String) -> Result<Self, InvalidNeed> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from($self: $name) -> Self {
                $text
            }
        }
    };
}
text_conversions!(ComputeCapability, value => value.to_string());
text_conversions!(Label, value => value.0);

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
