/* A question to a model, however it came (gRPC, REST, a record to warm up with): a version, a signature, values for all
 * of its inputs, and which outputs are wanted. */
#ifndef SERVING_QUERY_H
#define SERVING_QUERY_H

#include "base/vec.h"
#include "serving/catalog.h"
#include "serving/unpack.h"

struct query {
  struct servable *servable; /* a reference */
  const shoal_signature *signature;
  const char **keys;      /* [signature->n_inputs], the signature's own */
  shoal_tensor **values;  /* [signature->n_inputs], in its order; NULL: not given yet */
  const char **outputs;   /* [n_outputs], the signature's own */
  shoal_tensor **answers; /* [n_outputs] */
  int n_outputs;
  int64_t deadline; /* of clock_ns() */
  struct unpack_room room;
  struct cancel *cancel; /* NULL: nobody does */
};

/* Nothing in it but what it asks: the signature of the spec must be there. */
shoal_status query_open(struct query *q, struct servable *servable, struct chars signature);
/* For servables that are found by a catalog; q is to be released after an error, too. */
shoal_status query_find(struct query *q, struct catalog *c, const struct model_spec *spec);
void query_release(struct query *q);

/* The place of an input; -1: the signature has none of that key. */
int query_input(const struct query *q, struct chars key);
/* Takes the tensor over, in the place of one that is there. */
void query_give(struct query *q, int input, shoal_tensor *value);
/* One more output. INVALID_ARGUMENT when there is none of that key, or it is wanted already. */
shoal_status query_want(struct query *q, struct chars key);
/* All of them. */
void query_want_all(struct query *q);
static inline void query_asked_by(struct query *q, const struct querier *by) {
  q->deadline = by->deadline;
  q->room = by->room;
  q->cancel = by->cancel;
}
/* Fills answers, which count in its room from then on. CANCELLED when nobody waits for them any more. */
shoal_status query_run(struct query *q);

#endif
