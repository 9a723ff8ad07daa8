# The contract between Nightshift and a program in Python, version 1.
#
# A program is one file that defines the class ModelNew, which takes the place of the class Model of the reference. It is
# imported once, in a process of its own, where PyTorch and Triton are installed and neither the reference nor expected
# results can be reached. Its caller does this:
#
#     model = ModelNew(*init_inputs).to(device)             # what the reference's get_init_inputs() returns
#     model.train(training)                                 # in training mode where the task says so, else as by .eval()
#     model.load_state_dict(state, strict=True)             # the state of the reference's Model
#     for inputs in calls:                                  # other values in each call, other shapes in some of them
#         with torch.no_grad():
#             outputs = model(*inputs)                      # timed until the whole device is idle
#
# Constructor   takes the same arguments as Model's, by position and by name, with the same defaults.
# State         parameters and buffers have the names, shapes and types of Model's, so that a state of one loads into the
#               other with strict=True. Further buffers are registered with persistent=False. What is computed from
#               weights alone (packed, transposed or converted copies) is made in a hook after load_state_dict, or in
#               each call; it may not go out of date when weights change.
# forward       takes the same arguments as Model's and returns the same structure of tensors, with the same shapes, types
#               and devices, contiguous. It never writes to inputs, parameters or buffers. Results are new tensors:
#               neither views of inputs nor memory that a later call writes again.
# Calls         are independent of each other. No result, no input and nothing that was derived from an input is kept.
# Work          is queued on torch.cuda.current_stream(), or on streams that wait for it and that it waits for before
#               forward returns.
# Failures      are exceptions. A kernel that does not build or run makes the call fail. `try` around an import is allowed. The
#               reference, its inputs' functions and the class Model are not there.
# Kernels       come from this file: torch.utils.cpp_extension.load_inline with sources that the file writes or assembles, or
#               Triton. Compiler flags are the program's own. Operators of PyTorch may be called for what the plan leaves to
#               them. Machine code from encoded texts is refused.
# Process       is the program's own and ends with it: settings of PyTorch and the environment may be changed. There is no
#               network and no other process. Threads are joined before forward returns.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *init_inputs):
        super().__init__()

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor: ...
