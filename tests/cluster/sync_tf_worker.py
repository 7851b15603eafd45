"""The model of sync_trainer.c as a TensorFlow worker, asynchronous or with SyncReplicasOptimizer; same arguments."""
import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tensorflow.compat.v1 as tf
from sync_test import IN, OUT, initial, make_batch

task = int(sys.argv[2])
options = {k: int(v) for k, v in (a.split("=") for a in sys.argv[4:])}
if options.get("refs"):
    tf.disable_v2_behavior()
else:
    tf.disable_eager_execution()
cluster = tf.train.ClusterSpec(json.loads(sys.argv[1]))
server = tf.train.Server(cluster, job_name="worker", task_index=task)
with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")):
    x = tf.placeholder(tf.float32, [None, IN])
    y = tf.placeholder(tf.float32, [None, OUT])
    ids = tf.placeholder(tf.int64, [None])
    w0, table0 = initial()
    w = tf.Variable(w0, name="w")
    table = tf.Variable(table0, name="table")
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.squared_difference(tf.matmul(x, w) + tf.nn.embedding_lookup(table, ids), y))
    optimizer = tf.train.GradientDescentOptimizer(0.2)
    hooks = [tf.train.StopAtStepHook(last_step=options["steps"])]
    if sys.argv[3] == "tokens":
        optimizer = tf.train.SyncReplicasOptimizer(optimizer, options["aggregate"], options["workers"])
        hooks.append(optimizer.make_session_run_hook(task == 0))
    train = optimizer.minimize(loss, step)
k = at = 0
print("built", flush=True)
while os.environ.get("SYNC_GO") and not os.path.exists(os.environ["SYNC_GO"]):
    time.sleep(0.05)
config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])
with tf.train.MonitoredTrainingSession(server.target, is_chief=task == 0, hooks=hooks, config=config) as s:
    while not s.should_stop() and (not options.get("batches") or k < options["batches"]):
        data = make_batch(options.get("data", task), 0 if options.get("same") else k)
        k += 1
        at, last, _ = s.run([step, [w, table], train], dict(zip((x, y, ids), data)))
        print(f"step {k}", flush=True)
        if not os.path.exists(os.environ.get("SYNC_PACE", "")):
            time.sleep(options.get("sleep", 0) / 1000)
    print(f"done {at + 1} 0")
    for name, value in zip(("w", "table"), last):
        print(name, *[f"{bits:08x}" for bits in value.view("uint32").reshape(-1)], flush=True)
    os._exit(0)  # leaving properly takes a chief of TensorFlow's two minutes: its queue runner waits for more gradients
