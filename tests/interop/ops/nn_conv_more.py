"""Conv, and convolutions of what is resized and padded first."""
from cases import *

BAD = dict(error="INVALID_ARGUMENT")


def conv(x, f, strides, padding="SAME", **attrs):
    options = {k: attrs.pop(k) for k in ("error", "dtypes", "known") if k in attrs}
    op("Conv", {"input": x, "filter": f}, {"strides": strides, "padding": padding, **attrs}, **options)


for padding in ("SAME", "VALID"):
    conv(R(2, 5, 6, 3), R(3, 2, 3, 4), [1, 1, 1, 1], padding, dtypes=FLOATS + [tf.int32])
    conv(R(2, 5, 6, 3), R(3, 2, 3, 4), [1, 2, 1, 1], padding)
    conv(R(2, 7, 6, 3), R(3, 2, 3, 4), [1, 1, 1, 1], padding, dilations=[1, 2, 1, 1])
    conv(R(2, 5, 6, 4, 3), R(3, 2, 2, 3, 4), [1, 1, 2, 2, 1], padding)
    conv(R(2, 3, 5, 6, 3), R(3, 2, 3, 4), [1, 1, 1, 1], padding, batch_dims=2)
    conv(R(5, 6, 3), R(3, 2, 3, 4), [1, 1, 1, 1], padding, batch_dims=0)
    conv(R(2, 3, 5, 6, 4, 3), R(3, 2, 2, 3, 4), [1, 1, 1, 1, 1], padding, batch_dims=2)
conv(R(2, 5, 6, 3), R(3, 2, 3, 4), [1, 1, 1, 1], "EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0])
conv(R(0, 5, 6, 3), R(3, 2, 3, 4), [1, 1, 1, 1])
conv(R(2, 5, 6, 3), R(3, 2, 3, 0), [1, 1, 1, 1], **BAD)
conv(R(2, 5, 6, 3), R(3, 2, 3, 4), [2, 2], **BAD)
conv(R(2, 5, 3), R(3, 3, 4), [1, 1, 1], **BAD)
conv(R(2, 5, 6, 4), R(3, 2, 2, 4), [1, 1, 1, 1], **BAD)
conv(R(2, 5, 6, 5), R(3, 2, 5, 4), [1, 1, 1, 1], batch_dims=-1, **BAD)
conv(R(2, 5, 6, 5), R(3, 2, 5, 4), [1, 0, 1, 1], **BAD)
conv(R(2, 5, 6, 5), R(3, 2, 5, 4), [1, 1, 1, 2], **BAD)
conv(R(2, 3, 5, 6), R(3, 2, 3, 4), [1, 1, 1, 1], data_format="CHANNELS_FIRST", error="UNIMPLEMENTED")
conv(R(2, 5, 6, 4), R(3, 2, 2, 4), [1, 1, 1, 1], groups=2, error="UNIMPLEMENTED")


# One image: of several TensorFlow convolves the first again and again.
def padded(name, x=R(1, 5, 6, 3), paddings=((0, 0), (1, 1), (2, 1), (0, 0)), f=R(3, 2, 3, 4), size=(9, 7), **attrs):
    options = {k: attrs.pop(k) for k in ("error", "dtypes", "known") if k in attrs}
    inputs = {"input": x, "paddings": np.array(paddings, np.int32), "filter": f}
    if name == "FusedResizeAndPadConv2D":
        inputs["size"] = np.array(size, np.int32)
    op(name, inputs, {"mode": "REFLECT", "strides": [1, 1, 1, 1], "padding": "VALID", **attrs}, **options)


for name in ("FusedPadConv2D", "FusedResizeAndPadConv2D"):
    for mode in ("REFLECT", "SYMMETRIC"):
        for padding in ("SAME", "VALID"):
            padded(name, mode=mode, padding=padding)
            padded(name, mode=mode, padding=padding, strides=[1, 2, 2, 1], paddings=((0, 0), (4, 3), (0, 4), (0, 0)))
    padded(name, dtypes=[tf.float16, tf.float64])
    padded(name, paddings=((0, 0),) * 4)
    padded(name, x=R(0, 5, 6, 3), known=True, **BAD)
    for paddings in (((1, 0), (1, 1), (0, 0), (0, 0)), ((0, 0), (1, 1), (0, 0), (0, 1)), ((0, 0), (-1, 1), (0, 0), (0, 0)),
                     ((0, 0), (9, 1), (0, 0), (0, 0))):
        padded(name, paddings=paddings, known=True, **BAD)
    padded(name, f=R(3, 2, 2, 4), known=True, **BAD)
    for strides in ([1, 1, 1, 2], [2, 1, 1, 1]):
        padded(name, strides=strides, known=True, **BAD)
padded("FusedResizeAndPadConv2D", resize_align_corners=True)
padded("FusedResizeAndPadConv2D", size=(3, 2), paddings=((0, 0), (1, 1), (1, 0), (0, 0)))
for size in ((0, 4), (-1, 2)):
    padded("FusedResizeAndPadConv2D", size=size, known=True, **BAD)
