"""Strategies beside TensorFlow's: the loss of every step under tf.distribute.MirroredStrategy, and under
MultiWorkerMirroredStrategy in two processes, is that of tests/programs/strategy_trainer.c with as many replicas, for the
same weights and data, also with batch normalisation, whose moments are those of all replicas, and whose moving averages
are the same; and TensorFlow reads the checkpoint, which has the names of a model without a strategy.

  strategy_test.py --tf mirrored 2 OPTIMIZER [norm]     TensorFlow's side, in a process of its own: it prints steps and losses
"""
# needs: tensorflow
import json
import os
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
import tap
from cluster import SHOAL, forked, free_ports

TRAINER = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "strategy_trainer")
ROWS, IN, HIDDEN, STEPS = 24, 5, 7, 6
SECONDS = 240
# How far losses may be apart. Both sides are within 2e-7 of the same steps in double precision with SGD. With Adam that is
# 2e-6 for TensorFlow and 4e-6 for us: 1 - beta2^t has few digits in the first steps, and Keras computes the power anew
# where TensorFlow 1's optimizer, and ours, multiply it up.
APART = {"sgd": 5e-7, "adam": 1e-5}


def numbers(n, salt):
    return (np.array([(i * 37 + salt * 11) % 20 for i in range(n)], np.float32) / np.float32(20) - np.float32(0.5))


def train_tf(kind, replicas, optimizer, norm=None):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf
    if kind == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
        strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == replicas
    with strategy.scope():
        w1, b1 = tf.Variable(numbers(IN * HIDDEN, 1).reshape(IN, HIDDEN)), tf.Variable(numbers(HIDDEN, 2))
        w2, b2 = tf.Variable(numbers(HIDDEN, 3).reshape(HIDDEN, 1)), tf.Variable(numbers(1, 4))
        adam = tf.keras.optimizers.legacy.Adam(0.05, epsilon=1e-8)
        opt = adam if optimizer == "adam" else tf.keras.optimizers.legacy.SGD(0.2)
        bn = tf.keras.layers.BatchNormalization(momentum=0.75, synchronized=True) if norm else None
        if norm:
            bn.build((None, HIDDEN))
    variables = [w1, b1, w2, b2] + (bn.trainable_variables if norm else [])

    @tf.function
    def step(x, y):
        def replica(x, y):
            with tf.GradientTape() as tape:
                h = tf.nn.bias_add(tf.matmul(x, w1), b1)
                h = bn(h, training=True) if norm else h
                out = tf.nn.bias_add(tf.matmul(tf.tanh(h), w2), b2)
                loss = tf.reduce_mean(tf.square(out - y)) / replicas
            opt.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, args=(x, y)), axis=None)

    def rows_of(array):
        part = ROWS // replicas
        return strategy.experimental_distribute_values_from_function(
            lambda c: tf.constant(array[c.replica_id_in_sync_group * part:][:part]))

    for k in range(STEPS):
        x, y = numbers(ROWS * IN, 5 + k).reshape(ROWS, IN), numbers(ROWS, 100 + k).reshape(ROWS, 1)
        print(k, float(step(rows_of(x), rows_of(y))).hex(), flush=True)
    if norm:
        print("norm", json.dumps([v.numpy().tolist() for v in bn.weights]), flush=True)


def losses(text):
    return {int(k): float.fromhex(loss) for k, loss in re.findall(r"^(\d+) (-?0x\S+)$", text, re.M)}


class Program:
    def __init__(self, command, env, cwd=None):
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.process = forked.start(command, self.out, self.err, {**os.environ, **(env or {})}, cwd)

    def ended(self):
        """What it said, once it has ended well."""
        code, texts = self.process.wait(SECONDS), []
        for f in (self.out, self.err):
            f.seek(0)
            texts.append(f.read())
            f.close()
        assert code == 0, (code, texts[0], texts[1][-3000:])
        return texts[0]


def outputs(programs):
    return [p.ended() for p in programs]


def ended(programs):
    return [losses(out) for out in outputs(programs)]


def run(*command, env=None):
    return Program(list(command), env)


def run_tf(*args, env=None):
    return run(sys.executable, os.path.abspath(__file__), "--tf", *args, env=env)


def same(tf, ours, optimizer):
    assert len(tf) == len(ours) == STEPS, (tf, ours)
    for k in range(STEPS):
        assert abs(tf[k] - ours[k]) <= APART[optimizer] * abs(tf[k]), (k, tf[k], ours[k])


def test_mirrored():
    for replicas, optimizer in ((2, "adam"), (3, "sgd")):
        tf, = ended([run_tf("mirrored", str(replicas), optimizer)])
        for flags in ([], ["sum=1"]):
            ours, = ended([run(TRAINER, "mirrored", str(STEPS), f"devices={replicas}", f"optimizer={optimizer}", *flags)])
            same(tf, ours, optimizer)
        one, = ended([run(TRAINER, "one", str(STEPS), f"optimizer={optimizer}")])
        same(tf, one, optimizer)


def workers():
    at = [f"127.0.0.1:{port}" for port in free_ports(2)]
    return [{"TF_CONFIG": json.dumps({"cluster": {"worker": at}, "task": {"type": "worker", "index": i}})} for i in (0, 1)]


def test_multi_worker():
    for optimizer in APART:
        tf = ended([run_tf("multi", "2", optimizer, env=env) for env in workers()])
        ours = ended([run(TRAINER, "multi", str(STEPS), f"optimizer={optimizer}", env=env) for env in workers()])
        for theirs in tf:
            for mine in ours:
                same(theirs, mine, optimizer)


def same_norm(text, folder):
    """Gamma, beta and the moving averages, as TensorFlow reads them."""
    import tensorflow as tf
    kept = json.loads(re.search(r"^norm (.*)$", text, re.M)[1])
    for name, want in zip(("gamma", "beta", "moving_mean", "moving_variance"), kept):
        have = tf.train.load_variable(folder, f"norm/{name}")
        assert np.allclose(have, want, rtol=5e-6, atol=1e-6), (name, have, want)


def test_batch_normalisation():
    for kind, replicas in (("mirrored", 3), ("multi", 2)):
        each = workers() if kind == "multi" else [None]
        texts = outputs([run_tf(kind, str(replicas), "sgd", "norm", env=env) for env in each])
        each = workers() if kind == "multi" else [None]
        with tempfile.TemporaryDirectory() as folder:
            devices = 1 if kind == "multi" else replicas
            ours = ended([run(TRAINER, kind, str(STEPS), f"devices={devices}", "optimizer=sgd", "norm=1", f"dir={folder}",
                              env=env) for env in each])
            for text, mine in zip(texts, ours):
                tf, apart = losses(text), 5e-6
                for k in range(STEPS):
                    assert abs(tf[k] - mine[k]) <= apart * abs(tf[k]), (kind, k, tf[k], mine[k])
                same_norm(text, folder)


def dataset_graph(files, device):
    """A dataset as TensorFlow makes it: records of all files, in batches of 12."""
    import tensorflow as tf
    with tf.Graph().as_default() as g, tf.device(device):
        records = tf.data.Dataset.from_tensor_slices(files).interleave(
            lambda name: tf.data.FixedLengthRecordDataset(name, 4 * (IN + 1)), cycle_length=2)
        batches = records.map(lambda r: tf.split(tf.io.decode_raw(r, tf.float32), [IN, 1])).map(lambda x, y: (x, y)).batch(
            12)
        assert batches._variant_tensor.op.type == "BatchDatasetV2", batches._variant_tensor  # pylint: disable=protected-access
    return g.as_graph_def().SerializeToString()


def test_a_dataset_is_dealt_out_by_file():
    """Of five files three are one task's and two the other's, and no task has the others' files. One has more batches than
    the other; every record is used once."""
    files, rows = [f"part-{i}" for i in range(5)], [30, 10, 7, 20, 40]
    with tempfile.TemporaryDirectory() as folder:
        tasks = []
        for i, env in enumerate(workers()):
            os.mkdir(f"{folder}/{i}")
            with open(f"{folder}/{i}/graph", "wb") as f:
                f.write(dataset_graph(files, f"/job:worker/task:{i}/device:CPU:0"))
            for k in range(i, 5, 2):
                numbers(rows[k] * (IN + 1), k).tofile(f"{folder}/{i}/{files[k]}")
            tasks.append(Program([TRAINER, "multi", "100", "data=1", f"examples={sum(rows)}", "graph=graph"], env,
                                 cwd=f"{folder}/{i}"))
        one, other = outputs(tasks)
        assert one == other and f"examples {sum(rows)}\n" in one, (one, other)
        assert len(losses(one)) == -(-(30 + 7 + 40) // 12), one


def test_tensorflow_reads_the_checkpoint():
    import tensorflow as tf
    with tempfile.TemporaryDirectory() as folder:
        ended([run(TRAINER, "mirrored", "3", "devices=3", f"dir={folder}")])
        names = dict(tf.train.list_variables(folder))
        model = {"w1": [IN, HIDDEN], "b1": [HIDDEN], "w2": [HIDDEN, 1], "b2": [1]}
        want = {f"{name}{slot}": shape for name, shape in model.items() for slot in ("", "/Adam", "/Adam_1")}
        assert names == {**want, "beta1_power": [], "beta2_power": [], "global_step": []}, names
        assert tf.train.load_variable(folder, "global_step") == 3


if __name__ == "__main__":
    if sys.argv[1:2] == ["--tf"]:
        train_tf(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
    else:
        tap.main(globals())
