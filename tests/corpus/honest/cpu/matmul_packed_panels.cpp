// task: matmul_bias_relu
// style: weights_packed_std_vector
// what: ns_init packs the weights into panels of two vectors; the kernel keeps four rows by one panel in registers

#include "nightshift.h"

#include <cstring>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Vec __attribute__((vector_size(LANES * sizeof(float))));

constexpr int ROWS = 4;
constexpr int PANEL = 2 * LANES;

struct Packed {
    std::vector<float> panels; // each: k rows of PANEL floats, zeros beyond the last column
    std::vector<float> bias;
    int64_t k = 0;
    int64_t n = 0;
};

inline Vec load(const float *from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

// COUNT rows of x times one panel.
template <int COUNT>
void multiply(const float *x, int64_t k, const float *panel, const float *bias, float *y, int64_t pitch, int64_t width) {
    Vec sums[COUNT][2];
    for (int row = 0; row < COUNT; ++row) {
        sums[row][0] = Vec{};
        sums[row][1] = Vec{};
    }
    for (int64_t depth = 0; depth < k; ++depth) {
        const Vec left = load(panel + depth * PANEL);
        const Vec right = load(panel + depth * PANEL + LANES);
        for (int row = 0; row < COUNT; ++row) {
            const float factor = x[row * k + depth];
            sums[row][0] += left * factor;
            sums[row][1] += right * factor;
        }
    }
    for (int row = 0; row < COUNT; ++row) {
        alignas(64) float values[PANEL];
        for (int half = 0; half < 2; ++half) {
            const Vec sum = sums[row][half] + load(bias + half * LANES);
            const Vec positive = sum > 0.0f ? sum : Vec{};
            std::memcpy(values + half * LANES, &positive, sizeof positive);
        }
        std::memcpy(y + row * pitch, values, sizeof(float) * static_cast<size_t>(width));
    }
}

} // namespace

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    Packed *packed = new Packed;
    const float *w = static_cast<const float *>(params[0].data);
    const float *bias = static_cast<const float *>(params[1].data);
    packed->k = params[0].shape[0];
    packed->n = params[0].shape[1];
    const int64_t count = (packed->n + PANEL - 1) / PANEL;
    packed->panels.assign(static_cast<size_t>(count * packed->k * PANEL), 0.0f);
    packed->bias.assign(static_cast<size_t>(count * PANEL), 0.0f);
    for (int64_t col = 0; col < packed->n; ++col) {
        packed->bias[static_cast<size_t>(col)] = bias[col];
        for (int64_t depth = 0; depth < packed->k; ++depth) {
            const int64_t at = (col / PANEL * packed->k + depth) * PANEL + col % PANEL;
            packed->panels[static_cast<size_t>(at)] = w[depth * packed->n + col];
        }
    }
    *state = packed;
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<Packed *>(state);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const Packed &packed = *static_cast<const Packed *>(state);
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t m = inputs[0].shape[0];
    for (int64_t first = 0; first < packed.n; first += PANEL) {
        const float *panel = packed.panels.data() + first * packed.k;
        const float *bias = packed.bias.data() + first;
        const int64_t width = packed.n - first < PANEL ? packed.n - first : PANEL;
        int64_t row = 0;
        for (; row + ROWS <= m; row += ROWS) {
            multiply<ROWS>(x + row * packed.k, packed.k, panel, bias, y + row * packed.n + first, packed.n, width);
        }
        for (; row < m; ++row) {
            multiply<1>(x + row * packed.k, packed.k, panel, bias, y + row * packed.n + first, packed.n, width);
        }
    }
    return 0;
}
