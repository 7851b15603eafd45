/* Examples as JSON, and what models answer to them: classify and regress by REST. */
#ifndef SERVING_JSON_EXAMPLES_H
#define SERVING_JSON_EXAMPLES_H

#include "serving/inference.h"
#include "serving/json.h"

/* The "examples" of a document, a "context" before each, as a vector of serialized Examples. */
shoal_status json_read_examples(json_value document, const struct unpack_room *room, shoal_tensor **out);
/* {"results": ...} of a query that inference_run has run, counted in its room as it is written. */
shoal_status json_write_inference(const struct query *q, enum inference kind, struct text *out);

#endif
