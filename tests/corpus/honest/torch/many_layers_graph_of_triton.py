# task: torch_many_layers
# style: cuda_graph_of_triton
# what: Triton tanh-residual kernels and library products inside one CUDA graph with a shared memory pool
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_tanh_kernel(x_ptr, z_ptr, bias_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    z = tl.load(z_ptr + i, mask=mask, other=0.0) + tl.load(bias_ptr + i % width, mask=mask, other=0.0)
    s = z * z
    # Odd series where the exponential form would cancel
    series = z * (1.0 + s * (-0.3333333333 + s * (0.1333333333 + s * (-0.05396825397 + s * 0.02186948854))))
    e = tl.exp(-2.0 * tl.abs(z))
    t = (1.0 - e) / (1.0 + e)
    t = tl.where(tl.abs(z) < 0.2, series, tl.where(z < 0, -t, t))
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask, other=0.0) + t, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self._state = None

    def _chain(self, x):
        n, width = x.numel(), x.shape[1]
        for layer in self.layers:
            z = torch.mm(x, layer.weight.t())
            y = torch.empty_like(x)
            add_tanh_kernel[(triton.cdiv(n, 256),)](x, z, layer.bias, y, n, width, BLOCK=256, num_warps=2)
            x = y
        return x

    def forward(self, x):
        with torch.no_grad():
            signature = (tuple(x.shape), str(x.device), *(p.data_ptr() for p in self.parameters()))
            if self._state is None or self._state["signature"] != signature:
                self._state = self._build(x, signature)
            state = self._state
            state["input"].copy_(x, non_blocking=True)
            state["graph"].replay()
            return state["output"].clone()

    def _build(self, x, signature):
        static_input = x.detach().clone(memory_format=torch.contiguous_format)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._chain(static_input)  # compiles the kernel outside of the capture
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=pool):
            static_output = self._chain(static_input)
        return {"signature": signature, "graph": graph, "input": static_input, "output": static_output}
