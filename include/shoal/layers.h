/* What models are made of, above single ops (shoal/ops.h): placeholders, constants, variables and their
 * initialisation, layers, losses. Each adds nodes to the graph and keeps the first mistake there. */
#ifndef SHOAL_LAYERS_H
#define SHOAL_LAYERS_H

#include <shoal/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

SHOAL_API shoal_out shoal_placeholder(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, const char *name);

/* Constants. The value is copied, but for shoal_constant, which shares the tensor's buffer. */
SHOAL_API shoal_out shoal_constant(shoal_graph *g, const shoal_tensor *value);
SHOAL_API shoal_out shoal_constant_float(shoal_graph *g, float v);
SHOAL_API shoal_out shoal_constant_double(shoal_graph *g, double v);
SHOAL_API shoal_out shoal_constant_int(shoal_graph *g, int32_t v);
SHOAL_API shoal_out shoal_constant_int64(shoal_graph *g, int64_t v);
SHOAL_API shoal_out shoal_constant_bool(shoal_graph *g, bool v);
SHOAL_API shoal_out shoal_constant_string(shoal_graph *g, const char *v);
SHOAL_API shoal_out shoal_constant_floats(shoal_graph *g, shoal_dims shape, const float *v);
SHOAL_API shoal_out shoal_constant_ints(shoal_graph *g, shoal_dims shape, const int32_t *v);
SHOAL_API shoal_out shoal_constant_strings(shoal_graph *g, const char *const *v, int n);
/* v in any numeric dtype. */
SHOAL_API shoal_out shoal_constant_of(shoal_graph *g, shoal_dtype dtype, double v);

/* Initial values. Random ones draw their seeds from shoal_set_random_seed. */
SHOAL_API shoal_out shoal_init_zeros(shoal_graph *g, shoal_dtype dtype, shoal_dims shape);
SHOAL_API shoal_out shoal_init_ones(shoal_graph *g, shoal_dtype dtype, shoal_dims shape);
SHOAL_API shoal_out shoal_init_constant(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, double v);
SHOAL_API shoal_out shoal_init_uniform(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, double low, double high);
SHOAL_API shoal_out shoal_init_normal(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, double mean, double stddev);
SHOAL_API shoal_out shoal_init_truncated_normal(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, double mean,
                                                double stddev);
/* Uniform in +-sqrt(6 / (fan_in + fan_out)): what layers take. The last two dimensions are in and out. */
SHOAL_API shoal_out shoal_init_glorot_uniform(shoal_graph *g, shoal_dtype dtype, shoal_dims shape);
/* Truncated normal of variance 2 / fan_in, for layers before a relu. */
SHOAL_API shoal_out shoal_init_he_normal(shoal_graph *g, shoal_dtype dtype, shoal_dims shape);

/* A variable: where it is (for ops that change it), and its value (for all others). */
typedef struct shoal_var {
  shoal_out handle, value;
} shoal_var;

/* dtype and shape are the initial value's, whose shape must be known. Trainable: shoal_minimize changes it. */
SHOAL_API shoal_var shoal_variable(shoal_graph *g, const char *name, shoal_out initial);
SHOAL_API shoal_var shoal_variable_untrained(shoal_graph *g, const char *name, shoal_out initial);
/* Variables made from now on are references, the kind of TensorFlow 1 (VariableV2): for a program that shares them with
 * one in which resource variables are off (tf.disable_v2_behavior). */
SHOAL_API void shoal_use_ref_variables(shoal_graph *g, bool on);
/* Belongs to this worker alone: made on its device, in no checkpoint (as TensorFlow's local variables). */
SHOAL_API shoal_var shoal_variable_local(shoal_graph *g, const char *name, shoal_out initial);
SHOAL_API shoal_op *shoal_variable_assign(shoal_graph *g, shoal_var v, shoal_out value);
/* All variables of the graph but the local ones (trainable ones), at most max; returns how many there are. */
SHOAL_API int shoal_variables(const shoal_graph *g, bool trainable, shoal_var *out, int max);
SHOAL_API int shoal_local_variables(const shoal_graph *g, shoal_var *out, int max);
/* One op that gives every variable made so far its initial value; every local one. */
SHOAL_API shoal_op *shoal_initialize(shoal_graph *g);
SHOAL_API shoal_op *shoal_initialize_local(shoal_graph *g);

/* Several copies of a model that share their variables (towers of replicas, micro-batches): between begin and end of
 * the same sharing, the first copy makes its variables, and later ones get the first one's, in the same order; they
 * must ask for the same shapes and types. Free it when all copies are made. */
typedef struct shoal_sharing shoal_sharing;
SHOAL_API shoal_sharing *shoal_sharing_new(void);
SHOAL_API void shoal_sharing_begin(shoal_graph *g, shoal_sharing *s);
SHOAL_API void shoal_sharing_end(shoal_graph *g, shoal_sharing *s);
SHOAL_API void shoal_sharing_free(shoal_sharing *s);

/* One op that runs after all of these. */
SHOAL_API shoal_op *shoal_group(shoal_graph *g, shoal_op *const *ops, int n, const char *name);

/* Layers make their variables under the scope `name` (NULL: "dense", "conv2d", as in tf.layers), in x's dtype; beside
 * half-precision inputs (float16, bfloat16) they stay float32 and are rounded for each use. */
SHOAL_API shoal_out shoal_dense(shoal_graph *g, shoal_out x, int64_t units, const char *name);
/* The same over the last dimension of x, of rank 2 or more. */
typedef struct shoal_dense_options {
  size_t size;               /* shoal/options.h */
  const char *kernel, *bias; /* what its variables are called; NULL: "kernel", "bias" */
  double stddev;             /* the kernel begins normal, with this deviation; 0: by Glorot, as shoal_dense */
  int64_t leading;           /* so many dimensions of 1 stand before the kernel's two: published GPT-2 has one */
  bool no_bias;
} shoal_dense_options;
SHOAL_API shoal_out shoal_dense_with(shoal_graph *g, shoal_out x, int64_t units, const char *name,
                                     const shoal_dense_options *options);
/* Convolution of NHWC images with size x size filters, stride 1, "SAME" padding, and a bias. */
SHOAL_API shoal_out shoal_conv_layer(shoal_graph *g, shoal_out images, int64_t filters, int64_t size, const char *name);
/* The same, told more. */
typedef struct shoal_conv_layer_options {
  size_t size;               /* shoal/options.h */
  const char *kernel, *bias; /* what its variables are called; NULL: "kernel", "bias" */
  int64_t stride;            /* 0: 1 */
  bool symmetric; /* as many zeros on each side, (size - 1) / 2, which other libraries have; else "SAME", which
                     has more at the end where the stride is above 1 */
  bool he_normal; /* the kernel begins as shoal_init_he_normal says; else by Glorot */
  bool no_bias;
} shoal_conv_layer_options;
SHOAL_API shoal_out shoal_conv_layer_with(shoal_graph *g, shoal_out images, int64_t filters, int64_t size,
                                          const char *name, const shoal_conv_layer_options *options);
/* 2x2 max pooling of stride 2. */
SHOAL_API shoal_out shoal_pool_layer(shoal_graph *g, shoal_out images);
/* Batch normalisation of x [batch, ..., channels]; training, a bool: by the moments of the batch, towards which the
 * moving averages move whenever the result is computed; else by those. A constant, or what a step feeds. In a replica
 * of a strategy (shoal/strategy.h) the batch is that of all replicas. Variables are gamma, beta, moving_mean and
 * moving_variance under `name` (NULL: "batch_normalization"). */
typedef struct shoal_batch_norm_options {
  size_t size;     /* shoal/options.h */
  double momentum; /* of the moving averages; 0: 0.99 */
  double epsilon;  /* added to the variance; 0: 0.001 */
  bool fused;      /* as the one op FusedBatchNormV3: x is [batch, rows, columns, channels], training is a constant, the
                      batch is this replica's own, and the moving variance is that of a sample (n - 1) */
  bool zero_gamma; /* gamma begins with 0, as at the end of a residual block */
} shoal_batch_norm_options;
/* options may be NULL. */
SHOAL_API shoal_out shoal_batch_norm(shoal_graph *g, shoal_out x, shoal_out training, const char *name,
                                     const shoal_batch_norm_options *options);
/* [batch, ...] to [batch, n]. */
SHOAL_API shoal_out shoal_flatten(shoal_graph *g, shoal_out x);

/* x by its mean and deviation over the last dimension, times a scale, plus a shift: one of each for every place there.
 * Beside half-precision inputs the moments are float32. */
typedef struct shoal_layer_norm_options {
  size_t size;               /* shoal/options.h */
  const char *scale, *shift; /* what its variables are called; NULL: "gamma", "beta" */
  double epsilon;            /* added to the variance; 0: 1e-5 */
} shoal_layer_norm_options;
SHOAL_API shoal_out shoal_layer_norm(shoal_graph *g, shoal_out x, const char *name,
                                     const shoal_layer_norm_options *options);
/* x times the normal distribution's function of it, by the formula with tanh. */
SHOAL_API shoal_out shoal_gelu(shoal_graph *g, shoal_out x);

/* Each element is 0 with the chance rate, else 1 / (1 - rate) times itself. A rate of 0: x. */
typedef struct shoal_dropout_options {
  size_t size;    /* shoal/options.h */
  shoal_out seed; /* [2], as shoal_step_seed makes it (shoal/input.h): a step that is run again drops the same; every
                     layer has its own. node NULL: numbers of a random op, by the graph's seed */
} shoal_dropout_options;
SHOAL_API shoal_out shoal_dropout(shoal_graph *g, shoal_out x, double rate, const shoal_dropout_options *options);

/* ---- layers of Transformers: x is [batch, time, width] ---- */

/* The rows of a table [rows, width] that ids (int32 or int64, of any shape) say: [ids' shape, width], rounded to dtype.
 * The gradient is sparse. */
SHOAL_API shoal_out shoal_embedding(shoal_graph *g, shoal_var table, shoal_out ids, shoal_dtype dtype);
/* x plus the table's first rows: row t is added to all that stands at time t. */
SHOAL_API shoal_out shoal_position_embedding(shoal_graph *g, shoal_out x, shoal_var table);
/* The logits of each row of x [..., width] for a table's rows: [..., rows]. With the table of shoal_embedding, weights
 * are tied. */
SHOAL_API shoal_out shoal_embedding_logits(shoal_graph *g, shoal_out x, shoal_var table);

/* What is added to the scores of attention: nothing where a query may look at a key, else so little that it has no
 * weight. Causal: [queries, keys], each at the keys up to its own, both counted from their ends. By a bool of any shape
 * that may be broadcast to [batch, heads, queries, keys], true where it may. One mask serves all layers. */
SHOAL_API shoal_out shoal_causal_mask(shoal_graph *g, shoal_dtype dtype, int64_t queries, int64_t keys);
SHOAL_API shoal_out shoal_attention_mask(shoal_graph *g, shoal_dtype dtype, shoal_out may);
/* Attention with several heads: for each query a mean of values, weighed by softmax(query . key / sqrt(width / heads)).
 * queries [batch, time, width], keys and values [batch, other time, width]; width is a multiple of heads. Projections
 * before and behind it are the program's. */
typedef struct shoal_attention_options {
  size_t size;         /* shoal/options.h */
  shoal_out mask;      /* node NULL: all keys are looked at */
  double dropout;      /* of weights */
  shoal_out drop_seed; /* as shoal_dropout_options.seed */
} shoal_attention_options;
SHOAL_API shoal_out shoal_attention(shoal_graph *g, shoal_out queries, shoal_out keys, shoal_out values, int64_t heads,
                                    const shoal_attention_options *options);

/* Over all elements, to a scalar. */
SHOAL_API shoal_out shoal_reduce_mean(shoal_graph *g, shoal_out x);
SHOAL_API shoal_out shoal_reduce_sum(shoal_graph *g, shoal_out x);
/* The loss of each row: logits [batch, classes], labels [batch] of int32 or int64. */
SHOAL_API shoal_out shoal_sparse_softmax_xent(shoal_graph *g, shoal_out logits, shoal_out labels);
/* The same for logits [..., classes] and labels of the shape before it, in a vector, in float32 beside half-precision
 * logits. With smoothing s labels are taken for right with the chance 1 - s, and for any class at all with s. */
typedef struct shoal_cross_entropy_options {
  size_t size; /* shoal/options.h */
  double label_smoothing;
} shoal_cross_entropy_options;
SHOAL_API shoal_out shoal_cross_entropy(shoal_graph *g, shoal_out logits, shoal_out labels,
                                        const shoal_cross_entropy_options *options);
/* The share of rows whose largest logit is the label's. */
SHOAL_API shoal_out shoal_accuracy(shoal_graph *g, shoal_out logits, shoal_out labels);

#ifdef __cplusplus
}
#endif
#endif
