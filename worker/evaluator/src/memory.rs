//! The memory that the evaluator shares with one program's process, on the host or on a device.
//!
//! The evaluator allocates it, draws inputs in it and compares outputs where they lie. A program can write to all of it at any
//! time while it runs, inputs and guards included; the evaluator therefore reads outputs only while the program is stopped,
//! and finds changes by drawing the inputs anew. Expected values lie in memory that no program's process maps.

#[expect(unsafe_code, reason = "launches kernels on memory that it holds")]
mod device;
#[expect(unsafe_code, reason = "maps memory that another process maps, too")]
mod host;

use std::time::Duration;

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteTensor, Tolerance};

pub use self::device::DeviceMemory;
pub use self::host::HostMemory;
pub(crate) use self::host::{anonymous_memory, map_shared};
use crate::compare::TensorComparison;
use crate::device::{DeviceError, Exported};
use crate::draw::Draw;
use crate::layout::{Layout, Placed, Region};

/// The error of a use of memory.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Os {
        /// The failed operation.
        what: &'static str,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<MemoryError> for StepFailure {
    fn from(error: MemoryError) -> Self {
        match &error {
            MemoryError::Os { .. } => Self::retriable("process.os", error.to_string()),
            MemoryError::Device(device) if device.error == "CUDA_ERROR_OUT_OF_MEMORY" => Self::retriable(
                "gpu.out_of_memory",
                format!("the GPU has too little free memory for the task's tensors: {error}"),
            ),
            MemoryError::Device(_) => Self::retriable("gpu.unusable", format!("the GPU cannot be used: {error}")),
        }
    }
}

/// A tensor that is compared.
#[derive(Debug)]
pub enum Operand<'a, M: Memory + ?Sized> {
    /// In shared memory.
    Shared(&'a M::Shared, &'a Placed),
    /// In a private copy.
    Copied(&'a M::Copied),
}

impl<M: Memory + ?Sized> Clone for Operand<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory + ?Sized> Copy for Operand<'_, M> {}

/// A kind of memory, with the evaluator's operations on it.
pub trait Memory {
    /// Memory shared with one process.
    type Shared: Send + std::fmt::Debug;
    /// A private copy of one tensor.
    type Copied: Send + std::fmt::Debug;

    /// Allocates shared memory of so many bytes.
    fn allocate(&self, size: usize) -> Result<Self::Shared, MemoryError>;

    /// Exports the memory to another process.
    fn export(&self, shared: &Self::Shared) -> Result<Exported, MemoryError>;

    /// Draws a tensor at its place.
    fn draw(
        &self,
        shared: &mut Self::Shared,
        place: &Placed,
        tensor: &ConcreteTensor,
        draw: Draw,
    ) -> Result<(), MemoryError>;

    /// Returns whether a place still holds what was drawn there.
    fn holds(
        &self,
        shared: &Self::Shared,
        place: &Placed,
        tensor: &ConcreteTensor,
        draw: Draw,
    ) -> Result<bool, MemoryError>;

    /// Fills a region with a repeated pattern.
    fn fill(&self, shared: &mut Self::Shared, region: Region, pattern: u32) -> Result<(), MemoryError>;

    /// Counts the elements that still hold a pattern.
    fn unwritten(&self, shared: &Self::Shared, place: &Placed, pattern: u32) -> Result<u64, MemoryError>;

    /// Writes secret bytes before and behind every buffer.
    fn set_guards(&self, shared: &mut Self::Shared, layout: &Layout, seed: u64) -> Result<(), MemoryError>;

    /// Returns the names of the buffers whose guards changed.
    fn broken_guards(&self, shared: &Self::Shared, layout: &Layout, seed: u64) -> Result<Vec<String>, MemoryError>;

    /// Copies a tensor to private memory.
    fn keep(&self, shared: &Self::Shared, place: &Placed) -> Result<Self::Copied, MemoryError>;

    /// Compares an output with the expected values.
    fn compare(
        &self,
        output: Operand<'_, Self>,
        expected: Operand<'_, Self>,
        tolerance: &Tolerance,
    ) -> Result<TensorComparison, MemoryError>;

    /// Returns a number that follows from all bits of a tensor: tensors with different bits have different numbers, up to chance.
    fn fingerprint(&self, operand: Operand<'_, Self>) -> Result<u64, MemoryError>;

    /// Returns whether expected values differ by more than this share of the tolerance, and so much that an output of the given place
    /// shows it.
    fn differ(
        &self,
        pair: (Operand<'_, Self>, Operand<'_, Self>),
        output: &Placed,
        tolerance: &Tolerance,
        share: f64,
    ) -> Result<bool, MemoryError>;

    /// Returns whether every element is finite.
    fn is_finite(&self, operand: Operand<'_, Self>) -> Result<bool, MemoryError>;

    /// Returns whether all elements have the same value. Zero has two signs, and both are the same value.
    fn is_constant(&self, operand: Operand<'_, Self>) -> Result<bool, MemoryError>;

    /// Lets no cache hold data of programs.
    fn flush_caches(&self) -> Result<(), MemoryError>;

    /// Carries out the smallest operation where programs compute, and returns the time that it took. A device makes it wait
    /// while another context computes.
    fn null_operation(&self) -> Result<Duration, MemoryError>;
}
