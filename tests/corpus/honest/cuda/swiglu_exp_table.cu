// task: cuda_swiglu_f16
// style: constexpr_table_in_constant_memory
// what: its own exponential from a table of sixteenth powers of two, computed at compile time, and a short polynomial

#include "nightshift.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int STEPS = 16;
constexpr int THREADS = 256;

struct Table {
    float power[STEPS];
};

// The square root by Newton's method, at compile time.
constexpr double root(double x) {
    double guess = x;
    for (int i = 0; i < 40; ++i) {
        guess = 0.5 * (guess + x / guess);
    }
    return guess;
}

// power[i] = 2^(i / 16): four square roots of two give 2^(1 / 16).
constexpr Table make_table() {
    const double step = root(root(root(root(2.0))));
    Table table{};
    double power = 1.0;
    for (int i = 0; i < STEPS; ++i) {
        table.power[i] = static_cast<float>(power);
        power *= step;
    }
    return table;
}

static_assert(make_table().power[8] > 1.41421f && make_table().power[8] < 1.41422f);

__constant__ Table powers = make_table();

__device__ __forceinline__ float exponential(float x) {
    // The bounds keep the exponent within that of a normal number.
    x = fminf(fmaxf(x, -87.0f), 88.0f);
    const float steps = rintf(x * (STEPS * 1.44269504f));
    // log(2) / 16 in two parts: the product with the first one is exact.
    const float rest = fmaf(steps, -1.24666985e-9f, fmaf(steps, -0.0433216095f, x));
    const int k = static_cast<int>(steps);
    const float polynomial = fmaf(rest, fmaf(rest, fmaf(rest, 0.16666667f, 0.5f), 1.0f), 1.0f);
    const int exponent = k >> 4; // rounds down for negative numbers, too
    return powers.power[k & (STEPS - 1)] * polynomial * __int_as_float((exponent + 127) << 23);
}

__global__ void __launch_bounds__(THREADS) swiglu(const __half *gate, const __half *value, const float *scale, __half *out,
                                                  int64_t rows, int64_t cols) {
    const int64_t col = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (col >= cols) {
        return;
    }
    const float factor = scale[col];
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const int64_t i = row * cols + col;
        const float g = __half2float(gate[i]);
        out[i] = __float2half_rn(__fdiv_rn(g, 1.0f + exponential(-g)) * __half2float(value[i]) * factor);
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *stream) {
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const dim3 blocks(static_cast<unsigned>((cols + THREADS - 1) / THREADS), static_cast<unsigned>(rows < 2048 ? rows : 2048));
    swiglu<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const __half *>(inputs[0].data), static_cast<const __half *>(inputs[1].data),
        static_cast<const float *>(inputs[2].data), static_cast<__half *>(outputs[0].data), rows, cols);
    return cudaGetLastError();
}
