# task: torch_matmul
# style: bf16x6_library
# what: three bf16 parts of each factor and six library products per slice of K with fp32 output; fp32-level error
import torch
import torch.nn as nn

# Partial sums must stay in fp32.
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

SLICE = 1024


def bf16_parts(x: torch.Tensor):
    """Splits fp32 into three bf16 tensors whose sum is x up to about 2**-24 of its size."""
    first = x.to(torch.bfloat16)
    rest = x - first.float()
    second = rest.to(torch.bfloat16)
    third = (rest - second.float()).to(torch.bfloat16)
    return first, second, third


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        a1, a2, a3 = bf16_parts(a)
        b1, b2, b3 = bf16_parts(b)
        # Small products first. Short slices keep the sums inside the tensor cores short.
        pairs = ((a3, b1), (a1, b3), (a2, b2), (a2, b1), (a1, b2), (a1, b1))
        out = None
        for left, right in pairs:
            for start in range(0, a.shape[1], SLICE):
                part_a = left[:, start : start + SLICE]
                part_b = right[start : start + SLICE]
                product = torch.mm(part_a, part_b, out_dtype=torch.float32)
                out = product if out is None else out.add_(product)
        return out
