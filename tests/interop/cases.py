"""How op cases are written. A file ops/FAMILY.py starts with `from cases import *` and calls, at its top level:

  op("AddV2", {"x": R(2, 3), "y": R(3)}, dtypes=NUMBERS, grad=True)        one case for each dtype
  op("Sum", {"input": R(2, 3), "axis": const([0, -1])}, {"keep_dims": True}, dtypes=FLOATS, grad=True)
  op("ConcatV2", {"values": [R(2, 3), R(2, 5)], "axis": const(1)})         a list input is a list; float32 alone
  op("Cast", {"x": R(5)}, {"DstT": tf.int32})                              attributes come third
  op("Gather", {...indices out of range...}, error="INVALID_ARGUMENT")     TF must fail so, and Shoal with the same code
  graph("assign_add", build)                                               anything, built by hand

Inputs are fed through placeholders of known shape (unknown when an error is expected), so that nothing is folded.
  R(*shape, lo=-2, hi=2, dtype=None)  random values (whole for integers; small strings), of the case's dtype unless given
  const(value_or_R)                   the same as a constant of the graph instead of a feed
  V(value)                            an array (or nested list) in the case's dtype
  a numpy array, number, list of numbers, string: fed as it is (Python ints as int32, floats as the case's dtype)
Attributes may be DT, which stands for the case's dtype.
Options of op() and graph():
  dtypes=[tf.float32...]  FLOATS INTS NUMBERS REALS COMPLEX ALL are lists of dtypes; one case each
  grad=True | ["x"]       also compare gradients (of all fed floating inputs, or of those named); fd=False: without
                          finite differences (kinks); the numbers must be smooth near the inputs otherwise
  tol=1e-4 | 0            tolerance relative to the largest value, instead of that of the dtype; 0: bit for bit
  error="CODE", message="regex"   both sides must fail; message must be found in ours
  name="text"             put after the op's name; otherwise cases are named by op, dtype and shapes
  known=False             feed through placeholders of unknown shape
  only=[0, 2]             compare these outputs alone (others are undefined, as some ops have)
build() of graph() makes nodes with tf (tf.compat.v1) and tf.raw_ops, feeds with feed(spec), and returns what to fetch:
a list of tensors and ops; or, for several runs in one session, a list of such lists; a run may be (fetches, {tensor: value}).
A build function with one parameter gets the case's dtype.
`python harness.py ops/FAMILY.py [--only=REGEX] [--mode=compare|grad|time|oracle]` runs it.
"""
import inspect
import os
import platform
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
if platform.machine() == "x86_64":  # elsewhere TensorFlow goes by the processor: one oracle, whatever the machine
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import op_def_library

__all__ = ["op", "graph", "feed", "R", "V", "const", "apply", "tf", "np", "DT", "FLOATS", "INTS", "NUMBERS", "REALS",
           "COMPLEX", "ALL", "X86"]

# Elsewhere TensorFlow's build fuses multiplications with additions, and has other kernels, or none, for a few cases. Ours
# are the same everywhere.
X86 = platform.machine() == "x86_64"

FLOATS = [tf.float32, tf.float64, tf.float16, tf.bfloat16]
INTS = [tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64]
COMPLEX = [tf.complex64, tf.complex128]
REALS = FLOATS + INTS
NUMBERS = REALS + COMPLEX
ALL = NUMBERS + [tf.bool, tf.string]
DT = object()


class R:
    def __init__(self, *shape, lo=-2, hi=2, dtype=None):
        self.shape, self.lo, self.hi, self.dtype = shape, lo, hi, dtype

    def __repr__(self):
        return "x".join(map(str, self.shape)) or "scalar"

    def make(self, dtype, rng):
        dtype = tf.as_dtype(self.dtype or dtype)
        if dtype == tf.bool:
            return rng.integers(0, 2, self.shape).astype(bool)
        if dtype == tf.string:
            n = int(np.prod(self.shape, dtype=np.int64))
            words = [bytes(rng.integers(97, 123, rng.integers(0, 24)).astype(np.uint8)) for _ in range(n)]
            return _objects(words).reshape(self.shape)
        if dtype.is_integer:
            lo = max(self.lo, 0) if dtype.is_unsigned else self.lo
            # Wider than asked for by default, so that wrong widths show.
            hi = max(self.hi, 100) if (self.lo, self.hi) == (-2, 2) else self.hi
            return rng.integers(lo if (self.lo, self.hi) != (-2, 2) or dtype.is_unsigned else -100, max(hi, lo + 1),
                                self.shape).astype(dtype.as_numpy_dtype)
        value = rng.uniform(self.lo, self.hi, self.shape)
        if dtype.is_complex:
            value = value + 1j * rng.uniform(self.lo, self.hi, self.shape)
        return np.asarray(value).astype(dtype.as_numpy_dtype)


class V(R):
    """Given values in the case's dtype."""

    def __init__(self, value):
        super().__init__(*np.shape(value))
        self.value = value

    def make(self, dtype, rng):
        if tf.as_dtype(dtype) == tf.string:
            return _objects([str(v).encode() for v in np.ravel(self.value)]).reshape(self.shape)
        return np.asarray(self.value).astype(tf.as_dtype(dtype).as_numpy_dtype)


class const:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return repr(self.value)


def _objects(values):
    a = np.empty(len(values), object)
    a[:] = values
    return a


class Case:
    def __init__(self, name, build, dtype=tf.float32, grad=False, fd=True, tol=None, error=None, message=None,
                 known=None, only=None):
        self.name, self.build, self.dtype, self.grad, self.fd = name, build, dtype, grad, fd
        self.tol, self.error, self.message, self.only = tol, error, message, only
        self.known = not error if known is None else known


class Building:
    """The feeds of the graph being built; one at a time."""
    current = None

    def __init__(self, case):
        self.case, self.feeds, self.rng = case, {}, np.random.default_rng(zlib.crc32(case.name.encode()))

    def __enter__(self):
        Building.current = self
        return self

    def __exit__(self, *exc):
        Building.current = None


def value_of(spec):
    b = Building.current
    if isinstance(spec, R):
        return spec.make(b.case.dtype, b.rng)
    if isinstance(spec, np.ndarray):
        return spec
    if isinstance(spec, (bytes, str)):
        return np.array(spec if isinstance(spec, bytes) else spec.encode(), object)
    a = np.asarray(spec)
    if a.dtype.kind in "SU":
        return _objects([s.encode() if isinstance(s, str) else bytes(s) for s in a.reshape(-1)]).reshape(a.shape)
    if not isinstance(spec, np.generic):
        if a.dtype.kind == "i":
            return a.astype(np.int32)
        if a.dtype.kind == "f":
            floating = b.case.dtype.is_floating or b.case.dtype.is_complex
            return a.astype(b.case.dtype.as_numpy_dtype if floating else np.float32)
    return a


def feed(spec, name=None):
    """A placeholder that is fed in every run; const specs, tensors and lists of specs are taken too."""
    if isinstance(spec, tf.Tensor) or isinstance(spec, tf.Variable):
        return spec
    if isinstance(spec, const):
        return tf.constant(value_of(spec.value))
    if isinstance(spec, list) and any(isinstance(s, (R, const, list, np.ndarray, tf.Tensor)) for s in spec):
        return [feed(s, name) for s in spec]
    b = Building.current
    value = value_of(spec)
    dtype = tf.string if value.dtype == object else value.dtype
    p = tf.placeholder(dtype, value.shape if b.case.known else None, name=name)
    b.feeds[p] = value
    return p


def apply(op_name, inputs=None, attrs=None):
    """One op by its registered name, inputs given as specs or tensors: its outputs."""
    args = {k: feed(v, k) for k, v in (inputs or {}).items()}
    for k, v in (attrs or {}).items():
        args[k] = Building.current.case.dtype if v is DT else v
    if hasattr(tf.raw_ops, op_name):  # fills in the attributes' defaults
        return getattr(tf.raw_ops, op_name)(**args)
    return op_def_library.apply_op(op_name, **args)


def outputs_of(result):
    """All tensors in what an op's wrapper returned; the op itself when there are none."""
    if isinstance(result, (list, tuple)):
        return [t for r in result for t in outputs_of(r)]
    return [result] if result is not None else []


registered = []


def graph(name, build, dtypes=None, **options):
    for dtype in dtypes or [tf.float32]:
        dtype = tf.as_dtype(dtype)
        full = f"{name} {dtype.name}" if dtypes else name
        takes = len(inspect.signature(build).parameters)
        registered.append(Case(full, (lambda d=dtype: build(d)) if takes else build, dtype, **options))


def op(op_name, inputs=None, attrs=None, dtypes=None, name="", **options):
    inputs, attrs = inputs or {}, attrs or {}

    def build():
        return [t for t in outputs_of(apply(op_name, inputs, attrs))]

    text = " ".join(f"{k}={_short(v)}" for k, v in {**inputs, **attrs}.items())
    for dtype in dtypes or [tf.float32]:
        dtype = tf.as_dtype(dtype)
        registered.append(Case(" ".join(filter(None, [op_name, dtype.name, text, name])), build, dtype, **options))


def _short(v):
    if isinstance(v, tf.DType):
        return v.name
    if v is DT:
        return "DT"
    text = repr(v.tolist() if isinstance(v, np.ndarray) else v).replace(" ", "").replace("\n", "")
    return text if len(text) <= 40 else text[:37] + "..."
