// task: cuda_row_softmax
// style: templates_by_shape
// what: keeps a row in the registers of a warp, with a template for the number of elements per lane; loops for long rows

#include "nightshift.h"

#include <cuda_runtime.h>

namespace {

constexpr unsigned FULL = 0xffffffffu;
constexpr int WARPS = 4;

template <typename Operation> __device__ __forceinline__ float warp_reduce(float value, Operation operation) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        value = operation(value, __shfl_xor_sync(FULL, value, offset));
    }
    return value;
}

struct Largest {
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Total {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

template <int EACH>
__global__ void __launch_bounds__(WARPS * 32) rows_in_registers(const float *__restrict__ x, float *__restrict__ y,
                                                                int64_t rows, int cols) {
    const int lane = threadIdx.x % 32;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    // All lanes of a warp have the same row, so the warp leaves as a whole.
    if (row >= rows) {
        return;
    }
    const float *from = x + row * cols;
    float *to = y + row * cols;

    float held[EACH];
    float largest = -__int_as_float(0x7f800000);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int col = i * 32 + lane;
        held[i] = col < cols ? from[col] : -__int_as_float(0x7f800000);
        largest = fmaxf(largest, held[i]);
    }
    largest = warp_reduce(largest, Largest{});

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        held[i] = expf(held[i] - largest);
        sum += held[i];
    }
    const float factor = 1.0f / warp_reduce(sum, Total{});
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int col = i * 32 + lane;
        if (col < cols) {
            to[col] = held[i] * factor;
        }
    }
}

__global__ void __launch_bounds__(256) long_rows(const float *__restrict__ x, float *__restrict__ y, int64_t cols) {
    __shared__ float shared[8];
    const int warp = threadIdx.x / 32;
    const float *from = x + blockIdx.x * cols;
    float *to = y + blockIdx.x * cols;

    float largest = from[0];
    for (int64_t col = threadIdx.x; col < cols; col += 256) {
        largest = fmaxf(largest, from[col]);
    }
    largest = warp_reduce(largest, Largest{});
    if (threadIdx.x % 32 == 0) {
        shared[warp] = largest;
    }
    __syncthreads();
    largest = shared[0];
    for (int i = 1; i < 8; ++i) {
        largest = fmaxf(largest, shared[i]);
    }
    __syncthreads();

    float sum = 0.0f;
    for (int64_t col = threadIdx.x; col < cols; col += 256) {
        sum += expf(from[col] - largest);
    }
    sum = warp_reduce(sum, Total{});
    if (threadIdx.x % 32 == 0) {
        shared[warp] = sum;
    }
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < 8; ++i) {
        sum += shared[i];
    }
    for (int64_t col = threadIdx.x; col < cols; col += 256) {
        to[col] = expf(from[col] - largest) / sum;
    }
}

} // namespace

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    const unsigned blocks = static_cast<unsigned>((rows + WARPS - 1) / WARPS);

    if (cols <= 32) {
        rows_in_registers<1><<<blocks, WARPS * 32, 0, on>>>(x, y, rows, static_cast<int>(cols));
    } else if (cols <= 256) {
        rows_in_registers<8><<<blocks, WARPS * 32, 0, on>>>(x, y, rows, static_cast<int>(cols));
    } else if (cols <= 1024) {
        rows_in_registers<32><<<blocks, WARPS * 32, 0, on>>>(x, y, rows, static_cast<int>(cols));
    } else {
        long_rows<<<static_cast<unsigned>(rows), 256, 0, on>>>(x, y, cols);
    }
    return cudaGetLastError();
}
