"""What TensorFlow answered to the cases of the op harness, kept in the build folder for those who ask Shoal once more: on
the soft device, under sanitizers. One file for each file of cases: a head, then (mode, name, question) of each case in
order, or its Failure where TensorFlow did not do what the case says. All pickled, and read by the same sources only: the head
has a key of all that the answers depend on, but for the machine. Who runs the op harness as a whole makes them anew.

Files that cases make for their graphs to read are kept as well, in a folder beside, which the head names.
"""
import contextlib
import fcntl
import glob
import hashlib
import importlib.metadata
import os
import pickle
import platform
import shutil
import tempfile

from judge import Failure

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.environ.get("SHOAL_ANSWERS") or os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "answers")


def place(path):
    return os.path.join(FOLDER, os.path.basename(path)[:-3] + ".pickle")


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


# As they are when they are imported: a harness at work does not see what is changed under it.
SHARED = [digest(p) for p in [*(os.path.join(HERE, n + ".py") for n in ("answers", "judge", "oracle")),
                              *sorted(glob.glob(f"{HERE}/*cases.py"))]]


def version(*names):
    """Of a package that goes by one of these names."""
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def key(path):
    said = [version("tensorflow", "tensorflow-cpu"), version("numpy")]  # the second on x86_64: tools/deps.sh
    said += [platform.machine(), FOLDER, *SHARED, digest(path)]
    return hashlib.sha256(repr(said).encode()).hexdigest()


@contextlib.contextmanager
def lock():
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, "lock"), "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def head(path):
    """{"key", "files"} of what is kept; of nothing, nothing fits."""
    try:
        with open(place(path), "rb") as f:
            return pickle.load(f)
    except (OSError, EOFError, pickle.UnpicklingError):
        return {"key": None, "files": None}


def fresh(path):
    return head(path)["key"] == key(path)


def kept(path, modes):
    """(mode, name, question) of each case, the question as a function."""
    if not fresh(path):
        raise Failure(f"TensorFlow's answers are not in {place(path)}")
    with open(place(path), "rb") as f:
        pickle.load(f)
        while True:
            try:
                mode, name, question = pickle.load(f)
            except EOFError:
                return
            if mode in modes:
                yield mode, name, lambda q=question: given(q)


def given(question):
    if isinstance(question, Failure):
        raise question
    return question


def nothing(question):
    """Is there nothing to ask: no gradient, say?"""
    try:
        return question() is None
    except Failure:
        return False


class Keeper:
    """Of one file, for the child of a harness that runs it. One that goes on after a crash says how many came before."""

    def __init__(self, path, before):
        os.makedirs(FOLDER, exist_ok=True)
        self.path, self.part = path, f"{place(path)}.{os.getppid()}"
        if not before:
            files = tempfile.mkdtemp(prefix=os.path.basename(path)[:-3] + "-", dir=FOLDER)
            with open(self.part, "wb") as f:
                pickle.dump({"key": key(path), "files": files}, f)
        with open(self.part, "rb") as f:
            tempfile.tempdir = pickle.load(f)["files"]
            there = 0
            while before:
                try:
                    pickle.load(f)
                    there += 1
                except EOFError:
                    break
        self.file = open(self.part, "ab")
        for _ in range(there, before):
            self.keep("compare", "a case", Failure("TensorFlow ended the process"))

    def keep(self, mode, name, question):
        pickle.dump((mode, name, question), self.file)
        self.file.flush()

    def finish(self):
        old = head(self.path)["files"]
        os.replace(self.part, place(self.path))
        if old:
            shutil.rmtree(old, ignore_errors=True)
