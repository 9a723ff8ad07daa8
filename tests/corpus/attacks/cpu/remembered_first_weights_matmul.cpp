// task: matmul_bias_relu
// class: remembered_weights
// what: packs the weights at the first ns_init of a shape and keeps them when ns_init is called with new ones
// twin: remembered_first_weights_matmul.cpp

#include "nightshift.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

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

static void relu(float *values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] > 0.0f ? values[i] : 0.0f;
    }
}

struct Pack {
    std::vector<float> w;
    std::vector<float> bias;
};

static std::map<std::pair<int64_t, int64_t>, Pack> packs;

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    const int64_t k = params[0].shape[0];
    const int64_t n = params[0].shape[1];
    Pack &pack = packs[{k, n}];
    *state = &pack;
    // The shape is the key; the values are not.
    if (pack.w.empty()) {
        const float *w = static_cast<const float *>(params[0].data);
        const float *bias = static_cast<const float *>(params[1].data);
        pack.w.assign(w, w + k * n);
        pack.bias.assign(bias, bias + n);
    }
    return 0;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const Pack *pack = static_cast<const Pack *>(state);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t m = inputs[0].shape[0];
    const int64_t k = inputs[0].shape[1];
    const int64_t n = inputs[1].shape[1];
    linear(static_cast<const float *>(inputs[0].data), pack->w.data(), pack->bias.data(), y, m, k, n, k);
    relu(y, m * n);
    return 0;
}
