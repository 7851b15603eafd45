"""MonitoredTrainingSession with hooks, SyncReplicasOptimizer (with a backup worker: --aggregate=1 of two), then the same
model recovered and trained on without it."""
import argparse
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
flags = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name", "log_dir"):
    flags.add_argument("--" + name, default="")
flags.add_argument("--task_index", type=int, default=0)
flags.add_argument("--aggregate", type=int, default=2)
FLAGS = flags.parse_args()


class Watch(tf.train.SessionRunHook):
    """Asks for more than the program does, with the options of its own."""

    def __init__(self, loss):
        self.loss, self.seen, self.traced = loss, [], 0

    def before_run(self, context):
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE) if len(self.seen) == 3 else None
        return tf.train.SessionRunArgs({"loss": self.loss}, options=options)

    def after_run(self, context, values):
        self.seen.append(values.results["loss"])
        self.traced += len(values.run_metadata.step_stats.dev_stats)


def train(server, cluster, last_step, synchronous):
    chief = FLAGS.task_index == 0
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % FLAGS.task_index,
                                                      cluster=cluster)):
            data = np.random.RandomState(FLAGS.task_index).rand(64, 4).astype(np.float32)
            x = tf.constant(data)
            y = tf.reduce_sum(x, 1, keepdims=True)
            hidden = tf.layers.dense(x, 8, tf.nn.tanh)
            loss = tf.losses.mean_squared_error(y, tf.layers.dense(hidden, 1))
            step = tf.train.get_or_create_global_step()
            optimizer = tf.train.AdamOptimizer(0.02)
            if synchronous:
                optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=FLAGS.aggregate,
                                                           total_num_replicas=2)
            op = optimizer.minimize(loss, global_step=step)
        watch = Watch(loss)
        hooks = [tf.train.StopAtStepHook(last_step=last_step), tf.train.NanTensorHook(loss),
                 tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=50), watch]
        if synchronous:
            hooks.append(optimizer.make_session_run_hook(chief))
        config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
        scaffold = tf.train.Scaffold(saver=tf.train.Saver(sharded=True))
        with tf.train.MonitoredTrainingSession(server.target, is_chief=chief, checkpoint_dir=FLAGS.log_dir, hooks=hooks,
                                               scaffold=scaffold, save_checkpoint_secs=None, save_checkpoint_steps=25,
                                               save_summaries_steps=20, config=config, max_wait_secs=600,
                                               stop_grace_period_secs=5) as session:
            first = session.run_step_fn(lambda step_context: step_context.session.run(step))
            while not session.should_stop():
                session.run(op)
        return first, watch


def main():
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
        return
    first, watch = train(server, cluster, 60, True)
    assert np.all(np.isfinite(watch.seen)), watch.seen
    assert len(watch.seen) < 20 or watch.seen[-1] < watch.seen[0], watch.seen  # the other may have done most of it
    again, watch = train(server, cluster, 120, False)
    assert again >= 25, again
    assert len(watch.seen) < 4 or watch.traced >= 2, watch.traced
    if FLAGS.task_index == 0:
        last = tf.train.latest_checkpoint(FLAGS.log_dir)
        assert last and int(last.rsplit("-", 1)[1]) >= 120, last
        assert [f for f in os.listdir(FLAGS.log_dir) if "tfevents" in f]
    print("done")


if __name__ == "__main__":
    main()
