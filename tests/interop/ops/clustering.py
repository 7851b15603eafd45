"""Clustering, and questions about the device."""
from cases import *

for k in (0, 1, 3, 9):
    op("NearestNeighbors", {"points": R(20, 3), "centers": R(5, 3), "k": np.int64(k)}, tol=1e-4)
op("NearestNeighbors", {"points": R(2, 3), "centers": R(0, 3), "k": np.int64(2)})
for points, centers, k in ((R(3), R(2, 3), 1), (R(2, 3), R(3), 1), (R(2, 3), R(2, 4), 1), (R(2, 3), R(2, 3), [1]), (R(0, 3), R(2, 3), 1)):
    op("NearestNeighbors", {"points": points, "centers": centers, "k": np.array(k, np.int64)}, error="INVALID_ARGUMENT")
for seed in (0, 7, 2**40 + 3):
    op("KMC2ChainInitialization", {"distances": R(50, lo=0, hi=9), "seed": np.int64(seed)})
op("KMC2ChainInitialization", {"distances": R(1, lo=0, hi=9), "seed": np.int64(1)})
for distances, seed in ((R(0), 1), (R(2, 2), 1), (R(3), [1])):
    op("KMC2ChainInitialization", {"distances": distances, "seed": np.array(seed, np.int64)}, error="INVALID_ARGUMENT")
op("DeviceIndex", {}, {"device_names": ["GPU", "CPU"]})
op("DeviceIndex", {}, {"device_names": ["GPU", "TPU"]})
op("IsTensorFloat32Enabled")
graph("SyncDevice", lambda: [tf.raw_ops.SyncDevice()])
graph("HostConst", lambda d: [apply("HostConst", {}, {"value": tf.make_tensor_proto([1, 2, 3], d), "dtype": d})], dtypes=[tf.float32, tf.int32])
for n, k, retries in ((30, 5, 0), (30, 5, 3), (30, 5, -1), (4, 4, 2), (1, 1, 0)):
    for seed in (0, 7):
        op("KmeansPlusPlusInitialization", {"points": R(n, 3, lo=-9, hi=9), "num_to_sample": np.int64(k), "seed": np.int64(seed),
                                            "num_retries_per_sample": np.int64(retries)})
for points, k, seed, retries in ((R(3), 1, 1, 0), (R(3, 2), 4, 1, 0), (R(3, 2), 0, 1, 0), (R(0, 2), 1, 1, 0), (R(3, 2), [1], 1, 0), (R(3, 2), 1, [1], 0)):
    op("KmeansPlusPlusInitialization", {"points": points, "num_to_sample": np.array(k, np.int64), "seed": np.array(seed, np.int64),
                                        "num_retries_per_sample": np.array(retries, np.int64)}, error="INVALID_ARGUMENT")
