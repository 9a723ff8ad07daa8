//! Which GPUs a worker may use, in the words of its operator: the variable `CUDA_VISIBLE_DEVICES`, and a list of its
//! own.

use super::management::FoundGpu;

/// A list of GPUs that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}` names no device: give numbers as `nvidia-smi` counts them or names as it prints them, as in 0,2 or GPU-8f2c,MIG-41ab"
)]
pub struct InvalidChoice {
    /// The part that could not be read.
    pub part: String,
}

/// Which GPUs may be used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceChoice {
    visible: Option<Vec<Named>>,
    listed: Option<Vec<Named>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    /// In the order of the bus.
    Index(u32),
    /// Number of a GPU and of an instance of it, `0:1`.
    Instance(u32, u32),
    /// Beginning of the driver's name.
    Uuid(String),
    /// Nothing that exists: CUDA looks no further behind it.
    Nothing,
}

impl DeviceChoice {
    /// From the value of `CUDA_VISIBLE_DEVICES`, as CUDA reads it (nothing behind the first name of nothing counts), and
    /// from the worker's own list. A device has to be in both.
    pub fn new(visible: Option<&str>, listed: Option<&str>) -> Result<Self, InvalidChoice> {
        let visible = visible.map(|text| text.split(',').map(|part| named(part).unwrap_or(Named::Nothing)).collect());
        let read = |text: &str| {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| named(part).ok_or_else(|| InvalidChoice { part: part.to_owned() })).collect()
        };
        Ok(Self { visible, listed: listed.map(read).transpose()? })
    }

    /// Why this device may not be used; none when it may. `instance` counts the instances of its GPU.
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
