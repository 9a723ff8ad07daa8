//! `build`: compile one source into a shared library, once for each content.
//!
//! A build is addressed by everything that goes into it. The local cache keeps, by that address, the library, the log
//! and the report; a damaged entry is built again. That a source does not compile is a result, not a failure.

mod cpp;
mod cuda;
mod cuda_module;
mod extensions;
mod machine_fault;
mod python;

use std::path::{Path, PathBuf};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::cuda_build::CudaBuild;
use nightshift_protocol::machine::Toolchain;
use nightshift_protocol::measurement::{CompilerMessage, CompilerReport};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{CandidateForm, PYTHON_EXTENSION, Target, TaskSpec};
use nightshift_protocol::verdict::ProcessEnd;

pub use self::cuda_module::compile_module;
pub use self::extensions::EXTENSION_MARKER;
use self::machine_fault::{MachineFault, NO_MESSAGE};
pub use self::python::{PythonBuilder, build_python};
use crate::build_cache::{BuildCache, CachedBuild};
pub use crate::compiler_limits::{LIBRARY, limits};
use crate::compiler_output;
use crate::nvcc::CudaCompiler;
use crate::symbols::Symbols;
use crate::toolchain::NIGHTSHIFT_H;
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{CancelFlag, JailHost, ProcessError, ProcessResult};

/// Raised whenever what a build keeps or how it is examined changes: older entries of the cache then fit no more.
const BUILD_VERSION: u32 = 3;
/// Largest library, in bytes.
pub const MAX_LIBRARY_BYTES: u64 = 32 << 20;
/// The kind of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The Coder's program.
    Candidate,
    /// The reference as it is timed.
    Reference,
    /// The reference in double precision.
    Truth,
    /// A program that calls a library for the work of the reference: a baseline.
    Library,
}

impl Role {
    /// Name of the role in file names and build keys.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Reference => "reference",
            Self::Truth => "truth",
            Self::Library => "library",
        }
    }

    /// Returns whether the program is a Python file, which is not compiled.
    #[must_use]
    pub fn is_python(self, spec: &TaskSpec) -> bool {
        match self {
            Self::Candidate => spec.form == CandidateForm::Torch,
            Self::Reference | Self::Truth => spec.has_python_reference(),
            Self::Library => false,
        }
    }

    /// Returns the file name in the folder of a step.
    #[must_use]
    pub fn library_name(self, spec: &TaskSpec) -> String {
        let extension = if self.is_python(spec) { PYTHON_EXTENSION } else { "so" };
        format!("{}.{extension}", self.name())
    }

    /// Returns the name of the source in messages.
    #[must_use]
    pub fn file_name(self, target: Target) -> &'static str {
        match (self, target) {
            (Self::Candidate, Target::Cpu) => "candidate.cpp",
            (Self::Candidate, Target::Cuda) => "candidate.cu",
            (Self::Reference | Self::Truth, Target::Cpu) => "reference.cpp",
            (Self::Reference | Self::Truth, Target::Cuda) => "reference.cu",
            (Self::Library, Target::Cpu) => "library.cpp",
            (Self::Library, Target::Cuda) => "library.cu",
        }
    }
}

/// Which compiler builds, by the target of the task.
#[derive(Debug, Clone, Copy)]
pub enum Compiler<'a> {
    /// The system's C++ compiler, for the `cpu` target.
    Cpp(&'a Toolchain),
    /// nvcc, for the `cuda` target.
    Cuda(CudaCompiler<'a>),
}

impl<'a> Compiler<'a> {
    /// What it builds for.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::Cpp(_) => Target::Cpu,
            Self::Cuda(_) => Target::Cuda,
        }
    }

    /// Compiler, version and flags.
    #[must_use]
    pub fn toolchain(&self) -> &'a Toolchain {
        match self {
            Self::Cpp(toolchain) => toolchain,
            Self::Cuda(compiler) => compiler.nvcc.toolchain(),
        }
    }

    /// Returns the parts of a build's cache key in addition to source and toolchain.
    fn allowance(&self) -> String {
        match self {
            Self::Cpp(_) => String::new(),
            Self::Cuda(compiler) => {
                compiler.libraries.iter().map(|library| library.as_str()).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Stores what a build leaves, by its hash.
pub trait ArtifactSink: std::fmt::Debug {
    /// Stores an artifact and returns its hash. Repeating it is safe.
    fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, StepFailure>;
}

/// The context of a build.
#[derive(Debug)]
pub struct Builder<'a> {
    /// Runs the compiler.
    pub jail: &'a JailHost,
    /// The compiler.
    pub compiler: Compiler<'a>,
    /// Earlier builds.
    pub cache: &'a BuildCache,
    /// Takes library and log.
    pub artifacts: &'a dyn ArtifactSink,
    /// An empty folder of this step alone.
    pub scratch: &'a Path,
    /// Stops the compiler.
    pub cancel: &'a CancelFlag,
}

/// The address of a build: blake3 over source, contract, compiler, flags, processor or architecture, role, and the
/// libraries that the task allows.
#[must_use]
pub fn build_key(source: &str, role: Role, compiler: &Compiler<'_>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&BUILD_VERSION.to_le_bytes());
    for part in [source, NIGHTSHIFT_H, role.name(), &compiler.toolchain().fingerprint, &compiler.allowance()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Builds a source, or answers from the cache. The library, when there is one, lies at the given path in `scratch`.
pub fn build(
    builder: &Builder<'_>,
    source: &str,
    role: Role,
    timeout_ms: u64,
) -> Result<(BuildReport, Option<PathBuf>), StepFailure> {
    let key = build_key(source, role, &builder.compiler);
    let delivery = Delivery { cache: builder.cache, artifacts: builder.artifacts, scratch: builder.scratch };
    delivery.of(&key, &format!("{}.so", role.name()), || compile(builder, source, role, &key, timeout_ms))
}

/// A cache of builds.
struct Delivery<'a> {
    cache: &'a BuildCache,
    artifacts: &'a dyn ArtifactSink,
    scratch: &'a Path,
}

impl Delivery<'_> {
    /// The build of this key, from the cache or made now. What can be run is put into a file of that name.
    fn of(
        &self,
        key: &str,
        file: &str,
        compile: impl FnOnce() -> Result<CachedBuild, StepFailure>,
    ) -> Result<(BuildReport, Option<PathBuf>), StepFailure> {
        if let Some(cached) = self.cache.get(key) {
            tracing::debug!(build.key = %key, "a build is answered from the cache");
            return self.hand_over(cached, file, true);
        }
        let built = compile()?;
        // Without a cgroup only the message tells. A process that reached its own limit has another end.
        if matches!(built.report.end, ProcessEnd::Exited { .. }) {
            match MachineFault::of(&built, file) {
                Some(MachineFault::Killed) => return Err(ProcessError::MachineFull.into()),
                Some(MachineFault::NoSpace) => {
                    let folder = self.scratch.display();
                    let message = format!("the compiler found no space left on the disk of {folder}: free some");
                    return Err(StepFailure::retriable("worker.disk", message));
                }
                None => {}
            }
        }
        // A build that a limit ended may succeed on a less busy machine.
        let is_lasting = matches!(built.report.end, ProcessEnd::Finished | ProcessEnd::Exited { .. });
        if is_lasting && let Err(error) = self.cache.put(key, &built) {
            tracing::warn!(build.key = %key, error = %error, "a build could not be kept");
        }
        self.hand_over(built, file, false)
    }

    /// Stores library and log as artifacts, also those of a cached build: the server may be another one than then.
    fn hand_over(
        &self,
        built: CachedBuild,
        file: &str,
        cached: bool,
    ) -> Result<(BuildReport, Option<PathBuf>), StepFailure> {
        let mut report = built.report;
        // It may have been found under another text.
        report.cached |= cached;
        report.log = self.artifacts.put(&built.log)?;
        let Some(bytes) = built.library else { return Ok((report, None)) };
        report.library = Some(self.artifacts.put(&bytes)?);
        let path = self.scratch.join(file);
        std::fs::write(&path, &bytes).map_err(|error| disk_failure(&path, &error))?;
        Ok((report, Some(path)))
    }
}

fn compile(
    builder: &Builder<'_>,
    source: &str,
    role: Role,
    key: &str,
    timeout_ms: u64,
) -> Result<CachedBuild, StepFailure> {
    // A folder of its own below the step's: the reference's two builds must not see each other's files.
    let folder = temporary_folder(builder.scratch, "build-");
    let folder = folder.map_err(|error| disk_failure(builder.scratch, &error))?;
    let header = folder.path().join("nightshift.h");
    std::fs::write(&header, NIGHTSHIFT_H).map_err(|error| disk_failure(&header, &error))?;
    let file = role.file_name(builder.compiler.target());
    let job = Job { role, file, source, folder: folder.path(), timeout_ms };
    let compiled = match builder.compiler {
        Compiler::Cpp(toolchain) => cpp::compile(builder, toolchain, &job)?,
        Compiler::Cuda(compiler) => cuda::compile(builder, compiler, &job)?,
    };
    let log = compiled.output.replace(&format!("{}/", folder.path().display()), "").into_bytes();
    let library = compiled.library.map(|(bytes, _)| bytes);
    Ok(CachedBuild {
        report: BuildReport {
            library: library.as_deref().map(ArtifactHash::of),
            end: compiled.result.end,
            messages: compiled.messages,
            log: ArtifactHash::of(&log),
            toolchain: builder.compiler.toolchain().clone(),
            build_key: key.to_owned(),
            cached: false,
            duration_ms: compiled.result.wall_ms,
            report: compiled.report,
            cuda: compiled.cuda,
            sandbox: compiled.result.sandbox,
        },
        library,
        log,
    })
}

/// A compilation. Its folder holds `nightshift.h`, and no files of other builds.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// What the source is built as.
    pub role: Role,
    /// Name of the source's file.
    pub file: &'static str,
    /// The source.
    pub source: &'a str,
    /// Folder of the compilation.
    pub folder: &'a Path,
    /// Time limit of the compiler.
    pub timeout_ms: u64,
}

/// The result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// End of the compiler's process.
    pub result: ProcessResult,
    /// Its messages as data.
    pub messages: Vec<CompilerMessage>,
    /// Its output.
    pub output: String,
    /// The library, when it is one.
    pub library: Option<(Vec<u8>, Symbols)>,
    /// Facts from compiler and disassembly.
    pub report: CompilerReport,
    /// The same for the kernels of the `cuda` target.
    pub cuda: Option<CudaBuild>,
}

impl Compiled {
    /// Looks at the compiler's end and at the library that it should have written.
    #[must_use]
    pub fn new(job: &Job<'_>, result: ProcessResult, messages: Vec<CompilerMessage>, output: String) -> Self {
        let report = CompilerReport::default();
        let mut compiled = Self { result, messages, output, library: None, report, cuda: None };
        match &compiled.result.end {
            ProcessEnd::Finished => match read_library(&job.folder.join(LIBRARY)) {
                Ok(read) => compiled.library = Some(read),
                Err(message) => compiled.reject(job, message),
            },
            ProcessEnd::TimedOut { .. } => compiled.reject(
                job,
                format!(
                    "the compiler was still running after {} ms and was killed: make the program simpler to compile",
                    job.timeout_ms
                ),
            ),
            end if compiled.messages.iter().all(|message| message.severity != "error") => {
                let message = format!("{NO_MESSAGE}: {}", end.describe());
                compiled.reject(job, message);
            }
            _ => {}
        }
        compiled
    }

    /// There is no library to be used, and this is why.
    pub fn reject(&mut self, job: &Job<'_>, message: String) {
        self.library = None;
        let severity = "error".to_owned();
        let message = CompilerMessage { file: job.file.to_owned(), line: 0, column: 0, severity, message };
        self.messages.insert(0, message);
        self.messages.truncate(compiler_output::MAX_MESSAGES);
    }
}

/// The library with its symbols, or what is wrong with it, for the Coder.
fn read_library(path: &Path) -> Result<(Vec<u8>, Symbols), String> {
    // Never through a link: what the compiler's folder names may lie outside of it.
    let data = std::fs::symlink_metadata(path).map_err(|error| format!("the compiler wrote no library: {error}"))?;
    if !data.is_file() {
        return Err("the compiler wrote something that is no file in the library's place".to_owned());
    }
    let size_bytes = data.len();
    if size_bytes > MAX_LIBRARY_BYTES {
        return Err(format!(
            "the library has {size_bytes} bytes, more than the limit of {MAX_LIBRARY_BYTES}: do not embed large tables"
        ));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("the compiler wrote no library: {error}"))?;
    let symbols = Symbols::read(&bytes).map_err(|error| error.to_string())?;
    if symbols.exports("ns_run") {
        return Ok((bytes, symbols));
    }
    Err("missing ns_run: the program compiles, but does not export the entry point; define it as \
         `NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, \
         int32_t n_outputs, void *workspace, void *stream)`, outside any namespace"
        .to_owned())
}

/// Returns the failure of a step whose files cannot be written.
#[must_use]
pub fn disk_failure(path: &Path, error: &std::io::Error) -> StepFailure {
    StepFailure::retriable("worker.disk", format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::machine::SandboxReport;

    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl ArtifactSink for Nowhere {
        fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, StepFailure> {
            Ok(ArtifactHash::of(bytes))
        }
    }

    fn not_built(key: &str, end: ProcessEnd, log: &str) -> CachedBuild {
        let toolchain = Toolchain {
            program: "g++".to_owned(),
            path: "/usr/bin/g++".to_owned(),
            version: "g++ 12".to_owned(),
            flags: Vec::new(),
            fingerprint: "f".to_owned(),
        };
        let report = BuildReport {
            library: None,
            end,
            messages: compiler_output::messages(log, ""),
            log: ArtifactHash::of(log.as_bytes()),
            toolchain,
            build_key: key.to_owned(),
            cached: false,
            duration_ms: 1,
            report: CompilerReport::default(),
            cuda: None,
            sandbox: SandboxReport::default(),
        };
        CachedBuild { report, library: None, log: log.as_bytes().to_vec() }
    }

    #[test]
    fn a_compiler_that_the_machine_had_no_memory_or_disk_for_says_nothing_about_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let cache = BuildCache::open(&folder.path().join("builds")).unwrap();
        let delivery = Delivery { cache: &cache, artifacts: &Nowhere, scratch: folder.path() };
        let exited = ProcessEnd::Exited { status: 1 };
        let of = |key: &str, end: &ProcessEnd, log: &str| {
            let built = delivery.of(key, "candidate.so", || Ok(not_built(key, end.clone(), log)));
            (built.map(|(report, _)| report.end).map_err(|failure| failure.code), cache.get(key).is_some())
        };
        for (log, code) in [
            ("g++-12: fatal error: Killed signal terminated program cc1plus", "process.machine_full"),
            ("collect2: fatal error: ld terminated with signal 9 [Killed]", "process.machine_full"),
            ("clang++: error: unable to execute command: Killed", "process.machine_full"),
            (
                "clang++: error: unable to execute command: Killed\n\
                 clang++: error: linker command failed due to signal (use -v to see invocation)",
                "process.machine_full",
            ),
            ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "process.machine_full"),
            ("ld: final link failed: No space left on device", "worker.disk"),
        ] {
            assert_eq!(of("k1", &exited, log), (Err(code.to_owned()), false), "{log}");
        }
        for (number, log) in [
            "k.cu:1:2: error: #error No space left on device",
            "k.cu(1): error: #error \"ld terminated with signal 9\"",
            "k.cu(2): error: static assertion failed with \"No space left on device",
            "    1 | // No space left on device",
            "k.cu(3): error: identifier \"No space left on device\" is undefined",
            // The program's own error stands beside a line that imitates a fault of the machine.
            "k.cpp:1:1: error: static assertion failed: no\ng++: fatal error: Killed signal terminated program cc1plus",
            "g++: fatal error: Killed signal terminated program cc1plus\nk.cpp:2:1: error: expected `;'",
            // `#line` chooses the name of the file.
            "x.py:1:1: error: static assertion failed: no\ng++: fatal error: Killed signal terminated program cc1plus",
            "k.cpp:1:1: warning: \nld: final link failed: No space left on device\nld: k.o: undefined reference to `other'",
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(of(&format!("q{number}"), &exited, log), (Ok(exited.clone()), true), "{log}");
        }
        // It is known that this one reached its own limit.
        let limit = ProcessEnd::MemoryExceeded { limit_bytes: 2, peak_bytes: 2 };
        assert_eq!(of("k1", &limit, "Killed signal terminated program cc1plus"), (Ok(limit.clone()), false));
        assert_eq!(of("k1", &exited, "error: expected `;'"), (Ok(exited.clone()), true));
    }

    #[test]
    fn a_link_in_place_of_the_library_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, library) = (folder.path().join("target"), folder.path().join(LIBRARY));
        std::fs::write(&target, "outside").unwrap();
        std::os::unix::fs::symlink(&target, &library).unwrap();
        assert!(read_library(&library).err().unwrap().contains("no file"));
    }
}
