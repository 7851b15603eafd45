"""Patches, glimpses and boxes of images."""
from cases import *

for padding in ("SAME", "VALID"):
    for shape, k, s, r in [((2, 7, 6, 3), (3, 2), (2, 1), (1, 2)), ((1, 5, 5, 1), (1, 1), (3, 2), (1, 1)),
                           ((2, 4, 9, 2), (4, 3), (1, 4), (1, 3)), ((0, 4, 4, 2), (2, 2), (1, 1), (1, 1))]:
        op("ExtractImagePatches", {"images": R(*shape)},
           {"ksizes": [1, *k, 1], "strides": [1, *s, 1], "rates": [1, *r, 1], "padding": padding},
           dtypes=[tf.float32, tf.float64], grad=shape[0] > 0)
    for shape, k, s in [((2, 5, 4, 6, 2), (2, 3, 1), (1, 2, 3)), ((1, 3, 3, 3, 1), (3, 3, 3), (1, 1, 1)),
                        ((1, 7, 6, 7, 1), (1, 2, 1), (2, 1, 4))]:
        op("ExtractVolumePatches", {"input": R(*shape)},
           {"ksizes": [1, *k, 1], "strides": [1, *s, 1], "padding": padding}, dtypes=[tf.float32, tf.float64], grad=True)
PATCH = {"ksizes": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "SAME"}
op("ExtractImagePatches", {"images": R(1, 3, 4, 2)}, PATCH, dtypes=NUMBERS)
op("ExtractImagePatches", {"images": R(3, 4, 2)}, PATCH, error="INVALID_ARGUMENT", message="4")
op("ExtractVolumePatches", {"input": R(1, 2, 3, 4, 2)}, {"ksizes": [1, 2, 2, 2, 1], "strides": [1, 1, 1, 1, 1], "padding": "SAME"},
   dtypes=REALS)

AT = np.array([[0.2, -0.3], [-0.9, 0.8], [0.0, 0.0], [1.5, 0.1]], np.float32)
for name in ("ExtractGlimpse", "ExtractGlimpseV2"):
    for centered in (True, False):
        for normalized in (True, False):
            for size in ((3, 4), (9, 2), (12, 13)):
                op(name, {"input": R(4, 8, 10, 2), "size": const(np.array(size, np.int32)), "offsets": AT if normalized else AT * 5},
                   {"centered": centered, "normalized": normalized, "uniform_noise": False, "noise": "zero"})
op("ExtractGlimpse", {"input": R(8, 10, 2), "size": np.array([3, 4], np.int32), "offsets": AT}, error="INVALID_ARGUMENT", message="4")
op("ExtractGlimpse", {"input": R(4, 8, 10, 2), "size": np.array([3, 4], np.int32), "offsets": AT}, {"noise": "red", "uniform_noise": False},
   error="INVALID_ARGUMENT", message="noise could only be")


def in_range():
    """Noise is not the same, but in the image's range."""
    x = feed(R(4, 8, 10, 2))
    found = []
    for noise in ("uniform", "gaussian"):
        y = tf.raw_ops.ExtractGlimpseV2(input=x, size=[20, 20], offsets=AT, centered=True, normalized=True, uniform_noise=False, noise=noise)
        found += [tf.reduce_all(y <= tf.reduce_max(x)), tf.reduce_all(y >= tf.reduce_min(x)), tf.reduce_max(tf.math.reduce_std(y, [1, 2])) > 0.1]
    return found


graph("ExtractGlimpseV2 noise", in_range)

BOXES = np.array([[[0.1, 0.2, 0.5, 0.9], [0, 0, 1, 1], [0.6, 0.3, 0.2, 0.5]],
                  [[-0.5, 0.3, 0.4, 1.7], [1.2, 0.1, 1.4, 0.3], [0.5, 0.5, 0.5, 0.5]]], np.float32)
for depth in (1, 3, 4):
    op("DrawBoundingBoxes", {"images": R(2, 9, 12, depth), "boxes": BOXES}, dtypes=[tf.float32, tf.float16], tol=0)
    op("DrawBoundingBoxesV2", {"images": R(2, 9, 12, depth), "boxes": BOXES, "colors": R(2, 4, dtype=tf.float32)},
       dtypes=[tf.float32, tf.float16], tol=0)
op("DrawBoundingBoxesV2", {"images": R(2, 9, 12, 3), "boxes": BOXES, "colors": np.zeros((0, 4), np.float32)})
op("DrawBoundingBoxes", {"images": R(2, 9, 12, 2), "boxes": BOXES}, error="INVALID_ARGUMENT", message="Channel depth")
op("DrawBoundingBoxes", {"images": R(3, 9, 12, 3), "boxes": BOXES}, error="INVALID_ARGUMENT", message="batch sizes")
op("DrawBoundingBoxesV2", {"images": R(2, 9, 12, 3), "boxes": BOXES, "colors": R(2, 2)}, error="INVALID_ARGUMENT", message="colors must have")

INSIDE = np.array([[[0.1, 0.2, 0.5, 0.9], [0.3, 0.3, 0.4, 0.4]]], np.float32)


def sample(size, boxes, covered, dtype=np.int32, **attrs):
    def build():
        x = feed(np.array(size, dtype))
        b = feed(np.asarray(boxes, np.float32).reshape(1, -1, 4))
        runs = []
        v1 = tf.raw_ops.SampleDistortedBoundingBox(image_size=x, bounding_boxes=b, seed=7, seed2=11, min_object_covered=covered, **attrs)
        v2 = tf.raw_ops.SampleDistortedBoundingBoxV2(image_size=x, bounding_boxes=b, min_object_covered=covered, seed=3, seed2=5, **attrs)
        v3 = tf.raw_ops.StatelessSampleDistortedBoundingBox(image_size=x, bounding_boxes=b, min_object_covered=covered, seed=[4, 2], **attrs)
        return [[*v1, *v2, *v3]] * 4
    return build


graph("SampleDistortedBoundingBox", sample([200, 300, 3], INSIDE, 0.3))
graph("SampleDistortedBoundingBox small", sample([9, 5, 3], INSIDE, 0.1, aspect_ratio_range=[0.3, 3.0], area_range=[0.2, 0.9]))
graph("SampleDistortedBoundingBox int64", sample([77, 31, 1], INSIDE, 0.9, np.int64))
graph("SampleDistortedBoundingBox uint8", sample([77, 31, 1], INSIDE, 0.5, np.uint8, max_attempts=3))
graph("SampleDistortedBoundingBox whole", sample([77, 31, 1], [], 0.5, use_image_if_no_bounding_boxes=True))
graph("SampleDistortedBoundingBox none", sample([77, 31, 1], [], 0.5), error="INVALID_ARGUMENT", message="No bounding boxes provided")
graph("SampleDistortedBoundingBox outside", sample([77, 31, 1], [[0, 0, 1.5, 1]], 0.5), error="INVALID_ARGUMENT", message="must be in")
graph("SampleDistortedBoundingBox area", sample([77, 31, 1], INSIDE, 0.5, area_range=[0.1, 1.5]), error="INVALID_ARGUMENT", message="Area range")

# ---- resampling ----
for kernel in ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"):
    for antialias in (True, False):
        for size, scale, move in (((3, 9), (0.45, 1.7), (0.0, 0.3)), ((12, 4), (2.0, 0.5), (-1.5, 0.7)), ((7, 5), (1.0, 1.0), (0.0, 0.0))):
            op("ScaleAndTranslate", {"images": R(2, 7, 5, 3), "size": const(np.array(size, np.int32)), "scale": const(np.array(scale, np.float32)),
                                     "translation": const(np.array(move, np.float32))}, {"kernel_type": kernel, "antialias": antialias},
               grad=["images"], fd=False, tol=2e-5)
SCALE = {"size": np.array([3, 4], np.int32), "scale": np.array([0.5, 2], np.float32), "translation": np.zeros(2, np.float32)}
op("ScaleAndTranslate", {"images": R(1, 6, 4, 2), **SCALE}, dtypes=[t for t in REALS if t not in (tf.uint32, tf.uint64)])
op("ScaleAndTranslate", {"images": R(1, 6, 4, 2), **SCALE}, {"kernel_type": "none"}, error="INVALID_ARGUMENT", message="Unrecognized kernel type")
op("ScaleAndTranslate", {"images": R(1, 6, 4, 2), **SCALE, "scale": np.zeros(2, np.float32)}, error="INVALID_ARGUMENT", message="greater than zero")
op("ScaleAndTranslate", {"images": R(6, 4, 2), **SCALE}, error="INVALID_ARGUMENT")
