"""GraphDefs from someone who means harm: each gets a named error (or runs), and nothing crashes, hangs or takes memory on
the word of a length.

# needs: tensorflow
TensorFlow is here only for its messages, by which the bytes are made.
"""
import os
import resource
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from tensorflow.core.framework import attr_value_pb2, graph_pb2, tensor_pb2, tensor_shape_pb2, types_pb2

import shoal
import tap

INVALID, NOT_FOUND, UNIMPLEMENTED, EXHAUSTED, INTERNAL = 3, 5, 12, 8, 13
FLOAT = types_pb2.DT_FLOAT


def graph(*nodes):
    """From tuples (name, op, inputs, attrs): attrs are AttrValue fields by name."""
    g = graph_pb2.GraphDef()
    g.versions.producer = 1645
    for name, op, inputs, attrs in nodes:
        n = g.node.add(name=name, op=op, input=inputs)
        for key, (field, value) in attrs.items():
            a = n.attr[key]
            if hasattr(value, "SerializeToString"):
                getattr(a, field).CopyFrom(value)
            else:
                setattr(a, field, value)
    return g


def const(value=1.0, dtype=FLOAT, dims=()):
    t = tensor_pb2.TensorProto(dtype=dtype, float_val=[value])
    for d in dims:
        t.tensor_shape.dim.add(size=d)
    return {"dtype": ("type", dtype), "value": ("tensor", t)}


T = {"T": ("type", FLOAT)}


def refused(data, *codes, run=None):
    """Importing (and running, when asked) fails with one of the codes and says something."""
    try:
        g = shoal.Graph(data if isinstance(data, bytes) else data.SerializeToString())
        if run:
            with shoal.Session(g) as s:
                s.run([run], timeout_ms=20000)
    except shoal.Error as e:
        assert e.code in codes, f"code {e.code}: {e.message}"
        assert e.message
        return e.message
    raise AssertionError("no error")


def limited(megabytes=2000):
    """From here on this process may take so much memory and no more."""
    shoal.library()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), -1))


def test_unknown_op():
    assert "Nonsense" in refused(graph(("a", "Nonsense", [], {})), NOT_FOUND)


def strings(*values):
    t = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=values)
    t.tensor_shape.dim.add(size=len(values))
    return {"dtype": ("type", types_pb2.DT_STRING), "value": ("tensor", t)}


def test_numbers_of_outputs_that_differ():
    """Outputs are counted by a number and by a list of types: where these differ, some would be written that are not
    there."""
    def types(n):
        return "list", attr_value_pb2.AttrValue.ListValue(type=[FLOAT] * n)

    def keys(n):
        return "list", attr_value_pb2.AttrValue.ListValue(s=[b"k"] * n)
    none = types(0)
    for number, n in ((0, 2), (2, 0), (1, 3), (3, 1)):
        one = ("scalar", "Const", [], {"dtype": ("type", types_pb2.DT_STRING), "value": (
            "tensor", tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b""]))})
        many, no = ("keys", "Const", [], strings(*[b"k"] * n)), ("none", "Const", [], strings())
        refused(graph(one, ("op", "ParseSingleExample", ["scalar"], {
            "num_sparse": ("i", number), "sparse_keys": keys(n), "sparse_types": types(n), "dense_keys": none,
            "Tdense": none, "dense_shapes": none})), INVALID, run="op:0")
        refused(graph(one, no, many, ("op", "ParseExampleV2", ["scalar", "none", "keys", "none", "none"], {
            "num_sparse": ("i", number), "sparse_types": types(n), "Tdense": none, "dense_shapes": none,
            "ragged_value_types": none, "ragged_split_types": none})), INVALID, run="op:0")
        flags = ("flags", "Const", [], {"dtype": ("type", types_pb2.DT_BOOL), "value": (
            "tensor", tensor_pb2.TensorProto(dtype=types_pb2.DT_BOOL, bool_val=[True]))})
        for group, place in (("context", 2), ("feature_list", 5)):
            inputs = ["scalar", "none"] + ["none"] * 6 + ["flags"]
            inputs[place] = "keys"
            refused(graph(one, no, many, flags, ("op", "ParseSequenceExampleV2", inputs, {
                f"N{group}_sparse": ("i", number), f"{group}_sparse_types": types(n)})), INVALID, run="op:0")
        refused(graph(one, no, ("op", "ParseSingleSequenceExample", ["scalar", "none"] + ["scalar"] * (number + 1), {
            "Ncontext_sparse": ("i", number), "context_sparse_types": types(n)})), INVALID, run="op:0")


def test_cycle():
    g = graph(("a", "Add", ["b", "c"], T), ("b", "Add", ["a", "c"], T), ("c", "Const", [], const()))
    refused(g, INVALID, run="a:0")


def test_node_that_feeds_itself():
    refused(graph(("a", "Identity", ["a"], T)), INVALID, run="a:0")


def test_control_cycle():
    refused(graph(("a", "NoOp", ["^b"], {}), ("b", "NoOp", ["^a"], {}), ("c", "Const", ["^a"], const())), INVALID, run="c:0")


def test_endless_loop_ends_at_its_deadline():
    g = graph(("c", "Const", [], const()), ("e", "Enter", ["c"], {**T, "frame_name": ("s", b"f")}),
              ("m", "Merge", ["e", "n"], {**T, "N": ("i", 2)}), ("n", "NextIteration", ["m"], T),
              ("x", "Exit", ["m"], T))
    try:
        with shoal.Session(shoal.Graph(g.SerializeToString())) as s:
            s.run(["x:0"], timeout_ms=500)
    except shoal.Error as e:
        assert e.code in (INVALID, 4), e
    else:
        raise AssertionError("no error")


def test_missing_input():
    assert "nowhere" in refused(graph(("a", "Identity", ["nowhere"], T)), INVALID)


def test_output_that_does_not_exist():
    refused(graph(("c", "Const", [], const()), ("a", "Identity", ["c:7"], T)), INVALID)
    refused(graph(("c", "Const", [], const()), ("a", "Identity", ["c:99999999999999999999"], T)), INVALID)
    refused(graph(("c", "Const", [], const()), ("a", "Identity", ["c:-1"], T)), INVALID)


def test_wrong_arity():
    c = ("c", "Const", [], const())
    refused(graph(c, ("a", "Add", ["c"], T)), INVALID)
    refused(graph(c, ("a", "Add", ["c", "c", "c"], T)), INVALID)
    refused(graph(c, ("a", "AddN", ["c", "c"], {**T, "N": ("i", 3)})), INVALID)
    refused(graph(c, ("a", "AddN", [], {**T, "N": ("i", 0)})), INVALID)
    refused(graph(c, ("a", "AddN", ["c"], {**T, "N": ("i", -1)})), INVALID)
    refused(graph(c, ("a", "AddN", ["c"], {**T, "N": ("i", 1 << 62)})), INVALID, EXHAUSTED)


def test_wrong_types():
    c = ("c", "Const", [], const())
    refused(graph(c, ("a", "Identity", ["c"], {"T": ("type", types_pb2.DT_STRING)})), INVALID)
    refused(graph(c, ("a", "Identity", ["c"], {"T": ("type", 9999)})), INVALID)
    refused(graph(c, ("a", "Identity", ["c"], {"T": ("i", 1)})), INVALID)
    refused(graph(c, ("a", "Identity", ["c"], {})), INVALID)


def test_reference_types():
    table = {"key_dtype": ("type", types_pb2.DT_INT64), "value_dtype": ("type", types_pb2.DT_FLOAT_REF)}
    assert "reference type" in refused(graph(("t", "MutableHashTableV2", [], table)), INVALID)
    n = graph(("c", "Const", [], const()), ("a", "IdentityN", ["c"], {}))
    n.node[1].attr["T"].list.type.append(types_pb2.DT_FLOAT_REF)
    assert "reference type" in refused(n, INVALID)


def test_more_outputs_than_inputs():
    g = graph(("c", "Const", [], const()), ("a", "_ListToArray", ["c"], {**T, "N": ("i", 3)}))
    g.node[1].attr["Tin"].list.type.append(FLOAT)
    refused(g, INTERNAL, run="a:2")


def test_more_values_than_variables():
    for n in (0, 1, 3):
        g = graph(("v", "VarHandleOp", [], {"dtype": ("type", FLOAT), "shape": ("shape", tensor_pb2.TensorProto().tensor_shape)}),
                  ("r", "_ReadVariablesOp", ["v"] * n, {"N": ("i", n)}))
        g.node[1].attr["dtypes"].list.type.extend([FLOAT] * 2 if n == 3 else [FLOAT] * 200)
        refused(g, INVALID, run="r:1")


def test_layers_that_only_rewrites_make():
    for op in ("_ShoalAttention", "_ShoalMaskedAttention", "_ShoalLayerNorm", "_ShoalGelu", "_ShoalCrossEntropy"):
        assert op in refused(graph(("c", "Const", [], const()), ("s", op, ["c"] * 2, T)), NOT_FOUND)


def test_ops_that_only_rewrites_make():
    """One that runs any op, with inputs of any type."""
    for op in ("WriteFile", "_SweepUpdates"):
        g = graph(("c", "Const", [], const()), ("s", "_SweepUpdates", ["c", "c"], {"op": ("s", op.encode()), "count": ("i", 1)}))
        g.node[1].attr["own"].list.i.extend([1, 1])
        g.node[1].attr["Tin"].list.type.extend([FLOAT, FLOAT])
        assert "_SweepUpdates" in refused(g, NOT_FOUND)
    g = graph(("c", "Const", [], const()))
    f = function(g, "f", "Identity", {"T": ("type", FLOAT)})
    f.node_def.add().CopyFrom(graph(("s", "_SweepUpdates", ["x"], {"op": ("s", b"_SweepUpdates"), "count": ("i", 1)})).node[0])
    call(g, "f")
    assert "_SweepUpdates" in refused(g, NOT_FOUND, run="call:0")


def test_fused_ops_that_only_rewrites_make():
    for op in ("_JoinedUpdates", "_L2Losses", "_MaskedSoftmax", "_SoftmaxGrad", "_BatchNormReluGrad",
               "_BatchNormReluGradOfSum", "_DenseCrossEntropy", "_DenseGrads", "_Elementwise", "_MatMulGelu",
               "_MatMulGeluGrad", "_MatMulOnto"):
        assert op in refused(graph(("c", "Const", [], const()), ("s", op, ["c"] * 2, T)), NOT_FOUND)


def test_tensor_arrays_by_constant_names():
    """Such ops are as pure as any, and all their inputs constants: they would be folded, where there are no arrays."""
    value = {"T": ("type", FLOAT)}
    for op, inputs, attrs in (("Read", ["i"], {"dtype": ("type", FLOAT)}), ("Size", [], {}), ("Write", ["i", "f"], value),
                              ("Gather", ["ii"], {"dtype": ("type", FLOAT)}), ("Concat", [], {"dtype": ("type", FLOAT)}),
                              ("Scatter", ["ii", "ff"], value), ("Split", ["ff", "ll"], value)):
        def numbers(name, dtype, dims, **values):
            t = tensor_pb2.TensorProto(dtype=dtype, tensor_shape={"dim": [{"size": d} for d in dims]}, **values)
            return name, "Const", [], {"dtype": ("type", dtype), "value": ("tensor", t)}
        int32, int64 = types_pb2.DT_INT32, types_pb2.DT_INT64
        g = graph(("h", "Const", [], strings(b"a", b"b")), numbers("i", int32, [], int_val=[0]), ("f", "Const", [], const()),
                  numbers("ii", int32, [1], int_val=[0]), numbers("ff", FLOAT, [1], float_val=[0]),
                  numbers("ll", int64, [1], int64_val=[1]), ("a", f"TensorArray{op}V2", ["h", *inputs, "f"], attrs))
        refused(g, INVALID, NOT_FOUND, run="a:0")


def test_shapes_that_are_not_so():
    """Chains are fused by the shapes that a graph tells of. A handle of another shape than the variable has tells a lie:
    where a vector was promised stands a scalar, beyond which nothing may be read."""
    def handle(name, *dims):
        shape = tensor_shape_pb2.TensorShapeProto(dim=[{"size": d} for d in dims])
        return name, "VarHandleOp", [], {"dtype": ("type", FLOAT), "shape": ("shape", shape), "shared_name": ("s", b"v")}
    dtype, size = {"dtype": ("type", FLOAT)}, 5000
    long = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, int_val=[size], tensor_shape={"dim": [{"size": 1}]})
    g = graph(("one", "Const", [], const(3.0)), handle("scalar"), handle("vector", size),
              ("init", "AssignVariableOp", ["scalar", "one"], dtype), ("read", "ReadVariableOp", ["vector"], dtype),
              ("dims", "Const", [], {"dtype": ("type", types_pb2.DT_INT32), "value": ("tensor", long)}),
              ("any", "RandomUniform", ["dims"], {"T": ("type", types_pb2.DT_INT32), **dtype}),
              ("less", "Sub", ["any", "any"], T), ("neg", "Neg", ["read"], T), ("sum", "AddV2", ["neg", "less"], T),
              ("both", "Mul", ["read", "read"], T), ("all", "AddV2", ["sum", "both"], T))
    with shoal.Session(shoal.Graph(g.SerializeToString())) as s:
        s.run(targets=["init"])
        value, = s.run(["all:0"])
    assert value.shape == (size,) and (value == 6).all(), value


def test_outputs_without_end():
    """A node whose attribute asks for a billion outputs gets none of them."""
    axis = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, int_val=[0])
    g = graph(("c", "Const", [], const(dims=[4])),
              ("d", "Const", [], {"dtype": ("type", types_pb2.DT_INT32), "value": ("tensor", axis)}),
              ("a", "Split", ["d", "c"], {**T, "num_split": ("i", 1 << 30)}))
    assert "1048576" in refused(g, INVALID)


def test_datasets_that_double():
    """Twenty datasets, each twice the one before: a million in all. And elements of more components than there may be."""
    spec = {"output_types": ("list", attr_value_pb2.AttrValue.ListValue(type=[FLOAT])),
            "output_shapes": ("list", attr_value_pb2.AttrValue.ListValue(shape=[{}]))}
    tensors = {"Toutput_types": spec["output_types"], "output_shapes": spec["output_shapes"]}
    nodes = [("c", "Const", [], const()), ("d0", "TensorDataset", ["c"], tensors)]
    nodes += [(f"d{i + 1}", "ConcatenateDataset", [f"d{i}", f"d{i}"], spec) for i in range(20)]
    end = ("n", "DatasetCardinality", ["d20"], {})
    assert "more than 65536 others" in refused(graph(*nodes, end), INVALID, run="n:0")
    many = {"Toutput_types": ("list", attr_value_pb2.AttrValue.ListValue(type=[FLOAT] * 65537)),
            "output_shapes": ("list", attr_value_pb2.AttrValue.ListValue(shape=[{}] * 65537))}
    g = graph(nodes[0], ("d", "TensorDataset", ["c"] * 65537, many), ("n", "DatasetCardinality", ["d"], {}))
    assert "65536" in refused(g, INVALID, run="n:0")


def test_predicates_of_more_results():
    """There is room for one answer: one of several does not write beside it."""
    boolean = types_pb2.DT_BOOL
    for op in ("FilterDataset", "TakeWhileDataset", "ParallelFilterDataset"):
        for n in (0, 2, 40):
            g = graph(("c", "Const", [], const(dims=[3])), ("one", "Const", [], {"dtype": ("type", types_pb2.DT_INT64), "value": (
                "tensor", tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, int64_val=[1]))}))
            f = function(g, "f", "Identity", {"T": ("type", FLOAT)})
            f.node_def.add(name="yes", op="IsNan", input=["x"]).attr["T"].type = FLOAT
            f.ret.clear()
            del f.signature.output_arg[:]
            for i in range(n):
                f.signature.output_arg.add(name=f"y{i}", type=boolean)
                f.ret[f"y{i}"] = "yes:y:0"
            slices = g.node.add(name="slices", op="TensorSliceDataset", input=["c"])
            slices.attr["Toutput_types"].list.type.append(FLOAT)
            slices.attr["output_shapes"].list.shape.add()
            kept = g.node.add(name="kept", op=op, input=["slices"] + ["one"] * op.startswith("Parallel"))
            kept.attr["predicate"].func.name = "f"
            kept.attr["Targuments"].list.SetInParent()
            first = g.node.add(name="first", op="DatasetToSingleElement", input=["kept"])
            for node in (kept, first):
                node.attr["output_types"].list.type.append(FLOAT)
                node.attr["output_shapes"].list.shape.add()
            assert "scalar bool" in refused(g, INVALID, run="first:0")


def test_masks_of_all_bits():
    one = ("o", "Const", [], {"dtype": ("type", types_pb2.DT_INT32), "value": ("tensor", tensor_pb2.TensorProto(
        dtype=types_pb2.DT_INT32, int_val=[1], tensor_shape={"dim": [{"size": 1}]}))})
    for mask in (-1 << 63, -1):
        masks = {m + "_mask": ("i", mask if m == "ellipsis" else 0) for m in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
        g = graph(("c", "Const", [], const(dims=[4])), one, ("a", "StridedSlice", ["c", "o", "o", "o"],
                  {**T, "Index": ("type", types_pb2.DT_INT32), **masks}))
        try:
            with shoal.Session(shoal.Graph(g.SerializeToString())) as s:
                s.run(["a:0"])
        except shoal.Error as e:
            assert e.code == INVALID, e


def value(dtype, shape, **values):
    t = tensor_pb2.TensorProto(dtype=dtype, tensor_shape={"dim": [{"size": n} for n in shape]}, **values)
    return {"dtype": ("type", dtype), "value": ("tensor", t)}


def test_numbers_that_no_integer_holds():
    """They are cast to integers all the same: by the root of a sum that ran over, and where a table puts its keys."""
    int32, int64 = types_pb2.DT_INT32, types_pb2.DT_INT64
    g = graph(("x", "Const", [], value(int64, [1], int64_val=[3037000500])), ("axis", "Const", [], value(int32, [1], int_val=[0])),
              ("n", "EuclideanNorm", ["x", "axis"], {"T": ("type", int64), "Tidx": ("type", int32)}))
    with shoal.Session(shoal.Graph(g.SerializeToString())) as s:
        assert s.run(["n:0"])[0] == 0
    for dtype, field in ((FLOAT, "float_val"), (types_pb2.DT_DOUBLE, "double_val")):
        keys = [float("inf"), -5, 1e30, 3.5, float("-inf"), -1e30]
        kinds = {"Tin": ("type", dtype), "Tout": ("type", int64)}
        g = graph(("empty", "Const", [], value(dtype, [], **{field: [0]})), ("gone", "Const", [], value(dtype, [], **{field: [-1]})),
                  ("nan", "Const", [], value(dtype, [1], **{field: [float("nan")]})), ("keys", "Const", [], value(dtype, [6], **{field: keys})),
                  ("values", "Const", [], value(int64, [6], int64_val=range(1, 7))), ("none", "Const", [], value(int64, [], int64_val=[-7])),
                  ("t", "MutableDenseHashTableV2", ["empty", "gone"], {"key_dtype": ("type", dtype), "value_dtype": ("type", int64)}),
                  ("put", "LookupTableInsertV2", ["t", "keys", "values"], kinds),
                  ("find", "LookupTableFindV2", ["t", "keys", "none"], kinds), ("find_nan", "LookupTableFindV2", ["t", "nan", "none"], kinds))
        with shoal.Session(shoal.Graph(g.SerializeToString())) as s:
            s.run(targets=["put"])
            found, nan = s.run(["find:0", "find_nan:0"])
            assert list(found) == [1, 2, 3, 4, 5, 6] and list(nan) == [-7], (found, nan)


def test_columns_of_a_file_past_all_numbers():
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("a\nb\n")
        f.flush()
        kinds = {"key_dtype": ("type", types_pb2.DT_STRING), "value_dtype": ("type", types_pb2.DT_INT64)}
        file = ("file", "Const", [], value(types_pb2.DT_STRING, [], string_val=[f.name.encode()]))
        def put(key_index, offset):
            columns = {"key_index": ("i", key_index), "value_index": ("i", -1), "offset": ("i", offset)}
            return graph(("t", "HashTableV2", [], kinds), file, ("put", "InitializeTableFromTextFileV2", ["t", "file"], columns),
                         ("n", "LookupTableSizeV2", ["t", "^put"], {}))
        assert "expected at least 9223372036854775808 got 1" in refused(put((1 << 63) - 1, 0), INVALID, run="n:0")
        with shoal.Session(shoal.Graph(put(-2, (1 << 63) - 1).SerializeToString())) as s:
            assert s.run(["n:0"])[0] == 2


def test_duplicate_names():
    refused(graph(("a", "NoOp", [], {}), ("a", "NoOp", [], {})), INVALID)


def test_names_that_are_none():
    for name in ("", " ", "a b", "^a", "a:0", "-a", "/a", "\x01", "a" * 3 + "\n"):
        refused(graph((name, "NoOp", [], {})), INVALID)


def test_bad_input_syntax():
    for text in ("", "^", ":", "a:", "^a:0", "a:b", "a:0:0"):
        refused(graph(("a", "Const", [], const()), ("b", "Identity", [text], T)), INVALID)


def test_constants_with_huge_shapes():
    limited()
    for dims in ([1 << 40], [1 << 32, 1 << 32], [1 << 62, 8], [1 << 31] * 5, [3, 1 << 62, 0]):
        refused(graph(("a", "Const", [], const(dims=dims))), INVALID, EXHAUSTED, run="a:0")


def test_constants_with_negative_dimensions():
    for dims in ([-1], [-5], [2, -2], [-1 << 63]):
        refused(graph(("a", "Const", [], const(dims=dims))), INVALID)


def test_constants_with_too_many_dimensions():
    refused(graph(("a", "Const", [], const(dims=[1] * 300))), INVALID, UNIMPLEMENTED)


def test_constant_whose_content_does_not_fit():
    attrs = const(dims=[4])
    attrs["value"][1].float_val[:] = []
    attrs["value"][1].tensor_content = b"\0" * 15
    refused(graph(("a", "Const", [], attrs)), INVALID)
    attrs["value"][1].tensor_content = b"\0" * 17
    refused(graph(("a", "Const", [], attrs)), INVALID)


def test_constant_of_another_type():
    attrs = const()
    attrs["dtype"] = ("type", types_pb2.DT_INT32)
    refused(graph(("a", "Const", [], attrs)), INVALID, run="a:0")


def test_values_that_ask_for_the_world():
    """Shapes that a graph computes are checked where memory would be taken."""
    limited()
    ints = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, int64_val=[1 << 40, 1 << 40])
    ints.tensor_shape.dim.add(size=2)
    dims = ("d", "Const", [], {"dtype": ("type", types_pb2.DT_INT64), "value": ("tensor", ints)})
    index = {"index_type": ("type", types_pb2.DT_INT64)}
    refused(graph(dims, ("c", "Const", [], const()), ("a", "Fill", ["d", "c"], {**T, **index})), INVALID, EXHAUSTED, run="a:0")
    refused(graph(dims, ("a", "RandomUniform", ["d"], {"T": ("type", types_pb2.DT_INT64), "dtype": ("type", FLOAT)})),
            INVALID, EXHAUSTED, run="a:0")
    ints.int64_val[:] = [-3, 2]
    dims = ("d", "Const", [], {"dtype": ("type", types_pb2.DT_INT64), "value": ("tensor", ints)})
    refused(graph(dims, ("c", "Const", [], const()), ("a", "Fill", ["d", "c"], {**T, **index})), INVALID, run="a:0")
    ints.int64_val[:] = [(1 << 63) - 1, 2]
    dims = ("d", "Const", [], {"dtype": ("type", types_pb2.DT_INT64), "value": ("tensor", ints)})
    none = [("tensor", tensor_pb2.TensorProto(dtype=t, tensor_shape={"dim": [{"size": n} for n in shape]}))
            for t, shape in ((types_pb2.DT_INT64, [0, 2]), (FLOAT, [0]))]
    refused(graph(dims, *[(f"c{i}", "Const", [], {"dtype": ("type", t[1].dtype), "value": t}) for i, t in enumerate(none)],
                  ("m", "SparseTensorToCSRSparseMatrix", ["c0", "c1", "d"], T), ("a", "SparseMatrixNNZ", ["m"], {})),
            INVALID, run="a:0")


def ints(*values):
    return ("list", attr_value_pb2.AttrValue.ListValue(i=values))


def test_convolution_of_fewer_dimensions_than_none():
    """A negative number of batch dimensions makes spatial ones of those that are not there."""
    for rank, n in ((2, -1), (1, -2), (1, -3), (3, -1), (4, -1 << 63)):
        attrs = {**T, "strides": ints(1, 1, 1, 1), "padding": ("s", b"SAME"), "batch_dims": ("i", n)}
        x, f = const(dims=[3] * rank), const(dims=[3, 2, 3, 4])
        refused(graph(("x", "Const", [], x), ("f", "Const", [], f), ("c", "Conv", ["x", "f"], attrs)), INVALID,
                run="c:0")


def test_packed_element_of_another_type():
    """What is packed says that it is a variant, and holds a float."""
    inner = tensor_pb2.TensorProto(dtype=FLOAT, float_val=[1.0]).SerializeToString()
    field = lambda number, data: bytes([number << 3 | 2, len(data)]) + data
    component = bytes([1 << 3, types_pb2.DT_VARIANT]) + field(2, b"") + field(4, bytes([len(inner)]))
    packed = bytes([len(inner), len(inner) - 1 << 2]) + inner  # Snappy's: a length, a literal
    t = tensor_pb2.TensorProto(dtype=types_pb2.DT_VARIANT)
    t.variant_val.add(type_name="tensorflow.data.CompressedElement", metadata=field(1, packed) + field(2, component))
    shapes = attr_value_pb2.AttrValue.ListValue()
    shapes.shape.add()
    types = attr_value_pb2.AttrValue.ListValue(type=[types_pb2.DT_VARIANT])
    spec = {"output_types": ("list", types), "output_shapes": ("list", shapes)}
    refused(graph(("v", "Const", [], {"dtype": ("type", types_pb2.DT_VARIANT), "value": ("tensor", t)}),
                  ("u", "UncompressElement", ["v"], spec),
                  ("d", "DatasetCardinality", ["u"], {})), INVALID, run="d:0")


def test_every_truncation_of_a_graph():
    g = graph(("c", "Const", [], const(dims=[2])), ("a", "Add", ["c", "c"], T), ("b", "Identity", ["a"], T))
    data = g.SerializeToString()
    for n in range(1, len(data)):
        try:
            shoal.Graph(data[:n])
        except shoal.Error as e:
            assert e.code in (INVALID, NOT_FOUND, 15), e


def test_every_byte_changed():
    g = graph(("c", "Const", [], const(dims=[2])), ("a", "Add", ["c", "c"], T))
    data = g.SerializeToString()
    for n in range(len(data)):
        for x in (0x00, 0x7F, 0x80, 0xFF, data[n] ^ 1):
            try:
                shoal.Graph(data[:n] + bytes([x]) + data[n + 1:])
            except shoal.Error:
                pass


def test_lengths_that_lie():
    limited(500)
    # Field 1 (node), length-delimited, with a length of 2^31, 2^40 and 2^63.
    for length in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\xff" * 11):
        refused(b"\x0a" + length + b"abc", INVALID, 15)


def test_deep_nesting_of_attributes():
    """list(func) inside func inside func: 100,000 levels."""
    data = b""
    for _ in range(100000):
        # NameAttrList{name:"f", attr{key:"a", value{func: data}}}
        value = b"\x52" + varint(len(data)) + data
        entry = b"\x0a\x01a" + b"\x12" + varint(len(value)) + value
        data = b"\x0a\x01f" + b"\x12" + varint(len(entry)) + entry
        if len(data) > 1 << 20:
            break
    value = b"\x52" + varint(len(data)) + data
    entry = b"\x0a\x01f" + b"\x12" + varint(len(value)) + value
    node = b"\x0a\x01a" + b"\x12\x04NoOp" + b"\x2a" + varint(len(entry)) + entry
    refused(b"\x0a" + varint(len(node)) + node, INVALID, EXHAUSTED)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def test_deep_groups():
    refused(b"\x0b" * 100000, INVALID, 15)


def test_a_chain_of_a_hundred_thousand_nodes():
    nodes = [("n0", "Const", [], const())]
    nodes += [(f"n{i}", "Identity", [f"n{i - 1}"], T) for i in range(1, 100001)]
    g = shoal.Graph(graph(*nodes).SerializeToString())
    with shoal.Session(g) as s:
        assert s.run(["n100000:0"])[0] == 1
    # The same from its far end.
    shoal.Graph(graph(*reversed(nodes)).SerializeToString())


def test_a_node_with_many_inputs():
    nodes = [("c", "Const", [], const()), ("a", "AddN", ["c"] * 50000, {**T, "N": ("i", 50000)})]
    g = shoal.Graph(graph(*nodes).SerializeToString())
    with shoal.Session(g) as s:
        assert s.run(["a:0"])[0] == 50000


def function(g, name, body_op, body_attrs, inputs=("x:float",)):
    f = g.library.function.add()
    f.signature.name = name
    f.signature.input_arg.add(name="x", type=FLOAT)
    f.signature.output_arg.add(name="y", type=FLOAT)
    n = f.node_def.add(name="n", op=body_op, input=["x"])
    for key, (field, value) in body_attrs.items():
        if field == "func":
            n.attr[key].func.name = value
        elif field == "types":
            n.attr[key].list.type.extend(value)
        else:
            setattr(n.attr[key], field, value)
    f.ret["y"] = "n:output:0"
    return f


CALL = {"Tin": ("types", [FLOAT]), "Tout": ("types", [FLOAT])}


def call(g, name):
    n = g.node.add(name="call", op="PartitionedCall", input=["c"])
    n.attr["Tin"].list.type.append(FLOAT)
    n.attr["Tout"].list.type.append(FLOAT)
    n.attr["f"].func.name = name


def test_function_that_calls_itself():
    g = graph(("c", "Const", [], const()))
    function(g, "f", "PartitionedCall", {**CALL, "f": ("func", "f")})
    call(g, "f")
    refused(g, INVALID, EXHAUSTED, UNIMPLEMENTED, 9, 13, run="call:0")


def test_a_functions_node_with_endless_inputs():
    for n in (2**63 - 1, -2**63, 2**20):
        g = graph(("c", "Const", [], const()))
        function(g, "f", "CollectiveReduceV2", {"T": ("type", FLOAT), "merge_op": ("s", b"Add"), "final_op": ("s", b"Id"),
                                                "Nordering_token": ("i", n)})
        call(g, "f")
        assert "too many inputs" in refused(g, INVALID, run="call:0")


def test_ends_that_a_function_brings_itself():
    """A result of another type than the signature says would be taken for that; one that something waits for is in no
    graph that the function is put into."""
    string = types_pb2.DT_STRING
    for op in ("_Retval", "_DeviceRetval", "_Arg", "_DeviceArg"):
        takes = op.endswith("val")
        for waits in (False, True):
            g = graph(("c", "Const", [], const(dims=[4])))
            f = function(g, "f", "Identity", {"T": ("type", FLOAT)})
            text = f.node_def.add(name="text", op="AsString", input=["x"])
            text.attr["T"].type = FLOAT
            end = f.node_def.add(name="end", op=op, input=["text:output:0"] if takes else [])
            end.attr["T"].type = string if takes else FLOAT
            end.attr["index"].i = 0
            if waits:
                f.control_ret["end"] = "end"
                f.node_def[0].input.append("^end")
                call(g, "f")
                assert "end" in refused(g, INVALID, run="call:0")
                continue
            n = g.node.add(name="rows", op="MapDefun", input=["c"])
            n.attr["Targuments"].list.type.append(FLOAT)
            n.attr["Tcaptured"].list.SetInParent()
            n.attr["output_types"].list.type.append(FLOAT)
            n.attr["output_shapes"].list.shape.add()
            n.attr["f"].func.name = "f"
            assert "end" in refused(g, INVALID, run="rows:0")


def test_functions_that_call_each_other():
    g = graph(("c", "Const", [], const()))
    function(g, "f", "PartitionedCall", {**CALL, "f": ("func", "h")})
    function(g, "h", "PartitionedCall", {**CALL, "f": ("func", "f")})
    call(g, "f")
    refused(g, INVALID, EXHAUSTED, UNIMPLEMENTED, 9, 13, run="call:0")


def test_functions_that_double():
    """f0 calls f1 twice calls f2 twice...: 2^40 nodes if they were all put in place."""
    g = graph(("c", "Const", [], const()))
    for i in range(40):
        f = function(g, f"f{i}", "PartitionedCall", {**CALL, "f": ("func", f"f{i + 1}")})
        m = f.node_def.add(name="m", op="PartitionedCall", input=["n:output:0"])
        m.CopyFrom(f.node_def[0])
        m.name = "m"
        m.input[:] = ["n:output:0"]
        f.ret["y"] = "m:output:0"
    function(g, "f40", "Identity", T)
    call(g, "f0")
    try:
        with shoal.Session(shoal.Graph(g.SerializeToString())) as s:
            s.run(["call:0"], timeout_ms=3000)
    except shoal.Error as e:
        assert e.code in (INVALID, EXHAUSTED, UNIMPLEMENTED, 4), e


def test_missing_function():
    g = graph(("c", "Const", [], const()))
    call(g, "nowhere")
    assert "nowhere" in refused(g, INVALID, NOT_FOUND, run="call:0")


def test_function_whose_signature_lies():
    g = graph(("c", "Const", [], const()))
    f = function(g, "f", "Identity", T)
    f.signature.output_arg[0].type = types_pb2.DT_INT32
    call(g, "f")
    refused(g, INVALID, run="call:0")
    g = graph(("c", "Const", [], const()))
    f = function(g, "f", "Identity", T)
    f.ret["y"] = "n:output:5"
    call(g, "f")
    refused(g, INVALID, NOT_FOUND, run="call:0")


def test_non_finite_attributes():
    for v in (float("nan"), float("inf"), -float("inf")):
        g = graph(("c", "Const", [], const()), ("a", "LeakyRelu", ["c"], {**T, "alpha": ("f", v)}))
        with shoal.Session(shoal.Graph(g.SerializeToString())) as s:
            s.run(["a:0"])


def test_devices_that_are_none():
    g = graph(("c", "Const", [], const()))
    for device in ("/job:", "nonsense", "/cpu:99999999999999999999", "/job:a/task:-1", "/" * 1000):
        g.node[0].device = device
        refused(g, INVALID, run="c:0")


def test_colocation_with_nothing():
    """Below Python, TensorFlow takes the name of a group as it comes, whether or not a node has it."""
    g = graph(("c", "Const", [], const()))
    g.node[0].attr["_class"].list.s.extend([b"loc:@nowhere", b"", b"loc:@"])
    with shoal.Session(shoal.Graph(g.SerializeToString())) as s:
        assert s.run(["c:0"])[0] == 1


def test_text_form():
    for text in ("node {", "node { name: 'a' op: 'NoOp' } }", "nodes {}", "node { name: 1 }", "\0", "node {" * 100000,
                 "node { name: 'a' op: 'Const' attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim "
                 "{ size: 99999999999999999999 } } } } } }"):
        try:
            shoal.Graph().load_text(text)
        except shoal.Error as e:
            assert e.code in (INVALID, EXHAUSTED), e
        else:
            raise AssertionError(f"taken: {text[:60]!r}")


def test_versions():
    g = graph(("c", "Const", [], const()))
    g.versions.min_consumer = 1 << 30
    refused(g, INVALID)
    g = graph(("c", "Const", [], const()))
    g.versions.bad_consumers.append(1645)
    refused(g, INVALID)


if __name__ == "__main__":
    tap.main(globals())
