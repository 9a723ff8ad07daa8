//! A program as a file, and the memory that it shares with the evaluator.

use std::path::Path;

use nightshift_protocol::task::{ConcreteShapes, PYTHON_EXTENSION, TRIMMED_BYTES, TaskSpec};

use crate::layout::{Layout, Representation};

/// The arithmetic that a program runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Its own.
    Own,
    /// That of a model of `PyTorch` with TF32 switched off.
    Strict,
    /// Double precision.
    Double,
}

/// A built program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramFile<'a> {
    /// The library, or the file of Python.
    pub(crate) path: &'a Path,
    /// True for the task's own program, false for one that a model wrote.
    pub(crate) trusted: bool,
    /// The arithmetic that it runs with.
    pub(crate) arithmetic: Arithmetic,
    /// Whether outputs of a model of `PyTorch` may take the place of its inputs where tensors are large. Only of trusted programs that
    /// are not timed.
    pub(crate) reuses_inputs: bool,
}

impl<'a> ProgramFile<'a> {
    /// Returns a program that a model wrote.
    pub(crate) fn candidate(path: &'a Path) -> Self {
        Self { path, trusted: false, arithmetic: Arithmetic::Own, reuses_inputs: false }
    }

    /// Returns the task's own program, as it is timed.
    pub(crate) fn baseline(path: &'a Path) -> Self {
        Self { trusted: true, ..Self::candidate(path) }
    }

    /// Returns the task's own program in double precision.
    pub(crate) fn truth(path: &'a Path) -> Self {
        Self { arithmetic: Arithmetic::Double, reuses_inputs: true, ..Self::baseline(path) }
    }

    /// Returns whether it computes in double precision.
    pub(crate) fn is_double(&self) -> bool {
        self.arithmetic == Arithmetic::Double
    }

    /// Returns whether Python runs it.
    pub(crate) fn is_python(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == PYTHON_EXTENSION)
    }
}

/// The options with which the evaluator starts a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramOptions<'a> {
    /// The task.
    pub(crate) spec: &'a TaskSpec,
    /// The shapes that the program is called with, the first one first.
    pub(crate) shapes: &'a [ConcreteShapes],
    /// Calls that may be queued at once.
    pub(crate) calls: usize,
    /// Processor core to stay on.
    pub(crate) core: Option<usize>,
    /// Load nothing unless files and network are out of reach.
    pub(crate) require_sandbox: bool,
    /// Whether the process of a trusted program may have served before.
    pub(crate) may_be_resident: bool,
}

/// Where the tensors of a program lie, for each shape.
pub(super) fn layouts(file: &ProgramFile<'_>, options: &ProgramOptions<'_>) -> Vec<Layout> {
    let is_python = file.is_python();
    let layout = |shapes: &ConcreteShapes| {
        let representation = Representation {
            double: file.is_double(),
            torch: options.spec.torch.as_ref().filter(|_| is_python),
            workspace: !is_python,
            reuses_inputs: file.reuses_inputs && is_python && shapes.size_bytes() >= TRIMMED_BYTES,
        };
        Layout::new(shapes, representation, options.calls)
    };
    options.shapes.iter().map(layout).collect()
}

/// Returns the size of the memory that a program will share with the evaluator.
pub(crate) fn shared_bytes(file: &ProgramFile<'_>, options: &ProgramOptions<'_>) -> usize {
    layouts(file, options).iter().map(|layout| layout.total_bytes).max().unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use nightshift_protocol::task::MemoryDemand;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn model(inputs: u64, outputs: u64) -> TaskSpec {
        let tensor = |name: &str, bytes: u64| serde_json::json!({"name": name, "dtype": "f32", "shape": [bytes / 4]});
        let spec = serde_json::json!({
            "schema": 1, "name": "t", "title": "t", "description": "t", "target": "cuda", "reference": "r.py",
            "inputs": [tensor("x", inputs)], "params": [tensor("w", 4096)], "outputs": [tensor("y", outputs)],
            "tolerance": {"atol": 1.0, "rtol": 1.0}, "torch": {"init": "[]"},
        });
        serde_json::from_value(spec).unwrap()
    }

    fn program(double: bool, reuses_inputs: bool) -> ProgramFile<'static> {
        let arithmetic = if double { Arithmetic::Double } else { Arithmetic::Own };
        ProgramFile { path: Path::new("program.py"), trusted: reuses_inputs, arithmetic, reuses_inputs }
    }

    /// Returns the bytes that these programs share with the evaluator at the same time.
    fn shared(spec: &TaskSpec, programs: &[ProgramFile<'_>]) -> u64 {
        let shapes = spec.all_shapes().unwrap();
        let options = ProgramOptions {
            spec,
            shapes: &shapes,
            calls: 1,
            core: None,
            require_sandbox: false,
            may_be_resident: false,
        };
        programs.iter().map(|program| u64::try_from(shared_bytes(program, &options)).unwrap()).sum()
    }

    #[test]
    fn large_models_take_no_more_memory_than_their_steps_reserve() {
        for (inputs, outputs) in [(7, 8), (7, 7), (12, 1), (1, 8), (4, 1), (2, 2)] {
            let (inputs, outputs) = (inputs * GIB, outputs * GIB);
            let spec = model(inputs, outputs);
            let reserved = MemoryDemand::of(&spec).unwrap().on_gpu();
            let (candidate, truth) = (program(false, false), program(true, true));
            // Results of candidate and truth beside those in place, and the reference's outputs to other inputs.
            let check = shared(&spec, &[candidate, program(false, true), truth]) + 4 * outputs;
            // Results of the truth, and outputs of both to the same inputs.
            let examination = shared(&spec, &[candidate, truth]) + 5 * outputs;
            // The baseline's results, and those of the truth.
            let limits = shared(&spec, &[candidate, truth]) + 3 * outputs;
            // Candidate, baseline, a process without a program, and results of both.
            let windows = shared(&spec, &[candidate, candidate, candidate]) + 2 * outputs;
            for step in [check, examination, limits, windows] {
                assert!(step <= reserved, "{inputs} {outputs}: {step} of {reserved}");
            }
        }
    }

    #[test]
    fn only_trusted_models_with_large_tensors_reuse_inputs() {
        let reuses = |bytes: u64, program: &ProgramFile<'_>| {
            let spec = model(bytes, bytes);
            let width = if program.is_double() { 2 } else { 1 };
            shared(&spec, &[*program]) < 2 * bytes * width
        };
        let (reference, truth) = (program(false, true), program(true, true));
        assert!(reuses(2 * GIB, &reference) && reuses(2 * GIB, &truth));
        assert!(!reuses(GIB, &reference) && !reuses(GIB, &truth), "what is small");
        assert!(!reuses(2 * GIB, &program(false, false)), "a candidate");
        assert!(!reuses(2 * GIB, &ProgramFile { path: Path::new("program.so"), ..reference }), "a library");
    }
}
