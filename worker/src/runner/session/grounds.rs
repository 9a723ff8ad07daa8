//! What a session is made of, and where it is started.

use std::path::{Path, PathBuf};

use nightshift_protocol::task::{ConcreteShapes, TorchSpec};
use nightshift_toolchain::Host;

use super::{Launched, Session, SessionError, Standby, Turn, is_python};
use crate::known::{KnownQuestions, Reserved, Subject};
use crate::runner::gate::{Alone, Gate, PlaceBeside, Quiet, Stay};
use nightshift_sandbox::process::CancelFlag;
use nightshift_sandbox::{DeviceAccess, Queues};

/// What a session is made of.
#[derive(Debug, Clone)]
pub struct SessionOptions<'a> {
    /// The library, or a file of Python.
    pub library: &'a Path,
    /// How a file of Python is built and called.
    pub torch: Option<&'a TorchSpec>,
    /// The tensors of a call: the shapes that it will be called with, the first one first.
    pub shapes: &'a [ConcreteShapes],
    /// Widen 32-bit floats to 64 bits: the library gives the truth.
    pub double: bool,
    /// Memory beside the tensors, in bytes.
    pub memory_bytes: u64,
    /// Wall time of one call in milliseconds.
    pub call_timeout_ms: u64,
    /// Processor core to stay on.
    pub core: Option<usize>,
    /// Load nothing unless files and network are out of reach.
    pub require_sandbox: bool,
    /// The GPU that tensors live on; none for the host.
    pub device: Option<&'a DeviceUse>,
    /// The queues to it that the process gets.
    pub queues: Queues,
    /// Bytes of its memory that the process will be told to hold for what is kept there, where somebody knows.
    pub stock_bytes: u64,
}

/// A place on the device beside others; none where there is nobody to be kept apart from.
pub(crate) type Beside<'a> = Option<PlaceBeside<'a>>;

/// Takes such a place, for so long; it is left when what it gives is dropped.
pub(crate) type Enter<'e, 'a> = &'e (dyn Fn(Stay) -> Beside<'a> + Sync);

/// Where sessions are started.
#[derive(Debug, Clone, Copy)]
pub struct Grounds<'a> {
    /// The binary of the children, and how they are isolated.
    pub host: &'a Host,
    /// The GPU that programs run on; none for the host.
    pub device: Option<&'a DeviceUse>,
    /// Ends everything.
    pub cancel: &'a CancelFlag,
    /// Keeps the steps of this worker on the device apart while one of them takes times; none where a step is alone
    /// anyway.
    pub gate: Option<&'a Gate>,
    /// Keeps processes on the device ready from one step for the next; none where every step starts its own.
    pub standby: Option<&'a Standby>,
}

impl<'a> Grounds<'a> {
    /// Waits for a place on the device beside others. To be kept no longer than something is at work on the device, and
    /// never twice by one thread: whoever wants the device alone waits for every place to be left, and everybody else
    /// waits behind him.
    #[must_use]
    pub fn beside_others(&self, stay: Stay) -> Beside<'a> {
        self.gate.map(|gate| gate.beside_others(stay))
    }

    /// Waits until nothing else is at work on the device, and keeps it so.
    #[must_use]
    pub fn alone(&self, quiet: Quiet) -> Option<Alone<'a>> {
        self.gate.map(|gate| gate.alone(quiet))
    }

    /// Questions whose answers are known, for what runs on the device from one step to the next.
    pub(crate) fn known(&self) -> Option<&'a KnownQuestions> {
        self.standby.map(Standby::known)
    }

    /// Memory for questions whose answers are to be known, as far as nobody needs it.
    pub(crate) fn reserve_known(&self, shapes: &[ConcreteShapes], bytes: u64) -> Option<Reserved> {
        self.standby.and_then(|standby| standby.reserve_known(shapes, bytes))
    }

    /// Waits for a turn at the processes of a task's reference and truth, where another step that uses them keeps this one from
    /// them and others take long to start: those with a Python. To be kept until they are left; not for a thread that has a place
    /// on the device.
    pub(crate) fn turn(&self, of: &Subject, reference: &Path) -> Option<Turn<'a>> {
        self.standby.filter(|_| is_python(reference)).and_then(|standby| standby.turn(of, self.cancel))
    }

    /// Starts the process of a program that nobody has seen before; where one is on standby for that, takes that one.
    pub(crate) fn launch(&self, options: &SessionOptions<'_>) -> Result<Launched, SessionError> {
        match (self.standby, options.device) {
            (Some(standby), Some(device)) => standby.launch(options, device, self.cancel),
            _ => Session::launch(self.host, options, self.cancel),
        }
    }

    /// Lets the process of a program that passed its check be kept for its first measurement, of a task of `PyTorch`: what a
    /// new process may differ by is little beside what the baseline's calls differ by.
    pub(crate) fn keep_for_measurement(&self, session: &mut Session, options: &SessionOptions<'_>) {
        if let (Some(_), Some(device)) = (self.standby, options.device)
            && options.torch.is_some()
            && let Err(error) = Standby::keep_for_measurement(session, options, device)
        {
            tracing::debug!(error = %error, "the process of a checked program is not kept");
        }
    }

    /// Takes the process in which a program was checked, or one that is new to it.
    pub(crate) fn launch_checked(&self, options: &SessionOptions<'_>) -> Result<Launched, SessionError> {
        match (self.standby, options.device) {
            (Some(standby), Some(device)) => standby.launch_checked(options, device, self.cancel),
            _ => Session::launch(self.host, options, self.cancel),
        }
    }

    /// Takes the process of a trusted library that an earlier step left on standby, or starts one.
    pub(crate) fn launch_again(&self, options: &SessionOptions<'_>) -> Result<Launched, SessionError> {
        match (self.standby, options.device) {
            (Some(standby), Some(device)) => standby.launch_again(options, device, self.cancel),
            _ => Session::launch(self.host, options, self.cancel),
        }
    }

    /// Waits until processes are ready that were started at this place on the device. Those that are not ready yet take hold of
    /// the device at another place, for longer, that is given back; and those with a Python load for seconds before they do,
    /// while nobody who wants the device alone has to wait for them.
    pub(crate) fn ready<const COUNT: usize>(
        &self,
        beside: Beside<'a>,
        launched: [Result<Launched, SessionError>; COUNT],
    ) -> (Beside<'a>, [Result<Session, SessionError>; COUNT]) {
        let is_ready = |launched: &Result<Launched, SessionError>| launched.as_ref().map_or(true, Launched::is_ready);
        if launched.iter().all(is_ready) {
            return (beside, launched.map(|launched| launched.and_then(Launched::wait)));
        }
        drop(beside);
        let is_loading = |launched: &Result<Launched, SessionError>| launched.as_ref().is_ok_and(Launched::is_loading);
        let launched = if launched.iter().any(is_loading) {
            // What is no Python does not wait for those that are.
            let place = self.beside_others(Stay::Driver);
            let launched = launched.map(|launched| match launched {
                Ok(launched) if !launched.is_loading() => launched.wait().map(Launched::of),
                launched => launched,
            });
            drop(place);
            launched.map(|launched| launched.and_then(Launched::load))
        } else {
            launched
        };
        let beside = self.beside_others(Stay::Driver);
        (beside, launched.map(|launched| launched.and_then(Launched::wait)))
    }

    /// So many programs more will be there soon.
    pub(crate) fn expect_programs(&self, count: usize) {
        if let Some(standby) = self.standby {
            standby.expect_programs(count);
        }
    }

    /// Leaves the processes of trusted libraries on standby; those that cannot be used again are ended.
    pub(crate) fn leave(&self, sessions: impl IntoIterator<Item = Session>) {
        match self.standby {
            Some(standby) => standby.keep(sessions),
            None => Session::end_all(sessions),
        }
    }

    /// The shapes that one process serves, in the order given. On the host a process is cheap and each shape gets a
    /// fresh one; on a device taking hold of it costs more than most checks.
    #[must_use]
    pub fn together(&self, shapes: &'a [ConcreteShapes]) -> Vec<&'a [ConcreteShapes]> {
        if self.device.is_some() { vec![shapes] } else { shapes.chunks(1).collect() }
    }
}

/// A GPU for programs to run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceUse {
    /// How a jailed process gets to it.
    pub access: DeviceAccess,
    /// Libraries of the toolkit that programs may rely on.
    pub libraries: Vec<PathBuf>,
}
