// Library baseline: cuBLAS computes the scores and the weighted sums, each as one batched product over the heads.
// No library that is assumed here has a softmax, so a small kernel with cub::BlockReduce computes it between the two.

#include "nightshift.h"

#include <cub/block/block_reduce.cuh>
#include <cublas_v2.h>
#include <cuda/std/functional>
#include <cuda_runtime.h>

constexpr int WIDTH = 64;
constexpr int THREADS = 128;
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

struct Maximum {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Returns the reduction of all values of the block in every thread: CUB returns it in the first thread only.
template <typename Operator>
__device__ float reduce_block(float value, Operator combine, Reduction::TempStorage &storage, float &shared) {
    const float result = Reduction(storage).Reduce(value, combine);
    if (threadIdx.x == 0) {
        shared = result;
    }
    __syncthreads();
    const float everywhere = shared;
    // The next reduction overwrites `storage` and `shared`.
    __syncthreads();
    return everywhere;
}

// Replaces each row of scores by its softmax. One block per row.
__global__ void __launch_bounds__(THREADS) softmax(float *scores, int64_t seq) {
    __shared__ Reduction::TempStorage storage;
    __shared__ float shared;
    float *row = scores + static_cast<int64_t>(blockIdx.x) * seq;

    float largest = -INFINITY;
    for (int64_t j = threadIdx.x; j < seq; j += THREADS) {
        largest = fmaxf(largest, row[j]);
    }
    largest = reduce_block(largest, Maximum{}, storage, shared);

    float sum = 0.0f;
    for (int64_t j = threadIdx.x; j < seq; j += THREADS) {
        row[j] = expf(row[j] - largest);
        sum += row[j];
    }
    sum = reduce_block(sum, cuda::std::plus<>{}, storage, shared);

    const float scale = 1.0f / sum;
    for (int64_t j = threadIdx.x; j < seq; j += THREADS) {
        row[j] *= scale;
    }
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
    const float *q = static_cast<const float *>(inputs[0].data);
    const float *k = static_cast<const float *>(inputs[1].data);
    const float *v = static_cast<const float *>(inputs[2].data);
    float *out = static_cast<float *>(outputs[0].data);
    float *scores = static_cast<float *>(workspace);
    const int64_t heads = inputs[0].shape[0];
    const int64_t seq = inputs[0].shape[1];
    const int n = static_cast<int>(seq);
    const int batch = static_cast<int>(heads);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (heads * seq * seq > static_cast<int64_t>(NS_WORKSPACE_BYTES / sizeof(float))) {
        return static_cast<int>(cudaErrorMemoryAllocation);
    }

    // cublasSetStream resets the workspace of the handle, so the workspace is set after it.
    CHECK(cublasSetStream(made->handle, on));
    CHECK(cublasSetWorkspace(made->handle, made->memory, LIBRARY_BYTES));
    const float eighth = 0.125f; // one over the square root of WIDTH
    const float one = 1.0f;
    const float zero = 0.0f;
    // cuBLAS stores matrices by columns, and a row-major matrix is its own transpose by columns. For each head:
    // scores^T (keys by queries) = k (keys by WIDTH) * q^T (WIDTH by queries) / 8; k lies in memory as k^T by columns.
    CHECK(cublasSgemmStridedBatched(made->handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, WIDTH, &eighth, k, WIDTH, seq * WIDTH,
                                    q, WIDTH, seq * WIDTH, &zero, scores, n, seq * seq, batch));
    softmax<<<static_cast<unsigned>(heads * seq), THREADS, 0, on>>>(scores, seq);
    // out^T (WIDTH by queries) = v^T (WIDTH by keys) * weights^T (keys by queries).
    CHECK(cublasSgemmStridedBatched(made->handle, CUBLAS_OP_N, CUBLAS_OP_N, WIDTH, n, n, &one, v, WIDTH, seq * WIDTH,
                                    scores, n, seq * seq, &zero, out, WIDTH, seq * WIDTH, batch));
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
