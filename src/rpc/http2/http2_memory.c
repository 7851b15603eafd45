/* The memory of an HTTP/2 session: nghttp2's own tables, queues and buffers, counted against the connection's budget
 * and the process's. A session that wants more gets NULL, and its connection ends; the others never notice. */
#include <string.h>

#include "base/block.h"
#include "rpc/http2/http2.h"

/* Before each piece: its size. Sixteen bytes, so that what follows is aligned as malloc aligns. */
union piece {
  size_t size;
  char room[16];
};

/* Large pieces leave half of the budget to the small ones: without a buffer for large frames nghttp2 makes small ones.
 */
enum { LARGE = 32 << 10 };

static void *take(size_t n, void *user) {
  struct budget *b = user;
  if (n > SIZE_MAX / 2 || (n > LARGE && !budget_has_room(b, n, 2)) || !budget_take(b, n + sizeof(union piece)))
    return NULL;
  union piece *p = block_try_alloc(n + sizeof *p);
  if (!p) {
    budget_give(b, n + sizeof *p);
    return NULL;
  }
  p->size = n;
  return p + 1;
}

static void give(void *at, void *user) {
  if (!at) return;
  union piece *p = (union piece *)at - 1;
  budget_give(user, p->size + sizeof *p);
  block_free(p);
}

static void *take_zeroed(size_t count, size_t size, void *user) {
  size_t n;
  if (__builtin_mul_overflow(count, size, &n)) return NULL;
  void *at = take(n, user);
  return at ? memset(at, 0, n) : NULL;
}

static void *change(void *at, size_t n, void *user) {
  if (!at) return take(n, user);
  union piece *p = (union piece *)at - 1;
  size_t before = p->size;
  if (n > SIZE_MAX / 2 || (n > before && !budget_take(user, n - before))) return NULL;
  union piece *q = block_try_realloc(p, n + sizeof *p, 1);
  if (!q) {
    if (n > before) budget_give(user, n - before);
    return NULL;
  }
  if (n < before) budget_give(user, before - n);
  q->size = n;
  return q + 1;
}

nghttp2_mem http2_memory(struct budget *b) { return (nghttp2_mem){b, take, give, take_zeroed, change}; }
