"""Fourier transforms."""
from cases import *

for shape in ((8,), (3, 5), (2, 12), (1, 1), (2, 37), (1, 97), (2, 30), (3, 128), (0, 4), (1, 74)):
    for name in ("FFT", "IFFT"):
        op(name, {"input": R(*shape)}, dtypes=COMPLEX, grad=True)
    n = shape[-1]
    op("RFFT", {"input": R(*shape), "fft_length": const([n])}, {"Tcomplex": tf.complex64}, grad=["input"] if n > 1 else False)
    op("RFFT", {"input": R(*shape), "fft_length": const([n])}, {"Tcomplex": tf.complex128}, dtypes=[tf.float64], tol=1e-6)
    for length in {2 * n - 2, 2 * n - 1}:
        if length > 0:
            op("IRFFT", {"input": R(*shape), "fft_length": const([length])}, {"Treal": tf.float32}, dtypes=[tf.complex64], tol=1e-4)
op("IRFFT", {"input": R(2, 9), "fft_length": const([8])}, {"Treal": tf.float32}, dtypes=[tf.complex64])
for name, shape in (("2D", (2, 6, 5)), ("3D", (2, 3, 4, 5)), ("2D", (7, 7))):
    rank = int(name[0])
    op("FFT" + name, {"input": R(*shape)}, dtypes=COMPLEX, grad=True)
    op("IFFT" + name, {"input": R(*shape)}, dtypes=COMPLEX, grad=True)
    op("RFFT" + name, {"input": R(*shape), "fft_length": const(list(shape[-rank:]))}, {"Tcomplex": tf.complex64}, grad=["input"] if rank == 2 else False)
    op("IRFFT" + name, {"input": R(*shape), "fft_length": const([*shape[-rank:-1], 2 * shape[-1] - 2])}, {"Treal": tf.float32}, dtypes=[tf.complex64], tol=1e-4)
op("RFFT", {"input": R(2, 9), "fft_length": const([12])}, {"Tcomplex": tf.complex64}, error="INVALID_ARGUMENT", message="must have length of at least 12 but got: 9")
op("FFT2D", {"input": R(9)}, dtypes=[tf.complex64], error="INVALID_ARGUMENT", message="rank")
