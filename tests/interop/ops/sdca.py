"""Dual coordinate ascent. The order of examples is random, so they share no features, or there is one."""
from cases import *

RAW = tf.raw_ops
LOSSES = ["logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss"]


def L(x, t=np.int64):
    return np.array(x, t)


def F(*x):
    return np.array(x, np.float32)


def optimizer(name, spelling, loss, adaptive, l1, inputs, rounds=3):
    def build():
        attrs = dict(loss_type=loss, l1=l1, l2=0.5, num_loss_partitions=2, num_inner_iterations=1, **{spelling: adaptive})
        given = {k: [feed(x) for x in v] if isinstance(v, list) else feed(v) for k, v in inputs.items()}
        out = []
        for _ in range(rounds):  # TensorFlow changes the states where they are: only the last are what an op gave
            made = getattr(RAW, name)(**given, **attrs)
            out += list(made.out_delta_sparse_weights) + list(made.out_delta_dense_weights)
            given["example_state_data"] = made.out_example_state_data
            for kind in ("sparse", "dense"):
                given[kind + "_weights"] = [w + d for w, d in zip(given[kind + "_weights"], getattr(made, f"out_delta_{kind}_weights"))]
        return out + [given["example_state_data"]]
    graph(f"{name} {loss} {adaptive} {l1} {len(inputs['sparse_weights'])} {len(inputs['dense_weights'])}", build, tol=1e-4)


SPARSE = dict(sparse_example_indices=[L([0, 0, 1, 2]), L([0, 2])], sparse_feature_indices=[L([5, 7, 11, 13]), L([3, 4])],
              sparse_feature_values=[F(0.5, -1, 2, 1)], dense_features=[], example_weights=F(1, 0.5, 2), example_labels=F(1, 0, 1),
              sparse_indices=[L([13, 7, 5, 11]), L([4, 3])], sparse_weights=[F(0.1, -0.2, 0.3, 0.4), F(0, 0.5)], dense_weights=[],
              example_state_data=np.zeros([3, 4], np.float32))
DENSE = dict(sparse_example_indices=[], sparse_feature_indices=[], sparse_feature_values=[],
             dense_features=[np.array([[0.5, -1, 2]], np.float32), np.array([[3]], np.float32)], example_weights=F(1.5),
             example_labels=F(1), sparse_indices=[], sparse_weights=[], dense_weights=[F(0.1, 0.2, -0.3), F(0.2)],
             example_state_data=np.zeros([1, 4], np.float32))
for loss in LOSSES:
    for l1 in (0.0, 0.05):
        optimizer("SdcaOptimizerV2", "adaptive", loss, False, l1, SPARSE)
        optimizer("SdcaOptimizerV2", "adaptive", loss, False, l1, DENSE)
    optimizer("SdcaOptimizer", "adaptative", loss, True, 0.05, DENSE, rounds=1)


def learns(adaptive):
    """Many rounds of examples that share features: both find the weights, on whatever way."""
    def build():
        rng = np.random.default_rng(3)
        x = rng.uniform(-1, 1, (40, 3)).astype(np.float32)
        y = x @ F(0.5, -1, 2)
        w, state = tf.zeros([3]), tf.zeros([40, 4])
        for _ in range(30):
            made = RAW.SdcaOptimizerV2(**{**DENSE, "dense_features": [x], "example_weights": np.ones(40, np.float32),
                                          "example_labels": y, "dense_weights": [w], "example_state_data": state},
                                       loss_type="squared_loss", l1=0.0, l2=1e-3, num_loss_partitions=1, num_inner_iterations=1,
                                       adaptive=adaptive)
            w, state = w + made.out_delta_dense_weights[0], made.out_example_state_data
        return [w]
    graph(f"learns {adaptive}", build, tol=2e-2)


learns(False)


def fails(name, **change):
    def build():
        given = {k: [feed(x) for x in v] if isinstance(v, list) else feed(v) for k, v in {**SPARSE, **change}.items()}
        return [RAW.SdcaOptimizerV2(**given, loss_type="logistic_loss", l1=0.0, l2=0.5, num_loss_partitions=1,
                                    num_inner_iterations=1).out_example_state_data]
    graph(name, build, error="INVALID_ARGUMENT")


fails("a label that is none", example_labels=F(1, 0, 2))
fails("too few labels", example_labels=F(1, 0))
fails("an unknown feature", sparse_feature_indices=[L([5, 7, 11, 99]), L([3, 4])])
fails("a feature twice", sparse_feature_indices=[L([5, 5, 11, 13]), L([3, 4])])
fails("states of other examples", example_state_data=np.zeros([2, 4], np.float32))
fails("features of other examples", sparse_feature_indices=[L([5, 7, 11]), L([3, 4])])


def shrink():
    v = [tf.get_variable(f"v{i}", initializer=F(*x), use_resource=False) for i, x in enumerate(([1, -2, 0.1], [-0.1, 5]))]
    refs = [x._ref() for x in v]
    with tf.control_dependencies([tf.global_variables_initializer()]):
        done = RAW.SdcaShrinkL1(weights=refs, l1=0.5, l2=2.0)
    # Read where the variables are: to other devices their values are sent as soon as there are any.
    with tf.control_dependencies([done]), tf.device("/device:CPU:0"):
        return [tf.identity(r) for r in refs]


graph("shrink", shrink)
op("SdcaFprint", {"input": np.array([bytes(range(65, 65 + n % 60)) * (1 + n // 60) for n in range(0, 400, 7)], object)})
op("SdcaFprint", {"input": np.array([b"abc", b"", b"x" * 16, b"y" * 128, b"z" * 144, b"0" * 1000], object)})
op("SdcaFprint", {"input": np.array([], object)})
op("SdcaFprint", {"input": np.array(b"abc", object)}, error="INVALID_ARGUMENT")
