"""CombinedNonMaxSuppression; the others are in image.py."""
from cases import *

RNG = np.random.default_rng(3)


def boxes(images, n, q):
    corner, size = RNG.uniform(-0.2, 0.9, (images, n, q, 2)), RNG.uniform(0, 0.6, (images, n, q, 2))
    return np.concatenate([corner, corner + size], -1).astype(np.float32)


def scores(images, n, classes):
    """All different, so that the order is certain."""
    return (RNG.permutation(images * n * classes).reshape(images, n, classes) / (images * n * classes)).astype(np.float32)


def combined(b, s, per_class=4, total=7, iou=0.4, score=0.2, attrs=None, **options):
    op("CombinedNonMaxSuppression", {"boxes": b, "scores": s, "max_output_size_per_class": np.int32(per_class), "max_total_size": np.int32(total),
                                     "iou_threshold": np.float32(iou), "score_threshold": np.float32(score)}, attrs, **options)


for classes, q in ((1, 1), (3, 1), (3, 3)):
    B, S = boxes(2, 20, q), scores(2, 20, classes)
    for attrs in ({}, {"pad_per_class": True}, {"clip_boxes": False}):
        for per_class, total in ((4, 7), (2, 50), (100, 100), (1, 1)):
            combined(B, S, per_class, total, attrs=attrs, name=f"{classes} {q}")
combined(boxes(2, 20, 3), scores(2, 20, 3), iou=0.0, name="no overlap")
combined(boxes(2, 20, 3), scores(2, 20, 3), iou=1.0, score=-1.0, total=90, name="all")
combined(boxes(2, 20, 3), scores(2, 20, 3), score=2.0, name="none")
combined(boxes(2, 20, 3)[..., [2, 3, 0, 1]], scores(2, 20, 3), name="corners the other way round")
combined(boxes(2, 0, 1), scores(2, 0, 3), name="no boxes")
combined(boxes(0, 4, 1), scores(0, 4, 3), name="no images")
combined(boxes(1, 4, 1), scores(1, 4, 0), name="no classes")
BAD = dict(error="INVALID_ARGUMENT")
B, S = boxes(2, 5, 1), scores(2, 5, 3)
for change in (dict(per_class=0), dict(total=0), dict(iou=1.5), dict(iou=-0.1), dict(per_class=-1)):
    combined(B, S, **change, **BAD, name=str(change))
for b, s in ((B[0], S), (B, S[0]), (B[:1], S), (B[:, :3], S), (np.repeat(B, 2, 2), S), (B[..., :3], S)):
    combined(b, s, **BAD, name=f"{b.shape} {s.shape}")
