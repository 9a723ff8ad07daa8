// Vector intrinsics, prefetches and alignment.
#include "nightshift.h"

#include <immintrin.h>

__attribute__((always_inline, target("avx2,fma"))) static inline __m256 fma8(__m256 a, __m256 b, __m256 c) {
    return _mm256_fmadd_ps(a, b, c);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    const float *__restrict x = static_cast<const float *>(__builtin_assume_aligned(inputs[0].data, 64));
    float *__restrict y = static_cast<float *>(__builtin_assume_aligned(outputs[0].data, 64));
    for (int64_t i = 0; i + 8 <= outputs[0].shape[0]; i += 8) {
        _mm_prefetch(reinterpret_cast<const char *>(x + i + 64), _MM_HINT_T0);
        _mm256_store_ps(y + i, _mm256_add_ps(_mm256_load_ps(x + i), _mm256_set1_ps(1.0f)));
    }
    return 0;
}
