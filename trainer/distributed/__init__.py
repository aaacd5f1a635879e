"""Several processes that train one policy, each holding a share of its weights (PyTorch FSDP2)."""
