// expect: interposes_cuda
#include "nightshift.h"
extern "C" { int cudaDeviceSynchronize() { return 0; } }
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { return 0; }
