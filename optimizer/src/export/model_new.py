@@ABOUT@@
#
# A drop-in for KernelBench: `ModelNew(*get_init_inputs())(*get_inputs())`. The program below is compiled once, by the compiler of
# this machine, into ~/.cache/nightshift (or $NIGHTSHIFT_CACHE_DIR), and called through its C interface: on the processor by
# $CXX or c++, on a GPU by $NVCC or the nvcc of the CUDA toolkit. Nothing of PyTorch's headers is needed.
import base64
import ctypes
import hashlib
import json
import math
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
import types
import weakref

import torch
from torch import nn

TASK = @@TASK@@
TARGET = @@TARGET@@
# Libraries that the task allows, as the linker is told of them.
LIBRARIES = @@LIBRARIES@@
# The architecture that it was verified on, and the least that the task asks for; GPUs only.
VERIFIED_ARCH = @@ARCH@@
MIN_CAPABILITY = @@MIN_CAPABILITY@@
FLAGS = @@FLAGS@@

# By shape: tensors as (name, type, extents, distribution and its two numbers). The program was checked at these shapes.
CONTRACT = @@CONTRACT@@

# Of a model of PyTorch: its names of the weights, the arguments of its call, and types that the program does not have.
MODEL = @@MODEL@@

# Its source: the module below has its constructor and its state, and none of its work.
REFERENCE = (
@@REFERENCE@@
)

HEADER = (
@@HEADER@@
)

SOURCE = (
@@SOURCE@@
)
@@WARNING@@
WORKSPACE_BYTES = 32 * 1024 * 1024
_DTYPES = {
    "float32": (torch.float32, 0),
    "float64": (torch.float64, 1),
    "int32": (torch.int32, 2),
    "float16": (torch.float16, 3),
    "bfloat16": (torch.bfloat16, 4),
}


class _Tensor(ctypes.Structure):
    """ns_tensor of nightshift.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("name", ctypes.c_char_p),
    ]


def _nvcc():
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [os.path.join(home, "bin", "nvcc") for home in homes if home]
    found = os.environ.get("NVCC") or shutil.which("nvcc") or next(filter(os.path.exists, places), None)
    if found is None:
        raise RuntimeError("nvcc was not found: install the CUDA toolkit, or say where it is with NVCC")
    return found


def _command(device):
    """Compiler and flags for this machine."""
    if TARGET == "cpu":
        return [os.environ.get("CXX") or "c++", *FLAGS]
    major, minor = torch.cuda.get_device_capability(device)
    if MIN_CAPABILITY is not None and (major, minor) < MIN_CAPABILITY:
        least = ".".join(map(str, MIN_CAPABILITY))
        raise RuntimeError(f"{TASK} needs a GPU of compute capability {least}, and this one has {major}.{minor}")
    arch = f"{major}{minor}"
    # Features of one architecture alone have a letter behind its number.
    if VERIFIED_ARCH in (f"sm_{arch}a", f"sm_{arch}f"):
        arch = VERIFIED_ARCH[3:]
    return [_nvcc(), f"-gencode=arch=compute_{arch},code=sm_{arch}", *FLAGS]


def _machine(compiler):
    """What a library for this machine depends on besides its source."""
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise RuntimeError(f"the compiler `{compiler}` cannot be started: {error}") from error
    features = ""
    if TARGET == "cpu" and os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            features = next((line for line in file if line.lower().startswith(("flags", "features"))), "")
    return f"{platform.machine()}\n{version}\n{features}"


def build(device=None):
    """Compiles the program, unless this machine did so before. Gives the path of the library."""
    command = _command(device)
    parts = [HEADER, SOURCE, *command, *LIBRARIES, _machine(command[0])]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    cache = os.environ.get("NIGHTSHIFT_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".cache", "nightshift")
    folder = os.path.join(cache, key)
    library = os.path.join(folder, "candidate.so")
    if not os.path.exists(library):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = "candidate.cpp" if TARGET == "cpu" else "candidate.cu"
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            for file, text in (("nightshift.h", HEADER), (name, SOURCE)):
                with open(os.path.join(scratch, file), "w", encoding="utf-8", newline="") as out:
                    out.write(text)
            command = [*command, name, "-o", "candidate.so", *LIBRARIES]
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{TASK} does not compile:\n{' '.join(command)}\n{done.stdout}{done.stderr}")
            # Whole or not at all, also when several processes build it.
            os.replace(os.path.join(scratch, "candidate.so"), library)
    return library


def _entry(library, name, result, arguments):
    try:
        entry = getattr(library, name)
    except AttributeError:
        return None
    entry.restype, entry.argtypes = result, arguments
    return entry


class _Program:
    """The entry points of nightshift.h."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        tensors, pointer = ctypes.POINTER(_Tensor), ctypes.c_void_p
        count, status = ctypes.c_int32, ctypes.c_int
        self.init = _entry(library, "ns_init", status, [tensors, count, ctypes.POINTER(pointer)])
        self.run = _entry(library, "ns_run", status, [pointer, tensors, count, tensors, count, pointer, pointer])
        self.free = _entry(library, "ns_free", None, [pointer])


def _described(tensors, names):
    """Descriptors of tensors, and what they point to."""
    described, kept = (_Tensor * max(len(tensors), 1))(), []
    for place, (tensor, name) in enumerate(zip(tensors, names)):
        rank = len(tensor.shape)
        strides = [1] * rank
        for axis in range(rank - 1, 0, -1):
            strides[axis - 1] = strides[axis] * int(tensor.shape[axis])
        extents = (ctypes.c_int64 * max(rank, 1))(*map(int, tensor.shape))
        strides = (ctypes.c_int64 * max(rank, 1))(*strides)
        code = next(code for dtype, code in _DTYPES.values() if dtype == tensor.dtype)
        described[place] = _Tensor(tensor.data_ptr(), code, rank, extents, strides, name.encode())
        kept.append((extents, strides))
    return described, kept


def _drawn(spec):
    """Values of a tensor, as the task declares them."""
    _, dtype, extents, values, first, second, step = spec
    if dtype == "int32" and values == "uniform":
        low, high = math.ceil(first), math.ceil(second)
        return torch.randint(low, max(high, low + 1), extents, dtype=torch.int32)
    if values == "steps":
        # A rounding error may not add a value.
        count = max(math.ceil((second - first) / step - 1e-9), 1)
        return torch.randint(0, count, extents, dtype=torch.float64).mul_(step).add_(first).to(_DTYPES[dtype][0])
    drawn = torch.empty(extents, dtype=torch.float32)
    drawn = drawn.normal_(first, second) if values == "normal" else drawn.uniform_(first, second)
    return (drawn.round() if dtype == "int32" else drawn).to(_DTYPES[dtype][0])


def _version(tensor):
    try:
        return tensor._version
    except (AttributeError, RuntimeError):
        return 0


def _key(weights):
    """Changes when weights are changed in place or replaced. What is done to a weight's `.data` PyTorch itself does not count:
    load it with `copy_` or `load_state_dict` instead."""
    return tuple((weight.data_ptr(), _version(weight)) for weight in weights)


class ModelNew(nn.Module):
    """The program as a module. Its weights have the names of the task; `shape` chooses among those of the contract."""

    def __init__(self, *_init_inputs, shape="default"):
        super().__init__()
        if shape not in CONTRACT:
            raise ValueError(f"{TASK} has no shape `{shape}`: expected one of {', '.join(CONTRACT)}")
        self._params = CONTRACT[shape]["params"]
        self._attributes = []
        for spec in self._params:
            attribute = spec[0] if not hasattr(self, spec[0]) else f"{spec[0]}_"
            self.register_parameter(attribute, nn.Parameter(_drawn(spec), requires_grad=False))
            self._attributes.append(attribute)
        self._programs, self._prepared, self._workspaces = {}, {}, {}

    def __getstate__(self):
        # What is bound to this process is made anew in a copy.
        return {**self.__dict__, "_programs": {}, "_prepared": {}, "_workspaces": {}}

    def forward(self, *inputs):
        contract = self._fitting(inputs)
        weights = [getattr(self, attribute) for attribute in self._attributes]
        device = inputs[0].device
        for weight, spec in zip(weights, self._params):
            self._examine("the weight", weight, spec, device)
            if tuple(weight.shape) != tuple(spec[2]):
                raise ValueError(f"{TASK}: the weight `{spec[0]}` is {tuple(weight.shape)}, and not {spec[2]}")
        key = _key(weights)
        if TARGET == "cpu":
            return self._called(contract, inputs, weights, key, device, None)
        with torch.cuda.device(device):
            return self._called(contract, inputs, weights, key, device, torch.cuda.current_stream(device))

    def _called(self, contract, inputs, weights, key, device, stream):
        program = self._program(device)
        state = self._state(program, weights, key, device)
        outputs = [torch.empty(spec[2], dtype=_DTYPES[spec[1]][0], device=device) for spec in contract["outputs"]]
        place = (str(device), stream.cuda_stream if stream is not None else 0)
        if place not in self._workspaces:
            self._workspaces[place] = torch.empty((WORKSPACE_BYTES,), dtype=torch.uint8, device=device)
        given = [*inputs, *weights]
        given_names = [spec[0] for spec in (*contract["inputs"], *self._params)]
        given_tensors, kept = _described(given, given_names)
        output_tensors, kept_too = _described(outputs, [spec[0] for spec in contract["outputs"]])
        status = program.run(
            state,
            given_tensors,
            len(given),
            output_tensors,
            len(outputs),
            self._workspaces[place].data_ptr(),
            stream.cuda_stream if stream is not None else None,
        )
        del kept, kept_too
        if status != 0:
            raise RuntimeError(f"{TASK}: ns_run says that it failed: {status}")
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _program(self, device):
        if device not in self._programs:
            self._programs[device] = _Program(build(device if TARGET == "cuda" else None))
        return self._programs[device]

    def _state(self, program, weights, key, device):
        """What ns_init made of the weights. It is asked anew when they changed."""
        known = self._prepared.get(device)
        if known is not None and known[0] == key:
            return known[1]
        if known is not None:
            self._synchronize(device)
            known[2]()
        state = ctypes.c_void_p()
        if program.init is not None:
            self._synchronize(device)
            described, kept = _described(weights, [spec[0] for spec in self._params])
            status = program.init(described, len(weights), ctypes.byref(state))
            self._synchronize(device)
            del kept
            if status != 0:
                self._prepared.pop(device, None)
                raise RuntimeError(f"{TASK}: ns_init says that it failed: {status}")
        release = weakref.finalize(self, program.free if program.free is not None else id, state.value)
        self._prepared[device] = (key, state, release)
        return state

    @staticmethod
    def _synchronize(device):
        if TARGET == "cuda":
            torch.cuda.synchronize(device)

    def _fitting(self, inputs):
        """The shape of the contract that these inputs have."""
        wanted = CONTRACT["default"]["inputs"]
        if len(inputs) != len(wanted):
            names = ", ".join(spec[0] for spec in wanted)
            raise TypeError(f"{TASK} takes {len(wanted)} inputs ({names}), and {len(inputs)} were given")
        for tensor, spec in zip(inputs, wanted):
            self._examine("the input", tensor, spec, getattr(inputs[0], "device", None))
        weights = [tuple(spec[2]) for spec in self._params]
        extents = [tuple(tensor.shape) for tensor in inputs]
        checked = []
        for contract in CONTRACT.values():
            if [tuple(spec[2]) for spec in contract["params"]] != weights:
                continue
            checked.append([tuple(spec[2]) for spec in contract["inputs"]])
            if checked[-1] == extents:
                return contract
        raise ValueError(f"{TASK} was checked with inputs of {' or '.join(map(str, checked))}, and not of {extents}")

    @staticmethod
    def _examine(noun, tensor, spec, device):
        name, dtype = spec[0], _DTYPES[spec[1]][0]
        alignment = 64 if TARGET == "cpu" else 256
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{TASK}: {noun} `{name}` is no tensor")
        if tensor.device.type != TARGET:
            raise ValueError(f"{TASK}: {noun} `{name}` is on `{tensor.device}`, and the program is for `{TARGET}`: use .to()")
        if tensor.device != device:
            raise ValueError(f"{TASK}: {noun} `{name}` is on `{tensor.device}`, and the first input on `{device}`: use .to()")
        if tensor.dtype != dtype:
            raise TypeError(f"{TASK}: {noun} `{name}` is {tensor.dtype}, and not {dtype}: use .to({dtype})")
        if not tensor.is_contiguous():
            raise ValueError(f"{TASK}: {noun} `{name}` is not contiguous: use .contiguous()")
        if tensor.data_ptr() % alignment != 0:
            raise ValueError(f"{TASK}: {noun} `{name}` does not begin at a multiple of {alignment} bytes: use .clone()")


def get_inputs(shape="default"):
    """Inputs as the task declares them."""
    return [_drawn(spec) for spec in CONTRACT[shape]["inputs"]]


def get_init_inputs():
    """The module needs none: its shapes are in the contract."""
    return []


if MODEL is not None:
    _Native, _reference = ModelNew, types.ModuleType(f"{__name__}_reference")
    # Data classes look for the module that they are defined in.
    sys.modules[_reference.__name__] = _reference
    exec(compile(REFERENCE, "reference.py", "exec"), _reference.__dict__)  # noqa: S102
    get_inputs, get_init_inputs = _reference.get_inputs, _reference.get_init_inputs

    class ModelNew(_reference.Model):
        """The model with the program in the place of its `forward`: built as it is, with its parameters and buffers."""

        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            # Out of the module's sight: it has no part in its state.
            object.__setattr__(self, "_native", _Native())

        def forward(self, *arguments):
            native, state = self._native, self.state_dict(keep_vars=True)
            if len(arguments) != len(MODEL["call"]):
                raise TypeError(f"{TASK} takes {len(MODEL['call'])} arguments, and {len(arguments)} were given")
            for number, (value, part) in enumerate(zip(arguments, MODEL["call"]), 1):
                if "value" in part and not _same(value, _decoded(part["value"])):
                    wanted = _decoded(part["value"])
                    raise ValueError(f"{TASK} was checked with {wanted!r} as argument {number}, and not with {value!r}")
            given = [value for value, part in zip(arguments, MODEL["call"]) if "input" in part]
            inputs = [_converted(value, spec).contiguous() for value, spec in zip(given, CONTRACT["default"]["inputs"])]
            contract, device = native._fitting(inputs), inputs[0].device
            known = [state[name] for name in MODEL["state"]]
            weights = [_fitted(weight.detach()) for weight in known]
            for weight, spec in zip(weights, native._params):
                native._examine("the weight", weight, spec, device)
                if tuple(weight.shape) != tuple(spec[2]):
                    raise ValueError(f"{TASK} was checked with {spec[2]} for the weight `{spec[0]}`, and not with {tuple(weight.shape)}")
            if TARGET == "cpu":
                outputs = native._called(contract, inputs, weights, _key(known), device, None)
            else:
                with torch.cuda.device(device):
                    stream = torch.cuda.current_stream(device)
                    outputs = native._called(contract, inputs, weights, _key(known), device, stream)
            several = isinstance(outputs, tuple)
            specs = contract["outputs"]
            outputs = [_given_back(value, spec) for value, spec in zip(outputs if several else (outputs,), specs)]
            return tuple(outputs) if several else outputs[0]

    def _decoded(value):
        """An argument, as the task has it written down."""
        if isinstance(value, list):
            return [_decoded(entry) for entry in value]
        if isinstance(value, dict):
            (kind, inner), = value.items()
            if kind == "tuple":
                return tuple(_decoded(entry) for entry in inner)
            if kind == "dict":
                return {key: _decoded(entry) for key, entry in inner.items()}
            if kind == "object":
                return pickle.loads(base64.b64decode(inner["pickle"]))
            return float(inner) if kind == "float" else getattr(torch, inner)
        return value

    def _same(left, right):
        return type(left) is type(right) and (left == right or (left != left and right != right))

    def _fitted(weight):
        """As the program takes it: in one piece, at an address that vectors may be loaded from."""
        weight = weight.contiguous()
        return weight.clone() if weight.data_ptr() % 256 != 0 and TARGET == "cuda" or weight.data_ptr() % 64 != 0 else weight

    def _converted(tensor, spec):
        return tensor.to(torch.int32) if spec[0] in MODEL["types"] else tensor

    def _given_back(tensor, spec):
        kind = MODEL["types"].get(spec[0])
        return tensor if kind is None else tensor.to(getattr(torch, kind))


if __name__ == "__main__":
    inputs = [tensor.to(TARGET) if isinstance(tensor, torch.Tensor) else tensor for tensor in get_inputs()]
    outputs = ModelNew(*get_init_inputs()).to(TARGET)(*inputs)
    for output, spec in zip(outputs if isinstance(outputs, tuple) else (outputs,), CONTRACT["default"]["outputs"]):
        print(f"{spec[0]}: {tuple(output.shape)} {output.dtype}")
