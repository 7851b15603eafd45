/* Traces of steps for people to look at. */
#ifndef TRAIN_TIMELINE_H
#define TRAIN_TIMELINE_H

#include "base/status.h"
#include "base/text.h"

/* A serialized RunMetadata as Chrome's trace format (chrome://tracing, Perfetto). */
shoal_status timeline_json(const void *metadata, size_t size, struct text *out);

#endif
