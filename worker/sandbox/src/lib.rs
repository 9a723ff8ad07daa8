//! Starts every process of a worker, and isolates those that run code of others.
//!
//! A sandboxed process is the same binary, executed again: it restricts itself and then becomes a command (a compiler, a
//! profiler) or a hosted process, whose entry point the binary names in [`HostedMain`]. This crate never decides what runs
//! in a process, and knows neither tasks nor steps.

pub mod isolation;
pub mod process;

pub use isolation::{
    DRIVER_FOLDERS, DeviceAccess, DeviceMissing, HostedKind, HostedMain, HostedProcess, JailPlan, Queues, Work,
    filter_for_python, probe, refuse_after_start,
};
