#include "nightshift.h"
#include <cuda_runtime.h>

#define CHECK(call)                                \
    do {                                           \
        if ((call) != cudaSuccess) return 1;       \
    } while (0)

namespace mine {
struct cudaTimer { float clock_ratio; };
inline int cudaCheck(cudaError_t status) { return status != cudaSuccess; }
__device__ float time_scale(float system, float clock_rate) { return system * clock_rate; }
}  // namespace mine

// cudaDeviceReset() would be wrong here, "cudaSetDevice" as well.
__global__ void scale(float *x, float system) { x[threadIdx.x] = mine::time_scale(x[threadIdx.x], system); }

NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    const char *text = "cudaIpcOpenMemHandle";
    scale<<<1, 32, 0, (cudaStream_t)stream>>>((float *)out[0].data, text[0]);
    CHECK(cudaGetLastError());
    return mine::cudaCheck(cudaStreamSynchronize((cudaStream_t)stream));
}
