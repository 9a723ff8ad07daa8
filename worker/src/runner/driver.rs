//! The CUDA driver, as far as a runner needs it: memory, one stream, events and synchronization, with every error as a
//! value.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys::{
    self, CUcontext, CUctx_flags, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUevent_flags, CUgraph,
    CUgraphExec, CUlimit, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult, CUstream, CUstream_flags, CUstreamCaptureMode,
};

use super::message::Fault;

type Outcome<T> = Result<T, Fault>;

/// Tensors of a program from which on each has an allocation of its own, in bytes.
const LARGE_BYTES: usize = 1 << 30;

fn checked(result: CUresult, during: &str) -> Outcome<()> {
    if result == CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(Fault { during: during.to_owned(), error: name(result) })
    }
}

fn name(result: CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the driver gives a string that lives as long as it does, or says that it knows no such error.
    unsafe {
        if sys::cuGetErrorName(result, &raw mut text) != CUresult::CUDA_SUCCESS || text.is_null() {
            return format!("{result:?}");
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The fault behind the status of an entry point. Most programs return an error of the CUDA runtime, whose numbers are the
/// driver's from 100 on, and below that for memory that ran out.
pub(super) fn fault_of_status(status: i32, entry_point: &str) -> Option<Fault> {
    let error = match status {
        2 => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        100.. => KNOWN_ERRORS.into_iter().find(|error| *error as i32 == status)?,
        _ => return None,
    };
    Some(Fault { during: format!("`{entry_point}` returned it"), error: name(error) })
}

/// Errors that programs meet, beside a lack of memory.
const KNOWN_ERRORS: [CUresult; 12] = [
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_OPERATING_SYSTEM,
    CUresult::CUDA_ERROR_INVALID_HANDLE,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_NOT_SUPPORTED,
];

/// Where memory of the device comes from. To allocate and to free it takes the driver hundreds of times as long while
/// contexts begin on the device as when nobody else is there; parts of what a process holds already take no time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// Allocations of their own.
    Driver,
    /// A pool that keeps what is freed, in the order of a stream.
    Pool(CUmemoryPool, CUstream),
}

impl Source {
    /// A pool of the device of this process; the driver where it has none.
    pub(super) fn pool(on: &Stream) -> Self {
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let (mut pool, mut all) = (std::ptr::null_mut(), u64::MAX);
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: a context is current, every pointer is valid for its call, and the attribute is a 64-bit number. The pool
        // lives as long as the process.
        let made = unsafe {
            match sys::cuMemPoolCreate(&raw mut pool, &raw const properties) {
                CUresult::CUDA_SUCCESS => sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast::<c_void>()),
                error => error,
            }
        };
        if made == CUresult::CUDA_SUCCESS { Self::Pool(pool, on.0) } else { Self::Driver }
    }

    /// For tensors of so many bytes: memory that a pool keeps in pieces may be too little for large ones.
    pub(super) fn of_tensors(self, bytes: usize) -> Self {
        if bytes >= LARGE_BYTES { Self::Driver } else { self }
    }

    fn allocate(self, size: usize) -> Outcome<CUdeviceptr> {
        let mut address = 0;
        let mut result = self.try_to_allocate(size, &mut address);
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY && matches!(self, Self::Pool(..)) {
            // What a pool keeps in pieces may be too little for this one, and all that there is.
            self.give_back_to(0);
            result = self.try_to_allocate(size, &mut address);
        }
        checked(result, "allocating memory of the device")?;
        Ok(address)
    }

    fn try_to_allocate(self, size: usize, address: &mut CUdeviceptr) -> CUresult {
        // SAFETY: a context is current, and the pointer is valid for the calls. Whoever is given memory may use it on any stream:
        // what its stream did with it before is over.
        unsafe {
            match self {
                Self::Driver => sys::cuMemAlloc_v2(&raw mut *address, size.max(1)),
                Self::Pool(pool, stream) => {
                    match sys::cuMemAllocFromPoolAsync(&raw mut *address, size.max(1), pool, stream) {
                        CUresult::CUDA_SUCCESS => sys::cuStreamSynchronize(stream),
                        error => error,
                    }
                }
            }
        }
    }

    /// Holds so many bytes for what is allocated next, as far as there are as many.
    pub(super) fn hold(self, size: usize) {
        if matches!(self, Self::Pool(..)) {
            // Where there is less, those who need it will say so.
            drop(DeviceMemory::new(size, self).ok());
        }
    }

    /// Gives back what nobody uses, but for so many bytes, with those in use.
    pub(super) fn give_back_to(self, bytes: usize) {
        if let Self::Pool(pool, stream) = self {
            // SAFETY: the pool is ours. What was freed counts as free when its stream has come to it.
            unsafe {
                let _ = sys::cuStreamSynchronize(stream);
                let _ = sys::cuMemPoolTrimTo(pool, bytes);
            }
        }
    }
}

/// Memory of the device.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    pub(super) address: CUdeviceptr,
    pub(super) size: usize,
    source: Source,
}

impl DeviceMemory {
    /// Memory for one tensor.
    pub(super) fn new(size: usize, source: Source) -> Outcome<Self> {
        Ok(Self { address: source.allocate(size)?, size, source })
    }

    /// As much memory again.
    pub(super) fn another(&self) -> Outcome<Self> {
        Self::new(self.size, self.source)
    }

    /// Copies from the memory of this process.
    pub(super) fn write(&self, offset: usize, bytes: *const u8, size: usize) -> Outcome<()> {
        debug_assert!(offset + size <= self.size);
        // SAFETY: callers pass memory of at least this size, and the range lies inside of this allocation.
        let result = unsafe { sys::cuMemcpyHtoD_v2(self.address + wide(offset), bytes.cast::<c_void>(), size) };
        checked(result, "copying to the device")
    }

    /// Copies to the memory of this process.
    pub(super) fn read(&self, offset: usize, bytes: *mut u8, size: usize) -> Outcome<()> {
        debug_assert!(offset + size <= self.size);
        // SAFETY: callers pass memory of at least this size, and the range lies inside of this allocation.
        let result = unsafe { sys::cuMemcpyDtoH_v2(bytes.cast::<c_void>(), self.address + wide(offset), size) };
        checked(result, "copying from the device")
    }

    /// Copies within the device, in the order of the stream.
    pub(super) fn copy_from(&self, offset: usize, source: &Self, from: usize, size: usize, on: &Stream) -> Outcome<()> {
        if size == 0 {
            return Ok(());
        }
        debug_assert!(offset + size <= self.size && from + size <= source.size);
        let (to, from) = (self.address + wide(offset), source.address + wide(from));
        // SAFETY: both ranges lie inside of their allocations.
        checked(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, size, on.0) }, "copying on the device")
    }

    /// Fills whole 32-bit words, in the order of the stream.
    pub(super) fn fill(&self, offset: usize, size: usize, pattern: u32, on: &Stream) -> Outcome<()> {
        debug_assert!(offset + size <= self.size);
        if size < 4 {
            return Ok(());
        }
        let words = size / 4;
        // SAFETY: the range lies inside of this allocation.
        let result = unsafe { sys::cuMemsetD32Async(self.address + wide(offset), pattern, words, on.0) };
        checked(result, "filling memory of the device")?;
        if size % 4 < 2 {
            return Ok(());
        }
        // An odd number of 16-bit elements: the last one gets the half of the pattern that is no number.
        let (last, half) = (self.address + wide(offset + size - 2), u16::try_from(pattern >> 16).unwrap_or(0));
        // SAFETY: the range lies inside of this allocation.
        checked(unsafe { sys::cuMemsetD16Async(last, half, 1, on.0) }, "filling memory of the device")
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the allocation is freed once. A context that broke down has freed it already, which is no harm.
        let _ = unsafe {
            match self.source {
                Source::Driver => sys::cuMemFree_v2(self.address),
                Source::Pool(_, stream) => sys::cuMemFreeAsync(self.address, stream),
            }
        };
    }
}

/// Memory of this process, or shared with others, between which and the device's memory the device itself copies.
#[derive(Debug)]
pub(super) struct PinnedMemory(*mut c_void);

impl PinnedMemory {
    /// Pins memory that is mapped, and stays so until this is dropped. None where the driver cannot do that: then copies
    /// go through buffers of its own, which is slower and nothing else.
    pub(super) fn new(address: *mut u8, size: usize) -> Option<Self> {
        let address = address.cast::<c_void>();
        // SAFETY: a context is current; the caller keeps the mapping.
        let result = unsafe { sys::cuMemHostRegister_v2(address, size, 0) };
        (result == CUresult::CUDA_SUCCESS).then_some(Self(address))
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: it was pinned, and is not any more after this.
        let _ = unsafe { sys::cuMemHostUnregister(self.0) };
    }
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// A stream, which is not the default one.
#[derive(Debug)]
pub(super) struct Stream(CUstream);

impl Stream {
    pub(super) fn new() -> Outcome<Self> {
        let mut stream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current, and the pointer is valid for the call.
        checked(unsafe { sys::cuStreamCreate(&raw mut stream, flags) }, "making a stream")?;
        Ok(Self(stream))
    }

    /// As the native contract hands it over.
    pub(super) fn handle(&self) -> *mut c_void {
        self.0.cast()
    }

    /// Starts to record instead of to carry out.
    pub(super) fn begin_recording(&self) -> Outcome<()> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is ours.
        checked(unsafe { sys::cuStreamBeginCapture_v2(self.0, mode) }, "recording a graph")
    }

    /// What was recorded, ready to be launched.
    pub(super) fn end_recording(&self) -> Outcome<Graph> {
        let mut graph: CUgraph = std::ptr::null_mut();
        // SAFETY: the stream is ours, and the pointer is valid for the call.
        checked(unsafe { sys::cuStreamEndCapture(self.0, &raw mut graph) }, "recording a graph")?;
        let mut launchable: CUgraphExec = std::ptr::null_mut();
        // SAFETY: the graph was just recorded; it is not needed once it can be launched.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&raw mut launchable, graph, 0);
            let _ = sys::cuGraphDestroy(graph);
            made
        };
        checked(made, "making a graph")?;
        Ok(Graph(launchable))
    }
}

/// A recorded sequence of work.
#[derive(Debug)]
pub(super) struct Graph(CUgraphExec);

impl Graph {
    pub(super) fn launch(&self, on: &Stream) -> Outcome<()> {
        // SAFETY: graph and stream are ours.
        checked(unsafe { sys::cuGraphLaunch(self.0, on.0) }, "launching a graph")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

/// A point in the order of a stream, with its time.
#[derive(Debug)]
pub(super) struct Event(CUevent);

impl Event {
    pub(super) fn new() -> Outcome<Self> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a context is current, and the pointer is valid for the call.
        let result = unsafe { sys::cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DEFAULT as u32) };
        checked(result, "making an event")?;
        Ok(Self(event))
    }

    pub(super) fn record(&self, on: &Stream) -> Outcome<()> {
        // SAFETY: event and stream are ours.
        checked(unsafe { sys::cuEventRecord(self.0, on.0) }, "recording an event")
    }

    /// Waits until everything before it in its stream is done.
    pub(super) fn wait(&self, during: &str) -> Outcome<()> {
        // SAFETY: the event is ours.
        checked(unsafe { sys::cuEventSynchronize(self.0) }, during)
    }

    /// Nanoseconds from this event to a later one. Both have to be over.
    pub(super) fn until_ns(&self, later: &Self) -> Outcome<u64> {
        let mut elapsed_ms = 0.0_f32;
        // SAFETY: both events are ours, and the pointer is valid for the call.
        let result = unsafe { sys::cuEventElapsedTime_v2(&raw mut elapsed_ms, self.0, later.0) };
        checked(result, "reading the time of events")?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        Ok((f64::from(elapsed_ms) * 1e6).round().max(0.0) as u64)
    }
}

/// The one device that this process is shown, with its primary context, which the program's own runtime uses too.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) l2_bytes: usize,
}

impl Context {
    /// Takes hold of the device and makes its context that of this thread.
    pub(super) fn open() -> Outcome<Self> {
        // SAFETY: only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            let during = "looking for the driver's library".to_owned();
            return Err(Fault { during, error: "CUDA_ERROR_STUB_LIBRARY".to_owned() });
        }
        let mut device: CUdevice = 0;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: every pointer is valid for its call. The context is retained for the life of the process.
        unsafe {
            checked(sys::cuInit(0), "starting the driver")?;
            checked(sys::cuDeviceGet(&raw mut device, 0), "finding the device")?;
            // The thread that waits has nothing else to do, and every microsecond of its waking up would be measured.
            let spin = CUctx_flags::CU_CTX_SCHED_SPIN as u32;
            checked(sys::cuDevicePrimaryCtxSetFlags_v2(device, spin), "preparing the context")?;
            checked(sys::cuDevicePrimaryCtxRetain(&raw mut context, device), "making the context")?;
            checked(sys::cuCtxSetCurrent(context), "entering the context")?;
        }
        let l2_bytes = attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        Ok(Self { l2_bytes })
    }

    /// Lets the driver start the thread that it calls functions of the host from: later it cannot.
    #[expect(clippy::unused_self, reason = "there is a context to speak of")]
    pub(super) fn start_callbacks(&self, on: &Stream) -> Outcome<()> {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        // SAFETY: the function uses nothing, and the stream is ours.
        checked(unsafe { sys::cuLaunchHostFunc(on.0, Some(nothing), std::ptr::null_mut()) }, "starting callbacks")
    }

    /// Waits until nothing runs on the device any more, on whatever stream.
    #[expect(clippy::unused_self, reason = "there is a context to wait for")]
    pub(super) fn settle(&self, during: &str) -> Outcome<()> {
        // SAFETY: a context is current.
        checked(unsafe { sys::cuCtxSynchronize() }, during)
    }

    /// Nothing may stay in the cache because it was asked to persist. Not every device has such a thing.
    #[expect(clippy::unused_self, reason = "there is a context to speak of")]
    pub(super) fn forget_persisting_lines(&self) {
        // SAFETY: a context is current.
        unsafe {
            let _ = sys::cuCtxSetLimit(CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0);
            let _ = sys::cuCtxResetPersistingL2Cache();
        }
    }

    /// Marks the range that profilers are asked to look at.
    #[expect(clippy::unused_self, reason = "there is a context to speak of")]
    pub(super) fn profile(&self, on: bool) {
        // SAFETY: a context is current. Without a profiler both do nothing.
        unsafe {
            let _ = if on { sys::cuProfilerStart() } else { sys::cuProfilerStop() };
        }
    }
}

fn attribute(device: CUdevice, which: CUdevice_attribute) -> Outcome<usize> {
    let mut value = 0;
    // SAFETY: the pointer is valid for the call.
    checked(unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) }, "asking the device")?;
    Ok(usize::try_from(value).unwrap_or(0))
}
