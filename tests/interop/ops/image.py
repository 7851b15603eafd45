"""Images: resizing, cropping, colours, boxes."""
from cases import *

PIXELS = [tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.int64, tf.float32, tf.float64]
for align, half in ((False, False), (True, False), (False, True)):
    o = {"align_corners": align, "half_pixel_centers": half}
    for size in ((3, 4), (7, 5), (2, 2), (1, 1), (4, 6), (8, 12)):
        for name in ("ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor"):
            x = {"images": R(2, 4, 6, 3), "size": const(np.array(size, np.int32))}
            op(name, x, o, grad=["images"])
            op(name, x, o, dtypes=[tf.float64, tf.uint8])
        if not half:
            op("ResizeArea", {"images": R(2, 4, 6, 3), "size": np.array(size, np.int32)}, {"align_corners": align})
for name in ("ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor", "ResizeArea"):
    op(name, {"images": R(1, 3, 2, 1), "size": np.array([5, 3], np.int32)}, dtypes=PIXELS)
    op(name, {"images": R(0, 3, 2, 1), "size": np.array([5, 3], np.int32)})
    op(name, {"images": R(3, 2, 1), "size": np.array([5, 3], np.int32)}, error="INVALID_ARGUMENT", message="must be 4-dimensional")
    op(name, {"images": R(1, 3, 2, 1), "size": np.array([0, 3], np.int32)}, error="INVALID_ARGUMENT", message="must be positive")
for t in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
    op(t, {"grads": R(1, 5, 3, 2, dtype=tf.float32), "original_image": R(1, 2, 4, 2)},
       dtypes=[tf.float32] + ([tf.float16] if "lin" in t else []))

# ---- crops and boxes ----
BOXES = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [-0.3, 0.5, 1.4, 0.4]], np.float32)
for method in ("bilinear", "nearest"):
    for size in ((3, 4), (1, 1), (6, 5)):
        op("CropAndResize", {"image": R(2, 5, 4, 3), "boxes": BOXES, "box_ind": np.array([0, 1, 1], np.int32),
                             "crop_size": const(np.array(size, np.int32))}, {"method": method, "extrapolation_value": 7.0},
           dtypes=[tf.float32, tf.float64, tf.uint8])
        op("CropAndResizeGradImage", {"grads": R(3, *size, 3, dtype=tf.float32), "boxes": BOXES, "box_ind": np.array([0, 1, 1], np.int32),
                                      "image_size": np.array([2, 5, 4, 3], np.int32)}, {"T": DT, "method": method},
           dtypes=[tf.float32, tf.float16])
    op("CropAndResizeGradBoxes", {"grads": R(3, *size, 3, dtype=tf.float32), "image": R(2, 5, 4, 3), "boxes": BOXES,
                                  "box_ind": np.array([0, 1, 1], np.int32)}, dtypes=[tf.float32, tf.uint8])
op("CropAndResize", {"image": R(2, 5, 4, 3), "boxes": BOXES, "box_ind": np.array([0, 1, 1], np.int32), "crop_size": const([3, 4])},
   grad=["image", "boxes"], name="grad", fd=False)
op("CropAndResize", {"image": R(1, 5, 4, 3), "boxes": BOXES, "box_ind": np.array([0, 1, 1], np.int32), "crop_size": const([3, 4])},
   error="OUT_OF_RANGE", message="box_index has values outside")
MANY = np.array([[0, 0, 1, 1], [0, .1, 1, 1.1], [0, -.1, 1, .9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101], [1, 1, 0, 0]], np.float32)
SCORES = np.array([.9, .75, .6, .95, .5, .3, .9], np.float32)
for most in (3, 30, 0):
    op("NonMaxSuppression", {"boxes": MANY, "scores": SCORES, "max_output_size": most}, {"iou_threshold": 0.4})
    op("NonMaxSuppressionV2", {"boxes": MANY, "scores": SCORES, "max_output_size": most, "iou_threshold": np.float32(.5)})
    for low in (0.0, 0.55):
        x = {"boxes": MANY, "scores": SCORES, "max_output_size": most, "iou_threshold": np.float32(.5), "score_threshold": np.float32(low)}
        op("NonMaxSuppressionV3", x)
        for pad in (False, True):
            op("NonMaxSuppressionV4", x, {"pad_to_max_output_size": pad})
            for sigma in (0.0, 0.5):
                op("NonMaxSuppressionV5", {**x, "soft_nms_sigma": np.float32(sigma)}, {"pad_to_max_output_size": pad})
op("NonMaxSuppressionWithOverlaps", {"overlaps": R(5, 5, lo=0, hi=1), "scores": R(5, lo=0, hi=1), "max_output_size": 3,
                                     "overlap_threshold": np.float32(.5), "score_threshold": np.float32(.1)})

# ---- colours ----
for shape in ((3,), (2, 3), (2, 3, 4, 3), (0, 3)):
    op("RGBToHSV", {"images": R(*shape, lo=0, hi=1)}, dtypes=FLOATS, grad=True, fd=False)
    op("HSVToRGB", {"images": R(*shape, lo=0, hi=1)}, dtypes=FLOATS)
op("RGBToHSV", {"images": V([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 1], [0.5, 0.5, 0.2], [0.2, 0.5, 0.5]])}, dtypes=FLOATS)
for name in ("RGBToHSV", "HSVToRGB"):
    op(name, {"images": R(3, 4)}, error="FAILED_PRECONDITION", message="must have 3 channels but input only has 4")
    op(name, {"images": R()}, error="INVALID_ARGUMENT", message="input must be at least 1D")
for by in (-0.7, 0.0, 0.3, 1.0):
    op("AdjustHue", {"images": R(2, 3, 4, 3, lo=0, hi=1), "delta": np.float32(by)})
    op("AdjustSaturation", {"images": R(2, 3, 4, 3, lo=0, hi=1), "scale": np.float32(by * 2)})
    op("AdjustContrastv2", {"images": R(2, 3, 4, 2, lo=0, hi=1), "contrast_factor": np.float32(by * 2)})

# ---- projective transforms ----
TURN = np.array([[0.9, -0.3, 0.5, 0.2, 1.1, -0.7, 0, 0]], np.float32)
TWO = np.array([[1, 0, 0.25, 0, 1, 0, 0.02, 0.01], [-1, 0, 3, 0, 2, -1, 0, 0]], np.float32)
KINDS = [tf.uint8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64]
for how in ("NEAREST", "BILINEAR"):
    for mode in ("REFLECT", "WRAP", "CONSTANT", "NEAREST"):
        for tol, kinds in {None: KINDS}.items() if X86 or how == "NEAREST" else {None: KINDS[3:5], 1e-6: KINDS[5:]}.items():
            for t in (TURN, TWO):
                op("ImageProjectiveTransformV2", {"images": R(2, 5, 4, 3), "transforms": t, "output_shape": np.array([6, 7], np.int32)},
                   {"interpolation": how, "fill_mode": mode}, dtypes=kinds, tol=tol)
            op("ImageProjectiveTransformV3", {"images": R(2, 5, 4, 1), "transforms": TWO, "output_shape": const(np.array([3, 9], np.int32)),
                                              "fill_value": np.float32(7)}, {"interpolation": how, "fill_mode": mode}, dtypes=kinds, tol=tol)
        for name, more in (("V2", {}), ("V3", {"fill_value": np.float32(7)})):
            op("ImageProjectiveTransform" + name, {"images": R(2, 5, 4, 2), "transforms": const(TURN), "output_shape": const(np.array([6, 7], np.int32)), **more},
               {"interpolation": how, "fill_mode": mode}, dtypes=[tf.float32, tf.float64], grad=["images"], fd=False, tol=1e-4)
op("ImageProjectiveTransformV2", {"images": R(1, 1, 1, 2), "transforms": TURN, "output_shape": np.array([3, 3], np.int32)},
   {"interpolation": "BILINEAR", "fill_mode": "REFLECT"})
for images, t, size, how in ((R(5, 4, 3), TURN, [6, 7], "NEAREST"), (R(3, 5, 4, 3), TWO, [6, 7], "NEAREST"),
                             (R(2, 5, 4, 3), TURN[:, :7], [6, 7], "NEAREST"), (R(2, 5, 4, 3), TURN, [6, 7, 8], "NEAREST"),
                             (R(2, 5, 4, 3), TURN, [6, 0], "NEAREST"), (R(2, 5, 4, 3), TURN, [6, -1], "NEAREST")):
    op("ImageProjectiveTransformV2", {"images": images, "transforms": t, "output_shape": np.array(size, np.int32)},
       {"interpolation": how}, error="INVALID_ARGUMENT")
