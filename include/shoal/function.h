/* Functions of a graph: parts that are built once, and called as often as one likes. Control flow (If, While, Case) and
 * datasets (map, filter, reduce) take them by name. They go out with the graph (FunctionDefLibrary), so TensorFlow's
 * servers and clients run them too.
 *
 *   shoal_graph *f = shoal_function_begin(g, "scale");
 *   shoal_out x = shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x");
 *   shoal_function_output(f, shoal_mul(f, x, w), "y");     // w is of g: it is captured
 *   shoal_function *scale = shoal_function_end(f);
 *   shoal_call(g, scale, &a, 1, &b, 1);
 *
 * Between begin and end the body is a graph like any other. What it uses of the graphs around it is captured: it
 * becomes an input of the function, behind those that it names, and each call gives it by itself. Variables are made
 * outside. Bodies may call other functions and define some of their own; none can call itself. Effects (assignments,
 * prints) all happen in a call, in an order only where shoal_push_control or the data says so. A mistake in a body is
 * the graph's once the body has ended. What is returned here belongs to the graph, and goes with it. */
#ifndef SHOAL_FUNCTION_H
#define SHOAL_FUNCTION_H

#include <shoal/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_function shoal_function;

/* The body of a new function of g, to be built. A name that is given must be new; NULL: one is made. */
SHOAL_API shoal_graph *shoal_function_begin(shoal_graph *g, const char *name);
/* In a body: its next input; its next output, which may be an input or something captured; a tensor of a graph around
 * it as the body sees it (what other calls do by themselves: to ask for its gradient). Names may be NULL. */
SHOAL_API shoal_out shoal_function_input(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, const char *name);
SHOAL_API void shoal_function_output(shoal_graph *g, shoal_out out, const char *name);
SHOAL_API shoal_out shoal_function_capture(shoal_graph *g, shoal_out outside);
/* Attributes of the function itself, such as TensorFlow's "_noinline". */
SHOAL_API void shoal_function_set_bool(shoal_graph *g, const char *attr, bool v);
SHOAL_API void shoal_function_set_int(shoal_graph *g, const char *attr, int64_t v);
SHOAL_API void shoal_function_set_string(shoal_graph *g, const char *attr, const char *v);
/* The body is whole, and may not be used any more. NULL after a mistake, which the graph around keeps. */
SHOAL_API shoal_function *shoal_function_end(shoal_graph *g);

/* For ops that take a function by name, as those of datasets do. */
SHOAL_API const char *shoal_function_name(const shoal_function *f);
/* How many outputs; their types and shapes (either may be NULL). */
SHOAL_API int shoal_function_outputs(const shoal_function *f, const shoal_dtype **types, const shoal_dims **shapes);
/* How many tensors were captured; they are the last inputs, and of the graph that the function was begun in. */
SHOAL_API int shoal_function_captures(const shoal_function *f, const shoal_out **captures);

/* Gradients of f are what `gradient` computes: from f's inputs, captures last, and the gradients of its outputs it
 * makes those of the inputs. It has the same types and captures nothing. Without one, f's body is differentiated. */
SHOAL_API void shoal_function_set_gradient(shoal_graph *g, const shoal_function *f, const shoal_function *gradient);

/* Calls: PartitionedCall, or StatefulPartitionedCall where the body has effects. out: room for n_out. */
SHOAL_API shoal_op *shoal_call(shoal_graph *g, const shoal_function *f, const shoal_out *in, int n_in, shoal_out *out,
                               int n_out);
/* If: one of two functions of the same types, as pred (a bool scalar) says. */
SHOAL_API shoal_op *shoal_call_if(shoal_graph *g, shoal_out pred, const shoal_function *then,
                                  const shoal_function *otherwise, const shoal_out *in, int n_in, shoal_out *out,
                                  int n_out);
/* Case: that of its number (an int32 scalar); the last, where there is none of that number. */
SHOAL_API shoal_op *shoal_call_case(shoal_graph *g, shoal_out number, const shoal_function *const *branches,
                                    int n_branches, const shoal_out *in, int n_in, shoal_out *out, int n_out);
/* While: body turns n values into those of the next round as long as cond says true. */
SHOAL_API shoal_op *shoal_call_while(shoal_graph *g, const shoal_function *cond, const shoal_function *body,
                                     const shoal_out *initial, int n, shoal_out *results);

#ifdef __cplusplus
}
#endif
#endif
