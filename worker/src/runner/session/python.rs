//! What a process with a Python in it has beside others.

use std::path::{Path, PathBuf};

use nightshift_protocol::task::{PYTHON_EXTENSION, TorchSpec};
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_toolchain::Host;
use tempfile::TempDir;

use super::{Session, SessionError, SessionOptions, os};
use crate::runner::message::Request;
use crate::runner::plan::TorchPlan;

/// How long Python may take to load `PyTorch`, in milliseconds: from a cold disk it takes its time.
const PYTHON_LIMIT_MS: u64 = 180_000;

impl Session {
    /// Waits until Python has loaded `PyTorch`: nothing of that happens on a device.
    pub(super) fn load_python(&mut self) -> Result<(), SessionError> {
        let nonce = self.nonces.draw();
        self.ask_python(&Request::Hello { nonce })
    }

    /// Waits until Python has loaded `PyTorch` and, on a device, has taken hold of it.
    pub(super) fn open_python(&mut self) -> Result<(), SessionError> {
        let nonce = self.nonces.draw();
        self.ask_python(&Request::Open { nonce })
    }

    fn ask_python(&mut self, request: &Request) -> Result<(), SessionError> {
        match self.ask(request, PYTHON_LIMIT_MS) {
            Ok(_) => Ok(()),
            Err(SessionError::Ended(ProcessEnd::DeviceFault { error, during })) => {
                Err(SessionError::Device { error, during })
            }
            Err(SessionError::Ended(end)) => {
                let printed = self.printed();
                let said = printed.lines().last().map_or_else(String::new, |line| format!(": {line}"));
                Err(SessionError::Python { reason: format!("{}{said}", end.describe()) })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether it is a file of Python.
    pub(crate) fn runs_python(&self) -> bool {
        self.plan.torch.is_some()
    }

    /// Believes this program, which is none of a model's, that bringing its results into the arena is just that. Where the
    /// other one writes them there itself, what it takes is none of a call.
    pub(crate) fn discount_delivery(&mut self) {
        self.discounts_delivery = true;
    }

    /// What an entry point is called in messages.
    pub(super) fn entry_point(&self, native: &'static str) -> &'static str {
        match (&self.plan.torch, native) {
            (Some(_), "ns_init") => "load_state_dict",
            (Some(_), _) => "forward",
            (None, _) => native,
        }
    }
}

/// A folder for one process that may compile at its first call, and its path without links.
pub(super) fn own_folder(host: &Host) -> Result<(TempDir, PathBuf), SessionError> {
    let missing = || SessionError::Python { reason: "no Python is looked for here".to_owned() };
    let search = host.python.as_ref().ok_or_else(missing)?;
    Ok(search.own_folder().map_err(os("making a folder"))?)
}

/// What a jail has to show to the Python of a plan.
pub(crate) fn python_folders(host: &Host, torch: Option<&TorchPlan>) -> Vec<PathBuf> {
    let python = torch.and_then(|_| host.python().ok());
    python.map(|python| python.folders.clone()).unwrap_or_default()
}

/// Whether Python runs it.
pub(crate) fn is_python(library: &Path) -> bool {
    library.extension().is_some_and(|extension| extension == PYTHON_EXTENSION)
}

/// How a file of Python is run; none for a library.
pub(super) fn torch_plan(
    host: &Host,
    library: &Path,
    options: &SessionOptions<'_>,
) -> Result<Option<TorchPlan>, SessionError> {
    let plan = replay_torch_plan(host, library, options.torch)?;
    Ok(plan.map(|plan| TorchPlan { double: options.double, ..plan }))
}

/// The same for a call that is repeated for profilers.
pub(crate) fn replay_torch_plan(
    host: &Host,
    library: &Path,
    spec: Option<&TorchSpec>,
) -> Result<Option<TorchPlan>, SessionError> {
    if !is_python(library) {
        return Ok(None);
    }
    let missing = |reason| SessionError::Python { reason };
    let python = host.python().map_err(missing)?;
    let spec = spec.ok_or_else(|| missing("the task does not say how its model is built and called".to_owned()))?;
    let spec = TorchSpec { problems: Vec::new(), ..spec.clone() };
    Ok(Some(TorchPlan {
        python: python.program.clone(),
        bytecode: python.bytecode.clone(),
        models: python.models.clone(),
        spec,
        double: false,
        scratch: None,
        filter: None,
    }))
}
