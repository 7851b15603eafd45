"""Estimators (shoal/estimator.h) through ctypes.

    e = Canned(LINEAR, columns, model_dir, classes=2, linear=[age])
    e.train(table(features, labels, batch=4), max_steps=10)
    e.evaluate(...) -> dict;  e.predict(...) -> list of dicts;  e.export(base, receiver) -> path
"""
import ctypes as C

import numpy as np

import shoal
import train_api as api
from columns_api import STRING, dims, given, options, pointers
from shoal import I, Out, P, PP, S
from train_api import B, D, G, L, Optimizer

LINEAR, DNN, DNN_LINEAR, BASELINE = range(4)
TRAIN, EVAL, PREDICT = range(3)
INPUT = C.CFUNCTYPE(None, P, I, P, P)
PREDICTED = C.CFUNCTYPE(P, C.POINTER(S), PP, I, P)

RunConfig = options(("model_dir", S), ("save_steps", L), ("save_secs", D), ("keep_checkpoints", I),
                    ("keep_every_hours", D), ("summary_steps", L), ("log_steps", L), ("seed", L), ("tf_config", S),
                    ("strategy", I), ("devices", I), ("warm_start", S), ("warm_start_vars", S), ("session", P),
                    ("max_wait_secs", D), ("progress", P), ("device", S))
EarlyStopping = options(("rule", I), ("metric", S), ("target", D), ("patience", L), ("min_steps", L), ("eval_name", S),
                        ("every_secs", D))
TrainSpec = options(("input", INPUT), ("arg", P), ("max_steps", L), ("steps", L), ("hooks", P), ("n_hooks", I),
                    ("early_stopping", C.POINTER(EarlyStopping)))


class Exporter(C.Structure):
    _fields_ = [("kind", I), ("name", S), ("receiver", INPUT), ("arg", P), ("keep", I), ("metric", S), ("larger", B)]


EvalSpec = options(("input", INPUT), ("arg", P), ("steps", L), ("name", S), ("checkpoint", S),
                   ("start_delay_secs", D), ("throttle_secs", D), ("exporters", C.POINTER(Exporter)),
                   ("n_exporters", I), ("exporter_size", C.c_size_t))
PredictSpec = options(("input", INPUT), ("arg", P), ("predicted", PREDICTED), ("predicted_arg", P), ("checkpoint", S))
CannedOptions = options(("classes", L), ("linear_columns", PP), ("n_linear_columns", I), ("dnn_columns", PP),
                        ("n_dnn_columns", I), ("hidden_units", C.POINTER(L)), ("n_hidden_units", I),
                        ("linear_optimizer", C.POINTER(Optimizer)), ("dnn_optimizer", C.POINTER(Optimizer)),
                        ("dropout", D), ("label_dimension", L), ("weight_feature", S), ("linear_combiner", S),
                        ("mean_loss", B), ("keras", B))
OUTS = C.POINTER(Out)
api.SIGNATURES.update({
    "shoal_canned_new": (P, I, P, P, PP), "shoal_estimator_free": (None, P), "shoal_estimator_train": (P, P, P),
    "shoal_estimator_evaluate": (P, P, P, PP), "shoal_estimator_predict": (P, P, P),
    "shoal_estimator_export": (P, P, S, INPUT, P, C.POINTER(P)), "shoal_train_and_evaluate": (P, P, P, P),
    "shoal_results_free": (None, P), "shoal_results_count": (I, P), "shoal_results_name": (S, P, I),
    "shoal_results_value": (D, P, S), "shoal_inputs_feature": (None, P, S, Out), "shoal_inputs_labels": (None, P, Out),
    "shoal_example_receiver": (None, P, I, P, P), "shoal_dataset_tensor_slices": (Out, G, OUTS, I),
    "shoal_dataset_batch": (Out, G, Out, L, B), "shoal_dataset_repeat": (Out, G, Out, L),
    "shoal_dataset_next": (P, G, Out, OUTS, I, P),
})


def table(features, labels=None, batch=4, repeat=1):
    """An input function over arrays, in their order."""
    def build(g, mode, inputs, arg):
        lib = api.lib()
        arrays = list(features.items()) + ([] if labels is None else [(None, labels)])
        parts = (Out * len(arrays))()
        for i, (_, a) in enumerate(arrays):
            h = shoal.to_handle(np.asarray(a))
            parts[i] = lib.shoal_constant(g, h)
            shoal.library().shoal_tensor_unref(h)
        d = lib.shoal_dataset_tensor_slices(g, parts, len(arrays))
        d = lib.shoal_dataset_repeat(g, lib.shoal_dataset_batch(g, d, batch, False), repeat)
        outs = (Out * len(arrays))()
        lib.shoal_dataset_next(g, d, outs, len(arrays), None)
        for (name, _), o in zip(arrays, outs):
            if name is None:
                lib.shoal_inputs_labels(inputs, o)
            else:
                lib.shoal_inputs_feature(inputs, name.encode(), o)
    return INPUT(build)


def check(status):
    if status:
        error = shoal._to_error(status)
        shoal.library().shoal_status_free(status)
        raise error


class Canned:
    def __init__(self, kind, model_dir, linear=(), dnn=(), hidden=(), optimizers=(None, None), config=None, **kw):
        lin, deep = (C.pointer(o) if o else None for o in optimizers)
        o = given(CannedOptions, linear_columns=pointers(linear), n_linear_columns=len(linear),
                  dnn_columns=pointers(dnn), n_dnn_columns=len(dnn), hidden_units=(L * max(len(hidden), 1))(*hidden),
                  n_hidden_units=len(hidden), linear_optimizer=lin, dnn_optimizer=deep, **kw)
        c = given(RunConfig, **{"model_dir": model_dir, "tf_config": "", **(config or {})})
        self.handle, self.kept = P(), (o, c)
        check(api.lib().shoal_canned_new(kind, C.byref(o), C.byref(c), C.byref(self.handle)))

    def close(self):
        api.lib().shoal_estimator_free(self.handle)

    def train(self, input, early=None, **kw):
        e = C.pointer(given(EarlyStopping, **early)) if early else None
        check(api.lib().shoal_estimator_train(self.handle, C.byref(given(TrainSpec, input=input, early_stopping=e, **kw))))

    def evaluate(self, input, **kw):
        lib, r = api.lib(), P()
        check(lib.shoal_estimator_evaluate(self.handle, C.byref(given(EvalSpec, input=input, **kw)), C.byref(r)))
        names = [lib.shoal_results_name(r, i) for i in range(lib.shoal_results_count(r))]
        got = {n.decode(): lib.shoal_results_value(r, n) for n in names}
        lib.shoal_results_free(r)
        return got

    def train_and_evaluate(self, train, evaluate, early=None, exporters=(), max_steps=0, **kw):
        e = C.pointer(given(EarlyStopping, **early)) if early else None
        x = (Exporter * max(len(exporters), 1))(*exporters)
        check(api.lib().shoal_train_and_evaluate(
            self.handle, C.byref(given(TrainSpec, input=train, max_steps=max_steps, early_stopping=e)),
            C.byref(given(EvalSpec, input=evaluate, exporters=x, n_exporters=len(exporters),
                          exporter_size=C.sizeof(Exporter), **kw))))

    def predict(self, input):
        batches = []

        def got(names, values, n, arg):
            batches.append({names[i].decode(): shoal.from_handle(P(values[i])) for i in range(n)})
            return None
        check(api.lib().shoal_estimator_predict(self.handle, C.byref(given(PredictSpec, input=input,
                                                                          predicted=PREDICTED(got)))))
        return batches

    def export(self, base, receiver, arg=None):
        path = P()
        check(api.lib().shoal_estimator_export(self.handle, base.encode(), receiver, arg, C.byref(path)))
        return C.string_at(path.value).decode()
