//! Compilers, disassemblers and Python: finds them on this machine, and builds programs with them.
//!
//! A build is addressed by everything that goes into it, and runs in the sandbox, as does the inspection of a model's file.

pub mod build;
pub mod build_cache;
mod build_provenance;
pub mod cache_folder;
mod compiler_limits;
pub mod compiler_output;
pub mod disassembly;
mod host;
pub mod inspect;
pub mod machine;
pub mod nvcc;
mod proofs;
pub mod python;
pub mod symbols;
pub mod toolchain;

pub use build_provenance::BuildProvenance;
pub use host::Host;
