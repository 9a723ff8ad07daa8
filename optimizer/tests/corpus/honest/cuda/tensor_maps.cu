#include "nightshift.h"
#include <cuda.h>
#include <cuda_runtime.h>
#include <cudaTypedefs.h>

using Encode = PFN_cuTensorMapEncodeTiled_v12000;

static Encode encoder() {
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found) != cudaSuccess) return nullptr;
    return reinterpret_cast<Encode>(entry);
}

__global__ void tiles(const __grid_constant__ CUtensorMap map, float *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = reinterpret_cast<const float *>(&map)[0];
}

NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    CUtensorMap map{};
    if (encoder() == nullptr) return 1;
    tiles<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>(map, static_cast<float *>(out[0].data));
    return 0;
}
