"""Sentences from text files to a classifier, with what programs of that time put between: queues of file names and of
shuffled examples, a vocabulary table, sparse ids, an embedding in parts, a GRU by dynamic_rnn, sampled softmax, clipped
gradients, moving averages, streaming metrics, pictures in summaries, a sharded Saver, the usual hooks."""
import argparse
import os

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops

tf.disable_v2_behavior()
WORDS, CLASSES = 50, 3


def write_data(folder, task):
    os.makedirs(folder, exist_ok=True)
    vocabulary, lines = (os.path.join(folder, f"{name}-{task}.txt") for name in ("vocabulary", "lines"))
    with open(vocabulary, "w") as f:
        f.write("\n".join(f"w{k}" for k in range(WORDS)))
    with open(lines, "w") as f:
        for k in range(400):  # the first word tells the class
            f.write(f"{k % CLASSES}\t" + " ".join(f"w{(k * 7 + j) % WORDS if j else k % CLASSES}" for j in range(1 + k % 6)))
            f.write("\n")
    return vocabulary, lines


def read(vocabulary, lines):
    _, line = tf.TextLineReader().read(tf.train.string_input_producer([lines]))
    label, text = tf.decode_csv(line, [[0], [""]], field_delim="\t")
    label, text = tf.train.shuffle_batch([label, text], 16, capacity=200, min_after_dequeue=50, num_threads=2)
    table = lookup_ops.index_table_from_file(vocabulary, num_oov_buckets=2)
    return label, text, table.lookup(tf.string_split(text))


def picture():
    png = tf.image.encode_png(tf.cast(tf.random_uniform([8, 8, 3], 0, 255, tf.int32), tf.uint8))
    image = tf.image.convert_image_dtype(tf.image.decode_png(png, 3), tf.float32)
    return tf.reshape(tf.image.resize_bilinear(tf.image.random_flip_left_right(image)[None], [16, 16]), [1, 16, 16, 3])


def model(label, text, ids, parts, step):
    in_parts = tf.fixed_size_partitioner(parts)
    table = tf.get_variable("words", [WORDS + 2, 8], partitioner=in_parts,
                            initializer=tf.random_normal_initializer(stddev=0.1))
    bag = tf.nn.embedding_lookup_sparse(table, ids, None, combiner="mean")
    padded = tf.sparse_tensor_to_dense(ids, default_value=-1)
    lengths = tf.reduce_sum(tf.cast(padded >= 0, tf.int32), 1)
    _, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(8), tf.nn.embedding_lookup(table, tf.maximum(padded, 0)),
                                 sequence_length=lengths, dtype=tf.float32)
    hidden = bag + state
    logits = tf.layers.dense(hidden, CLASSES)
    weights = tf.get_variable("next/weights", [WORDS + 2, 8], partitioner=in_parts)
    biases = tf.get_variable("next/biases", [WORDS + 2], partitioner=in_parts, initializer=tf.zeros_initializer())
    sampled = tf.nn.sampled_softmax_loss(list(weights), list(biases), tf.cast(label, tf.int64)[:, None], hidden, 10,
                                         WORDS + 2)
    loss = tf.losses.sparse_softmax_cross_entropy(label, logits) + 0.1 * tf.reduce_mean(sampled)
    loss = tf.Print(loss, [loss], "loss ", first_n=1)
    accuracy, count = tf.metrics.accuracy(label, tf.argmax(logits, 1))
    optimizer = tf.train.AdagradOptimizer(tf.train.exponential_decay(0.5, step, 100, 0.9))
    grads, variables = zip(*optimizer.compute_gradients(loss))
    grads, _ = tf.clip_by_global_norm(grads, 5.0)
    average = tf.train.ExponentialMovingAverage(0.9, step)
    with tf.control_dependencies([optimizer.apply_gradients(zip(grads, variables), step)]):
        train = tf.group(average.apply(tf.trainable_variables()), count)
    tf.summary.image("picture", picture())
    tf.summary.scalar("loss", loss)
    tf.summary.histogram("words", tf.concat(list(table), 0))
    tf.summary.text("text", text)
    return loss, train, accuracy


def main():
    parser = argparse.ArgumentParser()
    for name in ("ps_hosts", "worker_hosts", "job_name", "log_dir"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--task_index", type=int, required=True)
    args = parser.parse_args()
    ps, task, chief = args.ps_hosts.split(","), args.task_index, args.task_index == 0
    cluster = tf.train.ClusterSpec({"ps": ps, "worker": args.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=task)
    if args.job_name == "ps":
        server.join()
    device = f"/job:worker/task:{task}"
    files = write_data(os.path.join(args.log_dir, "data"), task)
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=device)):
        step = tf.train.get_or_create_global_step()
        loss, train, accuracy = model(*read(*files), len(ps), step)
    final = tf.train.FinalOpsHook(accuracy)
    hooks = [tf.train.StopAtStepHook(last_step=250), tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=100),
             tf.train.NanTensorHook(loss), final]
    checkpoints = os.path.join(args.log_dir, "checkpoints")
    with tf.train.MonitoredTrainingSession(
            server.target, is_chief=chief, checkpoint_dir=checkpoints if chief else None, save_checkpoint_steps=100,
            save_summaries_steps=50, hooks=hooks, scaffold=tf.train.Scaffold(saver=tf.train.Saver(sharded=True)),
            config=tf.ConfigProto(allow_soft_placement=True, device_filters=["/job:ps", device])) as session:
        steps = 0
        while not session.should_stop():
            session.run(train)
            steps += 1
    if steps > 100:
        assert final.final_ops_values > 0.5, final.final_ops_values
    if chief:
        newest = tf.train.latest_checkpoint(checkpoints)
        shapes = dict(tf.train.list_variables(newest))
        assert shapes["words"] == [WORDS + 2, 8] and "words/part_0/ExponentialMovingAverage" not in shapes, shapes
        assert len([f for f in os.listdir(checkpoints) if f.startswith(os.path.basename(newest) + ".data")]) > 1
    print("done")


main()
