# Answers the messages of the evaluator. The source continues `memory.py`.

# Taken before a program can give its tensors methods of its own.
COPY, DATA_PTR, IS_CONJ, IS_NEG = torch.Tensor.copy_, torch.Tensor.data_ptr, torch.Tensor.is_conj, torch.Tensor.is_neg


class Runner:
    def __init__(self, plan, page):
        self.plan, self.page, self.sequence = plan, page, 0
        self.on_device = plan["on_device"]
        self.device = torch.device("cpu")
        self.driver = self.events = self.memory = self.program = None
        self.layouts, self.params, self.calls, self.workload = [], [], [], None
        self.reuses_inputs = False

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
            # The first use of events and kernels is slow. The evaluator must not attribute this time to the program.
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
        """Runs the timed windows that the control page requests, until the page holds the command LEAVE."""
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
        self.reuses_inputs = layout["reuses_inputs"]
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
        """Returns the results of a call as a list. Raises Wrong if they violate the contract."""
        flat = list(given) if isinstance(given, (list, tuple)) else [given]
        other, device = self.program.other, self.program.device
        if len(flat) != len(outputs):
            raise Wrong(f"forward gave {len(flat)} results, and {other} has {len(outputs)}")
        for number, (result, (place, target)) in enumerate(zip(flat, outputs)):
            if type(result) is not torch.Tensor and type(result) is not torch.nn.Parameter:
                raise Wrong(f"forward gave a {type(result).__name__}, and not a torch.Tensor")
            if list(result.shape) != place.shape:
                raise Wrong(f"forward gave a tensor of the shape {list(result.shape)}, and {other}'s has {place.shape}")
            if not self.is_right(result.dtype, target.dtype, place.name):
                raise Wrong(f"forward gave a tensor of {result.dtype}, and {other}'s is of {target.dtype}")
            if result.device.type != device.type:
                raise Wrong(f"forward gave a tensor on {result.device}, and not on {device}")
            if result.layout is not torch.strided or IS_CONJ(result) or IS_NEG(result):
                raise Wrong("forward gave a tensor that is no plain one")
            if self.reuses_inputs and self.is_input(result):
                # Outputs of a trusted model are copied to where its inputs lie.
                flat[number] = result.clone()
            # A copy onto itself does nothing, and the time of a copy is subtracted.
            elif DATA_PTR(result) == DATA_PTR(target):
                raise Wrong("forward gave the memory to which this runner copies the result: a program gives tensors of its own")
        return flat

    def is_input(self, result):
        """Returns whether a result is a view of the memory in which the inputs lie."""
        return result.untyped_storage().data_ptr() == self.memory.tensor.untyped_storage().data_ptr()

    def is_right(self, dtype, wanted, name):
        own = self.program.torch.get("types", {}).get(name)
        if own:
            return dtype == getattr(torch, own)
        return dtype == wanted or (self.program.double and dtype.is_floating_point and wanted == torch.float64)

    def run(self, count):
        """Calls the program `count` times. Each call copies its results to shared memory before the next call begins.

        Returns the status and the time between the device events in nanoseconds.
        """
        on_device = self.on_device
        # Frees the results of the previous run before the program allocates new ones.
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
                    COPY(target, result)
            if not on_device:
                self.workload = flat
                return 0, 0
            self.events[1].record()
            self.synchronize("the call")
            # An empty window copies these results again.
            self.workload = flat
            return 0, int(self.events[0].elapsed_time(self.events[1]) * 1e6)
        finally:
            gc.enable()

    def empty(self, count):
        """Copies the results of the last call `count` times without calling the program.

        On a device, a write of four bytes takes the place of missing results.
        """
        on_device, results = self.on_device, self.workload or []
        if on_device:
            self.events[0].record()
        for number in range(count):
            _, outputs = self.calls[number % len(self.calls)]
            for result, (_, target) in zip(results, outputs):
                COPY(target, result)
        if on_device:
            if not results:
                self.memory.tensor[:4].fill_(0)
            self.events[1].record()
            self.synchronize("an empty window")
        return 0, 0


def failed(error):
    """Returns the reply to a message that failed with this error."""
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
    """Prints the traceback of an error without the frames of this runner."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != "<string>"]
    lines = traceback.format_list(frames[-8:]) + traceback.format_exception_only(type(error), error)
    print("".join(lines)[-6000:], file=sys.stderr, flush=True)


def summary(error):
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if frame.filename != "<string>" and ("program" in frame.name or frame.filename.endswith(".py"))]
    at = f" (line {frames[-1].lineno})" if frames else ""
    return "".join(traceback.format_exception_only(type(error), error)).strip()[-1500:] + at


def encoded(reply):
    """Returns a reply as JSON bytes. Escapes lone surrogates, which a program's text may contain but UTF-8 cannot represent."""
    text = json.dumps(reply, ensure_ascii=False)
    return "".join(f"\\\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def refuse_system_calls(program):
    """Installs a seccomp filter for all threads of this process. `program` holds its instructions in hexadecimal digits."""
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
    """Repeats a call with the tensors of a file. After the warm-up, `cuProfilerStart` and `cuProfilerStop` enclose each call."""
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
        # The start needs system calls that the filter refuses. The start is complete after `open`, or without a device after `hello`,
        # when PyTorch is loaded.
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
