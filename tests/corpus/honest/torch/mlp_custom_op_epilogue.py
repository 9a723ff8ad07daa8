# task: torch_mlp
# style: torch_library_custom_op
# what: a mutating custom op adds the bias and applies ReLU after torch.mm; registered with mutates_args
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _bias_act(y, b, rows, cols, RELU: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(1)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = c < cols
    p = y + r.to(tl.int64) * cols + c
    v = tl.load(p, mask=m) + tl.load(b + c, mask=m)
    if RELU:
        v = tl.where(v > 0, v, 0.0)
    tl.store(p, v, mask=m)


@torch.library.custom_op("corpus_mlp::bias_act_", mutates_args=("y",))
def bias_act_(y: torch.Tensor, bias: torch.Tensor, relu: bool) -> None:
    rows, cols = y.shape
    _bias_act[(triton.cdiv(cols, 1024), rows)](y, bias, rows, cols, RELU=relu, BLOCK=1024)


@bias_act_.register_fake
def _(y, bias, relu):
    return None


class ModelNew(nn.Module):
    def __init__(self, in_features: int, hidden: int, out_features: int):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, relu in ((self.first, True), (self.second, True), (self.third, False)):
            x = torch.mm(x, layer.weight.t())
            bias_act_(x, layer.bias, relu)
        return x
