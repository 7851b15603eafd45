/* Certificates from files; see tls.h. */
#include "rpc/tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

enum { MAX_PEM = 1 << 20 };

static shoal_status read_pem(const char *flag, const char *file, char **out) {
  FILE *f = fopen(file, "re");
  if (!f) return ERRNO_STATUS(errno, "%s=%s cannot be read", flag, file);
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
    return status_suffix(s, tls ? "; it hung up: perhaps it does not accept this side's certificate (--tls_cert)"
                                : "; it hung up: if it wants TLS, give certificates (--tls_cert, --tls_key, --tls_ca)");
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

grpc_server_credentials *rpc_tls_server(const struct rpc_tls *t) {
  if (!t || !t->cert) return grpc_insecure_server_credentials_create();
  grpc_ssl_pem_key_cert_pair pair = {.private_key = t->key, .cert_chain = t->cert};
  return grpc_ssl_server_credentials_create_ex(
      t->ca, &pair, 1,
      t->ca ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
      NULL);
}

grpc_channel_credentials *rpc_tls_channel(const struct rpc_tls *t) {
  if (!t) return grpc_insecure_credentials_create();
  grpc_ssl_pem_key_cert_pair pair = {.private_key = t->key, .cert_chain = t->cert};
  return grpc_ssl_credentials_create(t->ca, t->cert ? &pair : NULL, NULL, NULL);
}
