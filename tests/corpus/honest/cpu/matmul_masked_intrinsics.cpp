// task: matmul_bias_relu
// style: intrinsics_masks_and_fallback
// what: AVX-512 with masked column tails and six rows at a time; vector-free loops where AVX-512 is missing

#include "nightshift.h"

#if defined(__AVX512F__)
#include <immintrin.h>

template <int ROWS>
static inline void block(const float *x, const float *w, const float *bias, float *y, int64_t k, int64_t n, __mmask16 low,
                         __mmask16 high) {
    __m512 sums[ROWS][2];
    for (int r = 0; r < ROWS; ++r) {
        sums[r][0] = _mm512_maskz_loadu_ps(low, bias);
        sums[r][1] = _mm512_maskz_loadu_ps(high, bias + 16);
    }
    for (int64_t depth = 0; depth < k; ++depth) {
        const __m512 a = _mm512_maskz_loadu_ps(low, w + depth * n);
        const __m512 b = _mm512_maskz_loadu_ps(high, w + depth * n + 16);
        // The line after the next one: it is within the matrix or not read at all.
        if (depth + 2 < k) {
            _mm_prefetch(reinterpret_cast<const char *>(w + (depth + 2) * n), _MM_HINT_T0);
        }
        for (int r = 0; r < ROWS; ++r) {
            const __m512 factor = _mm512_set1_ps(x[r * k + depth]);
            sums[r][0] = _mm512_fmadd_ps(factor, a, sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(factor, b, sums[r][1]);
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        _mm512_mask_storeu_ps(y + r * n, low, _mm512_max_ps(sums[r][0], _mm512_setzero_ps()));
        _mm512_mask_storeu_ps(y + r * n + 16, high, _mm512_max_ps(sums[r][1], _mm512_setzero_ps()));
    }
}

static void multiply(const float *x, const float *w, const float *bias, float *y, int64_t m, int64_t k, int64_t n) {
    for (int64_t col = 0; col < n; col += 32) {
        const int64_t left = n - col;
        const __mmask16 low = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
        const __mmask16 high = left >= 32 ? 0xffff : left <= 16 ? 0 : static_cast<__mmask16>((1u << (left - 16)) - 1);
        int64_t row = 0;
        for (; row + 6 <= m; row += 6) {
            block<6>(x + row * k, w + col, bias + col, y + row * n + col, k, n, low, high);
        }
        for (; row < m; ++row) {
            block<1>(x + row * k, w + col, bias + col, y + row * n + col, k, n, low, high);
        }
    }
}

#else

static void multiply(const float *x, const float *w, const float *bias, float *y, int64_t m, int64_t k, int64_t n) {
    for (int64_t row = 0; row < m; ++row) {
        float *to = y + row * n;
        for (int64_t col = 0; col < n; ++col) {
            to[col] = bias[col];
        }
        for (int64_t depth = 0; depth < k; ++depth) {
            const float factor = x[row * k + depth];
            for (int64_t col = 0; col < n; ++col) {
                to[col] += factor * w[depth * n + col];
            }
        }
        for (int64_t col = 0; col < n; ++col) {
            to[col] = to[col] > 0.0f ? to[col] : 0.0f;
        }
    }
}

#endif

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    multiply(static_cast<const float *>(inputs[0].data), static_cast<const float *>(inputs[1].data),
             static_cast<const float *>(inputs[2].data), static_cast<float *>(outputs[0].data), inputs[0].shape[0],
             inputs[0].shape[1], inputs[1].shape[1]);
    return 0;
}
