//! Modules of kernels.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{self, CUfunction, CUmodule};

use super::error::{Outcome, checked};
use super::stream::Stream;

/// A loaded module of kernels.
#[derive(Debug)]
pub(crate) struct Module(CUmodule);

// SAFETY: the driver allows every thread to use a module of a context that it entered.
unsafe impl Send for Module {}
// SAFETY: as above; the handle never changes.
unsafe impl Sync for Module {}

/// A kernel of a module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel(CUfunction);

// SAFETY: as for modules.
unsafe impl Send for Kernel {}
// SAFETY: as for modules.
unsafe impl Sync for Kernel {}

impl Module {
    /// Loads compiled kernels.
    pub(crate) fn load(image: &[u8]) -> Outcome<Self> {
        // The driver reads text up to its end, and binaries as long as they say.
        let mut image = image.to_vec();
        image.push(0);
        let mut module = std::ptr::null_mut();
        // SAFETY: a context is current, and both pointers are valid for the call.
        let loaded = unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
        checked(loaded, "loading the evaluator's kernels")?;
        Ok(Self(module))
    }

    /// Finds a kernel by its name.
    pub(crate) fn kernel(&self, name: &CStr) -> Outcome<Kernel> {
        let mut function = std::ptr::null_mut();
        // SAFETY: the pointers are valid for the call.
        let found = unsafe { sys::cuModuleGetFunction(&raw mut function, self.0, name.as_ptr()) };
        checked(found, "finding a kernel of the evaluator")?;
        Ok(Kernel(function))
    }
}

impl Kernel {
    /// Launches the kernel with its one argument, in the order of the stream.
    ///
    /// # Safety
    /// The argument has to be the structure that the kernel takes, and what it points to has to be valid on the device until
    /// the stream was synchronized.
    pub(crate) unsafe fn launch<T: Copy>(self, mut argument: T, blocks: u32, threads: u32, on: &Stream) -> Outcome<()> {
        let mut parameters = [(&raw mut argument).cast::<c_void>()];
        let (list, nothing) = (parameters.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: as the caller promises; the driver copies the argument before it returns.
        let launched = unsafe { sys::cuLaunchKernel(self.0, blocks, 1, 1, threads, 1, 1, 0, on.0, list, nothing) };
        checked(launched, "launching a kernel of the evaluator")
    }
}
