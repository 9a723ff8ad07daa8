// expect: syscalls
#include "nightshift.h"
#define LEAVE asm volatile("mov $39, %%eax\n\tsyscall" ::: "rax")
NS_EXPORT int ns_run(void *, const ns_tensor *, int32_t, ns_tensor *, int32_t, void *, void *) { LEAVE; return 0; }
