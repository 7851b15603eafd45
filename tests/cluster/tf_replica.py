"""A TensorFlow program as users have them: between-graph replication of the model of examples/mnist_replica.c, with the
same names, so that it can train together with it. Takes TF_CONFIG, or the four flags. With $ENOUGH in the environment it
ends the training, by setting the step, when it and the others have done so many steps each."""
import argparse
import gzip
import json
import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.enable_resource_variables()


def load(folder, which):
    with gzip.open(f"{folder}/{which}-images-idx3-ubyte.gz") as f:
        images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(f"{folder}/{which}-labels-idx1-ubyte.gz") as f:
        return images, np.frombuffer(f.read(), np.uint8, offset=8).astype(np.int64)


def main():
    parser = argparse.ArgumentParser()
    for name in ("ps_hosts", "worker_hosts", "job_name"):
        parser.add_argument("--" + name)
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--train_steps", type=int, default=2000)
    parser.add_argument("--sync_replicas", action="store_true")
    parser.add_argument("--data_dir", default="/usr/share/datasets/fashion-mnist")
    args = parser.parse_args()
    if args.worker_hosts:
        cluster = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
        job, task = args.job_name, args.task_index
    else:
        config = json.loads(os.environ["TF_CONFIG"])
        cluster, job, task = config["cluster"], config["task"]["type"], config["task"]["index"]
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task)
    if job == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task}", cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        hid_w = tf.get_variable("hid_w", initializer=tf.truncated_normal([784, 100], stddev=1 / 28))
        hid_b = tf.get_variable("hid_b", initializer=tf.zeros([100]))
        sm_w = tf.get_variable("sm_w", initializer=tf.truncated_normal([100, 10], stddev=1 / math.sqrt(100)))
        sm_b = tf.get_variable("sm_b", initializer=tf.zeros([10]))
        x, y = tf.placeholder(tf.float32, [None, 784], "x"), tf.placeholder(tf.int64, [None], "y")
        logits = tf.nn.bias_add(tf.matmul(tf.nn.relu(tf.nn.bias_add(tf.matmul(x, hid_w), hid_b)), sm_w), sm_b)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        optimizer, hooks = tf.train.AdamOptimizer(0.001), [tf.train.StopAtStepHook(last_step=args.train_steps)]
        if args.sync_replicas:
            n = len(cluster["worker"])
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=n, total_num_replicas=n)
            hooks.append(optimizer.make_session_run_hook(task == 0))
        train = optimizer.minimize(loss, global_step=step)
        end = tf.assign(step, args.train_steps)
    images, labels = load(args.data_dir, "train")
    rng, done, enough = np.random.RandomState(task), 0, int(os.environ.get("ENOUGH", 0))
    with tf.train.MonitoredTrainingSession(server.target, is_chief=task == 0, hooks=hooks,
                                           config=tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])) as s:
        while not s.should_stop():
            at = rng.randint(0, len(images), 100)
            value, now, _ = s.run([loss, step, train], {x: images[at] / np.float32(255), y: labels[at]})
            done += 1
            others = now * (len(cluster["worker"]) if args.sync_replicas else 1) - done
            if enough and done >= enough and others >= enough:
                s.run(end)
                break
        print(f"tensorflow {task}: {done} local steps, loss {value:.3f}", flush=True)
        if args.sync_replicas:
            os._exit(0)  # else TensorFlow's chief waits two minutes for its thread that waits for gradients


main()
