//! The script that joins the program with the browser, by the library behind the `wasm-bindgen` command: no tool has to be
//! installed, and the lock file keeps both halves at one version.

use std::path::Path;

use anyhow::{Result, bail};
use wasm_bindgen_cli_support::Bindgen;

use super::{FILES, Files};
use crate::command::root;

/// Name of the script, and first half of the program's.
const OUT_NAME: &str = "app";

/// Script and program, in the order of [`FILES`].
pub(super) fn generate(wasm: &Path) -> Result<Files> {
    let folder = root().join("target/front/bundle");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    Bindgen::new()
        .input_path(wasm)
        .out_name(OUT_NAME)
        .web(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(&folder)?;
    let mut found: Vec<String> = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    found.sort();
    if found != FILES {
        bail!(
            "expected {FILES:?}, and there are {found:?}: a crate brings scripts of its own, which the server does not serve"
        );
    }
    FILES.iter().map(|name| Ok((*name, std::fs::read(folder.join(name))?))).collect()
}
