/* Classify, Regress and MultiInference: questions in Examples, answers in classes with scores, or in numbers. */
#ifndef SERVING_INFERENCE_H
#define SERVING_INFERENCE_H

#include "serving/query.h"

enum inference { INFERENCE_CLASSIFY, INFERENCE_REGRESS };

/* An Input's examples as a vector of strings, a context before each; *n of them. */
shoal_status inference_examples(struct wire input, const struct unpack_room *room, shoal_tensor **out);

/* The query of a spec (whose signature has to be of that kind) about examples, a reference of which is taken: run, its
 * answers checked. q is to be released after an error, too. */
shoal_status inference_run(struct query *q, struct servable *servable, struct chars signature, enum inference kind,
                           shoal_tensor *examples, const struct querier *by);
/* The answers of one that was run, as the body of a ClassificationResult or RegressionResult. */
void inference_put(const struct query *q, enum inference kind, struct text *out);

/* The tensors of those answers; NULL: the model does not give it. */
const shoal_tensor *inference_classes(const struct query *q);
const shoal_tensor *inference_scores(const struct query *q);

/* Whole requests, of which the answer's bytes are appended: of a server's, or of a record to warm up with, which is
 * for one servable. */
struct inference_source {
  struct catalog *catalog; /* one of these */
  struct servable *servable;
  struct querier by;
  char *model; /* set once it is found; to be freed */
};
shoal_status inference_classify(struct inference_source *s, struct wire request, struct text *out);
shoal_status inference_regress(struct inference_source *s, struct wire request, struct text *out);
shoal_status inference_multi(struct inference_source *s, struct wire request, struct text *out);

#endif
