//! The process that runs one program. The evaluator starts it, maps its memory and asks for calls.
//!
//! The runner's own code is in the same process as the program, which can change it. Nothing that the process says is therefore
//! trusted: values are read from shared memory while the process is stopped, and times are those of the evaluator's clock.

#[expect(unsafe_code, reason = "reads and writes memory that another process maps, too")]
pub(crate) mod control;
pub(crate) mod message;
#[expect(unsafe_code, reason = "loads a foreign library and calls it through the native contract")]
mod native;
mod python;
mod replay;
mod serve;
mod tensors;

pub use self::python::become_python;
pub use self::replay::{CallObserver, ReplayRequest, replay};
pub use self::serve::serve;
