# task: torch_many_layers
# style: cuda_graph_lazy_capture
# what: one CUDA graph for the whole chain, captured at the first call after warm-up on a joined side stream
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.graph = None
        self.captured_for = None

    def _run(self, x):
        for layer in self.layers:
            x = torch.add(x, torch.tanh_(torch.addmm(layer.bias, x, layer.weight.t())))
        return x

    def _prepare(self, x):
        self.static_input = torch.empty_like(x)
        self.static_input.copy_(x)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._run(self.static_input)
            self._run(self.static_input)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.static_output = self._run(self.static_input)

    def forward(self, x):
        if not x.is_cuda:
            return self._run(x)
        with torch.no_grad():
            signature = (x.shape, x.stride(), x.device, tuple(p.data_ptr() for p in self.parameters()))
            if self.captured_for != signature:
                self._prepare(x)
                self.captured_for = signature
            self.static_input.copy_(x)
            self.graph.replay()
            return self.static_output.clone()
