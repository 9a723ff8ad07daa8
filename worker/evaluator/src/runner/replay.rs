//! One call of a program, repeated in a process of its own without an evaluator, so that a tool can watch it.
//!
//! A file of Python is repeated by a Python process that takes the place of the process.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use nightshift_protocol::task::{ConcreteShapes, TaskSpec};
use nightshift_toolchain::python::Python;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::message::{ProgramPlan, PythonPlan};
use super::native::{NativeProgram, NativeTensors};
use super::python::become_replay;
use super::tensors::{RunnerDevice, Tensors};
use crate::device::DeviceError;
use crate::draw::{Draw, InputKind, draw_on_host};
use crate::layout::{Layout, Representation};
use crate::seeds::SecretSeeds;

/// Name of the plan in its folder.
const PLAN_FILE: &str = "replay.json";

/// Name of the tensors beside it.
const TENSORS_FILE: &str = "tensors.bin";

/// What outputs are filled with before the first call: no number in any format.
const POISON: u32 = 0x7FFC_A5A5;

/// What is repeated.
#[derive(Debug, Serialize, Deserialize)]
struct ReplayPlan {
    program: ProgramPlan,
    python: Option<PythonPlan>,
    layout: Layout,
    /// The file with inputs and weights, where the layout says.
    tensors: PathBuf,
}

/// Which call is repeated.
#[derive(Debug, Clone, Copy)]
pub struct ReplayRequest<'a> {
    /// The task.
    pub spec: &'a TaskSpec,
    /// The library, or the file of Python.
    pub program: &'a Path,
    /// The Python that runs a file of Python; none for a library.
    pub python: Option<&'a Python>,
    /// Libraries that a library relies on.
    pub libraries: &'a [PathBuf],
    /// The shapes of the call.
    pub shapes: &'a ConcreteShapes,
}

impl ReplayRequest<'_> {
    /// Returns what the process reads beside its plan: the program, and the folders of its Python.
    #[must_use]
    pub fn readable(&self) -> Vec<PathBuf> {
        let folders = self.python.into_iter().flat_map(|python| python.folders.iter().cloned());
        std::iter::once(self.program.to_path_buf()).chain(folders).collect()
    }

    /// Returns where the plan will lie.
    #[must_use]
    pub fn plan_path(&self, folder: &Path) -> PathBuf {
        folder.join(PLAN_FILE)
    }

    /// Writes the plan, and the tensors beside it, into an existing folder.
    pub fn write(&self, folder: &Path, seeds: &mut SecretSeeds) -> std::io::Result<()> {
        let python = self.python.map(|python| {
            let (program, bytecode, models) = (python.program.clone(), python.bytecode.clone(), python.models.clone());
            PythonPlan { program, bytecode, models, scratch: None }
        });
        let torch = self.spec.torch.clone().filter(|_| python.is_some());
        let representation =
            Representation { double: false, torch: torch.as_ref(), workspace: python.is_none(), reuses_inputs: false };
        let layout = Layout::new(self.shapes, representation, 1);
        let tensors = folder.join(TENSORS_FILE);
        let mut file = File::create_new(&tensors)?;
        file.set_len(u64::try_from(layout.total_bytes).unwrap_or(u64::MAX))?;
        let given = [(&layout.params, &self.shapes.params), (&layout.call(0).inputs, &self.shapes.inputs)];
        for (places, drawn) in given {
            let draws = Draw::all(drawn.len(), seeds.draw(), InputKind::Declared);
            for ((place, tensor), draw) in places.iter().zip(drawn).zip(draws) {
                let mut bytes = vec![0; place.region.size];
                draw_on_host(tensor, draw).write_as(place.element, &mut bytes);
                file.seek(SeekFrom::Start(u64::try_from(place.region.offset).unwrap_or(u64::MAX)))?;
                file.write_all(&bytes)?;
            }
        }
        let program = ProgramPlan {
            program: self.program.to_path_buf(),
            libraries: if python.is_some() { Vec::new() } else { self.libraries.to_vec() },
            torch,
            double: false,
            strict: false,
        };
        let plan = ReplayPlan { program, python, layout, tensors };
        std::fs::write(self.plan_path(folder), serde_json::to_vec(&plan).map_err(std::io::Error::other)?)
    }
}

/// What watches the calls of a library from inside the process: it is told when the program is warm, and when the last call is over.
pub trait CallObserver {
    /// The program was called often enough to be warm.
    fn begin(&mut self) -> Result<(), String>;
    /// The last call is over.
    fn end(&mut self) -> Result<(), String>;
}

/// Repeats the call of a plan: so often without, and then so often between the marks that profilers look for. Returns the reason when
/// that fails, and does not return at all for a file of Python.
pub fn replay(
    plan: &Path,
    (warmups, calls): (u32, u32),
    mut observer: Option<&mut dyn CallObserver>,
) -> Result<(), String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("the plan cannot be read: {error}");
    let text = std::fs::read(plan).map_err(|error| unreadable(&error))?;
    let plan: ReplayPlan = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
    if let Some(python) = &plan.python {
        if observer.is_some() {
            return Err("only calls of libraries are observed from inside, and this is a file of Python".to_owned());
        }
        let program = serde_json::to_value(&plan.program).map_err(|error| error.to_string())?;
        let replayed = json!({"tensors": plan.tensors, "layout": plan.layout, "warmups": warmups, "calls": calls});
        return Err(become_replay(python, &program, &replayed));
    }
    let bytes = std::fs::read(&plan.tensors).map_err(|error| unreadable(&error))?;
    let device = RunnerDevice::open().map_err(failed)?;
    let mut tensors = Tensors::in_buffers(&device, &plan.layout, &bytes, POISON).map_err(failed)?;
    drop(bytes);
    let shape = NativeTensors::new(&plan.layout, &mut tensors);
    let mut program =
        NativeProgram::load(&plan.program).map_err(|message| format!("the library cannot be loaded: {message}"))?;
    status("ns_init", program.init(&shape))?;
    device.context.synchronize("`ns_init`").map_err(failed)?;
    let call = || -> Result<(), String> {
        status("ns_run", program.run(&shape, 0, device.stream.handle()))?;
        device.context.synchronize("the call").map_err(failed)
    };
    for _ in 0..=warmups {
        call()?;
    }
    if let Some(observer) = &mut observer {
        observer.begin()?;
    }
    for _ in 0..calls {
        device.context.mark_profiled(true);
        let called = call();
        device.context.mark_profiled(false);
        called?;
    }
    observer.map_or(Ok(()), CallObserver::end)
}

#[expect(clippy::needless_pass_by_value, reason = "errors are handed on by value")]
fn failed(error: DeviceError) -> String {
    format!("the GPU reported {} ({})", error.error, error.during)
}

fn status(entry_point: &str, status: i32) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("`{entry_point}` returned the error status {status}")) }
}
