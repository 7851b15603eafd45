"""Feature columns beside tf.feature_column: values, gradients, names of variables and parse specs for the same input."""
# needs: tensorflow
import ctypes as C
import os
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from cases import np, tf
import shoal
from columns_api import INT64, STRING, ColumnModel, Columns, Feature, Named, Sparse, pointers
from shoal import Out
from train_api import dims, lib

fc, fc1 = tf.feature_column, tf.compat.v1.feature_column
AGES = np.float32([[0.5], [17], [30], [65.5]])
PAIRS = np.float32([[0, 1], [2, -3], [4, 5], [0.5, 2]])
JOBS = np.array([["a"], ["zz"], [""], ["c"]], object)
BAGS = Sparse([[0, 0], [0, 2], [2, 0], [2, 1]], ["a", "b", "c", "q"], [4, 3])
NUMBERS = Sparse([[0, 0], [1, 0], [1, 1], [3, 0]], [3, 7, 3, 9], [4, 2])
WEIGHTS = Sparse([[0, 0], [0, 2], [2, 0], [2, 1]], np.float32([0.5, 2.0, -1.0, 4.0]), [4, 3])


def value_of(name, shape):
    """Numbers for a variable, by its name."""
    return np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape).astype(np.float32)


def shoal_values(build):
    """build(m, c) -> outputs. Their values, and the gradients of the sum of squares of the first by variable."""
    m, c = ColumnModel(), Columns()
    outs = build(m, c)
    variables = m.variables()
    loss = m.call("shoal_reduce_sum", m.op("Square", outs[0]))
    sets = [m.op_name(m.call("shoal_variable_assign", v, m.constant(value_of(n, m.shape(m.name(v.value))))))
            for n, v in variables.items()]
    names = {n: m.name(v.handle) for n, v in variables.items()}
    grads = m.gradients([m.name(loss)], list(names.values())) if names else []
    flat = [part for g in grads for part in (g[:2] if isinstance(g, tuple) else [g])]
    with shoal.Session(m) as s:
        if sets + m.table_initializers():
            s.run(targets=sets + m.table_initializers())
        got = s.run([m.name(o) for o in outs] + flat, m.feeds)
    values, rest, dense = got[:len(outs)], got[len(outs):], {}
    for n, g in zip(names, grads):
        if isinstance(g, tuple):
            rows, at = rest.pop(0), rest.pop(0)
            dense[n] = np.zeros(value_of(n, m.shape(m.name(variables[n].value))).shape, np.float32)
            np.add.at(dense[n], at, rows)
        else:
            dense[n] = rest.pop(0)
    return values, dense


def tf_features(values):
    return {k: tf.SparseTensor(v.indices, [x for x in v.values] if v.values.dtype == object else v.values, v.shape)
            if isinstance(v, Sparse) else tf.constant(v) for k, v in values.items()}


def tf_values(values, build):
    with tf.Graph().as_default(), tf.Session() as s:
        outs = build(tf_features(values))
        variables = tf.global_variables()
        grads = tf.gradients(tf.reduce_sum(tf.square(outs[0])), variables)
        grads = [tf.convert_to_tensor(g) for g in grads]
        s.run([tf.global_variables_initializer(), tf.tables_initializer()])
        s.run([tf.assign(v, value_of(v.op.name, v.shape)) for v in variables])
        got, grads = s.run([outs, grads])
        return got, {v.op.name: g for v, g in zip(variables, grads)}


def same(values, ours, theirs):
    (a, da), (b, db) = shoal_values(ours), tf_values(values, theirs)
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-6)
    assert sorted(da) == sorted(db), (sorted(da), sorted(db))
    for n in db:
        np.testing.assert_allclose(da[n], db[n], rtol=1e-5, atol=1e-5, err_msg=n)


def check_input_layer(values, ours, theirs):
    same(values, lambda m, c: [m.layer("shoal_input_layer", values, ours(c))],
         lambda f: [fc1.input_layer(f, theirs)])


def check_linear(values, ours, theirs, **kw):
    ours_kw = {{"sparse_combiner": "combiner"}.get(k, k): v for k, v in kw.items()}
    same(values, lambda m, c: [m.layer("shoal_linear_model", values, ours(c), **ours_kw)],
         lambda f: [fc1.linear_model(f, theirs, **kw)])


def test_numeric_and_bucketized():
    values = {"age": AGES, "pair": PAIRS, "n": np.int64([1, 2, 3, 4])}
    theirs = [fc.numeric_column("pair", shape=(2,)), fc.numeric_column("age"),
              fc.bucketized_column(fc.numeric_column("age"), [10, 30, 60]),
              fc.bucketized_column(fc.numeric_column("pair", (2,)), [0.0, 2.0]), fc.numeric_column("n")]

    def ours(c):
        age, pair = c.numeric("age"), c.numeric("pair", shape=(2,))
        return [pair, age, c.bucketized(age, [10, 30, 60]), c.bucketized(pair, [0, 2]), c.numeric("n")]
    check_input_layer(values, ours, theirs)
    check_linear(values, ours, theirs)
    check_linear(values, ours, theirs, units=3)


def category_columns(path):
    """name of a test -> (ours, TensorFlow's), each a category."""
    v = fc.categorical_column_with_vocabulary_list
    f = fc.categorical_column_with_vocabulary_file
    return {
        "list": (lambda c: c.vocabulary("job", words=["c", "a"]), v("job", ["c", "a"])),
        "default": (lambda c: c.vocabulary("job", words=["c", "a"], default_id=1), v("job", ["c", "a"], default_value=1)),
        "oov": (lambda c: c.vocabulary("bag", words=["c", "a"], oov_buckets=3), v("bag", ["c", "a"], num_oov_buckets=3)),
        "numbers": (lambda c: c.vocabulary("n", numbers=[9, 3, 4]), v("n", [9, 3, 4])),
        "numbers_oov": (lambda c: c.vocabulary("n", numbers=[9, 4], oov_buckets=4), v("n", [9, 4], num_oov_buckets=4)),
        "file": (lambda c: c.vocabulary("bag", path=path), f("bag", path)),
        "file_part": (lambda c: c.vocabulary("bag", path=path, n=2, oov_buckets=1), f("bag", path, 2, num_oov_buckets=1)),
        "hashed": (lambda c: c.hashed("bag", 11), fc.categorical_column_with_hash_bucket("bag", 11)),
        "hashed_numbers": (lambda c: c.hashed("n", 7, INT64), fc.categorical_column_with_hash_bucket("n", 7, tf.int64)),
        "identity": (lambda c: c.identity("n", 10), fc.categorical_column_with_identity("n", 10)),
        "identity_default": (lambda c: c.identity("n", 5, 2), fc.categorical_column_with_identity("n", 5, 2)),
        "weighted": (lambda c: c.weighted(c.hashed("bag", 11), "w"),
                     fc.weighted_categorical_column(fc.categorical_column_with_hash_bucket("bag", 11), "w")),
    }


VALUES = {"job": JOBS, "bag": BAGS, "n": NUMBERS, "w": WEIGHTS, "age": AGES, "pair": PAIRS}


def with_file(check):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "words.txt")
        with open(path, "w") as f:
            f.write("b\nc\nlonger word\n")
        for name, (ours, theirs) in category_columns(path).items():
            try:
                check(name, ours, theirs)
            except BaseException as e:
                raise AssertionError(name) from e


def test_indicator():
    with_file(lambda name, ours, theirs: check_input_layer(
        VALUES, lambda c: [c.indicator(ours(c))], [fc.indicator_column(theirs)]))


def test_embedding():
    combiners = iter(["mean", "sum", "sqrtn"] * 10)

    def check(name, ours, theirs):
        k = next(combiners)
        check_input_layer(VALUES, lambda c: [c.embedding(ours(c), dimension=4, combiner=k)],
                          [fc.embedding_column(theirs, 4, k)])
    with_file(check)


def test_weighted_combiners():
    for k in ("mean", "sum", "sqrtn"):
        check_input_layer(VALUES, lambda c: [c.embedding(c.weighted(c.hashed("bag", 11), "w"), dimension=3, combiner=k)],
                          [fc.embedding_column(fc.weighted_categorical_column(
                              fc.categorical_column_with_hash_bucket("bag", 11), "w"), 3, k)])


def test_max_norm():
    check_input_layer(VALUES, lambda c: [c.embedding(c.hashed("bag", 11), dimension=3, max_norm=0.7)],
                      [fc.embedding_column(fc.categorical_column_with_hash_bucket("bag", 11), 3, max_norm=0.7)])


def test_linear_categories():
    with_file(lambda name, ours, theirs: check_linear(VALUES, lambda c: [ours(c)], [theirs], units=2))
    for k in ("mean", "sqrtn"):
        check_linear(VALUES, lambda c: [c.hashed("bag", 11)], [fc.categorical_column_with_hash_bucket("bag", 11)],
                     sparse_combiner=k)


def test_crossed():
    age = fc.numeric_column("age")
    b = fc.bucketized_column(age, [10, 30])
    v = fc.categorical_column_with_vocabulary_list("bag", ["a", "b", "c"])
    for hash_key in (None, 77):
        theirs = [fc.crossed_column(["job", b], 13, hash_key), fc.crossed_column([b, "bag"], 17, hash_key),
                  fc.crossed_column([fc.crossed_column(["job", v], 100), b], 19, hash_key),
                  fc.crossed_column(["job", "bag"], 23, hash_key)]

        def ours(c):
            rb, rv = c.bucketized(c.numeric("age"), [10, 30]), c.vocabulary("bag", words=["a", "b", "c"])
            job, bag, k = c.feature("job"), c.feature("bag"), hash_key or 0
            return [c.crossed([job, rb], 13, k), c.crossed([rb, bag], 17, k),
                    c.crossed([c.crossed([job, rv], 100), rb], 19, k), c.crossed([job, bag], 23, k)]
        check_linear(VALUES, ours, theirs)
        check_input_layer(VALUES, lambda c: [c.indicator(x) for x in ours(c)], [fc.indicator_column(x) for x in theirs])


def test_shared_embeddings():
    values = {"a": BAGS, "b": JOBS}
    kind = fc.categorical_column_with_hash_bucket
    with tf.Graph().as_default():
        theirs = fc1.shared_embedding_columns([kind("b", 9), kind("a", 9)], 3)
    check_input_layer(values, lambda c: c.shared_embeddings([c.hashed("b", 9), c.hashed("a", 9)], dimension=3), theirs)
    with tf.Graph().as_default():
        theirs = fc1.shared_embedding_columns([kind("b", 9), kind("a", 9)], 3, "sum", shared_embedding_collection_name="t")
    check_input_layer(values, lambda c: c.shared_embeddings([c.hashed("b", 9), c.hashed("a", 9)], dimension=3,
                                                            combiner="sum", shared_name="t"), theirs)


def test_sequences():
    from tensorflow.python.feature_column import sequence_feature_column as seq
    try:
        from tf_keras.src.feature_column.sequence_feature_column import SequenceFeatures
    except ImportError:
        from keras.src.feature_column.sequence_feature_column import SequenceFeatures
    price = Sparse([[0, 0], [0, 1], [0, 2], [2, 0], [2, 1]], np.float32([1, 2, 3, 4, 5]), [4, 3])
    words = Sparse([[0, 0], [0, 1], [0, 2], [2, 0], [2, 1]], ["a", "b", "a", "x", "c"], [4, 3])
    values = {"price": price, "words": words}
    kind = seq.sequence_categorical_column_with_vocabulary_list("words", ["a", "b", "c"])
    theirs = [seq.sequence_numeric_column("price", default_value=-1.0), fc.embedding_column(kind, 2),
              fc.indicator_column(kind)]

    def ours(c):
        s = c.sequence(c.vocabulary("words", words=["a", "b", "c"]))
        return [c.sequence_numeric("price", default=-1.0), c.embedding(s, dimension=2), c.indicator(s)]

    def build(m, c):
        lengths = Out()
        x = m.layer("shoal_sequence_input_layer", values, ours(c), C.byref(lengths), scope="sequence_features")
        return [x, lengths]
    same(values, build, lambda f: list(SequenceFeatures(theirs)(f)))
    # groups of two numbers
    pair = {"price": price}
    same(pair, lambda m, c: (lambda n: [m.layer("shoal_sequence_input_layer", {"price": Sparse(
        price.indices[:4], price.values[:4], [4, 4])}, [c.sequence_numeric("price", shape=(2,))], C.byref(n)), n])(Out()),
         lambda f: list(SequenceFeatures([seq.sequence_numeric_column("price", (2,))])(
             {"price": tf.SparseTensor(price.indices[:4], price.values[:4], [4, 4])})))


def example(**features):
    f = {}
    for k, v in features.items():
        if isinstance(v[0], bytes):
            f[k] = tf.train.Feature(bytes_list=tf.train.BytesList(value=v))
        elif isinstance(v[0], float):
            f[k] = tf.train.Feature(float_list=tf.train.FloatList(value=v))
        else:
            f[k] = tf.train.Feature(int64_list=tf.train.Int64List(value=v))
    return tf.train.Example(features=tf.train.Features(feature=f)).SerializeToString()


def test_parse_spec():
    data = np.array([example(age=[3.0], pair=[1.0, 2.0], job=[b"a"], n=[3, 4]), example(pair=[5.0, 6.0], job=[b"b", b"c"])],
                    object)
    age = fc.numeric_column("age", default_value=40.0)
    pair = fc.numeric_column("pair", (2,))
    n = fc.categorical_column_with_identity("n", 10)
    theirs = [age, fc.bucketized_column(age, [10.0]), pair, fc.indicator_column(n),
              fc.indicator_column(fc.crossed_column(["job", n], 12))]

    def build(m, c):
        a, num = c.numeric("age", default=40.0), c.identity("n", 10)
        columns = [a, c.bucketized(a, [10.0]), c.numeric("pair", shape=(2,)), c.indicator(num),
                   c.indicator(c.crossed([c.feature("job"), num], 12))]
        spec = (Feature * 8)()
        count = m.call("shoal_columns_parse_spec", pointers(columns), len(columns), spec, 8)
        assert [f.name for f in spec[:count]] == [b"age", b"job", b"n", b"pair"], count
        x = m.call("shoal_placeholder", STRING, dims([None]), "examples")
        m.feeds = {m.name(x): data}
        parts, named = (Out * 64)(), (Named * count)()
        used = m.call("shoal_parse_example_features", x, spec, count, parts)
        assert m.call("shoal_features_of", spec, count, parts, named) == used == 8
        return [m.layer("shoal_input_layer", named, columns)]
    same({}, build, lambda f: [fc1.input_layer(tf.io.parse_example(data, fc.make_parse_example_spec(theirs)), theirs)])


def test_partitioned():
    """Weights in one part have TensorFlow's names of parts."""
    part = lib().shoal_fixed_partitioner(2, 0)

    def theirs(f):
        with tf.variable_scope("", partitioner=tf.fixed_size_partitioner(2, 0)):
            return [fc1.linear_model(f, [fc.categorical_column_with_hash_bucket("bag", 11)], units=2)]
    m, c = ColumnModel(), Columns()
    m.layer("shoal_linear_model", VALUES, [c.hashed("bag", 11)], partitioner=C.pointer(part), units=2)
    with tf.Graph().as_default():
        theirs(tf_features(VALUES))
        assert sorted(m.variables()) == sorted(v.op.name for v in tf.global_variables())


MISTAKES = {
    "there is no feature": (lambda m, c: m.layer("shoal_input_layer", VALUES, [c.numeric("agee")]), "'agee' is not among"),
    "strings for numbers": (lambda m, c: m.layer("shoal_input_layer", VALUES, [c.numeric("job")]), "'job' is of type string"),
    "numbers for strings": (lambda m, c: m.layer("shoal_linear_model", VALUES, [c.hashed("age", 4)]), "wants strings"),
    "sparse numbers": (lambda m, c: m.layer("shoal_input_layer", VALUES, [c.numeric("w")]), "'w' is sparse"),
    "a wrong shape": (lambda m, c: m.layer("shoal_input_layer", VALUES, [c.numeric("pair")]), "wants 1 numbers"),
    "a category alone": (lambda m, c: m.layer("shoal_input_layer", VALUES, [c.hashed("job", 4)]), "indicator or an embedding"),
    "no columns": (lambda m, c: m.layer("shoal_input_layer", VALUES, []), "there are no columns"),
    "one name twice": (lambda m, c: m.layer("shoal_linear_model", VALUES, [c.numeric("age"), c.numeric("age")]), "two columns"),
    "a sequence": (lambda m, c: m.layer("shoal_input_layer", VALUES, [c.indicator(c.sequence(c.hashed("bag", 4)))]), "is a sequence"),
    "a file gone": (lambda m, c: c.vocabulary("job", path="/nowhere/words"), "/nowhere/words"),
    "no words": (lambda m, c: c.vocabulary("job"), "one of words, numbers and path"),
    "bounds that fall": (lambda m, c: c.bucketized(c.numeric("age"), [3, 1]), "do not rise"),
    "no bounds": (lambda m, c: c.bucketized(c.numeric("age"), []), "no bounds"),
    "a hashed cross": (lambda m, c: c.crossed([c.hashed("job", 3), c.feature("bag")], 5), "hashed column"),
    "a cross of one": (lambda m, c: c.crossed([c.feature("bag")], 5), "at least two"),
    "no buckets": (lambda m, c: c.identity("n", 0), "0 buckets"),
    "a default outside": (lambda m, c: c.identity("n", 3, 3), "3 of 3"),
    "embedding a number": (lambda m, c: c.embedding(c.numeric("age"), dimension=3), "is a numeric column"),
    "no dimension": (lambda m, c: c.embedding(c.hashed("job", 4)), "dimension"),
    "a combiner": (lambda m, c: c.embedding(c.hashed("job", 4), dimension=2, combiner="max"), '"max"'),
    "tables of other sizes": (lambda m, c: c.shared_embeddings([c.hashed("job", 4), c.hashed("bag", 5)], dimension=2), "5; one table"),
}


def test_mistakes():
    for name, (make, text) in MISTAKES.items():
        try:
            make(ColumnModel(), Columns())
        except shoal.Error as e:
            assert text in e.message, (name, e.message)
        else:
            raise AssertionError(f"{name}: no error")


if __name__ == "__main__":
    tap.main(globals())
