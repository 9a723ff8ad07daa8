// task: cuda_gather_rows
// style: warp_per_bag_shuffles
// what: a warp loads 32 indices and scales of its bag at once and hands them around by shuffles; lanes own columns

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int WARPS = 8;
constexpr unsigned ALL = 0xffffffffu;

__device__ __forceinline__ int wrap(int index, int rows) {
    const int rest = index % rows;
    return rest < 0 ? rest + rows : rest;
}

__global__ void __launch_bounds__(WARPS * 32) gather(const int32_t *__restrict__ index, const float *__restrict__ scale,
                                                     const float *__restrict__ table, float *__restrict__ y, int64_t bags,
                                                     int per_bag, int rows, int cols) {
    const int lane = threadIdx.x % 32;
    const int64_t bag = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    if (bag >= bags) {
        return;
    }
    // Each turn of this loop handles 128 columns: four for each lane. All lanes make the same turns.
    for (int first_col = 0; first_col < cols; first_col += 128) {
        float sums[4] = {};
        for (int first = 0; first < per_bag; first += 32) {
            const int count = min(32, per_bag - first);
            const int64_t at = bag * per_bag + first + lane;
            const int own_row = lane < count ? wrap(index[at], rows) : 0;
            const float own_scale = lane < count ? scale[at] : 0.0f;
            for (int p = 0; p < count; ++p) {
                const int64_t row = __shfl_sync(ALL, own_row, p);
                const float factor = __shfl_sync(ALL, own_scale, p);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int col = first_col + i * 32 + lane;
                    if (col < cols) {
                        sums[i] += factor * table[row * cols + col];
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int col = first_col + i * 32 + lane;
            if (col < cols) {
                y[bag * cols + col] = sums[i];
            }
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t bags = inputs[0].shape[0];
    gather<<<static_cast<unsigned>((bags + WARPS - 1) / WARPS), WARPS * 32, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const int32_t *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), bags,
        static_cast<int>(inputs[0].shape[1]), static_cast<int>(inputs[2].shape[0]), static_cast<int>(inputs[2].shape[1]));
    return cudaGetLastError();
}
