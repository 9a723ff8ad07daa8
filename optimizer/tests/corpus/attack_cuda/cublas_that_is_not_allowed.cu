// expect: forbidden_library
#include "nightshift.h"
#include <cublas_v2.h>
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return 0; }
