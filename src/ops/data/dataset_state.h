/* What kernels that make datasets share: attributes read once, inputs by place. */
#ifndef OPS_DATA_DATASET_STATE_H
#define OPS_DATA_DATASET_STATE_H

#include "data/dataset.h"
#include "graph/shape_fn.h"
#include "runtime/kernel.h"

struct dataset_state {
  struct element_spec spec;           /* output_types and output_shapes */
  struct function *f;                 /* attribute "f" or "predicate" */
  struct function_runtime *functions; /* the plan's, which outlives it: a reference would be a circle */
  struct dataset_origin *origin;      /* a reference */
  int n_captured;                     /* other_arguments: how many, */
  int first_captured;                 /* and where among the inputs */
  int n_state, first_state;           /* scan, reduce: initial_state */
  bool flag; /* reshuffle_each_iteration, require_non_empty, sloppy (or deterministic that is "false"),
                stop_on_empty_dataset, drop_remainder, rerandomize_each_iteration, DATASET_SKIP_UNMADE: the op's own */
  bool preserve_cardinality;
};

shoal_status dataset_state_init(struct kernel_init *ki, void *state);
void dataset_state_release(void *state);
/* Output 0 becomes a dataset, whose reference is taken over. The kernel's state begins with a dataset_state. */
shoal_status dataset_give(struct kernel_ctx *ctx, struct dataset *d);
shoal_status dataset_in(const struct kernel_ctx *ctx, int i, struct dataset **out);
shoal_status dataset_in_int(const struct kernel_ctx *ctx, int i, const char *name, int64_t *out);
shoal_status dataset_in_bool(const struct kernel_ctx *ctx, int i, const char *name, bool *out);
shoal_status dataset_in_string(const struct kernel_ctx *ctx, int i, const char *name, char **out); /* free it */
/* Makes the dataset that is value `fetch` ("node:0") of a graph, whose functions come before those of the kernel's.
 * done gets it (a new reference) or the error, unless this fails. */
struct shoal_graph;
typedef void (*dataset_made)(void *arg, shoal_status s, struct dataset *d);
shoal_status dataset_run_graph(struct kernel_ctx *ctx, const struct shoal_graph *g, const char *fetch,
                               dataset_made done, void *arg);
/* A dataset_made whose arg is the kernel's ctx: output 0 becomes the dataset, and the kernel is done. */
void dataset_give_made(void *ctx, shoal_status s, struct dataset *d);
/* What an iterator over d walks, to done (a new reference), sooner or later. (ops/data/dataset_final.c) */
void dataset_final(struct kernel_ctx *ctx, struct dataset *d, void (*done)(void *arg, struct dataset *d), void *arg);
/* Is op, without a number of a version, one of the list's (ended by NULL)? */
bool dataset_op_is(const char *op, const char *const *list);
/* Output shapes as the attribute output_shapes has them. */
shoal_status dataset_element_shape(struct shape_ctx *c);
/* The kernels of an op with this state. */
#define DATASET_KERNELS(...)                     \
  (const struct kernel_def[]) {                  \
    {.device = "CPU",                            \
     .state_size = sizeof(struct dataset_state), \
     .init = dataset_state_init,                 \
     .release = dataset_state_release,           \
     __VA_ARGS__},                               \
    {                                            \
      0                                          \
    }                                            \
  }
#define DATASET_SPEC "output_types: list(type) >= 1; output_shapes: list(shape) >= 1"
/* The row of an op that makes a dataset. */
#define DATASET_ROW(name_, in_, attrs_, flags_, kernels_)                                                    \
  {                                                                                                          \
    .name = name_, .in = in_, .out = "handle: variant", .attrs = attrs_, .flags = OP_NO_GRADIENT | (flags_), \
    .shape = shape_scalar_out, .kernels = kernels_                                                           \
  }
struct captured dataset_captured(const struct kernel_ctx *ctx);

#endif
