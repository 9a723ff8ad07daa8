//! What the driver's management library is asked. A trait, so that everything above it can be tried with a driver in
//! memory.

use std::fmt;
use std::ops::ControlFlow;

use nightshift_protocol::machine::{ComputeMode, Mig};
use nightshift_protocol::needs::ComputeCapability;

/// Why the management library gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagementError {
    /// The library is not installed here.
    #[error("the NVIDIA management library cannot be loaded: {0}")]
    NoLibrary(String),
    /// The library is there, the kernel's driver is not.
    #[error("the NVIDIA driver is not loaded")]
    NoDriver,
    /// The library is there, and this user may not talk to the driver.
    #[error("this user may not talk to the NVIDIA driver")]
    NoPermission,
    /// The kernel's driver and the library are of different versions.
    #[error("the NVIDIA driver in the kernel and its library are of different versions")]
    VersionMismatch,
    /// The GPU does not answer any more.
    #[error("the GPU is lost: it fell off the bus or does not answer any more")]
    Lost,
    /// The GPU has to be reset first.
    #[error("the GPU has to be reset before it can be used again")]
    NeedsReset,
    /// This driver or this GPU has no such thing.
    #[error("the driver does not offer this for this GPU")]
    Unsupported,
    /// Anything else.
    #[error("the NVIDIA management library says: {0}")]
    Other(String),
}

impl ManagementError {
    /// Whether the GPU itself is out of order.
    #[must_use]
    pub fn is_of_the_gpu(&self) -> bool {
        matches!(self, Self::Lost | Self::NeedsReset)
    }
}

/// Versions of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// Of the driver, for example `580.65.06`.
    pub driver: String,
    /// Newest CUDA version that it can run: major and minor.
    pub cuda: (u32, u32),
}

/// A GPU or an instance of one, as the library describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundGpu {
    /// Number in the order of the bus; instances carry that of their GPU.
    pub index: u32,
    /// Model.
    pub name: String,
    /// Name of this very device.
    pub uuid: String,
    /// Compute capability.
    pub compute_capability: ComputeCapability,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Number of its device node, `/dev/nvidia0`.
    pub minor: Option<u32>,
    /// Place on the bus.
    pub pci_bus_id: Option<String>,
    /// Its part in a partition.
    pub mig: Option<Mig>,
    /// Whether errors in memory are corrected.
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

/// A GPU that is there and does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Number in the order of the bus.
    pub index: u32,
    /// Its name, when at least that could be read.
    pub uuid: Option<String>,
    /// Why.
    pub why: ManagementError,
}

/// How a GPU is at one moment.
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
    /// Why it is slower than it could be, for example `sw_power_cap`. Idleness and settings of the operator are none.
    pub throttle: Vec<String>,
    /// Processes that hold a context on it.
    pub processes: Vec<u32>,
}

/// Something that the driver tells of its own accord.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuEvent {
    /// The GPU; instances are told under the name of their GPU.
    pub uuid: Option<String>,
    /// What happened.
    pub kind: GpuEventKind,
}

/// What happened to a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuEventKind {
    /// An error by its number in NVIDIA's catalogue.
    Xid(u64),
    /// Memory that could not be corrected.
    UncorrectedMemory,
}

/// The driver's management library.
pub trait Management: Send + Sync + fmt::Debug + 'static {
    /// Versions.
    fn versions(&self) -> Result<Versions, ManagementError>;

    /// Every GPU, and after a partitioned one its instances.
    fn gpus(&self) -> Result<Vec<Result<FoundGpu, Unreadable>>, ManagementError>;

    /// How this GPU is now.
    fn read(&self, uuid: &str) -> Result<Reading, ManagementError>;

    /// Hands on what the driver tells about these GPUs, until it is told to stop. Called without an event at least
    /// once a second. Blocks.
    fn listen(
        &self,
        uuids: &[String],
        tell: &mut dyn FnMut(Option<GpuEvent>) -> ControlFlow<()>,
    ) -> Result<(), ManagementError>;
}
