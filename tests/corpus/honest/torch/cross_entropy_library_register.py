# task: torch_cross_entropy
# style: torch_library_impl
# what: torch.library.Library with a CUDA implementation in Triton and a registered fake; online over blocks
import torch
import torch.nn as nn
import triton
import triton.language as tl

_lib = torch.library.Library("corpus_loss", "FRAGMENT")
if not hasattr(torch.ops.corpus_loss, "smoothed"):
    _lib.define("smoothed(Tensor logits, Tensor labels, float smoothing) -> Tensor")


@triton.jit
def loss_kernel(x, labels, out, classes, smoothing, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * classes
    top = tl.full((), -1.0e38, tl.float32)
    acc = tl.zeros((), tl.float32)
    plain = tl.zeros((), tl.float32)
    for start in range(0, classes, BLOCK):
        c = start + tl.arange(0, BLOCK)
        mask = c < classes
        v = tl.load(x + c, mask=mask, other=-1.0e38)
        new_top = tl.maximum(top, tl.max(v, axis=0))
        acc = acc * tl.exp(top - new_top) + tl.sum(tl.where(mask, tl.exp(v - new_top), 0.0), axis=0)
        plain += tl.sum(tl.where(mask, v, 0.0), axis=0)
        top = new_top
    lse = top + tl.log(acc)
    chosen = tl.load(x + tl.load(labels + row)) - lse
    tl.store(out + row, -(1.0 - smoothing) * chosen - smoothing * (plain / classes - lse))


def _smoothed_cuda(logits: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
    logits = logits.contiguous()
    out = logits.new_empty(logits.shape[0])
    loss_kernel[(logits.shape[0],)](logits, labels.contiguous(), out, logits.shape[1], smoothing, BLOCK=2048, num_warps=8)
    return out


def _smoothed_fake(logits, labels, smoothing):
    return logits.new_empty(logits.shape[0])


try:
    _lib.impl("smoothed", _smoothed_cuda, "CUDA")
    torch.library.register_fake("corpus_loss::smoothed", _smoothed_fake, lib=_lib)
except RuntimeError:
    pass  # the module was imported twice and the operator exists already


class ModelNew(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, labels):
        return torch.ops.corpus_loss.smoothed(logits, labels, self.smoothing)
