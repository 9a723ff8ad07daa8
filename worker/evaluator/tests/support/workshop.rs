//! What the tests have in common: the jail's host, programs built by the system compiler in the jail, and a small task.

use std::path::{Path, PathBuf};

use nightshift_protocol::machine::{MachineFacts, SandboxReport};
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::{
    CancelFlag, JailHost, JailedCommand, Limits, ProcessResult, SandboxChoice, run_jailed,
};
use nightshift_toolchain::Host;

/// Every way to isolate that is expected to hold.
pub const ROADS: [SandboxChoice; 3] = [SandboxChoice::Best, SandboxChoice::Landlock, SandboxChoice::Namespaces];

pub fn host(means: SandboxChoice) -> Host {
    Host::without_python(
        JailHost::new(PathBuf::from(env!("CARGO_BIN_EXE_evaluator_child")), means),
        std::env::temp_dir(),
    )
}

pub fn limits() -> Limits {
    Limits {
        wall_ms: 60_000,
        cpu_s: 60,
        memory_bytes: 2 << 30,
        file_bytes: 64 << 20,
        processes: 64,
        output_bytes: 64 * 1024,
    }
}

/// The folder of the native contract's header.
pub fn include_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolchain/include").canonicalize().unwrap()
}

/// Runs the system compiler in the jail.
pub fn compile(means: SandboxChoice, folder: &Path, source: &str, name: &str, flags: &[&str]) -> ProcessResult {
    let mut args = vec!["-std=c++20", "-O2", "-fPIC", "-shared", "-x", "c++", "-I"];
    let include = include_folder();
    args.push(include.to_str().unwrap());
    args.extend(flags);
    let input = folder.join(format!("{name}.cpp"));
    let output = folder.join(format!("{name}.so"));
    std::fs::write(&input, source).unwrap();
    args.extend([input.to_str().unwrap(), "-o", output.to_str().unwrap()]);
    let command = JailedCommand {
        program: PathBuf::from("/usr/bin/g++"),
        args: args.into_iter().map(Into::into).collect(),
        read_only: vec![include.clone()],
        scratch: folder.to_owned(),
        env: Vec::new(),
        limits: limits(),
    };
    run_jailed(&host(means).jail, &command, &CancelFlag::default()).unwrap()
}

/// A folder with programs.
pub struct Workshop {
    folder: tempfile::TempDir,
}

impl Workshop {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A built library.
    pub fn library(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let result = compile(SandboxChoice::Best, self.path(), source, name, flags);
        assert_eq!(result.end, ProcessEnd::Finished, "{name}: {}", String::from_utf8_lossy(&result.stderr));
        self.path().join(format!("{name}.so"))
    }
}

/// `y = x * w + b`, row by row.
pub const REFERENCE: &str = r#"
#include "nightshift.h"
int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *) {
    const ns_real *x = (const ns_real *)in[0].data, *w = (const ns_real *)in[1].data, *b = (const ns_real *)in[2].data;
    ns_real *y = (ns_real *)out[0].data;
    int64_t rows = in[0].shape[0], columns = in[0].shape[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) y[r * columns + c] = x[r * columns + c] * w[c] + b[c];
    return 0;
}
"#;

/// The body of a program: sees `x`, `w`, `b`, `y`, `rows`, `columns` and `EVERY` to loop over all elements.
pub fn program(preamble: &str, body: &str) -> String {
    format!(
        r#"
#include "nightshift.h"
{preamble}
#define EVERY(code) for (int64_t r = 0; r < rows; r++) for (int64_t c = 0; c < columns; c++) {{ int64_t i = r * columns + c; code; }}
#define HONEST EVERY(y[i] = x[i] * w[c] + b[c])
int ns_run(void *state, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *) {{
    float *x = (float *)in[0].data, *w = (float *)in[1].data, *b = (float *)in[2].data, *y = (float *)out[0].data;
    int64_t rows = in[0].shape[0], columns = in[0].shape[1];
    (void)state; (void)x; (void)w; (void)b; (void)y;
    {body}
    return 0;
}}
"#
    )
}

/// The task that [`REFERENCE`] is the reference of.
pub fn task() -> TaskSpec {
    serde_json::from_value(serde_json::json!({
        "schema": 1,
        "name": "scale-shift",
        "title": "Scale and shift",
        "description": "y = x * w + b",
        "target": "cpu",
        "reference": "reference.cpp",
        "dims": {"rows": 48, "columns": 96},
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["rows", "columns"]}],
        "params": [
            {"name": "w", "dtype": "f32", "shape": ["columns"]},
            {"name": "b", "dtype": "f32", "shape": ["columns"]},
        ],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["rows", "columns"]}],
        "tolerance": {"atol": 1e-4, "rtol": 1e-4},
        "variants": [{"name": "odd", "dims": {"rows": 7, "columns": 13}}],
        "limits": {"memory_bytes": 64 << 20, "call_timeout_ms": 10_000},
    }))
    .unwrap()
}

pub fn machine() -> MachineFacts {
    MachineFacts {
        host: "test".to_owned(),
        os: "linux".to_owned(),
        processor: "unknown".to_owned(),
        cores: 1,
        features: Vec::new(),
        memory_bytes: 1 << 30,
        last_level_cache_bytes: Some(4 << 20),
        core: None,
        cpp_toolchain: None,
        cuda_toolchain: None,
        gpus: Vec::new(),
        sandbox: SandboxReport::default(),
    }
}
