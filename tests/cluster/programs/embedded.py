"""A word model: a table in parts on all ps tasks, sampled losses, sparse updates, the parts saved and joined anew."""
import argparse
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
flags = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name", "log_dir"):
    flags.add_argument("--" + name, default="")
flags.add_argument("--task_index", type=int, default=0)
FLAGS = flags.parse_args()
WORDS, SIZE = 1000, 16


def build(cluster, parts, device):
    with tf.device(device or tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
        partitioner = tf.fixed_size_partitioner(parts) if parts > 1 else None
        with tf.variable_scope("words", partitioner=partitioner):
            table = tf.get_variable("table", [WORDS, SIZE], initializer=tf.random_uniform_initializer(-1, 1, seed=1))
            weights = tf.get_variable("weights", [WORDS, SIZE], initializer=tf.truncated_normal_initializer(seed=2))
            biases = tf.get_variable("biases", [WORDS], initializer=tf.zeros_initializer())
        step = tf.train.get_or_create_global_step()
        inputs, labels = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.int64, [None, 1])
        rows = tf.nn.embedding_lookup(table, inputs, partition_strategy="div")
        loss = tf.reduce_mean(tf.nn.nce_loss(weights, biases, labels, rows, 16, WORDS, partition_strategy="div"))
    return inputs, labels, rows, loss, step, table


def main():
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return
    with tf.Graph().as_default():
        inputs, labels, rows, loss, step, table = build(cluster, 3, None)
        optimizer = tf.train.AdamOptimizer(0.05)
        grads, variables = zip(*optimizer.compute_gradients(loss))
        grads, _ = tf.clip_by_global_norm(grads, 5.0)
        op = optimizer.apply_gradients(zip(grads, variables), global_step=step)
        # Whoever comes late must not wait for one who has left.
        config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
        rng, seen = np.random.RandomState(FLAGS.task_index), []
        with tf.train.MonitoredTrainingSession(server.target, is_chief=FLAGS.task_index == 0, hooks=[
                tf.train.StopAtStepHook(last_step=150)], checkpoint_dir=FLAGS.log_dir, save_checkpoint_steps=50,
                save_checkpoint_secs=None, save_summaries_steps=None, save_summaries_secs=None,
                config=config) as session:
            while not session.should_stop():
                ids = rng.randint(0, 50, 64)
                seen.append(session.run([loss, op], {inputs: ids, labels: ids[:, None]})[0])
    assert np.mean(seen[-5:]) < np.mean(seen[:5]) or len(seen) < 20, seen
    if FLAGS.task_index == 0:
        # What three parts on the servers have learnt is one piece here.
        with tf.Graph().as_default():
            _, _, _, _, _, whole = build(None, 1, "/cpu:0")
            with tf.Session() as session:
                tf.train.Saver([whole]).restore(session, tf.train.latest_checkpoint(FLAGS.log_dir))
                assert session.run(whole).shape == (WORDS, SIZE)
        assert len([f for f in os.listdir(FLAGS.log_dir) if ".data-" in f]) >= 1
    print("done")


if __name__ == "__main__":
    main()
