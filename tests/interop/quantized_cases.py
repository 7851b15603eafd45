"""What the cases of quantized numbers share."""
from cases import *

__all__ = ["numbers", "plain", "fetch", "case", "BAD"]
BAD = dict(error="INVALID_ARGUMENT")


def numbers(shape, dtype, lo, hi, seed=1):
    """Random quantized numbers: fed as plain integers and cast, since quantized types cannot be fed by numpy."""
    plain = {tf.quint8: np.uint8, tf.qint8: np.int8, tf.qint32: np.int32}[dtype]
    value = np.random.default_rng(seed).integers(lo, hi, shape, endpoint=True).astype(plain)
    return tf.bitcast(feed(value), dtype)


def plain(t):
    return tf.bitcast(t, {tf.quint8: tf.uint8, tf.qint8: tf.int8, tf.qint32: tf.int32}[t.dtype]) if t.dtype.is_quantized else t


def fetch(result):
    return [plain(t) for t in (result if isinstance(result, (list, tuple)) else [result])]


def case(name, build, **options):
    """A build function whose parameters are all given."""
    graph(name, lambda: build(), **options)
