"""Every op row has the signature that TensorFlow registers: arguments, attributes, defaults, allowed values, flags; and
every op that TensorFlow has a CPU kernel for is either here or in docs/ops_left_out.md, never in both.

# needs: tensorflow
"""
import fnmatch
import os
import re
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import kernels, op_def_registry, tensor_util
import tensorflow  # registers the ops

import shoal

BUILD = os.environ.get("SHOAL_BUILD", os.path.join(shoal.ROOT, "build"))


def plain(op):
    """An OpDef without prose, attribute types sorted: their order means nothing."""
    op = op_def_pb2.OpDef.FromString(op.SerializeToString())
    for field in ("summary", "description", "deprecation", "control_output", "is_distributed_communication"):
        op.ClearField(field)
    for arg in list(op.input_arg) + list(op.output_arg):
        for field in ("description", "experimental_full_type", "handle_data"):
            arg.ClearField(field)
    for attr in op.attr:
        attr.description = ""
        if attr.default_value.HasField("tensor"):  # in one encoding of several
            tensor = attr.default_value.tensor
            tensor.CopyFrom(tensor_util.make_tensor_proto(tensor_util.MakeNdarray(tensor)))
        if attr.allowed_values.list.type:
            types = sorted(set(attr.allowed_values.list.type))
            attr.allowed_values.list.type[:] = types
    return op


def differences(ours, theirs):
    a, b = plain(ours), plain(theirs)
    if a == b:
        return []
    out = []
    for field in ("input_arg", "output_arg"):
        x, y = [str(v) for v in getattr(a, field)], [str(v) for v in getattr(b, field)]
        if x != y:
            out.append(f"{field}: {x}, TensorFlow has {y}")
    x, y = {v.name: v for v in a.attr}, {v.name: v for v in b.attr}
    if [v.name for v in a.attr] != [v.name for v in b.attr]:
        out.append(f"attributes {list(x)}, TensorFlow has {list(y)}")
    out += [f"{n}: {x[n]}, TensorFlow has {y[n]}" for n in x if n in y and x[n] != y[n]]
    for flag in ("is_stateful", "is_commutative", "is_aggregate", "allows_uninitialized_input"):
        if getattr(a, flag) != getattr(b, flag):
            out.append(f"{flag} {getattr(a, flag)}")
    return out


def left_out():
    """The names, some with a * at the end, in the first column of the tables of docs/ops_left_out.md."""
    with open(os.path.join(shoal.ROOT, "docs", "ops_left_out.md")) as f:
        return [name for line in f if line.startswith("| `") for name in re.findall(r"`([^`]+)`", line.split("|")[1])]


def coverage(ours):
    """What is wrong with (here + left out) against TensorFlow's kernels, one line each."""
    patterns = left_out()
    theirs = {k.op for k in kernels.get_all_registered_kernels().kernel if k.device_type in ("CPU", "DEFAULT")}
    wrong = [f"{p} is both here and left out" for p in patterns if p in ours]
    known = [n for n in theirs if op_def_registry.get(n)]  # a few kernels have no op
    return wrong + [f"{n} is neither here nor in docs/ops_left_out.md" for n in sorted(known)
                    if n not in ours and not any(fnmatch.fnmatchcase(n, p) for p in patterns)]


def main():
    data = subprocess.run([os.path.join(BUILD, "gen_ops"), "--defs"], stdout=subprocess.PIPE, check=True).stdout
    ops = op_def_pb2.OpList.FromString(data).op
    missing = coverage({op.name for op in ops})
    failed = 1 if missing else 0
    print(("not ok" if missing else "ok") + " - every op with a CPU kernel is here or left out with a reason")
    for line in missing:
        print("# " + line)
    for op in ops:
        theirs = op_def_registry.get(op.name)
        if theirs is None:  # the runtime's own
            if not op.name.startswith("_"):
                print(f"not ok - {op.name}\n# TensorFlow has no such op")
                failed += 1
            continue
        wrong = differences(op, theirs)
        if wrong:
            failed += 1
            print(f"not ok - {op.name}\n# " + "\n# ".join(" ".join(w.split()) for w in wrong))
        else:
            print(f"ok - {op.name}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
