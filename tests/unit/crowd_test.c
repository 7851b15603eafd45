/* Whoever has much to say takes no time from others: connections that are ready at once get a glance each, handshakes
 * are made a few at a time, and TLS records of a byte are not all read at once.
 *
 * Nothing here depends on how fast a machine is. The network's thread is caught while all that is to come arrives; what
 * is counted then is what it did before others had their turn. */
#include "unit.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "rpc/channel.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "rpc/socket.h"

enum { LONG_MS = 60000 };

/* ---- the leader, caught ---- */

static sem_t caught, released;

static void catch_leader(struct rpc_event *e) {
  sem_post(&caught);
  while (sem_wait(&released)) continue;
}

static struct rpc_event catcher;

static void catch (void) {
  catcher = (struct rpc_event){.fn = catch_leader, .kind = RPC_EVENT_QUICK};
  rpc_loop_post(&catcher);
  while (sem_wait(&caught)) continue;
}

static int64_t bytes_read(void) {
  int64_t in, out;
  socket_bytes(&in, &out);
  return in;
}

/* ---- connections ---- */

enum { CROWD = 40, POURED = 48 << 10, FIELD = 3900, REFERENCES = 25 };

static atomic_llong read_before;

static void look(struct rpc_call *c, void *arg) {
  atomic_store(&read_before, bytes_read());
  rpc_call_reply(c, NULL);
}

static const struct rpc_method methods[] = {{"/t/Look", look}};

static void put_frame(struct text *t, size_t n, int type, int flags, uint32_t stream) {
  const uint8_t head[9] = {(uint8_t)(n >> 16),      (uint8_t)(n >> 8),      (uint8_t)n,
                           (uint8_t)type,           (uint8_t)flags,         0,
                           (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
  text_add(t, (const char *)head, sizeof head);
}

static void put_field(struct text *t, int first, const char *name, const char *value) {
  text_addc(t, (char)first);
  text_addc(t, (char)strlen(name));
  text_adds(t, name);
  text_addc(t, (char)strlen(value));
  text_adds(t, value);
}

/* Calls whose fields are references to one large field: a few bytes are much work. */
static void make_costly(struct text *t) {
  text_adds(t, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  put_frame(t, 0, 4, 0, 0);
  for (uint32_t stream = 1; t->n < POURED; stream += 2) {
    struct text block = {0};
    put_field(&block, 0, ":method", "POST");
    put_field(&block, 0, ":scheme", "http");
    put_field(&block, 0, ":path", "/t/None");
    if (stream == 1) { /* into the table: a name of one byte, a value of FIELD */
      text_add(&block, "\x40\x01x\x7f", 4);
      for (int left = FIELD - 127; left >= 0; left >>= 7) {
        text_addc(&block, (char)(left > 127 ? (left & 127) | 128 : left));
        if (left <= 127) break;
      }
      for (int i = 0; i < FIELD; i++) text_addc(&block, 'v');
    }
    for (int i = 0; stream > 1 && i < REFERENCES; i++) text_addc(&block, (char)(128 | 62));
    put_frame(t, block.n, 1, 4, stream);
    text_add(t, block.at, block.n);
    text_release(&block);
  }
}

static int connect_to(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
  return fd;
}

static void on_looked(void *arg, shoal_status s, struct rpc_body *body) {
  ASSERT_OK(s);
  sem_post(arg);
}

static void glances(void **state) {
  sem_t looked;
  sem_init(&looked, 0, 0);
  struct rpc_server *s;
  ASSERT_OK(rpc_server_start(&(struct rpc_server_options){.methods = methods, .n_methods = 1}, &s));
  rpc_server_accept(s);
  char address[32];
  snprintf(address, sizeof address, "127.0.0.1:%d", rpc_server_port(s));
  struct rpc_channel *c = rpc_channel_new(address, NULL, NULL);
  ASSERT_OK(rpc_call_wait(c, "/t/Look", NULL, deadline_after_ms(LONG_MS), 0, NULL));
  int crowd[CROWD];
  for (int i = 0; i < CROWD; i++) crowd[i] = connect_to(rpc_server_port(s));
  while (rpc_server_connections(s) < CROWD + 1) usleep(1000);

  struct text costly = {0};
  make_costly(&costly);
  catch ();
  for (int i = 0; i < CROWD; i++) assert_int_equal(send(crowd[i], costly.at, costly.n, 0), costly.n);
  int64_t before = bytes_read();
  rpc_start(c, "/t/Look", NULL, deadline_after_ms(LONG_MS), 0, on_looked, &looked, NULL);
  sem_post(&released);
  while (sem_wait(&looked)) continue;
  int64_t each = (atomic_load(&read_before) - before) / CROWD;
  assert_true(each < POURED / 3);

  text_release(&costly);
  for (int i = 0; i < CROWD; i++) close(crowd[i]);
  rpc_channel_unref(c);
  rpc_server_stop(s, 0);
  sem_destroy(&looked);
}

/* ---- handshakes ---- */

enum { GREETINGS = 20 };

struct greeting {
  struct rpc_event event;
  atomic_int *made;
};

static void greet(struct rpc_event *e) {
  for (int64_t until = clock_ns() + 3000000; clock_ns() < until;) continue;
  atomic_fetch_add(((struct greeting *)e)->made, 1);
}

struct news {
  struct rpc_event event;
  atomic_int *made;
  int before;
  sem_t told;
};

static void tell(struct rpc_event *e) {
  struct news *n = (struct news *)e;
  n->before = atomic_load(n->made);
  sem_post(&n->told);
}

static void greetings(void **state) {
  ASSERT_OK(rpc_loop_acquire());
  atomic_int made = 0;
  struct greeting all[GREETINGS];
  struct news news = {.event = {.fn = tell, .kind = RPC_EVENT_NEWS}, .made = &made};
  sem_init(&news.told, 0, 0);
  catch ();
  for (int i = 0; i < GREETINGS; i++) {
    all[i] = (struct greeting){{.fn = greet, .kind = RPC_EVENT_GREETING}, &made};
    rpc_loop_post(&all[i].event);
  }
  rpc_loop_post(&news.event);
  sem_post(&released);
  while (sem_wait(&news.told)) continue;
  assert_true(news.before <= 2);
  while (atomic_load(&made) < GREETINGS) usleep(1000);
  rpc_loop_release();
  sem_destroy(&news.told);
}

/* ---- records ---- */

static SSL_CTX *make_context(bool server) {
  SSL_CTX *ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
  if (!server) return ctx;
  EVP_PKEY *key = EVP_EC_gen("P-256");
  X509 *cert = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(cert), 0);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
  assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
  assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
  X509_free(cert);
  EVP_PKEY_free(key);
  return ctx;
}

static void records(void **state) {
  enum { SAID = 200 };
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  SSL_CTX *ours = make_context(true), *theirs = make_context(false);
  struct rpc_socket server, client;
  socket_init(&server, pair[0], ours, true, NULL);
  socket_init(&client, pair[1], theirs, false, NULL);
  uint32_t events;
  for (int a = 0, b = 0; a != 1 || b != 1;) {
    a = socket_handshake(&client, &events);
    b = socket_handshake(&server, &events);
    assert_true(a >= 0 && b >= 0);
  }
  for (int i = 0; i < SAID; i++)
    assert_int_equal(socket_write(&client, &(struct iovec){(void *)(uintptr_t) "x", 1}, 1), 1);
  char bytes[2 * SAID];
  ssize_t all = 0, most = 0;
  while (all < SAID) {
    ssize_t n = socket_read(&server, &(struct iovec){bytes, sizeof bytes}, 1);
    assert_true(n > 0);
    most = MAX(most, n);
    all += n;
  }
  assert_int_equal(all, SAID);
  assert_true(most < SAID / 2);
  socket_release(&client);
  socket_release(&server);
  SSL_CTX_free(ours);
  SSL_CTX_free(theirs);
}

static int set_up(void **state) { return sem_init(&caught, 0, 0) || sem_init(&released, 0, 0); }

RUN_TESTS(cmocka_unit_test_setup(glances, set_up), cmocka_unit_test_setup(greetings, set_up), cmocka_unit_test(records))
