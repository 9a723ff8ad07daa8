//! `build` on the `cpu` target: one run of the system's C++ compiler.

use std::ffi::OsString;
use std::path::PathBuf;

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::machine::Toolchain;
use nightshift_protocol::measurement::CompilerReport;
use nightshift_protocol::step::StepFailure;

use super::{Builder, Compiled, Job, LIBRARY, Role, disk_failure, limits};
use crate::build_provenance::BuildProvenance;
use crate::compiler_output::{self, LoopNotes};
use crate::disassembly;
use crate::toolchain::{self, Family};
use nightshift_sandbox::process::{JailedCommand, run_jailed};

/// Largest file of loop notes that is read, in bytes.
const MAX_NOTES_BYTES: u64 = 8 << 20;

const LOOP_NOTES: &str = "loops.txt";

/// Compiles a source in the folder of the job.
pub(super) fn compile(builder: &Builder<'_>, toolchain: &Toolchain, job: &Job<'_>) -> Result<Compiled, StepFailure> {
    let path = job.folder.join(job.file);
    std::fs::write(&path, job.source).map_err(|error| disk_failure(&path, &error))?;
    let run = |command: &JailedCommand| run_jailed(builder.jail, command, builder.cancel);
    let origin =
        BuildProvenance { toolchain: toolchain.fingerprint.clone(), source: ArtifactHash::of(job.source.as_bytes()) };
    let result = run(&compiler_command(toolchain, job, &origin))?;
    let said = String::from_utf8_lossy(&result.stderr).into_owned();
    let messages = compiler_output::messages(&said, &job.folder.display().to_string());
    let output = [result.stdout.as_slice(), result.stderr.as_slice()].concat();
    let mut compiled = Compiled::new(job, result, messages, String::from_utf8_lossy(&output).into_owned());
    if let Some((bytes, symbols)) = &compiled.library {
        let notes = loop_notes(toolchain, &said, job);
        let counts = disassembly::locate(&toolchain::system_folders())
            .and_then(|objdump| disassembly::count(&objdump, &job.folder.join(LIBRARY), job.folder, &run))
            .unwrap_or_default();
        compiled.report = CompilerReport {
            vectorized_loops: notes.vectorized,
            missed_loops: notes.missed,
            instructions: counts.instructions,
            wide_vector_instructions: counts.wide_vector,
            fma_instructions: counts.fma,
            scalar_math_calls: symbols.scalar_math_calls(),
            library_bytes: bytes.len() as u64,
            inner_loop: counts.inner_loop,
        };
    }
    Ok(compiled)
}

fn compiler_command(toolchain: &Toolchain, job: &Job<'_>, origin: &BuildProvenance) -> JailedCommand {
    let program = PathBuf::from(&toolchain.path);
    let mut args: Vec<OsString> = toolchain.flags.iter().map(OsString::from).collect();
    if job.role == Role::Truth {
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
    args.push(format!("-ffile-prefix-map={}=.", job.folder.display()).into());
    args.push(format!("-Wl,-soname,{}", origin.to_name()).into());
    args.extend([job.file, "-o", LIBRARY].map(OsString::from));
    JailedCommand {
        read_only: toolchain::readable_folders(&program),
        program,
        args,
        scratch: job.folder.to_path_buf(),
        env: vec![
            // Quotes and words of the messages as they are parsed.
            ("LC_ALL".to_owned(), "C".to_owned()),
            // `__DATE__` may not make two builds of one source differ.
            ("SOURCE_DATE_EPOCH".to_owned(), "0".to_owned()),
        ],
        limits: limits(job.timeout_ms),
    }
}

fn loop_notes(toolchain: &Toolchain, output: &str, job: &Job<'_>) -> LoopNotes {
    match toolchain::family(&toolchain.version) {
        Family::Clang => compiler_output::clang_loop_notes(output, job.file),
        Family::Gcc => {
            use std::io::Read as _;
            let mut text = Vec::new();
            let notes = job.folder.join(LOOP_NOTES);
            let is_file = std::fs::symlink_metadata(&notes).is_ok_and(|data| data.is_file());
            if let (true, Ok(file)) = (is_file, std::fs::File::open(&notes)) {
                // A part is still worth reading: notes of the program's own loops come early and late alike.
                let _ = file.take(MAX_NOTES_BYTES).read_to_end(&mut text);
            }
            compiler_output::gcc_loop_notes(&String::from_utf8_lossy(&text), job.file)
        }
    }
}
