/* Canned models: heads (what logits mean, how they are judged) and bodies (how logits are made). */
#ifndef ESTIMATOR_CANNED_H
#define ESTIMATOR_CANNED_H

#include "estimator/estimator.h"

struct canned {
  shoal_canned kind;
  int64_t classes; /* 0: a regressor */
  int64_t logits;  /* how many numbers an example has before the head */
  const shoal_column **linear, **dnn;
  int n_linear, n_dnn;
  int64_t *hidden;
  int n_hidden;
  shoal_optimizer linear_optimizer, dnn_optimizer;
  double dropout;
  char *weight_feature; /* NULL: none */
  const char *combiner;
  bool mean_loss;
  int ps; /* how many parameter servers the cluster has */
};

/* Fills in the spec but for the op that trains, which goes by the loss. */
void head_apply(const struct canned *c, struct shoal_graph *g, shoal_mode mode, const struct shoal_inputs *in,
                shoal_out logits, struct shoal_estimator_spec *spec);

#endif
