// task: cuda_conv2d_3x3
// style: shared_tile_with_halo
// what: tiles of 8 by 32 pixels with a halo in shared memory, eight filters per block, weights in shared memory by channel

#include "nightshift.h"

#include <cuda_runtime.h>

namespace tiled {

constexpr int TILE_H = 8;
constexpr int TILE_W = 32;
constexpr int FILTERS = 8;
constexpr int THREADS = TILE_H * TILE_W;
constexpr int HALO_H = TILE_H + 2;
constexpr int HALO_W = TILE_W + 2;

struct Extents {
    int channels, filters, height, width;

    __host__ __device__ int tiles_x() const { return (width + TILE_W - 1) / TILE_W; }
    __host__ __device__ int tiles_y() const { return (height + TILE_H - 1) / TILE_H; }
    __host__ __device__ int filter_groups() const { return (filters + FILTERS - 1) / FILTERS; }
};

__global__ void __launch_bounds__(THREADS) convolve(const float *x, const float *weights, const float *bias, float *out,
                                                    Extents e) {
    __shared__ float tile[HALO_H][HALO_W];
    __shared__ float taps[FILTERS][9];
    const int top = blockIdx.x / e.tiles_x() * TILE_H;
    const int left = blockIdx.x % e.tiles_x() * TILE_W;
    const int first_filter = blockIdx.y * FILTERS;
    const int row = threadIdx.x / TILE_W;
    const int col = threadIdx.x % TILE_W;
    const int64_t area = static_cast<int64_t>(e.height) * e.width;
    const float *image = x + static_cast<int64_t>(blockIdx.z) * e.channels * area;

    float sums[FILTERS] = {};
    for (int c = 0; c < e.channels; ++c) {
        __syncthreads(); // the tile of the channel before is no longer read
        for (int at = threadIdx.x; at < HALO_H * HALO_W; at += THREADS) {
            const int i = top + at / HALO_W - 1;
            const int j = left + at % HALO_W - 1;
            const bool inside = i >= 0 && i < e.height && j >= 0 && j < e.width;
            tile[at / HALO_W][at % HALO_W] = inside ? image[c * area + static_cast<int64_t>(i) * e.width + j] : 0.0f;
        }
        for (int at = threadIdx.x; at < FILTERS * 9; at += THREADS) {
            const int filter = first_filter + at / 9;
            taps[at / 9][at % 9] =
                filter < e.filters ? weights[(static_cast<int64_t>(filter) * e.channels + c) * 9 + at % 9] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int t = 0; t < 9; ++t) {
            const float value = tile[row + t / 3][col + t % 3];
#pragma unroll
            for (int f = 0; f < FILTERS; ++f) {
                sums[f] += value * taps[f][t];
            }
        }
    }
    const int i = top + row;
    const int j = left + col;
    if (i >= e.height || j >= e.width) {
        return;
    }
#pragma unroll
    for (int f = 0; f < FILTERS; ++f) {
        const int filter = first_filter + f;
        if (filter < e.filters) {
            out[(static_cast<int64_t>(blockIdx.z) * e.filters + filter) * area + static_cast<int64_t>(i) * e.width + j] =
                sums[f] + bias[filter];
        }
    }
}

} // namespace tiled

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const auto extent = [&](int tensor, int axis) { return static_cast<int>(inputs[tensor].shape[axis]); };
    const tiled::Extents e{extent(0, 1), extent(1, 0), extent(0, 2), extent(0, 3)};
    const dim3 grid(e.tiles_x() * e.tiles_y(), e.filter_groups(), extent(0, 0));
    tiled::convolve<<<grid, tiled::THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), e);
    return cudaGetLastError();
}
