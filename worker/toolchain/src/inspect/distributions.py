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
    """Returns a distribution around a constant, because a program could ignore a tensor that is always constant."""
    return uniform(value - 0.5, value + 0.5)


def version(tensor):
    """Returns the number of writes to a tensor and its views, or None for tensors without a version counter."""
    try:
        return tensor._version
    except RuntimeError:
        return None


class Known:
    """Stores the distributions of tensors. An entry becomes invalid when its tensor is written to.

    `keep` holds references to the tensors, because Python reuses the id of a freed tensor for a new one.
    """

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
    """Records the factory of each tensor, and follows its distribution through later functions."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", name)
        source = next((value for value in args[:2] if isinstance(value, torch.Tensor)), None)
        known = self.of(source) if source is not None else None
        result = func(*args, **kwargs)
        if name in ("data", "numpy", "storage", "untyped_storage", "data_ptr", "set_", "__array__", "__dlpack__"):
            # The version counter misses writes through these aliases.
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
        """Returns the distribution and its description for the result of a known factory, or None."""
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
        """Returns the distribution and its description after a function that keeps, scales or shifts values, or None."""
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
    """Returns the distribution of integers after a conversion to floating point, or None if it is unknown.

    An interval with a single integer stands for a constant and stays unchanged.
    """
    if kind["kind"] == "uniform":
        low, high = math.ceil(kind["low"]), math.ceil(kind["high"])
        return steps(low, high - low) if high - low > 1 else kind
    return kind if kind["kind"] == "steps" else None


class Drawn(Known, TorchDispatchMode):
    """Records how a model with fake tensors initializes its weights."""

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
            # PyTorch increments the version counter only after this function returns.
            self.note(args[0], *found, written + 1)
        return result


class Fewer(TorchFunctionMode):
    """Reduces the extents of large tensors. The remaining values suffice to estimate a distribution."""

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
    """Returns a distribution that resembles the values of a tensor, and its description."""
    values = tensor.detach().to(torch.float64).flatten()
    if values.numel() == 0:
        return normal(0, 1), "nothing, as it is empty"
    # One NaN or infinity makes the tensor unusable, so every value is checked. A sample suffices to estimate the distribution.
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
        # Values outside of the prefix may have further levels.
        levels = values.unique()
    if 1 < levels.numel() <= MAX_LEVELS and values.numel() >= 4 * levels.numel():
        step = (high - low) / (levels.numel() - 1)
        if all(abs(level - low - step * place) < 1e-6 * step for place, level in enumerate(levels.tolist())):
            return steps(low, levels.numel(), step), f"its {levels.numel()} values"
    mean, std = values.mean().item(), values.std(correction=0).item()
    kurtosis = ((values - mean) ** 4).mean().item() / std**4 if std > 0 else 0.0
    # The extremes of n normal values lie about sqrt(2 ln n) deviations from the mean. A nearer extreme suggests truncated values,
    # and the model may not accept values beyond it.
    reach = 0.6 * math.sqrt(2 * math.log(values.numel())) * std
    if values.numel() < 64 or kurtosis < 2.4 or mean - low < reach or high - mean < reach:
        return uniform(low, high), "the range of its values"
    return normal(mean, std), "mean and deviation of its values"


def finite(tensor):
    """Returns the finite values of a weight. Other values await training, or the model never reads them."""
    values = tensor.detach().flatten()
    return values[values.isfinite()] if tensor.dtype.is_floating_point else values


def rounded(kind):
    """Rounds a distribution to six significant digits. Whole numbers stay exact, because they may be indices into a table."""
    def short(value):
        return value if not isinstance(value, float) or value == round(value) else float(f"{value:.6g}")
    return {key: short(value) for key, value in kind.items()}
