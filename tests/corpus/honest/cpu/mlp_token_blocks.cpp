// task: transformer_mlp
// style: namespaces_lambdas_token_blocks
// what: blocks of eight tokens go through all five operators; products run column by column with tokens as vector lanes

#include "nightshift.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace mlp {

constexpr int TOKENS = 8;
using Row = std::array<float, TOKENS>; // one column of the block: a value for each token

// Calls store(col, sums) for each column of block * w. The inner loops over tokens vectorize.
template <typename Store>
void product(const std::vector<Row> &block, const float *w, int64_t cols, Store &&store) {
    const int64_t depth = static_cast<int64_t>(block.size());
    for (int64_t col = 0; col < cols; ++col) {
        alignas(32) Row even{};
        alignas(32) Row odd{};
        int64_t k = 0;
        for (; k + 1 < depth; k += 2) {
            const float a = w[k * cols + col];
            const float b = w[(k + 1) * cols + col];
            for (int t = 0; t < TOKENS; ++t) {
                even[t] += block[static_cast<size_t>(k)][t] * a;
                odd[t] += block[static_cast<size_t>(k + 1)][t] * b;
            }
        }
        if (k < depth) {
            for (int t = 0; t < TOKENS; ++t) {
                even[t] += block[static_cast<size_t>(k)][t] * w[k * cols + col];
            }
        }
        for (int t = 0; t < TOKENS; ++t) {
            even[t] += odd[t];
        }
        store(col, even);
    }
}

inline float gelu(float v) noexcept {
    return 0.5f * v * (1.0f + std::tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
}

} // namespace mlp

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    using namespace mlp;
    const auto in = [&](int i) { return static_cast<const float *>(inputs[i].data); };
    const float *x = in(0), *gamma = in(1), *beta = in(2), *w1 = in(3), *b1 = in(4), *w2 = in(5), *b2 = in(6);
    float *out = static_cast<float *>(outputs[0].data);
    const int64_t tokens = inputs[0].shape[0];
    const int64_t width = inputs[0].shape[1];
    const int64_t hidden = inputs[3].shape[1];

    std::vector<Row> normalised(static_cast<size_t>(width));
    std::vector<Row> activation(static_cast<size_t>(hidden));
    for (int64_t first = 0; first < tokens; first += TOKENS) {
        const int count = static_cast<int>(std::min<int64_t>(TOKENS, tokens - first));
        for (int t = 0; t < TOKENS; ++t) {
            if (t >= count) {
                for (Row &row : normalised) {
                    row[static_cast<size_t>(t)] = 0.0f;
                }
                continue;
            }
            const float *from = x + (first + t) * width;
            float sum = 0.0f;
            std::for_each(from, from + width, [&](float value) { sum += value; });
            const float mean = sum / static_cast<float>(width);
            float squares = 0.0f;
            std::for_each(from, from + width, [&](float value) { squares += (value - mean) * (value - mean); });
            const float scale = 1.0f / std::sqrt(squares / static_cast<float>(width) + 1e-5f);
            for (int64_t i = 0; i < width; ++i) {
                normalised[static_cast<size_t>(i)][static_cast<size_t>(t)] = (from[i] - mean) * scale * gamma[i] + beta[i];
            }
        }
        product(normalised, w1, hidden, [&](int64_t col, const Row &sums) {
            for (size_t t = 0; t < TOKENS; ++t) {
                activation[static_cast<size_t>(col)][t] = gelu(sums[t] + b1[col]);
            }
        });
        product(activation, w2, width, [&](int64_t col, const Row &sums) {
            for (int t = 0; t < count; ++t) {
                const int64_t at = (first + t) * width + col;
                out[at] = sums[static_cast<size_t>(t)] + b2[col] + x[at];
            }
        });
    }
    return 0;
}
