//! Starts every process of a worker, and isolates those that run candidate code.
//!
//! A sandboxed process is the worker's own binary, executed again: it restricts itself and then becomes a command, such as a
//! compiler or a profiler, or a hosted process, whose entry points the binary names in [`HostedMain`]. This crate never
//! decides what runs in a process, and knows neither tasks nor steps.
//!
//! Modules use only those above them in this list: [`report`], [`limits`], [`procfs`], [`cores`], [`end`], [`wire`], [`device`],
//! [`user`], [`plan`], [`access`], [`cgroup`], [`isolation`], [`break_out`], [`supervisor`], [`process`], [`probe`].

pub mod access;
mod break_out;
mod cgroup;
pub mod cores;
#[expect(unsafe_code, reason = "loads the driver's library to find its folder")]
mod device;
mod end;
mod isolation;
mod limits;
mod plan;
mod probe;
pub mod process;
mod procfs;
mod report;
mod supervisor;
#[expect(unsafe_code, reason = "changing the user of a process has no safe interface")]
mod user;
mod wire;

pub use self::device::{DRIVER_FOLDERS, DeviceAccess, DeviceMissing};
pub use self::isolation::system_calls::{python_filter, refuse_start_up_calls};
pub use self::plan::{HostedKind, HostedMain, HostedProcess, JailPlan, Work};
pub use self::probe::probe;
