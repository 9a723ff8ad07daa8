#include "nightshift.h"
#include <cuda_runtime.h>

struct Lanes {
    cudaStream_t side = nullptr;
    cudaEvent_t forked = nullptr, joined = nullptr;
};

__global__ void half(const float *x, float *y, int64_t n) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i];
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    auto *lanes = new Lanes;
    cudaStreamCreateWithFlags(&lanes->side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&lanes->forked, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&lanes->joined, cudaEventDisableTiming);
    *state = lanes;
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *in, int32_t, ns_tensor *out, int32_t, void *, void *stream) {
    auto *lanes = static_cast<Lanes *>(state);
    auto main = static_cast<cudaStream_t>(stream);
    const int64_t n = in[0].shape[0];
    cudaEventRecord(lanes->forked, main);
    cudaStreamWaitEvent(lanes->side, lanes->forked, 0);
    half<<<static_cast<unsigned>((n + 255) / 256), 256, 0, lanes->side>>>((const float *)in[0].data, (float *)out[0].data, n);
    cudaEventRecord(lanes->joined, lanes->side);
    cudaStreamWaitEvent(main, lanes->joined, 0);
    return 0;
}

NS_EXPORT void ns_free(void *state) { delete static_cast<Lanes *>(state); }
