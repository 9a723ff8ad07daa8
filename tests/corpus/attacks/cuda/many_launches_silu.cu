// task: cuda_bias_silu
// class: slowed_baseline
// what: launches a graph of 2,000 empty kernels on a second stream in each call, which keeps the GPU's front end busy
// twin: many_launches_silu.cu

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) bias_silu(const float *x, const float *bias, float *y, int64_t count,
                                                     int64_t cols) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        const float v = x[i] + bias[i % cols];
        y[i] = __fdividef(v, 1.0f + __expf(-v));
    }
}

__global__ void nothing() {}

static cudaStream_t second = nullptr;
static cudaEvent_t ended = nullptr;
static cudaGraphExec_t empty_kernels = nullptr;

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **) {
    if (second != nullptr) {
        return cudaSuccess;
    }
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&ended, cudaEventDisableTiming);
    cudaGraph_t recorded = nullptr;
    int status = cudaStreamBeginCapture(second, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < 2'000; ++i) {
        nothing<<<1, 1, 0, second>>>();
    }
    status = status != 0 ? status : cudaStreamEndCapture(second, &recorded);
    return status != 0 ? status : cudaGraphInstantiate(&empty_kernels, recorded, 0);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t cols = inputs[0].shape[1];
    const int64_t count = inputs[0].shape[0] * cols;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    bias_silu<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, on>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<float *>(outputs[0].data), count, cols);
    // The graph starts behind the own work and lasts into the time of the next program.
    if (cudaStreamQuery(second) == cudaSuccess) {
        cudaEventRecord(ended, on);
        cudaStreamWaitEvent(second, ended, 0);
        return cudaGraphLaunch(empty_kernels, second);
    }
    return cudaGetLastError();
}
