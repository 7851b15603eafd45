/* RunMetadata as bytes: step stats and partition graphs of a finished step. */
#ifndef RUNTIME_RUN_METADATA_H
#define RUNTIME_RUN_METADATA_H

#include "graph/graph.h"
#include "runtime/step_stats.h"
#include "shoal/graph.h"

/* Appends a tensorflow.StepStats. */
void step_stats_encode(const struct step_stats *s, struct text *out);
/* stats may be NULL. */
shoal_status run_metadata_encode(const struct step_stats *stats, struct shoal_graph *const *parts, int n_parts,
                                 shoal_bytes *out);

#endif
