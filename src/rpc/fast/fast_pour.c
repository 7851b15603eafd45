/* Bodies that are poured where they are wanted as they come; see fast.h for who asks so, fast_wire.h for the state.
 *
 * A value of many megabytes would else be received into memory of its own and then be read again, when the caches have
 * long lost it. What is to be merged comes in a part of the loop's scratch memory, which stays in the processor's
 * second-level cache, and is merged from there: by the leader, a part at a time and a few in a turn. To hand each
 * part to another thread would be a core's cache more to cross, and where all cores are busy a thread more to wait for.
 *
 * Whoever gives a call up waits until the part that is being poured is (some ten microseconds); the rest of the body is
 * then read away. So a sink is touched neither after fast_cancel nor after the call has ended. */
#include "rpc/fast/fast_pour.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"

/* PART of a body that is merged; STRAIGHT: of one that is not, at a time. */
enum { PART = 128 << 10, STRAIGHT = 1 << 20 };
_Static_assert((int)PART + (int)FAST_GRAIN <= (int)RPC_SCRATCH, "a part has room");

void fast_pour_init(struct fast_pour *p) { pthread_mutex_init(&p->lock, NULL); }
void fast_pour_release(struct fast_pour *p) { pthread_mutex_destroy(&p->lock); }

void fast_pour_begin(struct fast_pour *p, struct fast_sink *sink, uint64_t id) {
  pthread_mutex_lock(&p->lock);
  p->sink = sink;
  p->id = id;
  pthread_mutex_unlock(&p->lock);
  p->at = p->carried = 0;
}

void fast_pour_give_up(struct fast_pour *p, uint64_t id) {
  pthread_mutex_lock(&p->lock);
  if (p->id == id) p->sink = NULL;
  pthread_mutex_unlock(&p->lock);
}

/* n bytes have come in memory that begins with those carried over: the sink takes whole grains. */
static void take(struct fast_pour *p, struct fast_sink *s, uint8_t *part, size_t n) {
  size_t begin = p->at - p->carried, have = p->carried + n;
  size_t whole = begin + have == s->bytes ? have : have - have % FAST_GRAIN;
  if (whole) s->take(s, part, begin, whole);
  p->carried = have - whole;
  memcpy(p->carry, part + whole, p->carried);
}

/* With the lock held: n more bytes have come, where `room` said. */
static void came(struct fast_pour *p, uint8_t *room, size_t n) {
  struct fast_sink *s = p->sink;
  if (s->take) take(p, s, room - p->carried, n);
  p->at += n;
  if (p->at < s->bytes) return;
  s->filled = true;
  p->sink = NULL;
}

/* With the lock held: where the next bytes are wanted, and how many at most. */
static uint8_t *room(struct fast_pour *p, size_t *n) {
  struct fast_sink *s = p->sink;
  size_t left = s->bytes - p->at;
  if (!s->take) {
    *n = MIN(left, (size_t)STRAIGHT);
    return (uint8_t *)s->to + p->at;
  }
  uint8_t *part = rpc_loop_scratch();
  memcpy(part, p->carry, p->carried);
  *n = MIN(left, PART - p->carried);
  return part + p->carried;
}

void fast_pour_bytes(struct fast_pour *p, const uint8_t *data, size_t n) {
  pthread_mutex_lock(&p->lock);
  for (size_t here; p->sink && n; data += here, n -= here) {
    uint8_t *to = room(p, &here);
    here = MIN(here, n);
    memcpy(to, data, here);
    came(p, to, here);
  }
  p->at += n; /* of one given up they count all the same */
  pthread_mutex_unlock(&p->lock);
}

enum fast_poured fast_pour_read(struct fast_pour *p, int fd, ssize_t *n) {
  pthread_mutex_lock(&p->lock);
  bool given_up = !p->sink;
  if (!given_up) {
    size_t want;
    uint8_t *to = room(p, &want);
    *n = recv(fd, to, want, MSG_DONTWAIT);
    if (*n > 0) came(p, to, (size_t)*n);
  }
  bool over = !p->sink;
  pthread_mutex_unlock(&p->lock);
  return given_up ? FAST_GIVEN_UP : over ? FAST_POURED : FAST_POURING;
}
