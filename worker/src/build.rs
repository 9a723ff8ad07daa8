//! `build`: compile one source into a shared library, once for each content.
//!
//! A build is addressed by everything that goes into it. The local cache keeps, by that address, the library, the log
//! and the report; a damaged entry is built again. That a source does not compile is a result, not a failure.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::machine::Toolchain;
use nightshift_protocol::measurement::{CompilerMessage, CompilerReport};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::ProcessEnd;

use crate::artifacts::StepArtifacts;
use crate::build_cache::{BuildCache, CachedBuild};
use crate::compiler_output::{self, LoopNotes};
use crate::disassembly;
use crate::origin::Origin;
use crate::process::{CancelFlag, JailHost, JailedCommand, Limits, ProcessResult, run_jailed};
use crate::symbols::Symbols;
use crate::toolchain::{self, Family, NIGHTSHIFT_H};

/// Raised whenever what a build keeps or how it is examined changes: older entries of the cache then fit no more.
const BUILD_VERSION: u32 = 2;
/// Memory of each process of the compiler, in bytes.
const COMPILER_MEMORY_BYTES: u64 = 2 << 30;
/// Largest file that the compiler may write, in bytes.
const MAX_OUTPUT_FILE_BYTES: u64 = 128 << 20;
/// Largest library, in bytes.
pub const MAX_LIBRARY_BYTES: u64 = 32 << 20;
/// Most output of the compiler, in bytes.
const MAX_LOG_BYTES: usize = 1 << 20;
/// Largest file of loop notes that is read, in bytes.
const MAX_NOTES_BYTES: u64 = 8 << 20;
/// Processes of one compilation: driver, compiler, assembler, linker, and room.
const MAX_PROCESSES: u64 = 64;

const LIBRARY: &str = "library.so";
const LOOP_NOTES: &str = "loops.txt";

/// What a source is built as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The Coder's program.
    Candidate,
    /// The reference as it is timed.
    Reference,
    /// The reference in double precision.
    Truth,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Reference => "reference",
            Self::Truth => "truth",
        }
    }

    /// How messages name the source.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate.cpp",
            Self::Reference | Self::Truth => "reference.cpp",
        }
    }
}

/// What a build works with.
#[derive(Debug)]
pub struct Builder<'a> {
    /// Runs the compiler.
    pub jail: &'a JailHost,
    /// The compiler.
    pub toolchain: &'a Toolchain,
    /// Earlier builds.
    pub cache: &'a BuildCache,
    /// Takes library and log.
    pub artifacts: StepArtifacts<'a>,
    /// An empty folder of this step alone.
    pub scratch: &'a Path,
    /// Stops the compiler.
    pub cancel: &'a CancelFlag,
}

/// The address of a build: blake3 over source, contract, compiler, flags, processor and role.
#[must_use]
pub fn build_key(source: &str, role: Role, toolchain: &Toolchain) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&BUILD_VERSION.to_le_bytes());
    for part in [source, NIGHTSHIFT_H, role.name(), &toolchain.fingerprint] {
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
    let key = build_key(source, role, builder.toolchain);
    if let Some(cached) = builder.cache.get(&key) {
        tracing::debug!(build.key = %key, "a build is answered from the cache");
        return deliver(builder, cached, role, true);
    }
    let built = compile(builder, source, role, &key, timeout_ms)?;
    // What a limit ended may go well on a quieter machine.
    let is_lasting = matches!(built.report.end, ProcessEnd::Finished | ProcessEnd::Exited { .. });
    if is_lasting && let Err(error) = builder.cache.put(&key, &built) {
        tracing::warn!(build.key = %key, error = %error, "a build could not be kept");
    }
    deliver(builder, built, role, false)
}

/// Stores library and log as artifacts, also those of a cached build: the server may be another one than then.
fn deliver(
    builder: &Builder<'_>,
    built: CachedBuild,
    role: Role,
    cached: bool,
) -> Result<(BuildReport, Option<PathBuf>), StepFailure> {
    let mut report = built.report;
    report.cached = cached;
    report.log = builder.artifacts.put(&built.log)?;
    let Some(bytes) = built.library else { return Ok((report, None)) };
    report.library = Some(builder.artifacts.put(&bytes)?);
    let path = builder.scratch.join(format!("{}.so", role.name()));
    std::fs::write(&path, &bytes).map_err(|error| disk_failure(&path, &error))?;
    Ok((report, Some(path)))
}

fn compile(
    builder: &Builder<'_>,
    source: &str,
    role: Role,
    key: &str,
    timeout_ms: u64,
) -> Result<CachedBuild, StepFailure> {
    // A folder of its own below the step's: the reference's two builds must not see each other's files.
    let folder = tempfile::Builder::new().prefix("build-").tempdir_in(builder.scratch);
    let folder = folder.map_err(|error| disk_failure(builder.scratch, &error))?;
    for (name, text) in [("nightshift.h", NIGHTSHIFT_H), (role.file_name(), source)] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).map_err(|error| disk_failure(&path, &error))?;
    }
    let run = |command: &JailedCommand| run_jailed(builder.jail, command, builder.cancel);
    let origin =
        Origin { toolchain: builder.toolchain.fingerprint.clone(), source: ArtifactHash::of(source.as_bytes()) };
    let result = run(&compiler_command(builder.toolchain, role, &origin, folder.path(), timeout_ms))?;
    Ok(examine(builder, &result, role, key, timeout_ms, folder.path()))
}

/// What the compiler's end, output and library say.
fn examine(
    builder: &Builder<'_>,
    result: &ProcessResult,
    role: Role,
    key: &str,
    timeout_ms: u64,
    folder: &Path,
) -> CachedBuild {
    let output = String::from_utf8_lossy(&result.stderr).into_owned();
    let folder_text = folder.display().to_string();
    let mut messages = compiler_output::messages(&output, &folder_text);
    let mut library = None;
    match &result.end {
        ProcessEnd::Finished => match read_library(&folder.join(LIBRARY)) {
            Ok(read) => library = Some(read),
            Err(message) => messages.insert(0, ours(role, message)),
        },
        ProcessEnd::TimedOut { .. } => messages.insert(
            0,
            ours(role, format!("the compiler was still running after {timeout_ms} ms and was killed: make the program simpler to compile")),
        ),
        end if messages.iter().all(|message| message.severity != "error") => {
            messages.insert(0, ours(role, format!("the compiler ended without an error message: {}", end.describe())));
        }
        _ => {}
    }
    messages.truncate(compiler_output::MAX_MESSAGES);

    let report = match &library {
        None => CompilerReport::default(),
        Some((bytes, symbols)) => {
            let notes = loop_notes(builder.toolchain, &output, role, folder);
            let run = |command: &JailedCommand| run_jailed(builder.jail, command, builder.cancel);
            let counts = disassembly::locate(&toolchain::system_folders())
                .and_then(|objdump| disassembly::count(&objdump, &folder.join(LIBRARY), folder, &run))
                .unwrap_or_default();
            CompilerReport {
                vectorized_loops: notes.vectorized,
                missed_loops: notes.missed,
                instructions: counts.instructions,
                wide_vector_instructions: counts.wide_vector,
                fma_instructions: counts.fma,
                scalar_math_calls: symbols.scalar_math_calls(),
                library_bytes: bytes.len() as u64,
            }
        }
    };
    let log = [result.stdout.as_slice(), result.stderr.as_slice()].concat();
    let log = String::from_utf8_lossy(&log).replace(&format!("{folder_text}/"), "").into_bytes();
    let library = library.map(|(bytes, _)| bytes);
    CachedBuild {
        report: BuildReport {
            library: library.as_deref().map(ArtifactHash::of),
            end: result.end.clone(),
            messages,
            log: ArtifactHash::of(&log),
            toolchain: builder.toolchain.clone(),
            build_key: key.to_owned(),
            cached: false,
            duration_ms: result.wall_ms,
            report,
            cuda: None,
            sandbox: result.sandbox.clone(),
        },
        library,
        log,
    }
}

fn compiler_command(
    toolchain: &Toolchain,
    role: Role,
    origin: &Origin,
    folder: &Path,
    timeout_ms: u64,
) -> JailedCommand {
    let program = PathBuf::from(&toolchain.path);
    let mut args: Vec<OsString> = toolchain.flags.iter().map(OsString::from).collect();
    if role == Role::Truth {
        args.push("-DNS_REAL=double".into());
    }
    // From here on nothing changes the code: messages for the Coder, notes for the Verifier, and a library that does
    // not depend on the folder it was built in.
    for flag in ["-Wall", "-Wextra", "-fmax-errors=20", "-fdiagnostics-color=never"] {
        args.push(flag.into());
    }
    match toolchain::family(&toolchain.version) {
        Family::Gcc => args.push(format!("-fopt-info-vec-optimized-missed={LOOP_NOTES}").into()),
        Family::Clang => {
            args.extend(["-Rpass=loop-vectorize", "-Rpass-analysis=loop-vectorize"].map(OsString::from));
        }
    }
    args.push(format!("-ffile-prefix-map={}=.", folder.display()).into());
    args.push(format!("-Wl,-soname,{}", origin.to_name()).into());
    args.extend([role.file_name(), "-o", LIBRARY].map(OsString::from));
    JailedCommand {
        read_only: toolchain::readable_folders(&program),
        program,
        args,
        scratch: folder.to_path_buf(),
        env: vec![
            // Quotes and words of the messages as they are parsed.
            ("LC_ALL".to_owned(), "C".to_owned()),
            // `__DATE__` may not make two builds of one source differ.
            ("SOURCE_DATE_EPOCH".to_owned(), "0".to_owned()),
        ],
        limits: Limits {
            wall_ms: timeout_ms,
            cpu_s: timeout_ms.div_ceil(1_000) + 1,
            memory_bytes: COMPILER_MEMORY_BYTES,
            file_bytes: MAX_OUTPUT_FILE_BYTES,
            processes: MAX_PROCESSES,
            output_bytes: MAX_LOG_BYTES,
        },
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

fn loop_notes(toolchain: &Toolchain, output: &str, role: Role, folder: &Path) -> LoopNotes {
    match toolchain::family(&toolchain.version) {
        Family::Clang => compiler_output::clang_loop_notes(output, role.file_name()),
        Family::Gcc => {
            use std::io::Read as _;
            let mut text = Vec::new();
            let notes = folder.join(LOOP_NOTES);
            let is_file = std::fs::symlink_metadata(&notes).is_ok_and(|data| data.is_file());
            if let (true, Ok(file)) = (is_file, std::fs::File::open(&notes)) {
                // A part is still worth reading: notes of the program's own loops come early and late alike.
                let _ = file.take(MAX_NOTES_BYTES).read_to_end(&mut text);
            }
            compiler_output::gcc_loop_notes(&String::from_utf8_lossy(&text), role.file_name())
        }
    }
}

fn ours(role: Role, message: String) -> CompilerMessage {
    CompilerMessage { file: role.file_name().to_owned(), line: 0, column: 0, severity: "error".to_owned(), message }
}

pub(crate) fn disk_failure(path: &Path, error: &std::io::Error) -> StepFailure {
    StepFailure::retriable("worker.disk", format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_the_library_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, library) = (folder.path().join("target"), folder.path().join(LIBRARY));
        std::fs::write(&target, "outside").unwrap();
        std::os::unix::fs::symlink(&target, &library).unwrap();
        assert!(read_library(&library).err().unwrap().contains("no file"));
    }
}
