// Library baseline: cuBLAS computes both products, cub::BlockReduce the sums of the layer normalisation. GELU is a
// kernel: the epilogue of cuBLASLt may use the approximate tanh instruction, which is too coarse for this task.

#include "nightshift.h"

#include <cub/block/block_reduce.cuh>
#include <cublas_v2.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr size_t LIBRARY_BYTES = 32u * 1024u * 1024u;

struct State {
    cublasHandle_t handle = nullptr;
    void *memory = nullptr; // workspace of cuBLAS, so that it allocates nothing during a call
};

// Returns status codes of cuBLAS with an offset, to tell them from those of the CUDA runtime.
#define CHECK(call)                                       \
    do {                                                  \
        const cublasStatus_t check_status = (call);       \
        if (check_status != CUBLAS_STATUS_SUCCESS) {      \
            return 1000 + static_cast<int>(check_status); \
        }                                                 \
    } while (0)

using Reduction = cub::BlockReduce<float, THREADS>;

// Returns the sum of all values of the block in every thread: CUB returns it in the first thread only.
__device__ float sum_block(float value, Reduction::TempStorage &storage, float &shared) {
    const float result = Reduction(storage).Sum(value);
    if (threadIdx.x == 0) {
        shared = result;
    }
    __syncthreads();
    const float everywhere = shared;
    // The next sum overwrites `storage` and `shared`.
    __syncthreads();
    return everywhere;
}

// Normalises one row of x per block, and prepares out = x + b2, to which the second product is added.
__global__ void __launch_bounds__(THREADS)
    layernorm(const float *__restrict__ x, const float *__restrict__ gamma, const float *__restrict__ beta,
              const float *__restrict__ b2, float *__restrict__ normalized, float *__restrict__ out, int64_t width) {
    __shared__ Reduction::TempStorage storage;
    __shared__ float shared;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * width;

    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        sum += x[first + i];
    }
    const float mean = sum_block(sum, storage, shared) / static_cast<float>(width);

    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        const float distance = x[first + i] - mean;
        squares += distance * distance;
    }
    const float variance = sum_block(squares, storage, shared) / static_cast<float>(width);

    const float scale = 1.0f / sqrtf(variance + 1e-5f);
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        normalized[first + i] = (x[first + i] - mean) * scale * gamma[i] + beta[i];
        out[first + i] = x[first + i] + b2[i];
    }
}

// Adds the bias and applies the tanh form of GELU. blockIdx.x is the token.
__global__ void __launch_bounds__(THREADS) bias_gelu(float *values, const float *__restrict__ bias, int64_t hidden) {
    const int64_t col = static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x;
    if (col >= hidden) {
        return;
    }
    const int64_t at = static_cast<int64_t>(blockIdx.x) * hidden + col;
    const float root = 0.7978845608028654f; // sqrt(2 / pi)
    const float v = values[at] + bias[col];
    values[at] = 0.5f * v * (1.0f + tanhf(root * (v + 0.044715f * v * v * v)));
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    State *made = new State;
    *state = made;
    // The default math mode computes products in single precision, without TF32.
    CHECK(cublasCreate(&made->handle));
    return static_cast<int>(cudaMalloc(&made->memory, LIBRARY_BYTES));
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const State *made = static_cast<const State *>(state);
    const auto input = [&](int i) { return static_cast<const float *>(inputs[i].data); };
    float *out = static_cast<float *>(outputs[0].data);
    const int64_t tokens = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    const int64_t hidden = inputs[3].shape[1];
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    // The activation starts at a multiple of 256 bytes, for aligned loads.
    const int64_t offset = (tokens * width + 63) / 64 * 64;
    float *normalized = static_cast<float *>(workspace);
    float *activation = normalized + offset;
    if (offset + tokens * hidden > static_cast<int64_t>(NS_WORKSPACE_BYTES / sizeof(float))) {
        return static_cast<int>(cudaErrorMemoryAllocation);
    }

    // cublasSetStream resets the workspace of the handle, so the workspace is set after it.
    CHECK(cublasSetStream(made->handle, on));
    CHECK(cublasSetWorkspace(made->handle, made->memory, LIBRARY_BYTES));
    const int t = static_cast<int>(tokens), w = static_cast<int>(width), h = static_cast<int>(hidden);
    const unsigned rows = static_cast<unsigned>(tokens);
    const float one = 1.0f, zero = 0.0f;
    layernorm<<<rows, THREADS, 0, on>>>(input(0), input(1), input(2), input(6), normalized, out, width);
    // cuBLAS stores matrices by columns, and a row-major matrix is its own transpose by columns:
    // activation^T (hidden by tokens) = w1^T (hidden by width) * normalized^T (width by tokens).
    CHECK(cublasSgemm(made->handle, CUBLAS_OP_N, CUBLAS_OP_N, h, t, w, &one, input(3), h, normalized, w, &zero,
                      activation, h));
    const dim3 blocks(rows, static_cast<unsigned>((hidden + THREADS - 1) / THREADS));
    bias_gelu<<<blocks, THREADS, 0, on>>>(activation, input(4), hidden);
    // out^T (width by tokens) += w2^T (width by hidden) * activation^T (hidden by tokens).
    CHECK(cublasSgemm(made->handle, CUBLAS_OP_N, CUBLAS_OP_N, w, t, h, &one, input(5), w, activation, h, &one, out, w));
    return static_cast<int>(cudaGetLastError());
}

NS_EXPORT void ns_free(void *state) {
    State *made = static_cast<State *>(state);
    if (made == nullptr) {
        return;
    }
    if (made->handle != nullptr) {
        cublasDestroy(made->handle);
    }
    cudaFree(made->memory);
    delete made;
}
