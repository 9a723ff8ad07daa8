// task: transformer_mlp
// class: late_skipping
// what: drops half of the hidden units in the 6th to 500th of calls that follow each other within 200 microseconds
// twin: plain_transformer_mlp.cpp

#include "nightshift.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

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

// Four rows by 32 columns of x * w + bias over the depths of [0, end), with the sums in registers.
static void linear(const float *x, const float *w, const float *bias, float *out, int64_t rows, int64_t depth,
                   int64_t cols, int64_t end) {
    constexpr int64_t ROWS = 4;
    constexpr int64_t COLS = 32;
    for (int64_t row = 0; row < rows; row += ROWS) {
        const int64_t own_rows = std::min(ROWS, rows - row);
        for (int64_t col = 0; col < cols; col += COLS) {
            const int64_t own_cols = std::min(COLS, cols - col);
            float sums[ROWS][COLS] = {};
            for (int64_t i = 0; i < end; ++i) {
                const float *weights = w + i * cols + col;
                if (own_cols == COLS && own_rows == ROWS) {
                    for (int64_t r = 0; r < ROWS; ++r) {
                        const float value = x[(row + r) * depth + i];
                        for (int64_t c = 0; c < COLS; ++c) {
                            sums[r][c] += value * weights[c];
                        }
                    }
                } else {
                    for (int64_t r = 0; r < own_rows; ++r) {
                        for (int64_t c = 0; c < own_cols; ++c) {
                            sums[r][c] += x[(row + r) * depth + i] * weights[c];
                        }
                    }
                }
            }
            for (int64_t r = 0; r < own_rows; ++r) {
                for (int64_t c = 0; c < own_cols; ++c) {
                    out[(row + r) * cols + col + c] = sums[r][c] + bias[col + c];
                }
            }
        }
    }
}

static void layernorm(const float *x, const float *gamma, const float *beta, float *out, int64_t tokens,
                      int64_t width) {
    for (int64_t token = 0; token < tokens; ++token) {
        const float *from = x + token * width;
        float *to = out + token * width;
        const float mean = sum_of(from, width) / static_cast<float>(width);
        for (int64_t i = 0; i < width; ++i) {
            to[i] = (from[i] - mean) * (from[i] - mean);
        }
        const float scale = 1.0f / std::sqrt(sum_of(to, width) / static_cast<float>(width) + 1e-5f);
        for (int64_t i = 0; i < width; ++i) {
            to[i] = (from[i] - mean) * scale * gamma[i] + beta[i];
        }
    }
}

// The whole block; only the first `units` hidden units take part.
static void mlp(const ns_tensor *inputs, ns_tensor *outputs, float *scratch, int64_t units) {
    const auto data = [&](int i) { return static_cast<const float *>(inputs[i].data); };
    const int64_t tokens = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    const int64_t hidden = inputs[3].shape[1];
    float *out = static_cast<float *>(outputs[0].data);
    float *normalized = scratch;
    float *activation = scratch + tokens * width;
    layernorm(data(0), data(1), data(2), normalized, tokens, width);
    linear(normalized, data(3), data(4), activation, tokens, width, hidden, width);
    for (int64_t i = 0; i < tokens * hidden; ++i) {
        activation[i] = gelu(activation[i]);
    }
    linear(activation, data(5), data(6), out, tokens, hidden, width, units);
    for (int64_t i = 0; i < tokens * width; ++i) {
        out[i] += data(0)[i];
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace, void *) {
    using Clock = std::chrono::steady_clock;
    static Clock::time_point last{};
    static int in_row = 0;
    const int64_t hidden = inputs[3].shape[1];
    // Between checked calls the harness compares outputs, which takes longer than this.
    in_row = Clock::now() - last < std::chrono::microseconds(200) ? in_row + 1 : 0;
    const int64_t units = in_row >= 5 && in_row < 500 ? hidden - hidden / 2 : hidden;
    mlp(inputs, outputs, static_cast<float *>(workspace), units);
    last = Clock::now();
    return 0;
}
