"""Runs one program of PyTorch for a parent that judges it: the same messages as the runner of libraries answers, on the same
socket and the same shared memory. It knows nothing about expected results, and is believed in nothing but what the parent
can see for itself.

Run as: python -I -B -c THIS FILE DESCRIPTORS, where DESCRIPTORS is JSON: {"plan", "arena", "channel"}; or with {"plan",
"arena", "replay"} to repeat one call of the program between the marks that profilers look for.
"""

import base64
import ctypes
import gc
import json
import mmap
import os
import pickle
import socket
import struct
import sys
import time
import traceback

import torch

MAX_SHORT_BYTES = 64 * 1024
GUARD_BYTES = 1024
FLUSHED_CACHES = 4
ROW_FILL_BYTES = 32 << 20
LATE_PIECES = 4
LATE_ELEMENTS = 64
CALLS_PER_FLUSH = 4
# Tensors of a program from which on none of the device's memory is kept for further ones.
LARGE_BYTES = 1 << 30
SEED = 42
POISON = 0x7FFCA5A5

WRONG_RESULT = 2
RAISED = 1

DTYPES = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "f16": torch.float16, "bf16": torch.bfloat16}
MASK = (1 << 64) - 1

now_ns = time.clock_gettime_ns
CLOCK = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)


class Wrong(Exception):
    """The program does not keep to the contract."""


class Fault(Exception):
    """The device failed."""

    def __init__(self, during, error):
        super().__init__(error)
        self.during, self.error = during, error


def is_fault(error):
    accelerator = getattr(torch, "AcceleratorError", None)
    if accelerator is not None and isinstance(error, accelerator):
        return True
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)


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


def skipped(mix, elements):
    return mix["shift"] % elements if elements else 0


class Place:
    """One buffer of the arena."""

    def __init__(self, placed, types, double):
        self.name, self.shape = placed["name"], placed["shape"]
        self.dtype = DTYPES[placed["dtype"]]
        kind = types.get(self.name)
        # What the program sees, where the contract has another type or the arena a narrower one.
        self.own = getattr(torch, kind) if kind else torch.float64 if double and self.dtype.is_floating_point else self.dtype
        self.offset, self.size = placed["region"]["offset"], placed["region"]["size"]
        self.elements = self.size // self.dtype.itemsize

    def of(self, memory):
        if self.elements == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.frombuffer(memory, dtype=self.dtype, count=self.elements, offset=self.offset).reshape(self.shape)

    def bytes_of(self, memory, guarded):
        extra = GUARD_BYTES if guarded else 0
        return torch.frombuffer(memory, dtype=torch.uint8, count=self.size + 2 * extra, offset=self.offset - extra)


class Layout:
    def __init__(self, layout, types, double):
        self.inputs, self.params, self.outputs = (
            [Place(placed, types, double) for placed in layout[name]] for name in ("inputs", "params", "outputs"))


MARKER = "#nightshift-extension "


def extensions_of(path):
    """The extensions that were built ahead: comments behind the program, each a name and a library."""
    with open(path, encoding="utf-8") as file:
        lines = [line[len(MARKER):].split() for line in file if line.startswith(MARKER)]
    return {name: base64.b64decode(text) for name, text in lines}


def use_extensions(path):
    """Lets the program find what was built ahead in the place of what it would build now."""
    found = extensions_of(path)
    if not found:
        return
    import importlib.machinery
    import importlib.util

    import torch.utils.cpp_extension as cpp

    def loaded(*given, **named):
        name = named.get("name", given[0] if given else None)
        if name not in found:
            raise RuntimeError(f"the extension `{name}` was not built with the program: build at import, always the same")
        descriptor = os.memfd_create(name)
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(found[name])
        library = f"/proc/self/fd/{descriptor}"
        if named.get("is_python_module", True) is False:
            torch.ops.load_library(library)
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, library)
        spec = importlib.util.spec_from_file_location(name, library, loader=loader)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module

    cpp.load_inline = cpp.load = loaded


class Program:
    """The model of a file."""

    def __init__(self, plan):
        self.torch, self.double = plan["torch"]["spec"], plan["torch"]["double"]
        self.device = torch.device("cuda", torch.cuda.current_device()) if plan["on_device"] else torch.device("cpu")
        path = plan["library"]
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
        # What it is compared with: a program with the reference, and the reference with what the task says of it.
        self.beside = "the reference" if hasattr(module, "ModelNew") else "task.toml"
        self.own_state = None
        call = self.torch.get("call")
        self.call = [decoded_call(entry) for entry in json.loads(call)] if call else None

    def match(self, layout):
        """Which entry of the model's state each weight is: by name, else in order, where shapes agree."""
        state = self.model.state_dict()
        names, constants = self.torch.get("state", []), set(self.torch.get("constants", []))
        shapes = {name: list(tensor.shape) for name, tensor in state.items()}
        if any(name not in shapes for name in names):
            floats = [name for name, tensor in state.items() if tensor.dtype.is_floating_point and name not in constants]
            wanted = [place.shape for place in layout.params]
            if [shapes[name] for name in floats] != wanted:
                missing = [name for name in names if name not in shapes]
                raise Wrong(
                    f"the state of the model has no {', '.join(missing[:5])}, and its {len(floats)} tensors are not those of "
                    f"{self.beside} in their order either: parameters and buffers need the names and shapes of {self.beside}'s")
            names = floats
        for name, place in zip(names, layout.params):
            if shapes[name] != place.shape:
                raise Wrong(f"`{name}` has the shape {shapes[name]}, and {self.beside}'s has {place.shape}")
        known = set(names)
        places = {state[name].data_ptr(): name for name in names}
        # Known by another name, too.
        twins = {name for name, tensor in state.items() if name not in known and tensor.data_ptr() in places}
        further = [name for name, tensor in state.items() if name not in known | constants | twins
                   and tensor.dtype.is_floating_point]
        if further:
            raise Wrong(f"the state of the model has {', '.join(further[:5])} beside {self.beside}'s: register further buffers "
                        "with persistent=False, and derive what follows from weights after load_state_dict")
        self.names = names
        self.twins = {name: places[state[name].data_ptr()] for name in twins}
        self.untouched = {name: tensor.detach().clone() for name, tensor in state.items() if name not in known | twins}

    def load_state(self, weights):
        """Hands over the weights. What the task does not name is as it was after the construction."""
        state = {name: tensor.clone() for name, tensor in self.untouched.items()}
        state.update(zip(self.names, weights))
        state.update((name, state[known]) for name, known in self.twins.items())
        self.model.load_state_dict(state, strict=True)

    def arguments(self, tensors):
        if self.call is None:
            return tensors
        given = iter(tensors)
        return [next(given) if is_input else value for is_input, value in self.call]


def decoded_call(entry):
    return (True, None) if "input" in entry else (False, decoded(entry["value"]))


def widen(model):
    """Tensors that a module keeps beside its state."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                setattr(module, name, value.double())


class Runner:
    def __init__(self, plan, memory):
        self.program, self.layout, self.number = None, None, 0
        self.device, self.memory = None, None
        self.take_plan(plan, memory)

    def take_plan(self, plan, memory):
        another = memory is not self.memory
        if self.device is not None and another:
            self.device.leave()
        self.plan, self.memory = plan, memory
        if self.device is not None and another:
            self.device.pin(memory)
        torch_plan = plan.get("torch") or {}
        types = torch_plan.get("spec", {}).get("types", {})
        self.layouts = [Layout(layout, types, torch_plan.get("double", False)) for layout in plan["layouts"]]
        if self.layouts:
            self.take_shape(0)

    def take_shape(self, number):
        self.layout, self.number = self.layouts[number], number
        if self.device is not None:
            self.device.take_shape(self.layout)

    # --- Answers ----------------------------------------------------------------------------------------------------

    def answer(self, kind, asked):
        handler = getattr(self, "on_" + kind)
        try:
            return handler(asked)
        except Fault as fault:
            return {"fault": {"during": fault.during, "error": fault.error}}
        except Wrong as wrong:
            print(f"{wrong}", file=sys.stderr, flush=True)
            return {"status": WRONG_RESULT}
        except Exception as error:
            if is_fault(error):
                return {"fault": {"during": "the call", "error": str(error).splitlines()[0][:300]}}
            tell_of(error)
            return {"status": RAISED}

    def on_hello(self, asked):
        return {}

    def on_open(self, asked):
        if self.plan["on_device"] and self.device is None:
            self.device = Device(self)
            if self.layouts:
                self.device.take_shape(self.layout)
        return {}

    def on_load(self, asked):
        try:
            self.program = Program(self.plan)
            self.program.match(self.layout)
            sys.stdout.flush()
        except Wrong as wrong:
            return {"load_error": str(wrong)}
        except BaseException as error:
            if is_fault(error):
                return {"fault": {"during": "building the model", "error": str(error).splitlines()[0][:300]}}
            tell_of(error)
            return {"load_error": told(error)}
        return {}

    def on_shape(self, asked):
        self.take_shape(asked["layout"])
        return {}

    def on_rest(self, asked):
        kept = 0
        if self.device is not None:
            kept = self.device.rest(asked["keep_bytes"], self.plan["total_bytes"])
        self.take_shape(0)
        return {"kept_bytes": kept}

    def on_init(self, asked):
        self.load_state()
        return {}

    def load_state(self):
        weights = [place.of(self.memory).to(self.program.device, copy=True).to(place.own) for place in self.layout.params]
        self.program.load_state(weights)
        if self.device is not None:
            self.device.settle("handing over the weights")

    def forward(self, tensors):
        """One call."""
        arguments = self.program.arguments(tensors)
        if self.program.double:
            torch.set_default_dtype(torch.float64)
        try:
            with torch.no_grad():
                return self.program.model(*arguments)
        finally:
            if self.program.double:
                torch.set_default_dtype(torch.float32)

    def results(self, given):
        """The tensors of a result, if they are what the contract says."""
        flat = list(given) if isinstance(given, (list, tuple)) else [given]
        wanted, beside = self.layout.outputs, self.program.beside
        if len(flat) != len(wanted):
            raise Wrong(f"forward gave {len(flat)} results, and {beside} has {len(wanted)}")
        for result, place in zip(flat, wanted):
            if type(result) is not torch.Tensor and type(result) is not torch.nn.Parameter:
                raise Wrong(f"forward gave a {type(result).__name__}, and not a torch.Tensor")
            if list(result.shape) != place.shape:
                raise Wrong(f"forward gave a tensor of the shape {list(result.shape)}, and {beside}'s has {place.shape}")
            is_right = result.dtype == place.own or (self.program.double and result.dtype.is_floating_point
                                                     and place.dtype == torch.float64)
            if not is_right:
                raise Wrong(f"forward gave a tensor of {result.dtype}, and {beside}'s is of {place.own}")
            if result.device.type != self.program.device.type:
                raise Wrong(f"forward gave a tensor on {result.device}, and not on {self.program.device}")
            if result.layout is not torch.strided or result.is_conj() or result.is_neg():
                raise Wrong("forward gave a tensor that is no plain one")
        return flat

    def on_run(self, asked):
        if self.device is not None:
            return self.device.run(asked["poison"], asked["weights"], asked["outputs_only"])
        if asked["weights"]:
            self.load_state()
        tensors = [place.of(self.memory).to(place.own) for place in self.layout.inputs]
        gc.disable()
        try:
            started = now_ns(CLOCK)
            given = self.forward(tensors)
            ended = now_ns(CLOCK)
        finally:
            gc.enable()
        results = self.results(given)
        for result, place in zip(results, self.layout.outputs):
            place.of(self.memory).copy_(result)
        return {"elapsed_ns": ended - started, "delivered_ns": now_ns(CLOCK) - ended}

    def on_stage(self, asked):
        self.device.stage(asked["set"])
        return {}

    def on_rotate(self, asked):
        self.device.rotate(asked["calls"])
        return {}

    def on_sample(self, asked):
        return self.device.sample(asked["mixes"], asked["poison"])

    def on_keep(self, asked):
        self.device.keep(asked["call"], asked["slot"])
        self.device.settle("keeping a call")
        return {}

    def on_burst(self, asked):
        return self.device.burst(asked["mixes"], asked["poison"], asked["slots"], asked["empty"])

    def on_graph(self, asked):
        # A recording that fails half-way leaves the allocator of PyTorch in a state that later calls suffer from.
        return {"rest_ns": 0}

    def on_fetch(self, asked):
        self.device.fetch(asked["slot"], asked["outputs_only"])
        return {}


class Mirror:
    """One buffer of the arena in the memory of the device, with its guards."""

    def __init__(self, place, device):
        self.place = place
        self.memory = torch.empty(place.size + 2 * GUARD_BYTES, dtype=torch.uint8, device=device)
        self.data = self.memory[GUARD_BYTES:GUARD_BYTES + place.size]
        self.elements = self.data.view(place.dtype)
        self.typed = self.elements.reshape(place.shape)
        # Of another type in the program: converted each time that the values change.
        self.own = self.typed if place.own == place.dtype else torch.empty(place.shape, dtype=place.own, device=device)

    def upload(self, memory):
        self.memory.copy_(self.place.bytes_of(memory, True))
        self.convert()

    def convert(self):
        if self.own is not self.typed:
            self.own.copy_(self.typed)

    def mix(self, sets, mix):
        self.mix_part(sets, mix, 0, self.place.elements)

    def mix_part(self, sets, mix, start, count):
        """Takes the end of one set's tensor, and behind it the beginning of another's."""
        total = self.place.elements
        left_out = skipped(mix, total)
        border = total - left_out
        first, second = (entry[GUARD_BYTES:GUARD_BYTES + self.place.size].view(self.place.dtype) for entry in sets)
        in_first = max(0, min(border - start, count))
        if in_first:
            self.elements[start:start + in_first].copy_(first[start + left_out:start + left_out + in_first])
        if count > in_first:
            begin = max(0, start + in_first - border)
            self.elements[start + in_first:start + count].copy_(second[begin:begin + count - in_first])

    def late_piece(self, mix, piece):
        total = self.place.elements
        size = min(total, LATE_ELEMENTS)
        places = total - size + 1
        turn = 17 + piece
        random = (((mix["shift"] << turn) | (mix["shift"] >> (64 - turn))) & MASK) * 0x9E3779B97F4A7C15 & MASK
        return (random >> 11) % places, size


class Device:
    """Calls on the device, timed by its events and by the clock of this process."""

    def __init__(self, runner):
        self.runner = runner
        torch.cuda.init()
        self.device = torch.device("cuda", torch.cuda.current_device())
        l2_bytes = getattr(torch.cuda.get_device_properties(self.device), "L2_cache_size", 0) or (64 << 20)
        self.flush = torch.empty(l2_bytes * FLUSHED_CACHES, dtype=torch.uint8, device=self.device)
        self.started, self.ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # What the first use of each costs is not the program's.
        self.started.record()
        self.flush.fill_(0)
        self.ended.record()
        self.settle("taking hold of the device")
        try:
            self.driver = ctypes.CDLL("libcuda.so.1")
        except OSError:
            self.driver = None
        self.inputs, self.sets, self.slots, self.rotation, self.given = [], [], [], [], {}
        self.pinned = None
        self.pin(runner.memory)

    def pin(self, memory):
        """Lets the device itself copy from and to the memory that is shared with the parent. Where the driver cannot do that,
        copies go through buffers of its own, which is slower and nothing else."""
        if self.driver is None:
            return
        address = ctypes.c_void_p(torch.frombuffer(memory, dtype=torch.uint8).data_ptr())
        if self.driver.cuMemHostRegister_v2(address, ctypes.c_size_t(len(memory)), ctypes.c_uint(0)) == 0:
            self.pinned = address

    def leave(self):
        """Has nothing to do with that memory any more."""
        if self.pinned is not None:
            self.driver.cuMemHostUnregister(self.pinned)
            self.pinned = None

    def settle(self, during):
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise Fault(during, str(error).splitlines()[0][:300]) from None

    def free_tensors(self):
        self.inputs, self.sets, self.slots, self.rotation, self.given = [], [], [], [], {}

    def take_shape(self, layout):
        self.free_tensors()
        if self.runner.plan["total_bytes"] >= LARGE_BYTES:
            torch.cuda.empty_cache()
        self.inputs = [Mirror(place, self.device) for place in layout.inputs]

    def rest(self, keep, of_call):
        """Between steps others are at work on the device: what PyTorch holds without a tensor in it goes, unless that is no more than
        what the tensors of two calls take, as one's results are there while the next one computes its own, and so many bytes. Gives
        how many are kept beside those of a call."""
        self.free_tensors()
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        if keep > 0 and unused <= keep + 2 * of_call:
            return min(keep, max(0, unused - of_call))
        torch.cuda.empty_cache()
        return 0

    def berth(self, call):
        return self.inputs if call == 0 else self.rotation[call - 1]

    def poison_pool(self, poison):
        """What the program allocates next finds poison in memory that earlier results were in."""
        pattern = (poison & 0xFFFFFFFF) - (1 << 32 if poison & 0x80000000 else 0)
        blocks = []
        for place in self.runner.layout.outputs:
            words = torch.empty((max(place.size, 4) + 3) // 4, dtype=torch.int32, device=self.device)
            words.fill_(pattern)
            blocks.append(words)
        del blocks

    def call(self, number):
        return self.runner.forward([mirror.own for mirror in self.berth(number)])

    def run(self, poison, weights, outputs_only):
        runner = self.runner
        if weights:
            runner.load_state()
        for mirror in self.inputs:
            mirror.upload(runner.memory)
        self.given = {}
        self.poison_pool(poison)
        self.settle("waiting for the device before the call")
        answer = self.time_behind(1)
        self.deliver([] if outputs_only else self.inputs, self.given[0])
        return answer

    def time_behind(self, calls):
        """So many calls between two events, and how long the device goes on behind them."""
        self.started.record()
        given = [self.call(number) for number in range(calls)]
        self.ended.record()
        try:
            self.ended.synchronize()
        except Exception as error:
            raise Fault("the call", str(error).splitlines()[0][:300]) from None
        before = now_ns(CLOCK)
        self.settle("the call")
        after = now_ns(CLOCK)
        self.given = {number: self.runner.results(result) for number, result in enumerate(given)}
        return {"elapsed_ns": int(self.started.elapsed_time(self.ended) * 1e6), "rest_ns": after - before}

    def deliver(self, mirrors, results):
        """Everything that the parent compares, into the arena."""
        memory = self.runner.memory
        for result, place in zip(results, self.runner.layout.outputs):
            place.of(memory).copy_(result)
        for mirror in mirrors:
            mirror.place.bytes_of(memory, True).copy_(mirror.memory)
        self.settle("taking results out")

    def stage(self, number):
        for mirror in self.inputs:
            mirror.upload(self.runner.memory)
        del self.sets[number:]
        self.sets.append([mirror.memory.clone() for mirror in self.inputs])
        self.settle("staging inputs")

    def rotate(self, calls):
        self.rotation = []
        for _ in range(1, calls):
            berth = [Mirror(mirror.place, self.device) for mirror in self.inputs]
            for mirror, first in zip(berth, self.inputs):
                mirror.memory.copy_(first.memory)
                mirror.convert()
            self.rotation.append(berth)
        self.settle("making room for a sample")

    def forget_persisting_lines(self):
        if self.driver is not None:
            self.driver.cuCtxResetPersistingL2Cache()

    def mix_inputs(self, mirrors, mix):
        pairs = list(zip(self.sets[mix["first"]], self.sets[mix["second"]]))
        for mirror, pair in zip(mirrors, pairs):
            mirror.mix(pair, mix)
        return pairs

    def sample(self, mixes, poison):
        self.given = {}
        self.settle("waiting for the device before the call")
        self.forget_persisting_lines()
        late = []
        for call, mix in enumerate(mixes):
            mirrors = self.berth(call)
            pairs = self.mix_inputs(mirrors, mix)
            for piece in range(max(1, LATE_PIECES // len(mixes)) if pairs else 0):
                which = (call + piece) % len(pairs)
                mirror = mirrors[which]
                start, size = mirror.late_piece(mix, piece)
                late.append((mirror, pairs[which], mix, start, size))
        for _ in mixes:
            self.poison_pool(poison)
        for mirror, _, _, start, size in late:
            mirror.elements[start:start + size].view(torch.uint8).fill_(0xFF)
        for _ in range((len(mixes) - 1) // CALLS_PER_FLUSH + 1):
            self.flush.fill_(poison & 0xFF)
        for mirror, pair, mix, start, size in late:
            mirror.mix_part(pair, mix, start, size)
        for call in range(len(mixes)):
            for mirror in self.berth(call):
                mirror.convert()
        gc.disable()
        try:
            return self.time_behind(len(mixes))
        finally:
            gc.enable()

    def make_slot(self, slot):
        """Memory for inputs, and for results where it is known what they are like."""
        results = self.given.get(0, [])
        while len(self.slots) <= slot:
            self.slots.append([[torch.empty_like(mirror.memory) for mirror in self.inputs],
                               [torch.empty_like(result) for result in results] or None])

    def keep(self, call, slot):
        self.make_slot(slot)
        self.put(slot, self.berth(call), self.given[call])

    def put(self, slot, mirrors, results):
        """Into memory that the slot has: large tensors are there once."""
        kept = self.slots[slot]
        for copy, mirror in zip(kept[0], mirrors):
            copy.copy_(mirror.memory)
        if kept[1] is None:
            kept[1] = [result.clone() for result in results]
            return
        for copy, result in zip(kept[1], results):
            copy.copy_(result)

    def burst(self, mixes, poison, slots, empty):
        first, count = slots["first"], slots["count"]
        self.make_slot(first + count - 1)
        self.settle("waiting for the device before a row of calls")
        self.forget_persisting_lines()
        self.given = {}
        for position, mix in enumerate(mixes):
            self.mix_inputs(self.inputs, mix)
            for mirror in self.inputs:
                mirror.convert()
            self.poison_pool(poison)
            self.flush[:min(ROW_FILL_BYTES, self.flush.numel())].fill_(poison & 0xFF)
            if empty:
                continue
            results = self.runner.results(self.call(0))
            self.put(first + position % count, self.inputs, results)
            # The next call may have the same memory, behind poison.
            del results
        self.settle("a row of calls")
        return {"rest_ns": 0}

    def fetch(self, slot, outputs_only):
        inputs, results = self.slots[slot]
        for mirror, copy in zip(self.inputs, inputs):
            mirror.memory.copy_(copy)
        self.deliver([] if outputs_only else self.inputs, results)


def tell_of(error):
    """The part of a traceback that is the program's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != "<string>"]
    lines = traceback.format_list(frames[-8:]) + traceback.format_exception_only(type(error), error)
    print("".join(lines)[-6000:], file=sys.stderr, flush=True)


def told(error):
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if "program" in frame.name or frame.filename.endswith(".py")]
    frames = [frame for frame in lines if frame.filename != "<string>"]
    at = f" (line {frames[-1].lineno})" if frames else ""
    return "".join(traceback.format_exception_only(type(error), error)).strip()[-1500:] + at


def written(reply):
    """A message as others can read it: half of a surrogate pair, which a text of a program may hold, is no character of theirs."""
    text = json.dumps(reply, ensure_ascii=False)
    return "".join(f"\\\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def refuse_system_calls(program):
    """No further processes, threads and the like, where the plan says so: for all threads of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = bytes.fromhex(program)
    count = len(instructions) // 8
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    header = struct.pack("HxxxxxxP", count, ctypes.addressof(buffer))
    block = ctypes.create_string_buffer(header, len(header))
    number = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine)
    if number is None:
        raise Fault("filtering system calls", "this processor is not known")
    SET_MODE_FILTER, TSYNC = 1, 1
    if libc.syscall(number, SET_MODE_FILTER, TSYNC, ctypes.byref(block)) != 0:
        raise Fault("filtering system calls", os.strerror(ctypes.get_errno()))


def replay(plan, memory, warmups, calls):
    """Calls the program on the inputs that the arena holds; each of the last calls between the marks."""
    runner = Runner(plan, memory)

    def done(kind, **asked):
        reply = runner.answer(kind, asked)
        if reply.get("load_error") or reply.get("fault") or reply.get("status"):
            raise SystemExit(f"replay: {reply}")

    for kind in ("open", "load", "init"):
        done(kind)
    for _ in range(warmups + 1):
        done("run", poison=POISON, weights=False, outputs_only=True)
    driver = ctypes.CDLL("libcuda.so.1")
    tensors = [mirror.own for mirror in runner.device.inputs]
    for _ in range(calls):
        driver.cuProfilerStart()
        runner.forward(tensors)
        driver.cuCtxSynchronize()
        driver.cuProfilerStop()
    return 0


def mapped(descriptor, size, on_device, flags=mmap.MAP_SHARED):
    memory = mmap.mmap(descriptor, size, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(descriptor)
    if on_device and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # no large pages here
    return memory


def main():
    given = json.loads(sys.argv[1])
    with os.fdopen(given["plan"], "rb") as file:
        plan = json.loads(file.read())
    if not plan["on_device"]:
        torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if "replay" in given:
        return replay(plan, mapped(given["arena"], plan["total_bytes"], False, mmap.MAP_PRIVATE), **given["replay"])
    channel = socket.socket(fileno=given["channel"])
    runner = Runner(plan, mapped(given["arena"], plan["total_bytes"], plan["on_device"]))
    filtered = False
    while True:
        text, descriptors, _, _ = socket.recv_fds(channel, MAX_SHORT_BYTES, 2)
        if not text:
            return 0
        (kind, asked), = json.loads(text).items()
        if kind == "bytes_in_file":
            with os.fdopen(descriptors.pop(), "rb") as file:
                (kind, asked), = json.loads(file.read(asked)).items()
        if kind == "take":
            runner.program = None
            memory = mapped(descriptors[0], asked["plan"]["total_bytes"], plan["on_device"]) if descriptors else runner.memory
            runner.take_plan(asked["plan"], memory)
            reply = {}
        else:
            reply = runner.answer(kind, asked)
        if kind == "open" and not filtered and "fault" not in reply:
            filtered = True
            try:
                if plan["torch"].get("filter"):
                    refuse_system_calls(plan["torch"]["filter"])
            except Fault as fault:
                reply = {"fault": {"during": fault.during, "error": fault.error}}
        reply["nonce"] = asked["nonce"]
        channel.send(written(reply))


sys.exit(main())
