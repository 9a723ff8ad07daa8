//! Limits of every compiler, and the name of its output file.

use nightshift_sandbox::process::Limits;

/// Memory of each process of the compiler, in bytes.
const COMPILER_MEMORY_BYTES: u64 = 2 << 30;
/// Largest file that the compiler may write, in bytes.
const MAX_OUTPUT_FILE_BYTES: u64 = 128 << 20;
/// Most output of the compiler, in bytes.
const MAX_LOG_BYTES: usize = 1 << 20;
/// Processes of one compilation: driver, compiler, assembler, linker, and room.
const MAX_PROCESSES: u64 = 64;

/// Name of the file that every compiler writes.
pub const LIBRARY: &str = "library.so";

/// Limits of every compiler.
#[must_use]
pub fn limits(timeout_ms: u64) -> Limits {
    Limits {
        wall_ms: timeout_ms,
        cpu_s: timeout_ms.div_ceil(1_000) + 1,
        memory_bytes: COMPILER_MEMORY_BYTES,
        file_bytes: MAX_OUTPUT_FILE_BYTES,
        processes: MAX_PROCESSES,
        output_bytes: MAX_LOG_BYTES,
    }
}
