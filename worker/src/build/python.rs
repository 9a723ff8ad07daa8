//! A file of Python is built by nobody: it is read by Python's parser, in the jail, and kept as it is.

use std::path::{Path, PathBuf};
use std::time::Instant;

use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::measurement::{CompilerMessage, CompilerReport};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::PYTHON_EXTENSION;
use nightshift_protocol::verdict::ProcessEnd;
use serde::Deserialize;

use super::{Role, disk_failure, limits};
use crate::artifacts::StepArtifacts;
use crate::process::{CancelFlag, JailHost, JailedCommand, run_jailed};
use crate::torch::inspect::environment;

/// Reads the file without running it. Says what is wrong as one line of JSON.
const PARSER: &str = "\
import ast, json, sys
name, wanted = sys.argv[1:]
def wrong(line, column, message):
    print(json.dumps({'line': line or 0, 'column': column or 0, 'message': message}))
    sys.exit(1)
try:
    tree = ast.parse(open(name, encoding='utf-8').read(), name)
except SyntaxError as error:
    wrong(error.lineno, error.offset, f'{type(error).__name__}: {error.msg}')
except (ValueError, RecursionError, MemoryError) as error:
    wrong(0, 0, f'{type(error).__name__}: {error}')
defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
if wanted not in defined:
    wrong(0, 0, f'the file defines no class {wanted} at its top level')
";

/// How long reading a file may take, in milliseconds.
const WALL_MS: u64 = 30_000;

/// What a build of a file of Python works with.
#[derive(Debug)]
pub(crate) struct PythonBuilder<'a> {
    /// Runs Python.
    pub(crate) jail: &'a JailHost,
    /// Takes the file and what was said.
    pub(crate) artifacts: StepArtifacts<'a>,
    /// A folder of this step alone.
    pub(crate) scratch: &'a Path,
    /// Stops it.
    pub(crate) cancel: &'a CancelFlag,
}

#[derive(Deserialize)]
struct Wrong {
    line: u32,
    column: u32,
    message: String,
}

/// Looks whether a file can be read and defines its class, and keeps it. Its path in `scratch` is given when it does.
pub(crate) fn build_python(
    builder: &PythonBuilder<'_>,
    source: &str,
    role: Role,
) -> Result<(BuildReport, Option<PathBuf>), StepFailure> {
    let python = builder.jail.python().map_err(|reason| StepFailure::retriable("worker.no_torch", reason))?;
    let began = Instant::now();
    let path = builder.scratch.join(format!("{}.{PYTHON_EXTENSION}", role.name()));
    std::fs::write(&path, source).map_err(|error| disk_failure(&path, &error))?;
    let folder = tempfile::Builder::new().prefix("parse-").tempdir_in(builder.scratch);
    let folder = folder.map_err(|error| disk_failure(builder.scratch, &error))?;
    let wanted = if role == Role::Candidate { "ModelNew" } else { "Model" };
    let command = JailedCommand {
        program: python.program.clone(),
        args: ["-I", "-B", "-c", PARSER]
            .map(Into::into)
            .into_iter()
            .chain([path.clone().into(), wanted.into()])
            .collect(),
        read_only: python.folders.iter().cloned().chain([path.clone()]).collect(),
        scratch: folder.path().to_path_buf(),
        env: environment(folder.path()),
        limits: limits(WALL_MS),
    };
    let result = run_jailed(builder.jail, &command, builder.cancel)?;
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut messages = Vec::new();
    if !matches!(result.end, ProcessEnd::Finished) {
        let said = String::from_utf8_lossy(&result.stdout);
        let wrong = said.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| Wrong {
            line: 0,
            column: 0,
            message: format!("reading it with Python did not come to its end: {}", result.end.describe()),
        });
        let Wrong { line, column, message } = wrong;
        messages.push(CompilerMessage { file, line, column, severity: "error".to_owned(), message });
    }
    let is_good = messages.is_empty();
    let log: Vec<u8> = messages.iter().flat_map(|message| message.message.bytes()).collect();
    let library = is_good.then(|| builder.artifacts.put(source.as_bytes())).transpose()?;
    let toolchain = python.toolchain();
    let mut key = blake3::Hasher::new();
    for part in [source, wanted, &toolchain.fingerprint] {
        key.update(&(part.len() as u64).to_le_bytes());
        key.update(part.as_bytes());
    }
    let report = BuildReport {
        library,
        end: if is_good { ProcessEnd::Finished } else { ProcessEnd::Exited { status: 1 } },
        messages,
        log: builder.artifacts.put(&log)?,
        toolchain,
        build_key: key.finalize().to_hex().to_string(),
        cached: false,
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        report: CompilerReport::default(),
        cuda: None,
        sandbox: result.sandbox,
    };
    Ok((report, is_good.then_some(path)))
}
