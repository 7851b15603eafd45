/* Who may talk to whom: certificates of a task, and the authority that signs those of the others.
 *
 * With all three files given, both ends of every connection show a certificate signed by the authority (mutual TLS).
 * What the names in it must be is cluster/identity.h's business; a client, which knows only an address, accepts a
 * certificate that names the address's host. */
#ifndef RPC_TLS_H
#define RPC_TLS_H

#include <openssl/ssl.h>

#include "base/status.h"

struct rpc_tls {
  char *cert, *key, *ca; /* PEM texts; ca NULL: the peer need not show a certificate */
};

/* Reads the files, and tries whether they can be used; cert and key go together. All NULL gives *out NULL: plain
 * text. */
shoal_status rpc_tls_load(const char *cert_file, const char *key_file, const char *ca_file, struct rpc_tls **out);
void rpc_tls_free(struct rpc_tls *t);
/* What OpenSSL needs of it, for SSL_CTX_free; NULL with an error (what cannot be used) when the certificate, the key or
 * the authority cannot be read, or do not fit together. A server without a certificate has none: plain text. */
shoal_status rpc_tls_context(const struct rpc_tls *t, bool server, SSL_CTX **out);
/* From the files that SHOAL_TLS_CERT, SHOAL_TLS_KEY and SHOAL_TLS_CA name, for clients whose program says nothing of
 * certificates. *out NULL: plain text. */
shoal_status rpc_tls_from_environment(struct rpc_tls **out);
/* Adds to the error of a connection that could not be made what it means in terms of certificates. Where they cannot
 * fit, the code becomes UNAUTHENTICATED: trying again is of no use. Consumes s. */
shoal_status rpc_tls_explain(shoal_status s, bool tls);

#endif
