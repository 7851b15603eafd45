"""Ops of one's own (shoal/op.h, examples/own_op.c): from C in a process and on a cluster, from TensorFlow's own client,
which is told of the op's signature alone; and libraries that are refused, by name."""
# needs: tensorflow
# under sanitizers: in functions
import ctypes as C
import os
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from cluster import PATIENCE, ROOT, SHOAL, Cluster, free_ports, report

BUILD = os.path.dirname(SHOAL)
PROGRAM = os.path.join(BUILD, "examples", "use_own_op")
LIBRARY = os.path.join(BUILD, "ops", "own_op.so")
TOLD = "x 1: 2 x^3 is 2, its slope 6\nx 2: 2 x^3 is 16, its slope 24\nx 3: 2 x^3 is 54, its slope 54\n"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def in_c():
    p = run(PROGRAM, f"--op_library={LIBRARY}")
    assert p.returncode == 0 and p.stdout == TOLD, p
    p = subprocess.run([PROGRAM, f"--op_library={os.path.basename(LIBRARY)}"], cwd=os.path.dirname(LIBRARY),
                       capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert p.returncode == 0 and p.stdout == TOLD, p  # a file of this folder, not a name for the loader
    p = run(PROGRAM, "--op_library=/nowhere/there.so")
    assert p.returncode == 2 and "--op_library=/nowhere/there.so: op library /nowhere/there.so" in p.stderr, p


KNOWN = set()  # ops that this process's TensorFlow was told of


def register(name, inputs, outputs, attrs=()):
    """Tells this process's TensorFlow of an op that it has no kernel for, by TensorFlow's C API."""
    if name in KNOWN:
        return
    KNOWN.add(name)
    lib = C.CDLL(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2"))
    lib.TF_NewOpDefinitionBuilder.restype = lib.TF_NewStatus.restype = C.c_void_p
    lib.TF_RegisterOpDefinition.argtypes = [C.c_void_p, C.c_void_p]
    lib.TF_GetCode.argtypes = [C.c_void_p]
    builder, status = lib.TF_NewOpDefinitionBuilder(name.encode()), lib.TF_NewStatus()
    for what, texts in (("Attr", attrs), ("Input", inputs), ("Output", outputs)):
        add = getattr(lib, f"TF_OpDefinitionBuilderAdd{what}")
        add.argtypes = [C.c_void_p, C.c_char_p]
        for text in texts:
            add(builder, text.encode())
    lib.TF_RegisterOpDefinition(builder, status)
    assert lib.TF_GetCode(status) == 0


def added(op, x, device, **attrs):
    """Outputs of a node of such an op in the default graph."""
    g = tf.get_default_graph()
    with tf.device(device):
        return g.create_op(op, [x], attrs={k: tf.AttrValue(**v) for k, v in attrs.items()}).outputs


SCALED_CUBE = "ScaledCube", ["x: T"], ["y: T"], ["T: {float, double}", "factor: float = 1.0"]


def in_functions():
    """In a function that is called, in branches and loops of both generations, in a dataset's function."""
    def cube(x):
        y, = added("ScaledCube", x, "", factor={"f": 0.5})
        y.set_shape(x.shape)
        return y

    register(*SCALED_CUBE)
    with Cluster(flags=[f"--op_library={LIBRARY}"], worker=["shoal"]) as c:
        for v2 in (False, True):
            (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
            with tf.Graph().as_default():
                x = tf.placeholder(tf.float32, [2])
                called = tf.function(lambda a: cube(cube(a)))(x)
                branch = tf.cond(tf.reduce_sum(x) > 0, lambda: cube(x), lambda: x)  # pylint: disable=cell-var-from-loop
                loop = tf.while_loop(lambda v: tf.reduce_sum(v) < 1000, lambda v: [cube(v)], [x])
                element = tf.data.make_initializable_iterator(
                    tf.data.Dataset.from_tensor_slices(np.float32([2, 4])).map(cube, num_parallel_calls=2))
                item = element.get_next()
                with tf.Session(c.target("worker")) as s:
                    got = s.run([called, branch, loop], {x: [2, 2]})
                    assert [list(v) for v in got] == [[32, 32], [4, 4], [16384, 16384]], got
                    s.run(element.initializer)
                    assert [s.run(item), s.run(item)] == [4, 32]
    tf.disable_control_flow_v2()


def from_tensorflow():
    register(*SCALED_CUBE)
    register("StringEnds", ["text: string"], ["length: int64", "ends: string"])
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 2])
        cube, = added("ScaledCube", x, "/job:ps", factor={"f": 0.5})
        again, = added("ScaledCube", tf.cast(cube, tf.float64), "/job:worker")
        words = tf.placeholder(tf.string, [None])
        length, ends = added("StringEnds", words, "/job:ps")
        with Cluster(flags=[f"--op_library={LIBRARY}"], ps=["shoal"], worker=["shoal"]) as c:
            p = run(PROGRAM, f"--op_library={LIBRARY}", f"--master={c.target('worker')}")
            assert p.returncode == 0 and p.stdout == TOLD, p
            with tf.Session(c.target("worker")) as s:
                values = np.float32([[1, 2], [3, -4]])
                one, two = s.run([cube, again], {x: values})
                np.testing.assert_allclose(one, 0.5 * values**3)
                np.testing.assert_allclose(two, (0.5 * values.astype(np.float64)**3)**3)
                many = np.random.RandomState(1).randn(50000, 2).astype(np.float32)  # in several pieces
                np.testing.assert_allclose(s.run(cube, {x: many}), 0.5 * many**3, rtol=1e-5)
                n, both = s.run([length, ends], {words: ["shoal", "o"]})
                assert list(n) == [5, 1] and list(both) == [b"sl", b"oo"], (n, both)
                try:
                    s.run(ends, {words: ["a", ""]})
                    raise AssertionError("an empty string has no ends")
                except tf.errors.InvalidArgumentError as e:
                    assert "string 1 is empty" in str(e), e
        with Cluster(worker=["shoal"]) as c, tf.Session(c.target("worker")) as s:
            try:
                s.run(added("ScaledCube", tf.constant(1.0), "")[0])
                raise AssertionError("the server has no such op")
            except tf.errors.OpError as e:
                assert "ScaledCube" in str(e), e


ROW = """
#include <shoal/op.h>
static shoal_status nothing(shoal_op_run *r, void *state) { (void)r; (void)state; return NULL; }
static const shoal_op_kernel kernels[] = {{.device = "CPU", .run = nothing}};
static const shoal_op_row rows[] = {{.name = "%s", .in = "%s", .out = "y: float", .kernels = kernels, .n_kernels = 1}};
"""
# What is said, and the source of a library.
REFUSED = [
    ("ALREADY_EXISTS: op library {}: there is an op MatMul already", ROW % ("MatMul", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: argument x has unknown type 'flat'",
     ROW % ("Mine", "x: flat") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: row 0: 'mine' is no name", ROW % ("mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine has no kernel",
     '#include <shoal/op.h>\nstatic const shoal_op_row rows[] = {{.name = "Mine"}};\nSHOAL_OP_LIBRARY(rows);'),
    ("INVALID_ARGUMENT: op library {}: op Mine: kernel 0 has a state of 18446744073709551615 bytes",
     ROW.replace("{{.dev", "{{.state_size = (size_t)-1, .dev") % ("Mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine has flags that are not known here: 0x400",
     ROW.replace("{{.name", "{{.flags = 1024, .name") % ("Mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: two arguments or attributes are named 'x'",
     ROW % ("Mine", "x: float, x: int32") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: two arguments or attributes are named 'y'",
     ROW % ("Mine", "y: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: kernel 0 is for types of 'Q', which is no type attribute of it",
     ROW.replace("{{.dev", '{{.type_attr = "Q", .types = 2, .dev') % ("Mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: kernel 0 has types, and no type_attr that they are of",
     ROW.replace("{{.dev", "{{.types = 2, .dev") % ("Mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: kernel 0 is for type 40, which there is not",
     ROW.replace("{{.dev", '{{.type_attr = "T", .types = 1ull << 40, .dev') % ("Mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine is SHOAL_OP_COMMUTATIVE, and has 1 inputs",
     ROW.replace("{{.name", "{{.flags = SHOAL_OP_COMMUTATIVE, .name") % ("Mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine is SHOAL_OP_NO_GRADIENT, and has a gradient",
     "#include <shoal/op.h>\nstatic shoal_status back(shoal_op_gradient *c) { (void)c; return NULL; }" +
     ROW.replace("{{.name", "{{.flags = SHOAL_OP_NO_GRADIENT, .grad = back, .name") % ("Mine", "x: float") +
     "SHOAL_OP_LIBRARY(rows);"),
    ("ALREADY_EXISTS: op library {}: there is an op Mine already",
     (ROW.replace("}};\n\"", "}}") % ("Mine", "x: float")).replace(".n_kernels = 1}}", ".n_kernels = 1}, "
     '{.name = "Mine", .out = "z: float", .kernels = kernels, .n_kernels = 1}}') + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: kernel 0 is for 'GPU'; those of libraries are for \"CPU\"",
     ROW.replace("CPU", "GPU") % ("Mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: expected a string in quotes at ''",
     ROW.replace("{{.name", '{{.attrs = "mode: string =", .name') % ("Mine", "x: float") + "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: op Mine: the string at ''b' does not end",
     ROW.replace("{{.name", "{{.attrs = \"modes: list(string) = ['a', 'b\", .name") % ("Mine", "x: float") +
     "SHOAL_OP_LIBRARY(rows);"),
    ("INVALID_ARGUMENT: op library {}: it is no library of ops", "int x;"),
    ("FAILED_PRECONDITION: op library {}: it was made for Shoal 99.0, and this is",
     ROW % ("Mine", "x: float") + "#undef SHOAL_VERSION_NUMBER\n#define SHOAL_VERSION_NUMBER 99000000\n"
     "SHOAL_OP_LIBRARY(rows);"),
]


def built(source, path):
    p = subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-I", f"{ROOT}/include", "-I",
                        f"{BUILD}/gen/include"], input=source, text=True, capture_output=True, check=False)
    assert p.returncode == 0, p.stderr
    return path


def linked(source, path):
    p = subprocess.run(["cc", "-x", "c", "-", "-o", path, "-I", f"{ROOT}/include", "-I", f"{BUILD}/gen/include", "-L", BUILD,
                        "-lshoal", f"-Wl,-rpath,{BUILD}"], input=source, text=True, capture_output=True, check=False)
    assert p.returncode == 0, p.stderr
    return path


def refused():
    with tempfile.TemporaryDirectory() as folder:
        for i, (said, source) in enumerate(REFUSED):
            path = built(source, os.path.join(folder, f"wrong{i}.so"))
            spec = '{"w": ["127.0.0.1:%d"]}' % free_ports(1)[0]
            p = run(SHOAL, "server", f"--cluster_spec={spec}", "--job_name=w", f"--op_library={LIBRARY}",
                    f"--op_library={LIBRARY}", f"--op_library={path}")
            assert p.returncode == 2 and f"--op_library={path}: " in p.stderr and said.split(": ", 1)[1].format(path) in p.stderr, (said, p)


KERNEL = """static shoal_status run%d(shoal_op_run *r, void *state) { void *y; (void)state; (void)y; %s }
static const shoal_op_kernel kernels%d[] = {{.device = "CPU", .run = run%d}};
"""
THREE = """#include <shoal/op.h>
static shoal_status three(shoal_op_shapes *s) { return shoal_op_shapes_out(s, 0, 1, (const int64_t[]){3}); }
"""
# What a kernel does, and what its step is told.
MISTAKES = [
    ("return shoal_op_output_same(r, 0, 0);", "output 0 is double, and cannot be input 0, which is float"),
    ("return shoal_op_output(r, 0, 2, NULL, &y);", "shoal_op_output: dims is NULL"),
    ("shoal_status e = shoal_op_output_like(r, 0, 0, &y); return e ? e : shoal_op_output_like(r, 0, 0, &y);",
     "made its output 0 before"),
    ("return shoal_op_output_like(r, 0, 3, &y);", "has 1 inputs, and none has the number 3"),
    ("return NULL;", "did not make output 0"),
    ("const int64_t two[] = {2}; return shoal_op_output(r, 0, 1, two, &y);",
     "made output 0 of shape [2], and its shape function had said [3]"),
    ('return shoal_status_new((shoal_code)77, "an odd code");', "an odd code"),
]


def mistaken():
    source = THREE + "".join(KERNEL % (i, does, i, i) for i, (does, _) in enumerate(MISTAKES))
    rows = "".join('{.name = "Mistake%d", .in = "x: float", .out = "y: double", .shape = three, '
                   '.kernels = kernels%d, .n_kernels = 1},'
                   % (i, i) for i in range(len(MISTAKES)))
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        path = built(source + "static const shoal_op_row rows[] = {%s};\nSHOAL_OP_LIBRARY(rows);" % rows,
                     os.path.join(folder, "mistakes.so"))
        with Cluster(flags=[f"--op_library={path}"], worker=["shoal"]) as c, tf.Session(c.target("worker")) as s:
            x = tf.placeholder(tf.float32, [3])
            for i, (_, said) in enumerate(MISTAKES):
                register(f"Mistake{i}", ["x: float"], ["y: double"])
                y, = added(f"Mistake{i}", x, "")
                try:
                    raise AssertionError(f"{said}: {s.run(y, {x: [1, 2, 3]})}")
                except tf.errors.OpError as e:
                    assert said in str(e), e


# An input that is passed on, and whose memory another output may be in: that of a value made beside the op, on the CPU.
BOTH = """#include <shoal/op.h>
static shoal_status ones(shoal_op_run *r) {
  void *y;
  shoal_status e = shoal_op_output_like(r, 0, 0, &y);
  for (int i = 0; !e && i < 3; i++) ((float *)y)[i] = 1;
  return e;
}
static shoal_status before(shoal_op_run *r, void *state) {
  shoal_status e = shoal_op_output_same(r, 1, 0);
  (void)state;
  return e ? e : ones(r);
}
static shoal_status behind(shoal_op_run *r, void *state) {
  shoal_status e = ones(r);
  (void)state;
  return e ? e : shoal_op_output_same(r, 1, 0);
}
static const shoal_op_kernel first[] = {{.device = "CPU", .run = before}}, last[] = {{.device = "CPU", .run = behind}};
static const shoal_op_row rows[] = {
    {.name = "BothBefore", .in = "x: float", .out = "y: float, z: float", .kernels = first, .n_kernels = 1},
    {.name = "BothBehind", .in = "x: float", .out = "y: float, z: float", .kernels = last, .n_kernels = 1}};
SHOAL_OP_LIBRARY(rows);
"""


def passed_on():
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        path = built(BOTH, os.path.join(folder, "both.so"))
        with Cluster(flags=[f"--op_library={path}"], worker=["shoal"]) as c, tf.Session(c.target("worker")) as s, \
                tf.device("/cpu:0"):
            x = tf.placeholder(tf.float32, [3])
            for name in ("BothBefore", "BothBehind"):
                register(name, ["x: float"], ["y: float", "z: float"])
            assert [list(v) for v in s.run(added("BothBefore", tf.nn.softplus(x) * x, ""), {x: [0, 0, 0]})] == [
                [1, 1, 1], [0, 0, 0]]
            try:
                s.run(added("BothBehind", tf.nn.softplus(x) * x, ""), {x: [0, 0, 0]})
                raise AssertionError("an input that is gone was passed on")
            except tf.errors.InvalidArgumentError as e:
                assert "input 0 cannot be output 1 any more: another output is in its memory" in str(e), e


# What an op's gradient is set to, and what the graph is told.
WRONG_SLOPES = [
    ("shoal_constant_float(shoal_op_gradient_graph(c), 1)", "the gradient of input 0 has shape [], and the input [3]"),
    ("elsewhere()", "the gradient of input 0 is of another graph"),
]
SLOPES = """#include <shoal/shoal.h>
#include <stdio.h>
int main(int argc, char **argv) {
  shoal_status e = shoal_load_ops(argv[1]);
  if (e) return fprintf(stderr, "%s", shoal_status_message(e)), 1;
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(3), "x");
  shoal_builder *b = shoal_build(g, argv[2], "y");
  shoal_build_input(b, x);
  shoal_out y = shoal_build_end_out(b);
  shoal_gradient dx;
  shoal_gradients(g, &y, 1, &x, 1, NULL, &dx);
  printf("%s\\n", shoal_status_message(shoal_graph_error(g)));
  shoal_graph_free(g);
  return argc != 3;
}
"""


def wrong_slopes():
    source = """#include <shoal/shoal.h>
#include <shoal/op.h>
static shoal_graph *other;
static shoal_out elsewhere(void) { if (!other) other = shoal_graph_new(); return shoal_constant_float(other, 1); }
static shoal_status nothing(shoal_op_run *r, void *state) { (void)r; (void)state; return NULL; }
static const shoal_op_kernel kernels[] = {{.device = "CPU", .run = nothing}};
"""
    rows = ""
    for i, (slope, _) in enumerate(WRONG_SLOPES):
        source += ("static shoal_status back%d(shoal_op_gradient *c) { (void)elsewhere; "
                   "shoal_op_gradient_set(c, 0, %s); return NULL; }\n" % (i, slope))
        rows += ('{.name = "Wrong%d", .in = "x: float", .out = "y: float", .shape = shoal_op_same_shape, .grad = back%d, '
                 '.kernels = kernels, .n_kernels = 1},' % (i, i))
    with tempfile.TemporaryDirectory() as folder:
        path = built(source + "static const shoal_op_row rows[] = {%s};\nSHOAL_OP_LIBRARY(rows);" % rows,
                     os.path.join(folder, "wrong.so"))
        program = linked(SLOPES, os.path.join(folder, "slopes"))
        for i, (_, said) in enumerate(WRONG_SLOPES):
            p = run(program, path, f"Wrong{i}")
            assert p.returncode == 0 and said in p.stdout, (said, p)


# One attribute of every kind, with a default and without, told as one line of text.
KINDS = r"""#include <shoal/op.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
struct told { char text[900]; };
static void tell(struct told *t, const char *format, ...) {
  size_t n = strlen(t->text);
  va_list ap;
  va_start(ap, format);
  vsnprintf(t->text + n, sizeof t->text - n, format, ap);
  va_end(ap);
}
static void tell_shape(struct told *t, int rank, const int64_t *dims) {
  tell(t, " %d(", rank);
  for (int i = 0; i < rank; i++) tell(t, "%lld,", (long long)dims[i]);
  tell(t, ")");
}
static void tell_tensor(struct told *t, shoal_tensor *v) {
  tell(t, " %s:%d", shoal_dtype_name(shoal_tensor_dtype(v)), *(const int32_t *)shoal_tensor_const_data(v));
  shoal_tensor_unref(v);
}
#define TRY(x) do { shoal_status e = (x); if (e) return e; } while (0)
static shoal_status init(const shoal_op *node, void *state) {
  struct told *t = state;
  int64_t dims[SHOAL_MAX_RANK];
  float floats[3];
  bool bools[3];
  shoal_dtype types[3];
  const char *strings[3];
  shoal_tensor *tensor;
  int rank, n;
  TRY(shoal_op_attr_shape(node, "shape", dims, &rank));
  tell_shape(t, rank, dims);
  TRY(shoal_op_attr_tensor(node, "tensor", &tensor));
  tell_tensor(t, tensor);
  TRY(shoal_op_attr_floats(node, "floats", floats, 3, &n));
  for (int i = 0; i < n; i++) tell(t, " %g", (double)floats[i]);
  TRY(shoal_op_attr_bools(node, "bools", bools, 3, &n));
  for (int i = 0; i < n; i++) tell(t, " %d", bools[i]);
  TRY(shoal_op_attr_types(node, "types", types, 3, &n));
  for (int i = 0; i < n; i++) tell(t, " %s", shoal_dtype_name(types[i]));
  TRY(shoal_op_attr_strings(node, "strings", strings, 3, &n));
  for (int i = 0; i < n; i++) tell(t, " '%s'", strings[i]);
  TRY(shoal_op_attr_length(node, "shapes", &n));
  for (int i = 0; i < n; i++) {
    TRY(shoal_op_attr_shape_at(node, "shapes", i, dims, &rank));
    tell_shape(t, rank, dims);
  }
  TRY(shoal_op_attr_length(node, "tensors", &n));
  for (int i = 0; i < n; i++) {
    TRY(shoal_op_attr_tensor_at(node, "tensors", i, &tensor));
    tell_tensor(t, tensor);
  }
  return NULL;
}
static shoal_status say(shoal_op_run *r, void *state) {
  shoal_status e = shoal_op_output(r, 0, 0, NULL, &(void *){NULL});
  return e ? e : shoal_op_output_string(r, 0, 0, ((struct told *)state)->text, strlen(((struct told *)state)->text));
}
static shoal_status too_few(const shoal_op *node, void *state) {
  float one;
  int n;
  (void)state;
  return shoal_op_attr_floats(node, "floats", &one, 1, &n);
}
static shoal_status past(const shoal_op *node, void *state) {
  int64_t dims[SHOAL_MAX_RANK];
  int rank;
  (void)state;
  return shoal_op_attr_shape_at(node, "shapes", 5, dims, &rank);
}
static shoal_status no_list(const shoal_op *node, void *state) {
  int n;
  (void)state;
  return shoal_op_attr_length(node, "shape", &n);
}
#define KERNEL(how) {.device = "CPU", .state_size = sizeof(struct told), .init = how, .run = say}
static const shoal_op_kernel kernels[][1] = {{KERNEL(init)}, {KERNEL(too_few)}, {KERNEL(past)}, {KERNEL(no_list)}};
#define ROW(name_, i) {.name = name_, .out = "y: string", .kernels = kernels[i], .n_kernels = 1, .attrs = "shape: shape = [2, ?]; \
tensor: tensor = {int32 7}; floats: list(float) = [0.5, 2]; bools: list(bool) = [true, false]; types: list(type) = [float, int64]; \
strings: list(string) = ['a', 'b c']; shapes: list(shape) = [[], {}, [3]]; tensors: list(tensor) = [{int32 1}, {int32 2}]"}
static const shoal_op_row rows[] = {ROW("Kinds", 0), ROW("KindsFew", 1), ROW("KindsPast", 2), ROW("KindsNoList", 3)};
SHOAL_OP_LIBRARY(rows);
"""
DEFAULTS_PROGRAM = """#include <shoal/shoal.h>
#include <stdio.h>
int main(int argc, char **argv) {
  shoal_status e = shoal_load_ops(argv[1]);
  shoal_graph *g = shoal_graph_new();
  shoal_out y = e ? (shoal_out){0} : shoal_build_end_out(shoal_build(g, "Kinds", NULL));
  shoal_session *s = NULL;
  shoal_tensor *t = NULL;
  size_t n;
  if (!e) e = shoal_session_open(g, NULL, &s);
  if (!e) e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(y, &t), NULL);
  printf("%s\\n", e ? shoal_status_message(e) : shoal_tensor_string(t, 0, &n));
  return argc != 2;
}
"""
DEFAULTS = b" 2(2,-1,) int32:7 0.5 2 1 0 float32 int64 'a' 'b c' 0() -1() 1(3,) int32:1 int32:2"
WRONG_READS = [("KindsFew", "attr 'floats' of {{node KindsFew}} has 2 elements, and there is room for 1"),
               ("KindsPast", "attr 'shapes' of {{node KindsPast}} has 3 elements, and no 5"),
               ("KindsNoList", "AttrValue had value with type 'shape' when 'list")]


def every_kind():
    kinds = ["shape: shape", "tensor: tensor", "floats: list(float)", "bools: list(bool)", "types: list(type)",
             "strings: list(string)", "shapes: list(shape)", "tensors: list(tensor)"]
    number = [tf.make_tensor_proto(np.int32(i)) for i in (5, 6)]
    values = {"shape": {"shape": tf.TensorShape([4]).as_proto()}, "tensor": {"tensor": number[0]},
              "floats": {"list": {"f": [1.5]}}, "bools": {"list": {"b": [True]}}, "types": {"list": {"type": [3]}},
              "strings": {"list": {"s": [b"x"]}}, "shapes": {"list": {"shape": []}}, "tensors": {"list": {"tensor": number}}}
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default() as g:
        path = built(KINDS, os.path.join(folder, "kinds.so"))
        for name in ["Kinds"] + [n for n, _ in WRONG_READS]:
            register(name, [], ["y: string"], kinds if name == "Kinds" else ())
        with Cluster(flags=[f"--op_library={path}"], worker=["shoal"]) as c, tf.Session(c.target("worker")) as s:
            given = g.create_op("Kinds", [], attrs={k: tf.AttrValue(**v) for k, v in values.items()}).outputs[0]
            assert s.run(given) == b" 1(4,) int32:5 1.5 1 int32 'x' int32:5 int32:6", s.run(given)
            for name, said in WRONG_READS:
                try:
                    raise AssertionError(f"{said}: {s.run(g.create_op(name, [], name=name).outputs[0])}")
                except tf.errors.OpError as e:
                    assert said in str(e), e
        program = linked(DEFAULTS_PROGRAM, os.path.join(folder, "kinds"))
        p = run(program, path)
        assert p.returncode == 0 and p.stdout.encode() == DEFAULTS + b"\n", p


TESTS = [("from C, in a process", in_c), ("from TensorFlow's client, and from C, on a cluster", from_tensorflow),
         ("in functions, branches, loops and datasets", in_functions), ("libraries that are refused", refused), ("kernels with mistakes in them", mistaken),
         ("an input that is passed on", passed_on),
         ("gradients with mistakes in them", wrong_slopes), ("attributes of every kind", every_kind)]

if __name__ == "__main__":
    sys.exit(report(TESTS))
