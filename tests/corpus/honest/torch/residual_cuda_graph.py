# task: torch_residual_depthwise
# style: cuda_graph_lazy_capture
# what: the block without TF32 in a CUDA graph; a small helper class holds static buffers and replays
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphRunner:
    """Replays a captured function of one tensor. Inputs are copied in and results are cloned out."""

    def __init__(self, function, example):
        self.input = example.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                function(self.input)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = function(self.input)

    def run(self, x):
        self.input.copy_(x)
        self.graph.replay()
        return self.output.clone()


class ModelNew(nn.Module):
    def __init__(self, channels, expansion):
        super().__init__()
        wide = channels * expansion
        self.expand = nn.Conv2d(channels, wide, kernel_size=1)
        self.depthwise = nn.Conv2d(wide, wide, kernel_size=3, padding=1, groups=wide)
        self.project = nn.Conv2d(wide, channels, kernel_size=1)
        self._runners = {}

    def _block(self, x):
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
            y = F.relu_(F.conv2d(x, self.expand.weight, self.expand.bias))
            d = self.depthwise
            y = F.relu_(F.conv2d(y, d.weight, d.bias, padding=d.padding, groups=d.groups))
            return F.conv2d(y, self.project.weight, self.project.bias).add_(x)

    def forward(self, x):
        with torch.no_grad():
            key = (tuple(x.shape), tuple(p.data_ptr() for p in self.parameters()))
            if key not in self._runners:
                self._runners[key] = GraphRunner(self._block, x)
            return self._runners[key].run(x)
