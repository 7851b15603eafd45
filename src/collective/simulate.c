/* Events in the order of time. An actor is a rank's program, or its port out, which holds the messages that wait for
 * it; each is in the heap under the time at which it can next do something. A message can turn out to begin later,
 * since the receiver's port was taken meanwhile: then its port goes back into the heap under the later time. */
#include "collective/simulate.h"

#include <stdlib.h>

#include "base/mem.h"

struct simulated_message {
  int to, number;
  double ready, ends; /* ends: 0 until it has the ports */
  struct schedule_span span;
};

struct arrival {
  int from, number;
  double at;
};

struct simulated_rank {
  struct schedule program;
  size_t step;
  double clock, port_out, port_in;
  bool asleep; /* until a message has gone or come */
  struct simulated_message *sends;
  size_t n_sends, next_send; /* [next_send, n_sends) wait for the port */
  size_t gone;               /* those before have gone, by the clock */
  struct arrival *arrivals;
  size_t n_arrivals, arrival_room;
};

struct simulation {
  const struct schedule_request *r;
  const struct machine_cost *cost;
  size_t element;
  struct simulated_rank *ranks;
  int *heap, n; /* actors: i < size the program of rank i, size + i its port */
  double *when; /* [actors] */
  struct host_ports {
    double out, in;
  } * hosts; /* [size], by number: what its ranks share; NULL: all ranks are on one */
};

/* ---- the heap ---- */

static bool is_before(const struct simulation *s, int i, int j) { return s->when[s->heap[i]] < s->when[s->heap[j]]; }

static void swap(struct simulation *s, int i, int j) {
  int actor = s->heap[i];
  s->heap[i] = s->heap[j];
  s->heap[j] = actor;
}

static void push(struct simulation *s, int actor, double when) {
  int i = s->n++;
  s->heap[i] = actor;
  s->when[actor] = when;
  for (; i && is_before(s, i, (i - 1) / 2); i = (i - 1) / 2) swap(s, i, (i - 1) / 2);
}

static int pop(struct simulation *s) {
  int actor = s->heap[0], i = 0;
  s->heap[0] = s->heap[--s->n];
  for (int child; (child = 2 * i + 1) < s->n; i = child) {
    if (child + 1 < s->n && is_before(s, child + 1, child)) child++;
    if (!is_before(s, child, i)) break;
    swap(s, child, i);
  }
  return actor;
}

static void wake(struct simulation *s, int rank) {
  struct simulated_rank *me = &s->ranks[rank];
  if (!me->asleep) return;
  me->asleep = false;
  push(s, rank, me->clock);
}

/* ---- messages ---- */

static const struct link_cost *link_between(const struct simulation *s, int a, int b) {
  return !s->r->hosts || s->r->hosts[a] == s->r->hosts[b] ? &s->cost->inside : &s->cost->between;
}

static double bytes_of(const struct simulation *s, struct schedule_span a) { return (double)a.n * (double)s->element; }

/* The ports of a message's two hosts: those that it leaves and enters; NULL: it stays inside. */
static struct host_ports *ports_of(const struct simulation *s, int rank, int other) {
  bool leaves = s->hosts && s->r->hosts[rank] != s->r->hosts[other];
  return leaves ? &s->hosts[s->r->hosts[rank]] : NULL;
}

static double can_begin(const struct simulation *s, int rank) {
  const struct simulated_rank *me = &s->ranks[rank];
  const struct simulated_message *m = &me->sends[me->next_send];
  double when = MAX(MAX(m->ready, me->port_out), s->ranks[m->to].port_in);
  const struct host_ports *from = ports_of(s, rank, m->to), *to = ports_of(s, m->to, rank);
  return from ? MAX(when, MAX(from->out, to->in)) : when;
}

static void send(struct simulation *s, int rank, const struct schedule_step *step) {
  struct simulated_rank *me = &s->ranks[rank];
  me->clock += link_between(s, rank, step->peer)->overhead;
  me->sends[me->n_sends++] = (struct simulated_message){step->peer, step->number, me->clock, 0, step->a};
  if (me->n_sends == me->next_send + 1) push(s, s->r->size + rank, can_begin(s, rank));
}

/* The port's turn: its first message takes both ports, if they are free now. */
static void transmit(struct simulation *s, int rank) {
  struct simulated_rank *me = &s->ranks[rank];
  struct simulated_message *m = &me->sends[me->next_send];
  struct simulated_rank *to = &s->ranks[m->to];
  const struct link_cost *link = link_between(s, rank, m->to);
  double begin = can_begin(s, rank);
  if (begin > s->when[s->r->size + rank]) {
    push(s, s->r->size + rank, begin);
    return;
  }
  m->ends = me->port_out = to->port_in = begin + bytes_of(s, m->span) * link->per_byte;
  struct host_ports *leaves = ports_of(s, rank, m->to), *enters = ports_of(s, m->to, rank);
  if (leaves) leaves->out = enters->in = m->ends;
  if (to->n_arrivals == to->arrival_room) {
    to->arrival_room = to->arrival_room ? to->arrival_room * 2 : 8;
    to->arrivals = mem_realloc(to->arrivals, to->arrival_room, sizeof *to->arrivals);
  }
  to->arrivals[to->n_arrivals++] = (struct arrival){rank, m->number, m->ends + link->latency};
  wake(s, m->to);
  wake(s, rank);
  if (++me->next_send < me->n_sends) push(s, s->r->size + rank, can_begin(s, rank));
}

/* False: it has not been sent yet. */
static bool receive(struct simulated_rank *me, const struct schedule_step *step) {
  for (size_t i = 0; i < me->n_arrivals; i++) {
    if (me->arrivals[i].from != step->peer || me->arrivals[i].number != step->number) continue;
    me->clock = MAX(me->clock, me->arrivals[i].at);
    me->arrivals[i] = me->arrivals[--me->n_arrivals];
    return true;
  }
  return false;
}

/* Waits until nothing of a is being sent; false: something of it has not begun to go. */
static bool sent(struct simulated_rank *me, struct schedule_span a) {
  while (me->gone < me->next_send && me->sends[me->gone].ends <= me->clock) me->gone++;
  for (size_t i = me->gone; i < me->n_sends; i++) {
    const struct simulated_message *m = &me->sends[i];
    if (m->span.buffer != a.buffer || m->span.at >= a.at + a.n || a.at >= m->span.at + m->span.n) continue;
    if (i >= me->next_send) return false;
    me->clock = MAX(me->clock, m->ends);
  }
  return true;
}

/* ---- programs ---- */

/* False: the rank has to wait for another. */
static bool take_step(struct simulation *s, int rank) {
  struct simulated_rank *me = &s->ranks[rank];
  const struct schedule_step *step = &me->program.steps[me->step];
  double bytes = bytes_of(s, step->a);
  if (step->verb == STEP_SEND) send(s, rank, step);
  else if (!sent(me, step->a)) return false;
  if ((step->verb == STEP_RECV || step->verb == STEP_RECV_MERGE) && !receive(me, step)) return false;
  if (step->verb == STEP_RECV_MERGE || step->verb == STEP_MERGE) me->clock += bytes * s->cost->merge_per_byte;
  if (step->verb == STEP_COPY) me->clock += bytes * s->cost->copy_per_byte;
  me->step++;
  return true;
}

static void act(struct simulation *s, int actor) {
  int size = s->r->size;
  if (actor >= size) {
    transmit(s, actor - size);
    return;
  }
  struct simulated_rank *me = &s->ranks[actor];
  if (me->step == me->program.n) return;
  me->asleep = !take_step(s, actor);
  if (!me->asleep) push(s, actor, me->clock);
}

static shoal_status make_rank(struct simulation *s, int rank) {
  struct schedule_request r = *s->r;
  struct simulated_rank *me = &s->ranks[rank];
  r.rank = rank;
  TRY(schedule_init(&me->program, &r));
  me->sends = mem_zalloc(me->program.n + 1, sizeof *me->sends);
  push(s, rank, 0);
  return NULL;
}

static void release_rank(struct simulated_rank *me) {
  schedule_release(&me->program);
  free(me->sends);
  free(me->arrivals);
}

shoal_status simulate_collective(const struct schedule_request *r, size_t element, const struct machine_cost *cost,
                                 double *seconds) {
  size_t size = (size_t)MAX(r->size, 1);
  struct simulation s = {.r = r, .cost = cost, .element = element, .ranks = mem_zalloc(size, sizeof *s.ranks)};
  s.heap = mem_zalloc(2 * size, sizeof *s.heap);
  s.when = mem_zalloc(2 * size, sizeof *s.when);
  if (r->hosts) s.hosts = mem_zalloc(size, sizeof *s.hosts);
  shoal_status status = NULL;
  for (int i = 0; i < r->size && !status; i++) status = make_rank(&s, i);
  while (!status && s.n) act(&s, pop(&s));
  *seconds = 0;
  for (int i = 0; i < r->size; i++) {
    const struct simulated_rank *me = &s.ranks[i];
    if (!status && me->step != me->program.n)
      status = INTERNAL("Rank %d of %d waits for ever at step %zu of its program", i, r->size, me->step);
    *seconds = MAX(*seconds, MAX(me->clock, me->port_out));
    release_rank(&s.ranks[i]);
  }
  free(s.ranks);
  free(s.heap);
  free(s.when);
  free(s.hosts);
  return status;
}
