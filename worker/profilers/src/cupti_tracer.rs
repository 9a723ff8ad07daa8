//! CUPTI inside of a replay: the driver tells what ran when, where no other tool can be put in front of the program. The
//! library is loaded at run time, from where the parent found it.
//!
//! Only the beginnings of its records are read: they are the same in every version since CUDA 11, later versions add
//! fields behind them.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::{Deserialize, Serialize};

/// Size of one buffer for records, in words of eight bytes, at which records are aligned.
const BUFFER_WORDS: usize = 1 << 17;

/// Maximum number of records of one kind that are kept.
pub(crate) const MAX_RECORDS: usize = 100_000;

/// Maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 512;

/// Kinds of records that are asked for.
const KINDS: [u32; 5] = [COPY, SET, DRIVER_CALL, RUNTIME_CALL, KERNEL];
const COPY: u32 = 1;
const SET: u32 = 2;
const DRIVER_CALL: u32 = 4;
const RUNTIME_CALL: u32 = 5;
const KERNEL: u32 = 10;

/// Sets of calls that have names: by the kind of their records.
const DRIVER_NAMES: u32 = 1;
const RUNTIME_NAMES: u32 = 2;

/// Waits for records that are not there yet.
const FLUSH_FORCED: u32 = 1;

/// The recorded events. Times are nanoseconds of the driver's clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceTrace {
    /// Version of the interface.
    pub(crate) version: u32,
    /// Records that found no room, or were more than are kept.
    pub(crate) dropped: u64,
    /// Names of kernels as they are in the machine code, and of calls.
    pub(crate) names: Vec<String>,
    /// Kernels.
    pub(crate) kernels: Vec<TracedKernel>,
    /// Copies, and sets, whose direction is 0.
    pub(crate) copies: Vec<TracedCopy>,
    /// Calls of the driver's and the runtime's interface.
    pub(crate) calls: Vec<TracedCall>,
}

/// A kernel launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracedKernel {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    /// Number of its name.
    pub(crate) name: usize,
    pub(crate) grid: [i32; 3],
    pub(crate) block: [i32; 3],
    pub(crate) registers: u16,
    pub(crate) shared_bytes: i64,
}

/// A memory copy or set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracedCopy {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    /// As the interface numbers it; none for a set.
    pub(crate) direction: Option<u8>,
    pub(crate) bytes: u64,
}

/// A call of an API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracedCall {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) thread: u32,
    pub(crate) correlation: u32,
    /// Number of its name.
    pub(crate) name: usize,
}

/// Beginning of a record of a kernel.
#[repr(C)]
struct KernelRecord {
    kind: u32,
    cache: u8,
    shared_config: u8,
    registers: u16,
    partition_asked: u32,
    partition_used: u32,
    start: u64,
    end: u64,
    completed: u64,
    device: u32,
    context: u32,
    stream: u32,
    grid: [i32; 3],
    block: [i32; 3],
    static_shared: i32,
    dynamic_shared: i32,
    local_per_thread: u32,
    local: u32,
    correlation: u32,
    grid_id: i64,
    name: *const c_char,
}

/// Beginning of a record of a copy.
#[repr(C)]
struct CopyRecord {
    kind: u32,
    direction: u8,
    from: u8,
    to: u8,
    flags: u8,
    bytes: u64,
    start: u64,
    end: u64,
    device: u32,
    context: u32,
    stream: u32,
    correlation: u32,
}

/// Beginning of a record of a set.
#[repr(C)]
struct SetRecord {
    kind: u32,
    value: u32,
    bytes: u64,
    start: u64,
    end: u64,
    device: u32,
    context: u32,
    stream: u32,
    correlation: u32,
}

/// A record of a call.
#[repr(C)]
struct CallRecord {
    kind: u32,
    which: u32,
    start: u64,
    end: u64,
    process: u32,
    thread: u32,
    correlation: u32,
    returned: u32,
}

type Status = u32;
type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The calls of CUPTI that are needed.
#[derive(Clone, Copy)]
struct Interface {
    register: unsafe extern "C" fn(Requested, Completed) -> Status,
    enable: unsafe extern "C" fn(u32) -> Status,
    flush: unsafe extern "C" fn(u32) -> Status,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
    name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Status,
    text: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    version: unsafe extern "C" fn(*mut u32) -> Status,
}

impl Interface {
    fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: the parent found NVIDIA's library there; what its initializers do concerns this process alone.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| format!("CUPTI cannot be loaded: {error}"))?;
        macro_rules! call {
            ($name:literal) => {
                // SAFETY: the types are those of NVIDIA's headers, where the name is part of the stable interface.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                    .map_err(|error| format!("CUPTI has no {}: {error}", $name))?
            };
        }
        let interface = Self {
            register: call!("cuptiActivityRegisterCallbacks"),
            enable: call!("cuptiActivityEnable"),
            flush: call!("cuptiActivityFlushAll"),
            next: call!("cuptiActivityGetNextRecord"),
            dropped: call!("cuptiActivityGetNumDroppedRecords"),
            name: call!("cuptiGetCallbackName"),
            text: call!("cuptiGetResultString"),
            version: call!("cuptiGetVersion"),
        };
        // It is called from its own thread until the process ends.
        std::mem::forget(library);
        Ok(interface)
    }

    fn checked(&self, status: Status, during: &str) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the pointer is valid for the call, which gives a string that lives as long as the library.
        let known = unsafe { (self.text)(status, &raw mut text) } == 0 && !text.is_null();
        // SAFETY: as above.
        let name = if known { unsafe { owned(text) } } else { format!("error {status}") };
        Err(format!("{during}: {name}"))
    }
}

/// The data that CUPTI's own thread collects.
struct Sink {
    interface: Interface,
    trace: DeviceTrace,
    /// Numbers of names of kernels, by their text, and of calls, by their set and number.
    kernels: HashMap<String, usize>,
    calls: HashMap<(u32, u32), usize>,
}

static SINK: Mutex<Option<Sink>> = Mutex::new(None);

fn sink() -> MutexGuard<'static, Option<Sink>> {
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Traces this process, from its beginning to its end.
pub(super) struct Tracer(Interface);

impl Tracer {
    /// Loads CUPTI and begins.
    pub(super) fn start(library: &Path) -> Result<Self, String> {
        let interface = Interface::load(library)?;
        let mut trace = DeviceTrace::default();
        // SAFETY: the pointer is valid for the call.
        interface.checked(unsafe { (interface.version)(&raw mut trace.version) }, "asking for its version")?;
        *sink() = Some(Sink { interface, trace, kernels: HashMap::new(), calls: HashMap::new() });
        // SAFETY: both functions have the types that the interface asks for, and live as long as the process.
        let registered = unsafe { (interface.register)(buffer_requested, buffer_completed) };
        interface.checked(registered, "registering buffers")?;
        for kind in KINDS {
            // SAFETY: a call without pointers.
            interface.checked(unsafe { (interface.enable)(kind) }, "asking for records")?;
        }
        Ok(Self(interface))
    }

    /// Waits for everything that was traced.
    pub(super) fn finish(self) -> Result<DeviceTrace, String> {
        // The lock is free: records come in while this waits.
        // SAFETY: a call without pointers.
        self.0.checked(unsafe { (self.0.flush)(FLUSH_FORCED) }, "waiting for records")?;
        sink().take().map(|sink| sink.trace).ok_or_else(|| "nothing was traced".to_owned())
    }
}

unsafe extern "C" fn buffer_requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let words = Box::into_raw(vec![0_u64; BUFFER_WORDS].into_boxed_slice());
    // SAFETY: CUPTI passes places for three answers.
    unsafe {
        *buffer = words.cast::<u8>();
        *size = BUFFER_WORDS * size_of::<u64>();
        *most_records = 0;
    }
}

unsafe extern "C" fn buffer_completed(context: *mut c_void, stream: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let Some(sink) = sink().as_mut() {
        // SAFETY: the buffer is one of `buffer_requested`, which CUPTI filled up to there and gives back with this call.
        unsafe { sink.read(context, stream, buffer, valid) };
    }
    #[expect(clippy::cast_ptr_alignment, reason = "it was made of such words")]
    let words = std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), BUFFER_WORDS);
    // SAFETY: `buffer_requested` allocated it with this type and length, and no other reference to it exists.
    drop(unsafe { Box::from_raw(words) });
}

impl Sink {
    unsafe fn read(&mut self, context: *mut c_void, stream: u32, buffer: *mut u8, valid: usize) {
        let mut record = std::ptr::null_mut();
        // SAFETY: as the caller promises; the call gives one record after the other, and an error behind the last one.
        while unsafe { (self.interface.next)(buffer, valid, &raw mut record) } == 0 && !record.is_null() {
            // SAFETY: every record begins with its kind, and has the type that belongs to it.
            unsafe { self.take(record) };
        }
        let mut lost = 0;
        // SAFETY: the pointer is valid for the call.
        if unsafe { (self.interface.dropped)(context, stream, &raw mut lost) } == 0 {
            self.trace.dropped = self.trace.dropped.saturating_add(u64::try_from(lost).unwrap_or(u64::MAX));
        }
    }

    unsafe fn take(&mut self, record: *const u8) {
        // SAFETY: as the caller promises. Records are packed, so that nothing is said of their alignment.
        match unsafe { record.cast::<u32>().read_unaligned() } {
            KERNEL if self.trace.kernels.len() < MAX_RECORDS => {
                // SAFETY: as the caller promises.
                let kernel = unsafe { record.cast::<KernelRecord>().read_unaligned() };
                let name = if kernel.name.is_null() {
                    String::new()
                } else {
                    // SAFETY: CUPTI's own string, which lives as long as the kernel's module.
                    unsafe { owned(kernel.name) }
                };
                let name = self.kernel_name(name);
                self.trace.kernels.push(TracedKernel {
                    start_ns: kernel.start,
                    end_ns: kernel.end,
                    stream: kernel.stream,
                    correlation: kernel.correlation,
                    name,
                    grid: kernel.grid,
                    block: kernel.block,
                    registers: kernel.registers,
                    shared_bytes: i64::from(kernel.static_shared) + i64::from(kernel.dynamic_shared),
                });
            }
            COPY if self.trace.copies.len() < MAX_RECORDS => {
                // SAFETY: as the caller promises.
                let copy = unsafe { record.cast::<CopyRecord>().read_unaligned() };
                self.trace.copies.push(TracedCopy {
                    start_ns: copy.start,
                    end_ns: copy.end,
                    stream: copy.stream,
                    correlation: copy.correlation,
                    direction: Some(copy.direction),
                    bytes: copy.bytes,
                });
            }
            SET if self.trace.copies.len() < MAX_RECORDS => {
                // SAFETY: as the caller promises.
                let set = unsafe { record.cast::<SetRecord>().read_unaligned() };
                self.trace.copies.push(TracedCopy {
                    start_ns: set.start,
                    end_ns: set.end,
                    stream: set.stream,
                    correlation: set.correlation,
                    direction: None,
                    bytes: set.bytes,
                });
            }
            kind @ (DRIVER_CALL | RUNTIME_CALL) if self.trace.calls.len() < MAX_RECORDS => {
                // SAFETY: as the caller promises.
                let call = unsafe { record.cast::<CallRecord>().read_unaligned() };
                let name = self.call_name(if kind == DRIVER_CALL { DRIVER_NAMES } else { RUNTIME_NAMES }, call.which);
                self.trace.calls.push(TracedCall {
                    start_ns: call.start,
                    end_ns: call.end,
                    thread: call.thread,
                    correlation: call.correlation,
                    name,
                });
            }
            KERNEL | COPY | SET | DRIVER_CALL | RUNTIME_CALL => self.trace.dropped += 1,
            _ => {}
        }
    }

    fn kernel_name(&mut self, name: String) -> usize {
        let names = &mut self.trace.names;
        *self.kernels.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            names.len() - 1
        })
    }

    fn call_name(&mut self, set: u32, which: u32) -> usize {
        let (names, interface) = (&mut self.trace.names, self.interface);
        *self.calls.entry((set, which)).or_insert_with(|| {
            let mut text = std::ptr::null();
            // SAFETY: the pointer is valid for the call, which gives a string that lives as long as the library.
            let known = unsafe { (interface.name)(set, which, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: as above.
            names.push(if known { unsafe { owned(text) } } else { String::new() });
            names.len() - 1
        })
    }
}

unsafe fn owned(text: *const c_char) -> String {
    // SAFETY: the caller passes a string that ends.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    text.chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Places of the fields by the headers of CUDA 12 and 13 (`CUpti_ActivityKernel9` and later, `CUpti_ActivityMemcpy5` and
    /// later, `CUpti_ActivityMemset4`, `CUpti_ActivityAPI`).
    #[test]
    fn fields_lie_where_cupti_puts_them() {
        assert_eq!(
            [
                offset_of!(KernelRecord, registers),
                offset_of!(KernelRecord, start),
                offset_of!(KernelRecord, stream),
                offset_of!(KernelRecord, grid),
                offset_of!(KernelRecord, static_shared),
                offset_of!(KernelRecord, correlation),
                offset_of!(KernelRecord, name),
            ],
            [6, 16, 48, 52, 76, 92, 104]
        );
        assert_eq!([offset_of!(CopyRecord, bytes), offset_of!(CopyRecord, correlation)], [8, 44]);
        assert_eq!([offset_of!(SetRecord, bytes), offset_of!(SetRecord, correlation)], [8, 44]);
        assert_eq!([offset_of!(CallRecord, start), offset_of!(CallRecord, correlation)], [8, 32]);
    }
}
