# Maps shared memory on the host or on a device. The source continues `program.py`.


class Place:
    """Describes the position, type and shape of one tensor in shared memory."""

    def __init__(self, placed):
        self.name, self.shape = placed["name"], placed["shape"]
        self.dtype = ELEMENTS[placed["element"]]
        self.offset, self.size = placed["region"]["offset"], placed["region"]["size"]

    def of(self, memory):
        """Returns the tensor as a view of shared memory."""
        return memory[self.offset:self.offset + self.size].view(self.dtype).reshape(self.shape)


class Driver:
    """Maps device memory of another process through the CUDA driver."""

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
        """Opens an IPC handle. The evaluator sends one if the driver cannot export memory as a file descriptor."""
        address, lazy_peer_access = ctypes.c_ulonglong(), ctypes.c_uint(1)
        opened = self.library.cuIpcOpenMemHandle_v2(ctypes.byref(address), self.Handle((ctypes.c_ubyte * 64)(*handle)), lazy_peer_access)
        self.done(opened, "opening memory of the device")
        return address

    def close(self, address):
        self.library.cuIpcCloseMemHandle(address)


Driver.Access._fields_ = [("location", Driver.Location), ("flags", ctypes.c_int)]


class Bytes:
    """Presents device memory to PyTorch through the CUDA array interface."""

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
