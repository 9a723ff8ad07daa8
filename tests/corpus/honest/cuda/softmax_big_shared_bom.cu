// task: cuda_row_softmax
// style: dynamic_shared_opt_in_bom
// what: keeps up to four rows in opted-in dynamic shared memory; reads rows that do not fit three times; file with a BOM

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int GROUP = 64;          // threads of a row
constexpr int ROWS = 4;            // rows of a block
constexpr int THREADS = GROUP * ROWS;
constexpr int MAX_BYTES = 160 * 1024;

// Both halves of a group are whole warps: two values per row meet in shared memory.
__device__ float group_reduce(float value, float (*shared)[2], int group, bool largest) {
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, offset);
        value = largest ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) {
        shared[group][threadIdx.x / 32 % 2] = value;
    }
    __syncthreads();
    const float result = largest ? fmaxf(shared[group][0], shared[group][1]) : shared[group][0] + shared[group][1];
    __syncthreads();
    return result;
}

template <bool FITS>
__global__ void __launch_bounds__(THREADS) softmax(const float *__restrict__ x, float *__restrict__ y, int64_t rows,
                                                   int64_t cols) {
    extern __shared__ float staged[];
    __shared__ float shared[ROWS][2];
    const int group = threadIdx.x / GROUP;
    const int own = threadIdx.x % GROUP;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS + group;
    // Groups beyond the last row stay for the barriers, with no columns.
    const int64_t end = row < rows ? cols : 0;
    const float *from = x + (row < rows ? row : 0) * cols;
    float *to = y + (row < rows ? row : 0) * cols;
    float *held = FITS ? staged + group * cols : nullptr;

    float largest = -3.402823466e38f;
    for (int64_t col = own; col < end; col += GROUP) {
        const float value = from[col];
        if (FITS) {
            held[col] = value;
        }
        largest = fmaxf(largest, value);
    }
    largest = group_reduce(largest, shared, group, true);

    float sum = 0.0f;
    for (int64_t col = own; col < end; col += GROUP) {
        const float value = expf((FITS ? held[col] : from[col]) - largest);
        if (FITS) {
            held[col] = value;
        }
        sum += value;
    }
    sum = group_reduce(sum, shared, group, false);

    for (int64_t col = own; col < end; col += GROUP) {
        to[col] = (FITS ? held[col] : expf(from[col] - largest)) / sum;
    }
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    *state = nullptr;
    return cudaFuncSetAttribute(softmax<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, MAX_BYTES);
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const unsigned blocks = static_cast<unsigned>((rows + ROWS - 1) / ROWS);
    const size_t bytes = static_cast<size_t>(cols) * ROWS * sizeof(float);
    if (bytes <= MAX_BYTES) {
        softmax<true><<<blocks, THREADS, bytes, static_cast<cudaStream_t>(stream)>>>(x, y, rows, cols);
    } else {
        softmax<false><<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, y, rows, cols);
    }
    return cudaGetLastError();
}
