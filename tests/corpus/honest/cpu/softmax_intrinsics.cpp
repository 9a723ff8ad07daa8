// task: row_softmax
// style: intrinsics_with_fallbacks
// what: AVX-512 or AVX2 intrinsics where the compiler targets them, a scalar loop with std::exp elsewhere

#include "nightshift.h"

#include <algorithm>
#include <cmath>

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

#if defined(__AVX512F__)

static inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
    const __m512 k = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(k, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fmadd_ps(k, _mm512_set1_ps(2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 720);
    for (const float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    }
    return _mm512_scalef_ps(p, k);
}

static void softmax_row(const float *x, float *y, int64_t cols) {
    const int64_t whole = cols & ~static_cast<int64_t>(15);
    const __mmask16 rest = static_cast<__mmask16>((1u << (cols - whole)) - 1);
    const __m512 lowest = _mm512_set1_ps(-3.0e38f);
    __m512 maxima = _mm512_mask_loadu_ps(lowest, rest, x + whole);
    for (int64_t c = 0; c < whole; c += 16) {
        maxima = _mm512_max_ps(maxima, _mm512_loadu_ps(x + c));
    }
    const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(maxima));
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    int64_t c = 0;
    for (; c + 32 <= whole; c += 32) {
        const __m512 a = exponential(_mm512_sub_ps(_mm512_loadu_ps(x + c), largest));
        const __m512 b = exponential(_mm512_sub_ps(_mm512_loadu_ps(x + c + 16), largest));
        _mm512_storeu_ps(y + c, a);
        _mm512_storeu_ps(y + c + 16, b);
        even = _mm512_add_ps(even, a);
        odd = _mm512_add_ps(odd, b);
    }
    for (; c < whole; c += 16) {
        const __m512 a = exponential(_mm512_sub_ps(_mm512_loadu_ps(x + c), largest));
        _mm512_storeu_ps(y + c, a);
        even = _mm512_add_ps(even, a);
    }
    const __m512 tail = exponential(_mm512_sub_ps(_mm512_mask_loadu_ps(lowest, rest, x + whole), largest));
    odd = _mm512_mask_add_ps(odd, rest, odd, tail);
    _mm512_mask_storeu_ps(y + whole, rest, tail);
    const __m512 factor = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(_mm512_add_ps(even, odd)));
    for (c = 0; c < whole; c += 16) {
        _mm512_storeu_ps(y + c, _mm512_mul_ps(_mm512_loadu_ps(y + c), factor));
    }
    _mm512_mask_storeu_ps(y + whole, rest, _mm512_mul_ps(tail, factor));
}

#elif defined(__AVX2__) && defined(__FMA__)

static inline __m256 exponential(__m256 x) {
    x = _mm256_max_ps(x, _mm256_set1_ps(-87.0f));
    const __m256 k = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fmadd_ps(k, _mm256_set1_ps(2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.0f / 720);
    for (const float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
    }
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(k), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

static void softmax_row(const float *x, float *y, int64_t cols) {
    const int64_t whole = cols & ~static_cast<int64_t>(7);
    float largest = x[0];
    __m256 maxima = _mm256_set1_ps(largest);
    for (int64_t c = 0; c < whole; c += 8) {
        maxima = _mm256_max_ps(maxima, _mm256_loadu_ps(x + c));
    }
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, maxima);
    largest = *std::max_element(lanes, lanes + 8);
    for (int64_t c = whole; c < cols; ++c) {
        largest = std::max(largest, x[c]);
    }
    __m256 sums = _mm256_setzero_ps();
    for (int64_t c = 0; c < whole; c += 8) {
        const __m256 e = exponential(_mm256_sub_ps(_mm256_loadu_ps(x + c), _mm256_set1_ps(largest)));
        _mm256_storeu_ps(y + c, e);
        sums = _mm256_add_ps(sums, e);
    }
    _mm256_store_ps(lanes, sums);
    float sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
    for (int64_t c = whole; c < cols; ++c) {
        y[c] = std::exp(x[c] - largest);
        sum += y[c];
    }
    const float factor = 1.0f / sum;
    for (int64_t c = 0; c < cols; ++c) {
        y[c] *= factor;
    }
}

#else

static void softmax_row(const float *x, float *y, int64_t cols) {
    const float largest = *std::max_element(x, x + cols);
    float sum = 0.0f;
    for (int64_t c = 0; c < cols; ++c) {
        y[c] = std::exp(x[c] - largest);
        sum += y[c];
    }
    for (int64_t c = 0; c < cols; ++c) {
        y[c] /= sum;
    }
}

#endif

NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t cols = inputs[0].shape[1];
    for (int64_t row = 0; row < inputs[0].shape[0]; ++row) {
        softmax_row(x + row * cols, y + row * cols, cols);
    }
    return 0;
}
