"""`shoal serve` beside a TensorFlow process behind a Python gRPC server: ready, memory, Predict by eight clients,
batches, a large model.

  tools/python.sh bench/serving.py [--seconds=3] [--megabytes=1024] [--clients=h2load|python]
                                     [ready] [predict] [batching] [load]

Both sides have the same SavedModel, answer the same bytes and are asked in turns by the same clients: h2load
(nghttp2-client), one thread that takes some 10 us of the machine for a request; without it processes of Python, which
take as much as the server does, and leave it no two cores (--clients=python: these in any case). The server's own
processor time for a request stands beside the rate.
"""
import argparse
import multiprocessing
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHOAL = os.path.abspath(os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(ROOT, "build")), "shoal"))
METHOD = "/tensorflow.serving.PredictionService/Predict"
TF_SERVER = """
import os, sys
from concurrent import futures
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
f = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]

def predict(request, context):
    got = f(**{k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()})
    answer = predict_pb2.PredictResponse()
    for k, v in got.items():
        answer.outputs[k].CopyFrom(tf.make_tensor_proto(v.numpy()))
    return answer

handler = grpc.unary_unary_rpc_method_handler(predict, predict_pb2.PredictRequest.FromString,
                                              predict_pb2.PredictResponse.SerializeToString)
server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService",
                                                                      {"Predict": handler}),))
port = server.add_insecure_port("localhost:0")
server.start()
print(f"listening on grpc://localhost:{port}", flush=True)
server.wait_for_termination()
"""


class Server:
    def __init__(self, *command):
        begin = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.ready = time.perf_counter() - begin
        self.port = int(re.search(r":(\d+)", line).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def cpu(self):
        """Seconds of processor time so far."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024


def shoal(path, *flags):
    return Server(SHOAL, "serve", "--port=0", f"--model_base_path={path}", *flags)


def tensorflow(path):
    return Server(sys.executable, "-c", TF_SERVER, os.path.join(path, "1"))


def ask(port, request, seconds, out, many):
    """One client with so many calls under way: seconds of each, until the time is over."""
    import grpc
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        call = channel.unary_unary(METHOD)
        call(request, timeout=60)
        times, end, waiting = [], time.perf_counter() + seconds, []
        while waiting or time.perf_counter() < end:
            while len(waiting) < many and time.perf_counter() < end:
                waiting.append((time.perf_counter(), call.future(request, timeout=60)))
            begin, answer = waiting.pop(0)
            answer.result()
            times.append(time.perf_counter() - begin)
    out.put(times)


def load_by_h2load(server, request, clients, seconds, many):
    """One call by gRPC's own client before: h2load takes every answer with HTTP's 200 for a good one."""
    import grpc
    with grpc.insecure_channel(f"localhost:{server.port}") as channel:
        channel.unary_unary(METHOD)(request, timeout=60)
    with tempfile.TemporaryDirectory() as folder:
        body, log = os.path.join(folder, "body"), os.path.join(folder, "log")
        with open(body, "wb") as f:
            f.write(struct.pack(">BI", 0, len(request)) + request)
        before = server.cpu()
        said = subprocess.run(
            ["h2load", f"--duration={max(1, round(seconds))}", f"--clients={clients}",
             f"--max-concurrent-streams={many}", "--threads=1", f"--data={body}",
             f"--log-file={log}", "--header=content-type: application/grpc",
             "--header=te: trailers", f"http://localhost:{server.port}{METHOD}"],
            capture_output=True, text=True, check=True, timeout=300).stdout
        used = server.cpu() - before
        with open(log) as f:
            answers = [[int(n) for n in line.split()] for line in f]
    bad = [a for a in answers if a[1] != 200]
    if bad or not answers:
        raise SystemExit(f"{len(bad)} of {len(answers)} requests failed:\n{said}")
    begin, end = min(a[0] for a in answers), max(a[0] + a[2] for a in answers)
    times = sorted(a[2] for a in answers)
    return len(times) / (end - begin) * 1e6, times[int(len(times) * 0.99)] / 1e3, used / len(times) * 1e6


def load_by_python(server, request, clients, seconds, many):
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    processes = [context.Process(target=ask, args=(server.port, request, seconds, out, many)) for _ in range(clients)]
    for p in processes:
        p.start()
    before = server.cpu()
    lists = []
    for _ in processes:
        lists.append(out.get(timeout=300))
    used = server.cpu() - before
    for p in processes:
        p.join()
    times = sorted(t for some in lists for t in some)
    rate = sum(many * len(some) / max(sum(some), 1e-9) for some in lists)
    return rate, times[int(len(times) * 0.99)] * 1e3, used / (len(times) + clients) * 1e6


def load(server, request, options, many=1):
    """(requests a second, 99th of a hundred in ms, the server's processor time of a request in us), of 8 clients."""
    by = load_by_h2load if options.clients == "h2load" else load_by_python
    return by(server, request, 8, options.seconds, many)


def save(path, kind):
    """A model of Keras' layers, without Keras: an MLP of 784-256-256-10, or a CNN; and a request of one picture."""
    import numpy as np
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2
    rng = np.random.default_rng(0)

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = [tf.Variable(rng.normal(0, 0.05, s).astype(np.float32)) for s in
                      ([(784, 256), (256, 256), (256, 10)] if kind == "mlp" else
                       [(5, 5, 1, 32), (5, 5, 32, 64), (3136, 1024), (1024, 10)])]

        def mlp(self, x):
            for w in self.w[:-1]:
                x = tf.nn.relu(tf.matmul(x, w))
            return {"y": tf.nn.softmax(tf.matmul(x, self.w[-1]))}

        def cnn(self, x):
            x = tf.reshape(x, [-1, 28, 28, 1])
            for w in self.w[:2]:
                x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME")), 2, 2, "SAME")
            x = tf.nn.relu(tf.matmul(tf.reshape(x, [-1, 3136]), self.w[2]))
            return {"y": tf.nn.softmax(tf.matmul(x, self.w[3]))}

    m = Model()
    tf.saved_model.save(m, os.path.join(path, "1"), signatures=tf.function(
        m.mlp if kind == "mlp" else m.cnn, input_signature=[tf.TensorSpec([None, 784], tf.float32, "x")]))
    r = predict_pb2.PredictRequest()
    r.model_spec.name = "default"
    r.inputs["x"].CopyFrom(tf.make_tensor_proto(rng.uniform(0, 1, (1, 784)).astype(np.float32)))
    return r.SerializeToString()


def made(kind, folder):
    """By a process of its own: TensorFlow and those who fork do not go together."""
    path = os.path.join(folder, kind)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return path, pool.apply(save, (path, kind))


def bench_ready(folder, options):
    path, _ = made("mlp", folder)
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files) / 2 ** 20
    runs = []
    for _ in range(7):
        with shoal(path) as s:
            runs.append((s.ready * 1e3, s.cpu() * 1e3, s.memory()))
    ready, cpu = (statistics.median(r[i] for r in runs) for i in range(2))
    print(f"ready     in {ready:.0f} ms (least {min(r[0] for r in runs):.0f}), of them {cpu:.0f} of the processor; "
          f"{runs[0][2]:.1f} MB, the model has {size:.1f}")


def bench_predict(folder, options):
    path, request = made("mlp", folder)
    with shoal(path) as ours, tensorflow(path) as theirs:
        rows = {"shoal": [], "tensorflow": []}
        for _ in range(3):
            for name, server in ("shoal", ours), ("tensorflow", theirs):
                rows[name].append(load(server, request, options))
        middle = {k: [statistics.median(r[i] for r in v) for i in range(3)] for k, v in rows.items()}
        for name, server in ("shoal", ours), ("tensorflow", theirs):
            rate, p99, cpu = middle[name]
            print(f"predict   {name:10}  {rate:8.0f} requests/s  p99 {p99:6.2f} ms  {cpu:6.0f} us of the server's "
                  f"processor time each  {server.memory():6.0f} MB")
        a, b = middle["shoal"], middle["tensorflow"]
        print(f"predict   ratio       {a[0] / b[0]:8.1f}x              {b[1] / a[1]:10.1f}x     {b[2] / a[2]:6.1f}x")


def bench_batching(folder, options):
    path, request = made("cnn", folder)
    parameters = os.path.join(folder, "batching")
    with open(parameters, "w") as f:
        f.write("max_batch_size { value: 32 } batch_timeout_micros { value: 10000 } num_batch_threads { value: 2 } "
                "max_enqueued_batches { value: 1000 }")
    batching = ["--enable_batching", f"--batching_parameters_file={parameters}"]
    with shoal(path) as plain, shoal(path, *batching) as batched:
        rows = {"off": [], "on": []}
        for _ in range(3):
            for name, server in ("off", plain), ("on", batched):
                rows[name].append(load(server, request, options, 4))
        middle = {k: [statistics.median(r[i] for r in v) for i in range(3)] for k, v in rows.items()}
        for name in rows:
            rate, p99, cpu = middle[name]
            print(f"batching  {name:10}  {rate:8.0f} requests/s  p99 {p99:6.2f} ms  {cpu:6.0f} us each, asked by "
                  f"{options.clients}")
        on, off = middle["on"], middle["off"]
        print(f"batching  ratio       {on[0] / off[0]:8.1f}x   {off[2] / on[2]:10.1f}x")


def save_large(path, megabytes):
    import tensorflow as tf

    class Large(tf.Module):
        def __init__(self):
            super().__init__()
            self.parts = [tf.Variable(tf.random.stateless_normal([megabytes // 8, 2 ** 18], [i, 1])) for i in range(8)]

        @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "i")])
        def get(self, i):
            return {"y": tf.add_n([p[i, 0] for p in self.parts])}

    m = Large()
    tf.saved_model.save(m, os.path.join(path, "1"), signatures=m.get)


def forget(path):
    """Files out of the system's memory."""
    for folder, _, files in os.walk(path):
        for name in files:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def read_all(path):
    begin, size = time.perf_counter(), 0
    for folder, _, files in os.walk(path):
        for name in files:
            with open(os.path.join(folder, name), "rb", buffering=0) as f:
                while n := len(f.read(8 << 20)):
                    size += n
    return size, time.perf_counter() - begin


def bench_load(folder, options):
    path = os.path.join(folder, "large")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(save_large, (path, options.megabytes))
    for cold in True, False:
        rows = []
        for _ in range(3):
            if cold:
                forget(path)
            size, plain = read_all(path)
            if cold:
                forget(path)
            with shoal(path) as s:
                rows.append((plain, s.ready, s.cpu()))
        plain, ready, cpu = (statistics.median(r[i] for r in rows) for i in range(3))
        print(f"load      {size / 2 ** 20:.0f} MB {'from the disk' if cold else 'in the system memory'}: read "
              f"{plain:.2f} s, served after {ready:.2f} s ({cpu:.2f} of the processor): {100 * plain / ready:.0f} % of "
              "the speed of reading")
    shutil.rmtree(path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", nargs="*")
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--megabytes", type=int, default=1024)
    p.add_argument("--clients", choices=["h2load", "python"], default="h2load" if shutil.which("h2load") else "python")
    options = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.what or ["ready", "predict", "batching", "load"]:
            globals()["bench_" + name](folder, options)


if __name__ == "__main__":
    main()
