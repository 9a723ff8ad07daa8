# task: torch_gru_steps
# style: cuda_graph_of_triton
# what: Triton gates and library products for all steps in one CUDA graph with static inputs and a cloned result
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gates_kernel(gi, gh, h, out, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = c < hidden
    gi += row * 3 * hidden
    gh += row * 3 * hidden
    r = tl.sigmoid(tl.load(gi + c, mask=m, other=0.0) + tl.load(gh + c, mask=m, other=0.0))
    z = tl.sigmoid(tl.load(gi + hidden + c, mask=m, other=0.0) + tl.load(gh + hidden + c, mask=m, other=0.0))
    v = tl.load(gi + 2 * hidden + c, mask=m, other=0.0) + r * tl.load(gh + 2 * hidden + c, mask=m, other=0.0)
    # tanh: series near zero, exponential form elsewhere
    s = v * v
    series = v * (1.0 + s * (-1.0 / 3 + s * (2.0 / 15 + s * (-17.0 / 315 + s * (62.0 / 2835)))))
    e = tl.exp(-2.0 * tl.abs(v))
    t = (1.0 - e) / (1.0 + e)
    n = tl.where(tl.abs(v) < 0.2, series, tl.where(v < 0, -t, t))
    old = tl.load(h + row * hidden + c, mask=m, other=0.0)
    tl.store(out + row * hidden + c, (1.0 - z) * n + z * old, mask=m)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden):
        super().__init__()
        self.cell = nn.GRUCell(in_features, hidden)
        self._cache = {}

    def _steps(self, sequence, state):
        cell = self.cell
        steps, batch, _ = sequence.shape
        gi = torch.addmm(cell.bias_ih, sequence.flatten(0, 1), cell.weight_ih.t()).view(steps, batch, -1)
        hidden = state.shape[1]
        for i in range(steps):
            gh = torch.addmm(cell.bias_hh, state, cell.weight_hh.t())
            new = torch.empty_like(state)
            gates_kernel[(batch, triton.cdiv(hidden, 256))](gi[i], gh, state, new, hidden, BLOCK=256, num_warps=4)
            state = new
        return state

    @torch.no_grad()
    def forward(self, sequence, state):
        key = (sequence.shape, state.shape, tuple(p.data_ptr() for p in self.cell.parameters()))
        entry = self._cache.get(key)
        if entry is None:
            static_sequence, static_state = sequence.clone(), state.clone()
            warm = torch.cuda.Stream()
            warm.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(warm):
                for _ in range(2):
                    self._steps(static_sequence, static_state)
            torch.cuda.current_stream().wait_stream(warm)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = self._steps(static_sequence, static_state)
            entry = self._cache[key] = (graph, static_sequence, static_state, result)
        graph, static_sequence, static_state, result = entry
        static_sequence.copy_(sequence)
        static_state.copy_(state)
        graph.replay()
        return result.clone()
