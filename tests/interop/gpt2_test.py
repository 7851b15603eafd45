"""examples/gpt2 beside a twin in TensorFlow, written as the published program is: logits, losses of training steps,
checkpoints in both directions; and what the program does with its input."""
# needs: tensorflow
import ctypes as C
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import shoal

PROGRAM = os.path.join(os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build")), "examples", "gpt2")
LAYERS, HEADS, WIDTH, CONTEXT, VOCAB, PADDED, BATCH, STEPS = 2, 2, 16, 8, 61, 64, 3, 4
RATE, WARMUP, DECAY = 0.01, 2, 0.1
MODEL = [f"--layers={LAYERS}", f"--heads={HEADS}", f"--width={WIDTH}", f"--context={CONTEXT}", f"--vocab={VOCAB}",
         "--pad_vocab=8", f"--batch={BATCH}", f"--warmup_steps={WARMUP}", f"--learning_rate={RATE}"]


def gpt2(*flags, code=0, env=None):
    p = subprocess.run([PROGRAM, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, check=False,
                       env={**os.environ, **(env or {})})
    text = p.stdout.decode(errors="replace")
    assert p.returncode == code, (p.returncode, text)
    return text


def losses(text):
    return {int(s): l for s, l in re.findall(r"^step (\d+)/\d+  loss (\S+)", text, re.M)}


def write_tokens(path, n=500):
    tokens = (np.arange(n) ** 2 // 3 % VOCAB).astype("<u2")
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, n, *[0] * 253) + tokens.tobytes())
    return tokens.astype(np.int32)


# ---- the twin ----

def norm(x, scope):
    with tf.variable_scope(scope):
        g = tf.get_variable("g", [x.shape[-1]], initializer=tf.ones_initializer())
        b = tf.get_variable("b", [x.shape[-1]], initializer=tf.zeros_initializer())
        u = tf.reduce_mean(x, axis=-1, keepdims=True)
        s = tf.reduce_mean(tf.square(x - u), axis=-1, keepdims=True)
        return (x - u) * tf.rsqrt(s + 1e-5) * g + b


def conv1d(x, scope, nf):
    with tf.variable_scope(scope):
        w = tf.get_variable("w", [1, x.shape[-1], nf], initializer=tf.random_normal_initializer(stddev=0.3, seed=nf))
        b = tf.get_variable("b", [nf], initializer=tf.constant_initializer(0))
        rows = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), tf.reshape(w, [-1, nf])) + b
        return tf.reshape(rows, [*x.shape[:-1], nf])


def attention(x):
    with tf.variable_scope("attn"):
        def split(h):
            return tf.transpose(tf.reshape(h, [*h.shape[:2], HEADS, WIDTH // HEADS]), [0, 2, 1, 3])
        q, k, v = (split(h) for h in tf.split(conv1d(x, "c_attn", 3 * WIDTH), 3, axis=2))
        w = tf.matmul(q, k, transpose_b=True) * tf.rsqrt(float(WIDTH // HEADS))
        mask = np.tri(x.shape[1], dtype=np.float32)
        w = tf.nn.softmax(w * mask - 1e10 * (1 - mask))
        a = tf.reshape(tf.transpose(tf.matmul(w, v), [0, 2, 1, 3]), x.shape)
        return conv1d(a, "c_proj", WIDTH)


def gelu(x):
    return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi).astype(np.float32) * (x + 0.044715 * tf.pow(x, 3))))


def twin(tokens, vocab):
    with tf.variable_scope("model"):
        wpe = tf.get_variable("wpe", [CONTEXT, WIDTH], initializer=tf.random_normal_initializer(stddev=0.3, seed=1))
        wte = tf.get_variable("wte", [vocab, WIDTH], initializer=tf.random_normal_initializer(stddev=0.3, seed=2))
        h = tf.gather(wte, tokens) + wpe[:tokens.shape[1]]
        for i in range(LAYERS):
            with tf.variable_scope(f"h{i}"):
                h = h + attention(norm(h, "ln_1"))
                m = norm(h, "ln_2")
                with tf.variable_scope("mlp"):
                    m = conv1d(gelu(conv1d(m, "c_fc", 4 * WIDTH)), "c_proj", WIDTH)
                h = h + m
        return tf.einsum("btw,vw->btv", norm(h, "ln_f"), wte)


def train(loss, rate):
    """AdamW after clipping: decay of what has more than one dimension, then Adam."""
    variables = tf.trainable_variables()
    grads, at = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    adam = tf.train.AdamOptimizer(rate, beta2=0.95)
    decays = [tf.assign_sub(v, rate * DECAY * v) for v in variables if len(v.shape) > 1]
    with tf.control_dependencies([*decays, *grads]):
        return adam.apply_gradients(zip([tf.convert_to_tensor(g) for g in grads], variables)), at


def rate_at(step):
    """Of step 1, 2, ...: up to the highest, then along a cosine to a tenth."""
    if step < WARMUP:
        return RATE * step / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return RATE * (0.9 * 0.5 * (1 + np.cos(np.pi * done)) + 0.1)


def batch_rows(examples, position, seed=1, batch=BATCH):
    """Which examples a step has: the library says it."""
    l, made = shoal.library(), C.c_void_p()
    l.shoal_batches_new.argtypes = [C.c_int64, C.c_int64, C.c_uint64, C.c_int, C.c_int, C.c_void_p]
    l.shoal_batches_new.restype = C.c_void_p
    l.shoal_batches_at.argtypes, l.shoal_batches_at.restype = [C.c_void_p, C.c_int64], C.POINTER(C.c_int64)
    assert not l.shoal_batches_new(examples, batch, seed, 0, 1, C.byref(made))
    return l.shoal_batches_at(made, position)[:batch]


def batch(tokens, step):
    rows = batch_rows((len(tokens) - 1) // CONTEXT, step)
    x = np.stack([tokens[r * CONTEXT:(r + 1) * CONTEXT] for r in rows])
    y = np.stack([tokens[r * CONTEXT + 1:(r + 1) * CONTEXT + 1] for r in rows])
    return x, y


def run_twin(tokens, prefix, vocab=PADDED):
    """Losses of the steps from a checkpoint on, the variables after them, and logits of the first batch by those of the
    checkpoint."""
    with tf.Graph().as_default():
        x, y = tf.placeholder(tf.int32, [BATCH, CONTEXT]), tf.placeholder(tf.int32, [BATCH, CONTEXT])
        logits = twin(x, vocab)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        rate = tf.placeholder(tf.float32, [])
        step, _ = train(loss, rate)
        model = tf.trainable_variables()
        with tf.Session() as s:
            s.run(tf.global_variables_initializer())
            tf.train.Saver(model).restore(s, prefix)
            found, first = [], s.run(logits, {x: batch(tokens, 0)[0]})
            for i in range(STEPS):
                feeds = dict(zip((x, y), batch(tokens, i)))
                found.append(s.run([loss, step], {**feeds, rate: rate_at(i + 1)})[0])
            return found, {v.op.name: s.run(v) for v in model}, first


def logits_of_meta(prefix, x, run):
    from tensorflow.core.protobuf import meta_graph_pb2
    meta = meta_graph_pb2.MetaGraphDef()
    with open(prefix + ".meta", "rb") as f:
        meta.ParseFromString(f.read())
    return run(meta, {"tokens:0": x}, meta.saver_def.filename_tensor_name, meta.saver_def.restore_op_name, prefix)


def by_shoal(meta, feeds, filename, restore, prefix):
    with shoal.Session(shoal.Graph(meta.graph_def.SerializeToString())) as s:
        s.run(targets=[restore], feeds={filename: np.array(prefix.encode(), object)})
        return s.run(["logits/Identity:0"], feeds=feeds)[0]


def by_tensorflow(meta, feeds, filename, restore, prefix):
    with tf.Graph().as_default(), tf.Session() as s:
        tf.train.import_meta_graph(meta)
        s.run(restore, {filename: prefix})
        return s.run("logits/Identity:0", feeds)


# ---- tests ----

def test_beside_a_twin():
    with tempfile.TemporaryDirectory() as folder:
        tokens = write_tokens(f"{folder}/tokens.bin")
        flags = [f"--data={folder}/tokens.bin", *MODEL, f"--steps={STEPS}", "--save_checkpoint_steps=1",
                 f"--checkpoint_dir={folder}/out"]
        ours = losses(gpt2(*flags))
        prefix = f"{folder}/out/model.ckpt-"
        theirs, values, _ = run_twin(tokens, prefix + "0")
        np.testing.assert_allclose([float(ours[i + 1]) for i in range(STEPS)], theirs, rtol=2e-5)
        reader = tf.train.load_checkpoint(prefix + str(STEPS))
        for name, value in values.items():
            off = np.abs(reader.get_tensor(name) - value)  # Adam's step of a gradient near 0 has the size of any other
            assert off.max() < RATE / 4 and off.mean() < RATE / 500, (name, off.max(), off.mean())
        x, (_, _, logits) = batch(tokens, 0)[0], run_twin(tokens, prefix + str(STEPS))
        for run in (by_shoal, by_tensorflow):  # the example's own graph, from the file beside its checkpoint
            np.testing.assert_allclose(logits_of_meta(prefix + str(STEPS), x, run), logits, rtol=1e-4, atol=1e-5)
        # Half precision: near.
        half = losses(gpt2(f"--data={folder}/tokens.bin", *MODEL, f"--steps={STEPS}", "--dtype=bfloat16"))
        np.testing.assert_allclose([float(half[i + 1]) for i in range(STEPS)], theirs, rtol=0.02)


def test_goes_on_as_if_nothing_had_been():
    for more in ([], ["--dropout=0.2"], ["--dtype=bfloat16", "--label_smoothing=0.1"]):
        with tempfile.TemporaryDirectory() as folder:
            flags = [*MODEL, "--steps=6", "--save_checkpoint_steps=1", f"--checkpoint_dir={folder}/out", *more]
            whole = losses(gpt2(*flags))
            with open(f"{folder}/out/checkpoint", "w") as f:
                f.write('model_checkpoint_path: "model.ckpt-3"\n')
            text = gpt2(*flags)
            assert "restored" in text and losses(text) == {i: whole[i] for i in (4, 5, 6)}, (whole, text)


def test_on_a_device():
    """A device may sum in another order than the CPU does."""
    soft = {"SHOAL_SOFT_GPUS": "1"}
    a, b = (losses(gpt2(*MODEL, "--steps=3", "--dropout=0.1", f"--device={d}", env=soft)) for d in ("CPU", "GPU"))
    assert len(a) == 3 and all(abs(float(a[i]) - float(b[i])) < 1e-5 for i in a), (a, b)


def test_published_weights():
    """A checkpoint that TensorFlow wrote under the published names: the likeliest words are those of the twin."""
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        x = tf.placeholder(tf.int32, [1, CONTEXT])
        logits = twin(x, VOCAB)
        with tf.Session() as s:
            s.run(tf.global_variables_initializer())
            prefix = tf.train.Saver().save(s, f"{folder}/model.ckpt")
            text = [7]
            while len(text) < CONTEXT:
                padded = np.array([text + [0] * (CONTEXT - len(text))])
                text.append(int(s.run(logits, {x: padded})[0, len(text) - 1].argmax()))
        out = gpt2(*MODEL, f"--init_checkpoint={prefix}", "--steps=0", f"--sample={CONTEXT - 1}", "--prompt=7",
                   "--temperature=0")
        assert out.split("---")[1].split() == list(map(str, text)), (out, text)
        with open(f"{folder}/words", "wb") as f:  # "0;", "1;" ...: what is asked in words is read as their numbers
            words = [b"%d;" % i for i in range(VOCAB)]
            f.write(struct.pack("<256i", 20240328, 1, VOCAB, *[0] * 253) +
                    b"".join(bytes([len(w)]) + w for w in words))
        flags = [*MODEL, f"--init_checkpoint={prefix}", "--steps=0", "--temperature=0", f"--sample={CONTEXT - 2}"]
        out = gpt2(*flags, f"--prompt={text[0]};{text[1]};", f"--words={folder}/words")
        assert out.split("---")[1].strip() == "".join(f"{i};" for i in text), (out, text)
        for prompt, more in ("a dog", ()), (f"{VOCAB}", ()), ("7;a", (f"--words={folder}/words",)):
            assert "gpt2: --prompt: " in gpt2(*flags, f"--prompt={prompt}", *more, code=2)
        assert "--prompt and" in gpt2(*flags, "--sample=0", "--prompt=7", code=2)


def test_text():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text", "w") as f:
            f.write("the cat sat on the mat . " * 200)
        flags = [f"--data={folder}/text", "--layers=1", "--heads=2", "--width=32", "--context=16", "--batch=8",
                 "--learning_rate=0.02", "--warmup_steps=5", f"--checkpoint_dir={folder}/out"]
        out = gpt2(*flags, "--steps=450", "--log_steps=150")
        assert list(losses(out)) == [150, 300, 450] and re.search(r"\d tokens/s  memory \d+ MB", out), out
        out = gpt2(*flags, "--steps=0", "--sample=60", "--prompt=the cat ", "--top_k=2", "--temperature=0.5")
        assert "---\nthe cat sat on the mat . the" in out, out
        again = gpt2(*flags, "--steps=0", "--sample=60", "--prompt=the cat ", "--top_k=2", "--temperature=0.5")
        assert again.split("---")[1] == out.split("---")[1]
        with open(f"{folder}/words", "wb") as f:  # every token has a word: what it is, in brackets
            f.write(struct.pack("<256i", 20240328, 1, 256, *[0] * 253) + b"".join(b"\3<%c>" % i for i in range(256)))
        out = gpt2(*flags, "--steps=0", "--sample=4", "--prompt=the cat ", "--temperature=0", f"--words={folder}/words")
        assert "the cat <s><a><t>< >" in out, out


def test_stopped():
    with tempfile.TemporaryDirectory() as folder:
        flags = [*MODEL, "--steps=1000000", f"--checkpoint_dir={folder}", "--log_steps=10"]
        p = subprocess.Popen([PROGRAM, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in p.stdout:
            if line.startswith("step "):
                break
        p.send_signal(signal.SIGINT)
        text, _ = p.communicate(timeout=250)
        assert p.returncode == 75 and "saved" in text and f"goes on from {folder}" in text, (p.returncode, text)


def test_mistakes():
    with tempfile.TemporaryDirectory() as folder:
        def file(name, content):
            with open(f"{folder}/{name}", "wb") as f:
                f.write(content)
            return f"--data={folder}/{name}"
        header = lambda version, n: struct.pack("<256i", 20240520, version, n, *[0] * 253)
        assert "there are fewer tokens than one example" in gpt2(*MODEL, file("short", b"abc"), code=1)
        assert "an empty one" in gpt2(*MODEL, file("empty", b""), code=1)
        assert "cut short" in gpt2(*MODEL, file("cut", header(1, 500) + b"\0" * 100), code=1)
        assert "version 1" in gpt2(*MODEL, file("new", header(7, 500) + b"\0" * 2000), code=1)
        assert "that --vocab does not have" in gpt2(*MODEL, file("large", header(1, 500) + b"\xff" * 1000), code=1)
        assert "No such file" in gpt2(*MODEL, f"--data={folder}/none", code=1)
        assert "no file" in gpt2(*MODEL, f"--data={folder}", code=1)
        assert "no table of words" in gpt2(*MODEL, f"--words={folder}/short", code=1)
        assert "expected float32 or bfloat16" in gpt2("--dtype=float8", code=2)
        assert "--width must be a multiple of --heads" in gpt2("--width=10", "--heads=3", code=2)
        assert "batch" in gpt2(*MODEL, file("few", b"abcd" * 5), code=2)


if __name__ == "__main__":
    tap.main(globals())
