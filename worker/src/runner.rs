//! Runs one library in a process of its own, call by call.
//!
//! The parent keeps a [`Session`]: it writes inputs into shared memory, asks for a call and takes the outputs out
//! again. The child loads the library after it was restricted, and answers each request with a status and the time of
//! the call. Comparing, judging and everything secret stay with the parent; a candidate and the reference never share
//! memory.

#[expect(unsafe_code, reason = "memory shared with another process")]
mod arena;
mod breach;
#[expect(unsafe_code, reason = "CUPTI's interface is a foreign one")]
mod cupti;
mod device;
#[expect(unsafe_code, reason = "the driver's interface is a foreign one")]
mod driver;
mod gate;
mod message;
mod plan;
mod python;
mod replay;
mod sampling;
#[expect(unsafe_code, reason = "loads a foreign library and calls it through the native contract")]
mod serve;
mod session;

pub use breach::{Breach, note};
pub(crate) use cupti::DeviceTrace;
pub use gate::{Gate, Quiet, Stay};
pub(crate) use message::RowSlots;
pub(crate) use plan::TorchPlan;
pub(crate) use python::become_python;
pub use replay::write_replay;
pub(crate) use replay::{REPLAY_FILE, replay, write_any_replay};
pub use sampling::{Burst, Draw};
pub(crate) use serve::serve;
pub(crate) use session::{Beside, Enter, Turn};
pub use session::{
    Call, CallTime, DeviceUse, Grounds, Launched, Place, Session, SessionError, SessionOptions, Standby, Withheld,
};
pub(crate) use session::{SHARE_BYTES, SHARES_PER_CONTEXT, is_python, python_folders, replay_torch_plan};
