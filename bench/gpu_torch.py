"""PyTorch's side of gpu.py: the same model as gpu_step.c, which begins with the same values and has the same data.

  python gpu_torch.py fed|resident|ahead|cnn|cnn_resident graph|eager VALUES

VALUES is what `gpu_step --values` has written.
"""
import sys
import time

import torch

from torch import nn

PIXELS, HIDDEN, CLASSES, SETS, AHEAD = 784, 100, 10, 20, 100


def mlp():
    return nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def cnn():
    return nn.Sequential(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(7 * 7 * 32, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def shoals(p):
    """The shape that a parameter has in Shoal, and in what order its dimensions are to be taken."""
    if p.dim() == 4:
        return [*p.shape[2:], p.shape[1], p.shape[0]], (3, 2, 0, 1)
    if p.dim() == 2 and p.shape[1] == 7 * 7 * 32:  # channels are last there in what is flattened
        return [7, 7, 32, p.shape[0]], (3, 2, 0, 1)
    return list(reversed(p.shape)), tuple(reversed(range(p.dim())))


def read(file, shape, dtype):
    t = torch.empty(shape, dtype=dtype)
    if file.readinto(memoryview(t.numpy()).cast("B")) != t.numel() * t.element_size():
        sys.exit("the file of values is too short")
    return t


class Model:
    def __init__(self, case, graph, values):
        self.fed, batch = case in ("fed", "cnn"), 128 if "cnn" in case else 100
        self.every = AHEAD if case == "ahead" else 1
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = True  # as Shoal's products of float32 are
        torch.backends.cudnn.benchmark = True
        self.net = (cnn() if "cnn" in case else mlp()).cuda()
        with open(values, "rb") as f:
            begin = []
            for p in self.net.parameters():
                shape, order = shoals(p)
                begin.append(read(f, shape, torch.float32).permute(order).reshape(p.shape).cuda())
            self.data = [(read(f, (batch, PIXELS), torch.float32), read(f, (batch,), torch.int64)) for _ in range(SETS)]
        self.pinned = [t.pin_memory() for t in self.data[0]]
        self.x, self.y = (t.cuda() for t in self.data[0])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.graph = self.capture() if graph else None  # which takes steps
        with torch.no_grad():
            for p, value in zip(self.net.parameters(), begin):
                p.copy_(value)

    def train(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(self.net(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.train()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss = self.train()
        return graph

    def step(self, i):
        if self.fed:
            for to, pinned, value in zip((self.x, self.y), self.pinned, self.data[i % SETS]):
                pinned.copy_(value)
                to.copy_(pinned, non_blocking=True)
        if self.graph:
            self.graph.replay()
        else:
            self.loss = self.train()
        return self.loss.item() if (i + 1) % self.every == 0 else 0.0


def main():
    model = Model(sys.argv[1], sys.argv[2] == "graph", sys.argv[3])
    for line in sys.stdin:
        start, loss = time.perf_counter(), 0.0
        for i in range(int(line)):
            loss = model.step(i)
        torch.cuda.synchronize()
        print(time.perf_counter() - start, loss, flush=True)


main()
