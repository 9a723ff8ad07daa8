//! Tests a GPU in a fresh process: it creates a context, fills a little memory and copies it back. It uses no kernel and
//! no program code, so that a failure is a fault of the GPU.
//!
//! The test also reads the facts that only CUDA reports.

use std::io::Write as _;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute, CUresult};
use nightshift_protocol::machine::CudaFacts;
use serde::{Deserialize, Serialize};

/// Size of the memory to fill and copy, in bytes.
const SCRATCH_BYTES: usize = 1 << 20;
/// Value to fill it with.
const FILL: u8 = 0xA5;

/// A stage of the test. The child prints it first, so that the last line of a hanging child names the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// Loading the driver's library.
    Load,
    /// Initializing it.
    Initialize,
    /// Looking the device up.
    Find,
    /// Creating a context.
    Context,
    /// Allocating memory.
    Allocate,
    /// Filling it.
    Fill,
    /// Copying it back.
    Copy,
    /// Giving everything back.
    Release,
}

impl Stage {
    /// Returns the stage as words that follow "while".
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Load => "loading the driver's library",
            Self::Initialize => "initializing the driver",
            Self::Find => "looking the device up",
            Self::Context => "creating a context",
            Self::Allocate => "allocating memory",
            Self::Fill => "filling memory",
            Self::Copy => "copying memory",
            Self::Release => "giving the context back",
        }
    }
}

/// One line of the child's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub(super) enum Line {
    /// A stage begins.
    At {
        /// The stage.
        stage: Stage,
    },
    /// A call of the driver failed.
    Failed {
        /// The stage.
        stage: Stage,
        /// The driver's error number; 0 if there is none.
        code: u32,
        /// The driver's error name, or an observation.
        name: String,
    },
    /// The device works.
    Well(CudaFacts),
}

/// Runs the test in the child process: uses its device 0 and prints the stages to standard output. Returns the exit
/// status.
pub(crate) fn probe_main() -> i32 {
    // Without its parent this process has no purpose.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut stage = Stage::Load;
    let line = match examine(&mut stage) {
        Ok(facts) => Line::Well(facts),
        Err(ProbeError::Driver(error)) => Line::Failed { stage, code: number(error.0), name: name(error) },
        Err(ProbeError::Seen(what)) => Line::Failed { stage, code: 0, name: what.to_owned() },
    };
    say(&line);
    i32::from(!matches!(line, Line::Well(_)))
}

enum ProbeError {
    Driver(DriverError),
    Seen(&'static str),
}

impl From<DriverError> for ProbeError {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

fn examine(stage: &mut Stage) -> Result<CudaFacts, ProbeError> {
    let mut enter = |next: Stage| {
        *stage = next;
        say(&Line::At { stage: next });
    };
    enter(Stage::Load);
    // SAFETY: loads the driver's own library, as every CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        return Err(ProbeError::Seen("libcuda.so.1 cannot be loaded"));
    }
    enter(Stage::Initialize);
    result::init()?;
    enter(Stage::Find);
    let device = result::device::get(0)?;
    let attribute = |attribute| {
        // SAFETY: the device was just given by the driver.
        let value = unsafe { result::device::get_attribute(device, attribute) };
        value.ok().and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0)
    };
    let facts = CudaFacts {
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .and_then(|count| u32::try_from(count).ok()),
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        memory_clock_khz: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        memory_bus_bits: attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    };
    enter(Stage::Context);
    // SAFETY: the device was just given by the driver; the context is current on this thread until the process ends.
    unsafe { result::ctx::set_current(result::primary_ctx::retain(device)?)? };
    enter(Stage::Allocate);
    // SAFETY: a context is current. The memory lives until it is freed below, and is not used afterwards.
    let memory = unsafe { result::malloc_sync(SCRATCH_BYTES)? };
    enter(Stage::Fill);
    // SAFETY: the memory was just allocated with this size.
    unsafe { result::memset_d8_sync(memory, FILL, SCRATCH_BYTES)? };
    enter(Stage::Copy);
    let mut back = vec![0_u8; SCRATCH_BYTES];
    // SAFETY: both sides are of this size.
    unsafe { result::memcpy_dtoh_sync(&mut back, memory)? };
    if back.iter().any(|byte| *byte != FILL) {
        return Err(ProbeError::Seen("memory of the device gave back what was not written to it"));
    }
    enter(Stage::Release);
    // SAFETY: allocated above, and not used any more; so is the context.
    unsafe {
        result::free_sync(memory)?;
        result::primary_ctx::release(device)?;
    }
    Ok(facts)
}

fn say(line: &Line) {
    let mut stdout = std::io::stdout().lock();
    // The parent decides by the lines that arrive, so write errors are ignored.
    let _ = serde_json::to_writer(&mut stdout, line);
    let _ = stdout.write_all(b"\n").and_then(|()| stdout.flush());
}

fn number(result: CUresult) -> u32 {
    result as u32
}

fn name(error: DriverError) -> String {
    error.error_name().map_or_else(|_| format!("error {}", number(error.0)), |name| name.to_string_lossy().into_owned())
}
