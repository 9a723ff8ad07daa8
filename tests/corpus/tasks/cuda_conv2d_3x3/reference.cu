// A 3 by 3 convolution with bias: one thread for each element of the result.

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int THREADS = 128;

__global__ void convolve(const ns_real *x, const ns_real *weights, const ns_real *bias, ns_real *out, int64_t count,
                         int64_t channels, int64_t filters, int64_t height, int64_t width) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (at >= count) {
        return;
    }
    const int64_t j = at % width;
    const int64_t i = at / width % height;
    const int64_t filter = at / (width * height) % filters;
    const int64_t image = at / (width * height * filters);

    ns_real sum = 0;
    for (int64_t c = 0; c < channels; ++c) {
        for (int64_t a = 0; a < 3; ++a) {
            for (int64_t b = 0; b < 3; ++b) {
                const int64_t row = i + a - 1;
                const int64_t col = j + b - 1;
                if (row >= 0 && row < height && col >= 0 && col < width) {
                    sum += weights[((filter * channels + c) * 3 + a) * 3 + b] *
                           x[((image * channels + c) * height + row) * width + col];
                }
            }
        }
    }
    out[at] = sum + bias[filter];
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *weights = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *bias = static_cast<const ns_real *>(inputs[2].data);
    ns_real *out = static_cast<ns_real *>(outputs[0].data);
    const int64_t images = inputs[0].shape[0];
    const int64_t channels = inputs[0].shape[1];
    const int64_t height = inputs[0].shape[2];
    const int64_t width = inputs[0].shape[3];
    const int64_t filters = inputs[1].shape[0];
    const int64_t count = images * filters * height * width;
    convolve<<<static_cast<unsigned>((count + THREADS - 1) / THREADS), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        x, weights, bias, out, count, channels, filters, height, width);
    return cudaGetLastError();
}
