/* Variables that are one value in several pieces, each on another device: slots of an optimizer whose state is shared
 * out over replicas. A piece has those elements, from `first` on, of the value laid out flat; all pieces of a value
 * have one shape, a list or rows of the value, and what the last ones have too many stands for nothing.
 *
 * A checkpoint has the value whole, under its own name: a saver takes variables as the values they make up. */
#ifndef TRAIN_PIECES_H
#define TRAIN_PIECES_H

#include "train/variables.h"

struct piece {
  struct shape whole;
  int64_t first, n; /* of the whole's elements; 0 or fewer than the variable has, where the whole ends before */
};
/* saved: the name of the whole; slice: where that is a part of a partitioned one, which, else "". live: a handle that
 * is read in place of the variable's when it is saved; NULL: none. */
void piece_set(shoal_var v, const char *saved, const char *slice, const struct piece *p, const struct shoal_node *live);
bool piece_get(shoal_var v, struct piece *out);

/* A value as a checkpoint has it: one variable, or all pieces of one, which stand side by side in the list. */
struct saved_value {
  const shoal_var *vars; /* [n] */
  int n;
};
/* The values that n variables make up; out has room for n. A value of which pieces are missing is the graph's error. */
int saved_values(struct shoal_graph *g, const shoal_var *vars, int n, struct saved_value *out);
/* What it is called there: its only variable's name, or that of all pieces; which slice it is, and of which shape. */
const char *saved_name(const struct saved_value *v);
/* The same in a checkpoint from before the variable: its stand-in's name, if it has one. */
const char *saved_name_before(const struct saved_value *v);
const char *saved_slice(const struct saved_value *v);
struct shape saved_shape(const struct saved_value *v);
/* A read of variable i, after the control scope's ops, where its value lives. */
shoal_out saved_read(struct shoal_graph *g, const struct saved_value *v, int i);
/* Whose handle that is. */
struct shoal_node *saved_home(struct shoal_graph *g, const struct saved_value *v, int i);
/* The whole, of what was read of each variable. */
shoal_out saved_join(struct shoal_graph *g, const struct saved_value *v, const shoal_out *parts);
/* Both: the whole as it is. */
shoal_out saved_now(struct shoal_graph *g, const struct saved_value *v);
/* Assigns the whole: v->n ops. */
void saved_assign(struct shoal_graph *g, const struct saved_value *v, shoal_out whole, shoal_op **out);

/* A flat list made longer, or a part of one with what it lacks: `more` elements of that value behind it. */
shoal_out flat_pad(struct shoal_graph *g, shoal_out list, int64_t more, double with);
/* n elements of a flat list. */
shoal_out flat_part(struct shoal_graph *g, shoal_out list, int64_t first, int64_t n);
/* A value laid out flat, and back. */
shoal_out flat_of(struct shoal_graph *g, shoal_out x);
shoal_out flat_shaped(struct shoal_graph *g, shoal_out list, const struct shape *shape);
shoal_out flat_join(struct shoal_graph *g, const shoal_out *lists, int n, int axis);

#endif
