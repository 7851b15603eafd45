"""Feature columns (shoal/columns.h) through ctypes.

    c = Columns()
    age = c.numeric("age", shape=(2,))
    job = c.vocabulary("job", words=["a", "b"], oov_buckets=2)
    x = m.input_layer({"age": array_or_tensor, "job": Sparse(...)}, [age, c.embedding(job, dimension=3)])
"""
import ctypes as C

import numpy as np

import shoal
import train_api as api
from shoal import I, Out, P, S
from train_api import B, D, Dims, G, L, Model, Partitioner, dims

FLOAT, STRING, INT64 = 1, 7, 9


def options(*fields):
    return type("Options", (C.Structure,), {"_fields_": [("size", C.c_size_t), *fields]})


Numeric = options(("shape", Dims), ("dtype", I), ("default_value", D), ("has_default", B), ("normalizer", P), ("arg", P))
Vocabulary = options(("words", C.POINTER(S)), ("numbers", C.POINTER(L)), ("path", S), ("n", L), ("oov_buckets", L),
                     ("default_id", L), ("has_default_id", B), ("integers", B))
Embedding = options(("dimension", L), ("combiner", S), ("max_norm", D), ("stddev", D), ("untrained", B),
                    ("shared_name", S))
Layer = options(("scope", S), ("partitioner", C.POINTER(Partitioner)), ("units", L), ("combiner", S))


class Named(C.Structure):
    _fields_ = [("name", S), ("values", Out), ("indices", Out), ("dense_shape", Out)]


class Feature(C.Structure):
    _fields_ = [("name", S), ("dtype", I), ("kind", I), ("shape", Dims), ("default_value", Out)]


U = C.c_uint64
COLUMNS = C.POINTER(P)
CALLS = {
    "shoal_columns_new": (P,), "shoal_columns_free": (None, P), "shoal_columns_error": (P, P),
    "shoal_column_name": (S, P), "shoal_column_numeric": (P, P, S, P), "shoal_column_sequence_numeric": (P, P, S, P),
    "shoal_column_bucketized": (P, P, P, C.POINTER(C.c_float), I), "shoal_column_vocabulary": (P, P, S, P),
    "shoal_column_hashed": (P, P, S, L, I), "shoal_column_identity": (P, P, S, L, L),
    "shoal_column_crossed": (P, P, COLUMNS, I, L, U), "shoal_column_feature": (P, P, S, I),
    "shoal_column_weighted": (P, P, P, S, I), "shoal_column_indicator": (P, P, P),
    "shoal_column_embedding": (P, P, P, P), "shoal_column_sequence": (P, P, P),
    "shoal_column_shared_embeddings": (None, P, COLUMNS, I, P, COLUMNS),
    "shoal_input_layer": (Out, G, C.POINTER(Named), I, COLUMNS, I, P),
    "shoal_linear_model": (Out, G, C.POINTER(Named), I, COLUMNS, I, P),
    "shoal_sequence_input_layer": (Out, G, C.POINTER(Named), I, COLUMNS, I, P, C.POINTER(Out)),
    "shoal_columns_parse_spec": (I, G, COLUMNS, I, C.POINTER(Feature), I),
    "shoal_parse_example_features": (I, G, Out, C.POINTER(Feature), I, C.POINTER(Out)),
    "shoal_features_of": (I, G, C.POINTER(Feature), I, C.POINTER(Out), C.POINTER(Named)),
}
api.SIGNATURES.update(CALLS)


class Sparse:
    def __init__(self, indices, values, shape):
        self.indices, self.shape = np.array(indices, np.int64).reshape(-1, len(shape)), np.array(shape, np.int64)
        self.values = np.asarray(values, object if len(values) and isinstance(values[0], (str, bytes)) else None)


def given(struct, **fields):
    return struct(C.sizeof(struct), **{k: v.encode() if isinstance(v, str) else v for k, v in fields.items()})


def pointers(columns):
    return (P * max(len(columns), 1))(*columns)


class Columns:
    def __init__(self):
        self.lib = api.lib()
        self.handle = self.lib.shoal_columns_new()
        self.kept = []

    def __del__(self):
        self.lib.shoal_columns_free(self.handle)

    def call(self, name, *args):
        args = [a.encode() if isinstance(a, str) else a for a in args]
        self.kept.append(args)
        out = getattr(self.lib, f"shoal_column_{name}")(self.handle, *args)
        error = self.lib.shoal_columns_error(self.handle)
        if error:
            raise shoal._to_error(error)
        return out

    def name(self, column):
        return self.lib.shoal_column_name(column).decode()

    def _numeric(self, kind, key, shape=(), dtype=0, default=None):
        return self.call(kind, key, C.byref(given(Numeric, shape=dims(shape), dtype=dtype, default_value=default or 0,
                                                  has_default=default is not None)))

    def numeric(self, key, **kw):
        return self._numeric("numeric", key, **kw)

    def sequence_numeric(self, key, **kw):
        return self._numeric("sequence_numeric", key, **kw)

    def bucketized(self, source, bounds):
        return self.call("bucketized", source, (C.c_float * max(len(bounds), 1))(*bounds), len(bounds))

    def vocabulary(self, key, words=None, numbers=None, **kw):
        if words is not None:
            kw.update(words=(S * len(words))(*[w.encode() for w in words]), n=len(words))
        if numbers is not None:
            kw.update(numbers=(L * len(numbers))(*numbers), n=len(numbers))
        if "default_id" in kw:
            kw["has_default_id"] = True
        return self.call("vocabulary", key, C.byref(given(Vocabulary, **kw)))

    def hashed(self, key, buckets, dtype=STRING):
        return self.call("hashed", key, buckets, dtype)

    def identity(self, key, buckets, default=-1):
        return self.call("identity", key, buckets, default)

    def feature(self, key, dtype=STRING):
        return self.call("feature", key, dtype)

    def crossed(self, of, buckets, hash_key=0):
        return self.call("crossed", pointers(of), len(of), buckets, hash_key)

    def weighted(self, category, weights, dtype=0):
        return self.call("weighted", category, weights, dtype)

    def indicator(self, category):
        return self.call("indicator", category)

    def sequence(self, category):
        return self.call("sequence", category)

    def embedding(self, category, **kw):
        return self.call("embedding", category, C.byref(given(Embedding, **kw)))

    def shared_embeddings(self, categories, **kw):
        out = pointers([None] * len(categories))
        self.call("shared_embeddings", pointers(categories), len(categories), C.byref(given(Embedding, **kw)), out)
        return list(out)


class ColumnModel(Model):
    def features(self, values):
        """name -> array (a placeholder of unknown batch is made), Sparse or an Out; self.feeds is what to feed."""
        self.feeds = getattr(self, "feeds", {})
        named = (Named * max(len(values), 1))()
        for f, (name, v) in zip(named, values.items()):
            f.name = name.encode()
            parts = [v.values, v.indices, v.shape] if isinstance(v, Sparse) else [v]
            for field, part in zip(("values", "indices", "dense_shape"), parts):
                if not isinstance(part, Out):
                    part, shape = np.asarray(part), list(np.asarray(part).shape)
                    number = STRING if part.dtype.kind in "OSU" else shoal.NUMBER[part.dtype]
                    if field != "dense_shape":
                        shape[0] = None
                    out = self.call("shoal_placeholder", number, dims(shape), f"in/{name}/{field}")
                    self.feeds[self.name(out)] = part
                    part = out
                setattr(f, field, part)
        return named

    def layer(self, kind, values, columns, *more, **kw):
        named = values if isinstance(values, C.Array) else self.features(values)
        return self.call(kind, named, len(named), pointers(columns), len(columns), C.byref(given(Layer, **kw)), *more)

    def variables(self, trainable=False):
        n = self.call("shoal_variables", trainable, None, 0)
        found = (api.Var * max(n, 1))()
        self.call("shoal_variables", trainable, found, n)
        return {self.name(v.handle)[:-2]: v for v in found[:n]}

    def table_initializers(self):
        text, names = self.export_text(), []
        for node in text.split("node {")[1:]:
            if 'op: "InitializeTable' in node:
                names.append(node.split('name: "')[1].split('"')[0])
        return names
