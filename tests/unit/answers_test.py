"""TensorFlow's answers to op cases, kept (tests/interop/answers.py): given again as they were, a Failure as one; those of
other cases are not used; a child that goes on after a crash leaves a mark where one is missing. And the harness' children
that end without a word are told of, and gone on after."""
# needs: tensorflow
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "interop"))
import tap


def kept(modes=("compare", "grad")):
    import answers
    return list(answers.kept(CASES, modes))


def keep(before=0, finish=True):
    import answers
    k = answers.Keeper(CASES, before)
    if not before:
        k.keep("compare", "a", 5)
        k.keep("grad", "a", None)
        k.keep("compare", "b", answers.Failure("as it was"))
    if finish:
        k.finish()


def refused(call, text):
    from judge import Failure
    try:
        call()
    except Failure as e:
        assert text in str(e), e
    else:
        raise AssertionError("nothing was refused")


def test_given_again():
    keep()
    both = kept()
    assert [(m, n) for m, n, _ in both] == [("compare", "a"), ("grad", "a"), ("compare", "b")], both
    assert both[0][2]() == 5 and both[1][2]() is None
    refused(both[2][2], "as it was")
    assert [m for m, _, _ in kept(["grad"])] == ["grad"]


def test_one_of_each():
    """Of a row one dtype, of an op one row; what there is nothing to ask of is not chosen."""
    import harness
    rows = [f"Add {dtype} x={shape}" for shape in (2, 3) for dtype in ("float32", "int8")] + ["a queue float32", "a queue bool"]
    todo = [("compare", name, lambda: 1) for name in rows] + [("grad", name, lambda n=name: 1 if "float" in n else None) for name in rows]
    for what, of in (("row", ["Add x=2", "Add x=3", "a queue"]), ("op", ["Add", "a queue"])):
        found = harness.chosen(todo, what)
        assert [(m, harness.one_of(what, n)) for m, n, _ in found] == [(m, n) for m in ("compare", "grad") for n in of], found
        assert all(name in rows and ("float" in name or mode == "compare") for mode, name, _ in found), found


def test_of_other_cases():
    import answers
    keep()
    assert answers.fresh(CASES)
    with open(CASES, "a") as f:
        f.write("# another case\n")
    assert not answers.fresh(CASES)
    refused(kept, "not in")


def test_cut_files():
    import answers
    with open(answers.place(CASES), "wb") as f:
        f.write(b"\x80\x04\x95")
    assert not answers.fresh(CASES)


def test_after_a_crash():
    keep(finish=False)
    keep(before=4)
    refused(kept()[3][2], "ended the process")


def children(child):
    """What a file's run by such children is told as: (name, result) of each."""
    import harness
    harness.run_child = child
    told, w = [], harness.Worker("some.py", None)
    report = lambda path, m: told.append((m["name"], m["result"]))
    while True:
        for m in w.lines():
            if m is None and w.finish(report):
                return told
            if m and "result" in m:
                report(w.path, m)


def say(pipe, n):
    for more in ({}, {"result": "pass"}):
        os.write(pipe, (json.dumps({"n": n, "name": f"case {n}", **more}) + "\n").encode())


def test_a_child_ends_between_cases():
    def child(path, args, first, pipe):
        for n in range(first, 3):
            say(pipe, n)
            if n == 1:
                os._exit(9)
        os._exit(0)
    told = children(child)
    assert told == [("case 0", "pass"), ("case 1", "pass"), ("before case 2", "fail"), ("case 2", "pass")], told


def test_a_child_comes_to_no_case():
    told = children(lambda path, args, first, pipe: os.abort())
    assert told == [("before case 0", "fail")], told


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHOAL_ANSWERS"] = folder
        CASES = os.path.join(folder, "some.py")
        with open(CASES, "w") as f:
            f.write("# cases\n")
        tap.main(globals())
