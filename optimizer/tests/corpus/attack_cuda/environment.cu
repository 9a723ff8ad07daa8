// expect: environment
#include "nightshift.h"
#include <cstdlib>
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) {
    return getenv("CUDA_INJECTION64_PATH") != nullptr;
}
