//! What the tests on a GPU have in common: whether there is one, programs built by nvcc, and a small task.

#[path = "nvcc.rs"]
#[expect(dead_code, reason = "programs are built without a cache here")]
mod nvcc;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};

use libtest_mimic::{Arguments, Trial};
use nightshift_evaluator::device::{Gpu as DeviceContext, KERNELS_SOURCE};
use nightshift_protocol::machine::{GpuFacts, MachineFacts, SandboxReport};
use nightshift_protocol::task::TaskSpec;
use nightshift_sandbox::DeviceAccess;
use nightshift_sandbox::process::{CancelFlag, SandboxChoice};
use nightshift_toolchain::Host;
use nightshift_toolchain::build::compile_module;
use nightshift_worker::gpu::Gpus;

/// A machine on which these tests can run.
pub struct Gpu {
    /// The evaluator's own context, with its kernels.
    pub context: Arc<DeviceContext>,
    /// The same, as where a driver cannot export memory by descriptors.
    pub by_handles: Arc<DeviceContext>,
    /// How a jailed process gets to the device.
    pub access: DeviceAccess,
    /// What the driver tells of the device.
    pub facts: GpuFacts,
    nvcc: PathBuf,
}

static GPU: LazyLock<Result<Gpu, String>> = LazyLock::new(|| {
    let gpus = Gpus::open();
    let absence = || gpus.absence().map_or_else(|| "there is no GPU".to_owned(), ToString::to_string);
    let facts = gpus.facts().into_iter().next().ok_or_else(absence)?;
    let access = DeviceAccess::find(&facts.uuid, None).map_err(|error| error.to_string())?;
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().canonicalize().unwrap();
    let found = nvcc::find(&folder, SandboxChoice::Best).map_err(|error| error.to_string())?;
    // A machine that has both has to be able to do the rest.
    let (jail, cancel) = (nvcc::jail(SandboxChoice::Best), CancelFlag::default());
    let image = compile_module(&found, KERNELS_SOURCE, facts.compute_capability, &jail, &folder, &cancel).unwrap();
    let open = || DeviceContext::open(Some(&facts.uuid), &image).unwrap();
    let (context, by_handles) = (Arc::new(open()), Arc::new(open().without_descriptors()));
    Ok(Gpu { context, by_handles, access, facts, nvcc: PathBuf::from(&found.toolchain().path) })
});

/// The GPU of this machine; none, and said why, when there is nothing to test with.
pub fn gpu(test: &str) -> Option<&'static Gpu> {
    match &*GPU {
        Ok(gpu) => Some(gpu),
        Err(reason) => {
            println!("skipped `{test}`: {reason}");
            None
        }
    }
}

/// A test on the GPU, with its name.
pub type GpuTest = (&'static str, fn());

/// Runs the tests of a file. Where there is no GPU they are reported as skipped, and why is said once.
pub fn run_all<const N: usize>(tests: [GpuTest; N]) -> ExitCode {
    let arguments = Arguments::from_args();
    let is_missing = gpu("tests with a GPU").is_none();
    let trials = tests.map(|(name, test)| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(is_missing)
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

pub fn host(means: SandboxChoice) -> Host {
    Host::without_python(nvcc::jail(means), std::env::temp_dir())
}

/// A folder with programs.
pub struct Workshop {
    folder: tempfile::TempDir,
    nvcc: PathBuf,
}

impl Workshop {
    pub fn new(gpu: &Gpu) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), nvcc: gpu.nvcc.clone() }
    }

    /// A built library.
    #[expect(clippy::disallowed_methods, reason = "a test builds its own programs")]
    pub fn library(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let (input, output) =
            (self.folder.path().join(format!("{name}.cu")), self.folder.path().join(format!("{name}.so")));
        std::fs::write(&input, source).unwrap();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("toolchain/include");
        let built = std::process::Command::new(&self.nvcc)
            .args(["-O3", "-std=c++20", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-I"])
            .arg(include)
            .args(flags)
            .arg(&input)
            .arg("-o")
            .arg(&output)
            .output()
            .unwrap();
        assert!(built.status.success(), "{name}: {}", String::from_utf8_lossy(&built.stderr));
        output
    }
}

/// `y = x * w + b`, row by row.
pub const REFERENCE: &str = r#"
#include "nightshift.h"
__global__ void kernel(const ns_real *x, const ns_real *w, const ns_real *b, ns_real *y, int64_t rows, int64_t columns) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < rows * columns) y[i] = x[i] * w[i % columns] + b[i % columns];
}
int ns_run(void *, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    int64_t rows = in[0].shape[0], columns = in[0].shape[1], n = rows * columns;
    kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const ns_real *)in[0].data, (const ns_real *)in[1].data,
        (const ns_real *)in[2].data, (ns_real *)out[0].data, rows, columns);
    return (int)cudaGetLastError();
}
"#;

/// A program whose host code is `body`: sees `x`, `w`, `b`, `y` on the device, `rows`, `columns`, `n`, `workspace`,
/// `stream`, and the honest kernel as `HONEST`.
pub fn program(preamble: &str, body: &str) -> String {
    format!(
        r#"
#include "nightshift.h"
#include <cstdio>
#include <cstdlib>
__global__ void honest(const float *x, const float *w, const float *b, float *y, int64_t n, int64_t columns) {{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * w[i % columns] + b[i % columns];
}}
#define HONEST_ON(s) honest<<<(n + 255) / 256, 256, 0, s>>>(x, w, b, y, n, columns)
#define HONEST HONEST_ON(stream)
{preamble}
int ns_run(void *state, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *workspace, void *s) {{
    float *x = (float *)in[0].data, *w = (float *)in[1].data, *b = (float *)in[2].data, *y = (float *)out[0].data;
    int64_t rows = in[0].shape[0], columns = in[0].shape[1], n = rows * columns;
    cudaStream_t stream = (cudaStream_t)s;
    (void)state; (void)x; (void)w; (void)b; (void)y; (void)rows; (void)n; (void)workspace; (void)stream;
    {body}
    return (int)cudaGetLastError();
}}
"#
    )
}

/// The task that [`REFERENCE`] is the reference of.
pub fn task(rows: u64, columns: u64) -> TaskSpec {
    serde_json::from_value(serde_json::json!({
        "schema": 1,
        "name": "scale-shift",
        "title": "Scale and shift",
        "description": "y = x * w + b",
        "target": "cuda",
        "reference": "reference.cu",
        "dims": {"rows": rows, "columns": columns},
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["rows", "columns"]}],
        "params": [
            {"name": "w", "dtype": "f32", "shape": ["columns"]},
            {"name": "b", "dtype": "f32", "shape": ["columns"]},
        ],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["rows", "columns"]}],
        "tolerance": {"atol": 1e-4, "rtol": 1e-4},
        "variants": [{"name": "odd", "dims": {"rows": 7, "columns": 13}}],
        "limits": {"call_timeout_ms": 2000},
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
        last_level_cache_bytes: None,
        core: None,
        cpp_toolchain: None,
        cuda_toolchain: None,
        gpus: Vec::new(),
        sandbox: SandboxReport::default(),
    }
}
