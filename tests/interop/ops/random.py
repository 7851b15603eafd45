"""Random ops: the same seeds give the same numbers, bit for bit."""
from cases import *

RANDOM_FLOATS = [tf.float32, tf.float64, tf.float16, tf.bfloat16]
SHAPES = [(), (0,), (1,), (3,), (7, 5), (1000,), (33, 1029)]


def twice(make):
    """Two runs of one session: the second goes on where the first ended."""
    x = make()
    return [[x], [x]]


for shape in SHAPES:
    for name in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
        graph(f"{name}{list(shape)}", lambda dtype, n=name, s=shape: twice(
            lambda: getattr(tf.raw_ops, n)(shape=np.array(s, np.int32), dtype=dtype, seed=12, seed2=-34567890123)),
            dtypes=RANDOM_FLOATS, tol=0)
    graph(f"RandomUniformInt{list(shape)}", lambda dtype, s=shape: twice(
        lambda: tf.raw_ops.RandomUniformInt(shape=np.array(s, np.int64), minval=tf.cast(-7, dtype),
                                            maxval=tf.cast(1000003, dtype), seed=5, seed2=0)),
        dtypes=[tf.int32, tf.int64], tol=0)
op("RandomUniform", {"shape": np.array([-1], np.int32)}, {"dtype": tf.float32, "seed": 1}, error="INVALID_ARGUMENT")
op("RandomUniform", {"shape": np.array(3, np.int32)}, {"dtype": tf.float32, "seed": 1}, error="INVALID_ARGUMENT")
op("RandomUniformInt", {"shape": np.array([2], np.int32), "minval": 3, "maxval": 3}, {"seed": 1},
   error="INVALID_ARGUMENT", message="Need minval < maxval, got 3 >= 3")
op("RandomUniformInt", {"shape": np.array([2], np.int32), "minval": [3], "maxval": 3}, {"seed": 1},
   error="INVALID_ARGUMENT", message="minval must be 0-D")

for shape in ((), (1,), (2,), (9,), (100,), (5, 3), (0, 2), (17, 2, 2)):
    op("RandomShuffle", {"value": R(*shape)}, {"seed": 3, "seed2": 4}, dtypes=[tf.float32, tf.int64, tf.string, tf.bool],
       tol=0)

for shape in SHAPES:
    for name in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"):
        op(name, {"shape": const(np.array(shape, np.int32)), "seed": np.array([7, -9], np.int64)}, {"dtype": DT},
           dtypes=RANDOM_FLOATS, tol=0)
        op(name + "V2", {"shape": const(np.array(shape, np.int32)), "key": np.array([2**63 + 5], np.uint64),
                         "counter": np.array([2**64 - 2, 3], np.uint64), "alg": np.int32(1)}, {"dtype": DT},
           dtypes=RANDOM_FLOATS, tol=0)
    op("StatelessRandomUniformInt", {"shape": const(np.array(shape, np.int32)), "seed": np.array([7, -9], np.int32),
                                     "minval": V(-5), "maxval": V(2**31 - 1)}, dtypes=[tf.int32, tf.int64], tol=0)
    for dtype in (tf.int32, tf.int64, tf.uint32, tf.uint64):
        op("StatelessRandomUniformFullInt", {"shape": const(np.array(shape, np.int32)),
                                             "seed": np.array([1, 2], np.int64)}, {"dtype": DT}, dtypes=[dtype], tol=0)
        op("StatelessRandomUniformFullIntV2", {"shape": const(np.array(shape, np.int32)), "key": np.array([5], np.uint64),
                                               "counter": np.array([6, 3], np.uint64), "alg": np.int32(3)},
           {"dtype": DT}, dtypes=[dtype], tol=0)
op("StatelessRandomUniformIntV2", {"shape": np.array([50], np.int32), "key": np.array([5], np.uint64),
                                   "counter": np.array([6, 3], np.uint64), "alg": np.int32(1), "minval": V(3),
                                   "maxval": V(99)}, dtypes=[tf.int32, tf.int64], tol=0)
op("StatelessRandomUniform", {"shape": np.array([2], np.int32), "seed": np.array([1], np.int64)},
   error="INVALID_ARGUMENT", message=r"seed must have shape \[2\], not \[1\]")
op("StatelessRandomUniformV2", {"shape": np.array([2], np.int32), "key": np.array([5], np.uint64),
                                "counter": np.array([6, 3], np.uint64), "alg": np.int32(9)}, error="INVALID_ARGUMENT")
op("StatelessRandomGetKeyCounter", {"seed": np.array([5, 6], np.int64)})
op("StatelessRandomGetKeyCounterAlg", {"seed": np.array([-5, 6], np.int32)})
op("StatelessRandomGetAlg", {})


def generator(make):
    def build(dtype):
        v = tf.Variable([1, 2, 3], dtype=tf.int64, use_resource=True)
        with tf.control_dependencies(None):
            x = make(v.handle, dtype)
        with tf.control_dependencies([x]):
            state = v.read_value()
        return [[v.initializer], [x, state], [x, state]]
    return build


for name in ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal"):
    graph(name, generator(lambda h, dtype, n=name: getattr(tf.raw_ops, n)(
        resource=h, algorithm=tf.constant(1, tf.int64), shape=tf.constant([5, 7], tf.int64), dtype=dtype)),
        dtypes=RANDOM_FLOATS, tol=0)
graph("StatefulUniformFullInt", generator(lambda h, dtype: tf.raw_ops.StatefulUniformFullInt(
    resource=h, algorithm=tf.constant(1, tf.int64), shape=tf.constant([5, 7], tf.int64), dtype=dtype)),
    dtypes=[tf.int32, tf.int64, tf.uint32, tf.uint64])
graph("StatefulUniformInt", generator(lambda h, dtype: tf.raw_ops.StatefulUniformInt(
    resource=h, algorithm=tf.constant(1, tf.int64), shape=tf.constant([9], tf.int64), minval=tf.constant(-3, dtype),
    maxval=tf.constant(10, dtype))), dtypes=[tf.int32, tf.int64])
graph("RngReadAndSkip", generator(lambda h, dtype: tf.raw_ops.RngReadAndSkip(
    resource=h, alg=tf.constant(1), delta=tf.constant(7, tf.uint64))))
graph("RngSkip", generator(lambda h, dtype: tf.raw_ops.RngSkip(
    resource=h, algorithm=tf.constant(1, tf.int64), delta=tf.constant(7, tf.int64))))
for shape, counts, probs in (((100, 3), [5., 20., 1000.], .3), ((50, 2, 2), [[4.], [60.]], [.7, .9]), ((0, 1), [3.], .5)):
    op("StatelessRandomBinomial", {"shape": np.array(shape, np.int32), "seed": np.array([3, 4], np.int64),
                                   "counts": V(counts), "probs": V(probs)}, {"dtype": tf.float64},
       dtypes=[tf.float32, tf.float64], tol=0, name=str(shape))


def binomial():  # one draw alone: TensorFlow loses the state's first step when it has to copy the variable
    v = tf.Variable([1, 2, 3], dtype=tf.int64, use_resource=True)
    return [[v.initializer], [tf.raw_ops.StatefulRandomBinomial(
        resource=v.handle, algorithm=tf.constant(1, tf.int64), shape=tf.constant([100, 3]),
        counts=tf.constant([5., 20, 1000], tf.float64), probs=tf.constant(.3, tf.float64))]]


graph("StatefulRandomBinomial", binomial)

for alpha in ([.1, .5], [1., 1.5], [[3.], [100.]], 2., []):
    graph(f"RandomGamma{alpha}", lambda dtype, a=alpha: twice(lambda: tf.raw_ops.RandomGamma(
        shape=tf.constant([40]), alpha=tf.constant(a, dtype), seed=3, seed2=9)),
        dtypes=[tf.float16, tf.float32, tf.float64], tol=1e-12)
    op("StatelessRandomGammaV2", {"shape": np.array((6,) + np.shape(alpha), np.int32), "seed": np.array([3, 4], np.int64),
                                  "alpha": V(alpha)}, dtypes=[tf.float16, tf.float32, tf.float64], tol=1e-12)
for alpha in ([.7, 1.5], [[3.], [100.]], 2.):
    op("StatelessRandomGammaV2", {"shape": const(np.array((6,) + np.shape(alpha), np.int32)), "alpha": V(alpha),
                                  "seed": np.array([3, 4], np.int64)}, dtypes=[tf.float32, tf.float64], grad=["alpha"], fd=False,
       name="gradient")
    op("StatelessRandomGammaV3", {"shape": const(np.array((6,) + np.shape(alpha), np.int32)), "alpha": V(alpha),
                                  "key": np.array([3], np.uint64), "counter": np.array([4, 5], np.uint64), "alg": const(np.int32(1))},
       dtypes=[tf.float32, tf.float64], grad=["alpha"], fd=False)
for rate in ([.1, 3., 9.9], [10., 50.], 1000., []):
    graph(f"RandomPoissonV2{rate}", lambda dtype, r=rate: twice(lambda: tf.raw_ops.RandomPoissonV2(
        shape=tf.constant([40]), rate=tf.constant(r, tf.float32), dtype=dtype, seed=3, seed2=9)),
        dtypes=[tf.float16, tf.float32, tf.float64, tf.int32, tf.int64], tol=0)
    op("StatelessRandomPoisson", {"shape": np.array((6,) + np.shape(rate), np.int32), "seed": np.array([3, 4], np.int64),
                                  "lam": V(rate)}, {"dtype": tf.int64}, dtypes=[tf.float32, tf.float64], tol=0)

for shape, n in (((1, 3), 20), ((4, 2), 7), ((3, 50), 1), ((2, 1), 5), ((0, 3), 4), ((2, 3), 0)):
    op("Multinomial", {"logits": R(*shape), "num_samples": const(np.int32(n))}, {"seed": 1, "seed2": 2},
       dtypes=[tf.float16, tf.float32, tf.float64], tol=0)
    op("StatelessMultinomial", {"logits": R(*shape), "num_samples": const(np.int32(n)),
                                "seed": np.array([3, 4], np.int64)}, {"output_dtype": tf.int32},
       dtypes=[tf.float16, tf.float32, tf.float64], tol=0)
op("Multinomial", {"logits": R(3), "num_samples": np.int32(2)}, {"seed": 1}, error="INVALID_ARGUMENT")
op("Multinomial", {"logits": R(3, 2), "num_samples": np.int32(-2)}, {"seed": 1}, error="INVALID_ARGUMENT")

for top in (0, 1, 9, 255, 256, 1000, 65535, 65536, 10**6):
    for dtype in (tf.int32, tf.uint32, tf.int64, tf.uint64):
        op("RandomIndexShuffle", {"index": V(sorted({0, top // 3, top})), "seed": np.array([1, 2, 3], np.int64),
                                  "max_index": V(top)}, dtypes=[dtype], name=f"up to {top}")
op("RandomIndexShuffle", {"index": np.int64(5), "seed": np.array([1, 2, 3], np.uint32), "max_index": np.int64(2**40)},
   {"rounds": 8}, name="scalar")

for mean, dev, lo, hi in ((0., 1., -2., 2.), (0., 1., 3., 4.), (0., 1., 2., 100.), (5., 2., -np.inf, 4.), (1., .5, .9, 1.1), (0., 1., -8., -5.)):
    for shape in ((7,), (1000,), (3, 70)):
        graph(f"ParameterizedTruncatedNormal {mean} {dev} {lo} {hi} {shape}", lambda dtype, a=(mean, dev, lo, hi), s=shape: twice(
            lambda: tf.raw_ops.ParameterizedTruncatedNormal(shape=tf.constant(s), means=tf.constant(a[0], dtype), stdevs=tf.constant(
                a[1], dtype), minvals=tf.constant(a[2], dtype), maxvals=tf.constant(a[3], dtype), seed=3, seed2=4)),
              dtypes=[tf.float32, tf.float64])
graph("ParameterizedTruncatedNormal of each row", lambda dtype: twice(lambda: tf.raw_ops.ParameterizedTruncatedNormal(
    shape=tf.constant([3, 11]), means=tf.constant([0., 1, 2], dtype), stdevs=tf.constant([1., 2, 3], dtype),
    minvals=tf.constant([-1., 4, 0], dtype), maxvals=tf.constant([1., 9, 2.5], dtype), seed=3, seed2=4)),
    dtypes=[tf.float32, tf.float64])
op("ParameterizedTruncatedNormal", {"shape": np.array([3], np.int32), "means": V(0), "stdevs": V(-1), "minvals": V(0), "maxvals": V(1)},
   {"seed": 1}, error="INVALID_ARGUMENT", message="Invalid parameters")


def gamma_gradient(dtype):
    alphas = [feed(np.array(a, dtype.as_numpy_dtype)) for a in ([.5, 2.], [[1.], [30.]])]
    return [tf.gradients(tf.raw_ops.RandomGamma(shape=tf.constant([5, 2]), alpha=a, seed=3), a)[0] for a in alphas]


graph("RandomGamma's gradient", gamma_gradient, dtypes=[tf.float32, tf.float64], tol=1e-5)
op("RandomGamma", {"shape": const(np.array([5, 2], np.int32)), "alpha": V([.5, 2., 30.])}, {"seed": 3}, grad=["alpha"], fd=False,
   dtypes=[tf.float32, tf.float64], tol=1e-5)

# ---- shuffles by a key ----
KEY = {"key": np.array([12345], np.uint64), "counter": np.array([3, 4], np.uint64), "alg": np.int32(1)}
for shape in ((7,), (20, 3), (1, 5), (0, 2), ()):
    op("StatelessShuffle", {"value": R(*shape), **KEY}, dtypes=[tf.float32, tf.int8, tf.string], tol=0)
op("StatelessShuffle", {"value": R(5), **KEY, "alg": np.int32(9)}, error="INVALID_ARGUMENT")
op("StatelessShuffle", {"value": R(5), **KEY, "key": np.array([1, 2], np.uint64)}, error="INVALID_ARGUMENT")

# ---- normal numbers between bounds, from a pair of seeds ----


def seeded(shape, means, devs, lo, hi, seed=(3, 4), **options):
    op("StatelessParameterizedTruncatedNormal", {"shape": np.array(shape, np.int32), "seed": np.array(seed, np.int64), "means": V(means),
       "stddevs": V(devs), "minvals": V(lo), "maxvals": V(hi)}, **options)


for a in ((0., 1., -2., 2.), (0., 1., 3., 4.), (0., 1., 2., 100.), (5., 2., -np.inf, 4.), (1., .5, .9, 1.1), (0., 1., -8., -5.)):
    seeded((3, 70), *a, dtypes=[tf.float32, tf.float64])
seeded((40, 3), [0., 1, 2], [1., 2, 3], [-1., 4, 0], [1., 9, 2.5], dtypes=[tf.float32, tf.float64])
seeded((5, 2, 3), [[0.], [1.]], [1., 2, 3], -1., [2.], dtypes=[tf.float32, tf.float64])
seeded((2, 3), [[0.], [1.]], [1., 2, 3], -1., 4., seed=(-1, 2**40), dtypes=[tf.float32, tf.float64])
seeded((7,), 0., 1., -1., 4., dtypes=[tf.float16])
seeded((), 0., 1., -1., 4.)
seeded((0, 3), 0., 1., -1., 4.)
for bad in (((3, 2), [0.] * 3, 1., 0., 1.), ((3,), [[0.]] * 3, 1., 0., 1.), ((3,), 0., -1., 0., 1.), ((3,), 0., 1., 1., 0.), ((3,), 0., 1., -np.inf, np.inf),
            ((4, 3), [0.] * 3, [1.] * 2, 0., 1.), ((-1, 3), 0., 1., 0., 1.)):
    seeded(*bad, error="INVALID_ARGUMENT")
seeded((3,), 0., 1., 0., 1., seed=(1, 2, 3), error="INVALID_ARGUMENT")

# ---- Sobol's sequence ----


def sobol(dim, n, skip, dtypes=[tf.float64], **options):
    op("SobolSample", {"dim": np.int32(dim), "num_results": np.int32(n), "skip": np.int32(skip)}, {"dtype": DT}, dtypes=dtypes, tol=0, **options)


for dim, n, skip in ((1, 1, 0), (1, 40, 0), (7, 600, 0), (7, 33, 1), (7, 33, 1000000), (1111, 70, 0), (1111, 40, 2**20 - 7), (40, 3, 2**30 - 5), (40, 5, 2**31 - 8)):
    sobol(dim, n, skip, [tf.float32, tf.float64])
for dim, n, skip in ((0, 1, 0), (-1, 1, 0), (21201, 1, 0), (3, 0, 0), (3, -2, 0), (3, 1, -1), (3, 3, 2**31 - 4)):
    sobol(dim, n, skip, error="INVALID_ARGUMENT")
op("SobolSample", {"dim": np.array([3], np.int32), "num_results": np.int32(2), "skip": np.int32(0)}, {"dtype": DT}, error="INVALID_ARGUMENT")
