//! The events of a trace: the device's work and the host's calls, with start and end times.

use std::sync::Arc;

use nightshift_protocol::profile::CopyDirection;

/// The direction of a copy by CUPTI's number of it, which nsys passes on.
pub(super) fn direction(kind: Option<i64>) -> CopyDirection {
    match kind {
        Some(1) => CopyDirection::HostToDevice,
        Some(2) => CopyDirection::DeviceToHost,
        Some(8) => CopyDirection::DeviceToDevice,
        Some(10) => CopyDirection::Peer,
        Some(11..=13) => CopyDirection::Managed,
        _ => CopyDirection::Other,
    }
}

/// `cudaLaunchKernel_v7000` is `cudaLaunchKernel`.
pub(super) fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((bare, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => bare,
        _ => name,
    }
}

/// Everything that was traced, in the order of its beginnings. Times are nanoseconds since the beginning of the trace.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity {
    /// Kernels.
    pub(super) kernels: Vec<Kernel>,
    /// Copies and sets.
    pub(super) copies: Vec<Transfer>,
    /// Calls of the CUDA interfaces.
    pub(super) api: Vec<ApiCall>,
    /// Whether there was more than is read.
    pub(super) cut: bool,
}

/// From when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    /// Beginning.
    pub(super) start_ns: u64,
    /// End, not before the beginning.
    pub(super) end_ns: u64,
}

impl Span {
    pub(super) fn duration_ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// A kernel launch.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) span: Span,
    pub(super) stream: u64,
    /// Ties it to the call that launched it.
    pub(super) correlation: u64,
    /// With its parameters.
    pub(super) name: Arc<str>,
    /// Without its parameters: what ncu selects by.
    pub(super) short: Arc<str>,
    pub(super) mangled: Option<Arc<str>>,
    pub(super) grid: [u64; 3],
    pub(super) block: [u64; 3],
    pub(super) registers: u64,
    pub(super) shared_bytes: u64,
}

/// A memory copy or set.
#[derive(Debug, Clone)]
pub(super) struct Transfer {
    pub(super) span: Span,
    pub(super) stream: u64,
    pub(super) correlation: u64,
    pub(super) direction: CopyDirection,
    pub(super) bytes: u64,
}

/// A call of a CUDA API.
#[derive(Debug, Clone)]
pub(super) struct ApiCall {
    pub(super) span: Span,
    /// Without a version.
    pub(super) name: Arc<str>,
    pub(super) thread: u64,
    pub(super) correlation: u64,
}
