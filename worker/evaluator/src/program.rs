//! The evaluator's side of one program: its process and the memory that both share.

pub mod context;
mod error;
mod file;
mod pool;
mod process;
mod run;
mod watch;

pub use self::error::ProgramError;
pub(crate) use self::file::{Arithmetic, ProgramFile, ProgramOptions, shared_bytes};
pub use self::pool::{PoolPause, ProcessDemand, ProcessPool, Slot};
pub(crate) use self::process::Window;
pub(crate) use self::run::{Launched, Program};
