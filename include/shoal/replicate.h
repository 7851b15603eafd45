/* Where variables live when a model is replicated: on parameter servers, whole or in parts, and how rows of parts are
 * looked up. */
#ifndef SHOAL_REPLICATE_H
#define SHOAL_REPLICATE_H

#include <shoal/layers.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As tf.train.replica_device_setter. Zero-filled: no parameter servers, nothing is placed. */
typedef struct shoal_replica_setter {
  size_t size; /* shoal/options.h */
  int ps_tasks;              /* 0: the scope does nothing */
  const char *ps_device;     /* NULL: "/job:ps"; "": variables stay with the worker */
  const char *worker_device; /* for all other ops; NULL: "/job:worker" */
  const char *const *ps_ops; /* op types that go to parameter servers, NULL at the end; NULL: all kinds of variables and
                                mutable tables */
  bool by_bytes;             /* each to the task with the fewest bytes so far, instead of in turn */
  bool no_merge;             /* ops with any device asked for inside are left alone */
} shoal_replica_setter;

/* Every op made inside the scope is placed by it; pop with shoal_pop_device. */
SHOAL_API void shoal_push_replica_setter(shoal_graph *g, const shoal_replica_setter *s);

/* How a variable is cut along one axis. */
typedef struct shoal_partitioner {
  enum { SHOAL_PARTS_FIXED, SHOAL_PARTS_MAX_BYTES, SHOAL_PARTS_MIN_BYTES } kind;
  int axis;
  int64_t parts; /* how many (MAX_BYTES and MIN_BYTES: at most; 0: no limit for MAX_BYTES) */
  int64_t bytes; /* the most, or the least, that one part has */
} shoal_partitioner;
/* tf.fixed_size_partitioner, tf.variable_axis_size_partitioner, tf.min_max_variable_partitioner. */
SHOAL_API shoal_partitioner shoal_fixed_partitioner(int64_t parts, int axis);
SHOAL_API shoal_partitioner shoal_max_bytes_partitioner(int64_t max_bytes, int axis, int64_t max_parts);
SHOAL_API shoal_partitioner shoal_min_bytes_partitioner(int64_t min_bytes, int axis, int64_t max_parts);
/* How many parts a variable of this shape gets. */
SHOAL_API int64_t shoal_partition_count(const shoal_partitioner *p, shoal_dtype dtype, shoal_dims shape);

/* A variable in parts NAME/part_0 ... that a checkpoint holds as one tensor NAME: another number of parts, or
 * TensorFlow, restores it. The first parts are one longer where the axis does not divide. */
typedef struct shoal_partitioned {
  shoal_var *parts; /* freed with shoal_partitioned_free */
  int n, axis;
} shoal_partitioned;
/* The initial value of the part of this shape. */
typedef shoal_out shoal_part_init(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg);
SHOAL_API shoal_partitioned shoal_partitioned_variable(shoal_graph *g, const char *name, shoal_dtype dtype,
                                                       shoal_dims shape, const shoal_partitioner *partitioner,
                                                       shoal_part_init *init, void *arg);
/* How a variable is cut, by a struct that can grow: shoal_partitioner keeps the layout it has. */
typedef struct shoal_partitioning {
  size_t size; /* shoal/options.h */
  shoal_partitioner partitioner;
  /* NULL, or instead of what the partitioner says: how many parts along its axis, from 1 to the axis' length. */
  int64_t (*count)(void *arg, shoal_dtype dtype, shoal_dims shape);
  void *count_arg;
  shoal_part_init *init;
  void *init_arg;
} shoal_partitioning;
SHOAL_API shoal_partitioned shoal_partitioned_variable_with(shoal_graph *g, const char *name, shoal_dtype dtype,
                                                            shoal_dims shape, const shoal_partitioning *p);
/* The whole, put together. */
SHOAL_API shoal_out shoal_partitioned_value(shoal_graph *g, const shoal_partitioned *p);
SHOAL_API void shoal_partitioned_free(shoal_partitioned *p);

/* Rows `ids` (any shape, int32 or int64) of a table in n shards, as tf.nn.embedding_lookup: strategy "mod" has row i in
 * shard i % n; "div" has them in order. Each shard is asked only for its own rows, and gets only their gradients. */
SHOAL_API shoal_out shoal_embedding_lookup(shoal_graph *g, const shoal_var *shards, int n, shoal_out ids,
                                           const char *strategy);

/* Gradients of n variables from several towers (grads[tower * n + i]), averaged in the order of the towers, where the
 * device scope says; sparse ones are put one after another. For replication inside one graph. */
SHOAL_API void shoal_average_gradients(shoal_graph *g, const shoal_gradient *grads, int towers, int n,
                                       shoal_gradient *out);

#ifdef __cplusplus
}
#endif
#endif
