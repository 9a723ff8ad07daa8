"""Lets KernelBench's modules be imported where the clients of language models are missing that its helpers load."""

import os
import sys
import types

CLIENTS = (("openai", "OpenAI"), ("litellm", "completion"), ("dotenv", "load_dotenv"))


def import_from(checkout):
    """Puts a checkout on the search path, with stand-ins for clients that are not installed."""
    sys.path.insert(0, os.path.join(checkout, "src"))
    for name, wanted in CLIENTS:
        try:
            __import__(name)
        except ImportError:
            module = types.ModuleType(name)
            setattr(module, wanted, lambda *args, **kwargs: None)
            sys.modules[name] = module
