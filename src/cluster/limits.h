/* What a client or another task can make a server hold, other than bytes on their way: one table.
 *
 * Each row is two flags of `shoal server`, --max_NAME for the whole server and --max_connection_NAME for what was begun
 * over one connection; docs/security.md has the same table, and a test compares the two. What is held is taken from an
 * account, that of the connection over which its session was opened, and through it from its address's (rpc/address.h)
 * and the server's budget; it is given back when it goes. Sessions whose clients have gone make room when room is
 * needed (master.c). */
#ifndef CLUSTER_LIMITS_H
#define CLUSTER_LIMITS_H

#include <pthread.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/status.h"
#include "rpc/address.h"

enum limit {
  LIMIT_SESSIONS,
  LIMIT_CREATIONS,
  LIMIT_NODES,
  LIMIT_GRAPH_BYTES,
  LIMIT_GRAPHS,
  LIMIT_STEPS,
  LIMIT_CALLABLES,
  LIMIT_PARTIAL_RUNS,
  LIMIT_PEERS,
  LIMIT_COORDINATION_BYTES,
  LIMITS
};

struct limit_row {
  const char *name, *connection_name; /* of the flags */
  const char *what;                   /* is held: "steps under way" */
  const char *help, *connection_help; /* of the flags */
  int64_t usual, connection;          /* for the server, for a connection */
  bool share;                         /* these are parts of the machine's memory, 1/usual */
};
extern const struct limit_row limit_rows[LIMITS];

/* For servers that start from now on; 0: as usual. */
void limit_set(enum limit which, int64_t server, int64_t connection);

struct limits; /* of one server */
struct limits *limits_new(const char *task);
void limits_free(struct limits *l);
/* Another value than the process's, for the server alone. */
void limits_change(struct limits *l, enum limit which, int64_t most);
/* Has more than three quarters of anything that sessions hold been taken, of all there is or of an address's share? */
bool limits_are_near(struct limits *l);
/* Of what is counted elsewhere, by connections. */
int64_t limits_most_of_one(enum limit which);
/* The server's limit, and how much of it is taken. */
int64_t limits_most(const struct limits *l, enum limit which);
int64_t limits_used(const struct limits *l, enum limit which);

/* Of one connection, found by its number, and in it of its address (0: of nobody, without bounds of its own); a
 * reference. */
struct account;
struct account *account_get(struct limits *l, struct rpc_origin from);
struct account *account_ref(struct account *a);
void account_unref(struct account *a);
/* RESOURCE_EXHAUSTED, naming the flag, when that would be too many. */
shoal_status account_take(struct account *a, enum limit which, size_t n);
/* How much may still be taken. */
size_t account_room(const struct account *a, enum limit which);
void account_give(struct account *a, enum limit which, size_t n);

#endif
