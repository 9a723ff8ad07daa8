//! A device: the driver, and the evaluator's own context with its kernels.

#[expect(unsafe_code, reason = "the driver's interface is a foreign one")]
pub(crate) mod driver;
#[expect(unsafe_code, reason = "the driver's interface is a foreign one")]
pub(crate) mod error;
#[expect(unsafe_code, reason = "launches kernels on memory that it holds")]
mod gpu;
#[expect(unsafe_code, reason = "the driver's interface is a foreign one")]
mod module;
#[expect(unsafe_code, reason = "the driver's interface is a foreign one")]
mod shared_memory;
#[expect(unsafe_code, reason = "the driver's interface is a foreign one")]
pub(crate) mod stream;

pub use self::error::DeviceError;
pub(crate) use self::gpu::{BytesArgs, CompareArgs, DrawArgs, FOUND_WORDS};
pub use self::gpu::{Gpu, KERNELS_SOURCE};
pub(crate) use self::module::Kernel;
pub use self::shared_memory::{Exported, SharedMemory};
