/* Calls between a channel and a server of one process: messages of all sizes, errors and their marks, deadlines,
 * cancelling, names, waiting for a server that is not there yet, stopping; and what holds whatever handlers do: the
 * network goes on, budgets are kept and given back. */
#include "unit.h"
#include "ports.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/channel.h"
#include "rpc/http2/headers.h"
#include "rpc/limits.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "rpc/turns.h"

enum { LONG_MS = 60000 };

static void echo(struct rpc_call *c, void *arg) {
  const void *data;
  size_t size;
  struct text t = {0};
  shoal_status s = rpc_call_request(c, &data, &size);
  if (!s) text_add(&t, data, size);
  if (s) rpc_call_fail(c, s);
  else rpc_call_reply(c, message_from_text(&t));
}

static void refuse(struct rpc_call *c, void *arg) {
  rpc_call_fail(c, status_mark_derived(status_mark_restarted(STATUS(SHOAL_ABORTED, "100%% \xc3\xa4\nodd"))));
}

static void on_cancel(void *call) { rpc_call_fail(call, STATUS(SHOAL_CANCELLED, "nobody waits")); }

static void never(struct rpc_call *c, void *arg) { rpc_call_on_cancel(c, on_cancel, c); }

static sem_t blocked, released;

/* A handler as none should be: it waits, on a thread of the network's. */
static void block(struct rpc_call *c, void *arg) {
  sem_post(&blocked);
  while (sem_wait(&released)) continue;
  rpc_call_reply(c, NULL);
}

static void huge(struct rpc_call *c, void *arg);

static void on_lost(void *heard) { sem_post(heard); }

/* One that waits until nobody waits for it. */
static void hear(struct rpc_call *c, void *arg) {
  sem_t heard;
  sem_init(&heard, 0, 0);
  rpc_call_on_lost(c, on_lost, &heard);
  rpc_loop_hand_over();
  while (sem_wait(&heard)) continue;
  rpc_call_reply(c, NULL);
  sem_destroy(&heard);
  sem_post(&blocked);
}

static void failed(struct rpc_call *c, void *arg) {
  struct rpc_message *m = message_from_text(&(struct text){0});
  m->failed = true;
  rpc_call_reply(c, m);
}

static const struct rpc_method methods[] = {{"/t/Echo", echo},   {"/t/Refuse", refuse}, {"/t/Never", never},
                                            {"/t/Block", block}, {"/t/Huge", huge},     {"/t/Failed", failed},
                                            {"/t/Hear", hear}};

static struct rpc_server *start(int port, const char *host) {
  struct rpc_server *s;
  ASSERT_OK(rpc_server_start(&(struct rpc_server_options){.host = host,
                                                          .port = port,
                                                          .methods = methods,
                                                          .n_methods = COUNT_OF(methods),
                                                          .max_request_bytes = 64 << 20},
                             &s));
  rpc_server_accept(s);
  return s;
}

static struct rpc_channel *dial(int port, const char *host) {
  char address[64];
  snprintf(address, sizeof address, "%s:%d", host, port);
  return rpc_channel_new(address, NULL, NULL);
}

static shoal_status ask(struct rpc_channel *c, const char *method, size_t n, int64_t ms, unsigned flags) {
  struct text t = {0};
  for (size_t i = 0; i < n; i++) text_addc(&t, (char)(i * 7 + (i >> 12)));
  struct rpc_body body = {0};
  shoal_status s = rpc_call_wait(c, method, message_from_text(&t), deadline_after_ms(ms), flags, &body);
  const void *data;
  size_t size;
  if (!s) {
    ASSERT_OK(rpc_body_flat(&body, &data, &size));
    assert_int_equal(size, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(((const char *)data)[i], (char)(i * 7 + (i >> 12)));
  }
  rpc_body_release(&body);
  return s;
}

static void messages(void **state) {
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  static const size_t sizes[] = {0, 1, 4000, 4097, 16379, 16384, 65536, 300001, 5 << 20, 40 << 20};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) ASSERT_OK(ask(c, "/t/Echo", sizes[i], LONG_MS, 0));
  ASSERT_FAILS(ask(c, "/t/Echo", (64 << 20) + 1, LONG_MS, 0), SHOAL_RESOURCE_EXHAUSTED, "larger than max");
  ASSERT_OK(ask(c, "/t/Echo", 100, LONG_MS, 0));
  ASSERT_FAILS(ask(c, "/t/Nothing", 0, LONG_MS, 0), SHOAL_UNIMPLEMENTED, "/t/Nothing");
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
}

/* A handler that waits hears at once that its client has gone, and answers nobody. */
static void lost(void **state) {
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  sem_init(&blocked, 0, 0);
  for (int i = 0; i < 20; i++) ASSERT_FAILS(ask(c, "/t/Hear", 10, 1 + 3 * i, 0), SHOAL_DEADLINE_EXCEEDED, "Deadline");
  ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, 0));
  rpc_channel_unref(c);
  rpc_server_stop(s, 0); /* which waits for all of them */
  sem_destroy(&blocked);
}

static void errors(void **state) {
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  shoal_status e = ask(c, "/t/Refuse", 10, LONG_MS, 0);
  assert_int_equal(shoal_status_code(e), SHOAL_ABORTED);
  assert_string_equal(shoal_status_message(e), "100% \xc3\xa4\nodd");
  assert_true(status_is_derived(e) && status_is_restarted(e));
  shoal_status_free(e);
  ASSERT_FAILS(ask(c, "/t/Never", 10, 50, 0), SHOAL_DEADLINE_EXCEEDED, "Deadline Exceeded");
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
}

struct ending {
  sem_t done;
  shoal_status s;
};

static void ended(void *arg, shoal_status s, struct rpc_body *body) {
  ((struct ending *)arg)->s = s;
  sem_post(&((struct ending *)arg)->done);
}

static void cancelling(void **state) {
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  for (int i = 0; i < 20; i++) { /* before there is a connection, and after */
    struct ending e = {0};
    sem_init(&e.done, 0, 0);
    struct rpc_pending *p;
    rpc_start(c, "/t/Never", NULL, DEADLINE_NEVER, 0, ended, &e, &p);
    rpc_cancel(p, STATUS(SHOAL_ABORTED, "no more"));
    while (sem_wait(&e.done)) continue;
    ASSERT_FAILS(e.s, SHOAL_ABORTED, "no more");
    rpc_pending_unref(p);
    sem_destroy(&e.done);
    ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, 0));
  }
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
}

static void *start_late(void *arg) {
  usleep(300000);
  return start(*(int *)arg, NULL);
}

static void waiting(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  int port = free_port();
  struct rpc_channel *c = dial(port, "localhost"); /* a name, looked up elsewhere */
  ASSERT_FAILS(ask(c, "/t/Echo", 10, LONG_MS, 0), SHOAL_UNAVAILABLE, "Connection refused");
  pthread_t t;
  pthread_create(&t, NULL, start_late, &port);
  ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, RPC_WAIT_FOR_READY));
  void *s;
  pthread_join(t, &s);
  rpc_server_stop(s, 0); /* with a connection open: it is lost, and made again */
  s = start(port, NULL);
  shoal_status lost = ask(c, "/t/Echo", 10, LONG_MS, RPC_WAIT_FOR_READY);
  if (lost) { /* it went out before the news of the end came in */
    assert_int_equal(shoal_status_code(lost), SHOAL_UNAVAILABLE);
    shoal_status_free(lost);
    ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, RPC_WAIT_FOR_READY));
  }
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
  rpc_loop_release();
}

static void stopping(void **state) {
  struct rpc_server *s = start(0, "localhost");
  struct rpc_channel *c = dial(rpc_server_port(s), "localhost");
  struct ending e = {0};
  sem_init(&e.done, 0, 0);
  ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, 0));
  rpc_start(c, "/t/Never", NULL, DEADLINE_NEVER, 0, ended, &e, NULL);
  struct rpc_server *other;
  ASSERT_FAILS(rpc_server_start(&(struct rpc_server_options){.port = rpc_server_port(s)}, &other), SHOAL_UNKNOWN,
               "Could not start gRPC server");
  rpc_server_stop(s, 20);
  while (sem_wait(&e.done)) continue;
  assert_int_equal(shoal_status_code(e.s), SHOAL_UNAVAILABLE);
  shoal_status_free(e.s);
  sem_destroy(&e.done);
  rpc_channel_unref(c);
}

/* Metadata of a call: names, values and 32 bytes for each, at most 16 KiB together. */
static void large_metadata(void **state) {
  static const uint8_t value[16384];
  for (size_t more = 0; more < 2; more++) {
    struct headers h;
    headers_init(&h);
    headers_take(&h, (const uint8_t *)"x-a", 3, value, 8000 - 35);
    headers_take(&h, (const uint8_t *)"x-b", 3, value, 8384 - 35 + more);
    assert_int_equal(h.too_large, more);
    if (more) ASSERT_FAILS(headers_status(&h), SHOAL_RESOURCE_EXHAUSTED, "more than 16384 bytes");
    headers_release(&h);
  }
}

static void timeouts(void **state) {
  static const struct {
    const char *text;
    int64_t ns; /* -1: never */
  } cases[] = {
      {"5S", 5000000000}, {"100m", 100000000}, {"7u", 7000}, {"1H", 3600000000000}, {"99999999H", -1},   {"", -1},
      {"5", -1},          {"5x", -1},          {"-5S", -1},  {"123456789S", -1},    {"2M", 120000000000}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    int64_t before = clock_ns(), d = headers_deadline((const uint8_t *)cases[i].text, strlen(cases[i].text));
    if (cases[i].ns < 0) assert_true(d == DEADLINE_NEVER);
    else assert_true(d >= before + cases[i].ns && d <= clock_ns() + cases[i].ns);
  }
}

/* Is the network's thread one that turns? Where the machine itself stood still it needs a moment to be so again. */
static void turns_again(void) {
  for (int i = 0; i < 6000 && rpc_loop_stalled(); i++) usleep(10000);
  assert_int_equal(rpc_loop_stalled(), 0);
}

/* Handlers that block take their threads with them, and no others: those of one connection leave room for another's;
 * when there is none left, answers, deadlines and cancelling go on, more requests wait in line, and when the handlers
 * return everything is answered. */
static void blocking(void **state) {
  enum { CALLS = 200, CLIENTS = 3 };
  int handlers = (int)rpc_limit(RPC_MAX_HANDLERS), each = (int)rpc_limit(RPC_MAX_CONNECTION_HANDLERS);
  assert_int_equal(handlers, CLIENTS * each);
  assert_in_range(each, 1, CALLS - 1);
  sem_init(&blocked, 0, 0);
  sem_init(&released, 0, 0);
  struct rpc_server *s = start(0, NULL), *other = start(0, NULL);
  static struct ending endings[CLIENTS][CALLS];
  struct rpc_channel *clients[CLIENTS], *c = NULL;
  for (int k = 0; k < CLIENTS; k++) {
    clients[k] = c = dial(rpc_server_port(s), "127.0.0.1");
    ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, 0)); /* whatever those before have blocked and let wait */
    for (int i = 0; i < CALLS; i++) {
      sem_init(&endings[k][i].done, 0, 0);
      rpc_start(c, "/t/Block", NULL, DEADLINE_NEVER, 0, ended, &endings[k][i], NULL);
    }
    for (int i = 0; i < each; i++)
      while (sem_wait(&blocked)) continue;
  }
  /* No request is begun beyond these, and yet: */
  ASSERT_FAILS(ask(c, "/t/Echo", 10, 100, 0), SHOAL_DEADLINE_EXCEEDED, "Deadline Exceeded");
  struct ending e = {0};
  struct rpc_pending *p;
  sem_init(&e.done, 0, 0);
  rpc_start(c, "/t/Echo", NULL, DEADLINE_NEVER, 0, ended, &e, &p);
  rpc_cancel(p, STATUS(SHOAL_ABORTED, "no more"));
  while (sem_wait(&e.done)) continue;
  ASSERT_FAILS(e.s, SHOAL_ABORTED, "no more");
  rpc_pending_unref(p);
  struct rpc_channel *nowhere = dial(free_port(), "127.0.0.1");
  ASSERT_FAILS(ask(nowhere, "/t/Echo", 10, LONG_MS, 0), SHOAL_UNAVAILABLE, "Connection refused");
  rpc_channel_unref(nowhere);
  rpc_server_stop(other, 0); /* one with nothing to do stops */
  assert_int_equal(sem_trywait(&blocked), -1);
  turns_again();
  for (int i = 0; i < CLIENTS * CALLS; i++) sem_post(&released);
  for (int i = 0; i < CLIENTS * CALLS; i++) {
    struct ending *one = &endings[i / CALLS][i % CALLS];
    while (sem_wait(&one->done)) continue;
    ASSERT_OK(one->s);
    sem_destroy(&one->done);
  }
  ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, 0));
  for (int k = 0; k < CLIENTS; k++) rpc_channel_unref(clients[k]);
  rpc_server_stop(s, 0);
  sem_destroy(&e.done);
}

/* One event of a connection, then one of the next, however many the first has; no more at a time than there may be. */
static void in_turns(void **state) {
  enum { ALL = 4, EACH = 2 };
  struct turns t;
  struct rpc_line *a = rpc_line_new(0), *b = rpc_line_new(0);
  struct rpc_line *c = rpc_line_new(0);
  struct rpc_event of_a[5] = {0}, of_b[2] = {0}, of_c[2] = {0};
  turns_init(&t);
  for (int i = 0; i < 5; i++) turns_add(&t, a, &of_a[i], EACH);
  for (int i = 0; i < 2; i++) turns_add(&t, b, &of_b[i], EACH);
  assert_ptr_equal(turns_next(&t, ALL, EACH), &of_a[0]);
  assert_ptr_equal(turns_next(&t, ALL, EACH), &of_b[0]);
  assert_ptr_equal(turns_next(&t, ALL, EACH), &of_a[1]);
  assert_ptr_equal(turns_next(&t, ALL, EACH), &of_b[1]);
  assert_null(turns_next(&t, ALL, EACH)); /* as many as there may be */
  for (int i = 0; i < 2; i++) turns_add(&t, c, &of_c[i], EACH);
  assert_ptr_equal(turns_next(&t, ALL, EACH), &of_c[0]); /* but who has none has one */
  assert_null(turns_next(&t, ALL, EACH));
  turns_end(&t, c, EACH);
  assert_ptr_equal(turns_next(&t, ALL, EACH), &of_c[1]);
  turns_end(&t, c, EACH);
  line_leave(c);
  turns_end(&t, b, EACH);
  assert_null(turns_next(&t, ALL, EACH)); /* a has its share */
  line_leave(b);
  turns_end(&t, b, EACH); /* and b is gone */
  for (int i = 2; i < 5; i++) {
    turns_end(&t, a, EACH);
    assert_ptr_equal(turns_next(&t, ALL, EACH), &of_a[i]);
  }
  turns_end(&t, a, EACH);
  turns_end(&t, a, EACH);
  assert_int_equal(atomic_load(&t.under_way), 0);
  line_leave(a);
  struct rpc_line *one = rpc_line_new(1); /* a bound of its own */
  for (int i = 0; i < 2; i++) turns_add(&t, one, &of_c[i], EACH);
  assert_ptr_equal(turns_next(&t, ALL, EACH), &of_c[0]);
  assert_null(turns_next(&t, ALL, EACH));
  turns_end(&t, one, EACH);
  assert_ptr_equal(turns_next(&t, ALL, EACH), &of_c[1]);
  turns_end(&t, one, EACH);
  line_leave(one);
}

static sem_t caught;

static void catch_leader(struct rpc_event *e) {
  while (sem_wait(&caught)) continue;
}

/* A leader that is caught where nothing should block is reported, and so is its coming back. */
static void watchdog(void **state) {
  sem_init(&caught, 0, 0);
  rpc_limit_set(RPC_WATCHDOG, 1);
  struct rpc_server *s = start(0, NULL);
  turns_again();
  int64_t before = rpc_loop_stalls();
  struct rpc_event e = {.fn = catch_leader, .kind = RPC_EVENT_QUICK};
  rpc_loop_post(&e);
  while (!rpc_loop_stalled()) usleep(10000);
  assert_true(rpc_loop_stalls() > before); /* where the machine itself stalls there are more */
  sem_post(&caught);
  turns_again();
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, 0));
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
  rpc_limit_set(RPC_WATCHDOG, 0);
  sem_destroy(&caught);
}

struct busy {
  struct rpc_event again;
  atomic_bool enough;
  sem_t over;
  atomic_long turns;
};

static void go_on(struct rpc_event *e) {
  struct busy *b = (struct busy *)((char *)e - offsetof(struct busy, again));
  atomic_fetch_add(&b->turns, 1);
  if (atomic_load(&b->enough)) sem_post(&b->over);
  else rpc_loop_post(e);
}

/* What always has more to do (a connection whose bytes no poll tells of) takes turns with handlers and timers. */
static void turns(void **state) {
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  struct busy b = {.again = {.fn = go_on, .kind = RPC_EVENT_TURN}};
  sem_init(&b.over, 0, 0);
  rpc_loop_post(&b.again);
  for (int i = 0; i < 50; i++) ASSERT_OK(ask(c, "/t/Echo", 1000, LONG_MS, 0));
  ASSERT_FAILS(ask(c, "/t/Never", 10, 50, 0), SHOAL_DEADLINE_EXCEEDED, "Deadline Exceeded");
  assert_true(atomic_load(&b.turns) > 0);
  atomic_store(&b.enough, true);
  while (sem_wait(&b.over)) continue;
  sem_destroy(&b.over);
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
}

static void huge(struct rpc_call *c, void *arg) {
  struct message m;
  message_init(&m);
  message_reference(&m, &m, (size_t)5 << 30, NULL, NULL); /* never looked at */
  rpc_call_reply(c, message_finish(&m));
}

/* A message's length has 32 bits: what does not fit is refused by name, not cut. */
static void four_gigabytes(void **state) {
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  struct message m;
  message_init(&m);
  message_reference(&m, &m, (size_t)5 << 30, NULL, NULL);
  ASSERT_FAILS(rpc_call_wait(c, "/t/Echo", message_finish(&m), deadline_after_ms(LONG_MS), 0, NULL),
               SHOAL_RESOURCE_EXHAUSTED, "less than 4 GiB");
  ASSERT_FAILS(ask(c, "/t/Huge", 0, LONG_MS, 0), SHOAL_RESOURCE_EXHAUSTED, "5368709120");
  ASSERT_OK(ask(c, "/t/Echo", 10, LONG_MS, 0));
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
}

/* A message for which there is no memory is an error of its call, on either side. */
static void large_fields(void **state) {
  static char bytes[100000];
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  for (int k = 1; k <= 2; k++) { /* of the first field, of the second */
    struct message m;
    message_init(&m);
    mem_fail_at(k);
    message_bytes(&m, 1, bytes, sizeof bytes);
    message_bytes(&m, 2, bytes, sizeof bytes);
    assert_true(mem_fail_at(0));
    ASSERT_FAILS(rpc_call_wait(c, "/t/Echo", message_finish(&m), deadline_after_ms(LONG_MS), 0, NULL),
                 SHOAL_RESOURCE_EXHAUSTED, "there is no memory for a request");
  }
  ASSERT_FAILS(ask(c, "/t/Failed", 0, LONG_MS, 0), SHOAL_RESOURCE_EXHAUSTED, "there is no memory for an answer");
  struct message m;
  message_init(&m);
  message_bytes(&m, 1, "a", 1);
  message_reference(&m, bytes, sizeof bytes, NULL, NULL);
  struct rpc_message *done = message_finish(&m);
  const void *data;
  size_t size;
  mem_fail_at(1);
  assert_false(rpc_message_flat(done, &data, &size));
  mem_fail_at(0);
  assert_true(rpc_message_flat(done, &data, &size));
  assert_int_equal(size, sizeof bytes + 3);
  rpc_message_free(done);
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
}

/* Memory that may fail does, once at each place in turn: a call ends in an error or not at all, and all goes on. */
static void no_memory(void **state) {
  struct rpc_server *s = start(0, NULL);
  bool hit = true;
  for (long k = 1; hit; k++) {
    struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
    mem_fail_at(k);
    shoal_status e = ask(c, "/t/Echo", 200000, LONG_MS, 0);
    hit = mem_fail_at(0);
    if (!hit) ASSERT_OK(e);
    shoal_status_free(e);
    ASSERT_OK(ask(c, "/t/Echo", 200000, LONG_MS, RPC_WAIT_FOR_READY));
    rpc_channel_unref(c);
    assert_true(k < 10000);
  }
  rpc_server_stop(s, 0);
}

static void budgets(void **state) {
  struct budget all, one, two;
  budget_init(&all, 100, NULL);
  budget_init(&one, 60, &all);
  budget_init(&two, 60, &all);
  assert_true(budget_take(&one, 60));
  assert_false(budget_take(&one, 1));
  assert_false(budget_take(&two, 41)); /* its own has room, its parent's has not: nothing is taken */
  assert_int_equal(budget_used(&two), 0);
  assert_int_equal(budget_used(&all), 60);
  assert_true(budget_has_room(&two, 40, 0) && !budget_has_room(&two, 41, 0) && !budget_has_room(&two, 40, 4));
  assert_true(budget_take(&two, 40));
  assert_false(budget_take(&two, SIZE_MAX));
  budget_give(&one, 60);
  budget_give(&two, 40);
  assert_int_equal(budget_used(&all), 0);
}

static uint64_t address_of(const char *text) {
  struct sockaddr_storage s = {.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET};
  void *at = s.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)&s)->sin_addr
                                    : (void *)&((struct sockaddr_in6 *)&s)->sin6_addr;
  assert_int_equal(inet_pton(s.ss_family, text, at), 1);
  return rpc_address_number(&s);
}

/* Who has an address of IPv6 has all that share its first half; one of IPv4 is the same by either protocol. */
static void addresses(void **state) {
  assert_true(address_of("10.0.0.1") == address_of("::ffff:10.0.0.1"));
  assert_true(address_of("10.0.0.1") != address_of("10.0.0.2"));
  assert_true(address_of("2001:db8:1:2::3") == address_of("2001:db8:1:2:4:5:6:7"));
  assert_true(address_of("2001:db8:1:2::3") != address_of("2001:db8:1:3::3"));
  assert_true(address_of("::1") && address_of("::1") != address_of("127.0.0.1"));
  struct budget held;
  budget_init(&held, 100, NULL);
  struct rpc_address *a = rpc_address_get(7, &held), *b = rpc_address_get(7, &held), *other = rpc_address_get(8, &held);
  assert_true(a == b && a != other && a->held.most == 75 && a->held.parent == &held);
  rpc_address_unref(a);
  rpc_address_unref(other);
  rpc_address_unref(b);
}

/* After calls of all kinds nothing is held any more. */
static void given_back(void **state) {
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1");
  for (int i = 0; i < 3; i++) {
    ASSERT_OK(ask(c, "/t/Echo", 3 << 20, LONG_MS, 0));
    ASSERT_FAILS(ask(c, "/t/Never", 100000, 20, 0), SHOAL_DEADLINE_EXCEEDED, "Deadline Exceeded");
  }
  assert_true(budget_used(rpc_budget(RPC_MAX_FRAMING_BYTES)) > 0);
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
  for (int i = 0; i < RPC_LIMITS; i++)
    if (rpc_limit_rows[i].counted) assert_int_equal(budget_used(rpc_budget((enum rpc_limit)i)), 0);
}

/* What finds no room beside others waits for it, its sender held back, and is refused in time; not so what never can
 * have any. */
static void room(void **state) {
  enum { UNIT = 100000 };
  rpc_limit_set(RPC_MAX_HELD_BYTES, 27 * UNIT); /* of which one address has 20, all but an eighth for large ones */
  rpc_limit_set(RPC_ROOM_TIMEOUT, 1);
  rpc_limit_set(RPC_STALL_TIMEOUT, 1000);
  sem_init(&blocked, 0, 0);
  sem_init(&released, 0, 0);
  struct rpc_server *s = start(0, NULL);
  struct rpc_channel *c = dial(rpc_server_port(s), "127.0.0.1"), *d = dial(rpc_server_port(s), "127.0.0.1");
  struct ending holder = {0}, waiting[8] = {0};
  struct text t = {0};
  sem_init(&holder.done, 0, 0);
  for (int i = 0; i < 12 * UNIT; i++) text_addc(&t, 'x');
  rpc_start(c, "/t/Block", message_from_text(&t), DEADLINE_NEVER, 0, ended, &holder, NULL);
  while (sem_wait(&blocked)) continue;
  ASSERT_FAILS(ask(c, "/t/Echo", 8 * UNIT, LONG_MS, 0), SHOAL_RESOURCE_EXHAUSTED, "--room_timeout");
  ASSERT_FAILS(ask(d, "/t/Echo", 8 * UNIT, LONG_MS, 0), SHOAL_RESOURCE_EXHAUSTED, "--room_timeout");
  ASSERT_FAILS(ask(d, "/t/Echo", 18 * UNIT, LONG_MS, 0), SHOAL_RESOURCE_EXHAUSTED, "larger than all that may be held");
  rpc_limit_set(RPC_ROOM_TIMEOUT, 1000);
  ASSERT_OK(ask(c, "/t/Echo", 4 * UNIT, LONG_MS, 0)); /* for this there is */
  ASSERT_OK(ask(d, "/t/Echo", 10000, LONG_MS, 0));
  for (size_t i = 0; i < COUNT_OF(waiting); i++) {
    sem_init(&waiting[i].done, 0, 0);
    for (int k = 0; k < 8 * UNIT; k++) text_addc(&t, 'x');
    rpc_start(i % 2 ? c : d, "/t/Echo", message_from_text(&t), DEADLINE_NEVER, 0, ended, &waiting[i], NULL);
  }
  ASSERT_OK(ask(d, "/t/Echo", 10000, LONG_MS, 0)); /* a small one passes them */
  sem_post(&released);
  for (size_t i = 0; i < COUNT_OF(waiting); i++) {
    while (sem_wait(&waiting[i].done)) continue;
    ASSERT_OK(waiting[i].s);
    sem_destroy(&waiting[i].done);
  }
  while (sem_wait(&holder.done)) continue;
  ASSERT_OK(holder.s);
  rpc_channel_unref(c);
  rpc_channel_unref(d);
  rpc_server_stop(s, 0);
  rpc_limit_set(RPC_MAX_HELD_BYTES, 0);
  rpc_limit_set(RPC_ROOM_TIMEOUT, 0);
  rpc_limit_set(RPC_STALL_TIMEOUT, 0);
  assert_int_equal(budget_used(rpc_budget(RPC_MAX_HELD_BYTES)), 0);
}

/* An argument with effects is evaluated once. */
static void smaller_and_larger(void **state) {
  int calls = 0;
  assert_int_equal(MIN(++calls, 5), 1);
  assert_int_equal(MAX(++calls, -7), 2);
  assert_true(MIN((size_t)3, 2) == 2 && MAX(-1, (int64_t)1 << 40) == (int64_t)1 << 40 && MIN(1.5, 2) < 1.6);
}

struct last {
  struct rpc_channel *channel;
  atomic_int ended;
};

static void let_go_of_the_last(void *arg, shoal_status s, struct rpc_body *body) {
  struct last *l = arg;
  assert_int_equal(shoal_status_code(s), SHOAL_UNAVAILABLE);
  shoal_status_free(s);
  rpc_channel_unref(l->channel);
  rpc_loop_release();
  atomic_store(&l->ended, 1);
}

/* Whoever needs the network no more may say so on the network's own thread; it can be begun again at once. */
static void ended_from_within(void **state) {
  for (int i = 0; i < 20; i++) {
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
    ASSERT_OK(rpc_loop_acquire());
    struct last l = {.channel = rpc_channel_new(address, NULL, NULL)};
    rpc_start(l.channel, "/nobody/hears", NULL, deadline_after_ms(60000), 0, let_go_of_the_last, &l, NULL);
    while (!atomic_load(&l.ended)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

static bool begins(void) {
  shoal_status s = rpc_loop_acquire();
  bool ok = !s;
  if (ok) rpc_loop_release();
  else if (shoal_status_code(s) != SHOAL_RESOURCE_EXHAUSTED || !strstr(shoal_status_message(s), "for the network"))
    abort();
  shoal_status_free(s);
  return ok;
}

static void allow(int what, rlim_t n) {
  struct rlimit l;
  if (getrlimit(what, &l)) abort();
  l.rlim_cur = n < l.rlim_max ? n : l.rlim_max;
  if (setrlimit(what, &l)) abort();
}

/* In a process of its own, which has one thread: of 0, 1 or 2 more, and of as many descriptors, each once too few. */
static void begin_with_less(void) {
  int next = dup(0);
  close(next);
  for (int few = 0; few < 2; few++) {
    allow(RLIMIT_NOFILE, (rlim_t)next + (rlim_t)few);
    if (begins()) _exit(1);
  }
  allow(RLIMIT_NOFILE, RLIM_INFINITY);
  enum { NOBODY = 60123 }; /* root has as many threads as it likes; this user has no others */
  if (getuid() == 0 && setuid(NOBODY)) _exit(2);
  for (rlim_t threads = 1; threads <= 3 && getuid() == NOBODY; threads++) {
    allow(RLIMIT_NPROC, threads);
    if (begins()) _exit(3);
  }
  allow(RLIMIT_NPROC, RLIM_INFINITY);
  _exit(begins() ? 0 : 4);
}

/* A process that may have no more of something is told so, and goes on; with more, the network begins. */
static void cannot_begin(void **state) {
  pid_t p = fork();
  if (!p) begin_with_less();
  int how;
  assert_int_equal(waitpid(p, &how, 0), p);
  assert_int_equal(how, 0);
}

RUN_TESTS(cmocka_unit_test(cannot_begin), cmocka_unit_test(ended_from_within), cmocka_unit_test(budgets),
          cmocka_unit_test(addresses), cmocka_unit_test(smaller_and_larger), cmocka_unit_test(in_turns),
          cmocka_unit_test(blocking), cmocka_unit_test(room), cmocka_unit_test(watchdog), cmocka_unit_test(turns),
          cmocka_unit_test(four_gigabytes), cmocka_unit_test(large_fields), cmocka_unit_test(no_memory),
          cmocka_unit_test(given_back), cmocka_unit_test(messages), cmocka_unit_test(lost), cmocka_unit_test(errors),
          cmocka_unit_test(cancelling), cmocka_unit_test(waiting), cmocka_unit_test(stopping),
          cmocka_unit_test(large_metadata), cmocka_unit_test(timeouts))
