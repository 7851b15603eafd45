/* Values of the fast path that go where they are wanted as they come (rpc/fast/fast_pour.h), from a peer that this test
 * plays: whole, of another size than was asked for, given up or broken off at any moment. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "fast_peer.h"
#include "rpc/loop.h"
#include "unit.h"

enum { POURED = 300001 };

struct catch {
  struct fast_sink sink; /* first */
  uint8_t bytes[POURED];
  size_t have;
  bool in_order;
};

static void catch_part(struct fast_sink *s, const void *part, size_t at, size_t n) {
  struct catch *c = (struct catch *)s;
  c->in_order = c->in_order && at == c->have && (uintptr_t)part % 16 == 0 && at + n <= POURED &&
                (n % FAST_GRAIN == 0 || at + n == POURED);
  if (c->in_order) memcpy(c->bytes + at, part, n);
  c->have += n;
}

static struct catch *catch_new(bool by_parts) {
  struct catch *c = mem_zalloc(1, sizeof *c);
  c->sink = (struct fast_sink){.bytes = POURED, .to = c->bytes, .take = by_parts ? catch_part : NULL};
  c->in_order = true;
  return c;
}

static void put_head(int fd, uint64_t id, uint64_t n) {
  struct fast_frame f = {.kind = FAST_VALUE, .dtype = SHOAL_UINT8, .rank = 1, .head = 8, .size = n, .id = id};
  put(fd, &f, sizeof f);
  put(fd, &n, sizeof n);
}

static uint8_t *made_bytes(void) {
  uint8_t *bytes = mem_alloc(POURED);
  for (size_t i = 0; i < POURED; i++) bytes[i] = (uint8_t)(i * 31 + i / 251);
  return bytes;
}

static void nap(void) { usleep(2000); }

/* In pieces of any length all of it comes, once and in order; and what comes behind it in one piece is a frame. */
static void what_is_poured_is_whole(void **state) {
  uint8_t *bytes = made_bytes();
  for (int k = 0; k < 4; k++) {
    struct pair p = meet(k & 1);
    struct catch *c = catch_new(k & 2);
    struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER}, b = a;
    assert_true(fast_ask_poured(p.client, 1, "key", &c->sink, done, &a, NULL));
    assert_true(fast_ask(p.client, 1, "key", done, &b, NULL));
    uint64_t id = get_ask(p.fd).id, next = get_ask(p.fd).id;
    put_head(p.fd, id, POURED);
    static const size_t pieces[] = {1, 62, 3, 100001, 65536, 7, POURED};
    for (size_t i = 0, at = 0, n; at < POURED; at += n, i++) {
      n = MIN(pieces[i], POURED - at);
      put(p.fd, bytes + at, n);
      nap();
    }
    answered_by_value(&p, &b, next);
    wait_for(&a);
    assert_int_equal(a.code, SHOAL_OK);
    assert_true(c->sink.filled && c->in_order);
    assert_memory_equal(c->bytes, bytes, POURED);
    part(&p);
    free(c);
  }
  free(bytes);
}

/* A value of another size, or one that says other things of itself than its frame, is none of the sink's. */
static void what_does_not_fit_is_not_poured(void **state) {
  struct pair p = meet(true);
  uint8_t *bytes = made_bytes();
  static const struct fast_frame wrong[] = {
      {.kind = FAST_VALUE, .dtype = SHOAL_UINT8, .rank = 1, .head = 8, .size = POURED - 1},
      {.kind = FAST_VALUE, .dtype = SHOAL_INT8, .rank = 1, .head = 8, .size = POURED},
      {.kind = FAST_VALUE, .dtype = SHOAL_UINT8, .head = 8, .size = POURED},
      {.kind = FAST_VALUE, .dtype = SHOAL_UINT8, .flags = FAST_DEAD, .rank = 1, .head = 8, .size = POURED},
      {.kind = FAST_VALUE, .dtype = SHOAL_UINT8, .flags = FAST_ENCODED, .rank = 1, .head = 8, .size = POURED}};
  for (size_t i = 0; i < COUNT_OF(wrong); i++) {
    struct catch *c = catch_new(true);
    struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    assert_true(fast_ask_poured(p.client, 1, "key", &c->sink, done_there, &a, NULL));
    struct fast_frame f = wrong[i];
    f.id = get_ask(p.fd).id;
    put(p.fd, &f, sizeof f);
    put(p.fd, &f.size, sizeof f.size);
    put(p.fd, bytes, f.size);
    wait_for(&a);
    assert_true(!c->sink.filled && c->have == 0);
    free(c);
  }
  free(bytes);
  part(&p);
}

/* Given up amid a body: the sink is not touched any more, and may go; the rest of the body is read away. */
static void poured_halves_are_given_up(void **state) {
  uint8_t *bytes = made_bytes();
  for (int k = 0; k < 4; k++) {
    struct pair p = meet(true);
    struct catch *c = catch_new(k & 1);
    bool cancels = k & 2;
    struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    struct fast_call *call = NULL;
    assert_true(fast_ask_poured(p.client, 1, "key", &c->sink, done, &a, &call));
    put_head(p.fd, get_ask(p.fd).id, POURED);
    put(p.fd, bytes, POURED / 2);
    nap();
    if (cancels) fast_cancel(call, STATUS(SHOAL_CANCELLED, "not wanted"));
    else shutdown(p.fd, SHUT_RDWR);
    wait_for(&a);
    assert_int_equal(a.code, cancels ? SHOAL_CANCELLED : SHOAL_UNAVAILABLE);
    assert_false(c->sink.filled);
    free(c);
    fast_call_unref(call);
    if (cancels) {
      struct fast_frame f;
      get(p.fd, &f, sizeof f);
      assert_int_equal(f.kind, FAST_CANCEL);
      put(p.fd, bytes, POURED - POURED / 2);
      a.there = false;
      assert_true(fast_ask(p.client, 1, "key", done, &a, NULL));
      answered_by_value(&p, &a, get_ask(p.fd).id);
    }
    part(&p);
  }
  free(bytes);
}

struct racer {
  int fd;
  const uint8_t *bytes;
};

static void *send_slowly(void *arg) {
  struct racer *r = arg;
  for (size_t at = 0, n; at < POURED; at += n) {
    n = MIN((size_t)5000, POURED - at);
    put(r->fd, r->bytes + at, n);
  }
  return NULL;
}

/* At whatever moment it is given up: memory of the sink that is freed at once is not written (sanitizers see it). */
static void giving_up_races(void **state) {
  uint8_t *bytes = made_bytes();
  struct pair p = meet(true);
  for (int k = 0; k < 200; k++) {
    struct catch *c = catch_new(k & 1);
    struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    struct fast_call *call = NULL;
    struct fast_frame f;
    assert_true(fast_ask_poured(p.client, 1, "key", &c->sink, done_there, &a, &call));
    do get(p.fd, &f, sizeof f);
    while (f.kind == FAST_CANCEL);
    char key[3];
    get(p.fd, key, sizeof key);
    put_head(p.fd, f.id, POURED);
    struct racer r = {p.fd, bytes};
    pthread_t t;
    pthread_create(&t, NULL, send_slowly, &r);
    usleep((useconds_t)(k * 3));
    fast_cancel(call, STATUS(SHOAL_CANCELLED, "not wanted"));
    wait_for(&a);
    assert_true(a.code == SHOAL_CANCELLED || (a.code == SHOAL_OK && c->sink.filled));
    memset(c, 0xff, sizeof *c);
    free(c);
    fast_call_unref(call);
    pthread_join(t, NULL);
  }
  part(&p);
  free(bytes);
}

static int network_begins(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  return 0;
}

static int network_ends(void **state) {
  rpc_loop_release();
  return 0;
}

RUN_TESTS_WITHIN(network_begins, network_ends, cmocka_unit_test(what_is_poured_is_whole),
                 cmocka_unit_test(what_does_not_fit_is_not_poured), cmocka_unit_test(poured_halves_are_given_up),
                 cmocka_unit_test(giving_up_races))
