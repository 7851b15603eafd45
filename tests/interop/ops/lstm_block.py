"""Recurrent cells as one op."""
from cases import *

HALF = [tf.float32, tf.float16]
B, I, C, T = 3, 4, 5, 6
WEIGHTS = {"w": R(I + C, 4 * C), "wci": R(C), "wcf": R(C), "wco": R(C), "b": R(4 * C)}
CELL = {"x": R(B, I), "cs_prev": R(B, C), "h_prev": R(B, C), **WEIGHTS}
SEQUENCE = {"x": R(T, B, I), "cs_prev": R(B, C), "h_prev": R(B, C), **WEIGHTS}
STATES = ("i", "cs", "f", "o", "ci", "co")
TOL = 2e-2
for peephole in (False, True):
    for clip in (0.0, 0.7):
        attrs = {"cell_clip": clip, "use_peephole": peephole}
        op("LSTMBlockCell", CELL, {**attrs, "forget_bias": 0.3}, dtypes=[tf.float32])
        op("LSTMBlockCell", CELL, {**attrs, "forget_bias": 0.3}, dtypes=[tf.float16], tol=TOL)
        for name in ("BlockLSTM", "BlockLSTMV2"):
            for n in (0, 4, T):
                op(name, {"seq_len_max": const(np.int64(n)), **SEQUENCE}, attrs, dtypes=[tf.float32],
                   grad=["x", "cs_prev", "h_prev", "w", "b"] + (["wci", "wcf", "wco"] if peephole else []) if n and name == "BlockLSTM" else False, fd=False,
                   only=None if n == T else [6])
    op("LSTMBlockCellGrad", {**CELL, **{k: R(B, C, lo=0, hi=1) for k in STATES}, "cs_grad": R(B, C), "h_grad": R(B, C)}, {"use_peephole": peephole},
       only=[0, 1, 2, 3, 4] if peephole else [0, 1])
    # TensorFlow's gradient of BlockLSTMV2 is the first op's, with the gates in the wrong order; the op itself is right.
    op("BlockLSTMGradV2", {"seq_len_max": const(np.int64(4)), **SEQUENCE, **{k: R(T, B, C, lo=0, hi=1) for k in STATES}, "h": R(T, B, C),
                           "cs_grad": R(T, B, C), "h_grad": R(T, B, C)}, {"use_peephole": peephole}, only=None if peephole else [0, 1, 2, 3, 7])
op("BlockLSTM", {"seq_len_max": np.int64(2), **SEQUENCE, "w": R(I, 4 * C)}, error="INVALID_ARGUMENT")

GRU = {"x": R(B, I), "h_prev": R(B, C), "w_ru": R(I + C, 2 * C), "w_c": R(I + C, C), "b_ru": R(2 * C), "b_c": R(C)}
op("GRUBlockCell", GRU)
op("GRUBlockCellGrad", {**GRU, "r": R(B, C, lo=0, hi=1), "u": R(B, C, lo=0, hi=1), "c": R(B, C), "d_h": R(B, C)})
op("GRUBlockCell", {**GRU, "w_c": R(I, C)}, error="INVALID_ARGUMENT")
