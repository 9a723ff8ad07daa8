//! The CUDA driver, as far as evaluator and runner need it, with every error as a value.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUcontext, CUctx_flags, CUdevice, CUdevice_attribute, CUdeviceptr, CUlimit, CUresult};
use nightshift_protocol::machine::CudaFacts;

use super::error::{DeviceError, Outcome, checked};
use super::stream::Stream;

/// A device's primary context, current in the threads that entered it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) device: CUdevice,
    context: CUcontext,
}

// SAFETY: the driver allows every thread to enter a context.
unsafe impl Send for Context {}
// SAFETY: as above; the handles never change.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device. `uuid` names it as NVML does (`GPU-...`); without it, or where no device of the
    /// process has that name, the first one is taken.
    pub(crate) fn open(uuid: Option<&str>) -> Outcome<Self> {
        // SAFETY: only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            let during = "looking for the driver's library".to_owned();
            return Err(DeviceError { during, error: "CUDA_ERROR_STUB_LIBRARY".to_owned() });
        }
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: every pointer is valid for its call. The context is released when this is dropped.
        let device = unsafe {
            checked(sys::cuInit(0), "starting the driver")?;
            let device = find_device(uuid)?;
            // A waiting thread has nothing else to do, and every microsecond of its waking up would be measured.
            let spin = CUctx_flags::CU_CTX_SCHED_SPIN as u32;
            checked(sys::cuDevicePrimaryCtxSetFlags_v2(device, spin), "preparing the context")?;
            checked(sys::cuDevicePrimaryCtxRetain(&raw mut context, device), "making the context")?;
            device
        };
        let opened = Self { device, context };
        opened.enter()?;
        Ok(opened)
    }

    /// Makes the context that of this thread.
    pub(crate) fn enter(&self) -> Outcome<()> {
        // SAFETY: the context lives as long as this.
        checked(unsafe { sys::cuCtxSetCurrent(self.context) }, "entering the context")
    }

    /// Size of the last cache in bytes.
    pub(crate) fn l2_bytes(&self) -> Outcome<usize> {
        self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
    }

    /// Number of multiprocessors.
    pub(crate) fn multiprocessors(&self) -> Outcome<usize> {
        self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    /// Returns the facts about the device that only CUDA reports.
    pub(crate) fn facts(&self) -> CudaFacts {
        let told =
            |which| self.attribute(which).ok().and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
        let multiprocessors = told(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        CudaFacts {
            multiprocessors: multiprocessors.and_then(|count| u32::try_from(count).ok()),
            l2_bytes: told(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
            memory_clock_khz: told(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
            memory_bus_bits: told(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        }
    }

    /// Returns whether the driver exports memory by file descriptors.
    pub(crate) fn exports_descriptors(&self) -> Outcome<bool> {
        let which = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        Ok(self.attribute(which)? > 0)
    }

    fn attribute(&self, which: CUdevice_attribute) -> Outcome<usize> {
        let mut value = 0;
        // SAFETY: the pointer is valid for the call.
        checked(unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, self.device) }, "asking the device")?;
        Ok(usize::try_from(value).unwrap_or(0))
    }

    /// Free memory of the device in bytes. The context has to be current.
    #[expect(clippy::unused_self, reason = "a context has to be open")]
    pub(crate) fn free_bytes(&self) -> Outcome<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are valid for the call.
        checked(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) }, "asking for free memory")?;
        Ok(u64::try_from(free).unwrap_or(u64::MAX))
    }

    /// Waits until nothing of this context runs on the device.
    #[expect(clippy::unused_self, reason = "a context has to be open")]
    pub(crate) fn synchronize(&self, during: &str) -> Outcome<()> {
        // SAFETY: a context is current.
        checked(unsafe { sys::cuCtxSynchronize() }, during)
    }

    /// Makes the driver start the thread that it calls functions of the host from: once system calls are filtered it cannot.
    #[expect(clippy::unused_self, reason = "a context has to be open")]
    pub(crate) fn start_callbacks(&self, on: &Stream) -> Outcome<()> {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        // SAFETY: the function uses nothing, and the stream is ours.
        checked(unsafe { sys::cuLaunchHostFunc(on.0, Some(nothing), std::ptr::null_mut()) }, "starting callbacks")
    }

    /// Lets no line of the last cache persist. Not every device has such lines.
    #[expect(clippy::unused_self, reason = "a context has to be open")]
    pub(crate) fn reset_persisting_lines(&self) {
        // SAFETY: a context is current.
        unsafe {
            let _ = sys::cuCtxSetLimit(CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0);
            let _ = sys::cuCtxResetPersistingL2Cache();
        }
    }

    /// Marks the range that profilers are asked to look at.
    #[expect(clippy::unused_self, reason = "a context has to be open")]
    pub(crate) fn mark_profiled(&self, on: bool) {
        // SAFETY: a context is current. Without a profiler both do nothing.
        unsafe {
            let _ = if on { sys::cuProfilerStart() } else { sys::cuProfilerStop() };
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// Finds a device by its name.
///
/// # Safety
/// The driver has to be started.
unsafe fn find_device(uuid: Option<&str>) -> Outcome<CUdevice> {
    let (mut device, mut count) = (0, 0);
    // SAFETY: every pointer is valid for its call.
    unsafe {
        checked(sys::cuDeviceGetCount(&raw mut count), "counting the devices")?;
        for number in 0..if uuid.is_some() { count } else { 0 } {
            checked(sys::cuDeviceGet(&raw mut device, number), "finding the device")?;
            let mut found = sys::CUuuid { bytes: [0; 16] };
            if sys::cuDeviceGetUuid_v2(&raw mut found, device) == CUresult::CUDA_SUCCESS
                && uuid.is_some_and(|uuid| same_uuid(uuid, found.bytes.map(i8::cast_unsigned)))
            {
                return Ok(device);
            }
        }
        checked(sys::cuDeviceGet(&raw mut device, 0), "finding the device")?;
    }
    Ok(device)
}

fn same_uuid(name: &str, bytes: [u8; 16]) -> bool {
    let digits = name.trim_start_matches("GPU-").trim_start_matches("MIG-").replace('-', "");
    digits.eq_ignore_ascii_case(&bytes.map(|byte| format!("{byte:02x}")).concat())
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// Memory of a device that this process alone uses.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    /// Its address.
    pub(crate) address: CUdeviceptr,
    /// Its size in bytes.
    pub(crate) size: usize,
}

impl DeviceBuffer {
    /// Allocates memory.
    pub(crate) fn new(size: usize) -> Outcome<Self> {
        let mut address = 0;
        // SAFETY: a context is current, and the pointer is valid for the call.
        checked(unsafe { sys::cuMemAlloc_v2(&raw mut address, size.max(1)) }, "allocating memory of the device")?;
        Ok(Self { address, size })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: freed once.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Fills memory with a repeated word, in the order of the stream. Bytes beyond the last whole word get those of the pattern.
pub(crate) fn fill(address: CUdeviceptr, size: usize, pattern: u32, on: &Stream) -> Outcome<()> {
    let during = "filling memory of the device";
    let words = size / 4;
    // SAFETY: callers pass memory of that size.
    unsafe {
        if words > 0 {
            checked(sys::cuMemsetD32Async(address, pattern, words, on.0), during)?;
        }
        for (position, byte) in pattern.to_le_bytes().into_iter().take(size % 4).enumerate() {
            checked(sys::cuMemsetD8Async(address + wide(words * 4 + position), byte, 1, on.0), during)?;
        }
    }
    Ok(())
}

/// Copies within the device, in the order of the stream.
pub(crate) fn copy(to: CUdeviceptr, from: CUdeviceptr, size: usize, on: &Stream) -> Outcome<()> {
    if size == 0 {
        return Ok(());
    }
    // SAFETY: callers pass memory of that size.
    checked(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, size, on.0) }, "copying on the device")
}

/// Copies to the device.
pub(crate) fn upload(to: CUdeviceptr, bytes: &[u8]) -> Outcome<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the bytes are valid for the call, and callers pass memory of that size.
    checked(unsafe { sys::cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len()) }, "copying to the device")
}

/// Copies from the device.
pub(crate) fn download(bytes: &mut [u8], from: CUdeviceptr) -> Outcome<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the bytes are valid for the call, and callers pass memory of that size.
    checked(unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, bytes.len()) }, "copying from the device")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_the_name_that_its_management_gives_it() {
        let bytes = [0x40, 0x7c, 0xd5, 0x10, 0xe2, 0x31, 0x96, 0xfc, 0xfb, 0x41, 0xf3, 0x9b, 0xd0, 0x2d, 0xd0, 0x64];
        assert!(same_uuid("GPU-407cd510-e231-96fc-fb41-f39bd02dd064", bytes));
        assert!(!same_uuid("GPU-407cd510-e231-96fc-fb41-f39bd02dd065", bytes));
        assert!(!same_uuid("0", bytes));
    }
}
