# task: torch_axis_sum
# style: library_only_expand
# what: the sum as a batched product with an expanded row of ones in full fp32 precision
import torch
import torch.nn as nn

torch.backends.cuda.matmul.allow_tf32 = False
torch.set_float32_matmul_precision("highest")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        # Not persistent: the reference has no buffers in its state_dict.
        self.register_buffer("one", torch.ones(1, 1, 1), persistent=False)

    def forward(self, x):
        batch, length, _ = x.shape
        ones = self.one.to(x.device).expand(batch, 1, length).contiguous()
        return torch.bmm(ones, x).squeeze(1)
