//! The tools of this machine to build and run programs.

use std::path::PathBuf;
use std::sync::Arc;

use nightshift_sandbox::process::{CancelFlag, JailHost};

use crate::python::{Python, PythonSearch};

/// The binary of sandboxed processes, the Python interpreter of this machine, and a folder.
#[derive(Debug, Clone)]
pub struct Host {
    /// Starts sandboxed processes.
    pub jail: JailHost,
    /// Finds the Python that runs models of `PyTorch`; none where none is looked for.
    pub python: Option<Arc<PythonSearch>>,
    /// The folder in which each process gets one of its own. Its owner removes the leftovers, also after a kill.
    pub scratch: PathBuf,
}

impl Host {
    /// Creates a host without a Python interpreter.
    #[must_use]
    pub fn without_python(jail: JailHost, scratch: PathBuf) -> Self {
        Self { jail, python: None, scratch }
    }

    /// Returns the Python that runs models of `PyTorch`, or the reason why there is none. Blocks the first time.
    pub fn python(&self, cancel: &CancelFlag) -> Result<&Python, String> {
        let Some(search) = &self.python else { return Err("no Python with PyTorch was searched for here".to_owned()) };
        search.python(cancel).map_err(|error| error.to_string())
    }
}
