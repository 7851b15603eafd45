"""One side of a benchmark: worker.py SIDE FOLDER CASE THREADS. Reads {"steps": n} lines, answers with the seconds they
took and the peak memory so far."""
import json
import os
import resource
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def shoal_side(folder, case, threads):
    import numpy as np
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "interop"))
    import shoal
    with open(os.path.join(folder, case["name"] + ".pb"), "rb") as f:
        g = shoal.Graph(f.read())
    s = shoal.Session(g, inter_op_threads=threads, intra_op_threads=threads)
    s.run(targets=[case["init"]])
    data = np.load(os.path.join(folder, case["name"] + ".npz"))
    handles = [shoal.to_handle(data[n]) for n in case["feeds"]]
    return s.callable([], case["feeds"], [case["train"]]).bind(*handles)


def tensorflow_side(folder, case, threads):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import numpy as np
    import tensorflow.compat.v1 as tf
    tf.disable_eager_execution()
    graph_def = tf.GraphDef()
    with open(os.path.join(folder, case["name"] + ".pb"), "rb") as f:
        graph_def.ParseFromString(f.read())
    tf.import_graph_def(graph_def, name="")
    g = tf.get_default_graph()
    s = tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=threads, intra_op_parallelism_threads=threads))
    s.run(g.get_operation_by_name(case["init"]))
    data = np.load(os.path.join(folder, case["name"] + ".npz"))
    run = s.make_callable(g.get_operation_by_name(case["train"]), [g.get_tensor_by_name(n) for n in case["feeds"]])
    values = [data[n] for n in case["feeds"]]
    return lambda: run(*values)


def pytorch_side(folder, case, threads):
    import numpy as np
    import torch
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(threads)
    torch.manual_seed(1)
    name = case["name"]
    if name in ("chain", "wide"):
        one = torch.tensor(1.0)

        def step():
            with torch.no_grad():
                y = one
                for _ in range(case["per"]):
                    y = torch.add(y if name == "chain" else one, one)
        return step
    nn = torch.nn
    bf16 = name.endswith("_bf16")
    if name.startswith("mlp"):
        sizes = [784, 100, 10] if name == "mlp" else [784, 2048, 2048, 10]
        layers = []
        for i in range(len(sizes) - 1):
            layers += [nn.Linear(sizes[i], sizes[i + 1])] + ([nn.ReLU()] if i < len(sizes) - 2 else [])
        model = nn.Sequential(*layers)
    else:
        model = nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Linear(1024, 10))
    data = np.load(os.path.join(folder, name + ".npz"))
    x, y = (torch.from_numpy(data[n]) for n in case["feeds"])
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return step


def main(side, folder, name, threads):
    with open(os.path.join(folder, "cases.json")) as f:
        case = next(c for c in json.load(f) if c["name"] == name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sides = {"shoal": shoal_side, "tensorflow": tensorflow_side, "pytorch": pytorch_side}
    step = sides[side](folder, case, int(threads))
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        n = json.loads(line)["steps"]
        start = time.perf_counter()
        for _ in range(n):
            step()
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(dict(seconds=seconds, peak_mb=peak)), file=answers, flush=True)


main(*sys.argv[1:])
