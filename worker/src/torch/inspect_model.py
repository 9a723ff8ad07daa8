"""Finds out what a file with `Model`, `get_inputs` and `get_init_inputs` needs: the tensors of a call, the state of the
model, its operators. One line of JSON on the first descriptor for each stage that begins, and one with the outcome.

Whatever can be known without memory is found on tensors without storage. Run as: python -I -B THIS FILE OPTIONS, where
OPTIONS is JSON: {"file", "name", "precision", "training", "max_bytes", "seed"}.
"""

import ast
import base64
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
MAX_OPERATORS = 128
MAX_EXTENT = 1 << 40
MAX_OBJECT_BYTES = 16 << 10
MAX_ARGUMENT_BYTES = 32 << 10
OBJECT_TEXT = 2000

channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
sys.stdout = sys.stderr


def tell(message):
    # What is no JSON would break the other end, and not say why.
    channel.write(json.dumps(message, allow_nan=False) + "\n")
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
        return Unusable("task.model_fails", f"{doing} printed without end: print nothing")
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
    try:
        if "torch" in sys.modules and any(isinstance(value, one) for one in (torch.Tensor, torch.nn.Module)):
            raise ValueError("tensors and modules stay in the file")
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
    "float", "double", "half", "bfloat16", "to", "type", "int", "long", "bool", "contiguous", "clone", "detach", "reshape",
    "view", "transpose", "permute", "t", "unsqueeze", "squeeze", "expand", "requires_grad_", "flatten", "cpu", "type_as",
    "expand_as", "view_as", "__get__",
}


def shape_extent(args, kwargs, default):
    return kwargs.get("end", default)


class Origins(TorchFunctionMode):
    """Remembers by which factory each tensor was made, and what became of it."""

    def __init__(self):
        super().__init__()
        self.known, self.keep = {}, []

    def note(self, tensor, kind, text):
        if isinstance(tensor, torch.Tensor):
            self.known[id(tensor)] = (kind, text)
            self.keep.append(tensor)

    def of(self, tensor):
        return self.known.get(id(tensor))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        try:
            self.look(name, result, args, kwargs)
        except Exception:
            pass
        return result

    def look(self, name, result, args, kwargs):
        if not isinstance(result, torch.Tensor):
            return
        uniform = lambda low, high: {"kind": "uniform", "low": float(low), "high": float(high)}
        if name in ("rand", "rand_like"):
            return self.note(result, uniform(0, 1), f"torch.{name}")
        if name in ("randn", "randn_like"):
            return self.note(result, {"kind": "normal", "mean": 0.0, "std": 1.0}, f"torch.{name}")
        if name == "normal" and all(isinstance(value, (int, float)) for value in args[:2]) and len(args) >= 2:
            return self.note(result, {"kind": "normal", "mean": float(args[0]), "std": float(args[1])}, "torch.normal")
        if name in ("randint", "randint_like"):
            numbers = [value for value in args if isinstance(value, int) and not isinstance(value, bool)]
            low = kwargs.get("low", numbers[0] if len(numbers) > 1 else 0)
            high = kwargs.get("high", numbers[-1] if numbers else None)
            if high is not None:
                return self.note(result, uniform(low, high), "torch.randint")
            return None
        if name == "randperm":
            return self.note(result, uniform(0, result.numel()), "torch.randperm, without being a permutation")
        if name == "arange":
            numbers = [value for value in args if isinstance(value, (int, float))]
            low = kwargs.get("start", numbers[0] if len(numbers) > 1 else 0)
            high = kwargs.get("end", numbers[1] if len(numbers) > 1 else (numbers[0] if numbers else 1))
            if low < high:
                return self.note(result, uniform(low, high), "torch.arange, without being in order")
            return None
        if name in ("ones", "ones_like"):
            return self.note(result, uniform(0.5, 1.5), "constant ones, drawn around 1")
        if name in ("zeros", "zeros_like"):
            return self.note(result, uniform(-0.5, 0.5), "constant zeros, drawn around 0")
        if name in ("full", "full_like") and len(args) > 1 and isinstance(args[1], (int, float)):
            value = float(args[1])
            return self.note(result, uniform(value - 0.5, value + 0.5), f"constant {value}, drawn around it")
        if name in ("uniform_", "normal_"):
            first = kwargs.get("a", kwargs.get("from", kwargs.get("mean", args[1] if len(args) > 1 else 0.0)))
            second = kwargs.get("b", kwargs.get("to", kwargs.get("std", args[2] if len(args) > 2 else 1.0)))
            kind = uniform(first, second) if name == "uniform_" else {
                "kind": "normal", "mean": float(first), "std": float(second)}
            return self.note(result, kind, f"Tensor.{name}")
        source = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if source is None and len(args) > 1 and isinstance(args[1], torch.Tensor):
            source = args[1]
        known = self.of(source) if source is not None else None
        if known is None:
            return None
        kind, text = known
        other = next((value for value in args[:2] if isinstance(value, (int, float)) and not isinstance(value, bool)), None)
        base = name.strip("_")
        base = base[1:] if base.startswith("r") and base[1:] in ("mul", "add", "sub", "div", "truediv") else base
        if name in UNCHANGED:
            if name == "bool" or result.dtype == torch.bool:
                kind = {"kind": "uniform", "low": 0.0, "high": 2.0}
            return self.note(result, kind, text)
        if base == "neg":
            return self.note(result, affine(kind, -1.0, 0.0), text)
        if other is None:
            return None
        if base in ("mul", "imul"):
            return self.note(result, affine(kind, other, 0.0), f"{text} * {other}")
        if base in ("truediv", "div") and source is args[0]:
            return self.note(result, affine(kind, 1.0 / other, 0.0), f"{text} / {other}")
        if base in ("add", "iadd"):
            return self.note(result, affine(kind, 1.0, other), f"{text} + {other}")
        if base == "sub" and source is args[0] and not name.startswith("__r"):
            return self.note(result, affine(kind, 1.0, -other), f"{text} - {other}")
        if base in ("sub", "rsub"):
            return self.note(result, affine(kind, -1.0, other), f"{other} - {text}")
        return None


def affine(kind, factor, shift):
    if kind["kind"] == "normal":
        return {"kind": "normal", "mean": kind["mean"] * factor + shift, "std": abs(kind["std"] * factor)}
    ends = sorted((kind["low"] * factor + shift, kind["high"] * factor + shift))
    return {"kind": "uniform", "low": ends[0], "high": ends[1]}


def fitted(tensor):
    """What values look like: constants are drawn around themselves."""
    values = tensor.detach().to(torch.float64).flatten()
    if values.numel() == 0:
        return {"kind": "normal", "mean": 0.0, "std": 1.0}, "nothing, as it is empty"
    if values.numel() > 1 << 20:
        values = values[:: values.numel() // (1 << 20) + 1]
    low, high = values.min().item(), values.max().item()
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        finite = values[values.isfinite()]
        if finite.numel() == 0:
            return {"kind": "normal", "mean": 0.0, "std": 1.0}, "values that are not finite"
        low, high = finite.min().item(), finite.max().item()
        values = finite
    if tensor.dtype == torch.bool:
        return {"kind": "uniform", "low": 0.0, "high": 2.0}, "truth values"
    if not tensor.dtype.is_floating_point:
        return {"kind": "uniform", "low": low, "high": high + 1.0}, "the range of its integers"
    if low == high:
        return {"kind": "uniform", "low": low - 0.5, "high": low + 0.5}, f"constant {low:g}, drawn around it"
    mean, std = values.mean().item(), values.std(correction=0).item()
    kurtosis = ((values - mean) ** 4).mean().item() / std**4 if std > 0 else 0.0
    if values.numel() < 64 or kurtosis < 2.4:
        return {"kind": "uniform", "low": low, "high": high}, "the range of its values"
    return {"kind": "normal", "mean": mean, "std": std}, "mean and deviation of its values"


def rounded(kind):
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in kind.items()}


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

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet = func._overloadpacket
        name = packet.__name__
        is_view = getattr(func, "is_view", False) or name in ("detach", "_unsafe_view", "alias", "lift_fresh", "_reshape_alias")
        class_name = CLASS_OF.get(name, "elementwise")
        if class_name == "random" and not (name == "native_dropout" and len(args) > 1 and args[1] == 0.0):
            self.random.add(name)
        if not is_view and class_name != "factory" and func.namespace != "prim":
            tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self.seen.append({
                "name": name, "class": class_name, "flops": flops_of(packet, args, kwargs, result, class_name),
                "bytes": float(sum(nbytes(tensor) for tensor in tensors + results)),
                "inputs": [list(tensor.shape) for tensor in tensors],
                "outputs": [list(tensor.shape) for tensor in results],
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
    """At most so many, each with a name of its own; the smallest of a longer list are told together."""
    import re

    folded = []
    if len(seen) > MAX_OPERATORS:
        # Runs of what is alike, told once with their number.
        for operator in seen:
            last = next((entry for entry in folded if entry["key"] == (operator["name"], str(operator["inputs"]))), None)
            if last is None:
                folded.append({**operator, "key": (operator["name"], str(operator["inputs"])), "count": 1})
            else:
                last["count"] += 1
                for key in ("flops", "bytes"):
                    last[key] = None if last[key] is None or operator[key] is None else last[key] + operator[key]
        folded = folded[:MAX_OPERATORS]
    else:
        folded = [{**operator, "count": 1} for operator in seen]
    counts, named = {}, []
    for operator in folded:
        base = re.sub(r"[^A-Za-z0-9_]", "_", operator["name"]).strip("_") or "operator"
        base = f"op_{base}" if base[0].isdigit() else base
        counts[base] = counts.get(base, 0) + 1
        name = base if counts[base] == 1 else f"{base}_{counts[base]}"
        named.append({
            "name": name[:64], "class": operator["class"], "flops": operator["flops"], "bytes": operator["bytes"],
            "inputs": operator["inputs"], "outputs": operator["outputs"], "count": operator["count"],
        })
    return named


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
    dtype = PRECISION if tensor.dtype == torch.float32 else tensor.dtype
    return {"name": name, "dtype": contract_dtype(dtype, f"the tensor `{name}`"), "shape": list(tensor.shape),
            "distribution": rounded(kind), "origin": origin, **more}


def size_text(count):
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


def check_size(count, what):
    if count > options["max_bytes"]:
        raise Unusable(
            "task.model_too_large",
            f"{what} take {size_text(count)}, and the tensors of a task at most {size_text(options['max_bytes'])}: make "
            "the sizes in the file smaller",
        )


def call_inputs(module, fake):
    torch.manual_seed(options["seed"])
    origins = Origins()
    try:
        if fake is None:
            with origins:
                inputs = module.get_inputs()
        else:
            with fake, origins:
                inputs = module.get_inputs()
    except BaseException as error:
        raise broken(error, "get_inputs()") from None
    if not isinstance(inputs, (list, tuple)):
        raise Unusable("task.model_argument", f"get_inputs() gives a `{type(inputs).__name__}`, and not a list")
    return list(inputs), origins


def argument_names(module, count):
    try:
        parameters = list(inspect.signature(module.Model.forward).parameters.values())[1:]
        names = [parameter.name for parameter in parameters
                 if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    return [names[position] if position < len(names) else f"input{position}" for position in range(count)]


def decoded_model(module, arguments, fake, seed=None):
    torch.manual_seed(options["seed"] if seed is None else seed)
    try:
        if fake is None:
            model = module.Model(*arguments)
        else:
            with fake:
                model = module.Model(*arguments)
    except BaseException as error:
        raise broken(error, "building the model") from None
    if not isinstance(model, torch.nn.Module):
        raise Unusable("task.model_incomplete", "`Model` is no torch.nn.Module")
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
    again = decoded_model(module, init, None, options["seed"] + 1).state_dict()
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
        inputs, origins = call_inputs(module, None)
        real_inputs = inputs
        notes.append("get_inputs() needs values, so that it was run as it is")
    names = argument_names(module, len(inputs))
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if not tensors:
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
    check_size(input_bytes, "the inputs")
    unknown = [value for value in tensors if origins.of(value) is None]
    if unknown and real_inputs is None and input_bytes <= REAL_VALUES_BYTES:
        stage("get_inputs()")
        real_inputs, _ = call_inputs(module, None)

    stage("building the model")
    try:
        model = decoded_model(module, init, fake)
        fake_model = True
    except Unusable as failure:
        # What needs values of its own weights is built as it is, within the limits of this process.
        model = decoded_model(module, init, None)
        fake_model = False
    state = model.state_dict(keep_vars=True)
    state_bytes = sum(nbytes(tensor) for tensor in state.values())
    check_size(input_bytes + state_bytes, "inputs and weights")
    real_state = None
    if not fake_model:
        real_state = state
    elif state_bytes <= REAL_VALUES_BYTES:
        stage("building the model")
        real_state = decoded_model(module, init, None).state_dict(keep_vars=True)

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
        given = real_inputs if real_inputs is not None else call_inputs(module, None)[0]
        outputs, watch = forward(model if not fake_model else decoded_model(module, init, None), given, None)
        notes.append("its path depends on values, so that the operators are those of one call")
    structure = "list" if isinstance(outputs, (list, tuple)) else "tensor"
    flat = list(outputs) if structure == "list" else [outputs]
    if not flat or not all(isinstance(value, torch.Tensor) for value in flat):
        found = sorted({type(value).__name__ for value in flat})
        raise Unusable("task.model_argument", f"forward() gives {', '.join(found) or 'nothing'}: tensors, or a list of them, are needed")
    output_bytes = sum(nbytes(value) for value in flat)
    total_bytes = input_bytes + state_bytes + output_bytes
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
        elif real_inputs is not None:
            kind, origin = fitted(real_inputs[position])
        else:
            kind, origin = {"kind": "normal", "mean": 0.0, "std": 1.0}, "nothing better, as it is too large to be looked at"
        own = contract_name(name, taken)
        if known is None:
            notes.append(f"the values of `{own}` are not drawn as the file draws them, but from a range like theirs")
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
            kind, origin = fitted(value)
        else:
            kind, origin = {"kind": "normal", "mean": 0.0, "std": 0.02}, "nothing better, as the model is too large to be built"
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
        described_outputs.append(described(own, value, {"kind": "normal", "mean": 0.0, "std": 1.0}, ""))

    if watch.random:
        problems.append({
            "code": "random_forward",
            "message": f"forward() draws random numbers ({', '.join(sorted(watch.random))}): where results depend on them, no two calls agree",
        })
    operators = named_operators(watch.seen)
    if len(operators) == MAX_OPERATORS:
        notes.append(f"of {len(watch.seen)} operators only the first {MAX_OPERATORS} kinds are listed")
    alone = [operator for operator in watch.seen if operator["class"] != "copy"]
    return {
        "init": init_written, "call": call, "structure": structure, "types": types,
        "inputs": described_inputs, "params": params, "outputs": described_outputs, "constants": constants,
        "operators": operators,
        "flops": alone[0]["flops"] if len(alone) == 1 else None,
        "bytes": float(total_bytes if PRECISION == torch.float32 else total_bytes / 2),
        "problems": problems, "notes": notes, "torch": torch.__version__,
    }


try:
    tell({"found": examine(load(text))})
except Unusable as failure:
    refuse(failure)
