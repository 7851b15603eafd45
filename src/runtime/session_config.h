/* What a ConfigProto says to those who run sessions: read here for local sessions, servers, masters and workers alike,
 * and written here for sessions on servers and for flags. Fields that none of them heeds are passed over. */
#ifndef RUNTIME_SESSION_CONFIG_H
#define RUNTIME_SESSION_CONFIG_H

#include "base/status.h"
#include "base/vec.h"
#include "base/wire.h"
#include "device/device.h"
#include "shoal/session.h"

enum { MAX_DEVICE_TYPES = 8, MAX_TASK_NAME = 192 };
enum { SESSION_MAX_DEVICES = 1024 }; /* of a type */

struct session_config {
  struct device_count devices[MAX_DEVICE_TYPES]; /* device_count, of the types there are here */
  int n_devices;
  struct device_options device_options; /* gpu_options, experimental.collective_nccl */
  int inter_threads, intra_threads;
  bool own_threads; /* pools of the session's own are described */
  int inter_pools;  /* session_inter_op_thread_pool: so many of them */
  bool soft_placement, log_placement;
  bool isolated, shared_state;  /* isolate_session_state; experimental.share_session_state_in_clusterspec_propagation */
  int64_t operation_timeout_ms; /* of steps that have no time-out of their own; 0: none */
  bool as_is;                   /* graph_options: the graph is to be run without rewrites */
  int64_t cost_every;           /* graph_options.build_cost_model */
  char leader[MAX_TASK_NAME];   /* experimental.collective_group_leader, as it came; "": none */
  VEC(char *) filters;          /* device_filters, as they came */
  struct wire cluster_def;      /* in the message; empty: none */
};

/* What is read is laid over what c has: all zeros, or defaults. On an error it is to be released too. */
shoal_status session_config_read(struct session_config *c, struct wire w);
void session_config_release(struct session_config *c);
/* So many devices of a type, whatever was said before. */
void session_config_ask(struct session_config *c, const struct device_type *type, int n);
/* How many devices of a type a session of this process has that says nothing of them. */
int session_config_count(const struct device_type *type);
/* Can a task have these devices, and so many threads? Where nothing was said of how cards are divided,
 * SHOAL_VIRTUAL_DEVICES in the environment does. */
shoal_status session_config_check(struct session_config *c);

/* GraphOptions, which workers also get without the rest. */
void graph_options_read(struct session_config *c, struct wire w);

/* What options for a session on a server become there: their own ConfigProto, if any, and the rest laid over it. */
void session_config_write(const shoal_session_options *o, struct text *out);
/* experimental.collective_group_leader: in a ConfigProto that somebody else wrote (on the heap; NULL: it has none), and
 * as all that ours says. */
char *session_config_leader(struct wire w);
void session_config_write_leader(const char *leader, struct text *out);
/* One more of device_filters. */
void session_config_add_filter(const char *filter, struct text *out);
/* One more device of the last card that was spoken of (n_cards), with so much memory. */
shoal_status session_config_add_virtual(struct device_options *o, double mb);
/* "1024+1024,,4096": the megabytes of a card's devices, and the next card's. what: who says so, for errors. */
shoal_status session_config_read_virtual(const char *what, const char *text, struct device_options *o);
/* device_count: so many of each. */
void session_config_write_counts(const struct device_count *counts, int n, struct text *out);
/* gpu_options, laid over what out has: what o says of them. */
void session_config_write_devices(const struct device_options *o, struct text *out);

#endif
