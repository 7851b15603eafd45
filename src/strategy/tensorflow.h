/* Replicas in one group with TensorFlow 2's MultiWorkerMirroredStrategy: collectives have the keys that its workers
 * give them. See tensorflow.c. */
#ifndef STRATEGY_TENSORFLOW_H
#define STRATEGY_TENSORFLOW_H

#include "strategy/strategy.h"

static inline bool strategy_with_tensorflow(const struct shoal_strategy *s) {
  return s->tensorflow != SHOAL_TENSORFLOW_NONE && s->tasks > 1;
}

/* One member of a sum or mean, the step's collective of that number. */
shoal_out tensorflow_reduce(struct shoal_graph *g, struct shoal_strategy *s, int number, shoal_reduction how,
                            shoal_out value);
/* What TensorFlow's workers do in more than one collective is refused. */
shoal_out tensorflow_refuse(struct shoal_graph *g, const char *what);
/* The next initial value, sent or received: the chief's. */
shoal_out tensorflow_initial(struct shoal_graph *g, struct shoal_strategy *s, shoal_out value);
/* What stands for meet_hook: counts steps' keys. */
shoal_hook tensorflow_hook(struct shoal_strategy *s);
/* A single number, as TensorFlow's workers sum it outside of functions. */
shoal_out tensorflow_number(struct shoal_graph *g, struct shoal_strategy *s, int number, shoal_out value);

/* ---- keras.c ---- */

/* Values that fit's process sends before and after the weights. */
void keras_before_weights(struct shoal_graph *g, struct shoal_strategy *s);
void keras_after_weights(struct shoal_graph *g, struct shoal_strategy *s);
/* May a session begin so? */
shoal_status keras_begins(const struct shoal_strategy *s, const shoal_created *c);
/* Sums at the end of an epoch, and at the beginning of the next. */
enum { KERAS_SUMS = 2 };
struct keras_epoch {
  shoal_out last[KERAS_SUMS], first[KERAS_SUMS];
  bool built;
};
void keras_build(struct shoal_graph *g, struct shoal_strategy *s, struct keras_epoch *e);
shoal_status keras_sums(const struct shoal_strategy *s, const shoal_out *sums, shoal_session *session, int32_t key);

#endif
