//! Kernels alone, without anything for the host: what the driver loads as a module.

use std::ffi::OsString;
use std::path::Path;

use nightshift_protocol::needs::ComputeCapability;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{CancelFlag, JailHost, run_jailed};

use super::disk_failure;
use crate::nvcc::Nvcc;
use crate::nvcc::command::jailed_nvcc;

/// Names of source and module in the folder of the build.
const SOURCE: &str = "module.cu";
const MODULE: &str = "module.cubin";

/// Time limit in milliseconds: a cold compiler takes its time.
const TIMEOUT_MS: u64 = 120_000;

/// Compiles kernels for devices of one compute capability. `scratch` is an existing folder.
///
/// # Errors
/// `toolchain.kernels_not_built` when the compiler refuses the source.
pub fn compile_module(
    nvcc: &Nvcc,
    source: &str,
    capability: ComputeCapability,
    jail: &JailHost,
    scratch: &Path,
    cancel: &CancelFlag,
) -> Result<Vec<u8>, StepFailure> {
    let disk = |error: std::io::Error| disk_failure(scratch, &error);
    let folder = temporary_folder(scratch, "module-").map_err(disk)?;
    std::fs::write(folder.path().join(SOURCE), source).map_err(disk)?;
    let ComputeCapability { major, minor } = capability;
    let mut args: Vec<OsString> = vec!["-cubin".into(), "-O3".into(), "-std=c++17".into()];
    args.push(format!("-arch=sm_{major}{minor}").into());
    args.push(format!("-ccbin={}", nvcc.host_compiler.display()).into());
    args.extend([SOURCE, "-o", MODULE].map(OsString::from));
    let command = jailed_nvcc(nvcc, folder.path(), TIMEOUT_MS, args);
    let result = run_jailed(jail, &command, cancel)?;
    let built = std::fs::read(folder.path().join(MODULE)).ok().filter(|_| result.end == ProcessEnd::Finished);
    built.ok_or_else(|| {
        let said = [result.stderr.as_slice(), result.stdout.as_slice()].concat();
        let said = String::from_utf8_lossy(&said);
        let first =
            said.lines().find(|line| line.contains("error")).or_else(|| said.lines().next()).unwrap_or_default();
        StepFailure::retriable(
            "toolchain.kernels_not_built",
            format!(
                "nvcc did not build the evaluator's kernels for sm_{major}{minor} ({}): {first}",
                result.end.describe()
            ),
        )
    })
}
