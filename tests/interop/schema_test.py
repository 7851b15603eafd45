"""Every name in the generated headers (build/gen/proto/*.wire.h) is a field, a map's key or value, or an enumeration's
value of the same number and type in TensorFlow's own schemas, so that src/proto cannot drift from it.

# needs: tensorflow
Some schemas have no module in Python: they are read out of TensorFlow's libraries, which hold them as descriptors.
"""
import glob
import mmap
import os
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import tensorflow as tf
from google.protobuf import any_pb2, descriptor_pb2, wrappers_pb2
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import (cost_graph_pb2, dataset_options_pb2, dataset_pb2, device_attributes_pb2,
                                       reader_base_pb2, variable_pb2)
from tensorflow.core.protobuf import (composite_tensor_variant_pb2, error_codes_pb2, meta_graph_pb2,
                                      saved_model_pb2, saved_object_graph_pb2, snapshot_pb2, tensor_bundle_pb2,
                                      tensorflow_server_pb2)
from tensorflow.core.util import event_pb2, saved_tensor_slice_pb2
from tensorflow.core.util.quantization import uniform_quant_ops_attr_pb2

import tap

try:
    from tensorflow_serving.apis import (get_model_metadata_pb2, get_model_status_pb2, model_management_pb2, predict_pb2,
                                         prediction_log_pb2)
    SERVING = [get_model_metadata_pb2, get_model_status_pb2, model_management_pb2, predict_pb2, prediction_log_pb2]
except ImportError:
    SERVING = []
MODULES = [*SERVING, wrappers_pb2, any_pb2, descriptor_pb2, example_pb2, cost_graph_pb2, dataset_options_pb2, dataset_pb2,
           device_attributes_pb2, reader_base_pb2,
           composite_tensor_variant_pb2, error_codes_pb2, meta_graph_pb2, saved_model_pb2,
           saved_object_graph_pb2, snapshot_pb2,
           tensor_bundle_pb2, tensorflow_server_pb2, variable_pb2, event_pb2, saved_tensor_slice_pb2,
           uniform_quant_ops_attr_pb2]
IN_LIBRARIES = ["tensorflow/core/protobuf/master.proto", "tensorflow/core/protobuf/worker.proto",
                "tensorflow/core/protobuf/named_tensor.proto", "tensorflow/core/protobuf/transport_options.proto",
                "tsl/protobuf/distributed_runtime_payloads.proto", "tsl/protobuf/coordination_service.proto"]
OUR_OWN = "shoal."
NOT_IN_CLIENT = "tensorflow.serving.BatchingParameters"  # of the server's files: its client's package has no module for it
BUILD = os.environ.get("SHOAL_BUILD", os.path.join(HERE, "..", "..", "build"))
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIRE = {1: FIXED64, 2: FIXED32, 6: FIXED64, 7: FIXED32, 9: BYTES, 11: BYTES, 12: BYTES, 15: FIXED32, 16: FIXED64}


def from_modules():
    todo, seen = [m.DESCRIPTOR for m in MODULES], {}
    while todo:
        f = todo.pop()
        if f.name not in seen:
            seen[f.name] = descriptor_pb2.FileDescriptorProto()
            f.CopyToProto(seen[f.name])
            todo += f.dependencies
    return seen


def varint(data, at):
    v = shift = 0
    while True:
        v |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return v, at


def from_library(data, name):
    """A serialized FileDescriptorProto begins with its name and ends with its syntax (field 12)."""
    begin = at = data.find(b"\n" + bytes([len(name)]) + name.encode())
    tag = 0
    while begin >= 0 and tag >> 3 != 12:
        tag, at = varint(data, at)
        assert tag & 7 == BYTES, f"{name}: no descriptor"
        n, at = varint(data, at)
        at += n
    return descriptor_pb2.FileDescriptorProto.FromString(data[begin:at]) if begin >= 0 else None


def from_libraries():
    found = {}
    for path in glob.glob(os.path.join(os.path.dirname(tf.__file__), "libtensorflow_*.so*")):
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for name in IN_LIBRARIES:
                if name not in found:
                    found[name] = from_library(data, name)
                    found = {k: v for k, v in found.items() if v}
    return found


def names_of(message, prefix, out):
    for f in message.field:
        kind = WIRE.get(f.type, VARINT)
        out[f"{prefix}_{f.name}"] = f.number << 3 | kind
        if f.label == f.LABEL_REPEATED and kind != BYTES:
            out[f"{prefix}_{f.name}_packed"] = f.number << 3 | BYTES
    for inner in message.nested_type:
        names_of(inner, f"{prefix}_{inner.name}", out)
    for e in message.enum_type:
        out.update({f"{prefix}_{e.name}_{v.name}": v.number for v in e.value})


def tensorflows():
    """By package and name: outermost messages and enumerations with all that is in them."""
    known = {}
    for f in [*from_modules().values(), *from_libraries().values()]:
        for m in f.message_type:
            names_of(m, m.name, known.setdefault(f"{f.package}.{m.name}", {}))
        for e in f.enum_type:
            known[f"{f.package}.{e.name}"] = {f"{e.name}_{v.name}": v.number for v in e.value}
    return known


def ours():
    """(full name of a message or enumeration, a name, its value)"""
    for proto in glob.glob(os.path.join(HERE, "..", "..", "src", "proto", "*.proto")):
        full = None
        with open(os.path.join(BUILD, "gen", "proto", os.path.basename(proto)[:-len("proto")] + "wire.h")) as f:
            for line in f:
                m = re.match(r"/\* (\S+) \*/", line)
                full = m.group(1) if m else full
                m = re.match(r"enum \{ (\w+) = (-?\d+) \};", line)
                if m:
                    yield full, m.group(1), int(m.group(2))


def test_names_are_tensorflows():
    known, wrong, seen = tensorflows(), [], 0
    for full, name, value in ours():
        if full.startswith((OUR_OWN, NOT_IN_CLIENT)) or (full.startswith("tensorflow.serving.") and not SERVING):
            continue
        outermost = full
        while outermost and outermost not in known:
            outermost = outermost.rpartition(".")[0]
        theirs = known.get(outermost, {}).get(name)
        seen += 1
        if theirs != value:
            wrong.append(f"{full}: {name} is {value}; TensorFlow has {theirs}")
    assert not wrong, "\n".join(wrong)
    assert seen > 200, seen


if __name__ == "__main__":
    tap.main(globals())
