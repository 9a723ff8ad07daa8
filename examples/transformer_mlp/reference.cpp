// The MLP block of a transformer: five operators, one after the other, each with its result in memory.

#include "nightshift.h"

#include <cmath>
#include <vector>

static void layernorm(const ns_real *x, const ns_real *gamma, const ns_real *beta, ns_real *out, int64_t tokens,
                      int64_t width) {
    for (int64_t token = 0; token < tokens; ++token) {
        const ns_real *from = x + token * width;

        ns_real mean = 0;
        for (int64_t i = 0; i < width; ++i) {
            mean += from[i];
        }
        mean /= static_cast<ns_real>(width);

        ns_real variance = 0;
        for (int64_t i = 0; i < width; ++i) {
            variance += (from[i] - mean) * (from[i] - mean);
        }
        variance /= static_cast<ns_real>(width);

        const ns_real scale = 1 / std::sqrt(variance + static_cast<ns_real>(1e-5));
        for (int64_t i = 0; i < width; ++i) {
            out[token * width + i] = (from[i] - mean) * scale * gamma[i] + beta[i];
        }
    }
}

static void linear(const ns_real *x, const ns_real *w, const ns_real *bias, ns_real *out, int64_t rows, int64_t depth,
                   int64_t cols) {
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
            ns_real sum = 0;
            for (int64_t i = 0; i < depth; ++i) {
                sum += x[row * depth + i] * w[i * cols + col];
            }
            out[row * cols + col] = sum + bias[col];
        }
    }
}

static void gelu(ns_real *values, int64_t count) {
    const ns_real root = static_cast<ns_real>(0.7978845608028654); // sqrt(2 / pi)
    const ns_real cubic = static_cast<ns_real>(0.044715);
    for (int64_t i = 0; i < count; ++i) {
        const ns_real v = values[i];
        values[i] = v / 2 * (1 + std::tanh(root * (v + cubic * v * v * v)));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *gamma = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *beta = static_cast<const ns_real *>(inputs[2].data);
    const ns_real *w1 = static_cast<const ns_real *>(inputs[3].data);
    const ns_real *b1 = static_cast<const ns_real *>(inputs[4].data);
    const ns_real *w2 = static_cast<const ns_real *>(inputs[5].data);
    const ns_real *b2 = static_cast<const ns_real *>(inputs[6].data);
    ns_real *out = static_cast<ns_real *>(outputs[0].data);
    const int64_t tokens = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    const int64_t hidden = inputs[3].shape[1];

    std::vector<ns_real> normalized(static_cast<size_t>(tokens * width));
    std::vector<ns_real> activation(static_cast<size_t>(tokens * hidden));

    layernorm(x, gamma, beta, normalized.data(), tokens, width);
    linear(normalized.data(), w1, b1, activation.data(), tokens, width, hidden);
    gelu(activation.data(), tokens * hidden);
    linear(activation.data(), w2, b2, out, tokens, hidden, width);
    for (int64_t i = 0; i < tokens * width; ++i) {
        out[i] += x[i];
    }
    return 0;
}
