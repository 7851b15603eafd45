/* A number of things that are to end, and threads that wait until all have: one word, of which the system is asked
 * only where a thread sleeps.
 *
 * A condition and its lock did this before. Who was told woke while the teller still had the lock, on the same core
 * where cores are few: it slept again until the lock was free, and each step of a client had two changes of threads
 * more. Here nothing is touched after the last has ended, so the waiter may free the word at once; that an address is
 * woken where something else lives by then does no harm, since whoever sleeps on a word looks again. */
#ifndef BASE_COUNTDOWN_H
#define BASE_COUNTDOWN_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

enum { COUNTDOWN_ASLEEP = 1 << 30 }; /* a bit of the word: somebody sleeps, or is about to */

struct countdown {
  atomic_int left;
};

static inline void countdown_init(struct countdown *c, int n) { atomic_init(&c->left, n); }

static inline bool countdown_is_over(const struct countdown *c) {
  return !(atomic_load_explicit(&c->left, memory_order_acquire) & ~COUNTDOWN_ASLEEP);
}

/* n of them have ended. True: the last have, and c may be gone. */
static inline bool countdown_end(struct countdown *c, int n) {
  int before = atomic_fetch_sub_explicit(&c->left, n, memory_order_acq_rel), left = before & ~COUNTDOWN_ASLEEP;
  INVARIANT(1, left >= n);
  if (left == n && before != left) syscall(SYS_futex, &c->left, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  return left == n;
}

/* deadline: a value of clock_ns(), or DEADLINE_NEVER. False when it has passed first. */
static inline bool countdown_wait_until(struct countdown *c, int64_t deadline) {
  struct timespec until = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
  for (int left; !countdown_is_over(c);) {
    if (deadline <= 0) return false; /* the system takes no time before its first */
    left = atomic_fetch_or_explicit(&c->left, COUNTDOWN_ASLEEP, memory_order_acquire) | COUNTDOWN_ASLEEP;
    if (left == COUNTDOWN_ASLEEP) break;
    long e = syscall(SYS_futex, &c->left, FUTEX_WAIT_BITSET_PRIVATE, left, deadline == DEADLINE_NEVER ? NULL : &until,
                     NULL, FUTEX_BITSET_MATCH_ANY);
    if (e && errno == ETIMEDOUT) return countdown_is_over(c);
  }
  return true;
}

#endif
