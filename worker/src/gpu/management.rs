//! The interface of the driver's management library. It is a trait, so that tests can use a driver in memory.

use std::fmt;
use std::ops::ControlFlow;

use nightshift_protocol::machine::{ComputeMode, Mig};
use nightshift_protocol::needs::ComputeCapability;

/// The error of a call of the management library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagementError {
    /// The library is not installed here.
    #[error("the NVIDIA management library cannot be loaded: {0}")]
    NoLibrary(String),
    /// The library is installed, but the kernel driver is not loaded.
    #[error("the NVIDIA driver is not loaded")]
    NoDriver,
    /// This user may not use the driver.
    #[error("this user may not talk to the NVIDIA driver")]
    NoPermission,
    /// Kernel driver and library have different versions.
    #[error("the NVIDIA driver in the kernel and its library are of different versions")]
    VersionMismatch,
    /// The GPU does not answer.
    #[error("the GPU is lost: it fell off the bus or does not answer any more")]
    Lost,
    /// The GPU needs a reset.
    #[error("the GPU has to be reset before it can be used again")]
    NeedsReset,
    /// This driver or this GPU does not support the call.
    #[error("the driver does not offer this for this GPU")]
    Unsupported,
    /// Another error.
    #[error("the NVIDIA management library says: {0}")]
    Other(String),
}

impl ManagementError {
    /// Returns whether the error is a fault of the GPU.
    #[must_use]
    pub fn is_of_the_gpu(&self) -> bool {
        matches!(self, Self::Lost | Self::NeedsReset)
    }
}

/// Versions of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// Driver version, for example `580.65.06`.
    pub driver: String,
    /// Newest CUDA version that the driver supports: major and minor.
    pub cuda: (u32, u32),
}

/// A GPU or an instance of one, as the library describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundGpu {
    /// Index in the order of the bus; instances have that of their GPU.
    pub index: u32,
    /// Model name.
    pub name: String,
    /// UUID of the device.
    pub uuid: String,
    /// Compute capability.
    pub compute_capability: ComputeCapability,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Number of its device node, `/dev/nvidia0`.
    pub minor: Option<u32>,
    /// Place on the bus.
    pub pci_bus_id: Option<String>,
    /// Its role in a partition.
    pub mig: Option<Mig>,
    /// Whether ECC corrects memory errors.
    pub ecc: Option<bool>,
    /// Uncorrected errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Highest clock of the multiprocessors in MHz.
    pub sm_clock_max_mhz: Option<u32>,
    /// Highest clock of the memory in MHz.
    pub memory_clock_max_mhz: Option<u32>,
    /// Width of the memory's bus in bits.
    pub memory_bus_bits: Option<u32>,
    /// Multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Power limit in watts.
    pub power_limit_w: Option<u32>,
    /// Whether persistence mode keeps the driver loaded while the GPU is unused.
    pub persistence: Option<bool>,
    /// How many processes may hold a context.
    pub compute_mode: Option<ComputeMode>,
}

/// A GPU that is present but does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Number in the order of the bus.
    pub index: u32,
    /// Its name, if it could be read.
    pub uuid: Option<String>,
    /// The error.
    pub why: ManagementError,
}

/// The state of a GPU at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// Clock of the multiprocessors in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power in watts.
    pub power_w: Option<u32>,
    /// Throttle reasons, for example `sw_power_cap`. Idleness and settings of the operator do not count.
    pub throttle: Vec<String>,
    /// Processes that hold a context on it.
    pub processes: Vec<u32>,
}

/// An event of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuEvent {
    /// UUID of the GPU; events of instances name their GPU.
    pub uuid: Option<String>,
    /// Kind of the event.
    pub kind: GpuEventKind,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuEventKind {
    /// An Xid error, by its number in NVIDIA's catalogue.
    Xid(u64),
    /// An uncorrectable memory error.
    UncorrectedMemory,
}

/// The driver's management library.
pub trait Management: Send + Sync + fmt::Debug + 'static {
    /// Returns the versions of the driver.
    fn versions(&self) -> Result<Versions, ManagementError>;

    /// Returns every GPU; the instances of a partitioned GPU follow it.
    fn gpus(&self) -> Result<Vec<Result<FoundGpu, Unreadable>>, ManagementError>;

    /// Reads the current state of a GPU.
    fn read(&self, uuid: &str) -> Result<Reading, ManagementError>;

    /// Calls `event` with each event of these GPUs until it breaks. Without events it is called with `None` at least once a
    /// second. Blocks.
    fn listen(
        &self,
        uuids: &[String],
        tell: &mut dyn FnMut(Option<GpuEvent>) -> ControlFlow<()>,
    ) -> Result<(), ManagementError>;
}
