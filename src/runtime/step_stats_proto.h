/* A traced step as tensorflow.StepStats. */
#ifndef RUNTIME_STEP_STATS_PROTO_H
#define RUNTIME_STEP_STATS_PROTO_H

#include "base/text.h"
#include "runtime/step_stats.h"

/* Appends the fields of a StepStats message: one dev_stats for each device, rows in order of recording. */
void step_stats_encode(const struct step_stats *s, struct text *out);

#endif
