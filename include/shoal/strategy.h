/* Strategies: which replicas of a model train together, on which devices, and how they stay one model. What
 * tf.distribute.Strategy is in TensorFlow; docs/strategies.md has it from the beginning.
 *
 *   shoal_op *step(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
 *     shoal_out logits = shoal_dense(g, shoal_relu(g, shoal_dense(g, in[0], 100, "hidden")), 10, "logits");
 *     out[0] = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, in[1]));
 *     return shoal_minimize(g, shoal_adam(0.001), out[0], shoal_global_step(g));
 *   }
 *
 *   check(shoal_strategy_new_mirrored(NULL, 2, NULL, &strategy));       // or another one: the rest stays
 *   shoal_op *train = shoal_strategy_run(g, strategy, step, NULL, inputs, 2, losses, 1);
 *   SHOAL_TRAIN_SESSION(s, g, ..., .strategy = strategy)
 *
 * The function is called once for each replica of this task. Variables that it makes are *mirrored*: each replica has a
 * copy, all have the same value, and a checkpoint holds it once, under the name it has without a strategy. Gradients
 * are reduced over all replicas before they are applied, always in the same order: the same bits on every replica and
 * in every run. */
#ifndef SHOAL_STRATEGY_H
#define SHOAL_STRATEGY_H

#include <shoal/cluster.h>
#include <shoal/input.h>
#include <shoal/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_strategy shoal_strategy;
typedef struct shoal_replica shoal_replica;

typedef enum shoal_reduction {
  SHOAL_REDUCE_MEAN,
  SHOAL_REDUCE_SUM,
  SHOAL_REDUCE_MIN,
  SHOAL_REDUCE_MAX
} shoal_reduction;

/* Whether workers of TensorFlow 2's MultiWorkerMirroredStrategy are among the tasks, and how their loop reduces
 * gradients: docs/strategies.md. */
typedef enum shoal_tensorflow {
  SHOAL_TENSORFLOW_NONE,
  SHOAL_TENSORFLOW_PACKS, /* a list of all, in a tf.function: packs of bucket_kib KiB (bytes_per_pack); 0: one */
  SHOAL_TENSORFLOW_EACH,  /* eagerly: one by one */
  SHOAL_TENSORFLOW_KERAS  /* model.fit */
} shoal_tensorflow;

/* Zero-filled is the default. What only some strategies have a use for begins with their names; the others refuse it.
 * gradients, bucket_kib and shard_state are for all but parameter_server. */
typedef struct shoal_strategy_options {
  size_t size;               /* shoal/options.h */
  shoal_reduction gradients; /* MEAN: a replica's loss is the mean of its own batch. SUM: its share of a sum, as in
                                TensorFlow 2's own loops */
  int bucket_kib;            /* gradients are reduced in pieces of about so many KiB; 0: 4096 */
  int64_t task_devices;      /* multi_worker: replicas of each task, each on a device of its server; 0: one */
  const char *task_device;   /* multi_worker, parameter_server: the first of those, "/gpu:0"; NULL: "/cpu:0" */
  shoal_dtype messages;      /* multi_worker: SHOAL_BFLOAT16: gradients of float32 travel between tasks as that, and are
                                summed in float32; 0: as they are */
  bool shard_state;          /* the optimizer's slots are shared out: each replica has those of its own piece of every
                                variable, changes it, and gets the others' pieces */
  shoal_tensorflow tensorflow; /* multi_worker: collectives have TensorFlow 2's keys and order */
  int keras_slots;             /* beside model.fit: how many slots its optimizer has for each weight; SGD 1, Adam 2 */
  int64_t keras_steps_per_epoch;
} shoal_strategy_options;

/* One replica. device NULL: "/cpu:0". */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_strategy_new_one_device(const char *device,
                                                                      const shoal_strategy_options *options,
                                                                      shoal_strategy **out);
/* A replica on each of n devices of this process. devices NULL: the first n CPUs, "/cpu:0", "/cpu:1", ... */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_strategy_new_mirrored(const char *const *devices, int n,
                                                                    const shoal_strategy_options *options,
                                                                    shoal_strategy **out);
/* Replicas in every task of the jobs "chief" and "worker", as MultiWorkerMirroredStrategy has them: each task runs this
 * program, with a server and a training session of its own, and all meet in every step. Variables begin with the
 * chief's values; the chief alone saves. Cluster and server stay the caller's; the server must outlive the strategy. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_strategy_new_multi_worker(const shoal_cluster *cluster,
                                                                        const shoal_server *server,
                                                                        const shoal_strategy_options *options,
                                                                        shoal_strategy **out);
/* The same for variables on parameter servers, which every worker changes by itself (docs/training.md): one replica,
 * and what it makes is placed as shoal_push_replica_setter does. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_strategy_new_parameter_server(const shoal_cluster *cluster,
                                                                            const shoal_server *server,
                                                                            const shoal_strategy_options *options,
                                                                            shoal_strategy **out);
/* When no session uses it any more. */
SHOAL_API void shoal_strategy_free(shoal_strategy *s);

/* How many replicas train together, in all tasks; how many of them are in this one; the number of its first. */
SHOAL_API int shoal_strategy_replicas(const shoal_strategy *s);
SHOAL_API int shoal_strategy_local_replicas(const shoal_strategy *s);
SHOAL_API int shoal_strategy_first_replica(const shoal_strategy *s);

/* ---- in a replica ---- */

/* Builds one replica: from its inputs to its outputs, and the op that its step consists of (NULL: none). Every replica
 * must make the same variables in the same order. */
typedef shoal_op *shoal_replica_fn(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg);

/* Calls fn for each replica of this task, on its device. Replica i gets in[i * n_in] and those behind it, and leaves
 * its outputs in out[i * n_out]. The op that is returned runs all of it. */
SHOAL_API shoal_op *shoal_strategy_run(shoal_graph *g, shoal_strategy *s, shoal_replica_fn *fn, void *arg,
                                       const shoal_out *in, int n_in, shoal_out *out, int n_out);

/* Which replica this is, of all. */
SHOAL_API int shoal_replica_id(const shoal_replica *r);
SHOAL_API int shoal_replica_count(const shoal_replica *r);
/* This replica's copy of a variable that was made in the strategy's scope. */
SHOAL_API shoal_var shoal_replica_variable(shoal_replica *r, shoal_var v);
/* The values of all replicas, one from each, become one value, which all have. Every replica must come here. Values
 * have one shape, and are of float16, bfloat16, float32, float64, int32 or int64; gathered ones are put one after
 * another along their first dimension, by the replicas' numbers, and may differ in that where it is not known before
 * the step. */
SHOAL_API shoal_out shoal_replica_reduce(shoal_replica *r, shoal_reduction how, shoal_out value);
SHOAL_API shoal_out shoal_replica_gather(shoal_replica *r, shoal_out value);

/* A function of what all replicas of this task bring: replica i's are in[i * n_in] and those behind, and it gets
 * out[i * n_out] and those behind. */
typedef void shoal_merge_fn(shoal_graph *g, shoal_strategy *s, const shoal_out *in, shoal_out *out, void *arg);
/* Waits until every replica of this task has come here, calls fn once for all, outside of them, and goes on with this
 * replica's outputs, as merge_call does in TensorFlow. Each replica is built on a thread of its own, one at a time. */
SHOAL_API void shoal_replica_merge_call(shoal_replica *r, shoal_merge_fn *fn, void *arg, const shoal_out *in, int n_in,
                                        shoal_out *out, int n_out);

/* The loss of a replica whose batch may have other rows than the others', from the losses of its examples: over all
 * replicas every example counts the same, and a batch may be empty. */
SHOAL_API shoal_out shoal_replica_average_loss(shoal_replica *r, shoal_out losses);

/* Beside Keras' model.fit (SHOAL_TENSORFLOW_KERAS), after what applies gradients: what it calls the loss, the mean over
 * all examples of the epoch so far, of all tasks. loss: the mean of this replica's rows. */
SHOAL_API shoal_out shoal_replica_keras_loss(shoal_replica *r, shoal_out loss, shoal_out rows);

/* A variable that every replica has for itself, and that is one value for who reads it outside, as metrics are: local,
 * in no checkpoint. What is read is the sum, mean, least or largest of all: shoal_strategy_read. */
SHOAL_API shoal_var shoal_replica_on_read(shoal_replica *r, const char *name, shoal_out initial, shoal_reduction how);

/* ---- outside ---- */

/* The scope of a strategy: variables made in it are mirrored, as those of its replicas are. The one that is returned is
 * the first replica's. */
SHOAL_API void shoal_push_strategy(shoal_graph *g, shoal_strategy *s);
SHOAL_API void shoal_pop_strategy(shoal_graph *g, shoal_strategy *s);

/* The parts of a batch, cut along its first dimension, for the replicas of this task: out[i * stride] is replica i's.
 * The first ones get one row more where it does not divide. */
SHOAL_API void shoal_strategy_split(shoal_graph *g, const shoal_strategy *s, shoal_out batch, shoal_out *out,
                                    int stride);

/* The values of all replicas (values[i * stride] is that of replica i of this task) become one. In a strategy with
 * several tasks each of them must run it in the same steps. */
SHOAL_API shoal_out shoal_strategy_reduce(shoal_graph *g, shoal_strategy *s, shoal_reduction how,
                                          const shoal_out *values, int stride);
SHOAL_API shoal_out shoal_strategy_gather(shoal_graph *g, shoal_strategy *s, const shoal_out *values, int stride);

/* What a variable of shoal_replica_on_read is over all replicas; v is that of this task's first replica, or any
 * other's. In a strategy with several tasks each of them must run it in the same steps. */
SHOAL_API shoal_out shoal_strategy_read(shoal_graph *g, shoal_strategy *s, shoal_var v);

/* Feeds every step with this task's batch of the step's number: fill (shoal/input.h) gets the step counter's value, and
 * returns OUT_OF_RANGE behind the last batch. A task whose batches have ended feeds empty ones while others have some,
 * and training ends in all tasks after the last batch of any: every example is used exactly once. Losses are to be
 * those of shoal_replica_average_loss then. */
SHOAL_API shoal_hook shoal_strategy_input_hook(shoal_strategy *s, const shoal_out *to, int n, shoal_input_fill *fill,
                                               void *arg);

/* How a dataset is dealt out to tasks, as tf.data.experimental.AutoShardPolicy has it. */
typedef enum shoal_auto_shard {
  SHOAL_SHARD_OFF = -1, /* each task has all of it */
  SHOAL_SHARD_AUTO = 0, /* by file where it reads files, else by element */
  SHOAL_SHARD_FILE,
  SHOAL_SHARD_DATA /* every task reads all, and uses its own elements */
} shoal_auto_shard;
/* The same for a dataset of the graph (a variant, made in the strategy's scope), whose elements are batches for one
 * replica, of n_in components. Replica i of this task finds its own in in[i * n_in] and those behind it, which this
 * sets: what shoal_strategy_run takes. The hook feeds them; training ends in all tasks after the last element of any. A
 * run that goes on skips what was used. */
SHOAL_API shoal_hook shoal_strategy_dataset_hook(shoal_graph *g, shoal_strategy *s, shoal_out dataset,
                                                 shoal_auto_shard shard, shoal_out *in, int n_in);

#ifdef __cplusplus
}
#endif
#endif
