"""The first worker of a TensorFlow 2 MultiWorkerMirroredStrategy, in Keras' fit, beside programs of Shoal's that train the same
model (tests/programs/strategy_trainer.c), for coordination_test.py.

  fit_tf2.py EPOCHS STEPS_PER_EPOCH sgd|adam

It prints the loss of each epoch, and a hash of the weights."""
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
import numpy as np
import tensorflow as tf

ROWS, IN, HIDDEN = 24, 5, 7
CONFIG = json.loads(os.environ["TF_CONFIG"])
TASK, TASKS = CONFIG["task"]["index"], len(CONFIG["cluster"]["worker"])
EPOCHS, STEPS = int(sys.argv[1]), int(sys.argv[2])


def numbers(n, salt):
    i = np.arange(n)
    return ((i * 37 + salt * 11) % 20).astype(np.float32) / np.float32(20) - np.float32(0.5)


def batches(_):
    mine = slice(TASK * (ROWS // TASKS), (TASK + 1) * (ROWS // TASKS))
    steps = range(EPOCHS * STEPS)
    x = np.stack([numbers(ROWS * IN, 5 + k).reshape(ROWS, IN)[mine] for k in steps])
    y = np.stack([numbers(ROWS, 100 + k).reshape(ROWS, 1)[mine] for k in steps])
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat()


class Say(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("epoch", epoch, float(np.float32(logs["loss"])).hex(), flush=True)


tf.keras.utils.set_random_seed(1)  # from some beginnings three epochs are not enough to learn
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(HIDDEN, activation="tanh", input_shape=(IN,)),
                                 tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.2) if sys.argv[3] == "sgd" else tf.keras.optimizers.Adam(0.05, epsilon=1e-8)
    model.compile(optimizer=optimizer, loss="mse")
model.fit(strategy.distribute_datasets_from_function(batches), steps_per_epoch=STEPS, epochs=EPOCHS, verbose=0,
          callbacks=[Say()])
h = 14695981039346656037
for v in model.trainable_variables:
    for byte in v.numpy().tobytes():
        h = (h ^ byte) * 1099511628211 % 2 ** 64
print(f"weights {h:016x}", flush=True)
