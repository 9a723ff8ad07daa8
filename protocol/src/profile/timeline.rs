//! What ran when on a device.

use serde::{Deserialize, Serialize};

use super::is_zero;

/// How often something happened, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Times {
    /// How often.
    pub count: u64,
    /// All together, in nanoseconds.
    pub total_ns: u64,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl Times {
    /// Counts one more.
    pub fn add(&mut self, duration_ns: u64) {
        self.min_ns = if self.count == 0 { duration_ns } else { self.min_ns.min(duration_ns) };
        self.max_ns = self.max_ns.max(duration_ns);
        self.count = self.count.saturating_add(1);
        self.total_ns = self.total_ns.saturating_add(duration_ns);
    }

    /// The mean, 0 when it never happened.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// What ran when, over some calls of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Timeline {
    /// Calls of the program that it covers; 0 when the calls could not be told apart from the rest of the process.
    pub calls: u32,
    /// Time from the beginning of a call to the end of its device work, over all calls, in nanoseconds, without what `once` took
    /// while the device did nothing.
    pub span_ns: u64,
    /// Time in which the device did anything, in nanoseconds.
    pub busy_ns: u64,
    /// Time in which it did more than one thing at once, in nanoseconds.
    pub overlap_ns: u64,
    /// Share of the span in which the device did nothing, 0 to 1: the host's share.
    pub host_share: f64,
    /// Kernels by name, longest total first.
    pub kernels: Vec<KernelTime>,
    /// Kernels by name that did not fit into the list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kernels_left_out: u64,
    /// Copies by direction.
    pub copies: Vec<CopyTime>,
    /// Memory that was set on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memsets: Option<CopyTime>,
    /// Calls of the CUDA interfaces by name, longest total first.
    pub api: Vec<ApiTime>,
    /// Those of them that allocate memory or load code, and that few calls of the program make. They count in neither the span nor the
    /// host's share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub once: Vec<ApiTime>,
    /// Pauses of the device within a call.
    pub gaps: Gaps,
    /// What starting kernels cost.
    pub launches: Launches,
    /// What ran on which stream.
    pub streams: Vec<StreamTime>,
}

/// One kernel of a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KernelTime {
    /// Its name with its parameters, as written in the source.
    pub name: String,
    /// Its name in the library, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mangled: Option<String>,
    /// Launches and durations.
    pub times: Times,
    /// Share of the time of all kernels, 0 to 1.
    pub share: f64,
    /// Grid of its longest launch.
    pub grid: [u64; 3],
    /// Block of its longest launch.
    pub block: [u64; 3],
    /// Registers per thread, as the device allocates them.
    pub registers_per_thread: u64,
    /// Shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes: u64,
    /// Whether it comes from the program itself, for files of Python; what a library brings along is told from the report of
    /// its build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<bool>,
}

/// Where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CopyDirection {
    /// From the host to the device.
    HostToDevice,
    /// From the device to the host.
    DeviceToHost,
    /// Within the device.
    DeviceToDevice,
    /// Between devices.
    Peer,
    /// Pages of managed memory.
    Managed,
    /// Nothing is copied: memory is set.
    Set,
    /// Anything else.
    #[default]
    Other,
}

impl CopyDirection {
    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
            Self::DeviceToDevice => "device_to_device",
            Self::Peer => "peer",
            Self::Managed => "managed",
            Self::Set => "set",
            Self::Other => "other",
        }
    }
}

/// Copies of one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CopyTime {
    /// Where to.
    pub direction: CopyDirection,
    /// Number and durations.
    pub times: Times,
    /// Bytes.
    pub bytes: u64,
}

/// One call of a CUDA interface, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiTime {
    /// Its name without a version, for example `cudaLaunchKernel`.
    pub name: String,
    /// Number and durations.
    pub times: Times,
}

/// Pauses of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gaps {
    /// Between two pieces of device work of one call.
    pub between: Times,
    /// From the beginning of a call to its first device work.
    pub before_first: Times,
}

/// What starting kernels cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Launches {
    /// Time that the host spent in launching calls.
    pub host: Times,
    /// Time from the beginning of a launching call to the beginning of its kernel; waiting for earlier kernels included.
    pub until_start: Times,
    /// Launches of whole graphs.
    pub graphs: u64,
}

/// What ran on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamTime {
    /// The stream's number within the process.
    pub stream: u64,
    /// Kernels.
    pub kernels: u64,
    /// Copies and sets.
    pub copies: u64,
    /// Time of its work, in nanoseconds.
    pub busy_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_know_their_extremes_and_their_mean() {
        let mut times = Times::default();
        assert_eq!(times.mean_ns(), 0);
        for duration_ns in [5, 1, 9] {
            times.add(duration_ns);
        }
        assert_eq!((times.count, times.total_ns, times.min_ns, times.max_ns, times.mean_ns()), (3, 15, 1, 9, 5));
    }
}
