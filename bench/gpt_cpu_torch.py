"""PyTorch's side of gpt_cpu.py: gpu_models_torch.py's model, smaller, on the CPU.

  python gpt_cpu_torch.py eager|compile float32|bfloat16 --data=FILE --batch=N --context=N --steps=N --threads=N
"""
import argparse
import os
import sys
import time

import numpy as np
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_models_torch as models


def main():
    p = argparse.ArgumentParser()
    p.add_argument("how")
    p.add_argument("dtype")
    p.add_argument("--data", required=True)
    for flag in ("batch", "context", "steps", "threads", "layers", "heads", "width"):
        p.add_argument(f"--{flag}", type=int, required=True)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    models.LAYERS, models.HEADS, models.WIDTH, models.CONTEXT, models.VOCAB = a.layers, a.heads, a.width, a.context, 256
    net = models.Gpt2()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, (0.9, 0.95), weight_decay=0.1, fused=True)
    model = torch.compile(net) if a.how == "compile" else net
    text = torch.from_numpy(np.fromfile(a.data, np.uint8).astype(np.int64))
    for i in range(a.steps):
        start = time.perf_counter()
        at = torch.randint(len(text) - a.context - 1, (a.batch,)).tolist()
        x, y = (torch.stack([text[k + d:k + d + a.context] for k in at]) for d in (0, 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bfloat16"):
            loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        took = time.perf_counter() - start
        print(f"step {i + 1}/{a.steps}  loss {loss.item():.6f}  {took * 1e3:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
