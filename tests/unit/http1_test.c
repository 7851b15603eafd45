/* A server of HTTP/1 in one process with gRPC's: an address has its share of the handlers, a handler hears that nobody
 * waits for it, large bodies wait for room, idle connections of one port make room at the other, the end waits for what
 * is under way and no longer.
 */
#include "unit.h"
#include "ports.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "rpc/channel.h"
#include "rpc/http1/http1.h"
#include "rpc/limits.h"
#include "rpc/loop.h"
#include "rpc/server.h"

static sem_t begun, released;
static atomic_int unwanted;

static void on_unwanted(void *arg) {
  atomic_fetch_add(&unwanted, 1);
  sem_post(arg);
}

enum { MUCH = 32 << 20 };

/* /wait waits until it is released, /hear until nobody wants it, and so does /much, which says more than a socket
 * takes; others are answered. */
static void handle(void *arg, const struct http1_request *r, struct http1_answer *a) {
  a->code = 200;
  text_adds(&a->body, r->path);
  if (!strcmp(r->path, "/wait")) {
    sem_post(&begun);
    rpc_loop_hand_over();
    while (sem_wait(&released)) continue;
  }
  bool much = !strcmp(r->path, "/much");
  if (strcmp(r->path, "/hear") != 0 && !much) return;
  sem_t heard;
  sem_init(&heard, 0, 0);
  http1_on_unwanted(r, on_unwanted, &heard);
  sem_post(&begun);
  rpc_loop_hand_over();
  while (sem_wait(&heard)) continue;
  http1_wanted(r);
  sem_destroy(&heard);
  for (int i = 0; much && i < MUCH / 1024; i++) text_addf(&a->body, "%1024d", i);
}

static void refuse(void *arg, int code, const char *words, struct http1_answer *a) {
  a->code = code;
  text_adds(&a->body, words);
}

static struct http1 *start(void) {
  struct http1 *h;
  ASSERT_OK(http1_start(&(struct http1_options){.flags = "none", .handle = handle, .refuse = refuse}, &h));
  return h;
}

static void stop(struct http1 *h, int64_t grace_ms) {
  http1_close(h, grace_ms);
  http1_stop(h);
}

/* From 127.0.0.`host`. */
static int dial(int port, int host) {
  struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (unsigned)host)};
  struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

static void say(int fd, const char *path) {
  char request[128];
  int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n\r\n", path);
  assert_int_equal(write(fd, request, (size_t)n), n);
}

/* Is the next answer of that code? False too where there is none. */
static bool hears(int fd, int code) {
  char answer[512] = "";
  ssize_t n = read(fd, answer, sizeof answer - 1);
  return n > 9 && atoi(answer + 9) == code;
}

static bool is_asked(int port, int host) {
  int fd = dial(port, host);
  say(fd, "/now");
  bool well = hears(fd, 200);
  close(fd);
  return well;
}

static void an_address_has_a_share_of_the_handlers(void **state) {
  enum { ALL = 6, SHARE = 2 };
  rpc_limit_set(RPC_MAX_HTTP_HANDLERS, SHARE);
  struct http1 *h = start();
  int waiting[ALL];
  for (int i = 0; i < ALL; i++) say(waiting[i] = dial(http1_port(h), 2), "/wait");
  for (int i = 0; i < SHARE; i++) sem_wait(&begun);
  for (int i = 0; i < 3; i++) assert_true(is_asked(http1_port(h), 1));
  assert_int_equal(sem_trywait(&begun), -1); /* the others have not begun */
  for (int i = 0; i < ALL; i++) sem_post(&released);
  for (int i = 0; i < ALL; i++) {
    assert_true(hears(waiting[i], 200));
    close(waiting[i]);
  }
  for (int i = SHARE; i < ALL; i++) sem_wait(&begun);
  stop(h, 0);
  rpc_limit_set(RPC_MAX_HTTP_HANDLERS, 0);
}

static void a_handler_hears_that_nobody_waits(void **state) {
  struct http1 *h = start();
  int fd = dial(http1_port(h), 1);
  say(fd, "/hear");
  sem_wait(&begun);
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
  close(fd); /* with a reset */
  while (atomic_load(&unwanted) < 1) usleep(1000);
  /* Who has said all it will is not gone. */
  fd = dial(http1_port(h), 1);
  say(fd, "/wait");
  shutdown(fd, SHUT_WR);
  sem_wait(&begun);
  sem_post(&released);
  assert_true(hears(fd, 200));
  close(fd);
  stop(h, 0);
  assert_int_equal(atomic_load(&unwanted), 1);
}

static void the_end_waits_so_long(void **state) {
  struct http1 *h = start();
  int hearing = dial(http1_port(h), 1), idle = dial(http1_port(h), 1), half = dial(http1_port(h), 1);
  say(hearing, "/hear");
  assert_int_equal(write(half, "GET", 3), 3);
  sem_wait(&begun);
  int64_t began = clock_ns();
  http1_close(h, 300);
  assert_false(hears(idle, 200));
  assert_true(hears(hearing, 200)); /* what it has to say when it is told to end */
  assert_true(clock_ns() - began >= 300000000);
  assert_false(hears(half, 200));
  http1_stop(h);
  assert_int_equal(atomic_load(&unwanted), 2);
  close(hearing);
  close(idle);
  close(half);
}

/* An answer that comes after its time, and is not read, keeps nobody waiting. */
static void the_end_waits_for_no_reader(void **state) {
  struct http1 *h = start();
  int fd = dial(http1_port(h), 1);
  say(fd, "/much");
  sem_wait(&begun);
  int64_t began = clock_ns();
  stop(h, 0);
  assert_true(clock_ns() - began < 30 * 1000000000ll);
  close(fd);
}

struct upload {
  pthread_t thread;
  int fd;
  size_t n;
  const char *path;
};

static void *send_all(void *arg) {
  struct upload *u = arg;
  char *bytes = calloc(1, u->n + 128);
  int head = snprintf(bytes, 128, "POST %s HTTP/1.1\r\nContent-Length: %zu\r\n\r\n", u->path, u->n);
  for (size_t at = 0, all = (size_t)head + u->n; at < all;) {
    ssize_t sent = send(u->fd, bytes + at, all - at, MSG_NOSIGNAL);
    if (sent <= 0) break;
    at += (size_t)sent;
  }
  free(bytes);
  return NULL;
}

static void upload(struct upload *u, int port, const char *path, size_t n) {
  *u = (struct upload){.fd = dial(port, 1), .n = n, .path = path};
  assert_int_equal(pthread_create(&u->thread, NULL, send_all, u), 0);
}

static bool is_answered(struct upload *u, int code) {
  bool well = hears(u->fd, code);
  shutdown(u->fd, SHUT_RDWR);
  pthread_join(u->thread, NULL);
  close(u->fd);
  return well;
}

/* A body that finds no room beside others waits, and is not read meanwhile; but not for ever, and not for what there
 * cannot be. */
static void large_bodies_wait_for_room(void **state) {
  enum { MB = 1 << 20 };
  struct upload first, second, third;
  rpc_limit_set(RPC_MAX_HELD_BYTES, 6 * MB); /* of which an address has three quarters, less an eighth of that */
  rpc_limit_set(RPC_ROOM_TIMEOUT, 30);
  struct http1 *h = start();
  upload(&first, http1_port(h), "/wait", 3 * MB);
  sem_wait(&begun);
  upload(&second, http1_port(h), "/now", 2 * MB);
  upload(&third, http1_port(h), "/now", 5 * MB);
  assert_true(is_answered(&third, 503));
  assert_true(is_asked(http1_port(h), 1)); /* what is small goes on */
  assert_int_equal(recv(second.fd, &(char){0}, 1, MSG_DONTWAIT), -1);
  sem_post(&released);
  assert_true(is_answered(&first, 200));
  assert_true(is_answered(&second, 200));
  rpc_limit_set(RPC_ROOM_TIMEOUT, 1);
  upload(&first, http1_port(h), "/wait", 3 * MB);
  sem_wait(&begun);
  upload(&second, http1_port(h), "/now", 2 * MB);
  assert_true(is_answered(&second, 503));
  sem_post(&released);
  assert_true(is_answered(&first, 200));
  stop(h, 0);
  assert_int_equal(budget_used(rpc_budget(RPC_MAX_HELD_BYTES)), 0);
  rpc_limit_set(RPC_MAX_HELD_BYTES, 0);
  rpc_limit_set(RPC_ROOM_TIMEOUT, 0);
}

/* Of those that wait, the beginnings are here; there is room for them where there is none for a whole one. */
static void many_bodies_wait_for_room(void **state) {
  enum { MB = 1 << 20, MANY = 17 };
  struct upload first, waiting[MANY];
  rpc_limit_set(RPC_MAX_HELD_BYTES, 6 * MB);
  struct http1 *h = start();
  upload(&first, http1_port(h), "/wait", 3 * MB);
  sem_wait(&begun);
  for (int i = 0; i < MANY; i++) upload(&waiting[i], http1_port(h), "/now", MB);
  usleep(200000);
  sem_post(&released);
  assert_true(is_answered(&first, 200));
  for (int i = 0; i < MANY; i++) assert_true(is_answered(&waiting[i], 200));
  stop(h, 0);
  assert_int_equal(budget_used(rpc_budget(RPC_MAX_HELD_BYTES)), 0);
  rpc_limit_set(RPC_MAX_HELD_BYTES, 0);
}

/* Who has room, and goes on so slowly that those who wait for it would wait in vain, loses it. */
static void slow_bodies_lose_their_room(void **state) {
  enum { MB = 1 << 20, STEP = 1 << 10, BEGINNING = 100 << 10 };
  static char bytes[BEGINNING];
  struct upload second;
  rpc_limit_set(RPC_MAX_HELD_BYTES, 6 * MB);
  rpc_limit_set(RPC_ROOM_TIMEOUT, 30);
  rpc_limit_set(RPC_STALL_TIMEOUT, 1);
  struct http1 *h = start();
  int fd = dial(http1_port(h), 1);
  int n = snprintf(bytes, sizeof bytes, "POST /now HTTP/1.1\r\nContent-Length: %d\r\n\r\n", 3 * MB);
  assert_int_equal(write(fd, bytes, (size_t)n), n);
  assert_int_equal(write(fd, bytes, BEGINNING), BEGINNING);
  usleep(200000);
  upload(&second, http1_port(h), "/now", 2 * MB);
  for (int i = 0; i < 100 && recv(fd, bytes, 1, MSG_DONTWAIT | MSG_PEEK) < 0; i++) {
    send(fd, bytes, STEP, MSG_NOSIGNAL);
    usleep(100000);
  }
  assert_true(hears(fd, 408));
  assert_true(is_answered(&second, 200));
  close(fd);
  stop(h, 0);
  rpc_limit_set(RPC_MAX_HELD_BYTES, 0);
  rpc_limit_set(RPC_ROOM_TIMEOUT, 0);
  rpc_limit_set(RPC_STALL_TIMEOUT, 0);
}

static void echo(struct rpc_call *c, void *arg) { rpc_call_reply(c, NULL); }

/* Until somebody has been idle for long enough to make room. */
static void until(bool (*done)(int port, int host), int port) {
  for (int i = 0; i < 200; i++) {
    if (done(port, 1)) return;
    usleep(100000);
  }
  fail_msg("nobody makes room");
}

static bool is_called(int port, int host) {
  char address[64];
  snprintf(address, sizeof address, "127.0.0.1:%d", port);
  struct rpc_channel *c = rpc_channel_new(address, NULL, NULL);
  struct rpc_body body = {0};
  shoal_status s = rpc_call_wait(c, "/t/Echo", message_from_text(&(struct text){0}), deadline_after_ms(1000), 0, &body);
  bool well = !s;
  shoal_status_free(s);
  rpc_body_release(&body);
  rpc_channel_unref(c);
  return well;
}

static void idle_ones_make_room_at_the_other_port(void **state) {
  enum { MOST = 4 };
  static const struct rpc_method methods[] = {{"/t/Echo", echo}};
  struct rpc_server *s;
  int idle[MOST];
  rpc_limit_set(RPC_MAX_CONNECTIONS, MOST);
  rpc_limit_set(RPC_MAX_ADDRESS_CONNECTIONS, MOST);
  ASSERT_OK(rpc_server_start(&(struct rpc_server_options){.methods = methods, .n_methods = 1}, &s));
  rpc_server_accept(s);
  struct http1 *h = start();
  for (int i = 0; i < MOST; i++) idle[i] = dial(http1_port(h), 1);
  until(is_called, rpc_server_port(s));
  for (int i = 0; i < MOST; i++) close(idle[i]);
  for (int i = 0; i < MOST; i++) idle[i] = dial(rpc_server_port(s), 1);
  until(is_asked, http1_port(h));
  for (int i = 0; i < MOST; i++) close(idle[i]);
  stop(h, 0);
  rpc_server_stop(s, 0);
  rpc_limit_set(RPC_MAX_CONNECTIONS, 0);
  rpc_limit_set(RPC_MAX_ADDRESS_CONNECTIONS, 0);
}

/* A server of gRPC that may hold less than the process: who comes by both ports has one share of the connections. */
static void an_address_has_one_share_of_both_ports(void **state) {
  enum { MOST = 8, SHARE = 4 };
  static const struct rpc_method methods[] = {{"/t/Echo", echo}};
  struct rpc_server *s;
  int busy[SHARE];
  rpc_limit_set(RPC_MAX_CONNECTIONS, MOST);
  rpc_limit_set(RPC_MAX_ADDRESS_CONNECTIONS, SHARE);
  ASSERT_OK(rpc_server_start(
      &(struct rpc_server_options){.methods = methods, .n_methods = 1, .max_request_bytes = 1 << 20}, &s));
  rpc_server_accept(s);
  struct http1 *h = start();
  for (int i = 0; i < SHARE; i++) say(busy[i] = dial(http1_port(h), 1), "/wait");
  for (int i = 0; i < SHARE; i++) sem_wait(&begun);
  assert_false(is_called(rpc_server_port(s), 1));
  assert_true(is_asked(http1_port(h), 2));
  for (int i = 0; i < SHARE; i++) sem_post(&released);
  for (int i = 0; i < SHARE; i++) {
    assert_true(hears(busy[i], 200));
    close(busy[i]);
  }
  until(is_called, rpc_server_port(s));
  stop(h, 0);
  rpc_server_stop(s, 0);
  rpc_limit_set(RPC_MAX_CONNECTIONS, 0);
  rpc_limit_set(RPC_MAX_ADDRESS_CONNECTIONS, 0);
}

int main(void) {
  sem_init(&begun, 0, 0);
  sem_init(&released, 0, 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_address_has_a_share_of_the_handlers),
                                     cmocka_unit_test(a_handler_hears_that_nobody_waits),
                                     cmocka_unit_test(the_end_waits_so_long),
                                     cmocka_unit_test(the_end_waits_for_no_reader),
                                     cmocka_unit_test(large_bodies_wait_for_room),
                                     cmocka_unit_test(many_bodies_wait_for_room),
                                     cmocka_unit_test(slow_bodies_lose_their_room),
                                     cmocka_unit_test(idle_ones_make_room_at_the_other_port),
                                     cmocka_unit_test(an_address_has_one_share_of_both_ports)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
