"""The public C API through ctypes, no more than tests need.

    g = shoal.Graph(); g.load(graph_def_bytes)
    with shoal.Session(g, inter_op_threads=1) as s:
        value, = s.run(["y:0"], {"x:0": numpy_array})

Tensors are numpy arrays; strings are arrays of objects (bytes). A failed call raises shoal.Error with .code (the
canonical number) and .message. The library is $SHOAL_LIBRARY, else build/libshoal.so of this tree.
"""
import ctypes as C
import os

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = np.uint16

STRING, RESOURCE, VARIANT = 7, 20, 21
NUMPY = {1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8, 7: object, 8: np.complex64,
         9: np.int64, 10: np.bool_, 11: np.int8, 12: np.uint8, 13: np.int32, 14: bfloat16, 15: np.int16, 16: np.uint16,
         17: np.uint16, 18: np.complex128, 19: np.float16, 22: np.uint32, 23: np.uint64}
NUMBER = {np.dtype(t): n for n, t in reversed(NUMPY.items()) if not 11 <= n <= 13 and n not in (15, 16)}

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Out(C.Structure):
    _fields_ = [("node", C.c_void_p), ("index", C.c_int)]


class Bytes(C.Structure):
    _fields_ = [("data", C.c_void_p), ("size", C.c_size_t)]


class Gradient(C.Structure):
    _fields_ = [("values", Out), ("indices", Out), ("dense_shape", Out)]


class SessionOptions(C.Structure):
    _fields_ = [("size", C.c_size_t), ("target", C.c_char_p), ("config", C.c_char_p), ("config_size", C.c_size_t), ("cpu_devices", C.c_int),
                ("inter_op_threads", C.c_int), ("intra_op_threads", C.c_int), ("allow_soft_placement", C.c_bool),
                ("log_device_placement", C.c_bool), ("operation_timeout_ms", C.c_int64), ("rewrites_off", C.c_char_p),
                ("create_timeout_ms", C.c_int64), ("device_filters", C.POINTER(C.c_char_p)),
                ("isolate_session_state", C.c_bool), ("tls_cert", C.c_char_p), ("tls_key", C.c_char_p),
                ("tls_ca", C.c_char_p), ("give_up", C.c_void_p)]


class RunOptions(C.Structure):
    _fields_ = [("size", C.c_size_t), ("timeout_ms", C.c_int64), ("trace_level", C.c_int), ("output_partition_graphs", C.c_bool),
                ("inter_op_thread_pool", C.c_int)]


class Error(Exception):
    def __init__(self, code, message, places=""):
        super().__init__(f"{message} (code {code})")
        self.code, self.message, self.places = code, message, places


P, Z, I, S, PP = C.c_void_p, C.c_size_t, C.c_int, C.c_char_p, C.POINTER(C.c_void_p)
NAMES = C.POINTER(C.c_char_p)
# name: (result, arguments...); "status" results are checked and raised.
SIGNATURES = {
    "shoal_code_name": (S, I), "shoal_status_code": (I, P), "shoal_status_message": (S, P), "shoal_status_places": (S, P),
    "shoal_status_free": (None, P), "shoal_dtype_size": (Z, I), "shoal_bytes_free": (None, C.POINTER(Bytes)),
    "shoal_tensor_new": ("status", I, I, C.POINTER(C.c_int64), PP),
    "shoal_tensor_from": ("status", I, I, C.POINTER(C.c_int64), P, Z, PP),
    "shoal_tensor_unref": (None, P), "shoal_tensor_dtype": (I, P), "shoal_tensor_rank": (I, P),
    "shoal_tensor_dim": (C.c_int64, P, I), "shoal_tensor_elements": (C.c_int64, P), "shoal_tensor_bytes": (Z, P),
    "shoal_tensor_const_data": (P, P), "shoal_tensor_string": (P, P, C.c_int64, C.POINTER(Z)),
    "shoal_tensor_set_string": ("status", P, C.c_int64, S, Z),
    "shoal_graph_new": (P,), "shoal_graph_free": (None, P), "shoal_graph_error": (P, P),
    "shoal_graph_import": ("status", P, S, Z, S), "shoal_graph_import_text": ("status", P, S, Z, S),
    "shoal_graph_export": ("status", P, C.POINTER(Bytes)), "shoal_graph_export_text": ("status", P, C.POINTER(Bytes)),
    "shoal_graph_out": (Out, P, S), "shoal_graph_op": (P, P, S), "shoal_op_name": (S, P), "shoal_op_type": (S, P),
    "shoal_out_dtype": (I, Out), "shoal_out_shape": (I, Out, C.POINTER(C.c_int64)),
    "shoal_gradients": (None, P, C.POINTER(Out), I, C.POINTER(Out), I, C.POINTER(Out), C.POINTER(Gradient)),
    "shoal_session_open": ("status", P, C.POINTER(SessionOptions), PP), "shoal_session_extend": ("status", P, P),
    "shoal_session_close": ("status", P),
    "shoal_session_run": ("status", P, C.POINTER(RunOptions), NAMES, PP, I, NAMES, PP, I, NAMES, I, C.POINTER(Bytes)),
    "shoal_session_partial_setup": ("status", P, NAMES, I, NAMES, I, NAMES, I, C.POINTER(C.c_void_p)),
    "shoal_session_partial_run": ("status", P, P, NAMES, PP, I, NAMES, PP, I),
    "shoal_session_make_callable": ("status", P, NAMES, I, NAMES, I, NAMES, I, C.POINTER(C.c_int64)),
    "shoal_session_run_callable": ("status", P, C.c_int64, C.POINTER(RunOptions), PP, I, PP, I, C.POINTER(Bytes)),
    "shoal_session_release_callable": ("status", P, C.c_int64),
    "shoal_session_list_devices": ("status", P, C.POINTER(C.c_void_p)),
}

_library = None


def library():
    """The library, loaded at the first use (so that a process may fork before)."""
    global _library
    if _library is None:
        lib = C.CDLL(os.environ.get("SHOAL_LIBRARY") or os.path.join(ROOT, "build", "libshoal.so"))
        for name, (result, *args) in SIGNATURES.items():
            try:
                fn = getattr(lib, name)
            except AttributeError:
                continue  # reported when it is called
            fn.argtypes = args
            fn.restype = P if result == "status" else result
            if result == "status":
                fn.errcheck = _check
        _library = lib
    return _library


def code_name(code):
    return library().shoal_code_name(code).decode()


def _check(status, fn, args):
    if status:
        error = _to_error(status)
        library().shoal_status_free(status)
        raise error


def _to_error(status):
    lib = library()
    text = [f(status).decode(errors="replace") for f in (lib.shoal_status_message, lib.shoal_status_places)]
    return Error(lib.shoal_status_code(status), *text)


def _bytes(call, *args):
    b = Bytes()
    call(*args, C.byref(b))
    try:
        return C.string_at(b.data, b.size) if b.size else b""
    finally:
        library().shoal_bytes_free(C.byref(b))


def _names(names):
    return (C.c_char_p * max(len(names), 1))(*[n.encode() for n in names])


def to_handle(value, dtype=None):
    """A new shoal_tensor with the value of an array; dtype (a number) tells quantized types apart."""
    lib = library()
    a = value if isinstance(value, np.ndarray) else np.asarray(value)
    if a.dtype.names:  # TensorFlow's quantized numpy types have one field
        a = a.view(a.dtype[0])
    if a.dtype.kind in "SU":
        a = a.astype(object)
    number = dtype or (STRING if a.dtype == object else NUMBER[a.dtype])
    dims = (C.c_int64 * max(a.ndim, 1))(*a.shape)
    h = C.c_void_p()
    if number == STRING:
        lib.shoal_tensor_new(number, a.ndim, dims, C.byref(h))
        for i, s in enumerate(a.reshape(-1)):
            s = s.encode() if isinstance(s, str) else bytes(s)
            lib.shoal_tensor_set_string(h, i, s, len(s))
    else:
        a = np.ascontiguousarray(a).reshape(a.shape)
        lib.shoal_tensor_from(number, a.ndim, dims, a.ctypes.data, a.nbytes, C.byref(h))
    return h


def from_handle(h):
    lib = library()
    number = lib.shoal_tensor_dtype(h)
    shape = [lib.shoal_tensor_dim(h, i) for i in range(lib.shoal_tensor_rank(h))]
    if number == STRING:
        out, size = np.empty(shape, object), C.c_size_t()
        flat = out.reshape(-1)
        for i in range(lib.shoal_tensor_elements(h)):
            at = lib.shoal_tensor_string(h, i, C.byref(size))
            flat[i] = C.string_at(at, size.value)
        return out
    if number not in NUMPY:
        raise TypeError(f"a tensor of dtype {number} has no value outside the session")
    out = np.empty(shape, NUMPY[number])
    if out.nbytes:
        C.memmove(out.ctypes.data, lib.shoal_tensor_const_data(h), out.nbytes)
    return out


class Graph:
    def __init__(self, graph_def=None):
        self.handle = library().shoal_graph_new()
        if graph_def is not None:
            self.load(graph_def)

    def __del__(self):
        if getattr(self, "handle", None):
            library().shoal_graph_free(self.handle)

    def load(self, graph_def, prefix=None):
        library().shoal_graph_import(self.handle, graph_def, len(graph_def), prefix)

    def load_text(self, text, prefix=None):
        library().shoal_graph_import_text(self.handle, text.encode(), len(text.encode()), prefix)

    def export(self):
        return _bytes(library().shoal_graph_export, self.handle)

    def export_text(self):
        return _bytes(library().shoal_graph_export_text, self.handle).decode()

    def check(self):
        error = library().shoal_graph_error(self.handle)
        if error:
            raise _to_error(error)

    def out(self, name):
        o = library().shoal_graph_out(self.handle, name.encode())
        if not o.node:
            raise KeyError(name)
        return o

    def name(self, out):
        return f"{library().shoal_op_name(out.node).decode()}:{out.index}"

    def shape(self, name):
        """What inference knows: None, or a tuple with None for unknown dimensions."""
        dims = (C.c_int64 * 16)()
        rank = library().shoal_out_shape(self.out(name), dims)
        return None if rank < 0 else tuple(None if d < 0 else d for d in dims[:rank])

    def gradients(self, ys, xs, dys=None):
        """By names. For each x: None, a name, or (values, indices, dense_shape or None)."""
        array = lambda names: (Out * max(len(names), 1))(*[self.out(n) if n else Out() for n in names])
        result = (Gradient * max(len(xs), 1))()
        library().shoal_gradients(self.handle, array(ys), len(ys), array(xs), len(xs), array(dys) if dys else None, result)
        self.check()
        names = []
        for r in result[:len(xs)]:
            if not r.values.node:
                names.append(None)
            elif r.indices.node:
                shape = self.name(r.dense_shape) if r.dense_shape.node else None
                names.append((self.name(r.values), self.name(r.indices), shape))
            else:
                names.append(self.name(r.values))
        return names


class Session:
    def __init__(self, graph, target="", config=None, **options):
        self.graph, self.handle = graph, C.c_void_p()
        o = SessionOptions(target=target.encode(), config=config, config_size=len(config or b""), **options)
        library().shoal_session_open(graph.handle, C.byref(o), C.byref(self.handle))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        handle, self.handle = self.handle, None
        if handle:
            library().shoal_session_close(handle)

    def extend(self):
        library().shoal_session_extend(self.handle, self.graph.handle)

    def run(self, fetches=(), feeds=None, targets=(), timeout_ms=60000, trace=False, metadata=None):
        """The fetched arrays in order. feeds: name -> array or (array, dtype number). metadata: a list that gets the
        serialized RunMetadata."""
        lib = library()
        feeds = feeds or {}
        handles = [to_handle(*(v if isinstance(v, tuple) else (v,))) for v in feeds.values()]
        try:
            out = (C.c_void_p * max(len(fetches), 1))()
            o = RunOptions(timeout_ms=timeout_ms, trace_level=3 if trace else 0)
            b = Bytes()
            lib.shoal_session_run(self.handle, C.byref(o), _names(list(feeds)),
                                  (C.c_void_p * max(len(handles), 1))(*[h.value for h in handles]), len(handles),
                                  _names(fetches), out, len(fetches), _names(targets), len(targets),
                                  C.byref(b) if metadata is not None else None)
            if metadata is not None:
                metadata.append(C.string_at(b.data, b.size) if b.size else b"")
                lib.shoal_bytes_free(C.byref(b))
            return _take(out, len(fetches))
        finally:
            for h in handles:
                lib.shoal_tensor_unref(h)

    def callable(self, fetches=(), feeds=(), targets=()):
        return Callable(self, fetches, feeds, targets)


class Callable:
    """A step compiled once: call it with the feeds' arrays (or handles made before) in order."""

    def __init__(self, session, fetches, feeds, targets):
        self.session, self.n_fetches, self.id = session, len(fetches), C.c_int64()
        library().shoal_session_make_callable(session.handle, _names(feeds), len(feeds), _names(fetches), len(fetches),
                                              _names(targets), len(targets), C.byref(self.id))

    def __call__(self, *values):
        lib = library()
        made = [None if isinstance(v, C.c_void_p) else to_handle(v) for v in values]
        try:
            handles = (C.c_void_p * max(len(values), 1))(*[(m or v).value for m, v in zip(made, values)])
            out = (C.c_void_p * max(self.n_fetches, 1))()
            lib.shoal_session_run_callable(self.session.handle, self.id, None, handles, len(values), out,
                                           self.n_fetches, None)
            return _take(out, self.n_fetches)
        finally:
            for m in made:
                if m:
                    lib.shoal_tensor_unref(m)

    def bind(self, *handles):
        """A step without fetches as a function without arguments, its feeds (handles) in place: for benchmarks."""
        fn, feeds = library().shoal_session_run_callable, (C.c_void_p * max(len(handles), 1))(*[h.value for h in handles])
        arguments = (self.session.handle, self.id, None, feeds, len(handles), None, 0, None)
        return lambda: fn(*arguments)


def _take(handles, n):
    try:
        return [from_handle(C.c_void_p(h)) for h in handles[:n]]
    finally:
        for h in handles[:n]:
            if h:
                library().shoal_tensor_unref(C.c_void_p(h))
