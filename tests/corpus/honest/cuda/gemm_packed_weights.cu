// task: cuda_gemm_bias_relu
// style: weights_packed_on_host
// what: ns_init packs the weights into zero-padded panels of 64 columns on the host; the kernel reads panels without tests

#include "nightshift.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <vector>

constexpr int PANEL = 64;
constexpr int DEPTH = 16;
constexpr int ROWS = 32;
constexpr int THREADS = 128; // each with four rows by four columns

struct Packed {
    float *weights = nullptr; // panels, each with padded_depth rows of PANEL floats
    float *bias = nullptr;    // padded to whole panels
    int depth = 0;
    int padded_depth = 0;
    int cols = 0;
    int panels = 0;
};

static constexpr int round_up(int value, int to) {
    return (value + to - 1) / to * to;
}

NS_EXPORT void ns_free(void *state) {
    if (Packed *packed = static_cast<Packed *>(state)) {
        cudaFree(packed->weights);
        cudaFree(packed->bias);
        delete packed;
    }
}

NS_EXPORT int ns_init(const ns_tensor *params, int32_t n_params, void **state) {
    if (n_params != 2) {
        return -1;
    }
    Packed *packed = new Packed;
    *state = packed;
    packed->depth = static_cast<int>(params[0].shape[0]);
    packed->cols = static_cast<int>(params[0].shape[1]);
    packed->padded_depth = round_up(packed->depth, DEPTH);
    packed->panels = (packed->cols + PANEL - 1) / PANEL;

    std::vector<float> plain(static_cast<size_t>(packed->depth) * packed->cols);
    std::vector<float> bias(static_cast<size_t>(packed->panels) * PANEL, 0.0f);
    std::vector<float> panels(static_cast<size_t>(packed->panels) * packed->padded_depth * PANEL, 0.0f);
    std::array<cudaError_t, 6> results{};
    results[0] = cudaMemcpy(plain.data(), params[0].data, plain.size() * sizeof(float), cudaMemcpyDeviceToHost);
    results[1] = cudaMemcpy(bias.data(), params[1].data, packed->cols * sizeof(float), cudaMemcpyDeviceToHost);
    for (int k = 0; k < packed->depth; ++k) {
        for (int col = 0; col < packed->cols; ++col) {
            const size_t row = static_cast<size_t>(col / PANEL) * packed->padded_depth + k;
            panels[row * PANEL + col % PANEL] = plain[static_cast<size_t>(k) * packed->cols + col];
        }
    }
    results[2] = cudaMalloc(&packed->weights, panels.size() * sizeof(float));
    results[3] = cudaMalloc(&packed->bias, bias.size() * sizeof(float));
    if (results[2] == cudaSuccess && results[3] == cudaSuccess) {
        results[4] = cudaMemcpy(packed->weights, panels.data(), panels.size() * sizeof(float), cudaMemcpyHostToDevice);
        results[5] = cudaMemcpy(packed->bias, bias.data(), bias.size() * sizeof(float), cudaMemcpyHostToDevice);
    }
    const auto failed = std::find_if(results.begin(), results.end(), [](cudaError_t e) { return e != cudaSuccess; });
    return failed == results.end() ? 0 : *failed;
}

__global__ void __launch_bounds__(THREADS) linear_relu(const float *x, const Packed packed, float *out, int rows) {
    __shared__ __align__(16) float x_tile[DEPTH][ROWS + 4];
    __shared__ __align__(16) float w_tile[DEPTH][PANEL];
    const float *panel = packed.weights + static_cast<int64_t>(blockIdx.x) * packed.padded_depth * PANEL;
    const int first_row = blockIdx.y * ROWS;
    const int own_row = threadIdx.x / 16 * 4;
    const int own_col = threadIdx.x % 16 * 4;

    float sums[4][4] = {};
    for (int first = 0; first < packed.padded_depth; first += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
            const int row = first_row + i / DEPTH;
            const int k = first + i % DEPTH;
            x_tile[i % DEPTH][i / DEPTH] = row < rows && k < packed.depth ? x[static_cast<int64_t>(row) * packed.depth + k] : 0.0f;
        }
        const float4 *from = reinterpret_cast<const float4 *>(panel + static_cast<int64_t>(first) * PANEL);
        for (int i = threadIdx.x; i < DEPTH * PANEL / 4; i += THREADS) {
            reinterpret_cast<float4 *>(&w_tile[0][0])[i] = from[i];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            const float4 left = *reinterpret_cast<const float4 *>(&x_tile[k][own_row]);
            const float4 right = *reinterpret_cast<const float4 *>(&w_tile[k][own_col]);
            const float l[4] = {left.x, left.y, left.z, left.w};
            const float r[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[i][j] = fmaf(l[i], r[j], sums[i][j]);
                }
            }
        }
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            const int row = first_row + own_row + i;
            const int col = blockIdx.x * PANEL + own_col + j;
            if (row < rows && col < packed.cols) {
                out[static_cast<int64_t>(row) * packed.cols + col] = fmaxf(sums[i][j] + packed.bias[col], 0.0f);
            }
        }
    }
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const Packed &packed = *static_cast<const Packed *>(state);
    const int rows = static_cast<int>(inputs[0].shape[0]);
    const dim3 blocks(packed.panels, (rows + ROWS - 1) / ROWS);
    linear_relu<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const float *>(inputs[0].data),
                                                                           packed, static_cast<float *>(outputs[0].data),
                                                                           rows);
    return cudaGetLastError();
}
