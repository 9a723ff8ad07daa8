// task: gather_scale
// style: raii_state_precomputed_reciprocal
// what: ns_init finds a reciprocal that replaces the division by the number of rows; rows are added one after the other

#include "nightshift.h"

#include <algorithm>
#include <memory>

namespace {

// The remainder of a 32-bit number by a fixed divisor with two multiplications (Lemire's method).
class Modulus {
public:
    explicit Modulus(uint32_t divisor) noexcept : divisor_(divisor), reciprocal_(UINT64_MAX / divisor + 1) {}

    uint32_t remainder(uint32_t value) const noexcept {
        // For a divisor of one the reciprocal wraps to zero, and so does the remainder.
        const uint64_t fraction = reciprocal_ * value;
        return static_cast<uint32_t>((static_cast<unsigned __int128>(fraction) * divisor_) >> 64);
    }

    // As remainder, for negative numbers into the same range.
    uint32_t wrap(int32_t value) const noexcept {
        if (value >= 0) {
            return remainder(static_cast<uint32_t>(value));
        }
        // -value - 1 is never negative, also for the lowest number of all.
        return divisor_ - 1 - remainder(static_cast<uint32_t>(-(value + 1)));
    }

private:
    uint32_t divisor_;
    uint64_t reciprocal_;
};

} // namespace

NS_EXPORT int ns_init(const ns_tensor *params, int32_t n_params, void **state) {
    if (n_params != 1 || params[0].rank != 2) {
        return 1;
    }
    auto modulus = std::make_unique<Modulus>(static_cast<uint32_t>(params[0].shape[0]));
    *state = modulus.release();
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    std::unique_ptr<Modulus> owner(static_cast<Modulus *>(state));
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    const Modulus modulus = *static_cast<const Modulus *>(state);
    const int32_t *index = static_cast<const int32_t *>(inputs[0].data);
    const float *scale = static_cast<const float *>(inputs[1].data);
    const float *table = static_cast<const float *>(inputs[2].data);
    float *y = static_cast<float *>(outputs[0].data);
    const int64_t bags = inputs[0].shape[0];
    const int64_t per_bag = inputs[0].shape[1];
    const int64_t cols = inputs[2].shape[1];

    for (int64_t bag = 0; bag < bags; ++bag) {
        float *__restrict to = y + bag * cols;
        std::fill_n(to, cols, 0.0f);
        for (int64_t p = bag * per_bag; p < (bag + 1) * per_bag; ++p) {
            const float *__restrict from = table + static_cast<int64_t>(modulus.wrap(index[p])) * cols;
            const float factor = scale[p];
            for (int64_t col = 0; col < cols; ++col) {
                to[col] += factor * from[col];
            }
        }
    }
    return 0;
}
