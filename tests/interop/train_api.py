"""The training half of the public C API through ctypes: enough to build the models of tests.

    m = Model()
    w = m.variable("w", np.zeros(3, np.float32))
    train = m.call("shoal_minimize", m.optimizer("shoal_sgd", 0.1), loss, m.call("shoal_global_step"))

m.call puts the graph first and checks the graph's error afterwards.
"""
import ctypes as C

import numpy as np

import shoal
from shoal import I, Out, P, S

D, B, L = C.c_double, C.c_bool, C.c_int64


class Var(C.Structure):
    _fields_ = [("handle", Out), ("value", Out)]


class Dims(C.Structure):
    _fields_ = [("rank", I), ("at", C.POINTER(L))]


class Optimizer(C.Structure):
    _fields_ = [("row", P), ("learning_rate", D), ("learning_rate_out", Out), ("a", D), ("b", D), ("c", D), ("d", D),
                ("nesterov", B)]


class LossScale(C.Structure):
    _fields_ = [("size", C.c_size_t), ("initial", D), ("increment_period", L), ("multiplier", D), ("fixed", B)]


class Setter(C.Structure):
    _fields_ = [("size", C.c_size_t), ("ps_tasks", I), ("ps_device", S), ("worker_device", S),
                ("ps_ops", C.POINTER(S)), ("by_bytes", B),
                ("no_merge", B)]


class Partitioner(C.Structure):
    _fields_ = [("kind", I), ("axis", I), ("parts", L), ("bytes", L)]


class Partitioned(C.Structure):
    _fields_ = [("parts", C.POINTER(Var)), ("n", I), ("axis", I)]


G, VARS, GRADS = P, C.POINTER(Var), C.POINTER(shoal.Gradient)
SIGNATURES = {
    "shoal_constant": (Out, G, P), "shoal_placeholder": (Out, G, I, Dims, S), "shoal_variable": (Var, G, S, Out),
    "shoal_init_zeros": (Out, G, I, Dims), "shoal_variable_untrained": (Var, G, S, Out),
    "shoal_variable_local": (Var, G, S, Out), "shoal_use_ref_variables": (None, G, B),
    "shoal_variable_assign": (P, G, Var, Out), "shoal_dense": (Out, G, Out, L, S),
    "shoal_initialize": (P, G), "shoal_initialize_local": (P, G), "shoal_reduce_mean": (Out, G, Out),
    "shoal_reduce_sum": (Out, G, Out), "shoal_global_step": (Var, G), "shoal_push_device": (None, G, S),
    "shoal_pop_device": (None, G), "shoal_push_scope": (None, G, S), "shoal_pop_scope": (None, G),
    "shoal_minimize": (P, G, Optimizer, Out, Var), "shoal_variables": (I, G, B, VARS, I),
    "shoal_compute_gradients": (I, G, Out, VARS, GRADS, I),
    "shoal_apply_gradients": (P, G, Optimizer, VARS, GRADS, I, Var),
    "shoal_average_gradients": (None, G, GRADS, I, I, GRADS),
    "shoal_save_variables": (P, G, Out), "shoal_restore_variables": (P, G, Out),
    "shoal_minimize_accumulated": (P, G, Optimizer, Out, Var, I),
    "shoal_minimize_scaled": (P, G, Optimizer, Out, Var, C.POINTER(LossScale)),
    "shoal_average_variables": (P, G, D, Out, VARS, I, P), "shoal_restore_averages": (P, G, Out),
    "shoal_exponential_decay": (Out, G, D, Out, D, D, B), "shoal_natural_exp_decay": (Out, G, D, Out, D, D, B),
    "shoal_inverse_time_decay": (Out, G, D, Out, D, D, B), "shoal_polynomial_decay": (Out, G, D, Out, D, D, D, B),
    "shoal_cosine_decay": (Out, G, D, Out, D, D), "shoal_cosine_decay_restarts": (Out, G, D, Out, D, D, D, D),
    "shoal_piecewise_constant": (Out, G, Out, C.POINTER(L), C.POINTER(D), I), "shoal_warmup": (Out, G, Out, Out, D),
    "shoal_push_replica_setter": (None, G, C.POINTER(Setter)),
    "shoal_fixed_partitioner": (Partitioner, L, I), "shoal_max_bytes_partitioner": (Partitioner, L, I, L),
    "shoal_min_bytes_partitioner": (Partitioner, L, I, L),
    "shoal_partition_count": (L, C.POINTER(Partitioner), I, Dims),
    "shoal_partitioned_variable": (Partitioned, G, S, I, Dims, C.POINTER(Partitioner), P, P),
    "shoal_partitioned_value": (Out, G, C.POINTER(Partitioned)),
    "shoal_partitioned_free": (None, C.POINTER(Partitioned)),
    "shoal_embedding_lookup": (Out, G, VARS, I, Out, S), "shoal_sparse_softmax_xent": (Out, G, Out, Out),
    "shoal_build": (P, G, S, S), "shoal_build_input": (None, P, Out), "shoal_build_type": (None, P, S, I),
    "shoal_build_end_out": (Out, P), "shoal_saver_new": (P, G, P), "shoal_saver_free": (None, P),
    "shoal_saver_save": (P, P, P, S, L, P),
}
OPTIMIZERS = {"shoal_sgd": 1, "shoal_momentum": 2, "shoal_nesterov": 2, "shoal_adam": 1, "shoal_adamw": 2,
              "shoal_adagrad": 1, "shoal_adagrad_da": 3, "shoal_adadelta": 1, "shoal_rmsprop": 1,
              "shoal_centered_rmsprop": 1, "shoal_ftrl": 1, "shoal_proximal_sgd": 3, "shoal_proximal_adagrad": 3,
              "shoal_keras_sgd": 2, "shoal_keras_adam": 1, "shoal_keras_adagrad": 1, "shoal_keras_ftrl": 1}


def lib():
    l = shoal.library()
    if not getattr(l, "has_training", False):
        for name, (result, *args) in SIGNATURES.items():
            fn = getattr(l, name)
            fn.restype, fn.argtypes = result, args
        for name, n in OPTIMIZERS.items():
            fn = getattr(l, name)
            fn.restype, fn.argtypes = Optimizer, [D] * n
        l.has_training = True
    return l


def dims(shape):
    return Dims(len(shape), (L * max(len(shape), 1))(*[-1 if d is None else d for d in shape]))


def optimizer(name, *args, **fields):
    o = getattr(lib(), name)(*args)
    for key, value in fields.items():
        setattr(o, key, value)
    return o


class Model(shoal.Graph):
    def call(self, name, *args):
        result = getattr(lib(), name)(self.handle, *[a.encode() if isinstance(a, str) else a for a in args])
        self.check()
        return result

    def constant(self, value):
        h = shoal.to_handle(np.asarray(value))
        out = self.call("shoal_constant", h)
        shoal.library().shoal_tensor_unref(h)
        return out

    def variable(self, name, value, maker="shoal_variable"):
        return self.call(maker, name, self.constant(value))

    def placeholder(self, name, dtype, shape):
        return self.call("shoal_placeholder", shoal.NUMBER[np.dtype(dtype)], dims(shape), name)

    def op(self, op, *inputs, **types):
        b = lib().shoal_build(self.handle, op.encode(), None)
        for i in inputs:
            lib().shoal_build_input(b, i)
        for name, t in types.items():
            lib().shoal_build_type(b, name.encode(), t)
        out = lib().shoal_build_end_out(b)
        self.check()
        return out

    def op_name(self, op):
        return shoal.library().shoal_op_name(op).decode()

    def device(self, name):
        """The device a node asks for, from the exported text."""
        text = self.export_text()
        node = text[text.index(f'name: "{name}"\n'):]
        node = node[:node.find("\nnode {")] if "\nnode {" in node else node
        return node.split('device: "')[1].split('"')[0] if 'device: "' in node else ""
