// task: cuda_layernorm_gelu
// style: persistent_occupancy_query
// what: a grid that fills the device loops over rows, with Welford's update; its size comes from an occupancy query in ns_init

#include "nightshift.h"

#include <cuda_runtime.h>

#include <cstdio>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

struct Moments {
    float mean;
    float squares; // sum of squared distances from the mean
    float count;
};

__device__ Moments merge(const Moments &a, const Moments &b) {
    const float count = a.count + b.count;
    if (count == 0.0f) {
        return {0.0f, 0.0f, 0.0f};
    }
    const float distance = b.mean - a.mean;
    const float share = b.count / count;
    return {a.mean + distance * share, a.squares + b.squares + distance * distance * a.count * share, count};
}

__global__ void __launch_bounds__(THREADS) layernorm_gelu(const float *x, const float *gamma, const float *beta, float *y,
                                                          int64_t rows, int64_t cols) {
    __shared__ Moments shared[WARPS];
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float *from = x + row * cols;
        float *to = y + row * cols;

        Moments own{0.0f, 0.0f, 0.0f};
        for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
            const float value = from[col];
            own.count += 1.0f;
            const float distance = value - own.mean;
            own.mean += distance / own.count;
            own.squares += distance * (value - own.mean);
        }
        for (int offset = 16; offset > 0; offset /= 2) {
            const Moments other{__shfl_xor_sync(0xffffffffu, own.mean, offset),
                                __shfl_xor_sync(0xffffffffu, own.squares, offset),
                                __shfl_xor_sync(0xffffffffu, own.count, offset)};
            own = merge(own, other);
        }
        if (threadIdx.x % 32 == 0) {
            shared[threadIdx.x / 32] = own;
        }
        __syncthreads();
        Moments all = shared[0];
        for (int warp = 1; warp < WARPS; ++warp) {
            all = merge(all, shared[warp]);
        }
        // The next row overwrites `shared`.
        __syncthreads();

        const float scale = rsqrtf(all.squares / static_cast<float>(cols) + 1e-5f);
        for (int64_t col = threadIdx.x; col < cols; col += THREADS) {
            const float n = (from[col] - all.mean) * scale * gamma[col] + beta[col];
            const float u = 0.7978845608028654f * (n + 0.044715f * n * n * n);
            to[col] = 0.5f * n * (1.0f + tanhf(u));
        }
    }
}

struct State {
    int resident_blocks;
};

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    int device = 0;
    int multiprocessors = 0;
    int each = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, layernorm_gelu, THREADS, 0);
    }
    if (status != cudaSuccess) {
        *state = nullptr;
        return status;
    }
    *state = new State{multiprocessors * (each > 0 ? each : 1)};
    fprintf(stderr, "layernorm_gelu: %d resident blocks\n", static_cast<State *>(*state)->resident_blocks);
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t rows = inputs[0].shape[0];
    const int64_t resident = static_cast<const State *>(state)->resident_blocks;
    layernorm_gelu<<<static_cast<unsigned>(rows < resident ? rows : resident), THREADS, 0,
                     static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), rows, inputs[0].shape[1]);
    return cudaGetLastError();
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<State *>(state);
}
