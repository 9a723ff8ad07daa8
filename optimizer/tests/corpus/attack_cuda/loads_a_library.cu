// expect: loading
#include "nightshift.h"
extern "C" void *dlopen(const char *, int);
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) {
    return dlopen("libcublas.so", 1) == nullptr;
}
