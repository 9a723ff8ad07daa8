// Vector types of the compiler and an OpenMP directive that asks for vectors only.
#include "nightshift.h"

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
#pragma GCC optimize("O3")
#pragma GCC target("avx2")
#pragma omp declare simd
static float square(float v) { return v * v; }

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    const float *x = static_cast<const float *>(inputs[0].data);
    float *y = static_cast<float *>(outputs[0].data);
    float sum = 0.0f;
    #pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < inputs[0].shape[0]; i++) sum += square(x[i]);
    #pragma GCC unroll 4
    for (int64_t i = 0; i < outputs[0].shape[0]; i++) y[i] = sum;
    return 0;
}
