/* Bytes from anyone on a connection: to a server, and from a server to a client. Neither may crash, leak or hang, and
 * every call ends.
 *
 * An input is one byte that says which (its lowest bit: 0 a server's input, 1 a client's; the next: the bytes follow on
 * what HTTP/2 begins with), then the bytes, sent in a few pieces. Server and channel are real, on a loopback port. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/channel.h"
#include "rpc/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Looking for leaks stops all threads, and the loop's are always at work; see request_fuzz.c. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

enum { PATIENCE_MS = 10000, CALL_MS = 50 };

static const uint8_t preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"; /* and empty SETTINGS */
static struct rpc_server *server;
static int listening, listening_port;

static void echo(struct rpc_call *c, void *arg) {
  const void *data;
  size_t size;
  shoal_status s = rpc_call_request(c, &data, &size);
  struct text t = {0};
  if (!s) text_add(&t, data, size);
  if (s) rpc_call_fail(c, s);
  else rpc_call_reply(c, message_from_text(&t));
}

static void on_cancel(void *call) { rpc_call_fail(call, STATUS(SHOAL_CANCELLED, "cancelled")); }

/* Answers when the client has gone. */
static void wait_for_end(struct rpc_call *c, void *arg) { rpc_call_on_cancel(c, on_cancel, c); }

static void start(void) {
  static const struct rpc_method methods[] = {{"/f/Echo", echo}, {"/f/Wait", wait_for_end}};
  log_set_level(LOG_NONE);
  if (rpc_server_start(&(struct rpc_server_options){.methods = methods, .n_methods = 2, .max_request_bytes = 1 << 20},
                       &server))
    abort();
  rpc_server_accept(server);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  listening = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listening, (struct sockaddr *)&a, sizeof a) || listen(listening, 8) ||
      getsockname(listening, (struct sockaddr *)&a, &(socklen_t){sizeof a}))
    abort();
  listening_port = ntohs(a.sin_port);
}

static void send_all(int fd, const uint8_t *p, size_t n) {
  for (ssize_t sent; n && ((sent = send(fd, p, n, MSG_NOSIGNAL)) > 0 || errno == EINTR);)
    if (sent > 0) p += sent, n -= (size_t)sent;
}

static void send_in_pieces(int fd, uint8_t mode, const uint8_t *p, size_t n) {
  size_t first = n && mode & 4 ? 1 + (mode >> 3) * n / 32 : n;
  if (first > n) first = n;
  send_all(fd, p, first);
  send_all(fd, p + first, n - first);
  shutdown(fd, SHUT_WR);
}

/* Until the other side hangs up. */
static void drain(int fd) {
  static uint8_t sink[65536];
  struct pollfd p = {.fd = fd, .events = POLLIN};
  for (;;) {
    int n = poll(&p, 1, PATIENCE_MS);
    if (n < 0 && errno == EINTR) continue; /* the fuzzer's alarm */
    if (n != 1) abort();                   /* it hangs */
    ssize_t got = read(fd, sink, sizeof sink);
    if (!got || (got < 0 && errno != EINTR)) break;
  }
  close(fd);
}

/* A connection to the server. The fuzzer's alarm may interrupt, and thousands of connections a second may leave the
 * system without a free port for a moment: neither is a finding. */
static int dial(void) {
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                          .sin_port = htons((uint16_t)rpc_server_port(server))};
  for (;;) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) abort();
    if (!connect(fd, (struct sockaddr *)&a, sizeof a)) return fd;
    if (errno != EINTR && errno != EADDRNOTAVAIL) abort();
    close(fd);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
}

static void to_server(uint8_t mode, const uint8_t *p, size_t n) {
  int fd = dial();
  if (mode & 2) send_all(fd, preface, sizeof preface - 1);
  send_in_pieces(fd, mode, p, n);
  drain(fd);
}

static void ended(void *arg, shoal_status s, struct rpc_body *body) {
  if (s && !shoal_status_message(s)) abort();
  shoal_status_free(s);
  sem_post(arg);
}

static void to_client(uint8_t mode, const uint8_t *p, size_t n) {
  char address[32];
  snprintf(address, sizeof address, "127.0.0.1:%d", listening_port);
  struct rpc_channel *channel = rpc_channel_new(address, NULL, NULL);
  sem_t done;
  sem_init(&done, 0, 0);
  rpc_start(channel, "/f/Echo", NULL, clock_ns() + (int64_t)CALL_MS * 1000000, 0, ended, &done, NULL);
  int fd;
  while ((fd = accept(listening, NULL, NULL)) < 0)
    if (errno != EINTR) abort();
  if (mode & 2) send_all(fd, preface + 24, sizeof preface - 1 - 24);
  send_in_pieces(fd, mode, p, n);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE_MS / 1000;
  while (sem_timedwait(&done, &until))
    if (errno != EINTR) abort(); /* the call never ends */
  sem_destroy(&done);
  rpc_channel_unref(channel);
  drain(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!server) start();
  if (!size) return 0;
  if (data[0] & 1) to_client(data[0], data + 1, size - 1);
  else to_server(data[0], data + 1, size - 1);
  return 0;
}
