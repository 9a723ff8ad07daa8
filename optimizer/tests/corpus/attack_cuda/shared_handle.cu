// expect: device_ipc
#include "nightshift.h"
#include <cuda_runtime.h>
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    cudaIpcMemHandle_t handle;
    return cudaIpcGetMemHandle(&handle, outputs[0].data);
}
