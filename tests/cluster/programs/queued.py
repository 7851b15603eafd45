"""Queue runners read records on the workers; a queue on each ps tells it when all workers are through, and it ends."""
import argparse
import os

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
flags = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name", "log_dir"):
    flags.add_argument("--" + name, default="")
flags.add_argument("--task_index", type=int, default=0)
FLAGS = flags.parse_args()
WORKERS, SERVERS = FLAGS.worker_hosts.split(","), FLAGS.ps_hosts.split(",")


def done_queue(ps):
    with tf.device("/job:ps/task:%d" % ps):
        return tf.FIFOQueue(len(WORKERS), tf.int32, shared_name="done%d" % ps)


def write_records(path):
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in range(60):
            writer.write(tf.train.Example(features=tf.train.Features(feature={
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, 2.0 * i])),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 3]))})).SerializeToString())


def train(server, cluster, path):
    with tf.device("/job:worker/task:%d" % FLAGS.task_index):
        names = tf.train.string_input_producer([path], num_epochs=2)
        _, record = tf.TFRecordReader().read(names)
        parsed = tf.parse_single_example(record, {"x": tf.FixedLenFeature([2], tf.float32),
                                                  "y": tf.FixedLenFeature([], tf.int64)})
        x, y = tf.train.shuffle_batch([parsed["x"], parsed["y"]], 10, 100, 30, num_threads=2,
                                      allow_smaller_final_batch=True)
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:%d" % FLAGS.task_index,
                                                  cluster=cluster)):
        total = tf.get_variable("total", [], initializer=tf.zeros_initializer(), use_resource=False)
        with tf.control_dependencies([tf.assign_add(total, tf.reduce_sum(x), use_locking=True)]):
            size = tf.shape(y)[0]
    with tf.device("/job:ps/task:0"):
        ready = tf.FIFOQueue(len(WORKERS), tf.int32, shared_name="ready")
    let_in, enter = ready.enqueue_many([[1] * len(WORKERS)]), ready.dequeue()
    finished = [done_queue(i).enqueue(1) for i in range(len(SERVERS))]
    seen = 0
    config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % FLAGS.task_index])
    with tf.Session(server.target, config=config) as session:
        if FLAGS.task_index == 0:
            session.run(tf.global_variables_initializer())
            session.run(let_in)
        session.run(enter)
        session.run(tf.local_variables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        try:
            while not coordinator.should_stop():
                seen += session.run(size)
        except tf.errors.OutOfRangeError:
            coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=120)
        assert session.run(total) >= 3 * 2 * sum(range(60))
        try:
            session.run(finished)
        except tf.errors.UnavailableError:  # the last word of all: a ps may be gone before its answer
            pass
    return seen


def main():
    cluster = tf.train.ClusterSpec({"ps": SERVERS, "worker": WORKERS})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        # The first worker may have left before the last one comes.
        with tf.Session(server.target, config=tf.ConfigProto(device_filters=["/job:ps"])) as session:
            one = done_queue(FLAGS.task_index).dequeue()
            for _ in WORKERS:
                session.run(one)
        print("done")
        return
    path = os.path.join(FLAGS.log_dir, "records%d" % FLAGS.task_index)
    write_records(path)
    assert train(server, cluster, path) == 120
    print("done")


if __name__ == "__main__":
    main()
