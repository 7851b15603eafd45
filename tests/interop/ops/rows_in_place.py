"""Inplace*, data formats, mutexes, remapping of vocabularies and of matrices in checkpoints."""
import os
import tempfile

from cases import *

ROWS = np.array([2, -1, 7], np.int32)
for name in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
    # TensorFlow writes into what it is given, feeds too: so a tensor of its own.
    graph(name, lambda dtype, name=name: [apply(name, {"x": feed(R(4, 3)) * tf.ones((), dtype), "i": ROWS, "v": R(3, 3)})],
          dtypes=REALS)
    op(name, {"x": R(4, 3), "i": ROWS, "v": R(2, 3)}, error="INVALID_ARGUMENT", message="shape doesn't match at index 0")
    op(name, {"x": R(4, 3), "i": ROWS, "v": R(3, 2)}, error="INVALID_ARGUMENT", message="shape doesn't match at index 1")
    op(name, {"x": R(0, 3), "i": ROWS, "v": R(3, 3)})
op("InplaceUpdate", {"x": R(4, 3), "i": ROWS, "v": R(3, 3)}, dtypes=[tf.bool, tf.string])

for dtype in (np.int32, np.int64):
    for src, dst in (("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NDHWC", "NCDHW"), ("HWNC", "NHWC")):
        attrs = {"src_format": src, "dst_format": dst}
        n = len(src)
        op("DataFormatDimMap", {"x": np.arange(-n, n, dtype=dtype).reshape(2, n)}, attrs)
        for shape in ((n,), (n, 2), (n - 2,), (n - 2, 2)):
            op("DataFormatVecPermute", {"x": np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)}, attrs)
op("DataFormatVecPermute", {"x": np.arange(3, dtype=np.int32)}, error="INVALID_ARGUMENT", message="1D input must be of size 2 or 4")
op("DataFormatVecPermute", {"x": np.zeros((4, 3), np.int32)}, error="INVALID_ARGUMENT", message="Second dimension of 2D input")
op("DataFormatDimMap", {"x": np.arange(3, dtype=np.int32)}, {"src_format": "NHWC", "dst_format": "NNNN"}, error="INVALID_ARGUMENT",
   message="must determine a permutation")


def critical():
    """Two sections under one lock never overlap: each reads and writes the variable as one."""
    v = tf.get_variable("v", (), initializer=tf.zeros_initializer(), use_resource=True)
    mutex = tf.raw_ops.MutexV2(container="", shared_name="m")
    adds = []
    for i in range(3):
        lock = tf.raw_ops.MutexLock(mutex=mutex)
        with tf.control_dependencies([lock]):
            read = v.read_value()
            with tf.control_dependencies([read]):
                write = v.assign(read + 1.0)
        with tf.control_dependencies([write]):
            adds.append(tf.raw_ops.ConsumeMutexLock(mutex_lock=lock))
    return [[v.initializer], adds, adds, [v.read_value()]]


graph("MutexLock", critical)

FOLDER = tempfile.mkdtemp()


def words(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "w") as f:
        f.write(text)
    return path


NEW, OLD = words("new", "knitting\neclair\nzebra\r\nparrot\nbow tie"), words("old", "parrot\nknitting\nfork\neclair\n")
BAD, TWICE = words("bad", "a\n\nb\n"), words("twice", "a\nb\na\n")
for attrs in ({"new_vocab_offset": 0, "num_new_vocab": 5}, {"new_vocab_offset": 2, "num_new_vocab": 2},
              {"new_vocab_offset": 0, "num_new_vocab": 4, "old_vocab_size": 2}, {"new_vocab_offset": 5, "num_new_vocab": 0}):
    op("GenerateVocabRemapping", {"new_vocab_file": NEW, "old_vocab_file": OLD}, attrs)
op("GenerateVocabRemapping", {"new_vocab_file": NEW, "old_vocab_file": OLD}, {"new_vocab_offset": 3, "num_new_vocab": 3},
   error="INVALID_ARGUMENT", message="lookup table size must be larger")
op("GenerateVocabRemapping", {"new_vocab_file": NEW, "old_vocab_file": BAD}, {"new_vocab_offset": 0, "num_new_vocab": 3},
   error="INVALID_ARGUMENT", message="empty line found")
op("GenerateVocabRemapping", {"new_vocab_file": NEW, "old_vocab_file": TWICE}, {"new_vocab_offset": 0, "num_new_vocab": 3},
   error="FAILED_PRECONDITION", message="different value for same key")
op("GenerateVocabRemapping", {"new_vocab_file": NEW, "old_vocab_file": OLD}, {"new_vocab_offset": 0, "num_new_vocab": 3, "old_vocab_size": 9},
   error="INVALID_ARGUMENT", message="Invalid vocab_size")
op("GenerateVocabRemapping", {"new_vocab_file": NEW, "old_vocab_file": os.path.join(FOLDER, "none")},
   {"new_vocab_offset": 0, "num_new_vocab": 3}, error="NOT_FOUND", message="No such file")

OLD_MATRIX = np.arange(20, dtype=np.float32).reshape(5, 4)
CHECKPOINT = os.path.join(FOLDER, "ckpt")


def save():
    with tf.Graph().as_default(), tf.Session() as s:
        s.run(tf.raw_ops.SaveV2(prefix=CHECKPOINT, tensor_names=["m", "v", "i"], shape_and_slices=["", "", ""],
                                tensors=[OLD_MATRIX, np.ones(3, np.float32), np.ones((2, 2), np.int32)]))


save()


def load(rows, cols, values, name="m", at_once=-1, num_rows=None, num_cols=None, **options):
    op("LoadAndRemapMatrix",
       {"ckpt_path": CHECKPOINT, "old_tensor_name": name, "row_remapping": np.array(rows, np.int64), "col_remapping": np.array(cols, np.int64),
        "initializing_values": np.arange(100, 100 + values, dtype=np.float32)},
       {"num_rows": num_rows or len(rows), "num_cols": num_cols or len(cols) or 4, "max_rows_in_memory": at_once}, **options)


for at_once in (-1, 1, 2):
    load([4, 0, 2], [], 0, at_once=at_once)
    load([4, -1, 1], [2, -1, 0, 1, 3], 7, at_once=at_once)
    load([-1, -1], [], 8, at_once=at_once)
load([4, 0], [], 1, error="INVALID_ARGUMENT", message="only 0 elements were used")
load([4, -1], [], 1, error="INVALID_ARGUMENT", message="more missing values remain")
load([4, 4], [], 0, error="UNIMPLEMENTED", message="is mapped to both new ID 0 and 1")
load([0, 1], [], 0, name="none", error="NOT_FOUND")
load([0, 1], [], 0, name="v", error="INVALID_ARGUMENT", message="invalid rank 1")
load([0, 1], [], 0, name="i", error="INVALID_ARGUMENT", message="invalid type int32")
load([0, 1], [], 0, num_rows=3, error="INVALID_ARGUMENT", message="instead of being equal to num_rows=3")
load([0, 1], [], 0, num_cols=3, error="INVALID_ARGUMENT", message="instead of being equal to num_cols=3")

for t in (np.int32, np.int64):
    for indices in (22, [22, 5, 0, 39], [-1], []):
        op("UnravelIndex", {"indices": np.array(indices, t), "dims": np.array([4, 5, 2], t)})
for indices, dims in (([40], [4, 5, 2]), ([1], [0, 2]), ([1], [-3, 2]), ([1], [1 << 20, 1 << 20]), ([[1]], [3])):
    op("UnravelIndex", {"indices": np.array(indices, np.int32), "dims": np.array(dims, np.int32)}, error="INVALID_ARGUMENT")
