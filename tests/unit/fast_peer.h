/* A test that plays the peer of the fast path's asking side, frame by frame. */
#ifndef TESTS_UNIT_FAST_PEER_H
#define TESTS_UNIT_FAST_PEER_H

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/fast/fast.h"
#include "rpc/fast/fast_address.h"
#include "rpc/fast/fast_wire.h"
#include "unit.h"

struct answer {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool there;
  shoal_code code;
  float value;
};

static inline void done(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
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

/* The same of one that the host cannot read. */
static inline void done_there(void *arg, shoal_status s, struct tensor *value, bool is_dead) {
  if (!s) tensor_release(value);
  done(arg, s, &(struct tensor){0}, is_dead);
}

static inline void wait_for(struct answer *a) {
  pthread_mutex_lock(&a->lock);
  while (!a->there) pthread_cond_wait(&a->changed, &a->lock);
  pthread_mutex_unlock(&a->lock);
}

static inline void get(int fd, void *to, size_t n) {
  for (size_t have = 0; have < n;) {
    ssize_t k = recv(fd, (char *)to + have, n - have, 0);
    assert_true(k > 0);
    have += (size_t)k;
  }
}

static inline void put(int fd, const void *from, size_t n) {
  assert_int_equal(send(fd, from, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* A listening socket of the fast path and a client that came to it. */
struct pair {
  int listener, fd;
  struct fast_client *client;
};

static inline struct pair meet(bool tcp) {
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

static inline void part(struct pair *p) {
  fast_client_free(p->client);
  close(p->fd);
  close(p->listener);
}

static inline struct fast_frame get_ask(int fd) {
  struct fast_frame f;
  char key[3];
  do get(fd, &f, sizeof f);
  while (f.kind == FAST_DONE); /* of what was asked for before */
  assert_int_equal(f.kind, FAST_ASK);
  assert_int_equal(f.head, 3);
  get(fd, key, 3);
  return f;
}

static inline void answered_by_value(struct pair *p, struct answer *a, uint64_t id) {
  float value = 7;
  struct fast_frame f = {.kind = FAST_VALUE, .dtype = SHOAL_FLOAT32, .id = id, .size = sizeof value};
  assert_false(a->there);
  put(p->fd, &f, sizeof f);
  put(p->fd, &value, sizeof value);
  wait_for(a);
  assert_int_equal(a->code, SHOAL_OK);
  assert_true(a->value == 7);
}

#endif
