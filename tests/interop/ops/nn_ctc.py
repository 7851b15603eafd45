"""CTC: loss, gradient, greedy decoding, beam search."""
from cases import *

INDICES = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0]], np.int64)
VALUES = np.array([1, 1, 3, 0, 2, 4], np.int32)
for merge in (True, False):
    for collapse in (False, True):
        op("CTCLoss", {"inputs": R(7, 3, 6), "labels_indices": const(INDICES), "labels_values": const(VALUES),
                       "sequence_length": const(np.array([7, 5, 3], np.int32))},
           {"preprocess_collapse_repeated": collapse, "ctc_merge_repeated": merge}, dtypes=[tf.float32, tf.float64], grad=["inputs"], fd=False, tol=1e-4)
op("CTCLoss", {"inputs": R(3, 3, 6), "labels_indices": const(INDICES), "labels_values": const(VALUES), "sequence_length": const(np.array([3, 3, 3], np.int32))}, tol=1e-4)
op("CTCLoss", {"inputs": R(3, 3, 6), "labels_indices": const(INDICES), "labels_values": const(VALUES), "sequence_length": const(np.array([2, 3, 3], np.int32))},
   error="INVALID_ARGUMENT", message="Not enough time for target transition sequence .required: 3, available: 2.")
op("CTCLoss", {"inputs": R(3, 3, 6), "labels_indices": const(INDICES), "labels_values": const(VALUES), "sequence_length": const(np.array([3, 3, 3], np.int32))},
   {"ignore_longer_outputs_than_inputs": True}, tol=1e-4)
for merge in (False, True):
    for blank in (-1, 0, 2):
        op("CTCGreedyDecoder", {"inputs": R(9, 4, 3), "sequence_length": const(np.array([9, 0, 4, 9], np.int32))},
           {"merge_repeated": merge, "blank_index": blank}, dtypes=[tf.float32, tf.float64])
for merge in (False, True):
    for width, paths in ((1, 1), (3, 2), (20, 20), (100, 3)):
        for shape in ((9, 4, 3), (12, 4, 6), (1, 4, 30)):
            op("CTCBeamSearchDecoder", {"inputs": R(*shape, lo=-4, hi=4), "sequence_length": const(np.minimum([9, 1, 4, 8], shape[0]).astype(np.int32))},
               {"beam_width": width, "top_paths": min(paths, shape[2]), "merge_repeated": merge}, dtypes=[tf.float32, tf.float64], name=f"merge {merge}", tol=1e-5)
op("CTCBeamSearchDecoder", {"inputs": R(60, 2, 40, lo=-6, hi=6), "sequence_length": const(np.array([60, 33], np.int32))},
   {"beam_width": 50, "top_paths": 5}, dtypes=[tf.float32, tf.float64], tol=1e-5)
op("CTCBeamSearchDecoder", {"inputs": R(2, 1, 3), "sequence_length": np.array([0], np.int32)}, {"beam_width": 4, "top_paths": 1})
op("CTCBeamSearchDecoder", {"inputs": R(2, 1, 3), "sequence_length": np.array([0], np.int32)}, {"beam_width": 4, "top_paths": 2},
   error="INVALID_ARGUMENT", message="Less leaves in the beam search than requested.")
op("CTCBeamSearchDecoder", {"inputs": R(2, 1, 3), "sequence_length": np.array([2], np.int32)}, {"beam_width": 1, "top_paths": 2},
   error="INVALID_ARGUMENT", message="requested more paths than the beam width.")
for name, attrs in (("CTCBeamSearchDecoder", {"beam_width": 4, "top_paths": 1}), ("CTCGreedyDecoder", {})):
    for x, n, code in ((R(2, 1, 3), [3], "FAILED_PRECONDITION"), (R(2, 1, 3), [2, 2], "FAILED_PRECONDITION"),
                       (R(2, 3), [2], "INVALID_ARGUMENT"), (R(0, 1, 3), [0], "INVALID_ARGUMENT"), (R(2, 1, 3), [[2]], "INVALID_ARGUMENT")):
        op(name, {"inputs": x, "sequence_length": np.array(n, np.int32)}, attrs, error=code, name=str(n))
