/* Where the fast path listens and how it connects: Unix sockets on one host, TCP between hosts. */
#ifndef RPC_FAST_FAST_ADDRESS_H
#define RPC_FAST_FAST_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

enum { FAST_NAME = 64, FAST_DIAL_MS = 2000 };

/* Sockets that listen, not blocking; -1 when they cannot. */
int fast_bind_local(char name[FAST_NAME]);
int fast_bind_tcp(const char *host, int *port);
/* Connected sockets, or -1. Whoever sent the name may name only sockets of the fast path. */
int fast_dial_local(const char *name, size_t n);
int fast_dial_tcp(const char *host, int port);
/* Is the other end of a Unix socket a process of this user? */
bool fast_same_user(int fd);
/* The process that listens at the other end of a Unix socket, as this one sees it; 0 when it does not, as across
 * containers, and for other sockets. */
long fast_peer_process(int fd);
/* What a TCP connection needs: no delay, and an end when the other side does not acknowledge. */
void fast_tune_tcp(int fd);
/* How much may have been written and not been read, of any socket. large: less, where the way is short. */
void fast_tune_sending(int fd, bool large);

#endif
