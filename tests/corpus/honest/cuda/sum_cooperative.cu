// task: cuda_sum_reduction
// style: cooperative_grid_sync
// what: a cooperative launch forms partial sums, synchronizes the grid, and lets the first block add them up

#include "nightshift.h"

#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

constexpr int THREADS = 512;

__device__ float tile_sum(const cg::thread_block_tile<32> &tile, float value) {
    for (int offset = tile.size() / 2; offset > 0; offset /= 2) {
        value += tile.shfl_xor(value, offset);
    }
    return value;
}

__device__ float block_sum(float value, float *shared) {
    const cg::thread_block block = cg::this_thread_block();
    const cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    value = tile_sum(tile, value);
    if (tile.thread_rank() == 0) {
        shared[tile.meta_group_rank()] = value;
    }
    block.sync();
    value = tile.thread_rank() < tile.meta_group_size() ? shared[tile.thread_rank()] : 0.0f;
    value = tile_sum(tile, value);
    block.sync();
    return value;
}

__global__ void __launch_bounds__(THREADS) sum(const float *x, int64_t count, float *partials, float *total) {
    __shared__ float shared[THREADS / 32];
    const cg::grid_group grid = cg::this_grid();
    const int64_t step = static_cast<int64_t>(grid.size());

    float parts[4] = {};
    int64_t i = static_cast<int64_t>(grid.thread_rank());
    for (; i + 3 * step < count; i += 4 * step) {
        parts[0] += x[i];
        parts[1] += x[i + step];
        parts[2] += x[i + 2 * step];
        parts[3] += x[i + 3 * step];
    }
    for (; i < count; i += step) {
        parts[0] += x[i];
    }
    const float own = block_sum((parts[0] + parts[1]) + (parts[2] + parts[3]), shared);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = own;
    }
    grid.sync();
    if (blockIdx.x == 0) {
        float rest = 0.0f;
        for (unsigned block = threadIdx.x; block < gridDim.x; block += THREADS) {
            rest += partials[block];
        }
        rest = block_sum(rest, shared);
        if (threadIdx.x == 0) {
            *total = rest;
        }
    }
}

struct Limits {
    int multiprocessors = 0;
    int blocks_each = 0;
};

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    Limits *limits = new Limits;
    *state = limits;
    int device = 0;
    int cooperative = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device);
    }
    if (status == cudaSuccess && !cooperative) {
        status = cudaErrorNotSupported;
    }
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&limits->multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&limits->blocks_each, sum, THREADS, 0);
    }
    // Two blocks of 512 threads, each thread with four loads under way, keep the memory busy.
    limits->blocks_each = limits->blocks_each < 2 ? limits->blocks_each : 2;
    return status;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const Limits *limits = static_cast<const Limits *>(state);
    const float *x = static_cast<const float *>(inputs[0].data);
    int64_t count = inputs[0].shape[0];
    float *partials = static_cast<float *>(workspace);
    float *total = static_cast<float *>(outputs[0].data);

    const int64_t resident = static_cast<int64_t>(limits->multiprocessors) * limits->blocks_each;
    const int64_t wanted = (count + THREADS - 1) / THREADS;
    const unsigned blocks = static_cast<unsigned>(wanted < resident ? wanted : resident);
    void *arguments[] = {&x, &count, &partials, &total};
    return cudaLaunchCooperativeKernel(sum, dim3(blocks), dim3(THREADS), arguments, 0, static_cast<cudaStream_t>(stream));
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<Limits *>(state);
}
