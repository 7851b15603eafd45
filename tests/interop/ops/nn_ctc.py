"""CTC: loss, gradient, greedy decoding."""
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
