/* Ops: their signatures, and the registry of all that are known.
 *
 * Each family of ops is a file in a room of src/ops/ that exports one table of rows. A row holds everything there is to
 * say of an op: its signature as text, its shape function, its gradient, its kernels. The list of families is
 * made by the build from the files that are there; nothing else lists ops.
 *
 * Signature text (as TensorFlow's own registrations, abbreviated):
 *   in, out   "a: T, b: T"             arguments; a type is a type attribute's name or a dtype ("int32")
 *             "values: N * T"          a list of N tensors of one type (N an int attribute, T attribute or dtype)
 *             "components: Tlist"      a list typed by a list(type) attribute
 *             "ref: Ref(T)"            a reference to a variable
 *   attrs     "T: {float, double}; N: int >= 1; transpose_a: bool = false; padding: {'SAME', 'VALID'};
 *              strides: list(int) >= 2; f: func; dtype: type = float; shape: shape = [2,?]; Tin: list(type) >= 0"
 *             type sets: {numbertype} {realnumbertype} {quantizedtype} or lists of names; kinds: string int float
 *             bool type shape tensor func and list(any of these). Defaults: shape {} or [2,?] (scalar is []),
 *             list [..], tensor {dtype scalar} as "{int32 0}". */
#ifndef GRAPH_OP_H
#define GRAPH_OP_H

#include <stdint.h>

#include "graph/attr.h"

struct shape_ctx;  /* graph/shape_fn.h */
struct grad_ctx;   /* graph/gradient.h */
struct kernel_def; /* runtime/kernel.h */

enum op_flags {
  OP_STATEFUL = 1, /* has side effects or state: never folded, merged or duplicated */
  OP_COMMUTATIVE = 2,
  OP_AGGREGATE = 4,
  OP_UNINITIALIZED_OK = 8, /* takes reference inputs that have no value yet */
  OP_NO_GRADIENT = 16,     /* not differentiable: gradients stop here without an error */
  OP_LOCAL = 32,           /* reads files: what it gives depends on the task and the moment, so it is never folded */
  OP_OWN = 64,             /* made by rewrites alone: no graph that arrives has it */
};

struct op_row {
  const char *name, *in, *out, *attrs; /* NULL: none */
  unsigned flags;
  shoal_status (*shape)(struct shape_ctx *c); /* NULL: outputs of unknown shape */
  shoal_status (*grad)(struct grad_ctx *c);   /* NULL: no gradient; asking for one is an error unless OP_NO_GRADIENT */
  const struct kernel_def *kernels;           /* best first, ended by {0}; NULL: none (removed before running) */
};

struct op_family {
  const char *name; /* the file's */
  const struct op_row *rows;
  int n_rows;
};
#define OP_FAMILY(file, rows_) const struct op_family ops_##file = {__FILE__, rows_, sizeof(rows_) / sizeof *(rows_)}

/* ---- the parsed form ---- */

struct op_arg {
  char *name;
  bool is_ref;
  int type;                /* fixed dtype, or 0 */
  const char *type_attr;   /* "T", or NULL */
  const char *number_attr; /* "N", or NULL */
  const char *list_attr;   /* a list(type) attribute, or NULL */
};

struct op_attr {
  char *name;
  enum attr_kind kind; /* ATTR_LIST for lists */
  enum attr_kind of;   /* elements of a list */
  bool has_default, has_minimum;
  struct attr dflt;
  int64_t minimum;
  uint64_t types; /* allowed dtypes as bits; 0: any */
  char **strings; /* allowed strings; NULL: any */
  int n_strings;
};

struct op {
  const struct op_row *row;
  const char *name;
  const char *family;
  struct op_arg *in, *out;
  int n_in, n_out;
  struct op_attr *attrs;
  int n_attrs;
  unsigned flags;
};

/* Finds an op; NULL when unknown. The registry is built at the first call; thread-safe. */
const struct op *op_find(const char *name);
/* All ops in order of name. */
const struct op *const *op_all(int *n);
const struct op_attr *op_attr_find(const struct op *op, const char *name);
/* "Op<name=Add; signature=x:T, y:T -> z:T; attr=T:type,allowed=[...]>", as TensorFlow prints it. */
void op_print(const struct op *op, struct text *out);
static inline bool op_is(const struct op *op, const char *name) { return __builtin_strcmp(op->name, name) == 0; }
/* Parses one row (for ops that are not in the registry, such as functions); freed with op_free. */
shoal_status op_parse(const struct op_row *row, const char *family, struct op **out);
void op_free(struct op *op);

#endif
