"""Arguments of a model's constructor and of its calls, as a task has them written down."""


def decoded(value):
    """An argument."""
    import base64
    import pickle

    import torch

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


def decoded_call(entry):
    """Whether an argument of a call is an input, and what it is else."""
    return (True, None) if "input" in entry else (False, decoded(entry["value"]))


