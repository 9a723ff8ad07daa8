#include "nightshift.h"
#include <cuda_runtime.h>
#include <thread>
#include <vector>

__global__ void fill(float *x, float value) { x[threadIdx.x] = value; }

NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    std::vector<std::thread> crew;
    for (int i = 0; i < 2; ++i)
        crew.emplace_back([=] { fill<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>((float *)out[0].data + 32 * i, 1.0f); });
    for (auto &one : crew) one.join();
    return 0;
}
