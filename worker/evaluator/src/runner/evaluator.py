"""Runs one program of PyTorch for an evaluator in another process: the same messages as the runner of libraries answers, on the
same socket, control page and shared memory. The program can change this code, so the evaluator trusts nothing that it says:
values are read from shared memory while this process is stopped, and times are those of the evaluator's clock.

Run as: python -I -B -c SOURCE START. SOURCE is `arguments.py` of the toolchain with this file behind it. START is JSON: {"plan",
"channel", "page"}, or {"plan", "replay"} to repeat one call between the marks that profilers look for.
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

# Words of the control page.
COMMAND, KIND, COUNT, DONE, STATUS, EVENTS_LOW, EVENTS_HIGH = 0, 1, 2, 16, 17, 18, 19
CALLS, EMPTY, LEAVE = 1, 2, 3

ELEMENTS = {
    "f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i64": torch.int64, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}


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


def first_line(error):
    lines = str(error).splitlines()
    return lines[0][:300] if lines else type(error).__name__


MARKER = "#nightshift-extension "


def extensions_of(path):
    """The extensions that were built before: comments behind the program, each a name and a library."""
    with open(path, encoding="utf-8") as file:
        lines = [line[len(MARKER):].split() for line in file if line.startswith(MARKER)]
    return {name: base64.b64decode(text) for name, text in lines}


def use_extensions(path):
    """Gives the program the extensions that were built before, instead of building them now."""
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
            # PyTorch's own way to load operators follows the link, and finds no file at its end.
            ctypes.CDLL(library)
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, library)
        spec = importlib.util.spec_from_file_location(name, library, loader=loader)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module

    cpp.load_inline = cpp.load = loaded


def widen(model):
    """Tensors that a module keeps outside of its state."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                setattr(module, name, value.double())


class Program:
    """The model of a file."""

    def __init__(self, plan, device):
        self.torch, self.double, self.device = plan["torch"], plan["double"], device
        path = plan["program"]
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
        # What the model is compared with: a program with the reference, and the reference with the task.
        self.other = "the reference" if hasattr(module, "ModelNew") else "task.toml"
        self.names = None
        call = self.torch.get("call")
        self.call = [decoded_call(entry) for entry in json.loads(call)] if call else None

    def match(self, params):
        """Finds the entry of the model's state for each weight: by name, else in order, where shapes agree."""
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
        # Entries that share the memory of a weight under another name.
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
        """Hands over the weights. What the task does not name stays as the constructor made it."""
        state = {name: tensor.clone() for name, tensor in self.untouched.items()}
        state.update(zip(self.names, weights))
        state.update((name, state[known]) for name, known in self.shared.items())
        self.model.load_state_dict(state, strict=True)

    def arguments(self, tensors):
        if self.call is None:
            return tensors
        given = iter(tensors)
        return [next(given) if is_input else value for is_input, value in self.call]


class Place:
    """One tensor in shared memory."""

    def __init__(self, placed):
        self.name, self.shape = placed["name"], placed["shape"]
        self.dtype = ELEMENTS[placed["element"]]
        self.offset, self.size = placed["region"]["offset"], placed["region"]["size"]

    def of(self, memory):
        """The tensor itself: what is written to it is written to shared memory."""
        return memory[self.offset:self.offset + self.size].view(self.dtype).reshape(self.shape)


class Driver:
    """The CUDA driver's calls that map memory of another process."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    class Location(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]

    class Access(ctypes.Structure):
        pass

    def done(self, result, during):
        if result != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(result, ctypes.byref(text))
            raise Fault(during, (text.value or b"unknown error").decode())

    def map(self, descriptor, size, device):
        size = (max(size, 1) + GRANULARITY_BYTES - 1) // GRANULARITY_BYTES * GRANULARITY_BYTES
        handle, address, zero = ctypes.c_ulonglong(), ctypes.c_ulonglong(), ctypes.c_ulonglong(0)
        imported = self.library.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(descriptor), 1)
        self.done(imported, "importing memory of the device")
        reserved = self.library.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), zero, zero)
        self.done(reserved, "reserving addresses")
        self.done(self.library.cuMemMap(address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, zero), "mapping memory")
        access = self.Access(self.Location(1, device), 3)
        opened = self.library.cuMemSetAccess(address, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
        self.done(opened, "opening memory of the device")
        return handle, address, size

    def unmap(self, handle, address, size):
        self.library.cuMemUnmap(address, ctypes.c_size_t(size))
        self.library.cuMemAddressFree(address, ctypes.c_size_t(size))
        self.library.cuMemRelease(handle)

    class Handle(ctypes.Structure):
        _fields_ = [("reserved", ctypes.c_ubyte * 64)]

    def open(self, handle):
        """Where the driver cannot export memory by descriptors."""
        address, lazy_peer_access = ctypes.c_ulonglong(), ctypes.c_uint(1)
        opened = self.library.cuIpcOpenMemHandle_v2(ctypes.byref(address), self.Handle((ctypes.c_ubyte * 64)(*handle)), lazy_peer_access)
        self.done(opened, "opening memory of the device")
        return address

    def close(self, address):
        self.library.cuIpcCloseMemHandle(address)


Driver.Access._fields_ = [("location", Driver.Location), ("flags", ctypes.c_int)]


class Bytes:
    """Memory of the device, as PyTorch takes it."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None}


class HostMemory:
    def __init__(self, descriptor, size):
        self.map = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.tensor = torch.frombuffer(self.map, dtype=torch.uint8, count=size)

    def release(self):
        self.tensor = None


class DeviceMemory:
    def __init__(self, driver, descriptor, size, device):
        mapped = driver.map(descriptor, size, device.index)
        self.tensor = torch.as_tensor(Bytes(mapped[1].value, size), device=device)
        self.give_back = lambda: driver.unmap(*mapped)

    def release(self):
        self.tensor = None
        self.give_back()


class MemoryByHandle(DeviceMemory):
    def __init__(self, driver, handle, size, device):
        address = driver.open(handle)
        self.tensor = torch.as_tensor(Bytes(address.value, size), device=device)
        self.give_back = lambda: driver.close(address)


class Runner:
    def __init__(self, plan, page):
        self.plan, self.page, self.sequence = plan, page, 0
        self.on_device = plan["on_device"]
        self.device = torch.device("cpu")
        self.driver = self.events = self.memory = self.program = None
        self.layouts, self.params, self.calls, self.workload = [], [], [], None

    # --- Messages ---------------------------------------------------------------------------------------------------

    def answer(self, kind, asked, descriptors):
        try:
            return getattr(self, "on_" + kind)(asked, descriptors)
        except Exception as error:
            return failed(error)

    def on_hello(self, asked, descriptors):
        return {}

    def on_open(self, asked, descriptors):
        if self.on_device and self.driver is None:
            torch.cuda.init()
            self.device = torch.device("cuda", torch.cuda.current_device())
            self.driver = Driver()
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            # What the first use of each costs is not the program's.
            self.events[0].record()
            torch.empty(16, dtype=torch.uint8, device=self.device).fill_(0)
            self.events[1].record()
            self.synchronize("opening the device")
        return {}

    def on_map(self, asked, descriptors):
        self.on_unmap(asked, descriptors)
        size, handle = asked["size"], asked.get("handle")
        if handle is not None:
            self.memory = MemoryByHandle(self.driver, handle, size, self.device)
        elif self.on_device:
            self.memory = DeviceMemory(self.driver, descriptors[0], size, self.device)
        else:
            self.memory = HostMemory(descriptors[0], size)
        self.layouts = asked["layouts"]
        self.select(0)
        return {}

    def on_unmap(self, asked, descriptors):
        self.synchronize("before other memory is mapped")
        self.params, self.calls, self.workload = [], [], None
        if self.memory is not None:
            self.memory.release()
        self.memory = None
        return {}

    def on_load(self, asked, descriptors):
        try:
            self.program = Program(asked, self.device)
            sys.stdout.flush()
        except Wrong as wrong:
            return {"load_error": str(wrong)}
        except BaseException as error:
            if is_fault(error):
                return {"fault": {"during": "building the model", "error": first_line(error)}}
            print_traceback(error)
            return {"load_error": summary(error)}
        return {}

    def on_shape(self, asked, descriptors):
        self.select(asked["number"])
        return {}

    def on_init(self, asked, descriptors):
        try:
            self.program.match(self.params)
        except Wrong as wrong:
            return {"load_error": str(wrong)}
        self.program.load_state([place.of(self.memory.tensor).clone() for place in self.params])
        self.synchronize("handing over the weights")
        return {}

    def on_call(self, asked, descriptors):
        status, events_ns = self.run(asked["count"])
        return {"status": status, "events_ns": events_ns}

    def on_empty(self, asked, descriptors):
        self.empty(asked["count"])
        return {}

    def on_trim(self, asked, descriptors):
        self.workload = None
        if self.on_device:
            torch.cuda.empty_cache()
        return {}

    def on_windows(self, asked, descriptors):
        """Carries out windows until the page says to leave."""
        page = self.page
        while True:
            while page[COMMAND] == self.sequence:
                pass
            self.sequence = page[COMMAND]
            kind, count = page[KIND], page[COUNT]
            reply, status, events_ns = {}, 0, 0
            if kind in (CALLS, EMPTY):
                try:
                    status, events_ns = self.run(count) if kind == CALLS else self.empty(count)
                except Exception as error:
                    reply = failed(error)
                    status = reply.get("status") or DEVICE_FAILED
            page[STATUS] = status & 0xFFFFFFFF
            page[EVENTS_LOW], page[EVENTS_HIGH] = events_ns & 0xFFFFFFFF, events_ns >> 32
            page[DONE] = self.sequence
            if status != 0:
                return reply
            if kind == LEAVE:
                return {}

    # --- Calls ------------------------------------------------------------------------------------------------------

    def select(self, number):
        layout = self.layouts[number]
        memory = self.memory.tensor
        self.params = [Place(placed) for placed in layout["params"]]
        self.calls = []
        for call in layout["calls"]:
            inputs = [Place(placed).of(memory) for placed in call["inputs"]]
            outputs = [Place(placed) for placed in call["outputs"]]
            self.calls.append((inputs, [(place, place.of(memory)) for place in outputs]))
        self.workload = None

    def synchronize(self, during):
        if not self.on_device or self.driver is None:
            return
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise Fault(during, first_line(error)) from None

    def forward(self, tensors):
        program = self.program
        arguments = program.arguments(tensors)
        if program.double:
            torch.set_default_dtype(torch.float64)
        try:
            with torch.no_grad():
                return program.model(*arguments)
        finally:
            if program.double:
                torch.set_default_dtype(torch.float32)

    def results(self, given, outputs):
        """The tensors of a result, if they are what the contract says."""
        flat = list(given) if isinstance(given, (list, tuple)) else [given]
        other, device = self.program.other, self.program.device
        if len(flat) != len(outputs):
            raise Wrong(f"forward gave {len(flat)} results, and {other} has {len(outputs)}")
        for result, (place, target) in zip(flat, outputs):
            if type(result) is not torch.Tensor and type(result) is not torch.nn.Parameter:
                raise Wrong(f"forward gave a {type(result).__name__}, and not a torch.Tensor")
            if list(result.shape) != place.shape:
                raise Wrong(f"forward gave a tensor of the shape {list(result.shape)}, and {other}'s has {place.shape}")
            if not self.is_right(result.dtype, target.dtype, place.name):
                raise Wrong(f"forward gave a tensor of {result.dtype}, and {other}'s is of {target.dtype}")
            if result.device.type != device.type:
                raise Wrong(f"forward gave a tensor on {result.device}, and not on {device}")
            if result.layout is not torch.strided or result.is_conj() or result.is_neg():
                raise Wrong("forward gave a tensor that is no plain one")
        return flat

    def is_right(self, dtype, wanted, name):
        own = self.program.torch.get("types", {}).get(name)
        if own:
            return dtype == getattr(torch, own)
        return dtype == wanted or (self.program.double and dtype.is_floating_point and wanted == torch.float64)

    def run(self, count):
        """So many calls; each leaves its results in shared memory before the next one begins."""
        on_device = self.on_device
        # Frees the results of the last call, so that those of two calls never take memory at the same time.
        self.workload = None
        gc.disable()
        try:
            if on_device:
                self.events[0].record()
            for number in range(count):
                inputs, outputs = self.calls[number % len(self.calls)]
                given = self.forward(inputs)
                flat = self.results(given, outputs)
                for result, (_, target) in zip(flat, outputs):
                    target.copy_(result)
            if not on_device:
                self.workload = flat
                return 0, 0
            self.events[1].record()
            self.synchronize("the call")
            # Results of the last call: what an empty window delivers.
            self.workload = flat
            return 0, int(self.events[0].elapsed_time(self.events[1]) * 1e6)
        finally:
            gc.enable()

    def empty(self, count):
        """The same without the program."""
        on_device, results = self.on_device, self.workload or []
        if on_device:
            self.events[0].record()
        for number in range(count):
            _, outputs = self.calls[number % len(self.calls)]
            for result, (_, target) in zip(results, outputs):
                target.copy_(result)
        if on_device:
            if not results:
                self.memory.tensor[:4].fill_(0)
            self.events[1].record()
            self.synchronize("an empty window")
        return 0, 0


def failed(error):
    """The reply to a message that could not be carried out."""
    if isinstance(error, Fault):
        return {"fault": {"during": error.during, "error": error.error}}
    if isinstance(error, Wrong):
        print(f"{error}", file=sys.stderr, flush=True)
        return {"status": WRONG_RESULT}
    if is_fault(error):
        return {"fault": {"during": "the call", "error": first_line(error)}}
    print_traceback(error)
    return {"status": RAISED}


def print_traceback(error):
    """The part of a traceback that is the program's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != "<string>"]
    lines = traceback.format_list(frames[-8:]) + traceback.format_exception_only(type(error), error)
    print("".join(lines)[-6000:], file=sys.stderr, flush=True)


def summary(error):
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if frame.filename != "<string>" and ("program" in frame.name or frame.filename.endswith(".py"))]
    at = f" (line {frames[-1].lineno})" if frames else ""
    return "".join(traceback.format_exception_only(type(error), error)).strip()[-1500:] + at


def encoded(reply):
    """JSON that every reader accepts: half of a surrogate pair, which a text of a program may hold, is no character."""
    text = json.dumps(reply, ensure_ascii=False)
    return "".join(f"\\\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def refuse_system_calls(program):
    """Puts a filter of system calls in force, for all threads of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = bytes.fromhex(program)
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    header = struct.pack("HxxxxxxP", len(instructions) // 8, ctypes.addressof(buffer))
    block = ctypes.create_string_buffer(header, len(header))
    number = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine)
    if number is None:
        raise Fault("filtering system calls", "this processor is not known")
    SET_MODE_FILTER, TSYNC = 1, 1
    if libc.syscall(number, SET_MODE_FILTER, TSYNC, ctypes.byref(block)) != 0:
        raise Fault("filtering system calls", os.strerror(ctypes.get_errno()))


def replay(plan, replayed):
    """Repeats the call whose tensors lie in a file, with the last calls between the marks of profilers."""
    runner = Runner({"on_device": True}, None)

    def done(reply):
        if reply.get("load_error") or reply.get("fault") or reply.get("status"):
            raise SystemExit(f"replay: {reply}")

    done(runner.on_open({}, []))
    with open(replayed["tensors"], "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

    class Memory:
        tensor = data.to(runner.device)

        def release(self):
            pass

    runner.memory, runner.layouts = Memory(), [replayed["layout"]]
    runner.select(0)
    done(runner.on_load(plan, []))
    done(runner.on_init({}, []))
    for _ in range(replayed["warmups"] + 1):
        done({"status": runner.run(1)[0]})
    driver = runner.driver.library
    inputs, _ = runner.calls[0]
    for _ in range(replayed["calls"]):
        driver.cuProfilerStart()
        runner.forward(inputs)
        driver.cuCtxSynchronize()
        driver.cuProfilerStop()
    return 0


def main():
    start = json.loads(sys.argv[1])
    plan = start["plan"]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if "replay" in start:
        return replay(plan, start["replay"])
    if not plan["on_device"]:
        torch.set_num_threads(1)
    channel = socket.socket(fileno=start["channel"])
    page = memoryview(mmap.mmap(start["page"], PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)).cast("I")
    runner = Runner(plan, page)
    filtered = False
    while True:
        text, descriptors, _, _ = socket.recv_fds(channel, MAX_SHORT_BYTES, 3)
        if not text:
            return 0
        message = json.loads(text)
        if "bytes_in_file" in message:
            with os.fdopen(descriptors.pop(), "rb") as file:
                message = json.loads(file.read(message["bytes_in_file"]))
        (kind, asked), = message["request"].items()
        reply = runner.answer(kind, asked, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        # A Python without a device is ready for programs once it has loaded PyTorch.
        is_ready = kind == ("open" if plan["on_device"] else "hello")
        if is_ready and not filtered and "fault" not in reply:
            filtered = True
            try:
                if start.get("filter"):
                    refuse_system_calls(start["filter"])
            except Fault as fault:
                reply = failed(fault)
        reply["nonce"] = message["nonce"]
        channel.send(encoded(reply))


sys.exit(main())
