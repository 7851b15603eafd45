"""Random programs of collectives, each with what it must give; collective_stress_test.py runs them.

  Group     devices in order of rank, and the key they meet by
  Instance  one collective of a group: op, type, shape, how it is asked for; values() is what a rank brings in a turn, wanted()
            what each must get
  Block     instances that stand in a graph together: with edges among them, in a loop, in a branch, behind communicators
  Program   blocks, and plans: subsets of what is in them that may be run by themselves

Turns are numbers that each step is fed, so that a value of another step is a wrong one. Results are compared by their bits, in
the order of each sum (docs/algorithms.md, "The order of a sum")."""
import functools
import random

import numpy as np
import tensorflow.compat.v1 as tf

RAW = tf.raw_ops
BF16 = tf.bfloat16.as_numpy_dtype
REDUCED = (np.float32, np.float64, np.float16, BF16, np.int32, np.int64)
GATHERED = (np.float32, np.float64, np.float16, np.int32, np.int64)
SENT = (*GATHERED, np.bool_)
TURNS, TABLE = 3, 499
HINTS = {"reduce": ("central", "direct", "tree", "halving", "ring", "hierarchical"), "gather": ("direct", "ring"),
         "broadcast": ("central", "tree", "direct"), "scatter": ("direct",), "all to all": ("direct",)}


def kept(method):
    """What a method gives is computed once for each object and argument, and goes with the object."""
    @functools.wraps(method)
    def call(self, at):
        key = method.__name__, at
        if key not in self.known:
            self.known[key] = method(self, at)
        return self.known[key]
    return call


class Group:
    """ours: all its members are Shoal's; led: so is its leader, and ops are legal that TensorFlow has for cards alone."""

    def __init__(self, key, places, kinds):
        self.key, self.places, self.size = key, places, len(places)
        self.ours = all(kinds[t] == "shoal" for t, _ in places)
        self.led = self.ours and kinds[0] == "shoal"
        self.rows = None  # of CollectiveAssignGroupV2: the rank's place in the matrix, the matrix, the first key

    def tasks(self):
        return {t for t, _ in self.places}


class Instance:
    def __init__(self, r, group, key, gen, op=None, size=None):
        self.group, self.key, self.gen, self.seed, self.known = group, key, gen, r.getrandbits(31), {}
        ops = ["reduce"] * 4 + ["all to all"] if gen == 3 else ["reduce"] * 5 + ["gather", "gather", "broadcast", "broadcast"]
        if gen == 2:
            ops += ["all to all"] + ["scatter"] * group.led
        self.op = op or r.choice(ops)
        self.dtype = r.choice({"gather": GATHERED, "broadcast": SENT}.get(self.op, REDUCED))
        self.shape = self.some_shape(r, size)
        self.merge, self.final = r.choice(("Add", "Add", "Add", "Max", "Min", "Mul")), r.choice(("Id", "Id", "Div"))
        if self.gen == 3:
            self.final = "Id"
        self.source = r.randrange(group.size)
        self.whole = r.random() < 0.5
        self.timeout = r.choice((0, 0, 0, 90, 1000))
        self.hint = self.some_hint(r)

    def some_shape(self, r, size):
        g, op = self.group.size, self.op
        n = size if size is not None else r.choice((0, 1, 1, 2, 3, 7, 64, 257, 1003, 4096, 4097, 20011, r.randrange(1, 3000)))
        if n == 0 and not self.group.ours:
            n = 1  # TensorFlow's rings are not made for it
        if op == "all to all":
            return r.choice(([g, n], [g, n, 1])) if n != 1 else [g]
        if op == "scatter":
            return [g * n] if r.random() < 0.5 else [g, n]
        if n == 1 and op != "gather" and r.random() < 0.5:
            return []
        if n == 0:
            return r.choice(([0], [0, 3], [3, 0, 2])) if op != "gather" else r.choice(([0], [0, 3]))
        return r.choice(([n], [1, n], [n, 1], [n, 2] if n < 5000 else [n]))

    def some_hint(self, r):
        if self.gen == 3:
            return "auto"
        if not self.group.ours:
            return r.choice(("auto", "ring", "shoal:direct" if self.op == "reduce" else "auto"))
        if self.op == "reduce" and self.dtype is np.float32 and self.merge == "Add" and r.random() < 0.3:
            return "shoal:bf16"
        return r.choice(("auto", "auto", "auto", "ring", "nccl", *("shoal:" + h for h in HINTS[self.op])))

    def elements(self):
        return int(np.prod(self.shape, dtype=np.int64))

    @kept
    def table(self, rank):
        """A row for each turn, of which values are made by repeating it."""
        g = np.random.RandomState((self.seed + rank) % (1 << 31))
        n = max(min(self.elements(), TABLE), 1)
        if self.dtype is np.bool_:
            return g.randint(0, 2, (TURNS, n)).astype(np.bool_)
        if self.merge == "Mul" and self.op in ("reduce", "scatter"):
            x = g.choice([-1, 1, 2], (TURNS, n)) if self.whole or self.dtype in (np.int32, np.int64) else g.uniform(0.5, 1.5, (TURNS, n))
        else:
            x = g.randint(-9, 10, (TURNS, n)) if self.whole else g.uniform(-100, 100, (TURNS, n))
        return x.astype(self.dtype)

    def values(self, rank, turn):
        row = self.table(rank)[turn % TURNS]
        n = self.elements()
        return np.tile(row, -(-n // len(row)))[:n].reshape(self.shape)

    def merge_two(self, a, b):
        with np.errstate(all="ignore"):
            return {"Add": np.add, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum}[self.merge](a, b)

    def merged(self, x):
        return self.in_ring(x) if self.is_ring() else self.in_pairs(x)

    def in_pairs(self, x):
        if len(x) == 1:
            return x[0]
        h = 1 << (len(x) - 1).bit_length() - 1
        return self.merge_two(self.in_pairs(x[:h]), self.in_pairs(x[h:]))

    def is_ring(self):
        return self.op == "reduce" and (not self.group.ours or self.hint == "shoal:ring" and len(self.group.tasks()) > 1)

    def in_ring(self, x):
        """Pieces of the next multiple of 64 bytes, of which each begins at its own rank."""
        flat, size = [v.reshape(-1) for v in x], np.dtype(self.dtype).itemsize
        each = (-(-flat[0].size // len(x)) * size // 64 + 1) * 64 // size
        pieces = [functools.reduce(self.merge_two, [v[c * each:(c + 1) * each] for v in flat[c:] + flat[:c]]) for c in range(len(x))]
        return np.concatenate(pieces).reshape(x[0].shape)

    def reduced(self, x):
        rounds = self.hint == "shoal:bf16" and self.group.size > 1
        near = lambda v: v.astype(BF16).astype(np.float32) if rounds else v
        total = self.merged([near(v) for v in x])
        if self.final == "Div":
            if self.dtype in (np.int32, np.int64):
                total = np.sign(total) * (np.abs(total) // self.group.size)
            else:
                total = total / np.asarray(self.group.size, self.dtype)
        return near(np.asarray(total).astype(self.dtype))

    @kept
    def wanted(self, turn):
        g, x = self.group.size, [self.values(r, turn) for r in range(self.group.size)]
        if self.op == "reduce":
            return [self.reduced(x)] * g
        if self.op == "gather":
            return [np.concatenate(x)] * g
        if self.op == "broadcast":
            return [x[self.source]] * g
        if self.op == "scatter":
            return np.split(self.reduced(x), g)
        return [np.stack([v[r] for v in x]) for r in range(g)]

    def check(self, rank, turn, got):
        want = self.wanted(turn % TURNS)[rank]
        assert got.dtype == want.dtype and got.shape == want.shape, (str(self), rank, got.dtype, got.shape, want.shape)
        assert got.tobytes() == want.tobytes(), f"{self}, rank {rank}, turn {turn}: {self.difference(got, want)}"

    def difference(self, got, want):
        at = np.flatnonzero(got.reshape(-1) != want.reshape(-1))
        found = [t for t in range(TURNS) if any(got.shape == w.shape and got.tobytes() == w.tobytes() for w in self.wanted(t))]
        return (f"{len(at)} of {got.size} elements differ, from {at[:1]} on: {got.reshape(-1)[at[:4]]}, not {want.reshape(-1)[at[:4]]}; "
                f"it is what turns {found} give")

    def __str__(self):
        return (f"{self.op} V{self.gen} group {self.group.key} {self.group.places} instance {self.key} {np.dtype(self.dtype).name} "
                f"{self.shape} {self.merge},{self.final} hint {self.hint} source {self.source}")


class Block:
    """kind: plain, loop (runs times), branch (instances before `half` in one, the others in the other), communicators"""

    def __init__(self, kind, instances):
        self.kind, self.instances, self.edges = kind, instances, {}  # (index, rank): [(index, rank)] that it comes after
        self.shuffled, self.tokens, self.runs, self.half, self.parallel = None, False, 1, 0, 1

    def needs(self, chosen):
        """What is to be run so that those may be: all members of all that any member comes after."""
        chosen, todo = set(chosen), list(chosen)
        before = {}
        for (i, _), others in self.edges.items():
            before.setdefault(i, set()).update(j for j, _ in others)
        while todo:
            for j in before.get(todo.pop(), ()):
                if j not in chosen:
                    chosen.add(j)
                    todo.append(j)
        return chosen


def order(r, block, how):
    """Edges that agree with the order of the block's list, so that it can end."""
    last, earlier = {}, []
    for i, x in enumerate(block.instances):
        for rank, place in enumerate(x.group.places):
            if how == "chain" and place in last:
                block.edges[i, rank] = [last[place]]
            elif how == "some" and place in last and r.random() < 0.5:
                block.edges[i, rank] = [last[place]]
            elif how == "across" and earlier and r.random() < 0.4:
                block.edges[i, rank] = r.sample(earlier, min(len(earlier), r.randrange(1, 3)))
        for rank, place in enumerate(x.group.places):
            last[place] = (i, rank)
        earlier += [(i, rank) for rank in range(x.group.size)]


class Program:
    def __init__(self, r, kinds, devices, keys, most=None, plain=False):
        """kinds: of the cluster's tasks; devices: of each; keys: where those of groups come from."""
        self.places = [(t, d) for t in range(len(kinds)) for d in range(devices)]
        self.r, self.kinds, self.keys = r, kinds, keys
        self.groups = [self.some_group() for _ in range(r.randrange(1, 5))]
        if r.random() < 0.2 and not plain:
            self.groups += self.assigned()
        self.instance_key = 0
        many = most or r.choice((4, 10, 10, 30, 30, 60, 150))
        budget = [6 << 20]
        self.blocks = [self.plain_block(budget, many)]
        # Loops over several devices of TensorFlow's tasks are refused by some of these when they get their part ("Invalid
        # Exit op"); whose fault that is has not been found.
        if not plain and r.random() < 0.35 and ("tf" not in kinds or devices == 1):
            self.blocks.append(self.loop())
        if not plain and r.random() < 0.35:
            self.blocks.append(self.branch())
        if not plain and r.random() < 0.3 and kinds[0] == "shoal":
            self.blocks.append(self.communicators())
        self.plans = self.some_plans()
        self.slow = {(b, i, rank): r.choice((60, 150, 300)) for b, block in enumerate(self.blocks) if block.kind == "plain"
                     for i, x in enumerate(block.instances) for rank in range(x.group.size) if r.random() < 0.04}

    def some_group(self):
        size = min(self.r.choice((1, 2, 2, 2, 3, 3, 4, 4, 6, 8, 12)), len(self.places))
        if self.r.random() < 0.3:
            size = len(self.places)
        places = sorted(self.r.sample(self.places, size))
        return Group(next(self.keys), places, self.kinds)

    def assigned(self):
        """Two groups of one size, by a matrix of ranks."""
        size = min(len(self.places) // 2, self.r.randrange(1, 4))
        if not size:
            return []
        mixed = self.r.sample(self.places, 2 * size)
        rows = [sorted(mixed[:size]), sorted(mixed[size:])]
        matrix = np.arange(2 * size, dtype=np.int32).reshape(2, size)
        groups, first = [], next(self.keys)
        next(self.keys)
        for k, places in enumerate(rows):
            g = Group(first + k, places, self.kinds)
            g.rows = (matrix[k], matrix, first)
            groups.append(g)
        return groups

    def some_instance(self, gen=None, group=None, **how):
        self.instance_key += 1
        group = group or self.r.choice(self.groups)
        return Instance(self.r, group, self.instance_key, 2 if group.rows else gen or self.r.choice((1, 2)), **how)

    def plain_block(self, budget, many):
        instances = []
        for _ in range(many):
            size = None
            if self.r.random() < 0.05:
                size = self.r.choice((65537, 200001, 524288, 700001))
            x = self.some_instance(size=size)
            bytes_ = x.elements() * np.dtype(x.dtype).itemsize * x.group.size * (x.group.size if x.op == "gather" else 1)
            if bytes_ > budget[0]:
                x.shape = x.some_shape(self.r, 7)
            budget[0] -= min(bytes_, budget[0])
            instances.append(x)
        block = Block("plain", instances)
        block.tokens = self.r.random() < 0.3
        order(self.r, block, self.r.choice(("none", "none", "chain", "some", "across")))
        block.shuffled = self.r.random() < 0.5
        return block

    def loop(self):
        block = Block("loop", [self.some_instance(size=self.r.choice((1, 7, 1003))) for _ in range(self.r.randrange(1, 6))])
        block.runs, block.parallel = self.r.randrange(1, 6), self.r.choice((1, 10))
        if "tf" in self.kinds:
            block.parallel = 1  # a kernel of TensorFlow's is in one collective at a time
        order(self.r, block, self.r.choice(("none", "chain", "some")))
        return block

    def branch(self):
        block = Block("branch", [self.some_instance(size=self.r.choice((1, 7, 1003))) for _ in range(self.r.randrange(2, 8))])
        block.half = self.r.randrange(1, len(block.instances))
        order(self.r, block, "none")
        return block

    def communicators(self):
        """Ranks that are claimed, in any order; each is begun once, and its collectives are numbered as they come."""
        able = [p for p in self.places if self.kinds[p[0]] == "shoal"]  # TensorFlow's tasks tell others of no ranks
        group = Group(next(self.keys), self.r.sample(able, min(len(able), self.r.randrange(2, 6))), self.kinds)
        block = Block("communicators", [self.some_instance(3, group, size=self.r.choice((0, 1, 7, 1003))) for _ in range(self.r.randrange(1, 5))])
        order(self.r, block, "chain")
        return block

    def some_plans(self):
        """Lists of (block, index); which are run once only."""
        plans, once = [[(b, i) for b, block in enumerate(self.blocks) if block.kind != "communicators" for i in range(len(block.instances))]], set()
        for _ in range(self.r.randrange(0, 4)):
            plan = []
            for b, block in enumerate(self.blocks):
                n = len(block.instances)
                if block.kind == "communicators" or self.r.random() < 0.3:
                    continue
                chosen = range(n) if block.kind != "plain" else block.needs(self.r.sample(range(n), self.r.randrange(1, n + 1)))
                plan += [(b, i) for i in sorted(chosen)]
            if plan:
                plans.append(plan)
        for b, block in enumerate(self.blocks):
            if block.kind == "communicators":
                once.add(len(plans))
                plans.append([(b, i) for i in range(len(block.instances))])
        self.once = once
        return plans


class Built:
    """The part of a program that some tasks have, as a graph. bent: what a member has else than the program says, by
    (block, index, rank)."""

    def __init__(self, program, tasks, bent=None, r=None):
        self.program, self.tasks, self.bent = program, tasks, bent or {}
        self.r = r or random.Random(1)
        self.graph, self.out = tf.Graph(), {}  # (block, index, rank): what it gets
        with self.graph.as_default():
            self.turn = tf.placeholder(tf.int32, [], "turn")
            self.way = tf.placeholder(tf.bool, [], "way")
            self.ready = tf.constant(True)
            self.tokens = {}
            for b, block in enumerate(program.blocks):
                {"plain": self.plain, "loop": self.loop, "branch": self.branch, "communicators": self.communicators}[block.kind](b, block)

    def members(self, block, among=None):
        at = [(i, rank) for i, x in enumerate(block.instances) for rank, (task, _) in enumerate(x.group.places)
              if task in self.tasks and (among is None or i in among)]
        if not block.shuffled:
            return at
        return self.r.sample(at, len(at))

    def device(self, x, rank):
        task, cpu = x.group.places[rank]
        return tf.device(f"/job:worker/replica:0/task:{task}/device:CPU:{cpu}")

    def brought(self, x, rank, turn, bent):
        table = tf.constant(x.table(rank))
        row, n = tf.gather(table, (turn + bent.get("past", 0)) % TURNS + bent.get("fails", 0)), x.elements()
        if n > TABLE:
            row = tf.tile(row, [-(-n // TABLE)])
        value = tf.reshape(row[:n], bent.get("shape", x.shape) if np.prod(bent.get("shape", x.shape)) == n else x.shape)
        if "shape" in bent and np.prod(bent["shape"]) != n:
            value = tf.fill(bent["shape"], tf.cast(turn, value.dtype))
        return tf.cast(value, bent["dtype"]) if "dtype" in bent else value

    def slow(self, k):
        a = tf.fill([k, k], tf.cast(self.turn, tf.float32) * 1e-3)
        for _ in range(6):
            a = tf.matmul(a, a)
        return a

    def token(self, block, x, rank):
        if not block.tokens:
            return []
        at = x.group.places[rank]
        if at not in self.tokens:
            with tf.control_dependencies(None):  # else all who have it come after what the first of them does
                self.tokens[at] = RAW.VarHandleOp(dtype=tf.float32, shape=[], shared_name=f"token_{at[0]}_{at[1]}")
        return [self.tokens[at]]

    def member(self, block, x, rank, value, bent, communicator=None):
        op, keys = bent.get("op", x.op), {"group_size": bent.get("size", x.group.size), "group_key": x.group.key,
                                          "instance_key": x.key}
        if x.gen == 3:
            at = dict(communicator=communicator, group_assignment=tf.zeros([0, 0], tf.int32), timeout_seconds=x.timeout)
            if op == "reduce":
                return RAW.CollectiveReduceV3(input=value, reduction=bent.get("merge", x.merge), **at)
            return RAW.CollectiveAllToAllV3(input=value, **at)
        how = {"communication_hint": bent.get("hint", x.hint), "timeout_seconds": bent.get("timeout", x.timeout)}
        sums = {"merge_op": bent.get("merge", x.merge), "final_op": bent.get("final", x.final)}
        sends = bent.get("sends", rank == x.source)
        if x.gen == 1:
            how.update(keys)
            if op == "reduce":
                return RAW.CollectiveReduce(input=value, subdiv_offsets=[0], **sums, **how)
            if op == "gather":
                return RAW.CollectiveGather(input=value, shape=[0], **how)
            if sends:
                return RAW.CollectiveBcastSend(input=value, shape=value.shape, **how)
            return RAW.CollectiveBcastRecv(T=value.dtype, shape=value.shape, **how)
        how.update({k: tf.constant(v) for k, v in keys.items()})
        if x.group.rows:
            row, matrix, first = x.group.rows
            got = RAW.CollectiveAssignGroupV2(group_assignment=tf.constant(matrix), device_index=tf.constant(row[rank]), base_key=tf.constant(first))
            how.update(group_size=got[0], group_key=got[1])
        if op == "broadcast":
            if sends:
                return RAW.CollectiveBcastSendV2(input=value, **how)
            return RAW.CollectiveBcastRecvV2(T=value.dtype, shape=tf.constant(value.shape.as_list(), tf.int32), **how)
        how["ordering_token"] = self.token(block, x, rank)
        if op == "reduce":
            return RAW.CollectiveReduceV2(input=value, **sums, **how)
        if op == "scatter":
            return RAW.CollectiveReduceScatterV2(input=value, **sums, **how)
        return (RAW.CollectiveGatherV2 if op == "gather" else RAW.CollectiveAllToAllV2)(input=value, **how)

    def add(self, b, block, i, rank, turn, out, communicator=None):
        """With what it comes after, which may not be there yet."""
        if (i, rank) in out:
            return
        x, bent = block.instances[i], self.bent.get((b, i, rank), {})
        before = []
        for j, other in bent.get("after", block.edges.get((i, rank), ())):
            if block.instances[j].group.places[other][0] in self.tasks:
                self.add(b, block, j, other, turn, out)
                before.append(out[j, other])
        with self.device(x, rank):
            slow = self.program.slow.get((b, i, rank))
            if slow and block.kind == "plain":
                before.append(self.slow(slow))
            brings = x.op != "broadcast" or bent.get("sends", rank == x.source)
            early = brings and self.r.random() < 0.5  # what it brings waits, or it itself
            value = self.brought(x, rank, turn, bent)
            with tf.control_dependencies(before if early else []):
                value = tf.identity(value)
            with tf.control_dependencies([] if early else before):
                out[i, rank] = self.member(block, x, rank, value, bent, communicator)
                if bent.get("twice"):
                    out[i, rank, "again"] = self.member(block, x, rank, value, bent, communicator)

    def keep(self, b, out):
        self.out.update({(b, *at): value for at, value in out.items()})

    def plain(self, b, block):
        out = {}
        for i, rank in self.members(block):
            self.add(b, block, i, rank, self.turn, out)
        self.keep(b, out)

    def loop(self, b, block):
        at = self.members(block)
        if not at:
            return

        def body(i, *_):
            out = {}
            for k in at:
                self.add(b, block, *k, self.turn + i, out)
            return (i + 1, *(out[k] for k in at))
        first = []
        for i, rank in at:
            x = block.instances[i]
            with self.device(x, rank):
                first.append(tf.zeros(x.wanted(0)[rank].shape, x.dtype))
        shapes = (tf.TensorShape([]), *[tf.TensorShape(None)] * len(at))
        with tf.device(f"/job:worker/replica:0/task:{min(self.tasks)}/device:CPU:0"):
            got = tf.while_loop(lambda i, *_: i < block.runs, body, (tf.constant(0), *first), shape_invariants=shapes,
                                parallel_iterations=block.parallel, name=f"loop_{b}")[1:]
        self.keep(b, dict(zip(at, got)))

    def branch(self, b, block):
        """What is not in the branch that is taken gives a zero."""
        at = self.members(block)
        if not at:
            return

        def side(chosen):
            out = {}
            for i, rank in at:
                with self.device(block.instances[i], rank):
                    if i in chosen:
                        self.add(b, block, i, rank, self.turn, out)
                    else:
                        out[i, rank] = tf.zeros([], block.instances[i].dtype)
            return [out[k] for k in at]
        n = range(len(block.instances))
        with tf.device(f"/job:worker/replica:0/task:{min(self.tasks)}/device:CPU:0"):
            got = tf.cond(self.way, lambda: side(n[:block.half]), lambda: side(n[block.half:]), name=f"branch_{b}")
        self.keep(b, dict(zip(at, got if isinstance(got, (list, tuple)) else [got])))

    def communicators(self, b, block):
        out, made = {}, {}
        for i, rank in self.members(block):
            x = block.instances[i]
            if rank not in made:
                with self.device(x, rank):
                    made[rank] = RAW.CollectiveInitializeCommunicator(group_key=tf.constant(x.group.key), rank=tf.constant(rank),
                                                                      group_size=tf.constant(x.group.size))
            self.add(b, block, i, rank, self.turn, out, made[rank])
        self.keep(b, out)

    def fetches(self, plan):
        chosen = set(plan)
        return {k: v for k, v in self.out.items() if k[:2] in chosen and not self.bent.get(k[:3], {}).get("missing")}

    def check(self, got, turn, way):
        for (b, i, rank), value in got.items():
            block = self.program.blocks[b]
            if block.kind == "branch" and way != (i < block.half):
                continue
            block.instances[i].check(rank, turn + (block.runs - 1 if block.kind == "loop" else 0), value)
