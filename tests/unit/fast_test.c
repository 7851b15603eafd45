/* The fast path against a peer that lies, stops or wants too much: this test plays the peer, frame by frame, to the
 * asking side and to the answering side. */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/device.h"
#include "rpc/loop.h"
#include "rpc/fast/fast.h"
#include "rpc/fast/fast_address.h"
#include "rpc/fast/fast_shared.h"
#include "rpc/fast/fast_window.h"
#include "rpc/fast/fast_wire.h"
#include "rpc/limits.h"
#include "fast_peer.h"
#include "unit.h"

/* The peer says that a float lies in its memory, in that process; returns the kind of frame that is sent back. */
static int offer(struct pair *p, uint64_t id, uint64_t pid, const float *value) {
  struct fast_frame f = {.kind = FAST_REMOTE, .dtype = SHOAL_FLOAT32, .id = id, .size = sizeof *value, .head = 16},
                    back;
  uint64_t head[2] = {pid, (uint64_t)(uintptr_t)value};
  put(p->fd, &f, sizeof f);
  put(p->fd, head, sizeof head);
  get(p->fd, &back, sizeof back);
  assert_int_equal(back.id, id);
  return back.kind;
}

/* Memory is read of the process at the other end, and of no other that it names: the value comes through the socket. */
static void only_the_peers_memory_is_read(void **state) {
  static const float secret = 42, open = 43;
  for (int tcp = 0; tcp < 2; tcp++) {
    struct pair p = meet(tcp);
    struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    assert_true(fast_ask(p.client, 1, "key", done, &a, NULL));
    uint64_t id = get_ask(p.fd).id;
    assert_int_equal(offer(&p, id, tcp ? (uint64_t)getpid() : (uint64_t)getppid(), &secret), FAST_RESEND);
    answered_by_value(&p, &a, id);
    if (!tcp) {
      a.there = false;
      assert_true(fast_ask(p.client, 1, "key", done, &a, NULL));
      id = get_ask(p.fd).id;
      int kind = offer(&p, id, (uint64_t)getpid(), &open);
      if (kind == FAST_RESEND) { /* the system forbids it */
        answered_by_value(&p, &a, id);
      } else {
        assert_int_equal(kind, FAST_DONE);
        wait_for(&a);
        assert_true(a.value == 43);
      }
    }
    part(&p);
  }
}

/* Frames that make no sense are errors of the call they answer. */
static void senseless_values_are_errors(void **state) {
  static const struct fast_frame bad[] = {
      {.kind = FAST_VALUE, .dtype = SHOAL_FLOAT32, .size = 8},           /* two floats in a scalar */
      {.kind = FAST_VALUE, .dtype = SHOAL_STRING, .size = 8},            /* pointers */
      {.kind = FAST_VALUE, .dtype = 250, .size = 8},                     /* no type */
      {.kind = FAST_VALUE, .dtype = SHOAL_FLOAT32, .rank = 200},         /* no such rank */
      {.kind = FAST_VALUE, .dtype = SHOAL_FLOAT32, .rank = 1},           /* a rank without dimensions */
      {.kind = FAST_VALUE, .dtype = SHOAL_UINT8, .flags = FAST_ENCODED}, /* no message */
      {.kind = FAST_ERROR, .dtype = 200},                                /* no such code */
  };
  struct pair p = meet(false);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    assert_true(fast_ask(p.client, 1, "key", done, &a, NULL));
    struct fast_frame f = bad[i];
    f.id = get_ask(p.fd).id;
    put(p.fd, &f, sizeof f);
    put(p.fd, "01234567", f.size);
    wait_for(&a);
    assert_int_not_equal(a.code, SHOAL_OK);
  }
  struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
  assert_true(fast_ask(p.client, 1, "key", done, &a, NULL));
  struct fast_frame huge = {.kind = FAST_VALUE, .head = UINT32_MAX, .size = UINT64_MAX, .id = get_ask(p.fd).id};
  put(p.fd, &huge, sizeof huge); /* ends the connection */
  wait_for(&a);
  assert_int_equal(a.code, SHOAL_UNAVAILABLE);
  part(&p);
}

/* A ticket names a socket of the fast path, not any that is there. */
static void other_sockets_are_not_dialled(void **state) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "another-%d", (int)getpid());
  assert_int_equal(bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
                   0);
  assert_int_equal(listen(fd, 1), 0);
  char ticket[FAST_SECRET + 2 + 64] = {0};
  memcpy(ticket + FAST_SECRET + 2, a.sun_path + 1, (size_t)n);
  assert_null(fast_client_new(ticket, FAST_SECRET + 2 + (size_t)n, NULL));
  close(fd);
}

struct dialled {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int ended, reached;
};

static void on_dialled(void *arg, struct fast_client *c) {
  struct dialled *d = arg;
  pthread_mutex_lock(&d->lock);
  d->ended++;
  d->reached += c != NULL;
  pthread_cond_signal(&d->changed);
  pthread_mutex_unlock(&d->lock);
  fast_client_free(c);
}

/* Whoever dials does not wait for it, and a peer that accepts nobody keeps no other from being reached: the lock that
 * the end of each attempt needs is held while all are begun. */
static void dialling_waits_for_nobody(void **state) {
  enum { STUCK = 12 };
  char stuck[FAST_SECRET + 2 + FAST_NAME] = {0}, good[FAST_SECRET + 2 + FAST_NAME] = {0};
  int full = fast_bind_local(stuck + FAST_SECRET + 2), open = fast_bind_local(good + FAST_SECRET + 2);
  assert_true(full >= 0 && open >= 0 && !listen(full, 0));
  struct sockaddr_un a = {0};
  socklen_t size = sizeof a;
  assert_int_equal(getsockname(full, (struct sockaddr *)&a, &size), 0);
  int fds[256], n = 0;
  for (bool more = true; more;) { /* until its queue is full */
    fds[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    more = connect(fds[n++], (struct sockaddr *)&a, size) == 0;
    assert_true(n < 256);
  }
  struct dialled d = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
  pthread_mutex_lock(&d.lock);
  for (int i = 0; i < STUCK; i++)
    fast_client_dial(stuck, FAST_SECRET + 2 + strlen(stuck + FAST_SECRET + 2), NULL, on_dialled, &d);
  fast_client_dial(good, FAST_SECRET + 2 + strlen(good + FAST_SECRET + 2), NULL, on_dialled, &d);
  while (d.ended < STUCK + 1) pthread_cond_wait(&d.changed, &d.lock);
  pthread_mutex_unlock(&d.lock);
  assert_int_equal(d.reached, 1);
  while (n) close(fds[--n]);
  close(full);
  close(open);
}

/* Shared memory is mapped only when it is the peer's own, and sealed: it could be made shorter under its reader. */
static void memory_that_could_shrink_is_not_mapped(void **state) {
  enum { SIZE = 8 << 20 };
  for (int sealed = 0; sealed < 2; sealed++)
    for (int own = 0; own < 2; own++) {
      struct pair p = meet(false);
      int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      struct stat st;
      assert_true(fd >= 0 && !ftruncate(fd, SIZE) && !fstat(fd, &st));
      if (sealed) assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
      float value = 7;
      assert_int_equal(pwrite(fd, &value, sizeof value, 0), sizeof value);
      struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
      assert_true(fast_ask(p.client, 1, "key", done, &a, NULL));
      struct fast_frame f = {.kind = FAST_SHARED, .dtype = SHOAL_FLOAT32, .size = 4, .head = 40}, back;
      f.id = get_ask(p.fd).id;
      uint64_t pid = own ? (uint64_t)getpid() : (uint64_t)getppid();
      uint64_t head[5] = {pid, (uint64_t)fd, (uint64_t)st.st_ino, SIZE, 0};
      put(p.fd, &f, sizeof f);
      put(p.fd, head, sizeof head);
      if (sealed && own) {
        wait_for(&a);
        assert_true(a.code == SHOAL_OK && a.value == 7);
      } else {
        get(p.fd, &back, sizeof back);
        assert_int_equal(back.kind, FAST_RESEND);
        answered_by_value(&p, &a, f.id);
      }
      part(&p);
      close(fd);
    }
}

/* ---- the answering side ---- */

/* Floats, of which a small value (which comes by the socket) and a large one have so many; ms. */
enum { SMALL = SHARED_FROM / 4 - 1, LARGE = 1 << 20, PATIENCE_MS = 60000 };

/* As usual. */
static void reset_limits(void) {
  for (int i = 0; i < RPC_LIMITS; i++) rpc_limit_set((enum rpc_limit)i, 0);
}

struct server {
  struct fast_server *server;
  struct text ticket;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct fast_request *late; /* its peer has gone */
  int busy;                  /* handlers that wait until they are released */
  bool released;
};

static void cancelled(void *arg) { fast_answer(arg, STATUS(SHOAL_CANCELLED, "not wanted"), NULL, false); }

static struct server *serving;
static void given_up(void *arg) {
  pthread_mutex_lock(&serving->lock);
  serving->late = arg;
  pthread_cond_broadcast(&serving->changed);
  pthread_mutex_unlock(&serving->lock);
}

static void give(struct fast_request *r, int64_t n) {
  struct tensor t;
  shoal_status s = tensor_new_dims(&t, SHOAL_FLOAT32, 1, &n);
  if (!s) memset(t.data, 0, tensor_bytes(&t));
  fast_answer(r, s, s ? NULL : &t, false);
}

static void block(struct server *s, struct fast_request *r) {
  pthread_mutex_lock(&s->lock);
  s->busy++;
  pthread_cond_broadcast(&s->changed);
  while (!s->released) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
  cancelled(r);
}

static void wait_busy(struct server *s, int n) {
  pthread_mutex_lock(&s->lock);
  while (s->busy < n) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static void release(struct server *s) {
  pthread_mutex_lock(&s->lock);
  s->released = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

struct kept {
  struct answer answer;
  struct tensor value;
};

static void keep(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct kept *k = arg;
  assert_null(s);
  tensor_move(&k->value, value);
  pthread_mutex_lock(&k->answer.lock);
  k->answer.there = true;
  pthread_cond_signal(&k->answer.changed);
  pthread_mutex_unlock(&k->answer.lock);
}

/* A sender that writes into shared memory after it has said what lies there: floats are used where they are, and
 * change; what may be an index has been taken out. */
static void what_is_checked_stays(void **state) {
  enum { N = 4096 };
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_INT32, SHOAL_BOOL};
  struct pair p = meet(false);
  struct fast_arena *arena = fast_arena_new();
  assert_non_null(arena);
  for (size_t i = 0; i < COUNT_OF(types); i++) {
    struct kept k = {.answer = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER}};
    uint64_t size = N * dtype_size(types[i]), offset;
    uint8_t *block = fast_arena_take(arena, size, &offset);
    assert_true(fast_ask(p.client, 1, "key", keep, &k, NULL));
    struct fast_frame f = {
        .kind = FAST_SHARED, .dtype = (uint8_t)types[i], .rank = 1, .id = get_ask(p.fd).id, .size = size, .head = 48};
    struct fast_place place = *fast_arena_place(arena);
    memset(block, 1, size);
    put(p.fd, &f, sizeof f);
    put(p.fd, &(int64_t){N}, 8);
    put(p.fd, &place, sizeof place);
    put(p.fd, &offset, sizeof offset);
    wait_for(&k.answer);
    memset(block, 9, size);
    assert_int_equal(k.value.n, N);
    assert_int_equal(*(const uint8_t *)k.value.data, types[i] == SHOAL_FLOAT32 ? 9 : 1);
    tensor_release(&k.value);
  }
  part(&p);
  fast_arena_free(arena);
}

/* Blocks are the first that are free, are nobody else's while they are taken, and fill the arena to its end. */
static void blocks_fill_the_arena(void **state) {
  enum { SIZE = SHARED_FROM, THREE = 3 * SIZE - 1, MANY = 1 << 14 };
  struct fast_arena *arena = fast_arena_new();
  assert_non_null(arena);
  uint64_t at[MANY], offset;
  size_t n = 0;
  for (; n < MANY && fast_arena_take(arena, SIZE, &at[n]); n++) assert_int_equal(at[n], n * SIZE);
  assert_int_equal(n * SIZE, fast_arena_place(arena)->size);
  assert_null(fast_arena_take(arena, 1, &offset));
  fast_arena_give(arena, SIZE, at[n - 1]);
  fast_arena_give(arena, SIZE, at[n - 2]);
  assert_null(fast_arena_take(arena, THREE, &offset)); /* at the end there is room for two */
  fast_arena_give(arena, 2 * SIZE, at[10]);            /* so is here */
  assert_null(fast_arena_take(arena, THREE, &offset));
  fast_arena_give(arena, SIZE, at[101]);
  fast_arena_give(arena, SIZE, at[100]);
  fast_arena_give(arena, SIZE, at[102]);
  assert_non_null(fast_arena_take(arena, THREE, &offset));
  assert_int_equal(offset, at[100]);
  static const size_t left[] = {10, 11};
  for (size_t i = 0; i < COUNT_OF(left); i++) {
    assert_non_null(fast_arena_take(arena, SIZE, &offset));
    assert_int_equal(offset, at[left[i]]);
  }
  assert_non_null(fast_arena_take(arena, 2 * SIZE, &offset));
  assert_int_equal(offset, at[n - 2]);
  assert_null(fast_arena_take(arena, 1, &offset));
  fast_arena_free(arena);
}

/* A window of the device with 4096 floats in it, of which the peer says what it likes. */
static shoal_code by_window(struct pair *p, struct device *d, const struct fast_window_place *place, int64_t n) {
  struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
  assert_true(fast_ask_into(p->client, 1, "key", d, done_there, &a, NULL));
  struct fast_frame f = {
      .kind = FAST_WINDOW, .dtype = SHOAL_FLOAT32, .rank = 1, .id = get_ask(p->fd).id, .size = (uint64_t)n * 4};
  f.head = (uint32_t)(8 + sizeof *place);
  put(p->fd, &f, sizeof f);
  put(p->fd, &n, sizeof n);
  put(p->fd, place, sizeof *place);
  wait_for(&a);
  return a.code;
}

/* How large a window is is known from when it was opened, not from what the peer says afterwards; and one that was not
 * asked for, as nobody does beyond this host, is not looked at. */
static void windows_are_as_large_as_they_are(void **state) {
  enum { N = 4096 };
  const char *before = getenv("SHOAL_SOFT_GPUS");
  struct device *d;
  struct tensor memory;
  if (!before) setenv("SHOAL_SOFT_GPUS", "1", 1);
  ASSERT_OK(device_new("GPU", "/job:worker/replica:0/task:0", 0, NULL, &d));
  struct fast_window_place place = {.size = N * 4};
  ASSERT_OK(d->type->ops->window_new(d, "a window", N * 4, &memory, &place.handle));
  d->type->ops->zero(d, &memory);
  ASSERT_OK(d->type->ops->finish(d));
  struct pair p = meet(false);
  assert_int_equal(by_window(&p, d, &place, N), SHOAL_OK);
  place.offset = N * 4 - 4;
  assert_int_equal(by_window(&p, d, &place, 1), SHOAL_OK);
  assert_int_equal(by_window(&p, d, &place, 2), SHOAL_INTERNAL);
  place.size = (uint64_t)1 << 40; /* of one that is open */
  assert_int_equal(by_window(&p, d, &place, 2), SHOAL_INTERNAL);
  place.offset = (uint64_t)1 << 30;
  assert_int_equal(by_window(&p, d, &place, 1), SHOAL_INTERNAL);
  part(&p);
  place = (struct fast_window_place){place.handle, N * 4, 0};
  p = meet(true);
  assert_int_equal(by_window(&p, d, &place, N), SHOAL_INTERNAL);
  part(&p);
  tensor_release(&memory);
  device_free(d);
  if (!before) unsetenv("SHOAL_SOFT_GPUS");
}

/* A value of a size that goes by shared memory; its memory says when nobody has it any more. */
static atomic_bool middling_let_go;
static float middling[1 << 13];
static void let_go(struct buffer *b) { atomic_store(&middling_let_go, true); }
static void give_middling(struct fast_request *r) {
  struct tensor t = {.buffer = buffer_wrap(middling, sizeof middling, NULL, let_go, NULL),
                     .data = middling,
                     .dtype = SHOAL_FLOAT32,
                     .rank = 1,
                     .n = COUNT_OF(middling),
                     .dims = {COUNT_OF(middling)}};
  fast_answer(r, NULL, &t, false);
}

/* By the key's first letter: a small value, a large one, a middling one, one that never comes, one that comes too late,
 * one that takes a thread. */
static void recv_value(void *arg, struct fast_request *r, int64_t step, const char *key) {
  if (key[0] == 'w') fast_on_cancel(r, cancelled, r);
  else if (key[0] == 'n') fast_on_cancel(r, given_up, r);
  else if (key[0] == 'b') block(arg, r);
  else if (key[0] == 'm') give_middling(r);
  else give(r, key[0] == 'l' ? LARGE : SMALL);
}

static void take_call(void *arg, struct fast_request *r, const void *data, size_t n, int64_t deadline) {
  struct text out = {0};
  text_add(&out, data, n);
  fast_reply(r, NULL, &out);
}

static void serve(struct server *s, const char *host) {
  static const struct fast_handlers handlers = {recv_value, take_call};
  *s = (struct server){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  s->server = fast_server_new(&handlers, s, host);
  assert_non_null(s->server);
  fast_server_ticket(s->server, &s->ticket);
  serving = s;
}

static void end(struct server *s) {
  reset_limits();
  fast_server_stop(s->server);
  fast_server_unref(s->server);
  text_release(&s->ticket);
}

static int dial(struct server *s, bool tell) {
  int fd = fast_dial_local(s->ticket.at + FAST_SECRET + 2, s->ticket.n - FAST_SECRET - 2);
  assert_true(fd >= 0);
  if (tell) put(fd, s->ticket.at, FAST_SECRET);
  return fd;
}

static bool ask(int fd, uint64_t id, const char *key) {
  struct fast_frame f = {.kind = FAST_ASK, .id = id, .head = (uint32_t)strlen(key)};
  char bytes[sizeof f + 16];
  memcpy(bytes, &f, sizeof f);
  memcpy(bytes + sizeof f, key, strlen(key));
  return send(fd, bytes, sizeof f + strlen(key), MSG_NOSIGNAL) > 0;
}

/* Is the connection ended, without a byte being read? */
static void hung_up(int fd) {
  struct pollfd p = {.fd = fd, .events = POLLRDHUP};
  assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
  close(fd);
}

static struct fast_frame get_answer(int fd, size_t most) {
  struct fast_frame f;
  get(fd, &f, sizeof f);
  size_t more = f.head + (f.kind == FAST_VALUE || f.kind == FAST_RESULT ? f.size : 0);
  char *scrap = mem_alloc(more + 1);
  assert_true(more <= most);
  get(fd, scrap, more);
  free(scrap);
  return f;
}

static void works(struct server *s) {
  int fd = dial(s, true);
  int64_t in, out, in_before, out_before;
  fast_bytes(&in_before, &out_before);
  assert_true(ask(fd, 7, "s"));
  struct fast_frame f = get_answer(fd, 1 << 20);
  assert_true(f.kind == FAST_VALUE && f.id == 7);
  for (int i = 0; i < PATIENCE_MS; i++) { /* counted once they are sent, while we may have them already */
    fast_bytes(&in, &out);
    if (out >= out_before + (int64_t)f.size) break;
    usleep(1000);
  }
  assert_true(in > in_before && out >= out_before + (int64_t)f.size);
  close(fd);
}

static void silence_and_halves_end(void **state) {
  struct server s;
  serve(&s, NULL);
  rpc_limit_set(RPC_FAST_GREETING_TIMEOUT, 1);
  hung_up(dial(&s, false)); /* never says who it is */
  rpc_limit_set(RPC_FAST_GREETING_TIMEOUT, PATIENCE_MS / 1000);
  rpc_limit_set(RPC_REQUEST_TIMEOUT, 1);
  int fd = dial(&s, true);
  put(fd, "\1\0\0", 3); /* a frame that does not go on */
  hung_up(fd);
  fd = dial(&s, true);
  struct fast_frame f = {.kind = FAST_CALL, .head = 1 << 19};
  put(fd, &f, sizeof f);
  hung_up(fd);
  reset_limits();
  works(&s);
  end(&s);
}

/* A request that makes sense, by one who does not know the secret or not all of it. */
static void nobody_is_served_without_the_secret(void **state) {
  struct server s;
  serve(&s, NULL);
  for (int i = -1; i < FAST_SECRET; i++) {
    char secret[FAST_SECRET] = {0}, byte;
    if (i >= 0) memcpy(secret, s.ticket.at, FAST_SECRET);
    if (i >= 0) secret[i] ^= 1;
    int fd = dial(&s, false);
    put(fd, secret, FAST_SECRET);
    ask(fd, 1, "s"); /* which may find the connection closed */
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
  }
  works(&s);
  end(&s);
}

static void an_id_is_asked_for_once(void **state) {
  struct server s;
  serve(&s, NULL);
  int fd = dial(&s, true);
  assert_true(ask(fd, 256, "w") && ask(fd, 512, "w") && ask(fd, 256, "w"));
  hung_up(fd);
  works(&s);
  end(&s);
}

/* A handler that does not end: the server says so, and what the handler works on is still there. */
static void handlers_that_go_on(void **state) {
  struct server s;
  serve(&s, NULL);
  int fd = dial(&s, true);
  assert_true(ask(fd, 1, "b"));
  wait_busy(&s, 1);
  assert_false(fast_server_stop(s.server));
  release(&s);
  while (!fast_server_stop(s.server)) continue;
  close(fd);
  end(&s);
}

/* A connection has no more handlers at work than it may; while they wait for whatever it is, and many more would,
 * others are served, what it no longer wants is cancelled, and its end is seen. */
static void handlers_that_wait_keep_nobody(void **state) {
  enum { MOST = 5, MORE = 300 };
  struct server s;
  serve(&s, NULL);
  rpc_limit_set(RPC_MAX_CONNECTION_HANDLERS, MOST);
  int fd = dial(&s, true), other = dial(&s, true);
  assert_true(ask(fd, 1, "w"));
  assert_true(ask(fd, 2, "s")); /* when this is answered the one before has begun */
  assert_int_equal(get_answer(fd, 1 << 20).id, 2);
  for (int i = 1; i <= MOST; i++) { /* one by one: each is an event of its own */
    assert_true(ask(fd, 100 + (uint64_t)i, "b"));
    wait_busy(&s, i);
  }
  for (uint64_t i = 0; i < MORE; i++) assert_true(ask(fd, 1000 + i, "b"));
  assert_true(ask(other, 1, "n"));
  works(&s);
  struct fast_frame cancel = {.kind = FAST_CANCEL, .id = 1};
  for (int i = 0; i < 10; i++) put(fd, &cancel, sizeof cancel);
  struct fast_frame f = get_answer(fd, 4096);
  assert_true(f.kind == FAST_ERROR && f.id == 1 && f.dtype == SHOAL_CANCELLED);
  close(other);
  pthread_mutex_lock(&s.lock);
  while (!s.late) pthread_cond_wait(&s.changed, &s.lock);
  int busy = s.busy;
  pthread_mutex_unlock(&s.lock);
  assert_int_equal(busy, MOST);
  give(s.late, SMALL);
  release(&s);
  for (int i = 0; i < MOST + MORE; i++) get_answer(fd, 4096);
  close(fd);
  end(&s);
}

static void who_does_not_read_is_hung_up_on(void **state) {
  struct server s;
  serve(&s, NULL);
  rpc_limit_set(RPC_MAX_FAST_UNREAD_BYTES, 1 << 20);
  rpc_limit_set(RPC_FAST_UNREAD_TIMEOUT, 10 * PATIENCE_MS / 1000); /* it is not the clock that ends it */
  int fd = dial(&s, true);
  uint64_t id = 0;
  while (ask(fd, ++id, "s")) assert_true(id < 100000); /* far more than any buffer holds */
  hung_up(fd);
  /* Less than that, but for too long; in the socket, and in our memory. */
  rpc_limit_set(RPC_MAX_FAST_UNREAD_BYTES, 0);
  rpc_limit_set(RPC_FAST_UNREAD_TIMEOUT, 1);
  fd = dial(&s, true);
  for (id = 0; id < 4000; id++)
    if (!ask(fd, id, "s")) break;
  hung_up(fd);
  fd = dial(&s, true);
  assert_true(ask(fd, 1, "l"));
  hung_up(fd);
  reset_limits();
  works(&s);
  end(&s);
}

static void requests_are_counted(void **state) {
  struct server s;
  serve(&s, NULL);
  rpc_limit_set(RPC_MAX_FAST_REQUESTS, 10);
  int fd = dial(&s, true);
  for (uint64_t id = 0; id < 10; id++) assert_true(ask(fd, id, "w"));
  assert_true(ask(fd, 10, "w"));
  struct fast_frame f = get_answer(fd, 4096);
  assert_true(f.kind == FAST_ERROR && f.id == 10 && f.dtype == SHOAL_RESOURCE_EXHAUSTED);
  struct fast_frame cancel = {.kind = FAST_CANCEL, .id = 3};
  put(fd, &cancel, sizeof cancel);
  f = get_answer(fd, 4096);
  assert_true(f.kind == FAST_ERROR && f.id == 3 && f.dtype == SHOAL_CANCELLED);
  assert_true(ask(fd, 11, "s")); /* and there is room again */
  f = get_answer(fd, 1 << 20);
  assert_true(f.kind == FAST_VALUE && f.id == 11);
  close(fd);
  rpc_limit_set(RPC_MAX_FAST_REQUESTS, 0);
  rpc_limit_set(RPC_MAX_CONNECTION_HELD_BYTES, 100000);
  fd = dial(&s, true);
  struct fast_frame call = {.kind = FAST_CALL, .id = 1, .head = 150000};
  char *bytes = mem_zalloc(150000, 1);
  put(fd, &call, sizeof call);
  put(fd, bytes, 150000);
  f = get_answer(fd, 4096);
  assert_true(f.kind == FAST_ERROR && f.dtype == SHOAL_RESOURCE_EXHAUSTED);
  call.head = 1000;
  put(fd, &call, sizeof call);
  put(fd, bytes, 1000);
  f = get_answer(fd, 4096);
  assert_true(f.kind == FAST_RESULT && f.size == 1000);
  free(bytes);
  close(fd);
  end(&s);
}

/* However many connections come from one address, a quarter of what requests may take is left for others. */
static void an_address_has_its_share(void **state) {
  struct server s;
  rpc_limit_set(RPC_MAX_HELD_BYTES, 400000);
  rpc_limit_set(RPC_MAX_CONNECTION_HELD_BYTES, 200000);
  serve(&s, "127.0.0.1");
  uint16_t port;
  memcpy(&port, s.ticket.at + FAST_SECRET, sizeof port);
  int fd[3];
  char *key = mem_zalloc(120000, 1);
  key[0] = 'w';
  for (uint64_t i = 0; i < 3; i++) {
    fd[i] = fast_dial_tcp("127.0.0.1", port);
    assert_true(fd[i] >= 0 && fcntl(fd[i], F_SETFL, 0) == 0);
    put(fd[i], s.ticket.at, FAST_SECRET);
    struct fast_frame f = {.kind = FAST_ASK, .id = i, .head = 120000};
    put(fd[i], &f, sizeof f);
    put(fd[i], key, 120000);
    assert_true(ask(fd[i], 10 + i, "s")); /* after it: the one before was noted, or refused */
    f = get_answer(fd[i], 1 << 20);
    assert_true(i < 2 ? f.kind == FAST_VALUE && f.id == 10 + i
                      : f.kind == FAST_ERROR && f.id == i && f.dtype == SHOAL_RESOURCE_EXHAUSTED);
  }
  works(&s); /* who comes from elsewhere finds room */
  for (int i = 0; i < 3; i++) close(fd[i]);
  free(key);
  end(&s);
  assert_int_equal(budget_used(rpc_budget(RPC_MAX_HELD_BYTES)), 0);
}

static void connections_are_counted(void **state) {
  struct server s;
  serve(&s, NULL);
  rpc_limit_set(RPC_MAX_FAST_CONNECTIONS, 3);
  rpc_limit_set(RPC_FAST_GREETING_TIMEOUT, 10 * PATIENCE_MS / 1000); /* it is not for its silence that one goes */
  int fd[3];
  for (int i = 0; i < 3; i++) {
    fd[i] = dial(&s, true);
    assert_true(ask(fd[i], 1, "s"));
    get_answer(fd[i], 1 << 20);
  }
  hung_up(dial(&s, false));
  close(fd[0]);
  /* Its end is noticed soon: until then others are turned away. */
  for (int64_t late = clock_ns() + (int64_t)PATIENCE_MS * 1000000;;) {
    char byte;
    int again = dial(&s, false);
    bool in = send(again, s.ticket.at, FAST_SECRET, MSG_NOSIGNAL) == FAST_SECRET && ask(again, 1, "s") &&
              recv(again, &byte, 1, 0) == 1;
    close(again);
    if (in) break;
    assert_true(clock_ns() < late);
    usleep(5000);
  }
  close(fd[1]);
  close(fd[2]);
  end(&s);
}

/* What only answers may be is no question: it would be read without being asked for. */
static void answers_are_no_questions(void **state) {
  struct server s;
  serve(&s, NULL);
  for (int kind = 0; kind < 40; kind++) {
    if (kind == FAST_ASK || kind == FAST_CALL || kind == FAST_CANCEL || kind == FAST_DONE || kind == FAST_RESEND)
      continue;
    int fd = dial(&s, true);
    struct fast_frame f = {.kind = (uint8_t)kind, .size = (uint64_t)1 << 40};
    put(fd, &f, sizeof f);
    hung_up(fd);
  }
  works(&s);
  end(&s);
}

/* A value that is answered with after its receiver has gone is let go. The sanitizers see it when it is not. */
static void too_late_is_not_kept(void **state) {
  struct server s;
  serve(&s, NULL);
  int fd = dial(&s, true);
  assert_true(ask(fd, 1, "n"));
  assert_true(ask(fd, 2, "s")); /* the first is there when this is answered */
  get_answer(fd, 1 << 20);
  close(fd);
  pthread_mutex_lock(&s.lock);
  while (!s.late) pthread_cond_wait(&s.changed, &s.lock);
  pthread_mutex_unlock(&s.lock);
  give(s.late, 1 << 14); /* as large as shared memory is for */
  end(&s);
}

/* What lies in shared memory is no longer the giver's, who may wait for it before the receiver says anything; and the
 * receiver gets it by the socket, should it not find that memory. */
static void what_was_copied_is_let_go(void **state) {
  struct server s;
  serve(&s, NULL);
  middling[5] = 7;
  atomic_store(&middling_let_go, false);
  int fd = dial(&s, true);
  assert_true(ask(fd, 1, "m"));
  assert_int_equal(get_answer(fd, 1 << 20).kind, FAST_SHARED);
  for (int i = 0; i < PATIENCE_MS && !atomic_load(&middling_let_go); i++) usleep(1000);
  assert_true(atomic_load(&middling_let_go));
  middling[5] = 8; /* it is ours again */
  put(fd, &(struct fast_frame){.kind = FAST_RESEND, .id = 1}, sizeof(struct fast_frame));
  struct fast_frame f;
  get(fd, &f, sizeof f);
  assert_true(f.kind == FAST_VALUE && f.size == sizeof middling && f.head == 8);
  float *got = mem_alloc(f.head + f.size);
  get(fd, got, f.head + f.size);
  assert_true(got[2 + 5] == 7);
  free(got);
  close(fd);
  end(&s);
}

/* Without a free descriptor the listener waits for one, and does not spin; then it goes on. */
static void no_descriptors(void **state) {
  struct server s;
  serve(&s, NULL);
  works(&s);
  struct rlimit was, none;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  size_t n = s.ticket.n - FAST_SECRET - 2;
  memcpy(a.sun_path + 1, s.ticket.at + FAST_SECRET + 2, n);
  none = (struct rlimit){.rlim_cur = 0, .rlim_max = was.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)), 0);
  put(fd, s.ticket.at, FAST_SECRET);
  assert_true(ask(fd, 5, "s"));
  struct timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  usleep(600000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  int64_t spent = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
  assert_true(spent < 200000000); /* one that spins takes all that a core has */
  assert_int_equal(get_answer(fd, 1 << 20).id, 5);
  close(fd);
  end(&s);
}

/* ---- no memory ---- */

/* A body for which there is no room is an error of its call; the connection goes on. */
static void bodies_without_room(void **state) {
  rpc_limit_set(RPC_MAX_CONNECTION_HELD_BYTES, 100000);
  struct pair p = meet(false);
  struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
  assert_true(fast_ask(p.client, 1, "key", done, &a, NULL));
  enum { N = 150000 };
  struct fast_frame f = {.kind = FAST_VALUE, .dtype = SHOAL_UINT8, .rank = 1, .head = 8, .size = N};
  f.id = get_ask(p.fd).id;
  uint64_t dim = N;
  char *bytes = mem_zalloc(N, 1);
  put(p.fd, &f, sizeof f);
  put(p.fd, &dim, sizeof dim);
  for (int at = 0; at < N; at += N / 10) put(p.fd, bytes + at, N / 10);
  wait_for(&a);
  assert_int_equal(a.code, SHOAL_RESOURCE_EXHAUSTED);
  free(bytes);
  a.there = false;
  assert_true(fast_ask(p.client, 1, "key", done, &a, NULL));
  answered_by_value(&p, &a, get_ask(p.fd).id);
  part(&p);
  reset_limits();
}

/* Every attempt to get memory for what came over the wire fails, one after the other, on both sides at once: a client
 * of ours asks a server of ours. Each call ends, well or with an error, and nothing is lost. */
static void each_allocation_fails(void **state) {
  struct server s;
  serve(&s, "127.0.0.1");
  for (int tcp = 0; tcp < 2; tcp++) {
    bool clean = false;
    for (long k = 1; k < 200 && !clean; k++) {
      size_t n = tcp ? FAST_SECRET + 2 : s.ticket.n;
      struct fast_client *c = fast_client_new(s.ticket.at, n, "127.0.0.1");
      assert_non_null(c);
      static const char *const keys[] = {"s", "l", "s"};
      mem_fail_at(k);
      for (size_t i = 0; i < COUNT_OF(keys); i++) {
        struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
        if (!fast_ask(c, 1, keys[i], done, &a, NULL)) break;
        wait_for(&a);
        assert_true(a.code == SHOAL_OK || a.code == SHOAL_RESOURCE_EXHAUSTED || a.code == SHOAL_UNAVAILABLE);
      }
      struct answer a = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
      if (fast_call(c, "call", 4, DEADLINE_NEVER, done, &a, NULL)) wait_for(&a);
      clean = !mem_fail_at(0);
      fast_client_free(c);
    }
    assert_true(clean);
  }
  end(&s);
}

static int network_begins(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  return 0;
}

static int network_ends(void **state) {
  rpc_loop_release();
  return 0;
}

RUN_TESTS_WITHIN(network_begins, network_ends, cmocka_unit_test(only_the_peers_memory_is_read),
                 cmocka_unit_test(senseless_values_are_errors), cmocka_unit_test(other_sockets_are_not_dialled),
                 cmocka_unit_test(dialling_waits_for_nobody), cmocka_unit_test(memory_that_could_shrink_is_not_mapped),
                 cmocka_unit_test(silence_and_halves_end), cmocka_unit_test(nobody_is_served_without_the_secret),
                 cmocka_unit_test(who_does_not_read_is_hung_up_on), cmocka_unit_test(requests_are_counted),
                 cmocka_unit_test(an_address_has_its_share), cmocka_unit_test(connections_are_counted),
                 cmocka_unit_test(answers_are_no_questions), cmocka_unit_test(too_late_is_not_kept),
                 cmocka_unit_test(what_was_copied_is_let_go), cmocka_unit_test(no_descriptors),
                 cmocka_unit_test(bodies_without_room), cmocka_unit_test(each_allocation_fails),
                 cmocka_unit_test(an_id_is_asked_for_once), cmocka_unit_test(handlers_that_go_on),
                 cmocka_unit_test(handlers_that_wait_keep_nobody), cmocka_unit_test(what_is_checked_stays),
                 cmocka_unit_test(blocks_fill_the_arena), cmocka_unit_test(windows_are_as_large_as_they_are))
