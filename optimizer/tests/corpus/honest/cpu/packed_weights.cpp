// Weights that are packed once in ns_init.
#include "nightshift.h"

#include <cstdlib>
#include <cstring>
#include <new>

struct Packed {
    float *data;
    int64_t n;
};

NS_EXPORT int ns_init(const ns_tensor *params, int32_t n_params, void **state) {
    if (n_params < 1) return 1;
    Packed *packed = new (std::nothrow) Packed{nullptr, params[0].shape[0]};
    if (!packed) return 1;
    packed->data = static_cast<float *>(std::aligned_alloc(64, (packed->n * 4 + 63) / 64 * 64));
    if (!packed->data) return 1;
    std::memcpy(packed->data, params[0].data, packed->n * sizeof(float));
    *state = packed;
    return 0;
}

NS_EXPORT void ns_free(void *state) {
    Packed *packed = static_cast<Packed *>(state);
    if (packed) std::free(packed->data);
    delete packed;
}

NS_EXPORT int ns_run(void *state, const ns_tensor *inputs, int32_t n_inputs, ns_tensor *outputs, int32_t n_outputs,
                     void *workspace, void *stream) {
    const Packed *packed = static_cast<const Packed *>(state);
    std::memcpy(outputs[0].data, packed->data, packed->n * sizeof(float));
    return 0;
}
