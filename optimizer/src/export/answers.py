"""What the model says to given inputs: in double precision, which is the truth, and as it is.

    python3 answers.py FOLDER SHAPE DRAWS SAMPLES

`compare` calls it. FOLDER holds the values of the weights (param-N) and of the inputs (draw-D-input-N), as they lie in memory;
beside them come draw-D-truth-N in 64-bit floats, draw-D-usual-N, and with SAMPLES above 0 the seconds of each timed sample of
calls (seconds). Needs PyTorch.
"""

import base64
import ctypes
import importlib.util
import json
import math
import os
import pickle
import sys
import time

import torch

# By shape: tensors as (name, type, extents, distribution and its two numbers).
CONTRACT = @@CONTRACT@@

# How the model is built and called, in JSON.
MODEL = json.loads(@@MODEL@@)

DEVICE = @@DEVICE@@
SEED = 42
# A sample takes at least this long, so that the clock's own time does not count.
SAMPLE_S = 2e-3


def decoded(value):
    """An argument, as the task has it written down."""
    if isinstance(value, list):
        return [decoded(entry) for entry in value]
    if isinstance(value, dict):
        (kind, inner), = value.items()
        if kind == "tuple":
            return tuple(decoded(entry) for entry in inner)
        if kind == "dict":
            return {key: decoded(entry) for key, entry in inner.items()}
        if kind == "float":
            return float(inner)
        if kind == "dtype":
            return getattr(torch, inner)
        if kind == "object":
            return pickle.loads(base64.b64decode(inner["pickle"]))
        raise ValueError(f"{kind} is no kind of argument")
    return value


class Answers:
    """The model, as it is or in double precision."""

    def __init__(self, shape, weights, double):
        self.shape, self.double = shape, double
        folder = os.path.dirname(os.path.abspath(__file__))
        spec = importlib.util.spec_from_file_location("model", os.path.join(folder, "pytorch_model.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules["model"] = module
        spec.loader.exec_module(module)
        torch.manual_seed(SEED)
        self.model = module.Model(*decoded(MODEL["init"])).to(DEVICE)
        if not MODEL["training"]:
            self.model.eval()
        if double:
            self.model = self.model.double()
            for part in self.model.modules():
                for name, value in list(vars(part).items()):
                    if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                        setattr(part, name, value.double())
        state = self.model.state_dict()
        for name, entry, tensor in zip(MODEL["state"], shape["params"], weights):
            state[name].copy_(self.own(entry, tensor))

    def own(self, entry, tensor):
        """A tensor of the contract as the model takes it."""
        kind = MODEL["types"].get(entry[0])
        if kind is None and self.double and tensor.dtype.is_floating_point:
            kind = "float64"
        return tensor.to(DEVICE, dtype=getattr(torch, kind) if kind else tensor.dtype)

    def given(self, inputs):
        """The arguments of a call."""
        tensors = {entry[0]: self.own(entry, tensor) for entry, tensor in zip(self.shape["inputs"], inputs)}
        if MODEL["call"] is None:
            return list(tensors.values())
        return [tensors[part["input"]] if "input" in part else decoded(part["value"]) for part in MODEL["call"]]

    def call(self, arguments):
        torch.set_default_dtype(torch.float64 if self.double else torch.float32)
        try:
            with torch.no_grad():
                given = self.model(*arguments)
        finally:
            torch.set_default_dtype(torch.float32)
        return list(given) if isinstance(given, (list, tuple)) else [given]

    def seconds(self, arguments, calls):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            self.call(arguments)
        wait()
        return time.perf_counter() - begin


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def read(folder, name, entry):
    _, dtype, extents = entry[:3]
    with open(os.path.join(folder, name), "rb") as file:
        values = bytearray(file.read())
    kind = getattr(torch, dtype)
    return torch.frombuffer(values, dtype=kind).reshape(extents) if values else torch.empty(extents, dtype=kind)


def write(folder, name, tensor, dtype):
    values = tensor.detach().to("cpu", dtype=dtype).contiguous()
    with open(os.path.join(folder, name), "wb") as file:
        file.write(ctypes.string_at(values.data_ptr(), values.numel() * values.element_size()))


def main(folder, shape_name, draws, samples):
    if DEVICE == "cpu":
        # As the candidate has.
        torch.set_num_threads(1)
    shape = CONTRACT[shape_name]
    weights = [read(folder, f"param-{number}", entry) for number, entry in enumerate(shape["params"])]
    inputs = [[read(folder, f"draw-{draw}-input-{number}", entry) for number, entry in enumerate(shape["inputs"])]
              for draw in range(draws)]
    for name, double in (("truth", True), ("usual", False)):
        answers = Answers(shape, weights, double)
        for draw in range(draws):
            results = answers.call(answers.given(inputs[draw]))
            if len(results) != len(shape["outputs"]):
                raise SystemExit(f"the model gave {len(results)} results, and the contract has {len(shape['outputs'])}")
            for number, (result, entry) in enumerate(zip(results, shape["outputs"])):
                if tuple(result.shape) != tuple(entry[2]):
                    raise SystemExit(f"`{entry[0]}` has the shape {tuple(result.shape)}, and not {tuple(entry[2])}")
                whole = entry[1] == "int32"
                write(folder, f"draw-{draw}-{name}-{number}", result,
                      torch.float64 if double and not whole else getattr(torch, entry[1]))
    if samples == 0:
        return
    arguments = answers.given(inputs[0])
    once = max(answers.seconds(arguments, 1), 1e-9)
    calls = min(100_000, max(1, math.ceil(SAMPLE_S / once)))
    with open(os.path.join(folder, "seconds"), "w", encoding="ascii") as file:
        for _ in range(samples):
            file.write(f"{answers.seconds(arguments, calls) / calls!r}\n")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
