"""The table that tests of estimators train on, and columns for it."""
import numpy as np

RNG = np.random.default_rng(3)
ROWS = 40
FEATURES = {"age": RNG.normal(40, 12, (ROWS, 1)).astype(np.float32),
            "job": np.array([[b"clerk"], [b"cook"], [b"smith"], [b"else"]], object)[RNG.integers(0, 4, ROWS)],
            "w": RNG.random((ROWS, 1)).astype(np.float32)}
TWO = (FEATURES["age"] > 40).astype(np.int64)
THREE = RNG.integers(0, 3, (ROWS, 1)).astype(np.int64)
REAL = (FEATURES["age"] / 20).astype(np.float32)
JOBS = ["clerk", "cook", "smith"]
FEATURES["pair"] = np.array(JOBS + ["else"], object)[np.random.default_rng(4).integers(0, 4, (ROWS, 2))]  # several a row


def our_columns(c):
    age, job = c.numeric("age"), c.vocabulary("job", words=JOBS)
    b = c.bucketized(age, [30, 40, 50])
    return [job, b, c.crossed([b, c.feature("job")], 20)], [age, c.embedding(job, dimension=3), c.indicator(job)]
