/* Cross-entropy of logits of any rank, with or without smoothed labels.
 *
 * Without smoothing it is the sparse op, which needs no row of chances for each label. With it the labels are such
 * rows, and the loss is the dense op's: what Keras' label_smoothing is. */
#include "base/options.h"
#include "graph/given.h"
#include "shoal/layers.h"
#include "train/layers.h"

static shoal_out as_vector(struct shoal_graph *g, shoal_out x) {
  if (out_shape(x).rank == 1) return x;
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
}

/* Rows of chances: smoothing / classes for each, and 1 - smoothing more for the label. */
static shoal_out smoothed(struct shoal_graph *g, shoal_out labels, int64_t classes, shoal_dtype dtype, double by) {
  double off = by / (double)classes;
  struct build b = build_begin(g, "OneHot", NULL);
  build_in(&b, labels);
  build_in(&b, build_const_int(g, SHOAL_INT32, classes));
  build_in(&b, build_const_float(g, dtype, 1 - by + off));
  build_in(&b, build_const_float(g, dtype, off));
  return build_end_out(&b);
}

shoal_out shoal_cross_entropy(shoal_graph *g, shoal_out logits, shoal_out labels,
                              const shoal_cross_entropy_options *options) {
  shoal_cross_entropy_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_cross_entropy_options, label_smoothing, &o, options), (shoal_out){0});
  int64_t classes = layer_last_dim(g, logits, 2, "shoal_cross_entropy");
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    graph_fail(g, INVALID("shoal_cross_entropy: label_smoothing %g", o.label_smoothing));
  if (graph_error(g)) return (shoal_out){0};
  shoal_dtype dtype = layer_kept_type(out_type(logits));
  shoal_out rows = build_cast(g, layer_to_rows(g, logits), dtype), wanted = as_vector(g, labels);
  if (o.label_smoothing == 0) return build_op2(g, "SparseSoftmaxCrossEntropyWithLogits", rows, wanted);
  return build_op2(g, "SoftmaxCrossEntropyWithLogits", rows, smoothed(g, wanted, classes, dtype, o.label_smoothing));
}
