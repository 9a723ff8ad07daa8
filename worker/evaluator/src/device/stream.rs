//! Streams of the device, and events on them.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUevent, CUevent_flags, CUstream, CUstream_flags};

use super::error::{Outcome, checked};

/// A stream, which is not the default one.
#[derive(Debug)]
pub(crate) struct Stream(pub(super) CUstream);

// SAFETY: the driver allows every thread to use a stream of a context that it entered.
unsafe impl Send for Stream {}
// SAFETY: as above; the handle never changes.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new() -> Outcome<Self> {
        let mut stream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current, and the pointer is valid for the call.
        checked(unsafe { sys::cuStreamCreate(&raw mut stream, flags) }, "making a stream")?;
        Ok(Self(stream))
    }

    /// Its handle, as the native contract passes it on.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.0.cast()
    }

    /// Waits for everything that was queued.
    pub(crate) fn synchronize(&self, during: &str) -> Outcome<()> {
        // SAFETY: the stream is ours.
        checked(unsafe { sys::cuStreamSynchronize(self.0) }, during)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// A point in the order of a stream, with its time.
#[derive(Debug)]
pub(crate) struct Event(CUevent);

impl Event {
    pub(crate) fn new() -> Outcome<Self> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a context is current, and the pointer is valid for the call.
        let made = unsafe { sys::cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DEFAULT as u32) };
        checked(made, "making an event")?;
        Ok(Self(event))
    }

    pub(crate) fn record(&self, on: &Stream) -> Outcome<()> {
        // SAFETY: event and stream are ours.
        checked(unsafe { sys::cuEventRecord(self.0, on.0) }, "recording an event")
    }

    /// Nanoseconds from this event to a later one. Both have to be over.
    pub(crate) fn until_ns(&self, later: &Self) -> Outcome<u64> {
        let mut elapsed_ms = 0.0_f32;
        // SAFETY: both events are ours, and the pointer is valid for the call.
        let read = unsafe { sys::cuEventElapsedTime_v2(&raw mut elapsed_ms, self.0, later.0) };
        checked(read, "reading the time of events")?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        Ok((f64::from(elapsed_ms) * 1e6).round().max(0.0) as u64)
    }
}
