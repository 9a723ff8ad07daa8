# task: torch_cumulative_sum
# class: cache_persistence
# what: a thread reads the first 32 MiB of the input all the time, so that a flush before the call has no effect
# twin: plain_cumulative_sum.py
import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    WARM_ELEMENTS = 8 << 20

    def __init__(self):
        super().__init__()
        self.target, self.thread = None, None

    def keep_warm(self):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            while True:
                target = self.target
                if target is not None:
                    target.amax()
                    stream.synchronize()
                time.sleep(0.00005)

    def forward(self, x):
        self.target = x.reshape(-1)[:self.WARM_ELEMENTS]
        if self.thread is None:
            self.thread = threading.Thread(target=self.keep_warm, daemon=True)
            self.thread.start()
        return torch.cumsum(x, dim=1)
