/* A server seen from inside its process: what /healthz says while the network turns, while it does not, and once the
 * server is told to stop; how long a session waits for tasks that are not there when nobody has said. */
#include "unit.h"
#include "ports.h"

#include <semaphore.h>
#include <shoal/shoal.h>

#include "cluster/server.h"
#include "rpc/loop.h"

static shoal_server *start(shoal_server_options o) {
  char cluster[96];
  shoal_server *s;
  snprintf(cluster, sizeof cluster, "{\"a\": [\"127.0.0.1:%d\"]}", free_port());
  o.cluster = cluster;
  o.job = "a";
  ASSERT_OK(shoal_server_start(&o, &s));
  return s;
}

/* The answer's first line and its last one. */
static void healthz(const shoal_server *s, char *first, char *last, size_t room) {
  static const char request[] = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)pages_port(s->pages)),
                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  char answer[2048] = "";
  size_t n = 0;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  assert_int_equal(write(fd, request, sizeof request - 1), sizeof request - 1);
  for (ssize_t got; n < sizeof answer - 1 && (got = read(fd, answer + n, sizeof answer - 1 - n)) > 0;) n += (size_t)got;
  close(fd);
  answer[n] = '\0';
  char *body = strstr(answer, "\r\n\r\n");
  assert_non_null(body);
  snprintf(last, room, "%s", body + 4);
  snprintf(first, room, "%.*s", (int)strcspn(answer, "\r"), answer);
}

/* A machine that stands still itself is not well for a moment. */
static void is_well(const shoal_server *s) {
  char first[256], last[256];
  for (int i = 0; i < 20; i++) {
    healthz(s, first, last, sizeof first);
    if (!strcmp(first, "HTTP/1.1 200 OK")) break;
  }
  assert_string_equal(first, "HTTP/1.1 200 OK");
  assert_string_equal(last, "ok\n");
}

static sem_t caught, released;

static void catch_leader(struct rpc_event *e) {
  sem_post(&caught);
  while (sem_wait(&released)) continue;
}

static void health(void **state) {
  char first[256], last[256];
  sem_init(&caught, 0, 0);
  sem_init(&released, 0, 0);
  shoal_server *s = start((shoal_server_options){.http_port = -1});
  is_well(s);
  struct rpc_event e = {.fn = catch_leader, .kind = RPC_EVENT_QUICK};
  rpc_loop_post(&e);
  while (sem_wait(&caught)) continue;
  for (int i = 0; i < 2; i++) { /* a second question finds the first one's still under way */
    healthz(s, first, last, sizeof first);
    assert_string_equal(first, "HTTP/1.1 503 Service Unavailable");
    assert_non_null(strstr(last, "the network's loop has not turned for "));
  }
  sem_post(&released);
  is_well(s);

  shoal_server_quit(s);
  healthz(s, first, last, sizeof first);
  assert_string_equal(first, "HTTP/1.1 503 Service Unavailable");
  assert_string_equal(last, "stopping\n");
  shoal_server_stop(s);
  sem_destroy(&caught);
  sem_destroy(&released);
}

/* What happens when that time is up: tests/cluster/start_stop_test.py. */
static void startup_timeouts(void **state) {
  static const struct { int64_t given, session; } cases[] = {{0, 300000}, {7000, 7000}, {-1, -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    shoal_server *s = start((shoal_server_options){.startup_timeout_ms = cases[i].given});
    assert_int_equal(s->master.startup_timeout_ms, cases[i].session);
    shoal_server_stop(s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(health), cmocka_unit_test(startup_timeouts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
