/* Which rewrites (graph/rewrite.h) a graph has before it is compiled, by who will run it. They are asked for here and
 * nowhere else:
 *
 *   step     what one task runs of a step: all of them, with what its own devices have kernels for
 *   body     a function's that is not inlined: the same
 *   abroad   a whole step, before a master cuts it: its tasks may be TensorFlow's, which do not know our own ops, and
 *            what cards have is known to their tasks alone. Constants are computed here, once for all of
 *            them; the tasks that are ours rewrite their parts again ("step", without folding)
 *
 * off: names of rewrites not to do (rewrite_options'), from a session's options or by plan_rewrites_off. */
#ifndef RUNTIME_PLAN_REWRITE_H
#define RUNTIME_PLAN_REWRITE_H

#include "graph/rewrite.h"
#include "runtime/plan.h"

/* A session whose ConfigProto wants graphs as they are (session_config.h). */
static inline const char *plan_rewrites_off(bool as_is) { return as_is ? "all" : NULL; }

/* host: where constants are computed; NULL, or of a type that is not the host's: none are. */
shoal_status plan_rewrite_step(struct shoal_graph *g, const char *off, const struct plan_options *host);
shoal_status plan_rewrite_body(struct shoal_graph *g, const char *off, const struct plan_options *host);

typedef shoal_status (*plan_fold)(void *arg, const struct shoal_node *n, const struct tensor *const *in,
                                  struct tensor *out);
shoal_status plan_rewrite_abroad(struct shoal_graph *g, const char *off, plan_fold fold, void *arg);

#endif
