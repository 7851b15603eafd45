"""TensorFlow's side of the op harness: makes a case's graph, runs it, and gives the question with its answer (judge.py). A
case of which TensorFlow itself does not do what it says is a Failure here.
"""
import re

from cases import Building, np, outputs_of, tf
from judge import Failure, Gradients, Run, Values, dense, is_error, plain

CODES = {name: getattr(tf.errors, name) for name in dir(tf.errors) if name.isupper() and isinstance(getattr(tf.errors, name), int)}


def tf_config():
    c = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    c.graph_options.rewrite_options.disable_meta_optimizer = True
    c.graph_options.optimizer_options.opt_level = -1
    return c


def build(case):
    """(graph, runs, feeds): runs is a list of (fetches, feeds)."""
    g = tf.Graph()
    with g.as_default(), Building(case) as b:
        tf.set_random_seed(87654321)
        try:
            made = case.build()
        except Exception as e:
            raise Failure(f"the graph cannot be built: {type(e).__name__}: {e}")
    if not isinstance(made, list) or not made:
        made = outputs_of(made)
    several = any(isinstance(m, (list, tuple)) and not hasattr(m, "_fields") for m in made)
    runs = []
    for m in made if several else [made]:
        fetches, feeds = m if isinstance(m, tuple) and len(m) == 2 and isinstance(m[1], dict) else (m, {})
        runs.append((outputs_of(fetches), {**b.feeds, **feeds}))
    return g, runs, b.feeds


def fetchable(t):
    return isinstance(t, tf.Tensor) and t.dtype.base_dtype not in (tf.resource, tf.variant)


def run_tf(g, runs):
    """For each run the arrays, or (code, message) in the last place."""
    results = []
    with tf.Session(graph=g, config=tf_config()) as s:
        for fetches, feeds in runs:
            tensors = [t for t in fetches if fetchable(t)]
            ops = [t if isinstance(t, tf.Operation) else t.op for t in fetches if not fetchable(t)]
            try:
                # Copies: there are ops that write where they read, and TensorFlow may use an array's memory as it is.
                own = {t: v.copy() if isinstance(v, np.ndarray) else v for t, v in feeds.items()}
                results.append(s.run((tensors, ops), own)[0])
            except tf.errors.OpError as e:
                # Without the Python places, which TensorFlow puts first.
                results.append((e.error_code, re.sub(r"(?s)^Graph execution error:.*?\nNode: [^\n]*\n", "", e.message)))
                break
    return results


def feed_names(feeds):
    return {t.name: (np.asarray(v), t.dtype.base_dtype.as_datatype_enum) for t, v in feeds.items()}


def inferred(t):
    return None if t.shape.rank is None else tuple(t.shape.as_list())


def as_run(fetches, feeds):
    return Run([(t.name, inferred(t)) for t in fetches if fetchable(t)],
               [(t if isinstance(t, tf.Operation) else t.op).name for t in fetches if not fetchable(t)], feed_names(feeds))


def as_said(case, theirs):
    """TensorFlow fails where the case says so, as it says, and nowhere else."""
    where, last = f"run {len(theirs) - 1}: " if len(theirs) > 1 else "", theirs[-1]
    if is_error(last):
        name = next((n for n, c in CODES.items() if c == last[0]), str(last[0]))
        if not case.error:
            raise Failure(f"{where}TensorFlow itself fails: {name}: {last[1]}")
        if name != case.error:
            raise Failure(f"{where}TensorFlow gives {name}, the case says {case.error}: {last[1]}")
    elif case.error:
        raise Failure(f"TensorFlow gives no error, the case says {case.error}")


def ask_values(case):
    g, runs, _ = build(case)
    theirs = run_tf(g, runs)
    as_said(case, theirs)
    return Values(g.as_graph_def(add_shapes=False).SerializeToString(), [as_run(*r) for r in runs],
                  [r if is_error(r) else [plain(v) for v in r] for r in theirs], case.error, case.message, case.tol, case.only)


# ---- gradients ----

def ask_gradients(case):
    """None where there is nothing to ask."""
    if not case.grad or case.error or not (case.dtype.is_floating or case.dtype.is_complex):
        return None
    g, runs, feeds = build(case)
    fetches = runs[-1][0]
    floating = lambda t: t.dtype.base_dtype.is_floating or t.dtype.base_dtype.is_complex
    ys = [t for i, t in enumerate(fetches) if fetchable(t) and floating(t) and (case.only is None or i in case.only)]
    xs = [t for t in feeds if floating(t)]
    if isinstance(case.grad, (list, tuple)):
        xs = [t for t in xs if re.sub(r"_\d+$", "", t.op.name) in case.grad]
    rng = np.random.default_rng(7)
    values = run_tf(g, [(ys, feeds)])[0]
    if is_error(values):
        raise Failure(f"TensorFlow itself fails: {values[1]}")
    with g.as_default():
        weigh = lambda v: np.asarray(rng.uniform(0.5, 1.5, v.shape)).astype(v.dtype)
        dys = [tf.constant(weigh(np.asarray(v)), y.dtype) for v, y in zip(values, ys)]
        graph_def = g.as_graph_def(add_shapes=False).SerializeToString()
        try:
            grads, refused = tf.gradients(ys, xs, dys), None
        except (LookupError, TypeError) as e:
            grads, refused = [], str(e) or type(e).__name__
    theirs = run_tf(g, [(list(flatten(grads)), feeds)])[0] if grads else []
    if is_error(theirs):
        raise Failure(f"TensorFlow's gradient fails: {theirs[1]}")
    # Sixteen bits round at the size of what was multiplied, about 1, not at that of the result.
    floor = 1 if case.dtype in (tf.float16, tf.bfloat16) else 0
    return Gradients(graph_def, [y.name for y in ys], [x.name for x in xs], [d.name for d in dys], feed_names(feeds), refused,
                     list(regroup(grads, theirs)), case.tol, floor, case.fd and case.dtype == tf.float64)


def flatten(grads):
    for b in grads:
        if isinstance(b, tf.IndexedSlices):
            yield from (b.values, b.indices, b.dense_shape)
        elif b is not None:
            yield b


def regroup(grads, flat):
    it = iter(flat)
    for b in grads:
        if b is None:
            yield None
        else:
            yield dense((next(it), next(it), next(it)) if isinstance(b, tf.IndexedSlices) else next(it))
