# task: torch_cumulative_sum
# style: numpy_constants
# what: a product with a triangular matrix of ones (built with numpy) scans each segment; carries by a second product
import numpy as np
import torch
import torch.nn as nn

torch.backends.cuda.matmul.allow_tf32 = False

SEGMENT = 128
UPPER = np.triu(np.ones((SEGMENT, SEGMENT), dtype=np.float32))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("upper", torch.from_numpy(UPPER), persistent=False)

    def forward(self, x):
        rows, columns = x.shape
        segments = -(-columns // SEGMENT)
        padded = torch.nn.functional.pad(x, (0, segments * SEGMENT - columns))
        upper = self.upper.to(x.device)
        local = padded.view(rows * segments, SEGMENT) @ upper
        local = local.view(rows, segments, SEGMENT)
        # Exclusive sums of the segments; they are few, so that a library scan is cheap.
        ends = local[:, :, -1]
        carry = torch.cumsum(ends, dim=1) - ends
        out = local + carry.unsqueeze(-1)
        return out.view(rows, segments * SEGMENT)[:, :columns].contiguous()
