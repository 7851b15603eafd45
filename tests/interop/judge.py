"""Shoal's side of the op harness, which knows no TensorFlow: a question is a graph with what is fed and fetched, and what
TensorFlow answered (oracle.py asks it); check() asks Shoal the same and raises Failure where the answers differ.

Questions are of plain values alone, so that they can be kept in a file and asked again elsewhere: on the soft device,
under a sanitizer, without the seconds that TensorFlow takes for most of them.
"""
import os
import re
from dataclasses import dataclass

import numpy as np

import shoal

TOLERANCE = {"float32": 2e-5, "float64": 1e-11, "float16": 4e-3, "bfloat16": 2e-2, "complex64": 2e-5, "complex128": 1e-11}


class Failure(Exception):
    pass


@dataclass
class Run:
    tensors: list  # (name, what TensorFlow inferred of the shape: dimensions, None among them; None)
    ops: list      # names
    feeds: dict    # name: (array, number of the dtype)


@dataclass
class Values:
    """Runs in one session; of the last of `theirs` (code, message) where TensorFlow fails."""
    graph_def: bytes
    runs: list
    theirs: list
    error: str
    message: str
    tol: float
    only: list

    def check(self):
        compare_runs(self, run_shoal(self.graph_def, self.runs))


@dataclass
class Gradients:
    """Of ys, times dys, by xs, which are names; theirs are dense arrays, or None where there is no gradient."""
    graph_def: bytes
    ys: list
    xs: list
    dys: list
    feeds: dict
    refused: str
    theirs: list
    tol: float
    floor: float
    differences: bool

    def check(self):
        check_gradients(self)


def session(g):
    """In this process; or, with $SHOAL_TARGET, on a server, where it has its variables to itself."""
    target = os.environ.get("SHOAL_TARGET", "")
    return shoal.Session(g, target=target, isolate_session_state=bool(target), inter_op_threads=1, intra_op_threads=2)


def run_shoal(graph_def, runs):
    """For each run the arrays, or (code, message) in the last place; a graph that is refused counts as the first run's."""
    results = []
    try:
        g = shoal.Graph(graph_def)
        with session(g) as s:
            for r in runs:
                results.append(s.run([name for name, _ in r.tensors], r.feeds, r.ops))
                for (name, theirs), value in zip(r.tensors, results[-1]):
                    # Where TensorFlow is wrong too (a ref variable that changed its shape), nothing can be asked.
                    if shape_fits(theirs, value) and not shape_fits(g.shape(name), value):
                        raise Failure(f"{name}: inferred shape {g.shape(name)}, but the value has {value.shape}")
    except shoal.Error as e:
        results.append((e.code, e.message))
    return results


def shape_fits(inferred, value):
    return inferred is None or len(inferred) == value.ndim and all(d in (None, v) for d, v in zip(inferred, value.shape))


# ---- comparing ----

def plain(a):
    a = np.asarray(a, object if isinstance(a, bytes) else None)  # NumPy's own strings lose zeros at the end
    if a.dtype.names:
        a = a.view(a.dtype[0])
    if a.dtype.kind in "SU":
        a = a.astype(object)
    return a


def compare(what, ours, theirs, tol=None, floor=0):
    """Equal within tol of the largest value (of floor, if that is more)."""
    ours, theirs = plain(ours), plain(theirs)
    if ours.dtype != theirs.dtype:
        raise Failure(f"{what}: dtype {ours.dtype}, TensorFlow has {theirs.dtype}")
    if ours.shape != theirs.shape:
        raise Failure(f"{what}: shape {ours.shape}, TensorFlow has {theirs.shape}")
    name = ours.dtype.name
    if name not in TOLERANCE:
        same = ours == theirs
    elif tol == 0:
        same = ours.reshape(-1).view(np.uint8) == theirs.reshape(-1).view(np.uint8)
        same = same.reshape(-1, ours.itemsize).all(-1).reshape(ours.shape) | ((ours != ours) & (theirs != theirs))
    else:
        wide = np.complex128 if ours.dtype.kind == "c" else np.float64
        ours, theirs = ours.astype(wide), theirs.astype(wide)
        tol = TOLERANCE[name] if tol is None else tol
        finite = np.abs(theirs[np.isfinite(theirs)])
        atol = tol * max(finite.max() if finite.size and finite.max() > 0 else 1, floor)
        with np.errstate(invalid="ignore"):
            same = (np.abs(ours - theirs) <= atol + tol * np.abs(theirs)) | (ours == theirs)
        same |= (ours != ours) & (theirs != theirs)
    if not np.all(same):
        bad = np.argwhere(~np.asarray(same).reshape(ours.shape))
        at = tuple(bad[0])
        raise Failure(f"{what}: {len(bad)} of {ours.size} values differ, first at {tuple(map(int, at))}: "
                      f"{ours[at]!r}, TensorFlow has {theirs[at]!r}")


def is_error(result):
    return isinstance(result, tuple)


def told(error):
    return f"{shoal.code_name(error[0])}: {error[1]}"


def compare_runs(asked, ours):
    for i, theirs in enumerate(asked.theirs):
        where = f"run {i}: " if len(asked.runs) > 1 else ""
        a = ours[i] if i < len(ours) else None
        if is_error(theirs):
            if not is_error(a):
                raise Failure(f"{where}no error, TensorFlow has {told(theirs)}")
            if a[0] != theirs[0]:
                raise Failure(f"{where}{told(a)}\n  TensorFlow has {told(theirs)}")
            if asked.message and not re.search(asked.message, a[1]):
                raise Failure(f"{where}the error {a[1]!r} does not match {asked.message!r}; TensorFlow has {theirs[1]!r}")
            return
        if is_error(a):
            raise Failure(where + told(a))
        for k, ((name, _), x, y) in enumerate(zip(asked.runs[i].tensors, a, theirs)):
            if asked.only is None or k in asked.only:
                compare(where + name, x, y, asked.tol)


# ---- gradients ----

def dense(result):
    """A gradient as fetched: an array, or slices added up into one."""
    if not isinstance(result, tuple):
        return result
    values, indices, shape = result
    out = np.zeros(tuple(shape), np.asarray(values).dtype)
    np.add.at(out, indices, values)
    return out


def check_gradients(asked):
    try:
        g = shoal.Graph(asked.graph_def)
        names = g.gradients(asked.ys, asked.xs, asked.dys)
    except shoal.Error as e:
        if asked.refused:
            return
        raise Failure(f"shoal_gradients: {told((e.code, e.message))}")
    if asked.refused:
        raise Failure(f"TensorFlow refuses this gradient ({asked.refused}); Shoal gives {names}")
    for x, a, b in zip(asked.xs, names, asked.theirs):
        if (a is None) != (b is None):
            raise Failure(f"gradient of {x}: {a}, TensorFlow has {b}")
    with session(g) as s:
        try:
            ours = run_gradients(s, names, asked)
        except shoal.Error as e:
            raise Failure(f"gradient: {told((e.code, e.message))}")
        for x, a, b in zip(asked.xs, ours, asked.theirs):
            if a is not None:
                compare(f"gradient of {x}", a, b, asked.tol or None, asked.floor)
        if asked.differences:
            check_differences(s, asked, ours)


def run_gradients(s, names, asked):
    flat = [n for a in names if a for n in (a if isinstance(a, tuple) else (a,)) if n]
    fed = {name: v for name, (v, _) in asked.feeds.items()}  # what is fed cannot be fetched: indices of slices
    ran = iter(s.run([n for n in flat if n not in fed], asked.feeds))
    got = iter([fed[n] if n in fed else next(ran) for n in flat])
    ours = []
    for a, x in zip(names, asked.xs):
        if a is None:
            ours.append(None)
        elif isinstance(a, tuple):
            ours.append(dense((next(got), next(got), next(got) if a[2] else fed[x].shape)))
        else:
            ours.append(next(got))
    return ours


def check_differences(s, asked, grads):
    """One random direction tells as much as all elements: <gradient, v> against the change of <dy, y> along v."""
    rng, h = np.random.default_rng(11), 1e-5
    along = {x: rng.uniform(-1, 1, asked.feeds[x][0].shape) for x, d in zip(asked.xs, grads)
             if d is not None and asked.feeds[x][0].dtype == np.float64}
    if not along:
        return

    def value(sign):
        moved = {x: (v + sign * h * along[x] if x in along else v, dtype) for x, (v, dtype) in asked.feeds.items()}
        out = s.run(asked.ys + asked.dys, moved)
        return sum(float(np.sum(y * d)) for y, d in zip(out, out[len(asked.ys):]) if y.dtype == np.float64)

    slope = (value(1) - value(-1)) / (2 * h)
    expect = sum(float(np.sum(d * along[x])) for x, d in zip(asked.xs, grads) if x in along)
    scale = sum(float(np.sum(np.abs(d * along[x]))) for x, d in zip(asked.xs, grads) if x in along)
    if abs(slope - expect) > 1e-4 * max(scale, 1e-3):
        raise Failure(f"finite differences give {slope}, the gradient {expect}")
