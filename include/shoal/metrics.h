/* Metrics: how good a model is over many batches. Each keeps its sums in local variables (shoal_initialize_local begins
 * them again, training sessions do); update adds a batch, value is what it is so far. The numbers are those of
 * tf.compat.v1.metrics.
 *
 * Labels and predictions have as many elements; weights (node NULL: none) have one for each, or can be broadcast to
 * them. name: the scope of its variables; NULL: what it is. */
#ifndef SHOAL_METRICS_H
#define SHOAL_METRICS_H

#include <shoal/layers.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_metric {
  shoal_out value;
  shoal_op *update;
} shoal_metric;

SHOAL_API shoal_metric shoal_metric_mean(shoal_graph *g, shoal_out values, shoal_out weights, const char *name);
/* The share of predictions that equal their labels. */
SHOAL_API shoal_metric shoal_metric_accuracy(shoal_graph *g, shoal_out labels, shoal_out predictions, shoal_out weights,
                                             const char *name);
/* Of what was predicted (is not 0), how much is so; of what is so, how much was predicted. 0 where there is none. */
SHOAL_API shoal_metric shoal_metric_precision(shoal_graph *g, shoal_out labels, shoal_out predictions,
                                              shoal_out weights, const char *name);
SHOAL_API shoal_metric shoal_metric_recall(shoal_graph *g, shoal_out labels, shoal_out predictions, shoal_out weights,
                                           const char *name);

SHOAL_API shoal_metric shoal_metric_mean_squared_error(shoal_graph *g, shoal_out labels, shoal_out predictions,
                                                       shoal_out weights, const char *name);
SHOAL_API shoal_metric shoal_metric_root_mean_squared_error(shoal_graph *g, shoal_out labels, shoal_out predictions,
                                                            shoal_out weights, const char *name);
SHOAL_API shoal_metric shoal_metric_mean_absolute_error(shoal_graph *g, shoal_out labels, shoal_out predictions,
                                                        shoal_out weights, const char *name);

typedef enum shoal_auc_sum {
  SHOAL_AUC_TRAPEZOIDAL,
  SHOAL_AUC_CAREFUL,
  SHOAL_AUC_MINORING,
  SHOAL_AUC_MAJORING
} shoal_auc_sum;
/* Zero-filled is the default. */
typedef struct shoal_auc_options {
  size_t size;           /* shoal/options.h */
  int64_t thresholds;    /* 0: 200 */
  bool precision_recall; /* the area under precision by recall; else under true by false positives */
  shoal_auc_sum sum; /* how the curve is put together; SHOAL_AUC_CAREFUL: between points as Davis and Goadrich say */
} shoal_auc_options;
/* Predictions are chances, from 0 to 1; others are an error of the step. */
SHOAL_API shoal_metric shoal_metric_auc(shoal_graph *g, shoal_out labels, shoal_out predictions, shoal_out weights,
                                        const char *name, const shoal_auc_options *options);

/* Labels [batch] or [batch, 1] of int64 or int32, predictions [batch, classes]: of how many examples the label is among
 * the k largest; and that as a share of all k * batch guesses. */
SHOAL_API shoal_metric shoal_metric_recall_at_k(shoal_graph *g, shoal_out labels, shoal_out predictions, int64_t k,
                                                shoal_out weights, const char *name);
SHOAL_API shoal_metric shoal_metric_precision_at_k(shoal_graph *g, shoal_out labels, shoal_out predictions, int64_t k,
                                                   shoal_out weights, const char *name);

#ifdef __cplusplus
}
#endif
#endif
