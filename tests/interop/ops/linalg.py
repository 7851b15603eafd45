"""Linear algebra. What is unique up to signs or order alone is compared through what it makes up again."""
from cases import *

RC = [tf.float32, tf.float64, tf.complex64, tf.complex128]
REAL = [tf.float32, tf.float64]
TOL = 2e-4
BATCHES = [(), (3,), (2, 2)]


def square(batch, n, dtype, kind="any"):
    """A matrix that is far from singular; kind: any, spd, sym."""
    x = feed(R(*batch, n, n))
    eye = tf.eye(n, batch_shape=batch, dtype=dtype)
    if kind == "spd":
        return x, tf.matmul(x, x, adjoint_b=True) + eye
    if kind == "sym":
        return x, x + tf.linalg.adjoint(x)
    return x, x + 4 * eye


def over(name, kind, build, dtypes=RC, sizes=(1, 3, 5), grad=True, tol=TOL, fd=False):
    for batch in BATCHES:
        for n in sizes:
            def make(dtype, batch=batch, n=n):
                return build(square(batch, n, dtype, kind)[1], dtype)
            graph(f"{name} {batch} {n}", make, dtypes=dtypes, grad=grad, tol=tol, fd=fd)


raw = tf.raw_ops
over("Cholesky", "spd", lambda a, t: [raw.Cholesky(input=a)])
over("CholeskyGrad", "spd", lambda a, t: [raw.CholeskyGrad(l=raw.Cholesky(input=a), grad=a)], REAL, grad=False)
for adjoint in (False, True):
    over(f"MatrixInverse adjoint={adjoint}", "any", lambda a, t, j=adjoint: [raw.MatrixInverse(input=a, adjoint=j)], grad=not adjoint)
over("MatrixDeterminant", "any", lambda a, t: [raw.MatrixDeterminant(input=a)], REAL)
over("MatrixDeterminant complex", "any", lambda a, t: [raw.MatrixDeterminant(input=a)], COMPLEX, grad=False)
over("LogMatrixDeterminant", "any", lambda a, t: [raw.LogMatrixDeterminant(input=a)[1]], REAL)
over("LogMatrixDeterminant both", "any", lambda a, t: list(raw.LogMatrixDeterminant(input=a)), RC, grad=False)
over("Lu", "any", lambda a, t: list(raw.Lu(input=a)), grad=False)
over("Lu64", "any", lambda a, t: list(raw.Lu(input=a, output_idx_type=tf.int64)), REAL, grad=False)
over("SelfAdjointEigV2 values", "sym", lambda a, t: [raw.SelfAdjointEigV2(input=a, compute_v=False)[0]])
over("MatrixSquareRoot", "spd", lambda a, t: [raw.MatrixSquareRoot(input=a)])
over("MatrixLogarithm", "spd", lambda a, t: [raw.MatrixLogarithm(input=a)], COMPLEX, grad=False)


def eig_again(a, t):
    e, v = raw.SelfAdjointEigV2(input=a, compute_v=True)
    return [e, tf.matmul(v * tf.expand_dims(e, -2), v, adjoint_b=True)]


over("SelfAdjointEigV2", "sym", eig_again)


def eig_pairs(a, t):
    out = {tf.float32: tf.complex64, tf.float64: tf.complex128}.get(t, t)
    e, v = raw.Eig(input=a, Tout=out, compute_v=True)
    a = tf.cast(a, out)
    return [tf.matmul(a, v) - v * tf.expand_dims(e, -2) + tf.linalg.trace(a)[..., None, None], tf.reduce_sum(e, -1)]


over("Eig", "any", eig_pairs, grad=False)
for vectors in (False, True):
    for value in ([[np.inf]], [[1, np.inf], [1, 1]], [[1, 2, 3], [4, -np.inf, 6], [7, 8, 1]]):
        op("Eig", {"input": np.array(value, np.float32)}, {"Tout": tf.complex64, "compute_v": vectors},
           error="INVALID_ARGUMENT")


def eig_use(a, t, vectors):
    """What does not depend on the order of eigenvalues or the phase of vectors."""
    out = {tf.float32: tf.complex64, tf.float64: tf.complex128}.get(t, t)
    e, v = raw.Eig(input=a, Tout=out, compute_v=vectors)
    again = [tf.math.real(tf.matmul(v, tf.linalg.inv(v) * tf.expand_dims(tf.exp(e), -1)))] if vectors else []
    return [tf.math.real(tf.reduce_sum(e * e, -1)), *again]


over("Eig values", "any", lambda a, t: eig_use(a, t, False), REAL)
over("Eig vectors", "any", lambda a, t: eig_use(a, t, True), REAL)

for m, n in ((3, 3), (5, 2), (2, 5), (1, 4), (4, 1)):
    for batch in BATCHES:
        shape = batch + (m, n)
        for full in (False, True):
            def svd(dtype, shape=shape, full=full):
                a = feed(R(*shape))
                s, u, v = raw.Svd(input=a, full_matrices=full)
                k = min(shape[-2:])
                return [s, tf.matmul(u[..., :k] * tf.expand_dims(s, -2), v[..., :k], adjoint_b=True),
                        tf.matmul(u, u, adjoint_a=True), tf.matmul(v, v, adjoint_a=True)]
            graph(f"Svd {shape} full={full}", svd, dtypes=RC, tol=TOL)

            def qr(dtype, shape=shape, full=full):
                a = feed(R(*shape))
                return list(raw.Qr(input=a, full_matrices=full))
            graph(f"Qr {shape} full={full}", qr, dtypes=RC, tol=TOL)
        graph(f"Svd values {shape}", lambda dtype, shape=shape: [raw.Svd(input=feed(R(*shape)), compute_uv=False)[0]], dtypes=RC, grad=True,
              fd=False, tol=TOL)

        def svd_grad(dtype, shape=shape):
            a = feed(R(*shape))
            s, u, v = raw.Svd(input=a)
            k = min(shape[-2:])
            return [tf.matmul(u * tf.expand_dims(tf.square(s), -2), v, adjoint_b=True)]
        graph(f"Svd gradient {shape}", svd_grad, dtypes=REAL, grad=True, fd=False, tol=2e-3)
        if m >= n:
            graph(f"Qr gradient {shape}", lambda dtype, shape=shape: list(raw.Qr(input=feed(R(*shape)))), dtypes=REAL, grad=True, fd=False, tol=2e-3)

for batch in BATCHES:
    for n, k in ((1, 1), (3, 2), (4, 5)):
        for adjoint in (False, True):
            def solve(dtype, batch=batch, n=n, k=k, adjoint=adjoint):
                return [raw.MatrixSolve(matrix=square(batch, n, dtype)[1], rhs=feed(R(*batch, n, k)), adjoint=adjoint)]
            graph(f"MatrixSolve {batch} {n} {k} {adjoint}", solve, dtypes=RC, grad=True, fd=False, tol=TOL)
            for lower in (False, True):
                def tri(dtype, batch=batch, n=n, k=k, adjoint=adjoint, lower=lower):
                    return [raw.MatrixTriangularSolve(matrix=square(batch, n, dtype)[1], rhs=feed(R(*batch, n, k)), lower=lower,
                                                      adjoint=adjoint)]
                graph(f"MatrixTriangularSolve {batch} {n} {k} {adjoint} {lower}", tri, dtypes=RC, grad=True, fd=False, tol=TOL)
    for m, n in ((5, 3), (3, 5), (3, 3)):
        for fast, l2 in ((True, 0.5), (True, 0.0), (False, 0.0)):
            def ls(dtype, batch=batch, m=m, n=n, fast=fast, l2=l2):
                return [raw.MatrixSolveLs(matrix=feed(R(*batch, m, n)), rhs=feed(R(*batch, m, 2)), l2_regularizer=tf.constant(l2, tf.float64),
                                          fast=fast)]
            # TensorFlow's gradient takes a transpose for an adjoint
            graph(f"MatrixSolveLs {batch} {m} {n} {fast} {l2}", ls, dtypes=[tf.float64], grad=fast, fd=False, tol=1e-5)
            graph(f"MatrixSolveLs {batch} {m} {n} {fast} {l2}", ls, dtypes=[tf.complex128], tol=1e-5)


def broadcast_tri(dtype):
    return [raw.MatrixTriangularSolve(matrix=square((2, 1), 3, dtype)[1], rhs=feed(R(4, 3, 2))),
            raw.MatrixTriangularSolve(matrix=square((), 3, dtype)[1], rhs=feed(R(4, 3, 2)))]


graph("MatrixTriangularSolve broadcast", broadcast_tri, dtypes=RC, grad=True, fd=False, tol=TOL)
for adjoint in (False, True):
    for lower in (False, True):
        for bands in (1, 2, 4):
            op("BandedTriangularSolve", {"matrix": R(2, bands, 6, lo=1, hi=2), "rhs": R(2, 6, 3)}, {"lower": lower, "adjoint": adjoint},
               dtypes=RC, tol=1e-3, grad=bands > 1, fd=False)
for pivoting in (False, True):
    op("TridiagonalSolve", {"diagonals": R(2, 3, 6, lo=1, hi=2), "rhs": R(2, 6, 3)}, {"partial_pivoting": pivoting}, dtypes=RC, tol=1e-3,
       grad=True, fd=False)
op("TridiagonalMatMul", {"superdiag": R(2, 1, 6), "maindiag": R(2, 1, 6), "subdiag": R(2, 1, 6), "rhs": R(2, 6, 3)}, dtypes=RC, grad=True)

# ---- empty, singular, wrong ----
EMPTY = [(0, 0), (2, 0, 0), (0, 3, 3)]
for s in EMPTY:
    for name in ("Cholesky", "MatrixInverse", "MatrixDeterminant", "LogMatrixDeterminant", "SelfAdjointEigV2", "Lu", "MatrixSquareRoot", "Qr", "Svd"):
        op(name, {"input": R(*s)}, {"compute_v": True} if name == "SelfAdjointEigV2" else {})
op("Qr", {"input": R(3, 0)})
op("Svd", {"input": R(3, 0)})
op("MatrixSolve", {"matrix": R(0, 0), "rhs": R(0, 3)})
op("MatrixSolveLs", {"matrix": R(0, 0), "rhs": R(0, 3), "l2_regularizer": const(np.float64(0))})
SINGULAR = V([[1, 2], [2, 4]])
op("MatrixInverse", {"input": SINGULAR}, dtypes=RC, error="INVALID_ARGUMENT", message="Input is not invertible.")
op("MatrixInverse", {"input": R(3, 3)}, dtypes=[tf.float16], tol=2e-2)
op("Qr", {"input": R(3, 3)}, dtypes=[tf.float16], tol=2e-2)
op("Lu", {"input": SINGULAR}, dtypes=RC, error="INVALID_ARGUMENT", message="Input is not invertible.")
op("MatrixDeterminant", {"input": SINGULAR}, dtypes=RC)
op("LogMatrixDeterminant", {"input": SINGULAR}, dtypes=RC)
op("MatrixSolve", {"matrix": SINGULAR, "rhs": R(2, 1)}, dtypes=RC, error="INVALID_ARGUMENT", message="Input matrix is not invertible.")
op("MatrixTriangularSolve", {"matrix": V([[0, 0], [1, 1]]), "rhs": V([[1], [1]])}, dtypes=REAL)
op("MatrixSolveLs", {"matrix": SINGULAR, "rhs": R(2, 1), "l2_regularizer": np.float64(0)}, error="INVALID_ARGUMENT", message="rank deficient")
op("SelfAdjointEigV2", {"input": V([[np.nan, 1], [1, 1]])}, {"compute_v": True}, error="INVALID_ARGUMENT", message="not successful")
# The library that does the work would not come back from some of these.
INFINITE = V([[1, 2, 3], [4, np.inf, 6], [7, 8, 10]])
op("Svd", {"input": INFINITE}, dtypes=REAL)
op("SelfAdjointEigV2", {"input": INFINITE}, {"compute_v": True}, dtypes=RC, error="INVALID_ARGUMENT", message="not successful")
op("MatrixSquareRoot", {"input": INFINITE}, dtypes=REAL)
op("MatrixSolveLs", {"matrix": INFINITE, "rhs": R(3, 2), "l2_regularizer": np.float64(0)}, {"fast": False}, dtypes=RC)
for name in ("Cholesky", "MatrixInverse", "MatrixDeterminant", "Lu", "MatrixSquareRoot"):
    op(name, {"input": R(2, 3)}, error="INVALID_ARGUMENT", message="Input matrix must be square|must be equal")
    op(name, {"input": R(3)}, error="INVALID_ARGUMENT", message="rank")
op("MatrixSolve", {"matrix": R(2, 2), "rhs": R(3, 1)}, error="INVALID_ARGUMENT", message="incompatible")
op("MatrixSolve", {"matrix": R(2, 2, 2), "rhs": R(3, 2, 1)}, error="INVALID_ARGUMENT", message="same outer dimensions")
op("MatrixTriangularSolve", {"matrix": R(2, 2, 2), "rhs": R(3, 2, 1)}, error="INVALID_ARGUMENT", message="compatible batch dimensions")
