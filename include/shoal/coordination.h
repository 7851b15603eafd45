/* Values and barriers among the tasks of a cluster, kept by the leader's coordination service: TensorFlow 2's own, so
 * that its processes (context.context().set_config_key_value and kin) and programs in C share them. Every function goes
 * by a server of this process, which was started with .coordination_service = 1, as those of all other tasks of the
 * jobs "chief" and "worker" are.
 *
 *   check(shoal_coordination_set(server, "addresses/3", address, strlen(address)));
 *   check(shoal_coordination_barrier(server, "all have told", 60000, NULL, 0));
 *   check(shoal_coordination_list(server, "addresses", &all));
 *
 * Any thread may call them, several at a time; they wait for an answer of the leader, and for the leader to come. The
 * server must outlive the call. Errors name the leader; where it does not come: DEADLINE_EXCEEDED. */
#ifndef SHOAL_COORDINATION_H
#define SHOAL_COORDINATION_H

#include <shoal/cluster.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values ---- */

/* A key is a path, "a/b/c"; slashes at its ends, and several in a row, do not count, and something else is to be there.
 * A value is set once: ALREADY_EXISTS until it is deleted. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordination_set(const shoal_server *s, const char *key, const void *data,
                                                               size_t size);
/* Waits until there is one, for at most timeout_ms (0: a minute): DEADLINE_EXCEEDED. *out is for shoal_bytes_free. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordination_get(const shoal_server *s, const char *key,
                                                               int64_t timeout_ms, shoal_bytes *out);
/* The same without waiting: NOT_FOUND. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordination_try_get(const shoal_server *s, const char *key,
                                                                   shoal_bytes *out);

/* Keys in full, with their values, in order. */
typedef struct shoal_value_list {
  int n;
  char **keys;         /* [n] */
  shoal_bytes *values; /* [n] */
} shoal_value_list;
/* All that is under a directory, and under those in it; none is no error. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordination_list(const shoal_server *s, const char *directory,
                                                                shoal_value_list *out);
SHOAL_API void shoal_value_list_free(shoal_value_list *list);

/* The value, and all that is under the key; none is no error. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordination_delete(const shoal_server *s, const char *key);

/* ---- barriers ---- */

/* Waits until all tasks have come to the barrier of that name, or those that are named ("/job:worker/task:1"; all name
 * the same ones). It passes once, well or with an error for all: DEADLINE_EXCEEDED with the names of those who have not
 * come, when timeout_ms (0: a minute) have passed since the first came; INTERNAL where one of them has failed or left.
 * Who comes afterwards is told the same at once: the next barrier has another name. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordination_barrier(const shoal_server *s, const char *name,
                                                                   int64_t timeout_ms, const char *const *tasks, int n);

/* ---- errors ---- */

/* This task says that it has failed: all others are told, and collectives that they wait in end with the error, as do
 * barriers. The task itself, and each that was told, is counted among the cluster's again by its server, in some
 * seconds. FAILED_PRECONDITION while not all tasks are there. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_coordination_report_error(const shoal_server *s, shoal_code code,
                                                                        const char *message);
/* What this task was last told of another's failure; NULL: nothing since the last call. The caller frees it. */
SHOAL_API shoal_status shoal_coordination_error(const shoal_server *s);

#ifdef __cplusplus
}
#endif
#endif
