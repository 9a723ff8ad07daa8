"""Inspects a file that defines `Model`, `get_inputs` and `get_init_inputs`.

The inspection finds the tensors of a call, the state of the model and its operators. It writes one line of JSON to standard
output for each stage that begins, and one line for the outcome. It uses fake tensors, which have no storage, where values are
not needed.

The script consists of `file.py`, `distributions.py`, `operators.py` and `model.py`, joined in this order.
Run as: python -I -B SCRIPT OPTIONS. OPTIONS is JSON: {"file", "name", "precision", "training", "max_bytes", "seed"}.
"""

import ast
import base64
import contextlib
import inspect
import io
import json
import math
import os
import pickle
import sys
import traceback

SCRIPT_LINES = 20
REAL_VALUES_BYTES = 1 << 30
SAMPLE_ELEMENTS = 1 << 22
MAX_LEVELS = 16
MAX_OPERATORS = 128
MAX_EXTENT = 1 << 40
MAX_OBJECT_BYTES = 16 << 10
MAX_ARGUMENT_BYTES = 32 << 10
OBJECT_TEXT = 2000

channel = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
sys.stdout = sys.stderr


def tell(message):
    # The reader skips invalid lines without an error. So NaN and infinity fail here, and lone surrogates are replaced.
    channel.write(json.dumps(message, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    channel.flush()


class Unusable(Exception):
    """Raised if the file cannot become a task. Carries an error code, a message and a line number."""

    def __init__(self, code, message, line=None):
        super().__init__(message)
        self.code, self.message, self.line = code, message, line


options = json.loads(sys.argv[1])
FILE, NAME = options["file"], options["name"]


def stage(name):
    tell({"stage": name})


def line_of(error):
    """Returns the line number of the innermost stack frame in the inspected file, or None without such a frame."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == NAME]
    return lines[-1] if lines else None


def first_line(error):
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:400]}" if text else type(error).__name__


def broken(error, doing):
    line = line_of(error)
    if isinstance(error, ModuleNotFoundError):
        return Unusable(
            "task.model_import_missing",
            f"it imports `{error.name}`, which the Python that runs it does not have: install it there, or name another "
            "Python with --python",
            line,
        )
    if isinstance(error, BrokenPipeError):
        # The sandbox closes the pipe at its output limit. It reports the same code and advice if it kills the process first.
        return Unusable("task.model_fails", f"{doing} printed too much: print nothing")
    text = first_line(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "not enough memory" in str(error):
        return Unusable("task.model_too_large", f"it needs more memory than {doing} may take ({text})", line)
    if "NVIDIA driver" in str(error) or "not compiled with CUDA" in str(error) or "CUDA GPUs are available" in str(error):
        return Unusable(
            "task.model_wrong_device",
            f"it asks for a GPU itself while {doing} ({text}): leave devices to the caller, with tensors on the CPU",
            line,
        )
    return Unusable("task.model_fails", f"{doing} failed: {text}", line)


def parse():
    stage("reading the file")
    with open(FILE, encoding="utf-8-sig", errors="strict") as file:
        try:
            source = file.read()
        except UnicodeDecodeError as error:
            raise Unusable("task.model_syntax", f"it is not UTF-8 text: {error.reason}") from None
    try:
        tree = ast.parse(source, NAME)
    except SyntaxError as error:
        raise Unusable("task.model_syntax", f"Python cannot read it: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unusable("task.model_syntax", f"Python cannot read it: {first_line(error)}") from None
    defined = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).split(".")[0])
    missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if name not in defined and "*" not in defined]
    if missing:
        raise Unusable(
            "task.model_incomplete",
            "it does not define " + " or ".join(f"`{name}`" for name in missing)
            + ": a task needs the class `Model` and the functions `get_inputs` and `get_init_inputs`",
        )
    if "ModelNew" in defined:
        raise Unusable("task.model_incomplete", "it defines `ModelNew`, which is the name of what candidates are called")
    return source


def load(source):
    import types

    module = types.ModuleType("reference")
    module.__file__ = NAME
    sys.modules["reference"] = module
    import linecache

    linecache.cache[NAME] = (len(source), None, source.splitlines(True), NAME)
    stage("importing the file")
    try:
        exec(compile(source, NAME, "exec"), module.__dict__)
    except BaseException as error:
        raise broken(error, "importing it") from None
    missing = [name for name in ("Model", "get_inputs", "get_init_inputs") if not callable(getattr(module, name, None))]
    if missing:
        raise Unusable("task.model_incomplete", f"after its import there is no {' and no '.join(missing)}")
    return module


def encoded(value, where):
    """Returns a value in a JSON form that preserves tuples, element types and non-finite numbers."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Unusable("task.model_argument", f"{where} holds a text that is no Unicode ({error.reason})") from None
        return value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise Unusable("task.model_argument", f"{where} holds an integer that does not fit into 64 bits")
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return {"float": str(value)}
        return value
    if isinstance(value, list):
        return [encoded(entry, where) for entry in value]
    if isinstance(value, tuple):
        return {"tuple": [encoded(entry, where) for entry in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encoded(entry, where) for key, entry in value.items()}}
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return {"dtype": str(value).removeprefix("torch.")}
    return {"object": pickled(value, where)}


class OfTheFile(pickle.Unpickler):
    """Rejects pickles that refer to the inspected file, because no other process can import its classes and functions."""

    def find_class(self, module, name):
        if module in ("reference", "__main__"):
            raise pickle.UnpicklingError("its class is the file's own")
        return super().find_class(module, name)


def pickled(value, where):
    """Returns an argument object, for example a configuration, as a pickle for processes without the inspected file."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    loaded = sys.modules.get("torch")
    if loaded is not None and isinstance(value, loaded.Tensor):
        raise Unusable(
            "task.model_argument",
            f"{where} holds a tensor within another value: get_inputs() gives tensors one by one, not in lists or dictionaries, "
            "and what the constructor needs the model makes itself",
        )
    try:
        if loaded is not None and isinstance(value, loaded.nn.Module):
            raise ValueError("modules stay in the file")
        written = pickle.dumps(value, protocol=4)
        OfTheFile(io.BytesIO(written)).load()
        text = str(value)[:OBJECT_TEXT]
    except Exception as error:
        reason = first_line(error)
    else:
        if len(written) <= MAX_OBJECT_BYTES:
            return {"type": kind, "text": text, "pickle": base64.b64encode(written).decode()}
        reason = f"it takes {len(written)} bytes, and may take {MAX_OBJECT_BYTES}"
    raise Unusable(
        "task.model_argument",
        f"{where} holds a value of the type `{kind}`, which cannot be written down ({reason}): numbers, texts, truth values, "
        "lists, tuples, objects of installed packages that can be pickled and, among the inputs, tensors can",
    )


def refuse(failure):
    tell({"error": {"code": failure.code, "message": failure.message, "line": failure.line}})
    sys.exit(0)


# Importing PyTorch takes seconds, so the script reports syntax errors first.
try:
    text = parse()
except Unusable as failure:
    refuse(failure)

stage("importing PyTorch")
try:
    import torch
except ImportError as error:
    tell({"error": {"code": "torch.missing", "message": f"this Python has no PyTorch: {error}", "line": None}})
    sys.exit(0)
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

DTYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32",
    torch.int64: "i32", torch.int16: "i32", torch.int8: "i32", torch.uint8: "i32", torch.bool: "i32",
}
EXACT = {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32}
PRECISION = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[options["precision"]]


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def contract_dtype(dtype, what):
    if dtype not in DTYPES:
        raise Unusable("task.model_argument", f"{what} has the element type {dtype_name(dtype)}, which tasks do not have")
    return DTYPES[dtype]


def nbytes(tensor):
    return tensor.numel() * tensor.element_size()
