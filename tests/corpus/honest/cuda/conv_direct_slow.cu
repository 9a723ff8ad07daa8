// task: cuda_conv2d_3x3
// style: slow_double_accumulator_unused_functions_long_lines
// what: one thread per result with a double accumulator: right, slow, and with functions that nothing calls

#include "nightshift.h"

#include <cuda_runtime.h>

#include <cstdio>

// Candidates for later versions. They compile, and nothing calls them.
[[maybe_unused]] static int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
template <typename T> [[maybe_unused]] static T largest_of(T a, T b) { return a < b ? b : a; }
[[maybe_unused]] static __global__ void fill(float *p, float value, int64_t n) { for (int64_t i = threadIdx.x; i < n; i += blockDim.x) p[i] = value; }

struct Pixel {
    int64_t image, filter, i, j;
};

static __device__ Pixel locate(int64_t at, int64_t filters, int64_t height, int64_t width) {
    Pixel p;
    p.j = at % width;
    at /= width;
    p.i = at % height;
    at /= height;
    p.filter = at % filters;
    p.image = at / filters;
    return p;
}

static __device__ float pixel_or_zero(const float *plane, int64_t row, int64_t col, int64_t height, int64_t width) {
    if (row < 0 || row >= height) return 0.0f;
    if (col < 0 || col >= width) return 0.0f;
    return plane[row * width + col];
}

__global__ void convolve(const float *x, const float *weights, const float *bias, float *out, int64_t count, int64_t channels, int64_t filters, int64_t height, int64_t width) {
    for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        const Pixel p = locate(at, filters, height, width);
        double sum = bias[p.filter];
        for (int64_t c = 0; c < channels; ++c) {
            const float *plane = x + (p.image * channels + c) * height * width;
            const float *taps = weights + (p.filter * channels + c) * 9;
            for (int t = 0; t < 9; ++t) {
                sum += static_cast<double>(taps[t]) * pixel_or_zero(plane, p.i + t / 3 - 1, p.j + t % 3 - 1, height, width);
            }
        }
        out[at] = static_cast<float>(sum);
    }
}

NS_EXPORT int ns_init(const ns_tensor *params, int32_t n_params, void **state) {
    *state = nullptr;
    fprintf(stderr, "direct convolution: %d weights, %lld filters\n", static_cast<int>(n_params), static_cast<long long>(params[0].shape[0]));
    return 0;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t *in = inputs[0].shape;
    const int64_t filters = inputs[1].shape[0];
    const int64_t count = in[0] * filters * in[2] * in[3];
    const int64_t needed = (count + 63) / 64;
    convolve<<<static_cast<unsigned>(needed < 4096 ? needed : 4096), 64, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data), static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), count, in[1], filters, in[2], in[3]);
    return cudaGetLastError();
}
