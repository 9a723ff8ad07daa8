// task: layernorm_gelu
// style: vector_templates_alignas
// what: templates over a vector type; GELU through a sigmoid with a polynomial exponential; the tail uses a padded buffer

#include "nightshift.h"

#include <array>
#include <cmath>
#include <cstring>

template <int N> struct Pack {
    typedef float Value __attribute__((vector_size(N * sizeof(float))));
    typedef int32_t Bits __attribute__((vector_size(N * sizeof(int32_t))));
    Value v;

    static Pack of(float value) { return {Value{} + value}; }
    static Pack from(const float *p) {
        Pack result;
        std::memcpy(&result.v, p, sizeof result.v);
        return result;
    }
    void to(float *p) const { std::memcpy(p, &v, sizeof v); }
    float sum() const {
        float parts[N];
        to(parts);
        float total = 0.0f;
        for (float part : parts) {
            total += part;
        }
        return total;
    }
    friend Pack operator+(Pack a, Pack b) { return {a.v + b.v}; }
    friend Pack operator-(Pack a, Pack b) { return {a.v - b.v}; }
    friend Pack operator*(Pack a, Pack b) { return {a.v * b.v}; }
    friend Pack operator/(Pack a, Pack b) { return {a.v / b.v}; }
};

constexpr std::array<float, 7> TAYLOR = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};

template <int N> static inline Pack<N> exponential(Pack<N> x) {
    using Bits = typename Pack<N>::Bits;
    x.v = x.v < -87.0f ? Pack<N>::of(-87.0f).v : x.v;
    x.v = x.v > 88.0f ? Pack<N>::of(88.0f).v : x.v;
    const Pack<N> magic = Pack<N>::of(12582912.0f);
    const Pack<N> shifted = x * Pack<N>::of(1.44269504f) + magic;
    const Pack<N> k = shifted - magic;
    const Pack<N> r = (x - k * Pack<N>::of(0.693359375f)) + k * Pack<N>::of(2.12194440e-4f);
    Pack<N> p = Pack<N>::of(TAYLOR[0]);
    for (size_t i = 1; i < TAYLOR.size(); ++i) {
        p = p * r + Pack<N>::of(TAYLOR[i]);
    }
    Bits bits;
    std::memcpy(&bits, &shifted.v, sizeof bits);
    bits = (bits - 0x4B400000 + 127) << 23;
    Pack<N> power;
    std::memcpy(&power.v, &bits, sizeof bits);
    return p * power;
}

template <int N> static inline Pack<N> gelu(Pack<N> n) {
    const Pack<N> u = n * (Pack<N>::of(0.7978845608f) + Pack<N>::of(0.0356774081f) * n * n);
    return n / (Pack<N>::of(1.0f) + exponential(Pack<N>::of(-2.0f) * u));
}

template <int N>
static void rows_of(const float *x, const float *gamma, const float *beta, float *y, int64_t rows, int64_t cols) {
    const int64_t whole = cols / N * N;
    alignas(64) float in[N] = {};
    alignas(64) float g[N] = {};
    alignas(64) float b[N] = {};
    alignas(64) float out[N];
    for (int64_t i = whole; i < cols; ++i) {
        g[i - whole] = gamma[i];
        b[i - whole] = beta[i];
    }
    for (int64_t row = 0; row < rows; ++row, x += cols, y += cols) {
        Pack<N> sums[2] = {Pack<N>::of(0.0f), Pack<N>::of(0.0f)};
        for (int64_t i = 0; i < whole; i += N) {
            sums[i / N % 2] = sums[i / N % 2] + Pack<N>::from(x + i);
        }
        float total = (sums[0] + sums[1]).sum();
        for (int64_t i = whole; i < cols; ++i) {
            total += x[i];
        }
        const float mean = total / static_cast<float>(cols);

        Pack<N> squares = Pack<N>::of(0.0f);
        for (int64_t i = 0; i < whole; i += N) {
            const Pack<N> d = Pack<N>::from(x + i) - Pack<N>::of(mean);
            squares = squares + d * d;
        }
        total = squares.sum();
        for (int64_t i = whole; i < cols; ++i) {
            total += (x[i] - mean) * (x[i] - mean);
        }
        const float scale = 1.0f / std::sqrt(total / static_cast<float>(cols) + 1e-5f);

        const auto finish = [&](const float *from, const float *gammas, const float *betas) {
            return gelu((Pack<N>::from(from) - Pack<N>::of(mean)) * Pack<N>::of(scale) * Pack<N>::from(gammas) +
                        Pack<N>::from(betas));
        };
        for (int64_t i = 0; i < whole; i += N) {
            finish(x + i, gamma + i, beta + i).to(y + i);
        }
        if (whole < cols) {
            std::memcpy(in, x + whole, sizeof(float) * static_cast<size_t>(cols - whole));
            finish(in, g, b).to(out);
            std::memcpy(y + whole, out, sizeof(float) * static_cast<size_t>(cols - whole));
        }
    }
}

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
#if defined(__AVX512F__)
    constexpr int LANES = 16;
#elif defined(__AVX2__)
    constexpr int LANES = 8;
#else
    constexpr int LANES = 4;
#endif
    rows_of<LANES>(static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
                   static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), inputs[0].shape[0],
                   inputs[0].shape[1]);
    return 0;
}
