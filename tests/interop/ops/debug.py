"""What the debugger puts on edges."""
from cases import *

ODD = [[-np.inf, -3., -0.5], [0., 1.25, np.inf], [np.nan, 7., np.nan]]
NAME = {"tensor_name": "node:0"}
for name, attrs in (("Copy", {}), ("CopyHost", NAME), ("DebugIdentity", NAME), ("DebugIdentityV2", {}), ("DebugIdentityV3", NAME)):
    op(name, {"input": R(2, 3)}, attrs, dtypes=[tf.float32, tf.int8, tf.string, tf.bool])
for bad in ("", "a:b", "a:0:1"):
    op("DebugIdentity", {"input": R(2, 3)}, {"tensor_name": bad}, error="INVALID_ARGUMENT")
op("DebugIdentityV2", {"input": R(2, 3)}, {"tensor_debug_mode": 1}, dtypes=[tf.float32, tf.float64], grad=True)
op("DebugNanCount", {"input": V(ODD)}, NAME, dtypes=FLOATS)
op("DebugNanCount", {"input": R(2, 3)}, NAME, dtypes=REALS)
op("DebugNumericSummary", {"input": V(ODD)}, NAME, dtypes=[tf.float32, tf.float64])
op("DebugNumericSummary", {"input": V(ODD)}, {**NAME, "lower_bound": -1.0, "upper_bound": 5.0}, dtypes=[tf.float32, tf.float64])
for shape in ((), (0,), (2, 3), (1, 2, 1, 3)):
    op("DebugNumericSummary", {"input": R(*shape)}, {**NAME, "mute_if_healthy": True}, dtypes=[tf.float32, tf.float64, tf.bool] + INTS)
op("DebugNumericSummary", {"input": V([np.nan, np.inf])}, NAME, dtypes=[tf.float32, tf.float64])
for mode in (2, 3, 4, 5, 8):
    for out in (tf.float32, tf.float64):
        attrs = {"tensor_debug_mode": mode, "tensor_id": 37, "output_dtype": out}
        op("DebugNumericSummaryV2", {"input": V(ODD)}, attrs, dtypes=FLOATS)
        for shape in ((), (0,), (2, 3), (2, 1, 1, 3, 1, 1, 2)):
            op("DebugNumericSummaryV2", {"input": R(*shape)}, attrs, dtypes=REALS + [tf.bool] if out == tf.float32 else [tf.int32])
op("DebugNumericSummaryV2", {"input": R(2)}, {"tensor_debug_mode": 7}, error="UNIMPLEMENTED")
