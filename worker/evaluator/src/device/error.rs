//! Errors of the CUDA driver.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUresult};
use serde::{Deserialize, Serialize};

/// An error of the device's driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("the GPU reported {error} ({during})")]
pub struct DeviceError {
    /// The driver's name of the error, for example `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub error: String,
    /// The failed operation.
    pub during: String,
}

/// Result of a call of the driver.
pub(crate) type Outcome<T> = Result<T, DeviceError>;

pub(crate) fn checked(result: CUresult, during: &str) -> Outcome<()> {
    if result == CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(DeviceError { during: during.to_owned(), error: name(result) })
    }
}

fn name(result: CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the driver gives a string that lives as long as it does, or an error.
    unsafe {
        if sys::cuGetErrorName(result, &raw mut text) != CUresult::CUDA_SUCCESS || text.is_null() {
            return format!("{result:?}");
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// Returns the error behind the status of an entry point. Most programs return an error of the CUDA runtime, whose numbers are
/// the driver's from 100 on, and 2 for memory that ran out.
pub(crate) fn error_of_status(status: i32, entry_point: &str) -> Option<DeviceError> {
    let error = match status {
        2 => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        100.. => KNOWN_ERRORS.into_iter().find(|error| *error as i32 == status)?,
        _ => return None,
    };
    Some(DeviceError { during: format!("`{entry_point}` returned it"), error: name(error) })
}

/// Errors that programs meet in addition to a lack of memory.
const KNOWN_ERRORS: [CUresult; 12] = [
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_OPERATING_SYSTEM,
    CUresult::CUDA_ERROR_INVALID_HANDLE,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_NOT_SUPPORTED,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_runtime_are_told_from_other_statuses() {
        assert_eq!(error_of_status(1, "ns_run"), None);
        assert_eq!(error_of_status(12345, "ns_run"), None);
    }
}
