

import os as _os

import torch._inductor.config as _inductor

# A jail has no shared memory, which a pool of compiling processes needs. Variants of kernels are compiled by threads of this process:
# PyTorch reads the number of threads for them from the environment, and that of processes from its own setting. Each thread starts
# assemblers, and a jail may have few processes.
_inductor.compile_threads = 1
_os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(min(6, len(_os.sched_getaffinity(0))))


class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compile(mode="MODE")
