/* A connected socket that does not block, in plain text or under TLS: the bytes of one connection of HTTP.
 *
 * Not thread-safe; the connection's lock guards it. */
#ifndef RPC_SOCKET_H
#define RPC_SOCKET_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/text.h"

struct rpc_socket {
  int fd;
  SSL *ssl;          /* NULL: plain text */
  struct text error; /* of the last call that failed */
  int64_t taken;     /* TLS: bytes read so far */
  int64_t matters;   /* TLS: messages of its own that came so far: handshakes, new keys, alerts */
};

/* Takes over fd. ctx NULL: plain text. name: what the peer's certificate must be made out to (clients). */
void socket_init(struct rpc_socket *s, int fd, SSL_CTX *ctx, bool server, const char *name);
void socket_release(struct rpc_socket *s);
/* 1: done, or there is none; 0: wait for *events (EPOLLIN, EPOLLOUT); -1: failed. */
int socket_handshake(struct rpc_socket *s, uint32_t *events);
/* Bytes; 0: wait; -1: the connection is over, error says why. */
ssize_t socket_read(struct rpc_socket *s, const struct iovec *to, int n);
ssize_t socket_write(struct rpc_socket *s, const struct iovec *from, int n);
/* "ipv4:10.0.0.1:4711". */
void socket_address(const struct sockaddr_storage *a, struct text *out);
/* Bytes that all sockets of this process have read and written so far. */
void socket_bytes(int64_t *in, int64_t *out);

#endif
