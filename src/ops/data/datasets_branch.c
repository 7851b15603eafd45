/* ChooseFastestBranchDataset: an input dataset and several functions that make the same of it, of which TensorFlow
 * walks each for a while and goes on with the fastest. What comes out is the same whichever it is: here it is the
 * first. */
#include <stdlib.h>

#include "base/mem.h"
#include "ops/data/dataset_state.h"

/* The state's f is the first branch. */
static shoal_status init(struct kernel_init *ki, void *state) {
  struct dataset_state *s = state;
  const struct attr *branches, *lengths;
  TRY(dataset_state_init(ki, s));
  TRY(node_get_list(ki->node, "branches", ATTR_FUNC, &branches));
  TRY(node_get_list(ki->node, "other_arguments_lengths", ATTR_INT, &lengths));
  if (lengths->list.n != branches->list.n || !branches->list.n)
    return INVALID("branches and other_arguments_lengths must have the same length: %zu and %zu", branches->list.n,
                   lengths->list.n);
  int all;
  int64_t sum = 0;
  node_in_range(ki->node, "other_arguments", &s->first_captured, &all);
  for (size_t i = 0; i < lengths->list.n; i++) {
    int64_t n = lengths->list.at[i].i;
    if (n < 0 || n > all) return INVALID("other_arguments_lengths[%zu] is out of range", i);
    sum += n;
  }
  if (sum != all) return INVALID("other_arguments_lengths add up to %lld, not to %d", (long long)sum, all);
  s->n_captured = (int)lengths->list.at[0].i;
  TRY(function_get(ki, branches->list.at[0].func, &s->f));
  if (function_rets(s->f) != 1 || function_ret_type(s->f, 0) != SHOAL_VARIANT)
    return INVALID("A branch must return one dataset");
  return NULL;
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct dataset_state *s = ctx->state;
  struct dataset *in;
  int64_t over, under;
  TRY(dataset_in(ctx, 0, &in));
  TRY(dataset_in_int(ctx, 1, "ratio_numerator", &over));
  TRY(dataset_in_int(ctx, 2, "ratio_denominator", &under));
  if (over <= 0) return INVALID("`ratio_numerator` must be greater than zero.");
  if (under <= 0) return INVALID("`ratio_denominator` must be greater than zero.");
  struct captured f = dataset_captured(ctx);
  struct dataset *one = dataset_of_tensors(ctx_in(ctx, 0), 1); /* a dataset of one dataset, which the branch is given */
  struct dataset *d = dataset_flat_map(one, &f, &s->spec);
  dataset_unref(one);
  return dataset_give(ctx, d);
}

static const struct kernel_def kernels[] = {{.device = "CPU",
                                             .state_size = sizeof(struct dataset_state),
                                             .init = init,
                                             .release = dataset_state_release,
                                             .run = run},
                                            {0}};

static const struct op_row rows[] = {
    DATASET_ROW("ChooseFastestBranchDataset",
                "input_dataset: variant, ratio_numerator: int64, ratio_denominator: int64, other_arguments: Targuments",
                "Targuments: list(type) >= 0; num_elements_per_branch: int >= 1; branches: list(func) >= 1; "
                "other_arguments_lengths: list(int) >= 1; " DATASET_SPEC,
                0, kernels),
};
OP_FAMILY(datasets_branch, rows);
