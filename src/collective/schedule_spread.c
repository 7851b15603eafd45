/* Spreading what some have to all; and TensorFlow's ring, whose second half does that. */
#include <stdlib.h>

#include "base/mem.h"
#include "collective/schedule_build.h"

void broadcast_tree(struct schedule *s, struct schedule_members m, int root, struct schedule_span out) {
  int me = (m.me - root + m.n) % m.n, far = 1;
  while (far < m.n && !(me & far)) far *= 2;
  if (me) step_recv(s, m.ranks[(me - far + root) % m.n], out);
  for (far /= 2; far; far /= 2)
    if (me + far < m.n) step_send(s, m.ranks[(me + far + root) % m.n], out);
}

void broadcast_central(struct schedule *s, struct schedule_members m, int root, struct schedule_span out) {
  if (m.me != root) step_recv(s, m.ranks[root], out);
  for (int far = 1; m.me == root && far < m.n; far++) step_send(s, m.ranks[(root + far) % m.n], out);
}

/* ---- TensorFlow's tree ---- */

struct tree {
  const int *ranks; /* [n] */
  int n, me;        /* ranks[me]; -1: not in it */
  int root, number; /* its place in the labels */
};

/* Where the root is the first, place r feeds 2r + 1 and 2r + 2. Where it is not, places count as if the root stood in
 * front of them too: it feeds the first two beside what its own place feeds, and nobody feeds it. */
static void tree_message(struct schedule *s, const struct tree *t, int from, int to, struct schedule_span out) {
  if (from != t->me && to != t->me) return;
  size_t first = s->n;
  if (from == t->me) step_send(s, t->ranks[to], out);
  else step_recv(s, t->ranks[from], out);
  step_label(s, first, t->number, from, to);
}

static int tree_parent(const struct tree *t, int place) {
  if (t->root == 0) return (place - 1) / 2;
  int above = place / 2 - 1;
  return above < 0 ? t->root : above;
}

static void tree_run(struct schedule *s, const struct tree *t, struct schedule_span out) {
  if (t->me < 0) return;
  if (t->me != t->root) tree_message(s, t, tree_parent(t, t->me), t->me, out);
  for (int i = 0; i < t->n; i++)
    if (i != t->root && i != t->me && tree_parent(t, i) == t->me) tree_message(s, t, t->me, i, out);
}

/* One member of each task first, the root or the task's first; then each task's own. */
void broadcast_tasks(struct schedule *s, struct schedule_members m, const int *tasks, int root,
                     struct schedule_span out) {
  int n_tasks = tasks[m.n - 1] + 1;
  int *ranks = mem_zalloc((size_t)m.n, sizeof *ranks);
  struct tree between = {.ranks = ranks, .me = -1, .root = tasks[root]};
  for (int i = 0; i < m.n; i++) {
    bool first = i == 0 || tasks[i] != tasks[i - 1];
    if (tasks[i] == tasks[root] ? i != root : !first) continue;
    if (i == m.me) between.me = between.n;
    ranks[between.n++] = m.ranks[i];
  }
  if (n_tasks > 1) tree_run(s, &between, out);
  struct tree inside = {.ranks = ranks, .me = -1, .number = n_tasks > 1 ? tasks[m.me] + 1 : 0};
  for (int i = 0; i < m.n; i++) {
    if (tasks[i] != tasks[m.me]) continue;
    if (i == m.me) inside.me = inside.n;
    if (i == root) inside.root = inside.n;
    ranks[inside.n++] = m.ranks[i];
  }
  tree_run(s, &inside, out);
  free(ranks);
}

/* Each begins with its next neighbour, so that not all send to one at once. */
void gather_direct(struct schedule *s, struct schedule_members m, struct schedule_span out) {
  for (int far = 1; far < m.n; far++) step_send(s, m.ranks[(m.me + far) % m.n], span_piece(out, m.me, m.n));
  for (int far = 1; far < m.n; far++) {
    int from = (m.me + m.n - far) % m.n;
    step_recv(s, m.ranks[from], span_piece(out, from, m.n));
  }
}

/* ---- the ring ---- */

/* One turn: piece `give` to the next rank, piece `take` from the one before. */
static void turn(struct schedule *s, struct schedule_members m, int pass, int give, struct schedule_span given,
                 int take, struct schedule_span taken, const struct schedule_span *onto) {
  size_t first = s->n;
  step_send(s, m.ranks[(m.me + 1) % m.n], given);
  step_label(s, first, pass, give, m.ranks[m.me]);
  first = s->n;
  int from = m.ranks[(m.me + m.n - 1) % m.n];
  if (onto) step_recv_merge(s, from, taken, *onto);
  else step_recv(s, from, taken);
  step_label(s, first, pass, take, from);
}

static int wrap(int i, int n) { return (i % n + n) % n; }

void gather_ring(struct schedule *s, struct schedule_members m, struct schedule_span out) {
  for (int t = 0; t < m.n - 1; t++) {
    int give = wrap(m.me - t, m.n), take = wrap(m.me - 1 - t, m.n);
    turn(s, m, 0, give, span_piece(out, give, m.n), take, span_piece(out, take, m.n), NULL);
  }
}

/* TensorFlow's pieces: the first multiple of `alignment` above an equal part, also where that is a multiple itself; the
 * last ones may be shorter or empty. */
static struct schedule_span ring_piece(struct schedule_span s, int i, int n, int64_t alignment) {
  int64_t each = (s.n + n - 1) / n;
  if (alignment > 1) each = (each / alignment + 1) * alignment;
  int64_t begin = MIN(each * i, s.n);
  return span_of(s.buffer, s.at + begin, MIN(each, s.n - begin));
}

void ring_reduce(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span out,
                 int64_t alignment) {
  int n = m.n;
  for (int t = 0; t < n - 1; t++) {
    int give = wrap(m.me - t, n), take = wrap(m.me - 1 - t, n);
    struct schedule_span own = ring_piece(in, take, n, alignment);
    turn(s, m, 0, give, ring_piece(t ? out : in, give, n, alignment), take, ring_piece(out, take, n, alignment), &own);
  }
  struct schedule_span whole = ring_piece(out, wrap(m.me + 1, n), n, alignment);
  if (n == 1) step_copy(s, out, in);
  step_finish(s, whole);
  for (int t = 0; t < n - 1; t++) {
    int give = wrap(m.me + 1 - t, n), take = wrap(m.me - t, n);
    turn(s, m, 1, give, ring_piece(out, give, n, alignment), take, ring_piece(out, take, n, alignment), NULL);
  }
}
