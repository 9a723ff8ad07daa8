//! The runner of models by itself.

use nightshift_evaluator::layout::{Layout, Representation};
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, DType, Distribution};
use nightshift_toolchain::python::ARGUMENTS;

use crate::torch::Bench;

const RUNNER: &str = concat!(
    include_str!("../../evaluator/src/runner/python/program.py"),
    include_str!("../../evaluator/src/runner/python/memory.py"),
    include_str!("../../evaluator/src/runner/python/serve.py")
);

/// A model whose results are its inputs, in the other order, and a sum.
const SWAPPED: &str = "\
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return y, x.view(-1).view(4, 3), x + y
";

/// Calls the model twice, with other inputs each time.
const CALLS: &str = "
layout, program = json.loads(sys.argv[1]), sys.argv[2]
runner = Runner({'on_device': False}, None)


class Memory:
    tensor = torch.zeros(layout['total_bytes'], dtype=torch.uint8)


runner.memory, runner.layouts = Memory(), [layout]
runner.select(0)
plan = {'torch': {'init': '[]', 'training': False}, 'double': True, 'program': program, 'strict': False}
assert runner.on_load(plan, []) == {} and runner.on_init({}, []) == {}
inputs, outputs = runner.calls[0]
for factor in (1, 10):
    x, y = (factor * torch.arange(12, dtype=torch.float64).reshape(4, 3) + start for start in (100, 200))
    inputs[0].copy_(x)
    inputs[1].copy_(y)
    assert runner.run(1) == (0, 0)
    for (_, output), expected in zip(outputs, (y, x, x + y)):
        assert torch.equal(output, expected), (output, expected)
assert torch.equal(inputs[0], y), 'the first output lies where the first input was'
";

pub(crate) fn outputs_that_take_the_place_of_inputs_are_those_of_the_inputs(bench: &Bench) {
    let tensor = |name: &str| ConcreteTensor {
        name: name.to_owned(),
        dtype: DType::F32,
        shape: vec![4, 3],
        distribution: Distribution::default(),
    };
    let shapes = ConcreteShapes {
        name: "default".to_owned(),
        inputs: ["x", "y"].map(tensor).to_vec(),
        params: Vec::new(),
        outputs: ["a", "b", "c"].map(tensor).to_vec(),
    };
    let representation = Representation { double: true, torch: None, workspace: false, reuses_inputs: true };
    let layout = serde_json::to_string(&Layout::new(&shapes, representation, 1)).unwrap();
    let script = format!("{ARGUMENTS}{}{CALLS}", RUNNER.replace("sys.exit(main())", ""));
    #[expect(clippy::disallowed_methods, reason = "the script is the test's own")]
    let mut command = std::process::Command::new(&bench.python.program);
    let ran = command.args(["-c", &script, &layout]).arg(bench.file("swapped.py", SWAPPED)).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
