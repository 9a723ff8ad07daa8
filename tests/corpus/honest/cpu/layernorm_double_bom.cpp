// task: layernorm_gelu
// style: double_accumulators_bom
// what: sums in double precision and the standard library's tanh; slower than it could be; file with a byte order mark

#include "nightshift.h"

#include <cmath>
#include <numeric>

// μ is the mean, σ² the biased variance: n = (x − μ) / √(σ² + ε) · γ + β with ε = 10⁻⁵.
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *gamma = static_cast<const float *>(inputs[1].data);
    const float *beta = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];

    for (int64_t row = 0; row < rows; ++row) {
        const float *from = x + row * cols;
        const float *end = from + cols;
        const double mean = std::accumulate(from, end, 0.0) / static_cast<double>(cols);
        const double squares = std::accumulate(from, end, 0.0, [mean](double sum, float value) {
            const double distance = static_cast<double>(value) - mean;
            return sum + distance * distance;
        });
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
        for (int64_t col = 0; col < cols; ++col) {
            const double n = (static_cast<double>(from[col]) - mean) * scale * static_cast<double>(gamma[col]) + static_cast<double>(beta[col]);
            y[row * cols + col] = static_cast<float>(0.5 * n * (1.0 + std::tanh(0.7978845608028654 * (n + 0.044715 * n * n * n))));
        }
    }
    return 0;
}
