// expect: forbidden_library
#include "nightshift.h"
extern "C" int cublasCreate_v2(void **);
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) {
    void *handle = nullptr;
    return cublasCreate_v2(&handle);
}
