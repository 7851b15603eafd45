/* Connected sockets; see socket.h. */
#include "rpc/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/status.h"

/* ---- OpenSSL's way to a socket, without the SIGPIPE of its own ---- */

static int bio_write(BIO *b, const char *data, int n) {
  ssize_t sent = send((int)(intptr_t)BIO_get_data(b), data, (size_t)n, MSG_NOSIGNAL);
  BIO_clear_retry_flags(b);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(b);
  return (int)sent;
}

static int bio_read(BIO *b, char *data, int n) {
  ssize_t got = recv((int)(intptr_t)BIO_get_data(b), data, (size_t)n, 0);
  BIO_clear_retry_flags(b);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(b);
  return (int)got;
}

static long bio_ctrl(BIO *b, int command, long arg, void *more) { return command == BIO_CTRL_FLUSH; }

static BIO_METHOD *bio_method;

static void make_bio_method(void) {
  bio_method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");
  MUST(bio_method && BIO_meth_set_write(bio_method, bio_write) && BIO_meth_set_read(bio_method, bio_read) &&
       BIO_meth_set_ctrl(bio_method, bio_ctrl));
}

static BIO *make_bio(int fd) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_bio_method);
  BIO *b = BIO_new(bio_method);
  MUST(b);
  BIO_set_data(b, (void *)(intptr_t)fd);
  BIO_set_init(b, 1);
  return b;
}

/* ---- sockets ---- */

static void expect_name(SSL *ssl, const char *name) {
  struct in6_addr address;
  X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
  if (inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1) {
    X509_VERIFY_PARAM_set1_ip_asc(param, name);
    return;
  }
  /* Alternative names alone: a subject's common name is any text. */
  X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  X509_VERIFY_PARAM_set1_host(param, name, 0);
  SSL_set_tlsext_host_name(ssl, name);
}

/* TLS has messages of its own: a handshake, then now and then new keys. A peer may send them without end, each of them
 * costs far more than it has bytes, and SSL_read would not come back before there is something else. */
enum { MATTERS = 64, MATTER_BYTES = 1 << 20 }; /* so many, and one more for so many bytes */
/* Records that are read at once: one may hold a single byte. */
enum { RECORDS = 64 };

static void note_matter(int is_ours, int version, int type, const void *data, size_t n, SSL *ssl, void *arg) {
  if (!is_ours && (type == SSL3_RT_HANDSHAKE || type == SSL3_RT_ALERT)) ((struct rpc_socket *)arg)->matters++;
}

static bool too_many_matters(const struct rpc_socket *s) { return s->matters > MATTERS + s->taken / MATTER_BYTES; }

void socket_init(struct rpc_socket *s, int fd, SSL_CTX *ctx, bool server, const char *name) {
  *s = (struct rpc_socket){.fd = fd};
  /* A peer whose machine is gone says nothing: the system asks after it. */
  static const struct {
    int level, name, value;
  } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                 {SOL_SOCKET, SO_KEEPALIVE, 1},
                 {IPPROTO_TCP, TCP_KEEPIDLE, 60},
                 {IPPROTO_TCP, TCP_KEEPINTVL, 10},
                 {IPPROTO_TCP, TCP_KEEPCNT, 6}};
  for (size_t i = 0; i < COUNT_OF(options); i++)
    setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof options[i].value);
  if (!ctx) return;
  s->ssl = SSL_new(ctx);
  MUST(s->ssl);
  BIO *b = make_bio(fd);
  SSL_set_bio(s->ssl, b, b);
  SSL_set_msg_callback(s->ssl, note_matter);
  SSL_set_msg_callback_arg(s->ssl, s);
  if (server) SSL_set_accept_state(s->ssl);
  else SSL_set_connect_state(s->ssl);
  if (!server && name) expect_name(s->ssl, name);
}

void socket_release(struct rpc_socket *s) {
  if (s->ssl) {
    SSL_shutdown(s->ssl); /* says good-bye if there is room for it; nobody waits for an answer */
    SSL_free(s->ssl);
    ERR_clear_error();
  }
  if (s->fd >= 0) close(s->fd);
  text_release(&s->error);
  *s = (struct rpc_socket){.fd = -1};
}

static void say(struct rpc_socket *s, const char *what) {
  s->error.n = 0;
  text_adds(&s->error, what);
}

static ssize_t plain_result(struct rpc_socket *s, ssize_t n) {
  if (n > 0) return n;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  char text[128];
  say(s, n ? strerror_r(errno, text, sizeof text) : "Socket closed");
  return -1;
}

/* What failed under TLS, n being the result of an SSL_ function; 0 when it was no failure. */
static int tls_result(struct rpc_socket *s, int n, uint32_t *events) {
  int saved = errno, err = SSL_get_error(s->ssl, n);
  if (err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE) {
    if (events) *events = err == SSL_ERROR_WANT_READ ? EPOLLIN : EPOLLOUT;
    return 0;
  }
  unsigned long code = ERR_peek_error();
  long verdict = SSL_get_verify_result(s->ssl);
  const char *reason = code ? ERR_reason_error_string(code) : NULL;
  if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH)
    say(s, "Hostname Verification Check failed");
  else if (reason && ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED)
    text_addf((say(s, ""), &s->error), "%s (%s)", reason, X509_verify_cert_error_string(verdict));
  else if (reason && strstr(reason, "eof")) say(s, "Socket closed");
  else if (reason && strstr(reason, "alert")) text_addf((say(s, ""), &s->error), "Socket closed (%s)", reason);
  else if (reason) say(s, reason);
  else if (err == SSL_ERROR_SYSCALL && saved) plain_result(s, (errno = saved, -1));
  else say(s, "Socket closed");
  ERR_clear_error();
  return -1;
}

int socket_handshake(struct rpc_socket *s, uint32_t *events) {
  if (!s->ssl || SSL_is_init_finished(s->ssl)) return 1;
  ERR_clear_error();
  errno = 0;
  int n = SSL_do_handshake(s->ssl);
  return n == 1 ? 1 : tls_result(s, n, events);
}

static atomic_int_fast64_t bytes_in, bytes_out;

void socket_bytes(int64_t *in, int64_t *out) {
  *in = atomic_load_explicit(&bytes_in, memory_order_relaxed);
  *out = atomic_load_explicit(&bytes_out, memory_order_relaxed);
}

static ssize_t counted(atomic_int_fast64_t *so_far, ssize_t n) {
  if (n > 0) atomic_fetch_add_explicit(so_far, n, memory_order_relaxed);
  return n;
}

static ssize_t read_some(struct rpc_socket *s, const struct iovec *to, int n) {
  if (!s->ssl) return plain_result(s, readv(s->fd, to, n));
  ssize_t all = 0;
  for (int i = 0, records = 0; i < n; i++) {
    for (size_t at = 0; at < to[i].iov_len;) {
      ERR_clear_error();
      errno = 0;
      int64_t matters = s->matters;
      int got = SSL_read(s->ssl, (char *)to[i].iov_base + at, (int)MIN(to[i].iov_len - at, INT_MAX));
      if (too_many_matters(s)) {
        say(s, "too many messages of TLS without data");
        return -1;
      }
      if (got <= 0 && s->matters != matters && SSL_get_error(s->ssl, got) == SSL_ERROR_WANT_READ) continue;
      if (got <= 0) return all ? all : tls_result(s, got, NULL);
      s->taken += got;
      at += (size_t)got;
      all += got;
      if (++records == RECORDS) return all;
    }
  }
  return all;
}

ssize_t socket_read(struct rpc_socket *s, const struct iovec *to, int n) {
  return counted(&bytes_in, read_some(s, to, n));
}

static ssize_t write_some(struct rpc_socket *s, const struct iovec *from, int n) {
  if (!s->ssl) {
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)from, .msg_iovlen = (size_t)n};
    return plain_result(s, sendmsg(s->fd, &m, MSG_NOSIGNAL));
  }
  ssize_t all = 0;
  for (int i = 0; i < n; i++) {
    for (size_t at = 0; at < from[i].iov_len;) {
      ERR_clear_error();
      errno = 0;
      int sent = SSL_write(s->ssl, (const char *)from[i].iov_base + at, (int)MIN(from[i].iov_len - at, INT_MAX));
      if (sent <= 0) return all ? all : tls_result(s, sent, NULL);
      at += (size_t)sent;
      all += sent;
    }
  }
  return all;
}

ssize_t socket_write(struct rpc_socket *s, const struct iovec *from, int n) {
  return counted(&bytes_out, write_some(s, from, n));
}

void socket_address(const struct sockaddr_storage *a, struct text *out) {
  char host[INET6_ADDRSTRLEN] = "";
  const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
  if (a->ss_family == AF_INET) {
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    text_addf(out, "ipv4:%s:%d", host, ntohs(v4->sin_port));
  } else if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
    inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], host, sizeof host);
    text_addf(out, "ipv4:%s:%d", host, ntohs(v6->sin6_port));
  } else if (a->ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    text_addf(out, "ipv6:[%s]:%d", host, ntohs(v6->sin6_port));
  } else {
    text_adds(out, "unknown");
  }
}
