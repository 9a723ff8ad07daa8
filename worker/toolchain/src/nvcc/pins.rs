//! The packages that `doctor --install-nvcc` installs: NVIDIA's own, from Python's package index.
//!
//! Every package is pinned, because they depend on each other loosely: a newer device compiler beside an older
//! assembler writes what that cannot read. They belong to CUDA 13.0, which drivers from 580 on can run.

/// A package of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// Its name in the index.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

impl Pin {
    /// As an installer wants it.
    #[must_use]
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

const fn pin(name: &'static str, version: &'static str) -> Pin {
    Pin { name, version }
}

/// Compiler, headers and runtime: about 110 MB to download, 280 MB on disk.
pub const COMPILER: [Pin; 7] = [
    // nvcc itself, with the assembler ptxas.
    pin("nvidia-cuda-nvcc", "13.0.88"),
    // The device compiler.
    pin("nvidia-nvvm", "13.0.88"),
    pin("nvidia-cuda-crt", "13.0.88"),
    // Headers of the runtime, and the runtime as a static library.
    pin("nvidia-cuda-runtime", "13.0.96"),
    // Thrust, CUB and libcu++; cuda_fp16.h needs some of it.
    pin("nvidia-cuda-cccl", "13.0.85"),
    // The oldest versions of the disassemblers that the index has; they read what 13.0 writes.
    pin("nvidia-cuda-cuobjdump", "13.2.51"),
    pin("nvidia-cuda-nvdisasm", "13.2.51"),
];

/// cuBLAS and cuBLASLt with their headers: about 420 MB to download, 700 MB on disk.
pub const CUBLAS: [Pin; 1] = [pin("nvidia-cublas", "13.1.0.3")];

/// The least driver that runs what these packages build.
pub const LEAST_DRIVER: u32 = 580;
