// task: cuda_layernorm_gelu
// style: hopper_bulk_copies_mbarrier
// what: resident blocks load rows into two shared buffers with cp.async.bulk and mbarriers; a plain kernel for other shapes

#include "nightshift.h"

#include <cuda_runtime.h>

#include <cstdint>

constexpr int THREADS = 128;
constexpr int MAX_COLS = 8192; // two rows of this length take 64 KiB

__device__ __forceinline__ unsigned shared_address(const void *p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(shared_address(barrier)) : "memory");
}

// Announces `bytes` and starts the copy that will complete them. One thread calls this.
__device__ __forceinline__ void start_copy(float *to, const float *from, unsigned bytes, uint64_t *barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(shared_address(barrier)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ __forceinline__ void wait_for(uint64_t *barrier, unsigned parity) {
    unsigned done = 0;
    while (done == 0) {
        asm volatile("{\n"
                     ".reg .pred ready;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 ready, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, ready;\n"
                     "}\n"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    }
}

__device__ __forceinline__ float block_sum(float value, float *shared) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = (shared[0] + shared[1]) + (shared[2] + shared[3]);
    __syncthreads();
    return value;
}

__device__ __forceinline__ void normalise_row(const float *row, const float *gamma, const float *beta, float *to, int cols,
                                              float *shared) {
    float sum = 0.0f;
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        sum += row[col];
    }
    const float mean = block_sum(sum, shared) / static_cast<float>(cols);
    float squares = 0.0f;
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        squares += (row[col] - mean) * (row[col] - mean);
    }
    const float scale = rsqrtf(block_sum(squares, shared) / static_cast<float>(cols) + 1e-5f);
    for (int col = threadIdx.x; col < cols; col += THREADS) {
        const float n = (row[col] - mean) * scale * gamma[col] + beta[col];
        to[col] = 0.5f * n * (1.0f + tanhf(0.7978845608028654f * (n + 0.044715f * n * n * n)));
    }
}

__global__ void __launch_bounds__(THREADS) by_bulk_copies(const float *x, const float *gamma, const float *beta, float *y,
                                                          int64_t rows, int cols) {
    extern __shared__ __align__(128) float buffers[];
    __shared__ __align__(8) uint64_t barriers[2];
    __shared__ float shared[THREADS / 32];
    const unsigned bytes = static_cast<unsigned>(cols * sizeof(float));
    if (threadIdx.x == 0) {
        barrier_init(&barriers[0]);
        barrier_init(&barriers[1]);
        // The copy engine has to see the initialised barriers.
        asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
        if (blockIdx.x < rows) {
            start_copy(buffers, x + blockIdx.x * static_cast<int64_t>(cols), bytes, &barriers[0]);
        }
    }
    __syncthreads();

    unsigned turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, ++turn) {
        const unsigned buffer = turn % 2;
        const int64_t next = row + gridDim.x;
        // The barrier at the end of the turn before says that no thread reads the other buffer any more.
        if (threadIdx.x == 0 && next < rows) {
            start_copy(buffers + (1 - buffer) * cols, x + next * cols, bytes, &barriers[1 - buffer]);
        }
        wait_for(&barriers[buffer], turn / 2 % 2);
        normalise_row(buffers + buffer * cols, gamma, beta, y + row * cols, cols, shared);
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS) plain(const float *x, const float *gamma, const float *beta, float *y, int cols) {
    __shared__ float shared[THREADS / 32];
    normalise_row(x + blockIdx.x * static_cast<int64_t>(cols), gamma, beta, y + blockIdx.x * static_cast<int64_t>(cols), cols,
                  shared);
}

struct State {
    int multiprocessors;
};

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    int device = 0;
    State *made = new State{};
    *state = made;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&made->multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(by_bulk_copies, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(2 * MAX_COLS * sizeof(float)));
    }
    return status;
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<State *>(state);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int cols = static_cast<int>(inputs[0].shape[1]);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    // Bulk copies need addresses and sizes that are multiples of 16 bytes.
    if (cols % 4 == 0 && cols <= MAX_COLS && reinterpret_cast<uintptr_t>(x) % 16 == 0) {
        const int64_t blocks = static_cast<const State *>(state)->multiprocessors * 4;
        by_bulk_copies<<<static_cast<unsigned>(rows < blocks ? rows : blocks), THREADS, 2 * cols * sizeof(float), on>>>(
            x, gamma, beta, y, rows, cols);
    } else {
        plain<<<static_cast<unsigned>(rows), THREADS, 0, on>>>(x, gamma, beta, y, cols);
    }
    return cudaGetLastError();
}
