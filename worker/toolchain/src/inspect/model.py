# --- Inspection of the model ------------------------------------------------------------------------------------------

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
    """Returns the size of a tensor in a task, in bytes. Tasks store integers and truth values in 32 bits."""
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
    """Returns the inputs of a call, created under the given modes, and the recorded distributions."""
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
    """Returns smaller inputs with the same types and ranks, or None if the file cannot create them."""
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
    """Raises Unusable if two weights share only a part of their memory.

    The runner copies weights one by one, so loading the second weight would change the first. Identical weights are allowed.
    """
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
    """Returns the names of buffers that the model computes, for example masks, tables and positions.

    The values of such a buffer differ from each other and do not depend on the seed. A buffer with equal values, for example
    initial running statistics, counts as a weight. The evaluator draws its values, because a program could ignore constants.
    """
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
        # The function may read values, which fake tensors do not have.
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
        # The constructor may read values of its weights. The memory limit of this process bounds the real model.
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
        # The mode also converts the weights of a real model to fake tensors during the call.
        called = model, fake_inputs
        outputs, watch = forward(*called, fake)
    except Unusable as failure:
        if state_bytes + input_bytes > REAL_VALUES_BYTES:
            raise failure if fake_model else Unusable(
                "task.model_too_large", "it looks at values, and is too large to be run for finding out its operators") from None
        stage("forward()")
        given = real_inputs if real_inputs is not None else call_inputs(module)[0]
        called = model if not fake_model else decoded_model(module, init), given
        outputs, watch = forward(*called, None)
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
    taken_in = [value for value in called[1] if isinstance(value, torch.Tensor)] + list(called[0].state_dict(keep_vars=True).values())
    return {
        "init": init_written, "call": call, "structure": structure, "types": types,
        "inputs": described_inputs, "params": params, "outputs": described_outputs, "constants": constants,
        "operators": operators,
        "flops": watch.flops(),
        "bytes": float(total_bytes),
        "moved_bytes": watch.moved_bytes(taken_in, flat),
        "problems": problems, "notes": notes, "torch": torch.__version__,
    }


try:
    tell({"found": examine(load(text))})
except Unusable as failure:
    refuse(failure)
