/* Which algorithm writes which operation's program, and the words that programs are written with. */
#include "collective/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "collective/schedule_build.h"

const char *const collective_algorithm_names[ALGORITHMS] = {"central", "direct",       "tree", "halving",
                                                            "ring",    "hierarchical", "tasks"};

int collective_algorithm_find(const char *name) {
  for (int i = 0; i < ALGORITHMS; i++)
    if (!strcmp(name, collective_algorithm_names[i])) return i;
  return -1;
}

/* ---- words ---- */

struct schedule_span span_of(enum schedule_buffer buffer, int64_t at, int64_t n) {
  return (struct schedule_span){buffer, at, n};
}

struct schedule_span span_piece(struct schedule_span s, int i, int n) {
  int64_t each = s.n / n, more = s.n % n;
  return span_of(s.buffer, s.at + each * i + MIN((int64_t)i, more), each + (i < more));
}

struct schedule_span span_in(struct schedule_span s, enum schedule_buffer buffer) {
  s.buffer = buffer;
  return s;
}

static struct schedule_step *add(struct schedule *s, enum schedule_verb verb, int peer, struct schedule_span a,
                                 struct schedule_span b) {
  if (s->n == s->room) {
    s->room = s->room ? s->room * 2 : 16;
    s->steps = mem_realloc(s->steps, s->room, sizeof *s->steps);
  }
  s->steps[s->n] = (struct schedule_step){.verb = verb, .peer = peer, .a = a, .b = b};
  return &s->steps[s->n++];
}

static const struct schedule_span nothing;

void step_send(struct schedule *s, int to, struct schedule_span a) {
  if (a.n) add(s, STEP_SEND, to, a, nothing);
}

void step_recv(struct schedule *s, int from, struct schedule_span a) {
  if (a.n) add(s, STEP_RECV, from, a, nothing);
}

void step_recv_merge(struct schedule *s, int from, struct schedule_span a, struct schedule_span b) {
  if (a.n) add(s, STEP_RECV_MERGE, from, a, b);
}

void step_merge(struct schedule *s, struct schedule_span a, struct schedule_span b) {
  if (a.n) add(s, STEP_MERGE, -1, a, b);
}

void step_copy(struct schedule *s, struct schedule_span a, struct schedule_span b) {
  if (a.n && (a.buffer != b.buffer || a.at != b.at)) add(s, STEP_COPY, -1, a, b);
}

void step_finish(struct schedule *s, struct schedule_span a) {
  if (a.n) add(s, STEP_FINISH, -1, a, nothing);
}

void step_signal(struct schedule *s, int to, int from) {
  if (to >= 0) add(s, STEP_SEND, to, nothing, nothing);
  if (from >= 0) add(s, STEP_RECV, from, nothing, nothing);
}

static void label_one(struct schedule_step *s, int a, int b, int c) {
  s->label[0] = a;
  s->label[1] = b;
  s->label[2] = c;
}

void step_label(struct schedule *s, size_t first, int a, int b, int c) {
  for (size_t i = first; i < s->n; i++) label_one(&s->steps[i], a, b, c);
}

struct schedule_span schedule_scratch(struct schedule *s, int64_t *top, int64_t n) {
  struct schedule_span a = span_of(BUFFER_SCRATCH, *top, n);
  *top += n;
  s->scratch = MAX(s->scratch, *top);
  return a;
}

/* ---- operations ---- */

static void barrier(struct schedule *s, struct schedule_members m) {
  for (int far = 1; far < m.n; far *= 2) step_signal(s, m.ranks[(m.me + far) % m.n], m.ranks[(m.me + m.n - far) % m.n]);
}

static void all_to_all(struct schedule *s, struct schedule_members m, int64_t n) {
  for (int far = 1; far < m.n; far++) {
    int to = (m.me + far) % m.n;
    size_t first = s->n;
    step_send(s, m.ranks[to], span_of(BUFFER_IN, n * to, n));
    step_label(s, first, LABEL_PAIR, m.me, to);
  }
  step_copy(s, span_of(BUFFER_OUT, n * m.me, n), span_of(BUFFER_IN, n * m.me, n));
  for (int far = 1; far < m.n; far++) {
    int from = (m.me + m.n - far) % m.n;
    size_t first = s->n;
    step_recv(s, m.ranks[from], span_of(BUFFER_OUT, n * from, n));
    step_label(s, first, LABEL_PAIR, from, m.me);
  }
}

static void reduce(struct schedule *s, struct schedule_members m, const struct schedule_request *r) {
  struct schedule_span in = span_of(BUFFER_IN, 0, r->n), out = span_in(in, BUFFER_OUT);
  (r->algorithm == ALGORITHM_TREE ? reduce_tree : reduce_central)(s, m, in, out);
  if (m.me == 0) step_finish(s, out);
  if (r->root == 0) return;
  if (m.me == 0) step_send(s, r->root, out);
  if (m.me == r->root) step_recv(s, 0, out);
}

static void all_reduce(struct schedule *s, struct schedule_members m, const struct schedule_request *r) {
  struct schedule_span in = span_of(BUFFER_IN, 0, r->n), out = span_in(in, BUFFER_OUT);
  switch (r->algorithm) {
    case ALGORITHM_CENTRAL:
    case ALGORITHM_TREE:
      (r->algorithm == ALGORITHM_TREE ? reduce_tree : reduce_central)(s, m, in, out);
      if (m.me == 0) step_finish(s, out);
      (r->algorithm == ALGORITHM_TREE ? broadcast_tree : broadcast_central)(s, m, 0, out);
      break;
    case ALGORITHM_DIRECT:
      scatter_direct(s, m, in, span_piece(out, m.me, m.n));
      step_finish(s, span_piece(out, m.me, m.n));
      gather_direct(s, m, out);
      break;
    case ALGORITHM_HALVING: halving(s, m, in, out); break;
    case ALGORITHM_RING: ring_reduce(s, m, in, out, r->alignment); break;
    default: hierarchical(s, m, r->hosts, in, out);
  }
}

static void reduce_scatter(struct schedule *s, struct schedule_members m, int64_t n) {
  struct schedule_span own = span_of(BUFFER_OUT, 0, n);
  scatter_direct(s, m, span_of(BUFFER_IN, 0, n * m.n), own);
  step_finish(s, own);
}

static void all_gather(struct schedule *s, struct schedule_members m, const struct schedule_request *r) {
  struct schedule_span out = span_of(BUFFER_OUT, 0, r->n * m.n);
  step_copy(s, span_piece(out, m.me, m.n), span_of(BUFFER_IN, 0, r->n));
  (r->algorithm == ALGORITHM_RING ? gather_ring : gather_direct)(s, m, out);
}

static void broadcast(struct schedule *s, struct schedule_members m, const struct schedule_request *r) {
  struct schedule_span out = span_of(BUFFER_OUT, 0, r->n);
  if (m.me == r->root) step_copy(s, out, span_in(out, BUFFER_IN));
  if (r->algorithm == ALGORITHM_TREE) broadcast_tree(s, m, r->root, out);
  else if (r->algorithm == ALGORITHM_CENTRAL) broadcast_central(s, m, r->root, out);
  else if (r->algorithm == ALGORITHM_TASKS) broadcast_tasks(s, m, r->hosts, r->root, out);
  else {
    /* Each gets a piece from the root and gives it to all others. */
    for (int far = 1; m.me == r->root && far < m.n; far++) {
      int to = (m.me + far) % m.n;
      step_send(s, m.ranks[to], span_piece(out, to, m.n));
    }
    if (m.me != r->root) step_recv(s, m.ranks[r->root], span_piece(out, m.me, m.n));
    gather_direct(s, m, out);
  }
}

static void number_messages(struct schedule *s, const struct schedule_request *r) {
  size_t size = (size_t)r->size;
  int *sent = mem_zalloc(size, sizeof *sent), *received = mem_zalloc(size, sizeof *received);
  bool labelled = r->algorithm == ALGORITHM_RING || r->algorithm == ALGORITHM_TASKS;
  for (size_t i = 0; i < s->n; i++) {
    int peer = s->steps[i].peer;
    if (peer < 0) continue;
    bool sends = s->steps[i].verb == STEP_SEND;
    s->steps[i].number = (sends ? sent : received)[peer]++;
    if (!labelled) label_one(&s->steps[i], s->steps[i].number, sends ? r->rank : peer, sends ? peer : r->rank);
  }
  free(sent);
  free(received);
}

bool collective_can(enum collective_operation operation, enum collective_algorithm algorithm) {
  static const unsigned of[] = {
      [OPERATION_ALL_REDUCE] = (1u << ALGORITHM_TASKS) - 1,
      [OPERATION_REDUCE] = 1u << ALGORITHM_CENTRAL | 1u << ALGORITHM_TREE,
      [OPERATION_REDUCE_SCATTER] = 1u << ALGORITHM_DIRECT,
      [OPERATION_ALL_GATHER] = 1u << ALGORITHM_DIRECT | 1u << ALGORITHM_RING,
      [OPERATION_BROADCAST] =
          1u << ALGORITHM_CENTRAL | 1u << ALGORITHM_TREE | 1u << ALGORITHM_DIRECT | 1u << ALGORITHM_TASKS,
      [OPERATION_ALL_TO_ALL] = 1u << ALGORITHM_DIRECT | 1u << ALGORITHM_TASKS,
      [OPERATION_BARRIER] = 1u << ALGORITHM_TREE,
  };
  return (of[operation] >> algorithm & 1) != 0;
}

static shoal_status check(const struct schedule_request *r) {
  static const char *const names[] = {"all-reduce", "reduce",     "reduce-scatter", "all-gather",
                                      "broadcast",  "all-to-all", "barrier"};
  if (r->size < 1) return INVALID("A group has at least one member, not %d", r->size);
  if (r->rank < 0 || r->rank >= r->size) return INVALID("There is no rank %d in a group of %d", r->rank, r->size);
  if (r->root < 0 || r->root >= r->size)
    return INVALID("The root of a %s, rank %d, is not in the group of %d", names[r->operation], r->root, r->size);
  int64_t all;
  if (r->n < 0 || mul_overflows(r->n, r->size, &all))
    return INVALID("A %s of %" PRId64 " elements among %d ranks is too large", names[r->operation], r->n, r->size);
  if (r->algorithm == ALGORITHM_TASKS && !r->hosts) return INVALID("A tree over tasks without tasks");
  if (collective_can(r->operation, r->algorithm)) return NULL;
  return UNIMPLEMENTED("There is no %s by the algorithm \"%s\"", names[r->operation],
                       collective_algorithm_names[r->algorithm]);
}

shoal_status schedule_init(struct schedule *s, const struct schedule_request *r) {
  *s = (struct schedule){0};
  TRY(check(r));
  int *ranks = mem_zalloc((size_t)r->size, sizeof *ranks);
  for (int i = 0; i < r->size; i++) ranks[i] = i;
  struct schedule_members m = {ranks, r->size, r->rank};
  switch (r->operation) {
    case OPERATION_ALL_REDUCE: all_reduce(s, m, r); break;
    case OPERATION_REDUCE: reduce(s, m, r); break;
    case OPERATION_REDUCE_SCATTER: reduce_scatter(s, m, r->n); break;
    case OPERATION_ALL_GATHER: all_gather(s, m, r); break;
    case OPERATION_BROADCAST: broadcast(s, m, r); break;
    case OPERATION_ALL_TO_ALL: all_to_all(s, m, r->n); break;
    case OPERATION_BARRIER: barrier(s, m); break;
  }
  free(ranks);
  number_messages(s, r);
  return NULL;
}

void schedule_release(struct schedule *s) { free(s->steps); }
