# task: torch_layer_norm
# style: tabs_indentation
# what: indented with tabs; two Triton kernels, statistics first and normalization second
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def statistics(x, mean, rstd, width, eps, BLOCK: tl.constexpr):
	row = tl.program_id(0).to(tl.int64)
	total = tl.zeros((BLOCK,), dtype=tl.float32)
	for start in range(0, width, BLOCK):
		offs = start + tl.arange(0, BLOCK)
		total += tl.load(x + row * width + offs, mask=offs < width, other=0.0)
	mu = tl.sum(total, axis=0) / width
	square = tl.zeros((BLOCK,), dtype=tl.float32)
	for start in range(0, width, BLOCK):
		offs = start + tl.arange(0, BLOCK)
		d = tl.load(x + row * width + offs, mask=offs < width, other=0.0) - mu
		square += tl.where(offs < width, d * d, 0.0)
	tl.store(mean + row, mu)
	tl.store(rstd + row, 1.0 / tl.sqrt(tl.sum(square, axis=0) / width + eps))


@triton.jit
def normalize(x, y, mean, rstd, weight, bias, width, BLOCK: tl.constexpr):
	row = tl.program_id(0).to(tl.int64)
	offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
	mask = offs < width
	v = tl.load(x + row * width + offs, mask=mask)
	v = (v - tl.load(mean + row)) * tl.load(rstd + row)
	w = tl.load(weight + offs, mask=mask)
	b = tl.load(bias + offs, mask=mask)
	tl.store(y + row * width + offs, v * w + b, mask=mask)


class ModelNew(nn.Module):
	BLOCK = 1024

	def __init__(self, width):
		super().__init__()
		self.norm = nn.LayerNorm(width)

	def forward(self, x):
		x = x.contiguous()
		rows, width = x.shape
		y = torch.empty_like(x)
		mean = torch.empty(rows, device=x.device, dtype=x.dtype)
		rstd = torch.empty_like(mean)
		statistics[(rows,)](x, mean, rstd, width, self.norm.eps, BLOCK=self.BLOCK)
		grid = (rows, triton.cdiv(width, self.BLOCK))
		normalize[grid](x, y, mean, rstd, self.norm.weight, self.norm.bias, width, BLOCK=self.BLOCK)
		return y
