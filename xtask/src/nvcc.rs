//! The CUDA compiler of the tests: the machine's own, or the one that the product installs.

use std::path::Path;

use anyhow::{Result, bail};

use crate::command::{cargo, command, find_program, succeeds, target_folder};
use crate::tools;

/// Where NVIDIA's installer puts it.
const USUAL: [&str; 3] = ["nvcc", "/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc"];

/// Makes sure that tests can compile CUDA, when that is allowed; else what is not tested, and how to change that.
pub(crate) fn ensure(may_install: bool) -> Result<Option<String>> {
    if let Some(program) = find_program(&USUAL) {
        println!("xtask: the CUDA compiler: {}", program.display());
        return Ok(None);
    }
    let target = target_folder()?;
    // Where the tests look.
    let folder = target.join("nvcc");
    if !may_install {
        return Ok((!folder.is_dir()).then(|| {
            "skipped: tests that compile CUDA: nvcc is not there (`cargo xtask test --install` brings it)".to_owned()
        }));
    }
    tools::ensure_python()?;
    println!("xtask: the CUDA compiler, in {}", folder.display());
    // With everything that the tests need anyway: what is built for one task alone would be built twice.
    if !succeeds(cargo().args(["test", "--workspace", "--locked", "--no-run", "--quiet"]))? {
        bail!("the tests do not build");
    }
    install(&target.join("debug/nightshift"), &folder)?;
    Ok(None)
}

/// As the documentation says it: the same command, the same packages.
fn install(nightshift: &Path, folder: &Path) -> Result<()> {
    let mut install = command(nightshift);
    install.args(["doctor", "--install-nvcc", "--with-cublas", "--folder"]).arg(folder);
    if !succeeds(&mut install)? {
        bail!("`nightshift doctor --install-nvcc` failed: look at its output");
    }
    Ok(())
}
