"""examples/resnet50 beside a twin in TensorFlow: losses of training steps and the variables after them; and what the
program does with its input, which may be IDX, TFRecords or files."""
# needs: tensorflow
import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import shoal
from gpt2_test import batch_rows

PROGRAM = os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build")), "examples", "resnet50")
BLOCKS, WIDTH, SIDE, CLASSES, BATCH, STEPS, RATE, MOMENTUM, DECAY = [1, 2, 1, 1], 4, 32, 5, 3, 4, 0.1, 0.8, 0.01
MODEL = ["--blocks=1,2,1,1", f"--width={WIDTH}", f"--image_size={SIDE}", f"--classes={CLASSES}", f"--batch={BATCH}",
         f"--learning_rate={RATE}", "--warmup_steps=2", f"--momentum={MOMENTUM}", f"--weight_decay={DECAY}"]


def resnet(*flags, code=0, env=None):
    p = subprocess.run([PROGRAM, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, check=False,
                       text=True, env={**os.environ, **(env or {})})
    assert p.returncode == code, (p.returncode, p.stdout)
    return p.stdout


def losses(text):
    return {int(s): l for s, l in re.findall(r"^step (\d+)/\d+  loss (\S+)", text, re.M)}


def some_pictures(n=24):
    """Pictures by class, which can be told from each other."""
    rng = np.random.default_rng(7)
    labels = np.sort(np.arange(n) % CLASSES).astype(np.uint8)
    pictures = rng.integers(0, 160, (n, SIDE, SIDE, 3)).astype(np.uint8)
    for picture, label in zip(pictures, labels):
        picture[4 * label:4 * label + 8] += 90
    return pictures, labels


def write_idx(folder, pictures, labels):
    os.makedirs(folder, exist_ok=True)
    for name, a in (("images-idx3", pictures), ("labels-idx1", labels)):
        with open(f"{folder}/train-{name}-ubyte", "wb") as f:
            f.write(struct.pack(">I", 0x800 + a.ndim) + struct.pack(f">{a.ndim}I", *a.shape) + a.tobytes())
    return f"--data={folder}"


def encoded(pictures):
    with tf.Graph().as_default(), tf.Session() as s:
        return [s.run(tf.io.encode_png(p)) for p in pictures]


def write_folders(folder, pictures, labels):
    for i, (png, label) in enumerate(zip(encoded(pictures), labels)):
        os.makedirs(f"{folder}/class{label}", exist_ok=True)
        with open(f"{folder}/class{label}/{i:03}.png", "wb") as f:
            f.write(png)
    return f"--data={folder}"


def write_records(path, pictures, labels):
    with tf.io.TFRecordWriter(path) as w:
        for png, label in zip(encoded(pictures), labels):
            w.write(tf.train.Example(features=tf.train.Features(feature={
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[png])),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
            })).SerializeToString())
    return f"--data={path}"


# ---- the twin ----

class Twin:
    """The model over variables that begin with a checkpoint's values."""

    def __init__(self, prefix):
        self.saved, self.vars, self.moved = tf.train.load_checkpoint(prefix), {}, []

    def var(self, name, trainable=True):
        self.vars[name] = tf.Variable(self.saved.get_tensor(name), trainable=trainable, name=name)
        return self.vars[name]

    def conv(self, x, size, stride, name):
        pad = (size - 1) // 2
        x = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
        return tf.nn.conv2d(x, self.var(name + "/kernel"), stride, "VALID")

    def norm(self, x, name):
        gamma, beta = self.var(name + "/gamma"), self.var(name + "/beta")
        moving = [self.var(f"{name}/moving_{w}", False) for w in ("mean", "variance")]
        y, *moments = tf.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-5, is_training=True)
        self.moved += [tf.assign_sub(a, 0.1 * (a - b)) for a, b in zip(moving, moments)]
        return y

    def block(self, x, filters, stride, scope):
        beside = x
        if x.shape[-1] != 4 * filters or stride > 1:
            beside = self.norm(self.conv(x, 1, stride, scope + "shortcut"), scope + "shortcut_bn")
        h = tf.nn.relu(self.norm(self.conv(x, 1, 1, scope + "conv1"), scope + "bn1"))
        h = tf.nn.relu(self.norm(self.conv(h, 3, stride, scope + "conv2"), scope + "bn2"))
        h = self.norm(self.conv(h, 1, 1, scope + "conv3"), scope + "bn3")
        return tf.nn.relu(h + beside)

    def logits(self, x):
        x = tf.nn.relu(self.norm(self.conv((x - 118) / 58, 7, 2, "conv1"), "bn1"))
        x = tf.nn.max_pool2d(x, 3, 2, "SAME")
        for stage, blocks in enumerate(BLOCKS):
            for i in range(blocks):
                x = self.block(x, WIDTH << stage, 2 if stage and not i else 1, f"stage{stage}/block{i}/")
        return tf.matmul(tf.reduce_mean(x, [1, 2]), self.var("logits/kernel")) + self.var("logits/bias")


def rate_at(step):
    return RATE * step / 2 if step < 2 else RATE * 0.5 * (1 + np.cos(np.pi * (step - 2) / (STEPS - 2)))


def run_twin(prefix, pictures, labels):
    with tf.Graph().as_default():
        t = Twin(prefix)
        x, y, rate = tf.placeholder(tf.float32, [BATCH, SIDE, SIDE, 3]), tf.placeholder(tf.int32, [BATCH]), tf.placeholder(tf.float32)
        rows = tf.one_hot(y, CLASSES) * 0.9 + 0.1 / CLASSES
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=rows, logits=t.logits(x)))
        variables = tf.trainable_variables()
        grads = [g + DECAY * v if len(v.shape) > 1 else g for g, v in zip(tf.gradients(loss, variables), variables)]
        with tf.control_dependencies(grads):
            step = tf.train.MomentumOptimizer(rate, MOMENTUM).apply_gradients(zip(grads, variables))
        with tf.Session() as s:
            s.run(tf.global_variables_initializer())
            found = []
            for i in range(STEPS):
                at = batch_rows(len(labels), i, batch=BATCH)
                found.append(s.run([loss, step, t.moved], {x: pictures[at], y: labels[at], rate: rate_at(i + 1)})[0])
            return found, {k: s.run(v) for k, v in t.vars.items()}


# ---- tests ----

def test_beside_a_twin():
    pictures, labels = some_pictures()
    with tempfile.TemporaryDirectory() as folder:
        data = write_idx(f"{folder}/idx", pictures, labels)
        flags = [data, *MODEL, f"--steps={STEPS}", "--save_checkpoint_steps=1", f"--checkpoint_dir={folder}/out"]
        text = resnet(*flags)
        assert re.search(r"\d pictures/s  memory \d+ MB", text), text
        theirs, values = run_twin(f"{folder}/out/model.ckpt-0", pictures, labels)
        np.testing.assert_allclose([float(losses(text)[i + 1]) for i in range(STEPS)], theirs, rtol=2e-4)
        reader = tf.train.load_checkpoint(f"{folder}/out/model.ckpt-{STEPS}")
        for name, value in values.items():
            np.testing.assert_allclose(reader.get_tensor(name), value, rtol=5e-3, atol=5e-4, err_msg=name)
        half = losses(resnet(data, *MODEL, f"--steps={STEPS}", "--dtype=bfloat16"))
        np.testing.assert_allclose(float(half[1]), theirs[0], rtol=0.05)  # of three pictures: then they part


def test_data_of_all_kinds():
    pictures, labels = some_pictures()
    with tempfile.TemporaryDirectory() as folder:
        kinds = [write_idx(f"{folder}/idx", pictures, labels), write_folders(f"{folder}/classes", pictures, labels),
                 write_records(f"{folder}/records", pictures, labels)]
        found = [losses(resnet(k, *MODEL, "--steps=2")) for k in kinds]
        assert found[0] == found[1] == found[2] and len(found[0]) == 2, found
        # Of another size, and grey.
        grey = write_idx(f"{folder}/grey", pictures[:, :20, :28, 0].copy(), labels)
        assert len(losses(resnet(grey, *MODEL, "--steps=2"))) == 2


def test_goes_on_as_if_nothing_had_been():
    with tempfile.TemporaryDirectory() as folder:
        data = write_idx(f"{folder}/idx", *some_pictures())
        for more in ([data], [data, "--dtype=bfloat16"], []):
            out = f"{folder}/out{len(more)}"
            flags = [*MODEL, *more, "--steps=5", "--save_checkpoint_steps=1", f"--checkpoint_dir={out}"]
            whole = losses(resnet(*flags))
            with open(f"{out}/checkpoint", "w") as f:
                f.write('model_checkpoint_path: "model.ckpt-3"\n')
            text = resnet(*flags)
            assert "restored" in text and losses(text) == {i: whole[i] for i in (4, 5)}, (more, whole, text)


def test_changed_at_random():
    """Pictures are cut out and turned round by the step's number: readers and a new start change nothing."""
    with tempfile.TemporaryDirectory() as folder:
        data = write_idx(f"{folder}/idx", *some_pictures())
        flags = [*MODEL, data, "--steps=5", "--augment"]
        saves = ["--save_checkpoint_steps=1", f"--checkpoint_dir={folder}/out"]
        plain = losses(resnet(*MODEL, data, "--steps=5"))
        one = losses(resnet(*flags, *saves, "--readers=1"))
        assert one == losses(resnet(*flags, "--readers=7")) != plain, (one, plain)
        with open(f"{folder}/out/checkpoint", "w") as f:
            f.write('model_checkpoint_path: "model.ckpt-3"\n')
        assert losses(resnet(*flags, *saves)) == {i: one[i] for i in (4, 5)}
        assert "--augment is for --data" in resnet("--augment", code=2)


def test_accuracy():
    """The trained model, by its moving averages, on what it learnt, again later, and on other pictures."""
    pictures, labels = some_pictures(25)
    with tempfile.TemporaryDirectory() as folder:
        data = write_idx(f"{folder}/idx", pictures, labels)
        flags = ["--blocks=1,1,1,1", "--width=8", f"--image_size={SIDE}", "--classes=5", "--batch=10", data,
                 f"--eval_data={folder}/idx", f"--checkpoint_dir={folder}/out"]
        accuracy = lambda text: float(re.search(r"accuracy (\S+) of 25 pictures", text)[1])
        learnt = resnet(*flags, "--steps=60", "--log_steps=20", "--learning_rate=0.05")
        assert accuracy(learnt) > 0.6, learnt
        assert accuracy(resnet(*flags, "--steps=0")) == accuracy(learnt)
        half = resnet(*flags, "--steps=0", "--dtype=bfloat16")
        assert abs(accuracy(half) - accuracy(learnt)) < 0.2, half
        for name, a in (("images-idx3", pictures), ("labels-idx1", (labels + 1) % 5)):  # all labels are wrong
            with open(f"{folder}/idx/t10k-{name}-ubyte", "wb") as f:
                f.write(struct.pack(">I", 0x800 + a.ndim) + struct.pack(f">{a.ndim}I", *a.shape) + a.tobytes())
        assert accuracy(resnet(*flags, "--steps=0")) < 0.4


def test_on_a_device():
    a, b = (losses(resnet(*MODEL, "--steps=3", f"--device={d}", env={"SHOAL_SOFT_GPUS": "1"})) for d in ("CPU", "GPU"))
    assert a == b and len(a) == 3, (a, b)


def test_mistakes():
    pictures, labels = some_pictures()
    with tempfile.TemporaryDirectory() as folder:
        assert "No such file" in resnet(f"--data={folder}/none", code=1)
        assert "no folder of pictures" in resnet(f"--data={folder}", code=1)
        path = f"{folder}/records"
        write_records(path, pictures, labels)
        os.truncate(path, os.path.getsize(path) - 5)
        assert "cut short" in resnet(f"--data={path}", *MODEL, code=1)
        write_records(path, pictures, labels + 3)
        assert re.search(r"picture \d+ is of class \d+; --classes=5", resnet(f"--data={path}", *MODEL, code=1))
        data = write_folders(f"{folder}/classes", pictures, labels)
        for name in os.listdir(f"{folder}/classes/class0"):
            with open(f"{folder}/classes/class0/{name}", "wb") as f:
                f.write(b"no picture")
        assert re.search(r"picture \d, \S+/classes/class0/\d+.png: ", resnet(data, *MODEL, "--steps=30", code=1))
        assert "as 3,4,6,3" in resnet("--blocks=3,4,6", code=2)
        assert "as 3,4,6,3" in resnet("--blocks=3,4,6,3,1", code=2)
        assert "expected float32 or bfloat16" in resnet("--dtype=half", code=2)


if __name__ == "__main__":
    tap.main(globals())
