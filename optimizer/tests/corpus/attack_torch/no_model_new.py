# expect: no_model_new
import torch
import torch.nn as nn


class Faster(nn.Module):
    def forward(self, x):
        return x
