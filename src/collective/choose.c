/* The formulas count what the slowest rank does: the messages that it must wait for one after the other (latency),
 * those that it sends (overhead), the bytes through its busier port, the bytes that it merges. */
#include "collective/choose.h"

#include <float.h>
#include <stdio.h>

#include "base/mem.h"

const struct machine_cost collective_usual_cost = {
    .inside = {2e-5, 5e-6, 2e-10}, .between = {5e-5, 1e-5, 1e-9}, .merge_per_byte = 1e-10, .copy_per_byte = 1e-10};

static int levels_of(int size) {
  int levels = 0;
  while (1 << levels < size) levels++;
  return levels;
}

double collective_estimate(enum collective_operation operation, enum collective_algorithm algorithm, int size,
                           double bytes, const struct machine_cost *cost, const struct link_cost *link) {
  double others = size - 1, share = others / size, levels = levels_of(size);
  double latencies = 1, sends = others, carried = share * bytes, merged = 0;
  bool sums =
      operation == OPERATION_ALL_REDUCE || operation == OPERATION_REDUCE || operation == OPERATION_REDUCE_SCATTER;
  switch (algorithm) {
    case ALGORITHM_CENTRAL:
      /* Many messages only on the way back. */
      sends = operation == OPERATION_BROADCAST ? others : operation == OPERATION_REDUCE ? 1 : (others + 1) / 2;
      carried = others * bytes;
      merged = carried;
      break;
    case ALGORITHM_TREE:
      latencies = sends = levels;
      carried = levels * bytes;
      merged = carried;
      break;
    case ALGORITHM_HALVING:
      /* Blocks of 4 + 2 + 1 pass their parts on from one to the next: the smallest has the most to pass. */
      latencies = sends = levels_of(size + 1) - 1 + __builtin_popcount((unsigned)size) - 1;
      if (size & (size - 1)) carried += bytes / (size & -size);
      merged = share * bytes;
      break;
    case ALGORITHM_RING:
      latencies = sends = others;
      merged = share * bytes;
      break;
    default: merged = share * bytes;
  }
  double seconds = latencies * link->latency + sends * link->overhead + carried * link->per_byte;
  /* An all-reduce goes back the way it came; so does a broadcast in pieces. */
  if (operation == OPERATION_ALL_REDUCE || (operation == OPERATION_BROADCAST && algorithm == ALGORITHM_DIRECT))
    seconds *= 2;
  return sums ? seconds + merged * cost->merge_per_byte : seconds;
}

/* Whether hosts are several, and some have several ranks. */
static bool is_layered(const struct schedule_request *r, bool *several_hosts) {
  bool shared = false;
  *several_hosts = false;
  for (int i = 1; r->hosts && i < r->size; i++) {
    *several_hosts |= r->hosts[i] != r->hosts[0];
    for (int j = 0; j < i && !shared; j++) shared = r->hosts[j] == r->hosts[i];
  }
  return shared && *several_hosts;
}

void collective_choose(struct schedule_request *r, size_t element, const struct machine_cost *cost) {
  bool several;
  if (is_layered(r, &several) && r->operation == OPERATION_ALL_REDUCE) {
    r->algorithm = ALGORITHM_HIERARCHICAL;
    return;
  }
  const struct link_cost *link = several ? &cost->between : &cost->inside;
  double best = DBL_MAX;
  static const enum collective_algorithm pairs[] = {ALGORITHM_CENTRAL, ALGORITHM_DIRECT, ALGORITHM_TREE,
                                                    ALGORITHM_HALVING};
  for (size_t i = 0; i < COUNT_OF(pairs); i++) {
    if (!collective_can(r->operation, pairs[i])) continue;
    double bytes = (double)r->n * (double)element;
    if (r->operation == OPERATION_ALL_GATHER || r->operation == OPERATION_REDUCE_SCATTER ||
        r->operation == OPERATION_ALL_TO_ALL)
      bytes *= r->size;
    double seconds = collective_estimate(r->operation, pairs[i], r->size, bytes, cost, link);
    if (seconds >= best) continue;
    best = seconds;
    r->algorithm = pairs[i];
  }
}

enum { HINT_CHEAPEST = 1, HINT_BFLOAT16, HINT_ALGORITHMS };

int collective_hint(int algorithm, bool bfloat16) {
  if (bfloat16) return HINT_BFLOAT16;
  return algorithm < 0 ? HINT_CHEAPEST : HINT_ALGORITHMS + algorithm;
}

void collective_hint_print(int hint, char out[COLLECTIVE_HINT_NAME]) {
  int algorithm = hint - HINT_ALGORITHMS;
  if (hint == HINT_CHEAPEST) snprintf(out, COLLECTIVE_HINT_NAME, "auto");
  else if (hint == HINT_BFLOAT16) snprintf(out, COLLECTIVE_HINT_NAME, "shoal:bf16");
  else if (algorithm < 0 || algorithm >= ALGORITHMS) snprintf(out, COLLECTIVE_HINT_NAME, "%d", hint);
  else snprintf(out, COLLECTIVE_HINT_NAME, "shoal:%s", collective_algorithm_names[algorithm]);
}
