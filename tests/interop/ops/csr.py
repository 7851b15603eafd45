"""Matrices in compressed rows."""
from cases import *

RAW = tf.raw_ops
TYPES = [tf.float32, tf.float64, tf.complex64, tf.complex128]
REAL = [tf.float32, tf.float64]
A, B3 = [[0, 1], [0, 3], [2, 0], [2, 2]], [[0, 0, 1], [0, 2, 2], [1, 0, 0], [1, 0, 3], [1, 1, 1]]


def L(x, t=np.int64):
    return np.array(x, t)


def sparse(indices, shape, name=None):
    return RAW.SparseTensorToCSRSparseMatrix(indices=L(indices), values=feed(R(len(indices)), name), dense_shape=L(shape))


def everything(m, dtype):
    c = RAW.CSRSparseMatrixToSparseTensor(sparse_matrix=m, type=dtype)
    return [c.indices, c.values, c.dense_shape, RAW.CSRSparseMatrixToDense(sparse_input=m, type=dtype),
            RAW.SparseMatrixNNZ(sparse_matrix=m)]


for indices, shape in ((A, [3, 4]), (A, [5, 5]), (B3, [2, 3, 4]), (B3, [4, 3, 4])):
    def whole(dtype, indices=indices, shape=shape):
        m = sparse(indices, shape)
        parts = RAW.CSRSparseMatrixComponents(csr_sparse_matrix=m, index=np.int32(len(shape) - 2), type=dtype)
        turned = RAW.SparseMatrixTranspose(input=m, conjugate=True, type=dtype)
        return everything(m, dtype) + list(parts) + everything(turned, dtype)

    def through(dtype, indices=indices, shape=shape):
        x = feed(R(*shape), "x")
        m = RAW.DenseToCSRSparseMatrix(dense_input=x, indices=L(indices))
        n = RAW.SparseMatrixTranspose(input=m, type=dtype)
        c = RAW.CSRSparseMatrixToSparseTensor(sparse_matrix=n, type=dtype)
        again = RAW.SparseTensorToCSRSparseMatrix(indices=c.indices, values=c.values * 3, dense_shape=c.dense_shape)
        dense = RAW.CSRSparseMatrixToDense(sparse_input=again, type=dtype)
        dense.set_shape(shape[:-2] + [shape[-1], shape[-2]])
        return [dense * dense]

    graph(f"csr {shape}", whole, dtypes=TYPES, tol=0)
    graph(f"gradient through csr {shape}", through, dtypes=REAL, grad=["x"])

for a, b in ((False, False), (True, False), (False, True), (True, True)):
    for kind in ("transpose", "adjoint"):
        flags = {kind + "_a": a, kind + "_b": b}
        shape = [5, 4] if b else [4, 5]
        if a:
            shape = [5, 3] if b else [3, 5]
        for out in (False, True):
            def product(dtype, flags=flags, shape=shape, out=out):
                m = RAW.SparseMatrixMatMul(a=sparse(A, [3, 4]), b=feed(R(*shape)), transpose_output=out, conjugate_output=out, **flags)
                n = RAW.SparseMatrixMatMul(a=sparse(B3, [2, 3, 4]), b=feed(R(2, *shape)), transpose_output=out, **flags)
                return [m, n]

            graph(f"product {flags} {out}", product, dtypes=TYPES)

            def slope(dtype, flags=flags, shape=shape, out=out):
                b = feed(R(*shape), "b")
                m = RAW.DenseToCSRSparseMatrix(dense_input=feed(R(3, 4), "a"), indices=L(A))
                y = RAW.SparseMatrixMatMul(a=m, b=b, transpose_output=out, **flags)
                rows = [4 if flags[next(iter(flags))] else 3, 5]
                y.set_shape(rows[::-1] if out else rows)
                return [y]

            graph(f"gradient of product {flags} {out}", slope, dtypes=TYPES, grad=["b", "a"])

        def of_sparse(dtype, flags=flags, turn=a != b):
            x, y = sparse(A, [4, 4]), sparse([[0, 0], [1, 2], [1, 3], [3, 1]], [4, 4])
            return everything(RAW.SparseMatrixSparseMatMul(a=x, b=y, type=dtype, **flags), dtype)

        graph(f"product of sparse {flags}", of_sparse, dtypes=TYPES)

# ---- gradients of products, each operand as it is, turned, or turned and conjugated ----
WAYS = (None, "transpose", "adjoint")


def slope_of_sparse(dtype, way_a, way_b):
    every = L([[i, j] for i in range(4) for j in range(4)])
    x = RAW.DenseToCSRSparseMatrix(dense_input=feed(R(4, 4), "x"), indices=every)
    y = RAW.DenseToCSRSparseMatrix(dense_input=feed(R(4, 4), "y"), indices=every)
    flags = {w + s: True for w, s in ((way_a, "_a"), (way_b, "_b")) if w}
    p = RAW.CSRSparseMatrixToDense(sparse_input=RAW.SparseMatrixSparseMatMul(a=x, b=y, type=dtype, **flags), type=dtype)
    p.set_shape([4, 4])
    return [p * p]


def slope_of_mixed(dtype, way_a, way_b, out):
    m = RAW.DenseToCSRSparseMatrix(dense_input=feed(R(4, 4), "a"), indices=L(A))
    y = RAW.SparseMatrixMatMul(a=m, b=feed(R(4, 4), "b"), transpose_output=out[0], conjugate_output=out[1], **{way_a + "_a": True, way_b + "_b": True})
    y.set_shape([4, 4])
    return [y * y]


for way_a in WAYS:
    for way_b in WAYS:
        graph(f"gradient of product of sparse {way_a} {way_b}", lambda dtype, a=way_a, b=way_b: slope_of_sparse(dtype, a, b), dtypes=TYPES, grad=["x", "y"], tol=1e-4)
        if way_a and way_b and way_a != way_b:
            for out in ((False, False), (True, False)):
                graph(f"gradient of mixed product {way_a} {way_b} {out}", lambda dtype, a=way_a, b=way_b, o=out: slope_of_mixed(dtype, a, b, o), dtypes=TYPES,
                      grad=["a", "b"], tol=1e-4)


def batched(dtype):
    y = sparse([[0, 0, 0], [0, 2, 1], [1, 3, 1]], [2, 4, 2])
    return everything(RAW.SparseMatrixSparseMatMul(a=sparse(B3, [2, 3, 4]), b=y, type=dtype), dtype)


graph("product of batches", batched, dtypes=TYPES)


def positive(n, seed):
    g = np.random.default_rng(seed)
    a = np.where(g.uniform(size=(n, n)) < 0.3, g.uniform(-1, 1, (n, n)), 0)
    return a @ a.T + n * np.eye(n)


def csr_of(x, dtype):
    return RAW.DenseToCSRSparseMatrix(dense_input=tf.constant(x, dtype), indices=L(np.argwhere(x)))


for n in (1, 2, 7, 20):
    def cholesky(dtype, n=n):
        x = positive(n, n)
        order = np.random.default_rng(n).permutation(n).astype(np.int32)
        return [RAW.CSRSparseMatrixToDense(sparse_input=RAW.SparseMatrixSparseCholesky(
            input=csr_of(x, dtype), permutation=p, type=dtype), type=dtype) for p in (order, np.arange(n, dtype=np.int32))]

    def ordered(dtype, n=n):  # the order itself may be any; the factor must fit it
        x = positive(n, n)
        m = csr_of(x, dtype)
        order = RAW.SparseMatrixOrderingAMD(input=m)
        l = RAW.CSRSparseMatrixToDense(sparse_input=RAW.SparseMatrixSparseCholesky(input=m, permutation=order, type=dtype), type=dtype)
        again = tf.matmul(l, l, adjoint_b=True)
        back = tf.argsort(order)
        return [tf.sort(order), tf.gather(tf.gather(again, back), back, axis=1)]

    graph(f"cholesky {n}", cholesky, dtypes=TYPES, tol=1e-5)
    graph(f"ordered cholesky {n}", ordered, dtypes=TYPES, tol=1e-5)


def two_factors(dtype):
    x = np.stack([positive(5, 1), positive(5, 2)])
    m = csr_of(x, dtype)
    l = RAW.SparseMatrixSparseCholesky(input=m, permutation=np.array([[4, 2, 0, 1, 3], [0, 1, 2, 3, 4]], np.int32), type=dtype)
    return [RAW.CSRSparseMatrixToDense(sparse_input=l, type=dtype), tf.sort(RAW.SparseMatrixOrderingAMD(input=m))]


graph("cholesky of a batch", two_factors, dtypes=TYPES, tol=1e-5)


def fails(name, build, **options):
    graph(name, lambda: [build()], error="INVALID_ARGUMENT", **options)


nnz = lambda m: RAW.SparseMatrixNNZ(sparse_matrix=m)
dense = lambda m: RAW.CSRSparseMatrixToDense(sparse_input=m, type=tf.float32)
fails("an index outside", lambda: nnz(sparse([[0, 0], [7, 1]], [3, 4])))
fails("another type", lambda: RAW.CSRSparseMatrixToDense(sparse_input=sparse(A, [3, 4]), type=tf.float64))
fails("inner dimensions", lambda: RAW.SparseMatrixMatMul(a=sparse(A, [3, 4]), b=feed(R(3, 4))))
fails("a component outside", lambda: RAW.CSRSparseMatrixComponents(
    csr_sparse_matrix=sparse(A, [3, 4]), index=np.int32(1), type=tf.float32).values)
fails("not positive", lambda: dense(RAW.SparseMatrixSparseCholesky(input=csr_of(-np.eye(3), tf.float32), permutation=[0, 1, 2],
                                                                   type=tf.float32)), message="factorization failed")
