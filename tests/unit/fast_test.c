/* The asking side of the fast path against a peer that lies: this test plays the peer, frame by frame. */
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rpc/fast.h"
#include "rpc/fast_address.h"
#include "rpc/fast_wire.h"
#include "unit.h"

struct answer {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool there;
  shoal_code code;
  float value;
};

static void done(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  struct answer *a = arg;
  pthread_mutex_lock(&a->lock);
  a->there = true;
  a->code = shoal_status_code(s);
  if (!s && value->n) a->value = *(const float *)value->data;
  pthread_cond_signal(&a->changed);
  pthread_mutex_unlock(&a->lock);
  if (!s) tensor_release(value);
  shoal_status_free(s);
}

static void wait_for(struct answer *a) {
  pthread_mutex_lock(&a->lock);
  while (!a->there) pthread_cond_wait(&a->changed, &a->lock);
  pthread_mutex_unlock(&a->lock);
}

static void get(int fd, void *to, size_t n) {
  for (size_t have = 0; have < n;) {
    ssize_t k = recv(fd, (char *)to + have, n - have, 0);
    assert_true(k > 0);
    have += (size_t)k;
  }
}

static void put(int fd, const void *from, size_t n) { assert_int_equal(send(fd, from, n, MSG_NOSIGNAL), (ssize_t)n); }

/* A listening socket of the fast path and a client that came to it. */
struct pair {
  int listener, fd;
  struct fast_client *client;
};

static struct pair meet(bool tcp) {
  struct pair p;
  char ticket[FAST_SECRET + 2 + FAST_NAME] = {0}, *name = ticket + FAST_SECRET + 2;
  int port = 0;
  p.listener = tcp ? fast_bind_tcp("127.0.0.1", &port) : fast_bind_local(name);
  assert_true(p.listener >= 0);
  ticket[FAST_SECRET] = (char)port;
  ticket[FAST_SECRET + 1] = (char)(port >> 8);
  p.client = fast_client_new(ticket, FAST_SECRET + 2 + strlen(name), "127.0.0.1");
  assert_non_null(p.client);
  p.fd = accept(p.listener, NULL, NULL);
  assert_true(p.fd >= 0);
  char secret[FAST_SECRET];
  get(p.fd, secret, sizeof secret);
  return p;
}

static void part(struct pair *p) {
  fast_client_free(p->client);
  close(p->fd);
  close(p->listener);
}

static struct fast_frame get_ask(int fd) {
  struct fast_frame f;
  char key[3];
  get(fd, &f, sizeof f);
  assert_int_equal(f.kind, FAST_ASK);
  assert_int_equal(f.head, 3);
  get(fd, key, 3);
  return f;
}

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

static void answered_by_value(struct pair *p, struct answer *a, uint64_t id) {
  float value = 7;
  struct fast_frame f = {.kind = FAST_VALUE, .dtype = SHOAL_FLOAT32, .id = id, .size = sizeof value};
  assert_false(a->there);
  put(p->fd, &f, sizeof f);
  put(p->fd, &value, sizeof value);
  wait_for(a);
  assert_int_equal(a->code, SHOAL_OK);
  assert_true(a->value == 7);
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

RUN_TESTS(cmocka_unit_test(only_the_peers_memory_is_read), cmocka_unit_test(senseless_values_are_errors),
          cmocka_unit_test(other_sockets_are_not_dialled))
