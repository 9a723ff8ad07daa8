# task: torch_mlp
# style: cuda_graph_lazy_capture
# what: captures the network at the first call of a shape; copies the input into a static buffer and clones the result
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, out_features)
        self._graphs = {}

    def _eager(self, x):
        x = F.relu(self.first(x), inplace=True)
        x = F.relu(self.second(x), inplace=True)
        return self.third(x)

    def _key(self, x):
        # The graph holds addresses: it is valid for this shape and for these storages of the parameters.
        return (tuple(x.shape), x.device, tuple(p.data_ptr() for p in self.parameters()))

    def _capture(self, x):
        static_x = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # warm-up: cuBLAS allocates its workspace here, not in the graph
                self._eager(static_x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static_y = self._eager(static_x)
        return graph, static_x, static_y

    @torch.no_grad()
    def forward(self, x):
        key = self._key(x)
        if key not in self._graphs:
            self._graphs[key] = self._capture(x)
        graph, static_x, static_y = self._graphs[key]
        static_x.copy_(x)
        graph.replay()
        return static_y.clone()
