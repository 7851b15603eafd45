/* Sums in the order of pairs (schedule.h).
 *
 * A binomial tree adds so by itself: at level k a rank whose lower k + 1 bits are zero adds what the rank 2^k further
 * on has gathered. So does halving that begins with the neighbour and not, as it is mostly drawn, with the rank half a
 * group away: after level k a rank holds a 2^(k+1)-th of S of its 2^(k+1) neighbours. Who receives everybody's numbers
 * has the order in its own hands and needs a spare piece for each level that is open.
 *
 * With 6 ranks, or 7, halving has blocks of 4 + 2 + 1, each of which sums on its own; then the smaller ones are added
 * to the larger, right to left, piece by piece, and get the result back in the same pieces. (Folding the odd ranks into
 * the others first, as is common, saves a level but adds in another order.) */
#include <stdlib.h>

#include "base/mem.h"
#include "collective/schedule_build.h"

/* How many of n neighbours are summed before the rest: the largest power of two below n. */
static int first_part(int n) {
  int h = 1;
  while (h * 2 < n) h *= 2;
  return h;
}

/* dst = the sum of members lo .. lo+n-1, who all send; the own part is `own`, which may be dst and is read first. */
static void sum_pairs(struct schedule *s, struct schedule_members m, int lo, int n, struct schedule_span dst,
                      struct schedule_span own, int64_t top) {
  if (n == 1) {
    if (lo == m.me) step_copy(s, dst, own);
    else step_recv(s, m.ranks[lo], dst);
    return;
  }
  int h = first_part(n), right = lo + h;
  bool mine_right = m.me >= right && m.me < lo + n;
  int first = mine_right ? right : lo, first_n = mine_right ? n - h : h;
  int second = mine_right ? lo : right, second_n = n - first_n;
  if (first == m.me && first_n == 1 && second_n == 1) {
    step_recv_merge(s, m.ranks[second], dst, own);
    return;
  }
  sum_pairs(s, m, first, first_n, dst, own, top);
  if (second_n == 1) {
    step_recv_merge(s, m.ranks[second], dst, dst);
    return;
  }
  struct schedule_span part = schedule_scratch(s, &top, dst.n);
  sum_pairs(s, m, second, second_n, part, own, top);
  step_merge(s, dst, part);
}

void reduce_central(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span out) {
  if (m.me) step_send(s, m.ranks[0], in);
  else sum_pairs(s, m, 0, m.n, out, in, 0);
}

void scatter_direct(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span own) {
  for (int far = 1; far < m.n; far++) {
    int to = (m.me + far) % m.n;
    step_send(s, m.ranks[to], span_piece(in, to, m.n));
  }
  sum_pairs(s, m, 0, m.n, own, span_piece(in, m.me, m.n), 0);
}

void reduce_tree(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span out) {
  struct schedule_span sum = in;
  for (int far = 1; far < m.n; far *= 2) {
    if (m.me & far) {
      step_send(s, m.ranks[m.me - far], sum);
      return;
    }
    if (m.me + far >= m.n) continue;
    step_recv_merge(s, m.ranks[m.me + far], out, sum);
    sum = out;
  }
  step_copy(s, out, sum);
}

/* ---- halving ---- */

/* A power of two of neighbours, in which this rank or another is number i. */
struct block {
  int lo, n;
};

/* What member i of a block has after so many levels: each level's bit chooses a half of what was left. */
static struct schedule_span part_of(struct schedule_span whole, int i, int levels) {
  for (int k = 0; k < levels; k++) whole = span_piece(whole, i >> k & 1, 2);
  return whole;
}

static int levels_of(struct block b) { return __builtin_ctz((unsigned)b.n); }

/* Member i of block b and member i modulo c.n of the smaller block c next to it share the part that i has of b's sum:
 * up goes the smaller block's sum, down comes the result. */
static void part_up(struct schedule *s, struct schedule_members m, struct block b, struct block c,
                    struct schedule_span sum, struct schedule_span out) {
  int levels = levels_of(b), i = m.me - c.lo;
  if (i < 0) {
    struct schedule_span part = part_of(out, m.me - b.lo, levels);
    step_recv_merge(s, m.ranks[c.lo + (m.me - b.lo) % c.n], part, part);
  } else
    for (; i < b.n; i += c.n) step_send(s, m.ranks[b.lo + i], part_of(sum, i, levels));
}

static void part_down(struct schedule *s, struct schedule_members m, struct block b, struct block c,
                      struct schedule_span out) {
  int levels = levels_of(b), i = m.me - c.lo;
  if (i < 0) step_send(s, m.ranks[c.lo + (m.me - b.lo) % c.n], part_of(out, m.me - b.lo, levels));
  else
    for (; i < b.n; i += c.n) step_recv(s, m.ranks[b.lo + i], part_of(out, i, levels));
}

void halving(struct schedule *s, struct schedule_members m, struct schedule_span in, struct schedule_span out) {
  struct block blocks[32];
  int n = 0, mine = 0;
  for (int lo = 0; lo < m.n; n++) {
    blocks[n] = (struct block){lo, 1 << (31 - __builtin_clz((unsigned)(m.n - lo)))};
    lo += blocks[n].n;
    if (m.me >= lo) mine = n + 1;
  }
  struct block own = blocks[mine];
  int i = m.me - own.lo, levels = levels_of(own);
  struct schedule_span sum = in;
  for (int k = 0; k < levels; k++) {
    int peer = m.ranks[own.lo + (i ^ 1 << k)], bit = i >> k & 1;
    step_send(s, peer, span_piece(sum, !bit, 2));
    sum = span_piece(sum, bit, 2);
    struct schedule_span to = part_of(out, i, k + 1);
    step_recv_merge(s, peer, to, sum);
    sum = to;
  }
  if (m.n == 1) step_copy(s, out, in);
  /* A block of one is the last: what it gives is still its input. */
  if (mine + 1 < n) part_up(s, m, own, blocks[mine + 1], out, out);
  if (mine > 0) part_up(s, m, blocks[mine - 1], own, own.n == 1 ? in : out, out);
  if (mine == 0) step_finish(s, part_of(out, i, levels));
  for (int c = mine ? mine : 1; c < (mine ? mine + 1 : n); c++) part_down(s, m, blocks[0], blocks[c], out);
  for (int k = levels; k-- > 0;) {
    int peer = m.ranks[own.lo + (i ^ 1 << k)];
    step_send(s, peer, part_of(out, i, k + 1));
    step_recv(s, peer, part_of(out, i ^ 1 << k, k + 1));
  }
}

/* ---- hosts ---- */

/* The members of one host, in order, written to ranks; returns how many, and which of them is `me`. */
static int members_of_host(struct schedule_members m, const int *hosts, int host, int *ranks, int *me) {
  int n = 0;
  for (int i = 0; i < m.n; i++) {
    if (hosts[m.ranks[i]] != host) continue;
    if (i == m.me) *me = n;
    ranks[n++] = m.ranks[i];
  }
  return n;
}

/* The which-th member of every host that has so many, in the order in which hosts first appear. */
static int members_across(struct schedule_members m, const int *hosts, int which, int *ranks, int *me) {
  int n = 0;
  for (int i = 0; i < m.n; i++) {
    int before = 0;
    for (int j = 0; j < i; j++) before += hosts[m.ranks[j]] == hosts[m.ranks[i]];
    if (before != which) continue;
    if (i == m.me) *me = n;
    ranks[n++] = m.ranks[i];
  }
  return n;
}

/* With as many ranks on every host each rank of a host sums a piece of it and takes that piece to its like on the other
 * hosts, so that all of them use the network at once; otherwise one rank of each host speaks for it. */
void hierarchical(struct schedule *s, struct schedule_members m, const int *hosts, struct schedule_span in,
                  struct schedule_span out) {
  if (!hosts) {
    scatter_direct(s, m, in, span_piece(out, m.me, m.n));
    step_finish(s, span_piece(out, m.me, m.n));
    gather_direct(s, m, out);
    return;
  }
  int *near_ranks = mem_zalloc((size_t)m.n, sizeof *near_ranks),
      *far_ranks = mem_zalloc((size_t)m.n, sizeof *far_ranks);
  struct schedule_members here = {.ranks = near_ranks}, across = {.ranks = far_ranks};
  here.n = members_of_host(m, hosts, hosts[m.ranks[m.me]], near_ranks, &here.me);
  across.n = members_across(m, hosts, here.me, far_ranks, &across.me);
  bool equal = here.n * across.n == m.n;
  for (int i = 0; i < m.n && equal; i++) {
    int unused;
    equal = members_of_host(m, hosts, hosts[m.ranks[i]], far_ranks, &unused) == here.n;
  }
  if (equal) {
    struct schedule_span piece = span_piece(out, here.me, here.n);
    across.n = members_across(m, hosts, here.me, far_ranks, &across.me);
    scatter_direct(s, here, in, piece);
    halving(s, across, piece, piece);
    gather_direct(s, here, out);
  } else {
    reduce_tree(s, here, in, out);
    across.n = members_across(m, hosts, 0, far_ranks, &across.me);
    if (here.me == 0) halving(s, across, out, out);
    broadcast_tree(s, here, 0, out);
  }
  free(near_ranks);
  free(far_ranks);
}
