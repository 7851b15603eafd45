/* Ops of one's own: written in C against this header, built into a shared library, loaded into programs
 * (shoal_load_ops) and servers (`shoal server --op_library=FILE`). A graph uses one by its name, like any other op,
 * from C (shoal_build) and from TensorFlow's clients.
 *
 *   static shoal_status cube_run(shoal_op_run *r, void *state) {
 *     void *y;
 *     shoal_status e = shoal_op_output_like(r, 0, 0, &y);
 *     if (e) return e;
 *     const float *x = shoal_op_input_data(r, 0);
 *     for (int64_t i = 0; i < shoal_op_input_elements(r, 0); i++) ((float *)y)[i] = x[i] * x[i] * x[i];
 *     return NULL;
 *   }
 *   static const shoal_op_kernel kernels[] = {{.device = "CPU", .run = cube_run}};
 *   static const shoal_op_row rows[] = {{.name = "Cube", .in = "x: float", .out = "y: float",
 *                                        .shape = shoal_op_same_shape, .kernels = kernels, .n_kernels = 1}};
 *   SHOAL_OP_LIBRARY(rows);
 *
 *   cc -shared -fPIC cube.c -o libcube.so $(pkg-config --cflags --libs shoal)
 *
 * A row says all there is of an op. Its signature is text, as TensorFlow registers ops:
 *   in, out   "a: T, b: int32"         arguments; a type is a type attribute's name or a dtype ("float", "int64")
 *             "values: N * T"          a list of N tensors of one type (N an int attribute)
 *             "components: Tlist"      a list typed by a list(type) attribute
 *   attrs     "T: {float, double}; N: int >= 1; exact: bool = false; mode: {'SAME', 'VALID'}; sizes: list(int)"
 *             type sets: {numbertype}, {realnumbertype} or names; kinds: string int float bool type shape tensor and
 *             list(any of these); each may have a default: "= 1", "= 'SAME'", "= float", "= [1, 2]"; a shape's is
 *             "= [2, ?]" ([] a scalar, {} unknown), a tensor's a scalar with its type, "= {int32 0}".
 *
 * A library is code of the process that loads it, with all that this process may do (docs/security.md). It stays loaded
 * to the end of the process. It must be linked to the shared library that the program uses. */
#ifndef SHOAL_OP_H
#define SHOAL_OP_H

#include <shoal/graph.h>
#include <shoal/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An error of the program's own, for kernels and all other callbacks: the caller returns it, hands it on, or frees it.
 */
SHOAL_API shoal_status shoal_status_new(shoal_code code, const char *format, ...) SHOAL_PRINTF(2, 3);

/* ---- kernels: what an op does on a device ---- */

/* One run of a kernel: inputs to read, outputs to make. Valid until the kernel returns. */
typedef struct shoal_op_run shoal_op_run;

#define SHOAL_OP_TYPE(dtype) (UINT64_C(1) << (dtype))

typedef struct shoal_op_kernel {
  const char *device;    /* "CPU", and no other */
  const char *type_attr; /* this kernel is for these types of a type attribute; NULL: for all */
  uint64_t types;        /* SHOAL_OP_TYPE(SHOAL_FLOAT32) | ... */
  size_t state_size;     /* of a node's state, zeroed before init; 0: none */
  /* Fills the state of a node from its attributes (shoal_op_attr_int, ...), once; an error refuses the node. Optional.
   */
  shoal_status (*init)(const shoal_op *node, void *state);
  void (*release)(void *state); /* optional */
  /* Computes all outputs. Called by several threads at once, with the same state. */
  shoal_status (*run)(shoal_op_run *r, void *state);
} shoal_op_kernel;

/* Inputs: read-only. */
SHOAL_API int shoal_op_inputs(const shoal_op_run *r);
SHOAL_API shoal_dtype shoal_op_input_dtype(const shoal_op_run *r, int i);
SHOAL_API int shoal_op_input_rank(const shoal_op_run *r, int i);
SHOAL_API const int64_t *shoal_op_input_dims(const shoal_op_run *r, int i);
SHOAL_API int64_t shoal_op_input_elements(const shoal_op_run *r, int i);
SHOAL_API const void *shoal_op_input_data(const shoal_op_run *r, int i); /* not for strings, resources, variants */
SHOAL_API const char *shoal_op_input_string(const shoal_op_run *r, int i, int64_t element, size_t *size);

/* Outputs: each is made once, by one of the first three, which give where its elements go (NULL for strings). */
SHOAL_API int shoal_op_run_outputs(const shoal_op_run *r);
/* Of a new shape; elements undefined, strings empty. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_output(shoal_op_run *r, int i, int rank, const int64_t *dims,
                                                        void **data);
/* Of input j's shape; perhaps in its memory, when nobody else needs it: element k is written after element k of that
 * input was read for the last time. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_output_like(shoal_op_run *r, int i, int j, void **data);
/* Input j itself, without a copy; of the same type. Before another output is made of its memory, by the above. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_output_same(shoal_op_run *r, int i, int j);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_output_string(shoal_op_run *r, int i, int64_t element,
                                                               const char *data, size_t size);

/* Calls fn for pieces of 0 ... n - 1, at least `grain` long but for the last, in the device's threads; returns when all
 * are done. */
SHOAL_API void shoal_op_parallel(shoal_op_run *r, int64_t n, int64_t grain,
                                 void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);
/* Was the step cancelled? A kernel that takes long asks from time to time and returns CANCELLED. */
SHOAL_API bool shoal_op_cancelled(const shoal_op_run *r);

/* ---- attributes of a node, by name; strings live as long as the node. NOT_FOUND, or INVALID_ARGUMENT: of another kind
 * ---- */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_int(const shoal_op *node, const char *name, int64_t *out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_float(const shoal_op *node, const char *name, float *out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_bool(const shoal_op *node, const char *name, bool *out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_type(const shoal_op *node, const char *name, shoal_dtype *out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_string(const shoal_op *node, const char *name, const char **out);
/* dims has room for SHOAL_MAX_RANK; a rank or dimension of -1: unknown. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_shape(const shoal_op *node, const char *name, int64_t *dims,
                                                            int *rank);
/* To be read, and ended with shoal_tensor_unref. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_tensor(const shoal_op *node, const char *name,
                                                             shoal_tensor **out);
/* Lists, of at most max elements; *n is how many there are. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_ints(const shoal_op *node, const char *name, int64_t *out,
                                                           int max, int *n);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_floats(const shoal_op *node, const char *name, float *out,
                                                             int max, int *n);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_bools(const shoal_op *node, const char *name, bool *out, int max,
                                                            int *n);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_types(const shoal_op *node, const char *name, shoal_dtype *out,
                                                            int max, int *n);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_strings(const shoal_op *node, const char *name, const char **out,
                                                              int max, int *n);
/* How many elements a list of any kind has; and one of a list(shape) or list(tensor), as those above. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_length(const shoal_op *node, const char *name, int *n);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_shape_at(const shoal_op *node, const char *name, int i,
                                                               int64_t *dims, int *rank);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_attr_tensor_at(const shoal_op *node, const char *name, int i,
                                                                shoal_tensor **out);

/* ---- shapes: what is known before anything runs ---- */

typedef struct shoal_op_shapes shoal_op_shapes;

SHOAL_API const shoal_op *shoal_op_shapes_node(const shoal_op_shapes *s);
/* Rank as far as known, -1 when unknown; dims (room for SHOAL_MAX_RANK; -1 unknown) may be NULL. */
SHOAL_API int shoal_op_shapes_in(const shoal_op_shapes *s, int i, int64_t *dims);
/* Output i; what is not set stays unknown. A rank or dimension of -1: unknown. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_shapes_out(shoal_op_shapes *s, int i, int rank, const int64_t *dims);
/* A ready-made function: every output has input 0's shape. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_op_same_shape(shoal_op_shapes *s);

/* ---- gradients: nodes that are added behind a node ---- */

typedef struct shoal_op_gradient shoal_op_gradient;

SHOAL_API shoal_graph *shoal_op_gradient_graph(shoal_op_gradient *c);
SHOAL_API const shoal_op *shoal_op_gradient_node(const shoal_op_gradient *c);
SHOAL_API shoal_out shoal_op_gradient_in(const shoal_op_gradient *c, int i);  /* the node's input */
SHOAL_API shoal_out shoal_op_gradient_out(const shoal_op_gradient *c, int i); /* its output */
SHOAL_API shoal_out shoal_op_gradient_of(shoal_op_gradient *c, int i);        /* of its output; zeros where none is */
/* The gradient of input i; what is not set has none. */
SHOAL_API void shoal_op_gradient_set(shoal_op_gradient *c, int i, shoal_out gradient);

/* ---- rows and libraries ---- */

enum {
  SHOAL_OP_STATEFUL = 1,    /* has side effects: never folded, merged or left out for another of its kind */
  SHOAL_OP_COMMUTATIVE = 2, /* the order of its two inputs is indifferent */
  SHOAL_OP_NO_GRADIENT = 4, /* not differentiable: gradients stop here without an error */
};

typedef struct shoal_op_row {
  const char *name;                           /* "Cube": a capital letter first, as all ops */
  const char *in, *out, *attrs;               /* NULL: none */
  unsigned flags;                             /* SHOAL_OP_STATEFUL, ... */
  shoal_status (*shape)(shoal_op_shapes *s);  /* NULL: outputs of unknown shape */
  shoal_status (*grad)(shoal_op_gradient *c); /* NULL: none; asking for it is an error unless SHOAL_OP_NO_GRADIENT */
  const shoal_op_kernel *kernels;             /* best first */
  int n_kernels;
} shoal_op_row;

/* What a library shows: one symbol of this type. */
typedef struct shoal_op_library {
  size_t size;
  int version; /* of the headers */
  const shoal_op_row *rows;
  int n_rows;
  size_t row_size, kernel_size;
  shoal_status (*bound)(const char *path); /* whose calls it makes: must be those of the program that loads it */
} shoal_op_library;

/* Once in a library, for its array of rows. */
#define SHOAL_OP_LIBRARY(rows)                                                                                \
  SHOAL_API extern const shoal_op_library shoal_op_library_;                                                  \
  const shoal_op_library shoal_op_library_ = {                                                                \
      sizeof(shoal_op_library), SHOAL_VERSION_NUMBER,    (rows),        (int)(sizeof(rows) / sizeof *(rows)), \
      sizeof(shoal_op_row),     sizeof(shoal_op_kernel), shoal_load_ops}

/* Loads a library: its ops are known to all graphs, sessions and servers of this process from now on. path: of the
 * file; one without a '/' is in the working directory. NOT_FOUND: there is no such library;
 * INVALID_ARGUMENT: it is none of ops, or a row of it is wrong; ALREADY_EXISTS: an op of that name is there;
 * FAILED_PRECONDITION: made for a newer version, or linked to another copy of the library than this program. Nothing of
 * it is used then. The same file a second time is no error. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_load_ops(const char *path);

#ifdef __cplusplus
}
#endif
#endif
