//! The operator's selection of GPUs: the variable `CUDA_VISIBLE_DEVICES`, and the worker's own list.

use super::management::FoundGpu;

/// The error of an invalid list of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}` names no device: give numbers as `nvidia-smi` counts them or names as it prints them, as in 0,2 or GPU-8f2c,MIG-41ab"
)]
pub struct InvalidChoice {
    /// The invalid part.
    pub part: String,
}

/// The selected GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceChoice {
    visible: Option<Vec<Named>>,
    listed: Option<Vec<Named>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    /// Index in the order of the bus.
    Index(u32),
    /// Index of a GPU and of an instance of it, `0:1`.
    Instance(u32, u32),
    /// Prefix of the driver's name of the device.
    Uuid(String),
    /// An unknown device: CUDA ignores all later entries.
    Nothing,
}

impl DeviceChoice {
    /// Parses the value of `CUDA_VISIBLE_DEVICES` and the worker's own list. A device must be in both. As in CUDA, entries
    /// after the first unknown device are ignored.
    pub fn new(visible: Option<&str>, listed: Option<&str>) -> Result<Self, InvalidChoice> {
        let visible = visible.map(|text| text.split(',').map(|part| named(part).unwrap_or(Named::Nothing)).collect());
        let read = |text: &str| {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| named(part).ok_or_else(|| InvalidChoice { part: part.to_owned() })).collect()
        };
        Ok(Self { visible, listed: listed.map(read).transpose()? })
    }

    /// Returns why this device is not selected; `None` when it is. `instance` is its index among the instances of its GPU.
    pub(super) fn hides(&self, gpu: &FoundGpu, instance: Option<u32>) -> Option<&'static str> {
        let means = |named: &Named| match named {
            Named::Index(index) => *index == gpu.index,
            Named::Instance(index, number) => *index == gpu.index && instance == Some(*number),
            Named::Uuid(prefix) => gpu.uuid.starts_with(prefix.as_str()),
            Named::Nothing => false,
        };
        let is_visible = self
            .visible
            .as_ref()
            .is_none_or(|visible| visible.iter().take_while(|named| **named != Named::Nothing).any(means));
        if !is_visible {
            return Some("CUDA_VISIBLE_DEVICES does not name it");
        }
        let is_listed = self.listed.as_ref().is_none_or(|listed| listed.iter().any(means));
        (!is_listed).then_some("the worker's list of devices does not name it")
    }
}

fn named(part: &str) -> Option<Named> {
    let part = part.trim();
    if let Some((gpu, instance)) = part.split_once(':') {
        return Some(Named::Instance(gpu.parse().ok()?, instance.parse().ok()?));
    }
    if let Ok(index) = part.parse() {
        return Some(Named::Index(index));
    }
    let is_name = |prefix: &str| part.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
    (is_name("GPU-") || is_name("MIG-")).then(|| Named::Uuid(part.to_owned()))
}
