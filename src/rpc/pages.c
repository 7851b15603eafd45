/* A very small HTTP/1.1 server; see pages.h.
 *
 * Whoever connects is a stranger: there are at most MAX_CONNECTIONS at a time (the oldest goes when one more comes, so
 * that idle ones cannot lock a probe out), each has TIMEOUT_MS from its first moment to its last byte, and a request is
 * at most MAX_REQUEST bytes. A body of a request is refused, and every connection is closed after its answer: there is
 * no second request to be smuggled behind the first. */
#include "rpc/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "rpc/bind.h"

enum { MAX_CONNECTIONS = 32, TIMEOUT_MS = 10000, MAX_REQUEST = 8192, PAUSE_MS = 100 };

struct visitor {
  int fd;
  int64_t until;
  struct text in, out;
  size_t sent;
  bool answered;
};

struct pages {
  const struct page *rows;
  int n_rows;
  void *arg;
  int listener, port;
  int stop[2]; /* a pipe: closed at the end */
  pthread_t thread;
  struct visitor visitors[MAX_CONNECTIONS]; /* oldest first; the thread's */
  int n;
};

/* ---- one request ---- */

static const char *reason(int code) {
  switch (code) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Content Too Large";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
  }
}

static void put_answer(struct text *out, int code, const char *type, const struct text *body, bool head) {
  text_addf(out,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n%sConnection: close\r\n\r\n",
            code, reason(code), type, body->n, code == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (!head) text_add(out, text_cstr(body), body->n);
}

static void put_error(struct text *out, int code, const char *words) {
  struct text body = {0};
  text_addf(&body, "%s\n", words);
  put_answer(out, code, "text/plain; charset=utf-8", &body, false);
  text_release(&body);
}

/* The length of the request up to and with the empty line; 0: it is not here yet. */
static size_t head_length(const char *at, size_t n) {
  for (size_t i = 0; i + 1 < n; i++)
    if (at[i] == '\n' && (at[i + 1] == '\n' || (i + 2 < n && at[i + 1] == '\r' && at[i + 2] == '\n'))) return i + 2;
  return 0;
}

/* Does a field of the head announce a body? */
static bool has_body(const char *at, size_t n) {
  for (const char *end = at + n; at < end;) {
    const char *next = memchr(at, '\n', (size_t)(end - at));
    size_t line = next ? (size_t)(next - at) : (size_t)(end - at);
    if (line >= 18 && !strncasecmp(at, "transfer-encoding:", 18)) return true;
    if (line >= 15 && !strncasecmp(at, "content-length:", 15)) {
      const char *value = at + 15;
      while (value < at + line && (*value == ' ' || *value == '\t' || *value == '0')) value++;
      if (value < at + line && *value != '\r') return true;
    }
    at += line + 1;
  }
  return false;
}

bool pages_answer(const struct page *rows, int n_rows, void *arg, const char *request, size_t n, struct text *out) {
  size_t head = head_length(request, n);
  if (!head && n < MAX_REQUEST) return false;
  if (!head || memchr(request, 0, head)) {
    put_error(out, head ? 400 : 431, head ? "the request holds a NUL" : "the request is too large");
    return true;
  }
  /* METHOD SP PATH [?QUERY] SP HTTP/1.x */
  const char *line_end = memchr(request, '\n', n), *space = memchr(request, ' ', (size_t)(line_end - request));
  const char *path = space ? space + 1 : line_end, *path_end = path;
  while (path_end < line_end && *path_end != ' ' && *path_end != '\r') path_end++;
  if (path >= line_end || *path != '/' || *path_end != ' ') {
    put_error(out, 400, "this is no HTTP request");
    return true;
  }
  if ((size_t)(line_end - path_end) < 9 || strncmp(path_end, " HTTP/1.", 8) != 0) {
    put_error(out, 505, "HTTP/1.1, please");
    return true;
  }
  bool get = space - request == 3 && !memcmp(request, "GET", 3),
       is_head = space - request == 4 && !memcmp(request, "HEAD", 4);
  if (!get && !is_head) {
    put_error(out, 405, "only GET and HEAD");
    return true;
  }
  if (has_body(line_end + 1, head - (size_t)(line_end + 1 - request))) {
    put_error(out, 413, "a request with a body is not taken");
    return true;
  }
  size_t length = 0;
  while (path + length < path_end && path[length] != '?') length++;
  for (int i = 0; i < n_rows; i++) {
    if (strlen(rows[i].path) != length || memcmp(rows[i].path, path, length) != 0) continue;
    struct text body = {0};
    int code = rows[i].write(arg, &body);
    put_answer(out, code, rows[i].type, &body, is_head);
    text_release(&body);
    return true;
  }
  struct text words = {0};
  text_adds(&words, "there is no such page; there are:");
  for (int i = 0; i < n_rows; i++) text_addf(&words, " %s", rows[i].path);
  put_error(out, 404, text_cstr(&words));
  text_release(&words);
  return true;
}

/* ---- connections ---- */

static void drop(struct pages *p, int i) {
  struct visitor *v = &p->visitors[i];
  close(v->fd);
  text_release(&v->in);
  text_release(&v->out);
  memmove(v, v + 1, (size_t)(--p->n - i) * sizeof *v);
}

static void take_in(struct pages *p) {
  int fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    /* Without descriptors the listener stays readable: not to spin on it. */
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) poll(NULL, 0, PAUSE_MS);
    return;
  }
  if (p->n == MAX_CONNECTIONS) drop(p, 0);
  p->visitors[p->n++] = (struct visitor){.fd = fd, .until = deadline_after_ms(TIMEOUT_MS)};
}

/* Reads, answers, writes; false: the visitor is to go. */
static bool serve(struct pages *p, struct visitor *v) {
  char bytes[2048];
  if (!v->answered) {
    ssize_t n = recv(v->fd, bytes, sizeof bytes, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    text_add(&v->in, bytes, (size_t)n);
    v->answered = pages_answer(p->rows, p->n_rows, p->arg, v->in.at, v->in.n, &v->out);
    if (!v->answered) return true;
  }
  while (v->sent < v->out.n) {
    ssize_t n = send(v->fd, v->out.at + v->sent, v->out.n - v->sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    v->sent += (size_t)n;
  }
  /* Closing with unread bytes would reset the connection, and take the answer from the reader's hands. */
  shutdown(v->fd, SHUT_WR);
  for (int i = 0; i < 8 && recv(v->fd, bytes, sizeof bytes, 0) > 0;) i++;
  return false;
}

static void *attend(void *arg) {
  struct pages *p = arg;
  pthread_setname_np(pthread_self(), "shoal-pages");
  for (;;) {
    struct pollfd fds[MAX_CONNECTIONS + 2] = {{.fd = p->stop[0], .events = POLLIN},
                                              {.fd = p->listener, .events = POLLIN}};
    int wait = -1, n = p->n;
    int64_t now = clock_ns();
    for (int i = 0; i < n; i++) {
      struct visitor *v = &p->visitors[i];
      int64_t left = (v->until - now) / 1000000 + 1;
      fds[i + 2] = (struct pollfd){.fd = v->fd, .events = v->answered ? POLLOUT : POLLIN};
      if (wait < 0 || left < wait) wait = (int)(left > 0 ? left : 0);
    }
    if (poll(fds, (nfds_t)n + 2, wait) < 0 && errno != EINTR) return NULL;
    if (fds[0].revents) return NULL;
    now = clock_ns();
    for (int i = n - 1; i >= 0; i--) /* from the end: those dropped do not move what is still to be looked at */
      if ((fds[i + 2].revents && !serve(p, &p->visitors[i])) || now >= p->visitors[i].until) drop(p, i);
    if (fds[1].revents) take_in(p);
  }
}

/* ---- starting and stopping ---- */

static void release(struct pages *p) {
  while (p->n) drop(p, p->n - 1);
  if (p->listener >= 0) close(p->listener);
  for (int i = 0; i < 2; i++)
    if (p->stop[i] >= 0) close(p->stop[i]);
  free(p);
}

shoal_status pages_start(const char *host, int port, const struct page *rows, int n, void *arg, struct pages **out) {
  struct pages *p = mem_zalloc(1, sizeof *p);
  *p = (struct pages){.rows = rows, .n_rows = n, .arg = arg, .listener = -1, .stop = {-1, -1}};
  shoal_status s = bind_and_listen(host, port, "--http_host, --http_port", &p->listener, &p->port);
  if (!s && pipe2(p->stop, O_CLOEXEC)) s = ERRNO_STATUS(errno, "no pipe for the pages");
  int err = s ? 0 : pthread_create(&p->thread, NULL, attend, p);
  if (err) s = ERRNO_STATUS(err, "no thread for the pages");
  if (s) release(p);
  else *out = p;
  return s;
}

int pages_port(const struct pages *p) { return p->port; }

void pages_stop(struct pages *p) {
  if (!p) return;
  close(p->stop[1]);
  p->stop[1] = -1;
  pthread_join(p->thread, NULL);
  release(p);
}
