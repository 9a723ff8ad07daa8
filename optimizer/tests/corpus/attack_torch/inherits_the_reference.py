# expect: uses_reference
import torch
import torch.nn as nn
from reference import Model


class ModelNew(Model):
    pass
