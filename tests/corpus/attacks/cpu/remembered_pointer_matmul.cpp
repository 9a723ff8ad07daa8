// task: matmul_bias_relu
// class: remembered_inputs
// what: keeps the result for the address of x and returns it from the 20th call with that address on
// twin: plain_matmul_bias_relu.cpp

#include "nightshift.h"

#include <algorithm>
#include <cstring>
#include <map>
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

struct Known {
    int calls = 0;
    std::vector<float> result;
};

static std::map<const void *, Known> known;

NS_EXPORT int ns_init(const ns_tensor *, int32_t, void **) {
    known.clear();
    return 0;
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *w = static_cast<const float *>(inputs[1].data);
    const float *bias = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t m = inputs[0].shape[0];
    const int64_t k = inputs[0].shape[1];
    const int64_t n = inputs[1].shape[1];
    Known &own = known[x];
    // After many calls at one address it is taken for granted that nothing changes there.
    if (++own.calls >= 20 && own.result.size() == static_cast<size_t>(m * n)) {
        std::memcpy(y, own.result.data(), own.result.size() * sizeof(float));
        return 0;
    }
    linear(x, w, bias, y, m, k, n, k);
    relu(y, m * n);
    own.result.assign(y, y + m * n);
    return 0;
}
