// The MLP block of a transformer: five kernels, one after the other, each with its result in memory.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 256;

// The sum of what the threads of a block hold.
__device__ ns_real block_sum(ns_real value, ns_real *shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
    }
    const ns_real result = shared[0];
    __syncthreads();
    return result;
}

// One block for each token.
__global__ void layernorm(const ns_real *x, const ns_real *gamma, const ns_real *beta, ns_real *out, int64_t width) {
    __shared__ ns_real shared[THREADS];
    const ns_real *from = x + blockIdx.x * width;

    ns_real sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        sum += from[i];
    }
    const ns_real mean = block_sum(sum, shared) / static_cast<ns_real>(width);

    ns_real squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        squares += (from[i] - mean) * (from[i] - mean);
    }
    const ns_real variance = block_sum(squares, shared) / static_cast<ns_real>(width);

    const ns_real scale = 1 / sqrt(variance + static_cast<ns_real>(1e-5));
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        out[blockIdx.x * width + i] = (from[i] - mean) * scale * gamma[i] + beta[i];
    }
}

// One thread for each element of the result.
__global__ void linear(const ns_real *x, const ns_real *w, const ns_real *bias, ns_real *out, int64_t rows,
                       int64_t depth, int64_t cols) {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) {
        return;
    }
    ns_real sum = 0;
    for (int64_t i = 0; i < depth; ++i) {
        sum += x[row * depth + i] * w[i * cols + col];
    }
    out[row * cols + col] = sum + bias[col];
}

__global__ void gelu(ns_real *values, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const ns_real root = static_cast<ns_real>(0.7978845608028654); // sqrt(2 / pi)
    const ns_real cubic = static_cast<ns_real>(0.044715);
    const ns_real v = values[i];
    values[i] = v / 2 * (1 + tanh(root * (v + cubic * v * v * v)));
}

__global__ void add(ns_real *values, const ns_real *others, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) {
        values[i] += others[i];
    }
}

static unsigned blocks_for(int64_t count, int64_t each) { return static_cast<unsigned>((count + each - 1) / each); }

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *gamma = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *beta = static_cast<const ns_real *>(inputs[2].data);
    const ns_real *w1 = static_cast<const ns_real *>(inputs[3].data);
    const ns_real *b1 = static_cast<const ns_real *>(inputs[4].data);
    const ns_real *w2 = static_cast<const ns_real *>(inputs[5].data);
    const ns_real *b2 = static_cast<const ns_real *>(inputs[6].data);
    ns_real *out = static_cast<ns_real *>(outputs[0].data);
    const int64_t tokens = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    const int64_t hidden = inputs[3].shape[1];
    ns_real *normalized = static_cast<ns_real *>(workspace);
    ns_real *activation = normalized + tokens * width;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);

    const dim3 threads(16, 16);
    const dim3 to_hidden(blocks_for(hidden, 16), blocks_for(tokens, 16));
    const dim3 to_width(blocks_for(width, 16), blocks_for(tokens, 16));
    layernorm<<<static_cast<unsigned>(tokens), THREADS, 0, on>>>(x, gamma, beta, normalized, width);
    linear<<<to_hidden, threads, 0, on>>>(normalized, w1, b1, activation, tokens, width, hidden);
    gelu<<<blocks_for(tokens * hidden, THREADS), THREADS, 0, on>>>(activation, tokens * hidden);
    linear<<<to_width, threads, 0, on>>>(activation, w2, b2, out, tokens, hidden, width);
    add<<<blocks_for(tokens * width, THREADS), THREADS, 0, on>>>(out, x, tokens * width);
    return cudaGetLastError();
}
