//! The process that a tool watches: `EXECUTABLE __replay PLAN WARMUPS CALLS [CUPTI TRACE]`. With the last two it traces itself:
//! once it is warm it loads the library of CUPTI, and at the end it writes what that told to the file.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use nightshift_evaluator::runner::{CallObserver, replay};

use crate::cupti_tracer::Tracer;

const USAGE: &str = "expected: PLAN WARMUPS CALLS, and CUPTI TRACE or nothing";

/// Repeats a call, from the arguments of the process to its exit status.
#[must_use]
pub fn replay_main(args: &[OsString]) -> i32 {
    let Err(message) = try_to_replay(args) else { return 0 };
    let _ = writeln!(std::io::stderr(), "replay: {message}");
    1
}

fn try_to_replay(args: &[OsString]) -> Result<(), String> {
    let [_, _, path, warmups, calls, watched @ ..] = args else { return Err(USAGE.to_owned()) };
    let mut observer = match watched {
        [] => None,
        [library, trace] => Some(SelfTrace { library: Path::new(library), trace: Path::new(trace), tracer: None }),
        _ => return Err(USAGE.to_owned()),
    };
    let number = |text: &OsString| {
        let number = text.to_str().and_then(|text| text.parse::<u32>().ok());
        number.ok_or_else(|| format!("{} is no number", text.display()))
    };
    let observer = observer.as_mut().map(|observer| -> &mut dyn CallObserver { observer });
    replay(Path::new(path), (number(warmups)?, number(calls)?), observer)
}

/// Traces this process by CUPTI.
struct SelfTrace<'a> {
    library: &'a Path,
    trace: &'a Path,
    tracer: Option<Tracer>,
}

impl CallObserver for SelfTrace<'_> {
    fn begin(&mut self) -> Result<(), String> {
        self.tracer = Some(Tracer::start(self.library)?);
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(tracer) = self.tracer.take() else { return Ok(()) };
        let text = serde_json::to_vec(&tracer.finish()?).map_err(|error| error.to_string())?;
        std::fs::write(self.trace, text).map_err(|error| format!("the trace cannot be written: {error}"))
    }
}
