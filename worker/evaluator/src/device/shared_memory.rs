//! Memory of a device that the evaluator makes and one process of a program maps.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cudarc::driver::sys::{
    self, CUdevice, CUdeviceptr, CUipcMem_flags, CUipcMemHandle, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};

use super::driver::Context;
use super::error::{DeviceError, Outcome, checked};

/// Granularity of memory that can be shared, on every device so far: nothing else lies in the same piece.
const GRANULARITY_BYTES: usize = 2 << 20;

/// Bytes of a handle.
const HANDLE_BYTES: usize = 64;

/// Names shared memory for another process.
#[derive(Debug)]
pub enum Exported {
    /// A file descriptor of the driver's virtual memory interface.
    Descriptor(OwnedFd),
    /// The bytes of a handle of CUDA's older interface between processes, where a driver cannot export descriptors.
    Handle(Vec<u8>),
}

/// Memory of a device that several processes map.
#[derive(Debug)]
pub struct SharedMemory {
    held: Backing,
    /// Address of the mapping in this process.
    pub(crate) address: CUdeviceptr,
    /// Size of the mapping in bytes: at least what was asked for.
    pub(crate) size: usize,
}

/// How this process obtained the memory.
#[derive(Debug, Clone, Copy)]
enum Backing {
    /// Mapped by the virtual memory interface.
    Mapped(CUmemGenericAllocationHandle),
    /// Allocated, to be shared by a handle.
    Allocated,
    /// Opened by the handle of another process.
    Opened,
}

impl SharedMemory {
    /// Allocates memory that can be exported, and maps it.
    pub(crate) fn new(context: &Context, size: usize, by_descriptor: bool) -> Outcome<Self> {
        let size = size.max(1).next_multiple_of(GRANULARITY_BYTES);
        if !by_descriptor {
            let mut address = 0;
            // SAFETY: a context is current, and the pointer is valid for the call.
            checked(unsafe { sys::cuMemAlloc_v2(&raw mut address, size) }, "allocating memory of the device")?;
            return Ok(Self { held: Backing::Allocated, address, size });
        }
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: location(context.device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let mut handle = 0;
        // SAFETY: a context is current, and every pointer is valid for its call.
        let created = unsafe { sys::cuMemCreate(&raw mut handle, size, &raw const properties, 0) };
        checked(created, "allocating memory of the device")?;
        Self::map(context, handle, size)
    }

    /// Maps memory that another process exported.
    pub(crate) fn import(context: &Context, exported: &Exported, size: usize) -> Outcome<Self> {
        let size = size.max(1).next_multiple_of(GRANULARITY_BYTES);
        match exported {
            Exported::Descriptor(descriptor) => {
                let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
                let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(0);
                let mut handle = 0;
                // SAFETY: a context is current; the driver takes the descriptor's number in the place of the pointer.
                let imported = unsafe {
                    sys::cuMemImportFromShareableHandle(&raw mut handle, std::ptr::without_provenance_mut(number), kind)
                };
                checked(imported, "importing memory of the device")?;
                Self::map(context, handle, size)
            }
            Exported::Handle(bytes) => {
                let bytes: [u8; HANDLE_BYTES] = bytes.as_slice().try_into().map_err(|_| DeviceError {
                    during: "opening memory of the device".to_owned(),
                    error: "the handle has another size".to_owned(),
                })?;
                let handle = CUipcMemHandle { reserved: bytes.map(u8::cast_signed) };
                let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
                let mut address = 0;
                // SAFETY: a context is current, and the pointer is valid for the call.
                let opened = unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut address, handle, flags) };
                checked(opened, "opening memory of the device")?;
                Ok(Self { held: Backing::Opened, address, size })
            }
        }
    }

    fn map(context: &Context, handle: CUmemGenericAllocationHandle, size: usize) -> Outcome<Self> {
        let mut address = 0;
        let access = CUmemAccessDesc {
            location: location(context.device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: a context is current, and every pointer is valid for its call. What was done is undone when this is dropped,
        // or here when a later step fails.
        unsafe {
            if let Err(error) =
                checked(sys::cuMemAddressReserve(&raw mut address, size, 0, 0, 0), "reserving addresses")
            {
                let _ = sys::cuMemRelease(handle);
                return Err(error);
            }
            let mapped = Self { held: Backing::Mapped(handle), address, size };
            checked(sys::cuMemMap(address, size, 0, handle, 0), "mapping memory of the device")?;
            checked(sys::cuMemSetAccess(address, size, &raw const access, 1), "opening memory of the device")?;
            Ok(mapped)
        }
    }

    /// Exports the memory to another process.
    pub(crate) fn export(&self) -> Outcome<Exported> {
        // SAFETY: the pointers are valid for their calls, and the driver writes a descriptor or a handle to them.
        unsafe {
            if let Backing::Mapped(handle) = self.held {
                let mut descriptor = -1_i32;
                let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
                let place = (&raw mut descriptor).cast::<c_void>();
                checked(sys::cuMemExportToShareableHandle(place, handle, kind, 0), "exporting memory of the device")?;
                return Ok(Exported::Descriptor(OwnedFd::from_raw_fd(descriptor)));
            }
            let mut handle = CUipcMemHandle { reserved: [0; HANDLE_BYTES] };
            checked(sys::cuIpcGetMemHandle(&raw mut handle, self.address), "exporting memory of the device")?;
            Ok(Exported::Handle(handle.reserved.iter().map(|byte| byte.cast_unsigned()).collect()))
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: each is undone once, in the way in which it was done. Mapped memory stays valid in processes that imported it; what
        // was opened by a handle is closed there before this process frees it.
        unsafe {
            match self.held {
                Backing::Mapped(handle) => {
                    let _ = sys::cuMemUnmap(self.address, self.size);
                    let _ = sys::cuMemAddressFree(self.address, self.size);
                    let _ = sys::cuMemRelease(handle);
                }
                Backing::Allocated => {
                    let _ = sys::cuMemFree_v2(self.address);
                }
                Backing::Opened => {
                    let _ = sys::cuIpcCloseMemHandle(self.address);
                }
            }
        }
    }
}

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}
