//! The evaluator's own context on a device.

use std::ffi::CStr;

use cudarc::driver::sys::CUdeviceptr;
use nightshift_protocol::machine::CudaFacts;

use super::driver::{Context, DeviceBuffer};
use super::error::Outcome;
use super::module::{Kernel, Module};
use super::stream::Stream;

/// The source of the kernels, in CUDA C++.
pub const KERNELS_SOURCE: &str = include_str!("kernels.cu");

/// Threads of a block.
const THREADS: u32 = 512;

/// Blocks of each multiprocessor.
const BLOCKS_PER_MULTIPROCESSOR: usize = 4;

/// Words of the results of a kernel.
pub(crate) const FOUND_WORDS: usize = 12;

/// Size of the memory that is written to flush the last-level cache, as a multiple of the cache size.
const FLUSHED_CACHES: usize = 3;

/// Argument of `ns_draw` and `ns_holds`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrawArgs {
    pub(crate) data: CUdeviceptr,
    pub(crate) count: u64,
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) differences: CUdeviceptr,
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) factor: f32,
    pub(crate) distribution: u32,
    pub(crate) contract: u32,
    pub(crate) element: u32,
    pub(crate) flip_signs: u32,
    pub(crate) few_factor: f32,
    pub(crate) few_seed: u64,
    pub(crate) few_one_in: u64,
    pub(crate) dropped_bits: u32,
    pub(crate) unused: u32,
}

/// Argument of `ns_compare`, `ns_find_worst` and `ns_differ`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompareArgs {
    pub(crate) output: CUdeviceptr,
    pub(crate) expected: CUdeviceptr,
    pub(crate) found: CUdeviceptr,
    pub(crate) count: u64,
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
    pub(crate) share: f64,
    pub(crate) step: f64,
    pub(crate) output_element: u32,
    pub(crate) expected_element: u32,
}

/// Argument of the kernels that look at single tensors.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BytesArgs {
    pub(crate) data: CUdeviceptr,
    pub(crate) found: CUdeviceptr,
    pub(crate) count: u64,
    pub(crate) seed: u64,
    pub(crate) element: u32,
    pub(crate) pattern: u32,
}

/// The kernels.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(crate) draw: Kernel,
    pub(crate) holds: Kernel,
    pub(crate) compare: Kernel,
    pub(crate) find_worst: Kernel,
    pub(crate) differ: Kernel,
    pub(crate) fingerprint: Kernel,
    pub(crate) not_finite: Kernel,
    pub(crate) not_like_first: Kernel,
    pub(crate) count_pattern: Kernel,
    pub(crate) set_guard: Kernel,
    pub(crate) check_guard: Kernel,
    _module: Module,
}

impl Kernels {
    fn load(image: &[u8]) -> Outcome<Self> {
        let module = Module::load(image)?;
        let kernel = |name: &CStr| module.kernel(name);
        Ok(Self {
            draw: kernel(c"ns_draw")?,
            holds: kernel(c"ns_holds")?,
            compare: kernel(c"ns_compare")?,
            find_worst: kernel(c"ns_find_worst")?,
            differ: kernel(c"ns_differ")?,
            fingerprint: kernel(c"ns_fingerprint")?,
            not_finite: kernel(c"ns_not_finite")?,
            not_like_first: kernel(c"ns_not_like_first")?,
            count_pattern: kernel(c"ns_count_pattern")?,
            set_guard: kernel(c"ns_set_guard")?,
            check_guard: kernel(c"ns_check_guard")?,
            _module: module,
        })
    }
}

/// The evaluator's context on one device. No program ever runs in it.
#[derive(Debug)]
pub struct Gpu {
    pub(crate) kernels: Kernels,
    pub(crate) flush: DeviceBuffer,
    blocks: u32,
    /// Whether the driver exports memory by file descriptors.
    pub(crate) exports_descriptors: bool,
    // Last, so that everything else is freed before the context goes.
    pub(crate) context: Context,
}

impl Gpu {
    /// Opens a device by the name that its management gives it, with the compiled kernels.
    pub fn open(uuid: Option<&str>, kernels: &[u8]) -> Outcome<Self> {
        let context = Context::open(uuid)?;
        let kernels = Kernels::load(kernels)?;
        let flush = DeviceBuffer::new(context.l2_bytes()?.max(1 << 20) * FLUSHED_CACHES)?;
        let blocks = context.multiprocessors()?.max(1) * BLOCKS_PER_MULTIPROCESSOR;
        let exports_descriptors = context.exports_descriptors()?;
        if !exports_descriptors {
            tracing::warn!(
                "this GPU's driver cannot export memory by file descriptors: programs get theirs by handles of CUDA's older interface"
            );
        }
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Ok(Self { kernels, flush, blocks, exports_descriptors, context })
    }

    /// Treats the driver as one that cannot export memory by file descriptors.
    #[must_use]
    pub fn without_descriptors(self) -> Self {
        Self { exports_descriptors: false, ..self }
    }

    /// Returns the facts about the device that only CUDA reports.
    #[must_use]
    pub fn facts(&self) -> CudaFacts {
        self.context.facts()
    }

    /// Free memory of the device in bytes.
    pub fn free_bytes(&self) -> Outcome<u64> {
        self.context.enter()?;
        self.context.free_bytes()
    }

    /// Returns whether the context still works. After a fault of the device it has to be opened anew.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.context.enter().and_then(|()| self.context.synchronize("looking after the evaluator's context")).is_ok()
    }

    /// Launches a kernel over so many elements.
    ///
    /// # Safety
    /// As for [`Kernel::launch`].
    pub(crate) unsafe fn launch<T: Copy>(&self, kernel: Kernel, argument: T, count: u64, on: &Stream) -> Outcome<()> {
        let wanted = count.div_ceil(u64::from(THREADS)).clamp(1, u64::from(self.blocks));
        // SAFETY: as the caller promises.
        unsafe { kernel.launch(argument, u32::try_from(wanted).unwrap_or(self.blocks), THREADS, on) }
    }
}
