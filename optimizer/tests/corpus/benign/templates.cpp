// Templates, constexpr tables, lambdas and digit separators.
#include "nightshift.h"

#include <array>
#include <cstdint>
#include <utility>

template <int N> constexpr std::array<float, N> powers() {
    std::array<float, N> made{};
    float v = 1.0f;
    for (int i = 0; i < N; i++, v *= 0.5f) made[i] = v;
    return made;
}
static constexpr auto kPowers = powers<16>();
constexpr int64_t kBlock = 1'024;

template <typename F, int64_t... I> static inline void each(F &&f, std::integer_sequence<int64_t, I...>) {
    (f(I), ...);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    float *y = static_cast<float *>(outputs[0].data);
    each([&](int64_t i) { y[i] = kPowers[i] * kBlock; }, std::make_integer_sequence<int64_t, 4>{});
    return 0;
}
