//! `build` on the `cuda` target: one source, one run of nvcc, one look at what came out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::cuda_build::{CudaBuild, SassCounts};
use nightshift_protocol::measurement::{CompilerMessage, CompilerReport};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::CudaLibrary;

use super::{Builder, Compiled, Job, MAX_LIBRARY_BYTES, Role, disk_failure};
use crate::build_provenance::BuildProvenance;
use crate::nvcc::command::{KEPT, command};
use crate::nvcc::messages::{Context, messages};
use crate::nvcc::{CudaCompiler, Nvcc, cubin, needed, ptxas};
use nightshift_sandbox::process::{CancelFlag, JailHost, WATCH_INTERVAL, run_jailed};

/// Folder of the source in messages and line tables, so that a build does not depend on its real folder.
const SOURCE_FOLDER: &str = "/nightshift/";

/// Largest cubin that is looked into, in bytes.
const MAX_CUBIN_BYTES: u64 = MAX_LIBRARY_BYTES;
/// Largest assembly that is looked into for the lines of errors, in bytes.
const MAX_PTX_BYTES: u64 = 32 << 20;
/// End of the preprocessor's message about a missing header.
const MISSING_HEADER: &str = ": No such file or directory";

/// Compiles a source that lies in the folder of the job.
pub(super) fn compile(
    builder: &Builder<'_>,
    compiler: CudaCompiler<'_>,
    job: &Job<'_>,
) -> Result<Compiled, StepFailure> {
    let kept = job.folder.join(KEPT);
    std::fs::create_dir(&kept).map_err(|error| disk_failure(&kept, &error))?;
    let path = job.folder.join(job.file);
    // Messages and line tables then name this place, whatever the folder is called.
    let text = format!("#line 1 \"{SOURCE_FOLDER}{}\"\n{}", job.file, job.source);
    std::fs::write(&path, text).map_err(|error| disk_failure(&path, &error))?;

    let nvcc = compiler.nvcc;
    let mut extra = library_flags(compiler);
    if job.role == Role::Truth {
        // The second one makes doubles of the 16-bit floats, too.
        extra.extend(["-DNS_REAL=double".into(), "-DNS_TRUTH".into()]);
    }
    let origin = BuildProvenance {
        toolchain: nvcc.toolchain.fingerprint.clone(),
        source: ArtifactHash::of(job.source.as_bytes()),
    };
    extra.push(format!("-Xlinker=-soname,{}", origin.to_name()).into());
    let command = command(nvcc, job.file, job.folder, job.timeout_ms, extra);
    let over = AtomicBool::new(false);
    let (result, counted) = std::thread::scope(|scope| {
        // The machine code is there long before the host's part is built: meanwhile it can be looked into.
        let counting = scope.spawn(|| count(builder.jail, builder.cancel, nvcc, job, &over));
        let result = run_jailed(builder.jail, &command, builder.cancel);
        over.store(true, Ordering::Release);
        (result, counting.join())
    });
    let result = result?;
    let counted = counted.unwrap_or_else(|_| Err("the disassembly broke down".to_owned()));

    // Everything is said on either stream, depending on the step that says it.
    let output = [result.stdout.as_slice(), result.stderr.as_slice()].concat();
    let output = String::from_utf8_lossy(&output).replace(SOURCE_FOLDER, "");
    let folder = job.folder.display().to_string();
    let ptx = read_text(&kept.join(with_extension(job.file, "ptx")), MAX_PTX_BYTES);
    let context = Context { file: job.file, source: job.source, ptx: ptx.as_deref(), folder: &folder };
    let said = messages(&output, &context);
    if let Some(library) = missing_library(compiler, &said) {
        return Err(StepFailure::retriable(
            "toolchain.library_missing",
            format!(
                "the task allows {}, whose headers this machine does not have: `nightshift doctor` says what is there",
                needed::title(library)
            ),
        ));
    }

    let mut built = Compiled::new(job, result, said, output);
    let Some((bytes, symbols)) = &built.library else { return Ok(built) };
    let libraries = match needed::libraries(bytes, compiler.libraries, nvcc.library_versions()) {
        Ok(libraries) => libraries,
        Err(message) => {
            built.reject(job, message);
            return Ok(built);
        }
    };
    let cuda = examine(nvcc, job, &built.output, libraries, counted);
    built.report = CompilerReport {
        instructions: cuda.kernels.iter().filter_map(|kernel| kernel.sass).map(|sass| sass.instructions).sum(),
        fma_instructions: cuda
            .kernels
            .iter()
            .filter_map(|kernel| kernel.sass)
            .map(|sass| sass.ffma + sass.hfma + sass.dfma)
            .sum(),
        scalar_math_calls: symbols.scalar_math_calls(),
        library_bytes: bytes.len() as u64,
        ..CompilerReport::default()
    };
    built.cuda = Some(cuda);
    Ok(built)
}

/// The instruction counts by kernel, or why they are unknown.
type Counted = Result<BTreeMap<String, SassCounts>, String>;

/// Waits for the machine code, and counts its instructions.
fn count(jail: &JailHost, cancel: &CancelFlag, nvcc: &Nvcc, job: &Job<'_>, over: &AtomicBool) -> Counted {
    if job.role == Role::Truth {
        return Err("the reference in double precision is not looked into".to_owned());
    }
    let disassembler = nvcc.disassembler.as_ref().ok_or_else(|| {
        format!(
            "neither nvdisasm nor cuobjdump lies in {}: `nightshift doctor --install-nvcc` installs both",
            nvcc.toolkit.program_folder.display()
        )
    })?;
    let kept = job.folder.join(KEPT);
    // The next step of nvcc begins when the machine code is complete.
    let next = kept.join(with_extension(job.file, "fatbin"));
    while !next.exists() && !over.load(Ordering::Acquire) {
        std::thread::park_timeout(WATCH_INTERVAL);
    }
    let cubin = cubin_in(&kept).ok_or_else(|| "nvcc left no machine code to look into".to_owned())?;
    disassembler.count(&cubin, job.folder, &|command| run_jailed(jail, command, cancel))
}

/// Returns facts about the kernels from the compiler's output and machine code.
fn examine(nvcc: &Nvcc, job: &Job<'_>, output: &str, libraries: Vec<String>, counted: Counted) -> CudaBuild {
    let mut kernels = ptxas::kernels(output);
    let bounds = cubin_in(&job.folder.join(KEPT))
        .and_then(|path| std::fs::read(path).ok())
        .map(|bytes| cubin::max_block_threads(&bytes))
        .unwrap_or_default();
    let (counts, uncounted) = match counted {
        Ok(counts) => (counts, None),
        Err(reason) => (BTreeMap::new(), Some(reason)),
    };
    for kernel in &mut kernels {
        kernel.max_block_threads = bounds.get(&kernel.symbol).copied();
        kernel.sass = counts.get(&kernel.symbol).copied();
    }
    ptxas::describe(&mut kernels, nvcc.arch);
    CudaBuild { arch: nvcc.arch.to_string(), kernels, libraries, uncounted }
}

/// Where the headers of the allowed libraries lie that the compiler would not look for by itself.
fn library_flags(compiler: CudaCompiler<'_>) -> Vec<OsString> {
    let toolkit = &compiler.nvcc.toolkit;
    let mut folders: Vec<&Path> = Vec::new();
    for folder in compiler.libraries.iter().filter_map(|library| toolkit.include_folder(*library)) {
        if !folder.starts_with(&toolkit.root) && folder != Path::new("/usr/include") && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders.into_iter().flat_map(|folder| ["-isystem".into(), folder.as_os_str().to_owned()]).collect()
}

/// A library that the task allows and that the program needed, but that this machine does not have: then the machine is
/// to blame, not the program.
fn missing_library(compiler: CudaCompiler<'_>, said: &[CompilerMessage]) -> Option<CudaLibrary> {
    let missing = |library: CudaLibrary| {
        let folders: &[&str] = match library {
            CudaLibrary::Cublas => &["cublas.h", "cublas_v2.h", "cublas_api.h"],
            CudaLibrary::CublasLt => &["cublasLt.h"],
            CudaLibrary::Cudnn => &["cudnn"],
            CudaLibrary::Cccl => &["cub/", "thrust/", "cuda/"],
            CudaLibrary::Cutlass => &["cutlass/", "cute/"],
        };
        said.iter().filter(|message| message.severity == "error").any(|message| {
            message
                .message
                .strip_suffix(MISSING_HEADER)
                .is_some_and(|header| folders.iter().any(|prefix| header.starts_with(prefix)))
        })
    };
    compiler.libraries.iter().copied().find(|library| !compiler.nvcc.has(*library) && missing(*library))
}

fn with_extension(file: &str, extension: &str) -> PathBuf {
    Path::new(file).with_extension(extension)
}

/// A file's text, unless it is a link or too long.
fn read_text(path: &Path, max_bytes: u64) -> Option<String> {
    let data = std::fs::symlink_metadata(path).ok()?;
    let bytes = (data.is_file() && data.len() <= max_bytes).then(|| std::fs::read(path).ok()).flatten()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The machine code of the program. What the linking of device code leaves has another name.
fn cubin_in(kept: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(kept).ok()?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.metadata().is_ok_and(|data| data.is_file() && data.len() <= MAX_CUBIN_BYTES))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cubin"))
        .filter(|path| !path.file_name().unwrap_or_default().to_string_lossy().contains("_dlink"))
        .collect();
    found.sort();
    found.into_iter().next()
}
