// task: transformer_mlp
// style: transposed_weights_workspace
// what: ns_init folds gamma and beta into transposed weights; both products are dot products over whole padded vectors

#include "nightshift.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace {

typedef float Vec __attribute__((vector_size(32)));

constexpr int64_t LANES = 8;

constexpr int64_t padded(int64_t count) {
    return (count + LANES - 1) / LANES * LANES;
}

struct State {
    std::vector<float> w1; // hidden rows of padded(width), gamma included
    std::vector<float> b1; // beta included
    std::vector<float> w2; // width rows of padded(hidden)
    int64_t width = 0;
    int64_t hidden = 0;
};

inline Vec load(const float *from) {
    Vec v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

float dot(const float *a, const float *b, int64_t count) {
    Vec sums[2] = {};
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        sums[0] += load(a + i) * load(b + i);
        sums[1] += load(a + i + LANES) * load(b + i + LANES);
    }
    if (i < count) {
        sums[0] += load(a + i) * load(b + i);
    }
    const Vec sum = sums[0] + sums[1];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

} // namespace

NS_EXPORT int ns_init(const ns_tensor *params, int32_t, void **state) {
    State *s = new State;
    *state = s;
    const auto data = [&](int i) { return static_cast<const float *>(params[i].data); };
    const float *gamma = data(0);
    const float *beta = data(1);
    s->width = params[2].shape[0];
    s->hidden = params[2].shape[1];
    const int64_t pitch1 = padded(s->width);
    const int64_t pitch2 = padded(s->hidden);
    s->w1.assign(static_cast<size_t>(s->hidden * pitch1), 0.0f);
    s->w2.assign(static_cast<size_t>(s->width * pitch2), 0.0f);
    s->b1.resize(static_cast<size_t>(s->hidden));
    for (int64_t h = 0; h < s->hidden; ++h) {
        double shift = data(3)[h];
        for (int64_t i = 0; i < s->width; ++i) {
            const float w = data(2)[i * s->hidden + h];
            s->w1[static_cast<size_t>(h * pitch1 + i)] = gamma[i] * w;
            shift += static_cast<double>(beta[i]) * static_cast<double>(w);
            s->w2[static_cast<size_t>(i * pitch2 + h)] = data(4)[h * s->width + i];
        }
        s->b1[static_cast<size_t>(h)] = static_cast<float>(shift);
    }
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    delete static_cast<State *>(state);
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace, void *) {
    const State &s = *static_cast<const State *>(state);
    const float *x = static_cast<const float *>(inputs[0].data);
    const float *b2 = static_cast<const float *>(inputs[6].data);
    float *out = static_cast<float *>(outputs[0].data);
    const int64_t tokens = inputs[0].shape[0];
    const int64_t pitch1 = padded(s.width);
    const int64_t pitch2 = padded(s.hidden);
    if (static_cast<uint64_t>(pitch1 + pitch2) * sizeof(float) > NS_WORKSPACE_BYTES) {
        return 1;
    }
    float *normalised = static_cast<float *>(workspace);
    float *activation = normalised + pitch1;
    std::memset(normalised, 0, sizeof(float) * static_cast<size_t>(pitch1 + pitch2)); // the padding stays zero

    for (int64_t token = 0; token < tokens; ++token, x += s.width, out += s.width) {
        float sum = 0.0f;
        for (int64_t i = 0; i < s.width; ++i) {
            sum += x[i];
        }
        const float mean = sum / static_cast<float>(s.width);
        float squares = 0.0f;
        for (int64_t i = 0; i < s.width; ++i) {
            normalised[i] = x[i] - mean;
            squares += normalised[i] * normalised[i];
        }
        const float scale = 1.0f / std::sqrt(squares / static_cast<float>(s.width) + 1e-5f);
        for (int64_t i = 0; i < s.width; ++i) {
            normalised[i] *= scale;
        }
        for (int64_t h = 0; h < s.hidden; ++h) {
            const float v = dot(normalised, s.w1.data() + h * pitch1, pitch1) + s.b1[static_cast<size_t>(h)];
            activation[h] = 0.5f * v * (1.0f + std::tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
        }
        for (int64_t i = 0; i < s.width; ++i) {
            out[i] = x[i] + b2[i] + dot(activation, s.w2.data() + i * pitch2, pitch2);
        }
    }
    return 0;
}
