//! nvcc: which one, what it builds for and with which parts, and how a CUDA program becomes a library.
//!
//! It works on a machine without a GPU too: nothing here asks the driver.

pub mod arch;
pub(crate) mod command;
pub(crate) mod cubin;
mod disassembler;
mod error;
mod find;
pub mod install;
pub mod messages;
pub(crate) mod needed;
pub mod occupancy;
pub mod pins;
pub mod ptxas;
pub mod sass;
mod toolkit;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nightshift_protocol::machine::Toolchain;
use nightshift_protocol::task::CudaLibrary;

pub use self::arch::{Arch, DEFAULT_ARCH};
pub use self::disassembler::Disassembler;
pub use self::error::NvccError;
pub use self::find::{NvccChoice, Search, installed_programs};
pub use self::needed::libraries as needed_libraries;
pub use self::needed::{LibraryVersions, readable, title};
pub use self::toolkit::Toolkit;

/// A CUDA compiler that was proven to work, with all that goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvcc {
    pub(crate) toolchain: Toolchain,
    pub(crate) toolkit: Toolkit,
    pub(crate) arch: Arch,
    pub(crate) host_compiler: PathBuf,
    pub(crate) disassembler: Option<Disassembler>,
}

impl Nvcc {
    /// Compiler, version, flags: what is recorded with every build. The flags are those that decide about the code;
    /// baseline and candidate get the same.
    #[must_use]
    pub fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    /// What it builds for.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Version of the toolkit, for example 13 and 0. The runtime that is linked into every library is of this version:
    /// a driver has to know it.
    #[must_use]
    pub fn release(&self) -> (u32, u32) {
        self.toolkit.release
    }

    /// Returns whether programs can be built with this library here.
    #[must_use]
    pub fn has(&self, library: CudaLibrary) -> bool {
        self.toolkit.include_folder(library).is_some()
    }

    /// Where the shared libraries that a build names (`CudaBuild::libraries`) lie, when the system's own folders do not
    /// have them.
    #[must_use]
    pub fn library_folders(&self) -> &[PathBuf] {
        &self.toolkit.library_folders
    }

    /// Versions of the libraries that programs may use.
    #[must_use]
    pub fn library_versions(&self) -> LibraryVersions {
        LibraryVersions { cuda: self.toolkit.release.0, cudnn: self.toolkit.cudnn_major() }
    }

    /// Where the toolkit's other programs lie, for example compute-sanitizer.
    #[must_use]
    pub fn program_folder(&self) -> &Path {
        &self.toolkit.program_folder
    }

    /// The disassembler, when there is one.
    #[must_use]
    pub fn disassembler(&self) -> Option<&Disassembler> {
        self.disassembler.as_ref()
    }
}

/// The CUDA compiler of one build.
#[derive(Debug, Clone, Copy)]
pub struct CudaCompiler<'a> {
    /// The compiler.
    pub nvcc: &'a Nvcc,
    /// The libraries that the task allows.
    pub libraries: &'a BTreeSet<CudaLibrary>,
}

/// The flags that decide about the code.
///
/// None of them changes numbers beyond what the language's default does: fused multiply-adds are nvcc's default, and
/// there is no `-use_fast_math`. A candidate may ask for less precision in its source, where the check sees it.
#[must_use]
pub fn flags(arch: Arch) -> Vec<String> {
    vec![
        // Machine code for this architecture alone: no second pass for an intermediate form that nothing would read.
        format!("-gencode=arch={},code={arch}", arch.virtual_name()),
        "-std=c++20".to_owned(),
        "-O3".to_owned(),
        // Lines for profilers and sanitizers; does not change the code.
        "-lineinfo".to_owned(),
        "-shared".to_owned(),
        // The runtime travels in the library, so that it runs wherever a driver is.
        "-cudart=static".to_owned(),
        // One translation unit: there is no device code to be linked.
        "-nodlink".to_owned(),
        // Only the contract's entry points are visible.
        "-Xcompiler=-fPIC,-fvisibility=hidden".to_owned(),
        // No first call pays for the binding of a symbol.
        "-Xlinker=-z,now".to_owned(),
    ]
}
