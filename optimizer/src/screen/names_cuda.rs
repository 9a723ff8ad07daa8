//! What no honest CUDA program has a use for, by name.

use std::collections::BTreeSet;

use nightshift_protocol::task::CudaLibrary;
use nightshift_protocol::verdict::{Finding, Severity};

use super::finding;
use super::names::Ban;

/// Functions of the runtime and the driver without an honest use.
const REFUSED: &[Ban] = &[
    Ban {
        code: "device_control",
        why: "changes the device or the context that the program runs in",
        names: &[
            "cudaDeviceReset",
            "cudaSetDevice",
            "cudaInitDevice",
            "cudaSetDeviceFlags",
            "cudaSetValidDevices",
            "cudaChooseDevice",
            "cudaDeviceSetLimit",
            "cudaDeviceEnablePeerAccess",
            "cudaDeviceDisablePeerAccess",
            "cudaThreadExit",
            "cuInit",
        ],
        prefixes: &["cuCtx", "cuDevicePrimaryCtx", "cuGreenCtx"],
    },
    Ban {
        code: "profiler_control",
        why: "steers or asks profilers: a program may not know how it is looked at",
        names: &[],
        prefixes: &["cudaProfiler", "cuProfiler", "cupti", "nvmlDevice", "nvmlInit"],
    },
    Ban {
        code: "device_ipc",
        why: "shares memory or events with other processes",
        names: &[
            "cuMemExportToShareableHandle",
            "cuMemImportFromShareableHandle",
            "cudaMemPoolExportToShareableHandle",
            "cudaMemPoolImportFromShareableHandle",
            "cudaMemPoolExportPointer",
            "cudaMemPoolImportPointer",
        ],
        prefixes: &["cudaIpc", "cuIpc", "cudaImportExternal", "cuImportExternal"],
    },
    Ban {
        code: "loading",
        why: "loads or compiles code that was not built from this source",
        names: &[
            "cuLinkCreate",
            "cudaGetDriverEntryPoint",
            "cudaGetDriverEntryPointByVersion",
            "cuGetProcAddress",
            "cudaGetExportTable",
            "cuGetExportTable",
        ],
        prefixes: &["cuModuleLoad", "cuLibraryLoad", "cudaLibraryLoad", "nvrtc", "nvJitLink", "nvPTXCompiler"],
    },
    Ban {
        code: "foreign_memory",
        why: "looks for memory that was not handed to the program",
        names: &["cuMemGetAddressRange", "cuMemGetAddressRange_v2", "cuMemRetainAllocationHandle"],
        prefixes: &[],
    },
    Ban {
        code: "clocks",
        why: "asks for the time: a program may not know how it is measured",
        names: &["cudaEventElapsedTime", "cudaEventElapsedTime_v2", "cuEventElapsedTime", "cuEventElapsedTime_v2"],
        prefixes: &[],
    },
];

/// What has an honest use now and then, and deserves a look.
const SUSPECTED: &[Ban] = &[
    Ban {
        code: "device_clock",
        why: "reads the device's clock: a program may not know how it is measured",
        names: &["clock64", "__clock64", "__globaltimer", "globaltimer_ns"],
        prefixes: &["__nvvm_read_ptx_sreg_clock", "__nvvm_read_ptx_sreg_globaltimer"],
    },
    Ban {
        code: "managed_memory",
        why: "asks for memory that moves between host and device while the program runs",
        names: &["cudaMallocManaged", "cuMemAllocManaged"],
        prefixes: &[],
    },
];

/// The driver's function that makes descriptors of tensors has no other door: its name may be asked for.
pub(super) const ENTRY_POINTS: [&str; 3] =
    ["cudaGetDriverEntryPoint", "cudaGetDriverEntryPointByVersion", "cuGetProcAddress"];

/// Functions of CUDA whose replacement by an own definition changes how the runner launches, waits, copies or measures.
const NEVER_REDEFINED: &[&str] = &[
    "cudaEventCreate",
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cudaEventRecordWithFlags",
    "cudaEventQuery",
    "cudaEventSynchronize",
    "cudaEventElapsedTime",
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
    "cudaStreamQuery",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaGraphLaunch",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaFree",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaGetLastError",
    "cudaPeekAtLastError",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8_v2",
    "cuMemsetD32_v2",
];

/// The ban on a name in a CUDA program, when there is one.
pub(super) fn ban(name: &str) -> Option<(&'static Ban, Severity)> {
    super::names::find(REFUSED, name)
        .map(|ban| (ban, Severity::Violation))
        .or_else(|| super::names::find(SUSPECTED, name).map(|ban| (ban, Severity::Warning)))
}

/// Whether a definition of that name replaces a function of CUDA.
pub(super) fn replaces_cuda(name: &str) -> bool {
    NEVER_REDEFINED.contains(&name)
}

/// The library that a function belongs to, by its name: `cublasLtMatmul`, `cudnnCreate`. cuBLASLt brings types and
/// helpers that begin as those of cuBLAS do, so that one is asked for only where neither is allowed.
pub(super) fn library_of(name: &str, allowed: &BTreeSet<CudaLibrary>) -> Option<CudaLibrary> {
    let then_upper =
        |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    let belongs_to = if then_upper("cublasLt") {
        CudaLibrary::CublasLt
    } else if then_upper("cublas") {
        if allowed.contains(&CudaLibrary::CublasLt) {
            return None;
        }
        CudaLibrary::Cublas
    } else if then_upper("cudnn") {
        CudaLibrary::Cudnn
    } else {
        return None;
    };
    (!allowed.contains(&belongs_to)).then_some(belongs_to)
}

/// The finding that a library which the task does not allow gives.
pub(super) fn not_allowed(name: &str, library: CudaLibrary, allowed: &BTreeSet<CudaLibrary>, line: u32) -> Finding {
    let names: Vec<&str> = allowed.iter().map(|library| library.as_str()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let message = format!(
        "`{name}` belongs to the library `{}`, which the task does not allow (allowed: {names})",
        library.as_str()
    );
    finding("forbidden_library", Severity::Violation, message, line)
}
