"""Lookup tables: fixed, mutable, dense; by handles of both kinds; from tensors and text files."""
import os
import tempfile

from cases import *

RAW = tf.raw_ops
PAIRS = [(tf.string, tf.int64), (tf.int64, tf.string), (tf.string, tf.float32), (tf.int64, tf.int64), (tf.int32, tf.float64)]


def bound(f, *args):
    """f(*args) as a function without parameters."""
    return lambda: f(*args)


def hidden(x):
    return tf.placeholder_with_default(x, None)


def some(dtype, n):
    return tf.constant([f"k{i}" for i in range(n)] if dtype == tf.string else list(range(10, 10 + n)), dtype)


def unlike(dtype):
    return tf.constant("none" if dtype == tf.string else -1, dtype)


def find(h, keys, default, v2=True):
    return (RAW.LookupTableFindV2 if v2 else RAW.LookupTableFind)(table_handle=h, keys=keys, default_value=default)


for key, value in PAIRS:
    for v2 in (True, False):
        def fixed(key, value, v2):
            o = lambda name: getattr(RAW, name + ("V2" if v2 else ""))
            h = o("HashTable")(key_dtype=key, value_dtype=value)
            init = o("InitializeTable")(table_handle=h, keys=some(key, 5), values=some(value, 5))
            keys = tf.reshape(some(key, 6), [2, 3])
            return [[o("LookupTableSize")(table_handle=h)], [init], [init], [o("LookupTableSize")(table_handle=h)],
                    [find(h, keys, unlike(value), v2), find(h, keys[0, 0], unlike(value), v2), find(h, keys[:0], unlike(value), v2)]]
        graph(f"fixed {key.name} {value.name} V{2 if v2 else 1}", bound(fixed, key, value, v2))

    def changing(key, value):
        h = RAW.MutableHashTableV2(key_dtype=key, value_dtype=value)
        insert = RAW.LookupTableInsertV2(table_handle=h, keys=some(key, 100), values=some(value, 100))
        remove = RAW.LookupTableRemoveV2(table_handle=h, keys=some(key, 50)[3:49])
        again = RAW.LookupTableInsertV2(table_handle=h, keys=some(key, 7)[2:], values=some(value, 5))
        look = [find(h, some(key, 110), unlike(value)), RAW.LookupTableSizeV2(table_handle=h)]
        load = RAW.LookupTableImportV2(table_handle=h, keys=some(key, 3), values=some(value, 3))
        return [look, [insert], look, [remove], look, [again], look, [load], look]
    graph(f"mutable {key.name} {value.name}", bound(changing, key, value))


def vectors():
    h = RAW.MutableHashTableOfTensorsV2(key_dtype=tf.string, value_dtype=tf.float32, value_shape=[3])
    insert = RAW.LookupTableInsertV2(table_handle=h, keys=["a", "b"], values=[[1., 2., 3.], [4., 5., 6.]])
    return [[insert], [find(h, [["b", "z"]], [0., 0., 7.]), RAW.LookupTableSizeV2(table_handle=h)]]


graph("of tensors", vectors)


def dense(key_values):
    def build():
        empty, deleted, keys, values, shape = key_values
        h = RAW.MutableDenseHashTableV2(empty_key=empty, deleted_key=deleted, value_dtype=tf.as_dtype(values.dtype),
                                        value_shape=shape, initial_num_buckets=8)
        insert = RAW.LookupTableInsertV2(table_handle=h, keys=keys, values=values)
        out = RAW.LookupTableExportV2(table_handle=h, Tkeys=tf.convert_to_tensor(keys).dtype, Tvalues=tf.as_dtype(values.dtype))
        default = np.zeros(shape, values.dtype)
        look = [find(h, keys, default), RAW.LookupTableSizeV2(table_handle=h)] + list(out)
        remove = RAW.LookupTableRemoveV2(table_handle=h, keys=keys[1:3])
        back = RAW.LookupTableInsertV2(table_handle=h, keys=keys[2:3], values=values[2:3])
        return [look, [insert], look, [remove], look, [back], look]
    return build


graph("dense int64", dense((np.int64(-1), np.int64(-2), np.int64([5, 13, 21, 4, 100, 7, 1 << 40]), np.arange(7), [])))
graph("dense growing", dense((np.int64(-1), np.int64(-2), np.int64(np.arange(50) * 7), np.arange(50, dtype=np.float32), [])))
graph("dense string", dense(("", "-", np.array(["a", "bb", "hello world", "a longer key than that"]), np.int64([1, 2, 3, 4]), [])))
graph("dense vectors", dense((np.int64([0, 0]), np.int64([-1, -1]), np.int64([[0, 1], [1, 2], [3, 4], [9, 9]]),
                              np.float32([[1, 2], [3, 4], [5, 6], [7, 8]]), [2])))

FOLDER = tempfile.mkdtemp()


def write(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "w", newline="") as f:
        f.write(text)
    return path


WORDS = write("words", "apple 1 2.5\r\nbanana 2 -1e3\ncherry 3 0\n")
BROKEN = write("broken", "apple\n\ncherry\n")


def from_file(key=tf.string, value=tf.int64, file=WORDS, **attrs):
    h = RAW.HashTableV2(key_dtype=key, value_dtype=value)
    attrs = {"key_index": -2, "value_index": -1, **attrs}
    keys = ["apple", "banana", "cherry", "apple 1 2.5", "banana 2 -1e3"] if key == tf.string else np.arange(5)
    return [[RAW.InitializeTableFromTextFileV2(table_handle=h, filename=file, **attrs)],
            [find(h, tf.constant(keys, key), unlike(value)), RAW.LookupTableSizeV2(table_handle=h)]]


graph("file", lambda: from_file())
graph("file with offset", lambda: from_file(offset=10))
graph("file cut", lambda: from_file(vocab_size=2))
graph("file columns", lambda: from_file(key_index=0, value_index=1, delimiter=" "))
graph("file columns float", lambda: from_file(value=tf.float32, key_index=0, value_index=2, delimiter=" "))
graph("file by line", lambda: from_file(tf.int64, tf.string, key_index=-1, value_index=-2))


def fails(name, code, message, build):
    graph(name, build, error=code, message=message)


fails("file too short", "INVALID_ARGUMENT", "Invalid vocab_size in .*words: expected 5 but got 3", lambda: from_file(vocab_size=5))
fails("file columns missing", "INVALID_ARGUMENT", "Invalid number of columns in .*words line 0",
      lambda: from_file(key_index=0, value_index=9, delimiter=" "))
fails("file no number", "INVALID_ARGUMENT", "Field apple in line 0 is not a valid int64.",
      lambda: from_file(key_index=-2, value_index=0, delimiter=" "))
fails("file missing", "NOT_FOUND", "/nowhere; No such file or directory", lambda: from_file(file="/nowhere"))
fails("file empty line", "INVALID_ARGUMENT", "empty line found at position 7.", lambda: from_file(file=BROKEN))
fails("file type", "INVALID_ARGUMENT", "Value index for line number requires table value dtype of int64, got float",
      lambda: from_file(value=tf.float32))


def table(name="HashTableV2", **more):
    return getattr(RAW, name)(key_dtype=tf.string, value_dtype=tf.int64, **more)


ONE = np.int64([1])
fails("find unset", "FAILED_PRECONDITION", "Table not initialized.", lambda: [find(table(), ["a"], np.int64(0))])
fails("insert into fixed", "UNIMPLEMENTED", "Insert not supported by InitializableLookupTable implementations",
      lambda: [RAW.LookupTableInsertV2(table_handle=table(), keys=["a"], values=ONE)])
fails("export unset", "ABORTED", "HashTable is not initialized.",
      lambda: [RAW.LookupTableExportV2(table_handle=table(), Tkeys=tf.string, Tvalues=tf.int64)[0]])
fails("two values for one key", "FAILED_PRECONDITION",
      "HashTable has different value for same key. Key a has 1 and trying to add value 2",
      lambda: [RAW.InitializeTableV2(table_handle=table(), keys=["a", "a"], values=np.int64([1, 2]))])
fails("more keys than values", "INVALID_ARGUMENT", "Keys and values must have the same size 2 vs 1",
      lambda: [RAW.InitializeTableV2(table_handle=table(), keys=hidden(["a", "b"]), values=hidden(ONE))])
fails("other types", "INVALID_ARGUMENT",
      "Signature mismatch, have: resource, int32, int64->int64 expected: resource, string, int64->int64",
      lambda: [find(table(), hidden([1]), hidden(np.int64(1)))])
fails("default of another shape", "INVALID_ARGUMENT", r"Expected shape \[\] or \[3\] for default value, got \[2\]",
      lambda: [find(table("MutableHashTableV2"), hidden(["a", "b", "c"]), hidden(np.int64([1, 2])))])
fails("values of another shape", "INVALID_ARGUMENT", r"Expected shape \[2\] for value, got \[1\]",
      lambda: [RAW.LookupTableInsertV2(table_handle=table("MutableHashTableV2"), keys=hidden(["a", "b"]), values=hidden(ONE))])
fails("initialize a mutable one", "INVALID_ARGUMENT", "Table localhost m is not initializable",
      lambda: [RAW.InitializeTableV2(table_handle=table("MutableHashTableV2", shared_name="m"), keys=["a"], values=ONE)])


def no_keys(op_name):
    def build():
        table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
        return [apply(op_name, {"table_handle": table, "keys": np.array([], object), "values": np.array([], np.int64)})]
    return build


for op_name in ("InitializeTableV2", "LookupTableImportV2"):
    graph(f"{op_name} no keys", no_keys(op_name), error="INVALID_ARGUMENT", message="keys and values cannot be empty")
