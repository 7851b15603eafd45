/* What a server of HTTP/1 says while the network's loop does not turn: whoever connects, and says anything, is told so
 * with a 503, by the thread that looks after the leader (rpc_loop_when_stalled). A probe then hears why at once, in
 * place of waiting for a loop that may be lost. Nothing of a request is read but that it came. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "rpc/http1/http1_visit.h"

enum { GUESTS = 16, LOOKS = 40 };

struct http1_stall {
  struct rpc_stall stall;
  struct http1 *server;
  struct {
    int fd;
    int looks; /* left: it has said nothing so far */
  } guests[GUESTS];
  int n;
};

static void let_in(struct http1_stall *s) {
  while (s->n < GUESTS) {
    int fd = accept4(s->server->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    s->guests[s->n].fd = fd;
    s->guests[s->n++].looks = LOOKS;
  }
}

static void tell(struct http1_stall *s, int fd, int64_t ns) {
  struct http1_answer a = {0};
  struct text out = {0};
  char words[80];
  snprintf(words, sizeof words, "the network's loop has not turned for %.1f s", (double)ns * 1e-9);
  s->server->o.refuse(s->server->o.arg, 503, words, &a);
  http1_put_head(&out, &a, a.body.n, false);
  text_add(&out, text_cstr(&a.body), a.body.n);
  if (send(fd, out.at, out.n, MSG_NOSIGNAL | MSG_DONTWAIT) > 0) shutdown(fd, SHUT_WR);
  text_release(&a.body);
  text_release(&out);
}

/* All that came, so that closing resets nothing. False: nothing did. */
static bool heard(int fd) {
  char bytes[4096];
  ssize_t n, all = 0;
  for (int i = 0; i < 8 && (n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0; i++) all += n;
  return all > 0;
}

static void on_stall(struct rpc_stall *stall, int64_t ns) {
  struct http1_stall *s = (struct http1_stall *)((char *)stall - offsetof(struct http1_stall, stall));
  if (ns) let_in(s);
  for (int i = s->n; i-- > 0;) {
    bool said = ns && heard(s->guests[i].fd);
    if (said) tell(s, s->guests[i].fd, ns);
    if (ns && !said && --s->guests[i].looks) continue;
    close(s->guests[i].fd);
    s->guests[i] = s->guests[--s->n];
  }
}

struct http1_stall *http1_stall_new(struct http1 *h) {
  struct http1_stall *s = mem_zalloc(1, sizeof *s);
  s->stall.fn = on_stall;
  s->server = h;
  rpc_loop_when_stalled(&s->stall);
  return s;
}

void http1_stall_free(struct http1_stall *s) {
  if (!s) return;
  rpc_loop_forget_stalled(&s->stall);
  while (s->n) close(s->guests[--s->n].fd);
  free(s);
}
