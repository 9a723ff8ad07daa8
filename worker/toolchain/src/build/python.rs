//! A file of Python is read by Python's parser, in the jail; the extensions that it compiles when it is imported, or when its model is
//! made or called first, are built there, once for each content, and kept behind the file. So the process that runs it compiles
//! nothing.
//!
//! Of a program only what is no comment is built and run: whatever a text says in its comments, to a model that reads it in
//! whichever encoding, is no part of what is verified, and texts that differ in them alone are the same program.

use std::path::{Path, PathBuf};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::cuda_build::{CudaBuild, KernelBuild};
use nightshift_protocol::machine::Toolchain;
use nightshift_protocol::measurement::{CompilerMessage, CompilerReport};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{DType, PYTHON_EXTENSION, TaskSpec};
use nightshift_protocol::verdict::ProcessEnd;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::extensions::{self, EXTENSION_MARKER, Extension};
use super::{ArtifactSink, Delivery, Role, disk_failure, limits};
use crate::Host;
use crate::build_cache::{BuildCache, CachedBuild};
use crate::compiler_output;
use crate::nvcc::{Arch, Nvcc, ptxas};
use crate::python::Python;
use crate::python::environment;
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{CancelFlag, JailedCommand, Limits, ProcessResult, SEARCH_PATH, run_jailed_as_tool};

/// Reads and builds, in Python.
const SCRIPT: &str = concat!(include_str!("../arguments.py"), include_str!("build_program.py"));

/// How that is called in the jail.
const SCRIPT_FILE: &str = "build_program.py";

/// Raised whenever what a build keeps changes: older entries of the cache then fit no more.
const BUILD_VERSION: u32 = 5;

/// Largest file that a compiler may write, in bytes: headers of `PyTorch` make large objects.
const MAX_OUTPUT_FILE_BYTES: u64 = 512 << 20;

/// Memory of all compilers of an extension together in bytes: as many as `MAX_JOBS` run at the same time.
const COMPILERS_MEMORY_BYTES: u64 = 16 << 30;

/// The context of a build of a Python file.
#[derive(Debug)]
pub struct PythonBuilder<'a> {
    /// Runs Python.
    pub host: &'a Host,
    /// Compiles extensions for a GPU, on the `cuda` target.
    pub nvcc: Option<&'a Nvcc>,
    /// The C++ compiler of this machine, whose fingerprint covers the processor.
    pub compiler: &'a Toolchain,
    /// Earlier builds.
    pub cache: &'a BuildCache,
    /// Takes the file and what was said.
    pub artifacts: &'a dyn ArtifactSink,
    /// A folder of this step alone.
    pub scratch: &'a Path,
    /// Stops it.
    pub cancel: &'a CancelFlag,
    /// The task, whose arguments decide which extensions a model builds.
    pub task: &'a TaskSpec,
}

impl PythonBuilder<'_> {
    fn python(&self) -> Result<&Python, StepFailure> {
        self.host.python(self.cancel).map_err(|reason| StepFailure::retriable("worker.no_torch", reason))
    }

    /// Returns the fingerprint of everything on this machine that extensions are compiled with and for.
    fn machine(&self, python: &Python) -> String {
        let nvcc = self.nvcc.map(|nvcc| nvcc.toolchain().fingerprint.as_str()).unwrap_or_default();
        let mut hasher = blake3::Hasher::new();
        for part in [nvcc, &python.toolchain().fingerprint, &self.compiler.fingerprint] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Returns the source of a built file whose extensions were compiled for another machine; `None` where this machine can run it.
    ///
    /// # Errors
    /// `worker.no_torch` when the file has extensions and this machine has no `PyTorch`.
    pub fn source_to_build_again<'f>(&self, file: &'f str) -> Result<Option<&'f str>, StepFailure> {
        let Some((source, machine)) = extensions::provenance(file) else { return Ok(None) };
        Ok((machine != self.machine(self.python()?)).then_some(source))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Wrong { line: u32, column: u32, message: String, log: String },
    Built(Vec<Extension>),
    Stripped(String),
}

/// Builds a file, or answers from the cache. What can be run lies at the given path in `scratch`.
pub fn build_python(
    builder: &PythonBuilder<'_>,
    source: &str,
    role: Role,
    timeout_ms: u64,
) -> Result<(BuildReport, Option<PathBuf>), StepFailure> {
    let python = builder.python()?;
    let key = build_key(builder, python, source, role);
    let delivery = Delivery { cache: builder.cache, artifacts: builder.artifacts, scratch: builder.scratch };
    let file = format!("{}.{PYTHON_EXTENSION}", role.name());
    delivery.of(&key, &file, || {
        if role != Role::Candidate {
            return compile(builder, python, source, role, &key, timeout_ms);
        }
        let folder = Folder::new(builder, source, role)?;
        let result = folder.run(builder, python, role, true, timeout_ms)?;
        let text = match said(&result) {
            Some(Said::Stripped(text)) if result.end == ProcessEnd::Finished => text,
            _ => return Ok(build_of(builder, python, result, &folder, source, &key)),
        };
        // Extensions take most of a minute: those of the same program in other words serve again.
        let same = build_key(builder, python, &format!("without comments\n{text}"), role);
        if let Some(known) = builder.cache.get(&same) {
            let report = BuildReport { build_key: key.clone(), cached: true, ..known.report };
            return Ok(CachedBuild { report, ..known });
        }
        let built = compile(builder, python, &text, role, &key, timeout_ms)?;
        if built.library.is_some() {
            let mut kept = built.clone();
            kept.report.build_key.clone_from(&same);
            if let Err(error) = builder.cache.put(&same, &kept) {
                tracing::warn!(build.key = %same, error = %error, "a build could not be kept");
            }
        }
        Ok(built)
    })
}

/// The address of a build: blake3 over source, Python, compilers and role.
fn build_key(builder: &PythonBuilder<'_>, python: &Python, source: &str, role: Role) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&BUILD_VERSION.to_le_bytes());
    let arguments = arguments(builder.task).to_string();
    for part in [source, SCRIPT, role.name(), &builder.machine(python), &arguments] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Returns the arguments of the constructor and of the call of the task's model.
fn arguments(task: &TaskSpec) -> Value {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    let torch = task.torch.as_ref();
    let shapes = task.default_shapes().map(|shapes| shapes.inputs).unwrap_or_default();
    let inputs: Vec<Value> = shapes
        .iter()
        .map(|tensor| {
            let own = torch.and_then(|torch| torch.types.get(&tensor.name)).map(String::as_str);
            let contract = match tensor.dtype {
                DType::F32 => "float32",
                DType::F64 => "float64",
                DType::I32 => "int32",
                DType::F16 => "float16",
                DType::Bf16 => "bfloat16",
            };
            json!({"shape": tensor.shape, "dtype": own.unwrap_or(contract)})
        })
        .collect();
    json!({
        "init": torch.map_or(json!([]), |torch| read(&torch.init)),
        "call": torch.and_then(|torch| torch.call.as_deref()).map(read),
        "inputs": inputs,
    })
}

fn compile(
    builder: &PythonBuilder<'_>,
    python: &Python,
    source: &str,
    role: Role,
    key: &str,
    timeout_ms: u64,
) -> Result<CachedBuild, StepFailure> {
    let folder = Folder::new(builder, source, role)?;
    let result = folder.run(builder, python, role, false, timeout_ms)?;
    Ok(build_of(builder, python, result, &folder, source, key))
}

/// Returns the result of a run of the script.
fn build_of(
    builder: &PythonBuilder<'_>,
    python: &Python,
    result: ProcessResult,
    folder: &Folder,
    source: &str,
    key: &str,
) -> CachedBuild {
    let cuda = match (said(&result), builder.nvcc) {
        (Some(Said::Built(extensions)), Some(nvcc)) => kernels_of(&extensions, nvcc.arch()),
        _ => None,
    };
    let (library, messages, log) = match outcome(&result, source, folder.path(), &builder.machine(python)) {
        Ok(library) => (Some(library), Vec::new(), Vec::new()),
        Err((messages, log)) => (None, messages_of(messages, &folder.file), log.into_bytes()),
    };
    let end = match (&library, result.end) {
        (None, ProcessEnd::Finished) => ProcessEnd::Exited { status: 1 },
        (_, end) => end,
    };
    CachedBuild {
        report: BuildReport {
            library: library.as_deref().map(ArtifactHash::of),
            end,
            messages,
            log: ArtifactHash::of(&log),
            toolchain: python.toolchain(),
            build_key: key.to_owned(),
            cached: false,
            duration_ms: result.wall_ms,
            report: CompilerReport::default(),
            cuda: cuda.filter(|_| library.is_some()),
            sandbox: result.sandbox,
        },
        library,
        log,
    }
}

/// Returns what the compiler told of the kernels in extensions; none where it told of none.
fn kernels_of(extensions: &[Extension], arch: Arch) -> Option<CudaBuild> {
    let told = extensions.iter().flat_map(|extension| ptxas::kernels(&lines_of(&extension.usage, arch)));
    // The lines of the last kernel may have been cut off: every kernel uses registers.
    let mut kernels: Vec<KernelBuild> = told.filter(|kernel| kernel.registers > 0).take(ptxas::MAX_KERNELS).collect();
    ptxas::describe(&mut kernels, arch);
    let uncounted =
        "the program's own build told this of its extensions of PyTorch; their instructions are not counted";
    let uncounted = Some(uncounted.to_owned());
    (!kernels.is_empty()).then(|| CudaBuild { arch: arch.to_string(), kernels, libraries: Vec::new(), uncounted })
}

/// Returns the lines about kernels for this architecture, whatever its suffix: a program chooses the ones it is built for.
fn lines_of(usage: &str, arch: Arch) -> String {
    let own = format!("sm_{}{}", arch.capability.major, arch.capability.minor);
    let mut is_own = true;
    let mut lines = String::new();
    for line in usage.lines() {
        if let Some((_, built_for)) =
            line.split_once("Compiling entry function '").and_then(|(_, of)| of.rsplit_once(" for "))
        {
            is_own = built_for.trim_matches('\'').trim_end_matches(['a', 'f']) == own;
        }
        if is_own {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    lines
}

/// A folder with a program and the script that reads it.
struct Folder {
    folder: TempDir,
    /// The program's name there.
    file: String,
}

impl Folder {
    fn new(builder: &PythonBuilder<'_>, source: &str, role: Role) -> Result<Self, StepFailure> {
        let folder = temporary_folder(builder.scratch, "build-");
        let folder = folder.map_err(|error| disk_failure(builder.scratch, &error))?;
        let file = format!("{}.{PYTHON_EXTENSION}", role.name());
        for (name, text) in [(file.as_str(), source), (SCRIPT_FILE, SCRIPT)] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).map_err(|error| disk_failure(&path, &error))?;
        }
        Ok(Self { folder, file })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the script in the jail; to strip the program of its comments, or to build it.
    fn run(
        &self,
        builder: &PythonBuilder<'_>,
        python: &Python,
        role: Role,
        strip: bool,
        timeout_ms: u64,
    ) -> Result<ProcessResult, StepFailure> {
        let wanted = if role == Role::Candidate { "ModelNew" } else { "Model" };
        let path = self.path();
        let mut asked = arguments(builder.task);
        asked["file"] = json!(path.join(&self.file));
        asked["wanted"] = json!(wanted);
        asked["folder"] = json!(path.join("extensions"));
        asked["marker"] = json!(EXTENSION_MARKER);
        asked["strip"] = json!(strip);
        let script = self.path().join(SCRIPT_FILE);
        let command = JailedCommand {
            program: python.program.clone(),
            args: python.flags().into_iter().chain([script.into(), asked.to_string().into()]).collect(),
            read_only: python.folders.clone(),
            scratch: self.path().to_path_buf(),
            env: compiling(builder, python, self.path()),
            limits: Limits {
                file_bytes: MAX_OUTPUT_FILE_BYTES,
                memory_bytes: COMPILERS_MEMORY_BYTES,
                ..limits(timeout_ms)
            },
        };
        // As a tool: its address space says nothing about its memory.
        Ok(run_jailed_as_tool(&builder.host.jail, &command, builder.cancel)?)
    }
}

/// Parses the last line of the script's output.
fn said(result: &ProcessResult) -> Option<Said> {
    let text = String::from_utf8_lossy(&result.stdout);
    text.lines().rev().find_map(|line| serde_json::from_str::<Said>(line).ok())
}

/// Returns the variables with paths for the compilers of extensions.
fn compiling(builder: &PythonBuilder<'_>, python: &Python, folder: &Path) -> Vec<(String, String)> {
    let mut env = environment(folder, python.models.as_deref());
    // The folder of Python's programs has `ninja`, where it was installed with it.
    let mut path: Vec<String> =
        python.program.parent().map(|folder| folder.display().to_string()).into_iter().collect();
    if let Some(nvcc) = builder.nvcc {
        path.push(nvcc.program_folder().display().to_string());
        let home = nvcc.program_folder().parent().unwrap_or(nvcc.program_folder());
        env.push(("CUDA_HOME".to_owned(), home.display().to_string()));
        // Whatever flags a program gives: registers and spills of its kernels are told to its author.
        env.push(("NVCC_APPEND_FLAGS".to_owned(), "-Xptxas=-v".to_owned()));
        env.push(("TORCH_CUDA_ARCH_LIST".to_owned(), capability(&nvcc.arch().to_string())));
    }
    path.push(SEARCH_PATH.to_owned());
    env.push(("PATH".to_owned(), path.join(":")));
    env.push(("MAX_JOBS".to_owned(), "4".to_owned()));
    env
}

/// `9.0a` for `sm_90a`.
fn capability(arch: &str) -> String {
    let digits = arch.trim_start_matches("sm_");
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (major, minor) = digits.split_at(end.saturating_sub(1));
    format!("{major}.{minor}")
}

/// Messages, and all that was said.
type Wrong = (Vec<CompilerMessage>, String);

/// The file with its extensions behind it, or what is wrong.
fn outcome(result: &ProcessResult, source: &str, folder: &Path, machine: &str) -> Result<Vec<u8>, Wrong> {
    match said(result) {
        Some(Said::Built(extensions)) if result.end == ProcessEnd::Finished => {
            let built = extensions::append(source, &extensions, folder, machine);
            built.map_err(|message| (vec![told(0, 0, message.clone())], message))
        }
        Some(Said::Wrong { line, column, message, log }) => {
            let scratch = folder.display().to_string();
            let mut messages = compiler_output::messages(&log, &scratch);
            messages.retain(|message| message.severity == "error");
            messages.insert(0, told(line, column, message));
            messages.truncate(compiler_output::MAX_MESSAGES);
            Err((messages, log.replace(&format!("{scratch}/"), "")))
        }
        _ => {
            let printed = String::from_utf8_lossy(&result.stderr).into_owned();
            let message = format!("building it did not come to its end: {}", result.end.describe());
            Err((vec![told(0, 0, message)], printed))
        }
    }
}

fn told(line: u32, column: u32, message: String) -> CompilerMessage {
    CompilerMessage { file: String::new(), line, column, severity: "error".to_owned(), message }
}

fn messages_of(mut messages: Vec<CompilerMessage>, file: &str) -> Vec<CompilerMessage> {
    for message in messages.iter_mut().filter(|message| message.file.is_empty()) {
        file.clone_into(&mut message.file);
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvcc::DEFAULT_ARCH;

    #[test]
    fn registers_and_spills_of_extensions_are_told() {
        let usage = "ptxas info    : 0 bytes gmem\n\
                     ptxas info    : Compiling entry function '_Z5scalePfi' for 'sm_90a'\n\
                     ptxas info    : Function properties for _Z5scalePfi\n    \
                     16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n\
                     ptxas info    : Used 255 registers, used 1 barriers, 2176 bytes smem";
        let built = |usage: &str| {
            let text = json!({"built": [{"name": "own", "path": "/own.so", "usage": usage}, {"name": "cpp", "path": "/c.so"}]});
            let Ok(Said::Built(extensions)) = serde_json::from_value(text) else { panic!("not read") };
            kernels_of(&extensions, DEFAULT_ARCH)
        };
        let cuda = built(usage).unwrap_or_default();
        let [kernel] = &cuda.kernels[..] else { panic!("{cuda:?}") };
        assert_eq!((kernel.symbol.as_str(), kernel.registers, kernel.shared_bytes), ("_Z5scalePfi", 255, 2176));
        assert_eq!((kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.stack_bytes), (12, 20, 16));
        assert!(kernel.name.starts_with("scale(") && kernel.occupancy.is_some(), "{kernel:?}");
        assert_eq!(built(""), None, "without kernels nothing is known");
        let other = usage.replace("sm_90a", "sm_80").replace("255 registers", "40 registers");
        let both = built(&format!("{other}\n{usage}")).unwrap_or_default();
        assert_eq!(both.kernels, cuda.kernels, "kernels for another architecture are not those that run");
        let cut = built(usage.rsplit_once("ptxas info").map_or(usage, |(before, _)| before));
        assert_eq!(cut, None, "a kernel whose lines were cut off is not told");
    }

    #[test]
    fn an_architecture_is_named_as_pytorch_names_it() {
        assert_eq!((capability("sm_90a").as_str(), capability("sm_120").as_str()), ("9.0a", "12.0"));
    }
}
