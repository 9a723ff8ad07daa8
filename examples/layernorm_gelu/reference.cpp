// Layer normalisation followed by GELU: two operators, one after the other, each over the whole matrix.

#include "nightshift.h"

#include <cmath>

static void layernorm(const ns_real *x, const ns_real *gamma, const ns_real *beta, ns_real *out, int64_t rows,
                      int64_t cols) {
    for (int64_t row = 0; row < rows; ++row) {
        const ns_real *from = x + row * cols;
        ns_real *to = out + row * cols;

        ns_real mean = 0;
        for (int64_t col = 0; col < cols; ++col) {
            mean += from[col];
        }
        mean /= static_cast<ns_real>(cols);

        ns_real variance = 0;
        for (int64_t col = 0; col < cols; ++col) {
            variance += (from[col] - mean) * (from[col] - mean);
        }
        variance /= static_cast<ns_real>(cols);

        const ns_real scale = 1 / std::sqrt(variance + static_cast<ns_real>(1e-5));
        for (int64_t col = 0; col < cols; ++col) {
            to[col] = (from[col] - mean) * scale * gamma[col] + beta[col];
        }
    }
}

static void gelu(ns_real *values, int64_t count) {
    const ns_real root = static_cast<ns_real>(0.7978845608028654); // sqrt(2 / pi)
    const ns_real cubic = static_cast<ns_real>(0.044715);
    for (int64_t i = 0; i < count; ++i) {
        const ns_real n = values[i];
        values[i] = n / 2 * (1 + std::tanh(root * (n + cubic * n * n * n)));
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const ns_real *x = static_cast<const ns_real *>(inputs[0].data);
    const ns_real *gamma = static_cast<const ns_real *>(inputs[1].data);
    const ns_real *beta = static_cast<const ns_real *>(inputs[2].data);
    ns_real *y = static_cast<ns_real *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];

    layernorm(x, gamma, beta, y, rows, cols);
    gelu(y, rows * cols);
    return 0;
}
