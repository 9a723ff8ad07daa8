"""Runs one PyTorch program for an evaluator in another process.

This process answers the messages of the evaluator like the runner of libraries, over a socket, a control page and shared memory.
The program can change this code, so the evaluator trusts no reply. It reads values from shared memory while this process is
stopped, and takes times from its own clock.

Run as: python -I -B -c SOURCE START. SOURCE is `arguments.py` of the toolchain followed by `program.py`, `memory.py` and
`serve.py`. START is JSON: {"plan", "channel", "page", "filter"}, or {"plan", "replay"} to repeat one call for a profiler.
"""

import base64
import ctypes
import gc
import json
import mmap
import os
import socket
import struct
import sys
import time
import traceback

import torch

MAX_SHORT_BYTES = 64 * 1024
PAGE_BYTES = 4096
GRANULARITY_BYTES = 2 << 20
SEED = 42

WRONG_RESULT = 2
RAISED = 1
DEVICE_FAILED = -(1 << 31)

# Positions on the control page in words of four bytes, then the commands. `control.rs` defines the same numbers.
COMMAND, KIND, COUNT, DONE, STATUS, EVENTS_LOW, EVENTS_HIGH = 0, 1, 2, 16, 17, 18, 19
CALLS, EMPTY, LEAVE = 1, 2, 3

ELEMENTS = {
    "f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}


class Wrong(Exception):
    """Raised if the program violates the contract of the task."""


class Fault(Exception):
    """Raised if the device fails, or if the system call filter cannot be installed."""

    def __init__(self, during, error):
        super().__init__(error)
        self.during, self.error = during, error


def is_fault(error):
    accelerator = getattr(torch, "AcceleratorError", None)
    if accelerator is not None and isinstance(error, accelerator):
        return True
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)


def first_line(error):
    lines = str(error).splitlines()
    return lines[0][:300] if lines else type(error).__name__


MARKER = "#nightshift-extension "


def extensions_of(path):
    """Returns prebuilt extensions by name. The builder appends each one to the program as a comment: a name and a library."""
    with open(path, encoding="utf-8") as file:
        lines = [line[len(MARKER):].split() for line in file if line.startswith(MARKER)]
    return {name: base64.b64decode(text) for name, text in lines}


def use_extensions(path):
    """Replaces PyTorch's extension compiler by a function that loads the prebuilt extensions."""
    found = extensions_of(path)
    if not found:
        return
    import importlib.machinery
    import importlib.util

    import torch.utils.cpp_extension as cpp

    def loaded(*given, **named):
        name = named.get("name", given[0] if given else None)
        if name not in found:
            raise RuntimeError(f"the extension `{name}` was not built with the program: build it at import, always under this name")
        descriptor = os.memfd_create(name)
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(found[name])
        library = f"/proc/self/fd/{descriptor}"
        if named.get("is_python_module", True) is False:
            # `torch.ops.load_library` would resolve the link, which leads to an anonymous file without a path.
            ctypes.CDLL(library)
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, library)
        spec = importlib.util.spec_from_file_location(name, library, loader=loader)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module

    cpp.load_inline = cpp.load = loaded


def widen(model):
    """Converts tensors that modules keep outside of their state to double precision."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                setattr(module, name, value.double())


class Program:
    """Holds the model of a program file, and the arguments that its calls receive."""

    def __init__(self, plan, device):
        self.torch, self.double, self.device = plan["torch"], plan["double"], device
        path = plan["program"]
        if plan["strict"]:
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
        import importlib.util

        use_extensions(path)
        spec = importlib.util.spec_from_file_location("program", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["program"] = module
        spec.loader.exec_module(module)
        kind = getattr(module, "ModelNew", None) or getattr(module, "Model", None)
        if not isinstance(kind, type) or not issubclass(kind, torch.nn.Module):
            raise Wrong("the file defines no class ModelNew that is a torch.nn.Module")
        torch.manual_seed(SEED)
        model = kind(*decoded(json.loads(self.torch["init"])))
        if not isinstance(model, torch.nn.Module):
            raise Wrong("the class gives no torch.nn.Module")
        model = model.to(self.device)
        if not self.torch["training"]:
            model = model.eval()
        if self.double:
            model = model.double()
            widen(model)
        self.model = model
        # Error messages name the side that defines the contract: the reference for a program, task.toml for the reference.
        self.other = "the reference" if hasattr(module, "ModelNew") else "task.toml"
        self.names = None
        call = self.torch.get("call")
        self.call = [decoded_call(entry) for entry in json.loads(call)] if call else None

    def match(self, params):
        """Assigns each weight to an entry of the model's state: by name, or in order if a name is missing and all shapes agree."""
        state = self.model.state_dict()
        names, constants = self.torch.get("state", []), set(self.torch.get("constants", []))
        shapes = {name: list(tensor.shape) for name, tensor in state.items()}
        if any(name not in shapes for name in names):
            floats = [name for name, tensor in state.items() if tensor.dtype.is_floating_point and name not in constants]
            if [shapes[name] for name in floats] != [place.shape for place in params]:
                missing = [name for name in names if name not in shapes]
                raise Wrong(
                    f"the state of the model has no {', '.join(missing[:5])}, and its {len(floats)} tensors are not those of "
                    f"{self.other} in their order either: parameters and buffers need the names and shapes of {self.other}'s")
            names = floats
        for name, place in zip(names, params):
            if shapes[name] != place.shape:
                raise Wrong(f"`{name}` has the shape {shapes[name]}, and {self.other}'s has {place.shape}")
        known = set(names)
        places = {state[name].data_ptr(): name for name in names}
        # A tied entry has the memory of a weight under another name, so it receives the same values.
        shared = {name for name, tensor in state.items() if name not in known and tensor.data_ptr() in places}
        further = [name for name, tensor in state.items() if name not in known | constants | shared
                   and tensor.dtype.is_floating_point]
        if further:
            raise Wrong(f"the state of the model has {', '.join(further[:5])} in addition to {self.other}'s: register further buffers "
                        "with persistent=False, and derive from weights what follows from them after load_state_dict")
        self.names = names
        self.shared = {name: places[state[name].data_ptr()] for name in shared}
        self.untouched = {name: tensor.detach().clone() for name, tensor in state.items() if name not in known | shared}

    def load_state(self, weights):
        """Loads the weights into the model. Entries that the task does not name return to the values of the constructor."""
        state = {name: tensor.clone() for name, tensor in self.untouched.items()}
        state.update(zip(self.names, weights))
        state.update((name, state[known]) for name, known in self.shared.items())
        self.model.load_state_dict(state, strict=True)

    def arguments(self, tensors):
        if self.call is None:
            return tensors
        given = iter(tensors)
        return [next(given) if is_input else value for is_input, value in self.call]
