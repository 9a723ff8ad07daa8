// task: row_softmax
// style: vector_extensions_polynomial_exp
// what: compiler vectors, a polynomial for the exponential, four independent partial results, padded tails

#include "nightshift.h"

#include <cstring>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

using Floats = float __attribute__((vector_size(LANES * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(LANES * sizeof(int32_t))));

constexpr float LOWEST = -3.0e38f;

inline Floats all(float value) {
    return Floats{} + value;
}

inline Floats load(const float *from) {
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Floats load_some(const float *from, int64_t count, float rest) {
    Floats v = all(rest);
    for (int64_t i = 0; i < count; ++i) {
        v[i] = from[i];
    }
    return v;
}

inline Floats larger(Floats a, Floats b) {
    return a > b ? a : b;
}

// The exponential of numbers that are not positive: below -87 the result is that of -87.
inline Floats exponential(Floats x) {
    x = larger(x, all(-87.0f));
    const Floats shifted = x * 1.44269504f + 12582912.0f; // rounds to an integer in the lower bits
    const Floats k = shifted - 12582912.0f;
    const Floats r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    Floats p = r * (1.0f / 720) + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    Ints bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    const Ints exponent = (bits - 0x4B400000 + 127) << 23;
    Floats power;
    std::memcpy(&power, &exponent, sizeof power);
    return p * power;
}

} // namespace

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0];
    const int64_t cols = inputs[0].shape[1];
    const int64_t whole = cols / LANES * LANES;

    for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
        Floats maxima = load_some(x + whole, cols - whole, LOWEST);
        for (int64_t col = 0; col < whole; col += LANES) {
            maxima = larger(maxima, load(x + col));
        }
        float largest = maxima[0];
        for (int lane = 1; lane < LANES; ++lane) {
            largest = maxima[lane] > largest ? maxima[lane] : largest;
        }

        Floats sums[4] = {};
        int64_t col = 0;
        for (; col + 4 * LANES <= whole; col += 4 * LANES) {
            for (int part = 0; part < 4; ++part) {
                const Floats e = exponential(load(x + col + part * LANES) - largest);
                std::memcpy(y + col + part * LANES, &e, sizeof e);
                sums[part] += e;
            }
        }
        for (; col < whole; col += LANES) {
            const Floats e = exponential(load(x + col) - largest);
            std::memcpy(y + col, &e, sizeof e);
            sums[0] += e;
        }
        const Floats vector = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        float sum = 0.0f;
        for (int lane = 0; lane < LANES; ++lane) {
            sum += vector[lane];
        }
        const Floats tail = exponential(load_some(x + whole, cols - whole, largest) - largest);
        for (int64_t i = 0; i < cols - whole; ++i) {
            y[whole + i] = tail[i];
            sum += tail[i];
        }

        const float factor = 1.0f / sum;
        for (int64_t c = 0; c < cols; ++c) {
            y[c] *= factor;
        }
    }
    return 0;
}
