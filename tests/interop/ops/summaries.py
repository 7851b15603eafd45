"""Summaries: the same bytes as TensorFlow's. Pictures are compared after decoding elsewhere: compressors differ."""
from cases import *

for shape in ((), (1,), (3,), (2, 2)):
    op("ScalarSummary", {"tags": R(*shape, dtype=tf.string), "values": R(*shape)}, dtypes=REALS)
op("ScalarSummary", {"tags": np.array([b"a"], object), "values": np.float32(2)}, error="INVALID_ARGUMENT")
op("ScalarSummary", {"tags": np.array([b"a", b"b"], object), "values": R(3)}, error="INVALID_ARGUMENT",
   message="same shape")
for shape in ((), (0,), (7,), (50, 40)):
    op("HistogramSummary", {"tag": np.array(b"h", object), "values": R(*shape)}, dtypes=REALS)
    op("HistogramSummary", {"tag": np.array(b"h", object), "values": R(*shape, lo=-1e6, hi=1e9)},
       dtypes=[tf.float32, tf.float64], name="wide")
op("HistogramSummary", {"tag": np.array(b"", object), "values": np.array([1e-13, -1e-13, 0, -0., 1e21, -1e300])},
   dtypes=[tf.float64], name="edges")
op("HistogramSummary", {"tag": np.array(b"h", object), "values": np.array([1, np.nan], np.float32)},
   error="INVALID_ARGUMENT", message="Nan in summary histogram for: ")
op("HistogramSummary", {"tag": np.array(b"h", object), "values": np.array([1, np.inf], np.float32)},
   error="INVALID_ARGUMENT", message="Infinity in summary histogram for: ")
op("HistogramSummary", {"tag": np.array([b"h", b"i"], object), "values": R(2)}, error="INVALID_ARGUMENT")

for shape in ((2, 5), (4, 6, 2), (1, 1, 1)):
    op("AudioSummaryV2", {"tag": np.array(b"a", object), "tensor": R(*shape), "sample_rate": np.float32(44.1)})
    op("AudioSummaryV2", {"tag": np.array(b"a", object), "tensor": R(*shape), "sample_rate": np.float32(8000)},
       {"max_outputs": 1})
op("AudioSummaryV2", {"tag": np.array(b"a", object), "tensor": R(2, 3), "sample_rate": np.float32(0)},
   error="INVALID_ARGUMENT", message="sample_rate must be > 0")
op("EncodeWav", {"audio": R(9, 2), "sample_rate": np.int32(16000)})
op("EncodeWav", {"audio": R(9, 0), "sample_rate": np.int32(16000)}, error="INVALID_ARGUMENT")


def wav(channels, samples):
    x = tf.raw_ops.EncodeWav(audio=feed(R(9, 2)), sample_rate=16000)
    return list(tf.raw_ops.DecodeWav(contents=x, desired_channels=channels, desired_samples=samples))


for channels, samples in ((-1, -1), (1, 5), (3, 20)):
    graph(f"DecodeWav {channels} {samples}", lambda c=channels, s=samples: wav(c, s))
op("DecodeWav", {"contents": np.array(b"RIFFnothing", object)}, error="INVALID_ARGUMENT")

for shape in ((), (0,), (3,), (2, 0, 3)):
    op("TensorSummary", {"tensor": R(*shape)}, dtypes=ALL)
    op("TensorSummaryV2", {"tag": np.array(b"t", object), "tensor": R(*shape),
                           "serialized_summary_metadata": np.array(b"\n\x06\n\x04name", object)}, dtypes=ALL)


def merge(*tags):
    return tf.raw_ops.MergeSummary(inputs=[tf.summary.scalar(t, feed(R()), collections=[]) for t in tags])


graph("MergeSummary", lambda: [merge("a", "b", "c")])
graph("MergeSummary of one", lambda: [merge("a")])
op("MergeSummary", {"inputs": [np.array(b"\x0a\x05\x0a\x01a", object)]}, error="INVALID_ARGUMENT",
   message="Could not parse one of the summary inputs")
op("MergeSummary", {"inputs": [np.array(b"\x0a\x03\x0a\x01a", object)] * 2}, error="INVALID_ARGUMENT",
   message="Duplicate tag a found in summary inputs")


op("ImageSummary", {"tag": np.array(b"i", object), "tensor": R(2, 3, 4, 2)}, error="INVALID_ARGUMENT",
   message="Tensor must be 4-D with last dim 1, 3, or 4")
op("ImageSummary", {"tag": np.array(b"i", object), "tensor": R(2, 0, 4, 1)}, error="INVALID_ARGUMENT")
op("ImageSummary", {"tag": np.array([b"i", b"j"], object), "tensor": R(2, 3, 4, 1)}, error="INVALID_ARGUMENT")
for depth in (1, 3, 4):
    op("ImageSummary", {"tag": np.array(b"i", object), "tensor": R(4, 7, 5, depth)}, dtypes=[tf.float32, tf.float64, tf.float16, tf.uint8])
    op("ImageSummary", {"tag": np.array(b"i", object), "tensor": R(4, 7, 5, depth, lo=0, hi=9)}, {"max_images": 1})
op("ImageSummary", {"tag": np.array(b"i", object), "tensor": np.array([[[[1], [np.nan]], [[np.inf], [2]]]], np.float32)})
