/* Certificates from files; see tls.h. */
#include "rpc/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

enum { MAX_PEM = 1 << 20 };

static shoal_status read_pem(const char *flag, const char *file, char **out) {
  FILE *f = fopen(file, "re");
  if (!f) return INVALID("%s=%s cannot be read: %m", flag, file);
  struct text t = {0};
  char piece[4096];
  for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0 && t.n < MAX_PEM;) text_add(&t, piece, n);
  fclose(f);
  if (!strstr(text_cstr(&t), "-----BEGIN ")) {
    text_release(&t);
    return INVALID("%s=%s holds no PEM text (no \"-----BEGIN\" line): give a file in PEM format", flag, file);
  }
  *out = text_take(&t);
  return NULL;
}

shoal_status rpc_tls_load(const char *cert_file, const char *key_file, const char *ca_file, struct rpc_tls **out) {
  *out = NULL;
  if (!cert_file && !key_file && !ca_file) return NULL;
  if (!cert_file != !key_file)
    return INVALID("--tls_cert and --tls_key go together: %s is missing", cert_file ? "--tls_key" : "--tls_cert");
  struct rpc_tls *t = mem_zalloc(1, sizeof *t);
  shoal_status s = NULL;
  if (cert_file) s = read_pem("--tls_cert", cert_file, &t->cert);
  if (!s && key_file) s = read_pem("--tls_key", key_file, &t->key);
  if (!s && ca_file) s = read_pem("--tls_ca", ca_file, &t->ca);
  SSL_CTX *ctx = NULL;
  if (!s) s = rpc_tls_context(t, false, &ctx); /* what cannot be used is told here, before anyone is connected to */
  SSL_CTX_free(ctx);
  if (s) rpc_tls_free(t);
  else *out = t;
  return s;
}

shoal_status rpc_tls_from_environment(struct rpc_tls **out) {
  return rpc_tls_load(getenv("SHOAL_TLS_CERT"), getenv("SHOAL_TLS_KEY"), getenv("SHOAL_TLS_CA"), out);
}

shoal_status rpc_tls_explain(shoal_status s, bool tls) {
  if (shoal_status_code(s) != SHOAL_UNAVAILABLE) return s;
  static const struct {
    const char *sign, *meaning;
  } signs[] = {
      {"rong version number", "it does not speak TLS: start it with --tls_cert, or connect without certificates"},
      {"WRONG_VERSION_NUMBER", "it does not speak TLS: start it with --tls_cert, or connect without certificates"},
      {"certificate has expired", "its certificate, or one of those above it, is out of date"},
      {"certificate is not yet valid",
       "its certificate, or one of those above it, is of the future: do the clocks agree?"},
      {"certificate purpose", "its certificate is for another purpose: a task's is for serverAuth and clientAuth"},
      {"invalid CA certificate", "its certificate was signed by one that is no authority's"},
      {"path length constraint", "its certificate was signed by an authority that may not make others"},
      {"unable to get local issuer certificate",
       "its certificate is not signed by the authority given here (--tls_ca), or comes without those in between: they "
       "follow it in the file of --tls_cert"},
      {"ertificate verify failed", "its certificate is not signed by the authority given here (--tls_ca)"},
      {"CERTIFICATE_VERIFY_FAILED", "its certificate is not signed by the authority given here (--tls_ca)"},
      {"is not in peer certificate", "its certificate is made out to another name"},
      {"Hostname Verification Check failed", "its certificate is made out to another name"},
  };
  const char *text = shoal_status_message(s);
  for (size_t i = 0; tls && i < COUNT_OF(signs); i++) {
    if (!strstr(text, signs[i].sign)) continue;
    shoal_status known = STATUS(SHOAL_UNAUTHENTICATED, "%s; %s", text, signs[i].meaning);
    shoal_status_free(s);
    return known;
  }
  /* A server that wants TLS, or another certificate, only hangs up; so does one that is being stopped. */
  if (strstr(text, "failed to connect") && (strstr(text, "Socket closed") || strstr(text, "Connection reset")))
    return status_suffix(s,
                         tls ? "; it hung up: perhaps it does not accept this side's certificate (--tls_cert)"
                             : "; it hung up: if it wants TLS, give certificates (--tls_cert, --tls_key, --tls_ca); or "
                               "another service is there");
  return s;
}

void rpc_tls_free(struct rpc_tls *t) {
  if (!t) return;
  free(t->cert);
  if (t->key) explicit_bzero(t->key, strlen(t->key));
  free(t->key);
  free(t->ca);
  free(t);
}

static int pick_protocol(SSL *ssl, const unsigned char **out, unsigned char *n, const unsigned char *in, unsigned in_n,
                         void *arg) {
  for (unsigned i = 0; i + 1 <= in_n; i += 1u + in[i]) {
    if (in[i] != 2 || i + 3 > in_n || memcmp(in + i + 1, "h2", 2) != 0) continue;
    *out = in + i + 1;
    *n = 2;
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static BIO *bio_of(const char *pem) { return BIO_new_mem_buf(pem, -1); }

/* Nobody is asked for a pass phrase: a server has no terminal, and whoever has one would wait there for ever. */
static int no_pass_phrase(char *into, int size, int writing, void *arg) { return -1; }

static X509 *next_certificate(BIO *from) { return PEM_read_bio_X509(from, NULL, no_pass_phrase, NULL); }

static shoal_status use_certificate(SSL_CTX *ctx, const char *pem) {
  BIO *b = bio_of(pem);
  X509 *cert = next_certificate(b);
  bool ok = cert && SSL_CTX_use_certificate(ctx, cert) == 1;
  X509_free(cert);
  for (X509 *next; ok && (next = next_certificate(b));) { /* the rest of its chain */
    ok = SSL_CTX_add1_chain_cert(ctx, next) == 1;
    X509_free(next);
  }
  BIO_free(b);
  return ok ? NULL : INVALID("the file of --tls_cert holds no certificate that can be used");
}

static shoal_status use_key(SSL_CTX *ctx, const char *pem) {
  BIO *b = bio_of(pem);
  EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, no_pass_phrase, NULL);
  BIO_free(b);
  if (!key) return INVALID("the file of --tls_key holds no private key that can be read without a pass phrase");
  bool ok = SSL_CTX_use_PrivateKey(ctx, key) == 1 && SSL_CTX_check_private_key(ctx) == 1;
  EVP_PKEY_free(key);
  return ok ? NULL : INVALID("the key of --tls_key is not that of the certificate of --tls_cert: they go together");
}

/* Whoever is given is trusted, be it an authority under another: not all that are under that one. */
static bool trust(SSL_CTX *ctx, const char *ca) {
  BIO *b = bio_of(ca);
  X509_STORE_set_flags(SSL_CTX_get_cert_store(ctx), X509_V_FLAG_PARTIAL_CHAIN);
  int n = 0;
  for (X509 *cert; (cert = next_certificate(b)); X509_free(cert)) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert);
    SSL_CTX_add_client_CA(ctx, cert);
    n++;
  }
  BIO_free(b);
  return n > 0;
}

/* OpenSSL would tidy up as the process exits, beside the network's last thread, which tidies up what it had of its own:
 * both free the same. */
static void start_openssl(void) { OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL); }

shoal_status rpc_tls_context(const struct rpc_tls *t, bool server, SSL_CTX **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  *out = NULL;
  if (!t || (server && !t->cert)) return NULL;
  pthread_once(&once, start_openssl);
  SSL_CTX *ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
  MUST(ctx);
  SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
  SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY); /* reading ends after a message of TLS itself: see socket.c */
  SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(ctx, 0);
  /* By default a stranger may ask for groups of finite fields: a third of a second of ours for a packet of his. Those
   * left cost some tenths of a millisecond. (Ciphers of TLS 1.2 without elliptic curves would cost as much.) */
  MUST(SSL_CTX_set1_groups_list(ctx, "X25519:P-256:P-384") &&
       SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20"));
  static const unsigned char protocols[] = {2, 'h', '2'};
  if (server) SSL_CTX_set_alpn_select_cb(ctx, pick_protocol, NULL);
  else SSL_CTX_set_alpn_protos(ctx, protocols, sizeof protocols);
  int verify = server ? (t->ca ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_NONE) : SSL_VERIFY_PEER;
  SSL_CTX_set_verify(ctx, verify, NULL);
  shoal_status s = NULL;
  if (t->cert) s = use_certificate(ctx, t->cert);
  if (!s && t->cert) s = use_key(ctx, t->key);
  if (!s && (t->ca ? !trust(ctx, t->ca) : (!server && !SSL_CTX_set_default_verify_paths(ctx))))
    s = INVALID("the file of --tls_ca holds no certificate of an authority");
  ERR_clear_error();
  if (s) SSL_CTX_free(ctx);
  else *out = ctx;
  return s;
}
