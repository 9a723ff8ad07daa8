//! Messages between the evaluator and the process that runs a program.

use std::path::PathBuf;

use nightshift_protocol::task::TorchSpec;
use serde::{Deserialize, Serialize};

use crate::device::DeviceError;
use crate::layout::Layout;

/// What a runner is told when its process starts. It names no program, so that the process can wait for one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartPlan {
    /// Whether programs compute on a device.
    pub(crate) on_device: bool,
    /// Whether system calls that only the driver needs are refused once it has started.
    pub(crate) filtered: bool,
    /// The Python that runs the program; none for a library.
    pub(crate) python: Option<PythonPlan>,
}

/// The Python that runs a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PythonPlan {
    /// The Python.
    pub(crate) program: PathBuf,
    /// Where it finds bytecode, unless it lies beside the sources.
    pub(crate) bytecode: Option<PathBuf>,
    /// Where models find what was fetched of them before.
    pub(crate) models: Option<PathBuf>,
    /// A folder of its own to write to: a program for a device may compile at its first call.
    pub(crate) scratch: Option<PathBuf>,
}

/// The program of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProgramPlan {
    /// The library, or a file of Python.
    pub(crate) program: PathBuf,
    /// Libraries that it relies on, loaded before it.
    pub(crate) libraries: Vec<PathBuf>,
    /// How a file of Python is built and called.
    pub(crate) torch: Option<TorchSpec>,
    /// Whether a model is called in double precision.
    pub(crate) double: bool,
    /// True if the model runs with TF32 switched off.
    pub(crate) strict: bool,
}

/// A message from the evaluator. The answer repeats its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// A number that a program cannot guess.
    pub(crate) nonce: u64,
    /// What to do.
    pub(crate) request: Request,
}

/// What a runner is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Answer: a Python process does so once it has loaded `PyTorch`.
    Hello {},
    /// Open the device.
    Open {},
    /// Map shared memory in the place of what was mapped before. The message carries its descriptor, unless it names a handle.
    Map {
        /// Size of the memory in bytes.
        size: usize,
        /// The bytes of a handle of CUDA's interface between processes.
        handle: Option<Vec<u8>>,
        /// Where tensors lie, for each shape.
        layouts: Vec<Layout>,
    },
    /// Map no memory any more.
    Unmap {},
    /// Load the program.
    Load(ProgramPlan),
    /// Use the layout of this number from now on, and free what was prepared for another one.
    Shape {
        /// Number of the layout.
        number: usize,
    },
    /// Prepare the weights, after freeing what was prepared before.
    Init {},
    /// Call the program once, and take of its outputs what is complete in the order of the stream. For libraries on a device.
    CallInOrder {},
    /// Call the program on the buffers of so many calls, the first ones first.
    Call {
        /// How many calls.
        count: usize,
    },
    /// Do everything that surrounds so many calls, without calling the program.
    Empty {
        /// How many calls.
        count: usize,
    },
    /// Follow the control page until it says to leave.
    Windows {},
    /// Free memory that no tensor uses.
    Trim {},
}

impl Request {
    /// Name of the request, for logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Hello {} => "hello",
            Self::Open {} => "open",
            Self::Map { .. } => "map",
            Self::Unmap {} => "unmap",
            Self::Load(_) => "load",
            Self::Shape { .. } => "shape",
            Self::Init {} => "init",
            Self::Call { .. } => "call",
            Self::CallInOrder {} => "call_in_order",
            Self::Empty { .. } => "empty",
            Self::Windows {} => "windows",
            Self::Trim {} => "trim",
        }
    }
}

/// The answer to one message. Nothing in it is trusted: times in it are shown as evidence, and nothing is subtracted from the
/// evaluator's own times because of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reply {
    /// Number of the message.
    pub(crate) nonce: u64,
    /// What the entry point returned; 0 for success.
    pub(crate) status: i32,
    /// Time between the device's events around the calls, in nanoseconds.
    pub(crate) events_ns: u64,
    /// Why the program could not be loaded.
    pub(crate) load_error: Option<String>,
    /// What went wrong on the device.
    pub(crate) fault: Option<DeviceError>,
}
