// task: cuda_conv2d_3x3
// style: implicit_gemm_packed_weights
// what: ns_init transposes the weights to taps by filters; a tiled product gathers its other factor from the image on the fly

#include "nightshift.h"

#include <cuda_runtime.h>

constexpr int PIXELS = 64;  // columns of the product's tile
constexpr int FILTERS = 32; // rows
constexpr int DEPTH = 18;   // two channels
constexpr int THREADS = 128;

struct Packed {
    float *weights; // taps (channels * 9) by filters, padded with zeros to whole tiles
    float *bias;    // padded as well
    int taps;
    int padded_taps;
    int filters;
    int padded_filters;
};

__global__ void pack(const float *weights, const float *bias, Packed to) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int filter = i % to.padded_filters;
    const int tap = i / to.padded_filters;
    if (tap < to.padded_taps) {
        to.weights[i] = filter < to.filters && tap < to.taps ? weights[static_cast<int64_t>(filter) * to.taps + tap] : 0.0f;
        if (tap == 0) {
            to.bias[filter] = filter < to.filters ? bias[filter] : 0.0f;
        }
    }
}

__global__ void __launch_bounds__(THREADS) convolve(const float *x, Packed w, float *out, int channels, int height, int width,
                                                    int64_t pixels) {
    __shared__ float image_tile[DEPTH][PIXELS];
    __shared__ float weight_tile[DEPTH][FILTERS];
    const int64_t area = static_cast<int64_t>(height) * width;
    const int64_t first_pixel = static_cast<int64_t>(blockIdx.x) * PIXELS;
    const int first_filter = blockIdx.y * FILTERS;
    const int own_filter = threadIdx.x / 16 * 4;
    const int own_pixel = threadIdx.x % 16;

    // The pixel that this thread gathers for, fixed for the whole loop: THREADS is a multiple of PIXELS.
    const int gathered = threadIdx.x % PIXELS;
    const int64_t pixel = first_pixel + gathered;
    const bool exists = pixel < pixels;
    const int64_t image = exists ? pixel / area : 0;
    const int i = exists ? static_cast<int>(pixel % area / width) : 0;
    const int j = exists ? static_cast<int>(pixel % width) : 0;

    float sums[4][4] = {};
    for (int first = 0; first < w.padded_taps; first += DEPTH) {
        __syncthreads();
        for (int k = threadIdx.x / PIXELS; k < DEPTH; k += THREADS / PIXELS) {
            const int channel = (first + k) / 9;
            const int row = i + (first + k) % 9 / 3 - 1;
            const int col = j + (first + k) % 3 - 1;
            const bool inside = exists && channel < channels && row >= 0 && row < height && col >= 0 && col < width;
            image_tile[k][gathered] =
                inside ? x[(image * channels + channel) * area + static_cast<int64_t>(row) * width + col] : 0.0f;
        }
        for (int at = threadIdx.x; at < DEPTH * FILTERS; at += THREADS) {
            weight_tile[at / FILTERS][at % FILTERS] =
                w.weights[static_cast<int64_t>(first + at / FILTERS) * w.padded_filters + first_filter + at % FILTERS];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            float values[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                values[p] = image_tile[k][own_pixel + 16 * p];
            }
#pragma unroll
            for (int f = 0; f < 4; ++f) {
                const float weight = weight_tile[k][own_filter + f];
#pragma unroll
                for (int p = 0; p < 4; ++p) {
                    sums[f][p] = fmaf(weight, values[p], sums[f][p]);
                }
            }
        }
    }
    for (int p = 0; p < 4; ++p) {
        const int64_t to_pixel = first_pixel + own_pixel + 16 * p;
        for (int f = 0; f < 4; ++f) {
            const int filter = first_filter + own_filter + f;
            if (to_pixel < pixels && filter < w.filters) {
                out[(to_pixel / area * w.filters + filter) * area + to_pixel % area] = sums[f][p] + w.bias[filter];
            }
        }
    }
}

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    Packed *packed = new Packed{};
    *state = packed;
    packed->filters = static_cast<int>(params[0].shape[0]);
    packed->taps = static_cast<int>(params[0].shape[1] * 9);
    packed->padded_filters = (packed->filters + FILTERS - 1) / FILTERS * FILTERS;
    packed->padded_taps = (packed->taps + DEPTH - 1) / DEPTH * DEPTH;
    const int elements = packed->padded_filters * packed->padded_taps;
    int status = cudaMalloc(&packed->weights, sizeof(float) * elements);
    status = status ? status : cudaMalloc(&packed->bias, sizeof(float) * packed->padded_filters);
    if (status) {
        return status;
    }
    pack<<<(elements + 255) / 256, 256>>>(static_cast<const float *>(params[0].data), static_cast<const float *>(params[1].data),
                                          *packed);
    status = cudaGetLastError();
    return status ? status : cudaDeviceSynchronize();
}

NS_EXPORT void ns_free(void *state) {
    Packed *packed = static_cast<Packed *>(state);
    if (packed) {
        cudaFree(packed->weights);
        cudaFree(packed->bias);
        delete packed;
    }
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const Packed &packed = *static_cast<const Packed *>(state);
    const int channels = static_cast<int>(inputs[0].shape[1]);
    const int height = static_cast<int>(inputs[0].shape[2]);
    const int width = static_cast<int>(inputs[0].shape[3]);
    const int64_t pixels = inputs[0].shape[0] * height * width;
    const dim3 blocks(static_cast<unsigned>((pixels + PIXELS - 1) / PIXELS), packed.padded_filters / FILTERS);
    convolve<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const float *>(inputs[0].data), packed,
                                                                        static_cast<float *>(outputs[0].data), channels, height,
                                                                        width, pixels);
    return cudaGetLastError();
}
