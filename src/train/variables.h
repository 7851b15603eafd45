/* Variables of a graph, as optimizers and savers want them. */
#ifndef TRAIN_VARIABLES_H
#define TRAIN_VARIABLES_H

#include "graph/builder.h"
#include "shoal/layers.h"

/* A node that reads the variable now (after the control scope's ops). */
shoal_out variable_read_op(struct shoal_graph *g, shoal_out handle, shoal_dtype dtype, const char *name);
/* Is it one of TensorFlow 1's references? */
bool variable_is_ref(shoal_out handle);
/* op: "Assign", "AssignAdd" or "AssignSub". */
struct shoal_node *variable_update_op(struct shoal_graph *g, const char *op, shoal_out handle, shoal_out value);
/* The op for this kind of variable, from the other's name: "ResourceApplyAdam" is "ApplyAdam" for references. */
const char *variable_op_name(shoal_out handle, const char *resource_op);
/* A bool: is it initialised? */
shoal_out variable_there_op(struct shoal_graph *g, shoal_out handle);
/* By its name; handle.node NULL: there is none. */
shoal_var variable_find(const struct shoal_graph *g, const char *name);
/* A variable that workers share but no checkpoint holds; neither shoal_initialize nor shoal_initialize_local knows it:
 * who made it initialises it. */
shoal_var variable_unsaved(struct shoal_graph *g, const char *name, shoal_out initial);
/* What gives it its initial value. */
shoal_op *variable_initializer(const struct shoal_graph *g, shoal_var v);

/* Under which name a checkpoint has it, and which part of the tensor there it is: "" for all of it, else TensorFlow's
 * slice specification "10 4 0,5:0,4" (full shape, then start and length for each dimension). Savers go by these. */
const char *variable_save_name(shoal_var v);
const char *variable_save_slice(shoal_var v);
void variable_set_slice(shoal_var v, const char *name, const char *slice);

/* While a sharing is on (shoal_sharing_begin): the variable to use instead of a new one; and what was made. */
bool sharing_take(struct shoal_graph *g, const char *name, shoal_out initial, shoal_var *out);
void sharing_give(struct shoal_graph *g, shoal_var v);

#endif
