/* What a traced step records: when each node ran, and where. Turned into tensorflow.StepStats by the session. */
#ifndef RUNTIME_STEP_STATS_H
#define RUNTIME_STEP_STATS_H

#include <stdint.h>

#include "runtime/kernel.h"

struct step_stats_row {
  char *device;
  char *name;               /* the node's */
  char *label;              /* timeline_label: "NAME = OP(inputs)" */
  int64_t start_ns, end_ns; /* wall clock */
  int64_t out_bytes;
  shoal_dtype out_type;
  struct shape out_shape;
  bool has_output;
};

struct step_stats;
/* `ends`: nodes that hand in feeds and hand out fetches are told too, as in TensorFlow's local session and not in its
 * cluster. Sends and receives are never nodes of a trace: what they move is a span. */
struct step_stats *step_stats_new(bool ends);
void step_stats_free(struct step_stats *s);
void step_stats_node(struct step_stats *s, const char *device, const struct kernel *k, int64_t start_ns, int64_t end_ns,
                     const struct tensor *out);
/* Any other span: a transfer, for instance. */
void step_stats_span(struct step_stats *s, const char *device, const char *name, const char *label, int64_t start_ns,
                     int64_t end_ns, int64_t bytes);
/* Devices under task `from` ("/job:a/replica:0/task:0") are called by task `to`. */
void step_stats_rename(struct step_stats *s, const char *from, const char *to);
/* The rows so far, in order of recording; valid while nothing is added. */
const struct step_stats_row *step_stats_rows(const struct step_stats *s, size_t *n);

#endif
