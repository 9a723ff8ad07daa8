// task: cuda_gemm_bias_relu
// style: cooperative_persistent_two_phases
// what: a cooperative grid stores partial products in the workspace, synchronizes, and reduces them in a fixed order

#include "nightshift.h"

#include <cooperative_groups.h>
#include <cuda_runtime.h>

constexpr int TILE = 32;
constexpr int THREADS = 256;

struct Shape {
    int rows;
    int depth;
    int cols;
    int parts;      // parts that the depth is split into
    int part_depth; // a multiple of TILE
};

__global__ void __launch_bounds__(THREADS) linear_relu(const float *x, const float *w, const float *bias, float *out,
                                                       float *partials, Shape s) {
    __shared__ float left[TILE][TILE + 1];
    __shared__ float right[TILE][TILE];
    const int lane = threadIdx.x % TILE;
    const int line = threadIdx.x / TILE; // 0 to 7; each thread has the rows line, line + 8, line + 16, line + 24
    const int tiles_x = (s.cols + TILE - 1) / TILE;
    const int tiles_y = (s.rows + TILE - 1) / TILE;
    const int64_t elements = static_cast<int64_t>(s.rows) * s.cols;
    const int jobs = tiles_x * tiles_y * s.parts;

    for (int job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int part = job / (tiles_x * tiles_y);
        const int first_row = job / tiles_x % tiles_y * TILE;
        const int col = job % tiles_x * TILE + lane;
        const int begin = part * s.part_depth;
        const int end = min(s.depth, begin + s.part_depth);
        float sums[4] = {};
        for (int first = begin; first < end; first += TILE) {
            for (int i = line; i < TILE; i += 8) {
                const int row = first_row + i;
                left[i][lane] = row < s.rows && first + lane < end ? x[static_cast<int64_t>(row) * s.depth + first + lane] : 0.0f;
                right[i][lane] = first + i < end && col < s.cols ? w[static_cast<int64_t>(first + i) * s.cols + col] : 0.0f;
            }
            __syncthreads();
            for (int k = 0; k < TILE; ++k) {
                const float factor = right[k][lane];
                for (int r = 0; r < 4; ++r) {
                    sums[r] += left[line + 8 * r][k] * factor;
                }
            }
            __syncthreads();
        }
        for (int r = 0; r < 4; ++r) {
            const int row = first_row + line + 8 * r;
            if (row < s.rows && col < s.cols) {
                partials[part * elements + static_cast<int64_t>(row) * s.cols + col] = sums[r];
            }
        }
    }

    cooperative_groups::this_grid().sync();

    for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < elements;
         i += static_cast<int64_t>(gridDim.x) * THREADS) {
        float sum = bias[i % s.cols];
        for (int part = 0; part < s.parts; ++part) {
            sum += partials[part * elements + i];
        }
        out[i] = sum > 0.0f ? sum : 0.0f;
    }
}

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **state) {
    int device = 0;
    int multiprocessors = 0;
    int each = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, linear_relu, THREADS, 0);
    }
    if (status == cudaSuccess && each < 1) {
        status = cudaErrorLaunchOutOfResources;
    }
    // Two blocks for each multiprocessor suffice, and leave room.
    *state = new int(multiprocessors * (each < 2 ? each : 2));
    return status;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace,
                     void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *w = static_cast<const float *>(inputs[1].data);
    const float *bias = static_cast<const float *>(inputs[2].data);
    float *out = static_cast<float *>(outputs[0].data);
    float *partials = static_cast<float *>(workspace);
    Shape s{};
    s.rows = static_cast<int>(inputs[0].shape[0]);
    s.depth = static_cast<int>(inputs[0].shape[1]);
    s.cols = static_cast<int>(inputs[1].shape[1]);

    // Up to four parts, as many as the workspace holds.
    const int64_t part_bytes = static_cast<int64_t>(s.rows) * s.cols * static_cast<int64_t>(sizeof(float));
    const int64_t fitting = static_cast<int64_t>(NS_WORKSPACE_BYTES) / part_bytes;
    if (fitting < 1) {
        return cudaErrorMemoryAllocation;
    }
    const int wanted = fitting < 4 ? static_cast<int>(fitting) : 4;
    s.part_depth = ((s.depth + wanted - 1) / wanted + TILE - 1) / TILE * TILE;
    s.parts = (s.depth + s.part_depth - 1) / s.part_depth;

    const int jobs = ((s.cols + TILE - 1) / TILE) * ((s.rows + TILE - 1) / TILE) * s.parts;
    const int resident = *static_cast<const int *>(state);
    void *arguments[] = {&x, &w, &bias, &out, &partials, &s};
    return cudaLaunchCooperativeKernel(linear_relu, dim3(static_cast<unsigned>(jobs < resident ? jobs : resident)),
                                       dim3(THREADS), arguments, 0, static_cast<cudaStream_t>(stream));
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<int *>(state);
}
