"""Asynchronous training under a Supervisor: managed session, checkpoints, summaries, a second life from these."""
import argparse
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
flags = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name", "log_dir"):
    flags.add_argument("--" + name, default="")
flags.add_argument("--task_index", type=int, default=0)
FLAGS = flags.parse_args()


def train(server, cluster, last_step):
    chief = FLAGS.task_index == 0
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % FLAGS.task_index,
                                                      cluster=cluster)):
            x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 1])
            w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
            b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
            step = tf.train.get_or_create_global_step()
            rate = tf.train.exponential_decay(0.5, step, 100, 0.9, staircase=True)
            op = tf.train.AdagradOptimizer(rate).minimize(loss, global_step=step)
            tf.summary.scalar("loss", loss)
            tf.summary.histogram("w", w)
            summaries = tf.summary.merge_all()
        supervisor = tf.train.Supervisor(is_chief=chief, logdir=FLAGS.log_dir, summary_op=None, global_step=step,
                                         saver=tf.train.Saver(sharded=True, max_to_keep=2), save_model_secs=1,
                                         recovery_wait_secs=1)
        rng = np.random.RandomState(FLAGS.task_index)
        # The other worker may be through already when this one begins its second life.
        config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
        with supervisor.managed_session(server.target, config) as session:
            first = session.run(step)
            while not supervisor.should_stop():
                data = rng.rand(32, 3).astype(np.float32)
                feed = {x: data, y: data.dot([[1.0], [2.0], [-1.0]]) + 0.5}
                value, at, _ = session.run([loss, step, op], feed)
                if chief and at % 20 == 0:
                    supervisor.summary_computed(session, session.run(summaries, feed))
                if at >= last_step:  # looked at after a step: the other one may have taken all of them
                    break
            if chief:
                # The supervisor's thread that saves ends first: a Saver is not for two threads, and two saves of one step
                # meet in one temporary folder.
                supervisor.stop(close_summary_writer=False)
                supervisor.saver.save(session, os.path.join(FLAGS.log_dir, "model.ckpt"), global_step=step)
                while session.run(step) < last_step:  # the other one's last steps
                    time.sleep(0.1)
        return first, value


def main():
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return
    first, value = train(server, cluster, 200)
    assert value < 0.2, value
    again, value = train(server, cluster, 300)
    assert again >= 1, (first, again)
    assert value < 0.1, value
    if FLAGS.task_index == 0:
        assert tf.train.latest_checkpoint(FLAGS.log_dir), os.listdir(FLAGS.log_dir)
        assert [f for f in os.listdir(FLAGS.log_dir) if "tfevents" in f]
    print("done")


if __name__ == "__main__":
    main()
