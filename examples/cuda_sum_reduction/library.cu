// Library baseline: cub::DeviceReduce::Sum does the whole of the work.
// CUB adds in a tree, so the rounding error stays small for eight million elements.

#include "nightshift.h"

#include <cub/device/device_reduce.cuh>
#include <cuda_runtime.h>

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *total = static_cast<float *>(outputs[0].data);
    const int64_t count = inputs[0].shape[0];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    // CUB stores one partial sum per block. It returns an error if the workspace is too small.
    size_t bytes = NS_WORKSPACE_BYTES;
    return static_cast<int>(cub::DeviceReduce::Sum(workspace, bytes, x, total, count, on));
}
