"""PyTorch's side of gpu_models.py: GPT-2 and ResNet-50 as its users write them, by autocast to bfloat16.

  python gpu_models_torch.py gpt2|resnet50 eager|compile --batch=N --steps=N
"""
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 12, 12, 768, 1024, 50304


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (h.view(b, t, HEADS, -1).transpose(1, 2) for h in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers, self.ln_f = nn.Sequential(*(Layer() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, wanted):
        x = self.wte(tokens) + self.wpe(torch.arange(CONTEXT, device=tokens.device))
        logits = F.linear(self.ln_f(self.layers(x)), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), wanted.view(-1))


class Block(nn.Module):
    def __init__(self, inside, filters, stride):
        super().__init__()
        conv = lambda i, o, size, by: nn.Sequential(nn.Conv2d(i, o, size, by, size // 2, bias=False), nn.BatchNorm2d(o))
        self.a, self.b = conv(inside, filters, 1, 1), conv(filters, filters, 3, stride)
        self.c = conv(filters, 4 * filters, 1, 1)
        self.beside = conv(inside, 4 * filters, 1, stride) if stride > 1 or inside != 4 * filters else nn.Identity()

    def forward(self, x):
        return F.relu(self.c(F.relu(self.b(F.relu(self.a(x))))) + self.beside(x))


class Resnet50(nn.Module):
    def __init__(self):
        super().__init__()
        parts = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        inside = 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for i in range(blocks):
                parts.append(Block(inside, 64 << stage, 2 if stage and not i else 1))
                inside = 4 * (64 << stage)
        self.body, self.logits = nn.Sequential(*parts), nn.Linear(inside, 1000)

    def forward(self, x, wanted):
        return F.cross_entropy(self.logits(self.body(x).mean((2, 3))), wanted, label_smoothing=0.1)


def case_of(name, batch):
    """The model, its optimizer, what is fed, and what a step consumes."""
    if name == "gpt2":
        net = Gpt2().cuda()
        data = [torch.randint(50257, (batch, CONTEXT), device="cuda") for _ in range(2)]
        optimizer = torch.optim.AdamW(net.parameters(), 6e-4, (0.9, 0.95), weight_decay=0.1, fused=True)
        return net, optimizer, data, batch * CONTEXT, "tokens"
    net = Resnet50().cuda().to(memory_format=torch.channels_last)
    data = [torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last),
            torch.randint(1000, (batch,), device="cuda")]
    return net, torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=5e-5), data, batch, "pictures"


def main():
    name, how, *flags = sys.argv[1:]
    batch, steps = (int(next(f for f in flags if f.startswith(flag)).split("=")[1]) for flag in ("--batch", "--steps"))
    torch.set_float32_matmul_precision("high")
    net, optimizer, data, consumed, unit = case_of(name, batch)
    model = torch.compile(net) if how == "compile" else net
    for i in range(steps):
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(*data)
        loss.backward()
        if name == "gpt2":
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        took = time.perf_counter() - start
        print(f"step {i + 1}/{steps}  loss {value:.6f}  {took * 1e3:.1f} ms  {consumed / took:.0f} {unit}/s  "
              f"memory {torch.cuda.max_memory_allocated() / 2**20:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
