//! What keeps foreign code away from the machine.
//!
//! A jailed child is this binary, executed again. Three processes make a jail:
//!
//! - the *supervisor* stays outside of every restriction and watches the control socket: when the parent is gone, or
//!   ends the conversation, it kills and collects everything;
//! - the *init* is the first process of its own process namespace, where that is allowed; it waits for the program
//!   and reports how it ended;
//! - the *program* restricts itself and then becomes the command, the runner or the probe.
//!
//! Kernels and containers differ in what they allow. Each means is tried on its own, and reported as in force only
//! when the kernel confirmed it: namespaces with a private root on one road, Landlock on the other, both with a filter
//! of system calls, limits and without privileges.

#[expect(unsafe_code, reason = "loads the driver's library to see where it lies")]
mod device;
mod files;
mod limits;
#[expect(unsafe_code, reason = "the kernel's interface for mounts and namespaces")]
mod namespaces;
mod plan;
mod probe;
#[expect(unsafe_code, reason = "fork, wait and the closing of inherited descriptors have no safe interface")]
mod supervise;
mod system_calls;

pub use device::DRIVER_FOLDERS;
pub use device::{DeviceAccess, DeviceMissing, Queues};
pub use plan::{ControlMessage, HostedKind, HostedMain, HostedProcess, JailPlan, Work};
pub use probe::probe;
pub use supervise::supervise;
pub use system_calls::{filter_for_python, refuse_after_start};
