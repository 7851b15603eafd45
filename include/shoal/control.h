/* Loops and conditionals in a graph, as tf.while_loop and tf.cond build them: of Enter, Merge, Switch, NextIteration
 * and Exit, so that TensorFlow's servers run them too and gradients go through. What a condition, a body or a branch
 * uses of the graph outside is brought in by itself. Variables are made outside: inside is an error that names them. */
#ifndef SHOAL_CONTROL_H
#define SHOAL_CONTROL_H

#include <shoal/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* vars: the loop's n variables at the beginning of a round. */
typedef shoal_out shoal_while_cond(shoal_graph *g, void *arg, const shoal_out *vars); /* go on? a bool scalar */
typedef void shoal_while_body(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next);

/* Zero-filled is the default. */
typedef struct shoal_loop_options {
  size_t size; /* shoal/options.h */
  const char *name;         /* NULL: "while" */
  int parallel_iterations;  /* rounds under way at once; 0: 10 */
  const shoal_dims *shapes; /* [n] what holds of the variables in every round; NULL: the shapes of the initial values */
} shoal_loop_options;

/* Runs body while cond holds. results: the variables after the last round. options may be NULL. */
SHOAL_API void shoal_while_loop(shoal_graph *g, shoal_while_cond *cond, shoal_while_body *body, void *arg,
                                const shoal_out *initial, int n, const shoal_loop_options *options, shoal_out *results);

/* One of the two branches, as pred (a bool scalar) says. Both give n results of the same types. Only what a branch
 * makes depends on pred: what it takes from outside is computed in any case. */
typedef void shoal_branch(shoal_graph *g, void *arg, shoal_out *results);
SHOAL_API void shoal_cond(shoal_graph *g, shoal_out pred, shoal_branch *then, shoal_branch *otherwise, void *arg, int n,
                          shoal_out *results);

#ifdef __cplusplus
}
#endif
#endif
