"""Finds out what a file with `Model`, `get_inputs` and `get_init_inputs` needs: the tensors of a call, the state of the
model, its operators. One line of JSON on the first descriptor for each stage that begins, and one with the outcome.

Whatever can be known without memory is found on tensors without storage. Run as: python -I -B THIS FILE OPTIONS, where
OPTIONS is JSON: {"file", "name", "precision", "training", "max_bytes", "seed"}.
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
    # What is no JSON would break the other end, and not say why; nor is half of a character one.
    channel.write(json.dumps(message, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    channel.flush()


class Unusable(Exception):
    """The file cannot become a task, and why."""

    def __init__(self, code, message, line=None):
        super().__init__(message)
        self.code, self.message, self.line = code, message, line


options = json.loads(sys.argv[1])
FILE, NAME = options["file"], options["name"]


def stage(name):
    tell({"stage": name})


def line_of(error):
    """The last line of the file that an error went through."""
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
        # As it is told where the process is ended before it notices.
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
    """A value as JSON; tuples keep that they are tuples."""
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
    """Finds classes and functions of the file itself, which no other process has."""

    def find_class(self, module, name):
        if module in ("reference", "__main__"):
            raise pickle.UnpicklingError("its class is the file's own")
        return super().find_class(module, name)


def pickled(value, where):
    """An object that the constructor or the call wants, as a configuration is: for processes that do not have this file."""
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


# Before PyTorch is there, which takes seconds.
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


# --- Distributions ----------------------------------------------------------------------------------------------------

UNCHANGED = {
    "float", "double", "half", "bfloat16", "to", "type", "int", "long", "contiguous", "clone", "detach", "reshape",
    "view", "transpose", "permute", "t", "unsqueeze", "squeeze", "expand", "requires_grad_", "flatten", "cpu", "type_as",
    "expand_as", "view_as", "__get__",
}
NUMBERS = (int, float)


def normal(mean, std):
    return {"kind": "normal", "mean": float(mean), "std": float(std)}


def uniform(low, high):
    return {"kind": "uniform", "low": float(low), "high": float(high)}


def steps(low, count, step=1.0):
    return {"kind": "steps", "low": float(low), "high": float(low + count * step), "step": float(step)}


def around(value):
    """A constant is drawn around itself: else a program might leave it out."""
    return uniform(value - 0.5, value + 0.5)


def version(tensor):
    """How often a tensor's memory was written to; its views are counted with it."""
    try:
        return tensor._version
    except RuntimeError:
        return None


class Known:
    """How tensors were drawn, until somebody writes to them. They are kept: else another one may get the place of one that is gone."""

    def __init__(self):
        super().__init__()
        self.known, self.keep = {}, []

    def note(self, tensor, kind, text, written):
        self.known[id(tensor)] = (kind, text, written)
        self.keep.append(tensor)

    def of(self, tensor):
        kind, text, written = self.known.get(id(tensor), (None, None, None))
        return (kind, text) if written is not None and written == version(tensor) else None


class Origins(Known, TorchFunctionMode):
    """Remembers by which factory each tensor was made, and what became of it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        source = next((value for value in args[:2] if isinstance(value, torch.Tensor)), None)
        known = self.of(source) if source is not None else None
        result = func(*args, **kwargs)
        if name in ("data", "numpy", "storage", "untyped_storage", "data_ptr", "set_", "__array__", "__dlpack__"):
            # What is written through these is not counted.
            for value in args:
                self.known.pop(id(value), None)
            return result
        try:
            if isinstance(result, torch.Tensor):
                found = self.made(name, result, args, kwargs) or (known and self.changed(name, result, args, kwargs, known))
                if found:
                    self.note(result, *found, version(result))
        except Exception:
            pass
        return result

    def made(self, name, result, args, kwargs):
        """What a factory draws."""
        if name in ("rand", "rand_like"):
            return uniform(0, 1), f"torch.{name}"
        if name in ("randn", "randn_like"):
            return normal(0, 1), f"torch.{name}"
        if name == "normal" and len(args) >= 2 and all(isinstance(value, NUMBERS) for value in args[:2]):
            return normal(args[0], args[1]), "torch.normal"
        if name in ("randint", "randint_like"):
            numbers = [value for value in args if isinstance(value, int) and not isinstance(value, bool)]
            low = kwargs.get("low", numbers[0] if len(numbers) > 1 else 0)
            high = kwargs.get("high", numbers[-1] if numbers else None)
            return (steps(low, high - low), "torch.randint") if high is not None else None
        if name == "randperm":
            return steps(0, result.numel()), "torch.randperm, without being a permutation"
        if name == "arange":
            numbers = [value for value in args if isinstance(value, NUMBERS)]
            low = kwargs.get("start", numbers[0] if len(numbers) > 1 else 0)
            step = kwargs.get("step", numbers[2] if len(numbers) > 2 else 1)
            return (steps(low, result.numel(), step), "torch.arange, without being in order") if step > 0 else None
        if name in ("ones", "ones_like"):
            return around(1), "constant ones, drawn around 1"
        if name in ("zeros", "zeros_like"):
            return around(0), "constant zeros, drawn around 0"
        if name in ("full", "full_like") and len(args) > 1 and isinstance(args[1], NUMBERS):
            return around(float(args[1])), f"constant {float(args[1])}, drawn around it"
        if name in ("uniform_", "normal_"):
            first = kwargs.get("a", kwargs.get("from", kwargs.get("mean", args[1] if len(args) > 1 else 0.0)))
            second = kwargs.get("b", kwargs.get("to", kwargs.get("std", args[2] if len(args) > 2 else 1.0)))
            return uniform(first, second) if name == "uniform_" else normal(first, second), f"Tensor.{name}"
        return None

    def changed(self, name, result, args, kwargs, known):
        """What becomes of values by a function that keeps how they are distributed, or moves and stretches it."""
        kind, text = known
        first = isinstance(args[0], torch.Tensor)
        source = args[0] if first else args[1]
        was_whole, is_whole = not source.is_floating_point(), not result.is_floating_point()
        if name in UNCHANGED or name in ("T", "mT"):
            if source.dtype != result.dtype and (torch.bool in (source.dtype, result.dtype) or name == "view"):
                return None
            if was_whole and not is_whole:
                return (whole(kind), text) if whole(kind) else None
            return kind, text
        reversed_ = name.startswith("__r") or not first
        base = name.strip("_").removeprefix("i" if name.startswith("__i") else "").removeprefix("r" if name.startswith("__r") else "")
        if base == "neg" and not kwargs:
            return affine(kind, -1.0, 0.0), text
        other = next((value for value in args[:2] if isinstance(value, NUMBERS) and not isinstance(value, bool)), None)
        if other is None or kwargs or len(args) > 2:
            return None
        if was_whole and not is_whole:
            kind = whole(kind)
        if kind is None or source.dtype == torch.bool:
            return None
        if base == "mul" and other != 0:
            return affine(kind, other, 0.0), f"{text} * {other}"
        if base in ("truediv", "div") and not reversed_ and not is_whole:
            return affine(kind, 1.0 / other, 0.0), f"{text} / {other}"
        if base == "add":
            return affine(kind, 1.0, other), f"{text} + {other}"
        if base in ("sub", "rsub"):
            if (base == "rsub") != reversed_:
                return affine(kind, -1.0, other), f"{other} - {text}"
            return affine(kind, 1.0, -other), f"{text} - {other}"
        return None


def whole(kind):
    """How integers are distributed that were drawn like that, as floats; a constant stays drawn around itself."""
    if kind["kind"] == "uniform":
        low, high = math.ceil(kind["low"]), math.ceil(kind["high"])
        return steps(low, high - low) if high - low > 1 else kind
    return kind if kind["kind"] == "steps" else None


class Drawn(Known, TorchDispatchMode):
    """Remembers how a model without storage draws its weights."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        found = None
        if name in ("uniform_", "normal_"):
            numbers = [value for value in args[1:3] if isinstance(value, NUMBERS)]
            if not kwargs and len(numbers) in (0, 2):
                make = uniform if name == "uniform_" else normal
                found = make(*(numbers or (0.0, 1.0))), f"Tensor.{name}"
        elif name in ("fill_", "zero_"):
            value = args[1] if name == "fill_" else 0.0
            if isinstance(value, NUMBERS) and math.isfinite(value):
                found = around(value), f"constant {value:g}, drawn around it"
        written = version(args[0]) if found is not None else None
        if written is not None:
            # It is counted as written when this is over.
            self.note(args[0], *found, written + 1)
        return result


class Fewer(TorchFunctionMode):
    """Makes large tensors with fewer rows: enough of them to see what values are like."""

    FACTORIES = {"rand", "randn", "zeros", "ones", "empty", "full", "randint", "normal"}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in self.FACTORIES:
            if args and all(type(value) is int for value in args) and func.__name__ != "randint":
                args = fewer_rows(args)
            args = tuple(fewer_rows(value) if isinstance(value, (list, tuple)) else value for value in args)
            if "size" in kwargs:
                kwargs["size"] = fewer_rows(kwargs["size"])
        return func(*args, **kwargs)


def fewer_rows(extents):
    total, kept = math.prod(extents), list(extents)
    for axis, extent in enumerate(extents):
        if total <= SAMPLE_ELEMENTS:
            break
        kept[axis] = max(extent * SAMPLE_ELEMENTS // total, 1)
        total = total // extent * kept[axis]
    return tuple(kept)


def affine(kind, factor, shift):
    if kind["kind"] == "normal":
        return normal(kind["mean"] * factor + shift, abs(kind["std"] * factor))
    if kind["kind"] == "steps":
        count = round((kind["high"] - kind["low"]) / kind["step"])
        last = kind["low"] + (count - 1) * kind["step"]
        return steps((kind["low"] if factor > 0 else last) * factor + shift, count, kind["step"] * abs(factor))
    return uniform(*sorted((kind["low"] * factor + shift, kind["high"] * factor + shift)))


def fitted(tensor):
    """What values look like: constants are drawn around themselves."""
    values = tensor.detach().to(torch.float64).flatten()
    if values.numel() == 0:
        return normal(0, 1), "nothing, as it is empty"
    # All are looked at for what may not be there, and some for what they are like.
    low, high = values.min().item(), values.max().item()
    if not (math.isfinite(low) and math.isfinite(high)):
        return uniform(low, high), "values that are not finite"
    if values.numel() > 1 << 20:
        values = values[:: values.numel() // (1 << 20) + 1]
    if tensor.dtype == torch.bool:
        return uniform(0, 2), "truth values"
    if not tensor.dtype.is_floating_point:
        return uniform(low, high + 1.0), "the range of its integers"
    if low == high:
        return around(low), f"constant {low:g}, drawn around it"
    levels = values[: 1 << 16].unique()
    if levels.numel() <= MAX_LEVELS < values.numel():
        # The others may have levels that these do not.
        levels = values.unique()
    if 1 < levels.numel() <= MAX_LEVELS and values.numel() >= 4 * levels.numel():
        step = (high - low) / (levels.numel() - 1)
        if all(abs(level - low - step * place) < 1e-6 * step for place, level in enumerate(levels.tolist())):
            return steps(low, levels.numel(), step), f"its {levels.numel()} values"
    mean, std = values.mean().item(), values.std(correction=0).item()
    kurtosis = ((values - mean) ** 4).mean().item() / std**4 if std > 0 else 0.0
    # Of a bell the ends are this far away, or about: where one is missing, what is beyond it may be what the model cannot take.
    reach = 0.6 * math.sqrt(2 * math.log(values.numel())) * std
    if values.numel() < 64 or kurtosis < 2.4 or mean - low < reach or high - mean < reach:
        return uniform(low, high), "the range of its values"
    return normal(mean, std), "mean and deviation of its values"


def finite(tensor):
    """Of a weight what there is of numbers: what is none was to be learned, or never read."""
    values = tensor.detach().flatten()
    return values[values.isfinite()] if tensor.dtype.is_floating_point else values


def rounded(kind):
    """Six digits are enough, but for whole numbers, which may be places in a table."""
    def short(value):
        return value if not isinstance(value, float) or value == round(value) else float(f"{value:.6g}")
    return {key: short(value) for key, value in kind.items()}


# --- The operator graph -----------------------------------------------------------------------------------------------

CLASSES = [
    ("matmul", ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "linear", "matmul", "_addmm_activation")),
    ("convolution", ("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution", "_slow_conv2d_forward")),
    ("attention", ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
                   "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math",
                   "_scaled_dot_product_cudnn_attention")),
    ("softmax", ("_softmax", "_log_softmax", "_safe_softmax")),
    ("normalization", ("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
                       "_native_batch_norm_legit_functional", "cudnn_batch_norm", "_batch_norm_with_update",
                       "_batch_norm_no_update", "rms_norm", "_fused_rms_norm", "_native_batch_norm_legit_no_training")),
    ("pooling", ("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d", "avg_pool1d",
                 "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "max_pool1d_with_indices")),
    ("reduction", ("sum", "mean", "amax", "amin", "max", "min", "prod", "logsumexp", "argmax", "argmin", "var", "std",
                   "var_mean", "norm", "linalg_vector_norm", "any", "all", "nll_loss_forward", "mse_loss", "l1_loss",
                   "smooth_l1_loss", "huber_loss")),
    ("scan", ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")),
    ("indexing", ("index", "index_select", "gather", "scatter", "embedding", "index_put", "index_put_", "scatter_add")),
    ("copy", ("cat", "stack", "clone", "copy_", "_to_copy", "constant_pad_nd", "repeat", "flip", "roll", "fill_", "zero_",
              "reflection_pad2d", "upsample_nearest2d", "tril", "triu", "diag_embed", "pixel_shuffle")),
    ("factory", ("zeros", "ones", "empty", "full", "arange", "eye", "zeros_like", "ones_like", "empty_like", "full_like",
                 "new_zeros", "new_empty", "new_full", "new_ones", "scalar_tensor", "lift_fresh", "empty_strided",
                 "new_empty_strided", "linspace")),
    ("random", ("rand", "randn", "bernoulli", "bernoulli_", "native_dropout", "rand_like", "randn_like", "normal_",
                "uniform_", "randint", "randperm", "multinomial", "normal")),
]
CLASS_OF = {name: class_name for class_name, names in CLASSES for name in names}


class Operators(TorchDispatchMode):
    """Writes down every operator that computes something."""

    def __init__(self):
        super().__init__()
        self.seen, self.random = [], set()
        # By tensor: which operators made what is in it.
        self.makers = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet = func._overloadpacket
        name = packet.__name__
        is_view = getattr(func, "is_view", False) or name in ("detach", "_unsafe_view", "alias", "lift_fresh", "_reshape_alias")
        class_name = CLASS_OF.get(name, "elementwise")
        if class_name == "random" and not (name == "native_dropout" and len(args) > 1 and args[1] == 0.0):
            self.random.add(name)
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        makers = frozenset().union(*(self.makers.get(tensor, ()) for tensor in tensors))
        counts = not is_view and class_name != "factory" and func.namespace != "prim"
        for made in results:
            self.makers[made] = frozenset([len(self.seen)]) if counts else makers
        if counts:
            self.seen.append({
                "name": name, "class": class_name, "flops": flops_of(packet, args, kwargs, result, class_name),
                "bytes": float(sum(nbytes(tensor) for tensor in tensors + results)),
                "inputs": [list(tensor.shape) for tensor in tensors],
                "outputs": [list(tensor.shape) for tensor in results],
                "makers": makers,
            })
        return result


def flops_of(packet, args, kwargs, result, class_name):
    try:
        from torch.utils.flop_counter import flop_registry

        if packet in flop_registry:
            return float(flop_registry[packet](*args, **kwargs, out_val=result))
    except Exception:
        return None
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
    largest = float(max((leaf.numel() for leaf in leaves), default=0))
    if class_name in ("copy", "indexing"):
        return 0.0
    return largest * {"softmax": 5.0, "normalization": 8.0}.get(class_name, 1.0)


def named_operators(seen):
    """At most so many, each with a name of its own and those that it reads from; what is alike in a longer list is told together."""
    import re

    folded, place = [], []
    if len(seen) > MAX_OPERATORS:
        # What is alike, told once with its number.
        keys = {}
        for operator in seen:
            at = keys.setdefault((operator["name"], str(operator["inputs"])), len(folded))
            place.append(at)
            if at == len(folded):
                folded.append({**operator, "count": 1})
                continue
            entry = folded[at]
            entry["count"] += 1
            entry["makers"] |= operator["makers"]
            for key in ("flops", "bytes"):
                entry[key] = None if entry[key] is None or operator[key] is None else entry[key] + operator[key]
        folded = folded[:MAX_OPERATORS]
    else:
        folded = [{**operator, "count": 1} for operator in seen]
        place = list(range(len(seen)))
    counts, names = {}, []
    for operator in folded:
        base = re.sub(r"[^A-Za-z0-9_]", "_", operator["name"]).strip("_") or "operator"
        base = f"op_{base}" if base[0].isdigit() else base
        counts[base] = counts.get(base, 0) + 1
        names.append((base if counts[base] == 1 else f"{base}_{counts[base]}")[:64])
    named = []
    for number, operator in enumerate(folded):
        after = sorted({place[maker] for maker in operator["makers"]} - {number})
        named.append({
            "name": names[number], "class": operator["class"], "flops": operator["flops"], "bytes": operator["bytes"],
            "inputs": operator["inputs"], "outputs": operator["outputs"], "count": operator["count"],
            "after": [names[maker] for maker in after if maker < len(names)],
        })
    return named


def only_a_copy(inputs, outputs, bytes_):
    """Of a model that computes nothing: its results have to be written all the same."""
    shapes = lambda tensors: [list(tensor.shape) for tensor in tensors]
    return [{"name": "copy", "class": "copy", "flops": 0.0, "bytes": float(bytes_), "inputs": shapes(inputs),
             "outputs": shapes(outputs), "count": 1, "after": []}]


# --- The parts together -----------------------------------------------------------------------------------------------

def contract_name(name, taken):
    import re

    base = re.sub(r"[^A-Za-z0-9_]", "_", name)
    base = base if base and (base[0].isalpha() or base[0] == "_") else f"t_{base}"
    base = base[:60]
    candidate, number = base, 2
    while candidate in taken:
        candidate, number = f"{base}_{number}", number + 1
    taken.add(candidate)
    return candidate


def described(name, tensor, kind, origin, **more):
    if any(extent == 0 for extent in tensor.shape):
        raise Unusable("task.model_argument", f"the tensor `{name}` has an extent of zero")
    if any(isinstance(value, float) and not math.isfinite(value) for value in kind.values()):
        raise Unusable(
            "task.model_argument",
            f"the tensor `{name}` has values that are not finite: fill masks with large numbers, or make them within the model",
        )
    dtype = contract_dtype(PRECISION if tensor.dtype == torch.float32 else tensor.dtype, f"the tensor `{name}`")
    if dtype == "i32" and (kind.get("low", 0.0) < -(1 << 31) or kind.get("high", 0.0) > 1 << 31):
        raise Unusable(
            "task.model_argument",
            f"the tensor `{name}` has integers from {kind['low']:.0f} to below {kind['high']:.0f}, and those of a task have 32 bits",
        )
    if kind["kind"] == "steps" and dtype == "i32" and kind["step"] == 1.0:
        kind = uniform(kind["low"], kind["high"])
    return {"name": name, "dtype": dtype, "shape": list(tensor.shape),
            "distribution": rounded(kind), "origin": origin, **more}


def held(tensor):
    """Bytes of a tensor in a task, where integers and truth values have 32 bits."""
    if tensor.dtype == torch.float32:
        return tensor.numel() * PRECISION.itemsize
    return tensor.numel() * (tensor.element_size() if tensor.dtype in EXACT else 4)


def size_text(count):
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


def check_size(count, what):
    if count > options["max_bytes"]:
        raise Unusable(
            "task.model_too_large",
            f"{what} take {size_text(count)}, and the tensors of a task at most {size_text(options['max_bytes'])}: make "
            "the sizes in the file smaller",
        )


def call_inputs(module, *modes):
    """The inputs of a call, made under these modes."""
    torch.manual_seed(options["seed"])
    origins = Origins()
    try:
        with contextlib.ExitStack() as stack:
            for mode in (*modes, origins):
                stack.enter_context(mode)
            inputs = module.get_inputs()
    except BaseException as error:
        raise broken(error, "get_inputs()") from None
    if not isinstance(inputs, (list, tuple)):
        raise Unusable("task.model_argument", f"get_inputs() gives a `{type(inputs).__name__}`, and not a list")
    return list(inputs), origins


def sampled_inputs(module, inputs):
    """Smaller ones of the same kinds, where the file can be brought to make such; else nothing."""
    try:
        sample, _ = call_inputs(module, Fewer())
    except Unusable:
        return None
    alike = len(sample) == len(inputs) and all(
        isinstance(small, torch.Tensor) == isinstance(large, torch.Tensor)
        and (not isinstance(large, torch.Tensor) or (small.dtype, small.dim()) == (large.dtype, large.dim()))
        for small, large in zip(sample, inputs)
    )
    return sample if alike else None


def argument_names(module, count):
    try:
        parameters = list(inspect.signature(module.Model.forward).parameters.values())[1:]
        names = [parameter.name for parameter in parameters
                 if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    except (AttributeError, TypeError, ValueError):
        names = []
    return [names[position] if position < len(names) else f"input{position}" for position in range(count)]


def decoded_model(module, arguments, *modes, seed=None):
    torch.manual_seed(options["seed"] if seed is None else seed)
    try:
        with contextlib.ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            model = module.Model(*arguments)
    except BaseException as error:
        raise broken(error, "building the model") from None
    if not isinstance(model, torch.nn.Module):
        raise Unusable("task.model_incomplete", "`Model` is no torch.nn.Module: derive the class from it")
    return model if options["training"] else model.eval()


def refuse_overlaps(state):
    """Weights are handed over one by one: of two that share a part of their memory, the second would change the first."""
    spans = {}
    for name, tensor in state.items():
        start = tensor.storage_offset() * tensor.element_size()
        span = (start, start + nbytes(tensor))
        for other, before in spans.setdefault(tensor.untyped_storage()._cdata, []):
            if span != before and span[0] < before[1] and before[0] < span[1]:
                raise Unusable(
                    "task.model_argument",
                    f"the weights `{other}` and `{name}` share a part of their memory: make one of them a copy, or compute it in "
                    "forward()",
                )
        spans[tensor.untyped_storage()._cdata].append((name, span))


def computed_buffers(module, init, model, real_state):
    """Names of buffers that are no weights: masks, tables, positions. Their values differ from each other, and are the same
    however weights are drawn. What is constant, as running statistics are at first, a program might leave out, and is drawn."""
    if real_state is None:
        return []
    varied = [name for name, _ in model.named_buffers() if name in real_state and real_state[name].dtype.is_floating_point
              and real_state[name].numel() > 1 and bool((real_state[name] != real_state[name].flatten()[0]).any())]
    if not varied:
        return []
    again = decoded_model(module, init, seed=options["seed"] + 1).state_dict()
    return [name for name in varied if torch.equal(real_state[name], again[name])]


def forward(model, inputs, fake):
    watch = Operators()
    try:
        with torch.no_grad():
            if fake is None:
                with watch:
                    outputs = model(*inputs)
            else:
                with fake, watch:
                    outputs = model(*inputs)
    except BaseException as error:
        raise broken(error, "forward()") from None
    return outputs, watch


def examine(module):
    problems, notes = [], []
    stage("get_init_inputs()")
    try:
        init = module.get_init_inputs()
    except BaseException as error:
        raise broken(error, "get_init_inputs()") from None
    if not isinstance(init, (list, tuple)):
        raise Unusable("task.model_argument", f"get_init_inputs() gives a `{type(init).__name__}`, and not a list")
    init_written = [encoded(value, "get_init_inputs()") for value in init]
    if len(json.dumps(init_written)) > MAX_ARGUMENT_BYTES:
        raise Unusable(
            "task.model_argument",
            f"get_init_inputs() takes more than {MAX_ARGUMENT_BYTES >> 10} KiB to be written down: make large values within "
            "the model",
        )

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    stage("get_inputs()")
    try:
        inputs, origins = call_inputs(module, fake)
        real_inputs = None
    except Unusable:
        # What looks at values needs some.
        inputs, origins = call_inputs(module)
        real_inputs = inputs
        notes.append("get_inputs() needs values, so that it was run as it is")
    names = argument_names(module, len(inputs))
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if not tensors:
        for value in inputs:
            encoded(value, "get_inputs()")
        raise Unusable("task.model_argument", "get_inputs() gives no tensor at all")
    for name, value in zip(names, inputs):
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise Unusable(
                "task.model_wrong_device",
                f"get_inputs() makes `{name}` on the device `{value.device.type}`: leave devices to the caller, with tensors "
                "on the CPU",
            )
        if isinstance(value, torch.Tensor) and (value.layout is not torch.strided or value.is_quantized or value.is_nested):
            raise Unusable(
                "task.model_argument",
                f"get_inputs() makes `{name}` as a sparse, quantized or nested tensor: tasks have plain ones, from which the model "
                "can make others",
            )
    input_bytes = sum(nbytes(value) for value in tensors)
    held_inputs = sum(held(value) for value in tensors)
    check_size(held_inputs, "the inputs")
    looked_at = real_inputs
    if real_inputs is None and any(origins.of(value) is None for value in tensors):
        stage("get_inputs()")
        if input_bytes <= REAL_VALUES_BYTES:
            looked_at = real_inputs = call_inputs(module)[0]
        else:
            looked_at = sampled_inputs(module, inputs)

    stage("building the model")
    drawn_weights = Drawn()
    try:
        model = decoded_model(module, init, fake, drawn_weights)
        fake_model = True
    except Unusable as failure:
        # What needs values of its own weights is built as it is, within the limits of this process.
        model = decoded_model(module, init)
        fake_model = False
    state = model.state_dict(keep_vars=True)
    state_bytes = sum(nbytes(tensor) for tensor in state.values())
    held_state = sum(held(tensor) for tensor in state.values())
    check_size(held_inputs + held_state, "inputs and weights")
    real_state = None
    if not fake_model:
        real_state = state
    elif state_bytes <= REAL_VALUES_BYTES:
        stage("building the model")
        real_state = decoded_model(module, init).state_dict(keep_vars=True)

    stage("forward()")
    try:
        fake_inputs = inputs if real_inputs is not inputs else [
            fake.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        # A model that was built as it is becomes one without storage as it is called.
        outputs, watch = forward(model, fake_inputs, fake)
    except Unusable as failure:
        if state_bytes + input_bytes > REAL_VALUES_BYTES:
            raise failure if fake_model else Unusable(
                "task.model_too_large", "it looks at values, and is too large to be run for finding out its operators") from None
        stage("forward()")
        given = real_inputs if real_inputs is not None else call_inputs(module)[0]
        outputs, watch = forward(model if not fake_model else decoded_model(module, init), given, None)
        notes.append("its path depends on values, so that the operators are those of one call")
    structure = "list" if isinstance(outputs, (list, tuple)) else "tensor"
    flat = list(outputs) if structure == "list" else [outputs]
    if not flat or not all(isinstance(value, torch.Tensor) for value in flat):
        found = sorted({type(value).__name__ for value in flat})
        raise Unusable("task.model_argument", f"forward() gives {', '.join(found) or 'nothing'}: tensors, or a list of them, are needed")
    total_bytes = held_inputs + held_state + sum(held(value) for value in flat)
    check_size(total_bytes, "inputs, weights and outputs")

    taken, types, call, described_inputs = set(), {}, [], []
    for position, (name, value) in enumerate(zip(names, inputs)):
        if not isinstance(value, torch.Tensor):
            call.append({"value": encoded(value, "get_inputs()")})
            notes.append(f"`{name}` is no tensor: it is always {value!r:.60}")
            continue
        known = origins.of(value)
        if known is not None:
            kind, origin = known
        elif looked_at is not None:
            kind, origin = fitted(looked_at[position])
        else:
            kind, origin = normal(0, 1), "nothing better, as it is too large to be looked at"
        own = contract_name(name, taken)
        if known is None and looked_at is None:
            notes.append(f"nothing is known about the values of `{own}`, which are drawn around zero: write into task.toml how they are "
                         "to be drawn")
        elif known is None:
            notes.append(f"the values of `{own}` are not drawn as the file draws them, but each by itself from a range like theirs")
        if value.dtype not in EXACT:
            types[own] = dtype_name(value.dtype)
        described_inputs.append(described(own, value, kind, origin))
        call.append({"input": own})

    constants = computed_buffers(module, init, model, real_state)
    notes.extend(f"`{name}` is a buffer that the model computes: it stays as the file makes it, and is not handed over"
                 for name in constants)
    params, owners, skipped = [], {}, []
    refuse_overlaps({name: tensor for name, tensor in state.items() if name not in constants})
    for name, tensor in state.items():
        if name in constants:
            continue
        if id(tensor) in owners:
            notes.append(f"`{name}` is the same tensor as `{owners[id(tensor)]}`")
            continue
        owners[id(tensor)] = name
        if not tensor.dtype.is_floating_point:
            skipped.append(name)
            continue
        value = (real_state or {}).get(name)
        if value is not None:
            kind, origin = fitted(finite(value))
        else:
            kind, origin = drawn_weights.of(tensor) or (normal(0, 0.02), "nothing better, as the model is too large to be built")
        own = contract_name(name, taken)
        if tensor.dtype not in EXACT:
            types[own] = dtype_name(tensor.dtype)
        params.append(described(own, tensor, kind, origin, state=name))
    if skipped:
        notes.append("not handed over, as their values are no floats: " + ", ".join(f"`{name}`" for name in skipped[:8]))

    described_outputs = []
    for position, value in enumerate(flat):
        own = contract_name("output" if len(flat) == 1 else f"output{position}", taken)
        if value.dtype not in EXACT:
            types[own] = dtype_name(value.dtype)
        described_outputs.append(described(own, value, normal(0, 1), ""))

    if watch.random:
        problems.append({
            "code": "random_forward",
            "message": f"forward() draws random numbers ({', '.join(sorted(watch.random))}): where results depend on them, no two calls agree",
        })
    operators = named_operators(watch.seen) or only_a_copy(tensors, flat, held_inputs + sum(held(value) for value in flat))
    if len(operators) == MAX_OPERATORS:
        notes.append(f"of {len(watch.seen)} operators only the first {MAX_OPERATORS} kinds are listed")
    alone = [operator for operator in watch.seen if operator["class"] != "copy"]
    return {
        "init": init_written, "call": call, "structure": structure, "types": types,
        "inputs": described_inputs, "params": params, "outputs": described_outputs, "constants": constants,
        "operators": operators,
        "flops": alone[0]["flops"] if len(alone) == 1 else None,
        "bytes": float(total_bytes),
        "problems": problems, "notes": notes, "torch": torch.__version__,
    }


try:
    tell({"found": examine(load(text))})
except Unusable as failure:
    refuse(failure)
