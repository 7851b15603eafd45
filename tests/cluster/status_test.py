"""`shoal status` of a whole cluster: every task in a line, those of TensorFlow and those that are gone too."""
# needs: tensorflow
import json
import re
import subprocess
import sys

from cluster import SHOAL, Cluster, report


def status(spec, *flags):
    p = subprocess.run([SHOAL, "status", f"--cluster_spec={json.dumps(spec)}", *flags], capture_output=True, text=True,
                       timeout=120)
    return p.returncode, p.stdout, p.stderr


def one_line_each():
    with Cluster(ps=["shoal"], worker=["shoal", "tf"]) as c:
        code, out, err = status(c.spec)
        assert code == 0, (code, out, err)
        assert re.search(r"/job:ps/task:0 +127.0.0.1:\d+ +up +\d+ s +process \d+ .* 0 variables", out), out
        assert re.search(r"/job:worker/task:0 .* up ", out), out
        assert re.search(r"/job:worker/task:1 .*up, but not Shoal's", out), out
        assert "3 tasks, 3 up" in out, out
        c.tasks["ps", 0].kill()
        c.tasks["ps", 0].process.wait()
        code, out, err = status(c.spec)
        assert code == 1 and "3 tasks, 2 up" in out and re.search(r"/job:ps/task:0 .* no answer: ", out), (code, out)
        assert "1 of 3 tasks do not answer" in err, err


def variables_and_step():
    import os
    trainer = os.path.join(os.path.dirname(SHOAL), "tests", "programs", "trainer")
    with Cluster(ps=["shoal"], worker=["shoal"]) as c:
        subprocess.run([trainer, f"--master={c.target('worker')}", "--steps=12", "--step_ms=0"], check=True, timeout=120,
                       stdout=subprocess.DEVNULL)
        code, out, _ = status(c.spec)
        assert code == 0 and re.search(r"/job:ps/task:0 .* global_step 12\n", out), out


def wrong_description():
    for spec in ('{"worker": ["nowhere"]}', "/does/not/exist", "{}"):
        p = subprocess.run([SHOAL, "status", f"--cluster_spec={spec}"], capture_output=True, text=True, timeout=120)
        assert p.returncode == 1 and "cluster_spec" in p.stderr, (spec, p.stdout, p.stderr)


if __name__ == "__main__":
    sys.exit(report([("one line each", one_line_each), ("variables and step", variables_and_step),
                     ("wrong description", wrong_description)]))
