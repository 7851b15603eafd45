/* Models in stages on different devices, worked through by micro-batches that follow each other like on a production
 * line: while one stage has the second micro-batch, the next one has the first.
 *
 * Each stage takes forward and backward passes in turn as soon as it can (1F1B), so stage s of S keeps at most S - s
 * micro-batches in memory. Gradients of all micro-batches are averaged before they are applied: the result is that of
 * the whole batch in one go, within rounding, and the same in every run. */
#ifndef SHOAL_PIPELINE_H
#define SHOAL_PIPELINE_H

#include <shoal/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_pipeline_stage {
  const char *device; /* "/job:worker/task:1" */
  /* Builds the stage; called once for each micro-batch, and must make the same variables in the same order each time
   * (they are shared). */
  shoal_out (*forward)(shoal_graph *g, shoal_out in, void *arg);
  void *arg;
} shoal_pipeline_stage;

typedef struct shoal_pipeline {
  size_t size; /* shoal/options.h */
  const shoal_pipeline_stage *stages;
  int n_stages;
  int micro_batches; /* the batch must be a multiple of it */
  /* Builds the mean loss of a micro-batch from what the last stage gives, and the labels. On the last stage's device.
   */
  shoal_out (*loss)(shoal_graph *g, shoal_out out, shoal_out labels, void *arg);
  void *loss_arg;
  size_t stage_size; /* sizeof(shoal_pipeline_stage), where what came after 0.1 is used: shoal/options.h */
  int64_t
      plain_names; /* 1: variables have the names that `forward` gives them; 0: they stand under stage_0/ and so on */
  /* Builds the op that applies the gradients of all stages, clipped, say; its step is advanced in there. NULL: by the
   * optimizer. */
  shoal_op *(*apply)(shoal_graph *g, const shoal_var *vars, shoal_gradient *grads, int n, shoal_var step, void *arg);
  void *apply_arg;
} shoal_pipeline;

/* Builds the stages and one op that trains them on a batch (inputs and labels are cut along their first dimension),
 * then adds one to step. *loss (optional): the mean loss of the batch. */
SHOAL_API shoal_op *shoal_pipeline_minimize(shoal_graph *g, const shoal_pipeline *p, shoal_out inputs, shoal_out labels,
                                            shoal_optimizer optimizer, shoal_var step, shoal_out *loss);

#ifdef __cplusplus
}
#endif
#endif
