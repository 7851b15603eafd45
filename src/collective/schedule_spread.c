/* Spreading what some have to all; and TensorFlow's ring, whose second half does that. */
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
  step_label(s, first, pass, give);
  first = s->n;
  int from = m.ranks[(m.me + m.n - 1) % m.n];
  if (onto) step_recv_merge(s, from, taken, *onto);
  else step_recv(s, from, taken);
  step_label(s, first, pass, take);
}

static int wrap(int i, int n) { return (i % n + n) % n; }

void gather_ring(struct schedule *s, struct schedule_members m, struct schedule_span out) {
  for (int t = 0; t < m.n - 1; t++) {
    int give = wrap(m.me - t, m.n), take = wrap(m.me - 1 - t, m.n);
    turn(s, m, 0, give, span_piece(out, give, m.n), take, span_piece(out, take, m.n), NULL);
  }
}

/* TensorFlow's pieces: as equal as multiples of `alignment` allow; the last ones may be shorter or empty. */
static struct schedule_span ring_piece(struct schedule_span s, int i, int n, int64_t alignment) {
  int64_t each = (s.n + n - 1) / n;
  each = (each + alignment - 1) / alignment * alignment;
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
