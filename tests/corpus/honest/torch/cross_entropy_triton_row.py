# task: torch_cross_entropy
# style: inference_mode_decorator
# what: one Triton program for each row under torch.inference_mode; the label is read on the device
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _smoothed_loss(logits_ptr, labels_ptr, loss_ptr, stride, classes, smoothing, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * stride
    cols = tl.arange(0, BLOCK)
    mask = cols < classes
    v = tl.load(logits_ptr + cols, mask=mask, other=-float("inf"))
    top = tl.max(v, axis=0)
    lse = top + tl.log(tl.sum(tl.exp(v - top), axis=0))
    mean = tl.sum(tl.where(mask, v, 0.0), axis=0) / classes
    label = tl.load(labels_ptr + row)
    chosen = tl.load(logits_ptr + label)
    loss = -(1.0 - smoothing) * (chosen - lse) - smoothing * (mean - lse)
    tl.store(loss_ptr + row, loss)


class ModelNew(nn.Module):
    def __init__(self, smoothing: float):
        super().__init__()
        self.smoothing = smoothing

    @torch.inference_mode()
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows, classes = logits.shape
        if labels.shape != (rows,):
            raise ValueError(f"labels must have shape ({rows},)")
        logits, labels = logits.contiguous(), labels.contiguous()
        loss = torch.empty(rows, device=logits.device, dtype=torch.float32)
        block = triton.next_power_of_2(classes)
        _smoothed_loss[(rows,)](logits, labels, loss, logits.stride(0), classes, self.smoothing, BLOCK=block, num_warps=8)
        return loss
