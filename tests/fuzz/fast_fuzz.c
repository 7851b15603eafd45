/* The fast path's wire from anyone who knows the secret. The first byte says which side is real: 0, a server, to which
 * the rest is sent as frames; 1, a client that has asked for a value (id 1) and called (id 2), and gets the rest as
 * answers. No length in a frame is believed before it is checked; every question is answered exactly once, whatever
 * comes. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "rpc/loop.h"
#include "rpc/fast/fast.h"
#include "rpc/fast/fast_address.h"
#include "rpc/fast/fast_wire.h"
#include "tensor/buffer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Looking for leaks stops all threads, and a server always has some at work: after every input it would take most of
 * the time. The soaks (tests/cluster/soak_test.py) watch memory instead. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

enum { LIMIT_MS = 20000, MOST = 60000 }; /* what a socket holds at once */

static struct fast_server *server;
static struct text ticket;

static bool readable(int fd) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  int n;
  do n = poll(&p, 1, LIMIT_MS);
  while (n < 0 && errno == EINTR); /* the fuzzer's clock */
  return n == 1;
}

/* ---- the server's side ---- */

static void cancelled(void *arg) { fast_answer(arg, STATUS(SHOAL_CANCELLED, "not wanted"), NULL, false); }

/* Small values, large ones, errors, and those that never come, by the key's first letter. */
static void recv_value(void *arg, struct fast_request *r, int64_t step, const char *key) {
  struct tensor t;
  if (key[0] == 'w') {
    fast_on_cancel(r, cancelled, r);
    return;
  }
  shoal_status s = key[0] == 'e' ? INVALID("no %s", key)
                                 : tensor_new_dims(&t, SHOAL_FLOAT32, 1, (int64_t[]){key[0] == 'l' ? 1 << 16 : 4});
  if (!s) memset(t.data, 0, tensor_bytes(&t));
  fast_answer(r, s, s ? NULL : &t, step & 1);
}

static void take_call(void *arg, struct fast_request *r, const void *data, size_t n, int64_t deadline) {
  struct text out = {0};
  text_add(&out, data, n);
  fast_reply(r, n & 1 ? INVALID("odd") : NULL, &out);
}

static void feed_server(const uint8_t *data, size_t size) {
  int fd = fast_dial_local(ticket.at + FAST_SECRET + 2, ticket.n - FAST_SECRET - 2);
  if (fd < 0) abort();
  char scrap[4096];
  bool known = size && data[0] & 1; /* and the second byte: does the secret come first? */
  if (known && write(fd, ticket.at, FAST_SECRET) != FAST_SECRET) abort();
  if (size > 1 && send(fd, data + 1, size - 1, MSG_NOSIGNAL) < 0) size = 0; /* it hung up */
  shutdown(fd, SHUT_WR);
  for (ssize_t n = 1; n > 0;) {
    if (!readable(fd)) abort(); /* it neither answers nor hangs up */
    n = read(fd, scrap, sizeof scrap);
  }
  close(fd);
}

/* ---- the client's side ---- */

struct answers {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int left;
};

static void answered(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct answers *a = arg;
  if (s) shoal_status_free(s);
  else tensor_release(value);
  pthread_mutex_lock(&a->lock);
  if (--a->left < 0) abort();
  pthread_cond_signal(&a->changed);
  pthread_mutex_unlock(&a->lock);
}

static void feed_client(const uint8_t *data, size_t size) {
  char name[FAST_NAME] = "";
  int listener = fast_bind_local(name);
  if (listener < 0) abort();
  struct text mine = {0};
  text_add(&mine, "sixteen letters.\0\0", FAST_SECRET + 2);
  text_adds(&mine, name);
  struct fast_client *c = fast_client_new(mine.at, mine.n, NULL);
  if (!c || !readable(listener)) abort();
  int fd = accept(listener, NULL, NULL);
  struct answers a = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  pthread_mutex_lock(&a.lock);
  a.left += fast_ask(c, 7, "key", answered, &a, NULL);
  a.left += fast_call(c, "call", 4, INT64_MAX, answered, &a, NULL);
  uint8_t bytes[256];
  struct fast_sink sink = {.bytes = sizeof bytes, .to = bytes}; /* the third id */
  a.left += fast_ask_poured(c, 7, "key", &sink, answered, &a, NULL);
  pthread_mutex_unlock(&a.lock);
  if (size && send(fd, data, size, MSG_NOSIGNAL) < 0) size = 0;
  close(fd);
  pthread_mutex_lock(&a.lock);
  while (a.left) pthread_cond_wait(&a.changed, &a.lock);
  pthread_mutex_unlock(&a.lock);
  fast_client_free(c);
  close(listener);
  text_release(&mine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const struct fast_handlers handlers = {recv_value, take_call};
  if (!server) {
    buffer_set_limit(64 << 20);
    if (rpc_loop_acquire()) abort();
    server = fast_server_new(&handlers, NULL, NULL);
    if (!server) abort();
    fast_server_ticket(server, &ticket);
  }
  if (size < 2 || size > MOST) return 0;
  if (data[0] & 1) feed_client(data + 1, size - 1);
  else feed_server(data + 1, size - 1);
  return 0;
}
