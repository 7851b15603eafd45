"""A distributed TensorFlow program as they are written: a model on parameter servers, each worker with batches of its
own. It knows nothing of Shoal, and runs on Shoal's servers or TensorFlow's.

    shoal launch --ps=1 --workers=2 --ps_server -- python3 examples/train.py    parameter servers by Shoal
    python3 examples/train.py --master=grpc://localhost:2223                    servers that run already: all by Shoal

What task it is, it takes from the four flags or from TF_CONFIG. It learns y = x W of random numbers."""
import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("ps_hosts", "worker_hosts", "job_name", "master", "checkpoint_dir"):
        parser.add_argument("--" + name)
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--train_steps", type=int, default=500)
    parser.add_argument("--device", help="CPU, GPU or GPU:N, where a worker computes; none: where kernels are")
    return parser.parse_args()


def cluster_of(args):
    """(cluster, job, task); with --master alone: one ps and one worker."""
    if args.worker_hosts:
        jobs = {"ps": (args.ps_hosts or "").split(","), "worker": args.worker_hosts.split(",")}
        return jobs, args.job_name, args.task_index
    if os.environ.get("TF_CONFIG"):
        config = json.loads(os.environ["TF_CONFIG"])
        return config["cluster"], config["task"]["type"], config["task"]["index"]
    if args.master:
        return {"ps": ["ps"], "worker": ["worker"]}, "worker", 0
    raise SystemExit("train.py: which cluster? shoal launch, --master, or the flags --ps_hosts, --worker_hosts, ...")


def main():
    args = arguments()
    cluster, job, task = cluster_of(args)
    master = args.master
    if not master:
        server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=task)
        if job == "ps":
            server.join()
        master = server.target

    where = f"/job:{job}/task:{task}"
    if args.device:
        where += "/device:" + (args.device if ":" in args.device else args.device + ":0")
    with tf.device(tf.train.replica_device_setter(worker_device=where, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        x, y = tf.placeholder(tf.float32, [None, 20], "x"), tf.placeholder(tf.float32, [None, 3], "y")
        w = tf.get_variable("weights", [20, 3], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
        train = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=step)

    truth, rng = np.random.RandomState(1).randn(20, 3), np.random.RandomState(task)
    hooks = [tf.train.StopAtStepHook(last_step=args.train_steps)]
    chief = job == "chief" or (task == 0 and "chief" not in cluster)
    # Without filters a session waits for all tasks, for a worker that has done its part and left, too.
    needed = tf.ConfigProto(device_filters=["/job:ps", f"/job:{job}/task:{task}"])
    with tf.train.MonitoredTrainingSession(master, is_chief=chief, hooks=hooks, checkpoint_dir=args.checkpoint_dir,
                                           config=needed, save_summaries_steps=None,
                                           save_summaries_secs=None) as session:
        while not session.should_stop():
            batch = rng.randn(64, 20)
            at, value, _ = session.run([step, loss, train], {x: batch, y: batch @ truth})
            if at % 100 == 0:
                print(f"{job} {task}  step {at}/{args.train_steps}  loss {value:.4f}", flush=True)
        print(f"{job} {task}: loss {value:.4f} after step {at}", flush=True)


if __name__ == "__main__":
    main()
