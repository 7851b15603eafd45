/* Kernels: what an op does on a device. The contract between src/ops and the executor.
 *
 * A kernel_def is a constant in an op's row. When a graph is compiled, each node gets a struct kernel: the def,
 * the node's name and types, and `state` filled by init() from the attributes, so that running never looks at
 * an attribute. Running a kernel gets a kernel_ctx with inputs and room for outputs.
 *
 *   static shoal_status relu_run(struct kernel_ctx *ctx) {
 *     struct tensor *y;
 *     TRY(ctx_out_like(ctx, 0, 0, &y));        // in place when nobody else needs x
 *     const struct tensor *x = ctx_in(ctx, 0);
 *     ...
 *   }
 *
 * Kernels are immutable once built and may run in several steps at once: state is read-only unless the kernel
 * locks it. Inputs are read-only. */
#ifndef RUNTIME_KERNEL_H
#define RUNTIME_KERNEL_H

#include "device/device.h"
#include "graph/graph.h"
#include "runtime/step.h"
#include "runtime/variable.h"

struct kernel_ctx;
struct kernel_init;
struct function; /* runtime/function.h */

enum kernel_flags {
  KERNEL_CHEAP = 1,     /* always worth running on the thread that made it ready */
  KERNEL_EXPENSIVE = 2, /* worth a thread of its own even for small inputs; also for kernels that block */
  KERNEL_ELEMENTWISE =
      8,                /* output i depends on elements i of the inputs alone: can be fused (ops/math/elementwise.h) */
  KERNEL_DEAD_OK = 4,   /* runs even when an input is dead (Merge, _Send, _Retval): executor and control flow only */
  KERNEL_REPLAYS = 32,  /* what it keeps is the values of variables, reached by what leaves notes (variable_notes.h): it
                           may be captured (runtime/replay.h). Kernels without state may anyway */
  KERNEL_OF_STEP = 64,  /* what it queues refers to the step: it may not */
  KERNEL_ANYWHERE = 16, /* looks at no element of what is not in host memory: it serves devices of every type */
};

#define DT(t) (1u << SHOAL_##t)
#define DT_FLOATING (DT(FLOAT32) | DT(FLOAT64) | DT(FLOAT16) | DT(BFLOAT16))
#define DT_SIGNED (DT(INT8) | DT(INT16) | DT(INT32) | DT(INT64))
#define DT_UNSIGNED (DT(UINT8) | DT(UINT16) | DT(UINT32) | DT(UINT64))
#define DT_INTEGER (DT_SIGNED | DT_UNSIGNED)
#define DT_REAL (DT_FLOATING | DT_INTEGER)
#define DT_COMPLEX (DT(COMPLEX64) | DT(COMPLEX128))
#define DT_NUMBER (DT_REAL | DT_COMPLEX)
#define DT_QUANTIZED (DT(QINT8) | DT(QUINT8) | DT(QINT16) | DT(QUINT16) | DT(QINT32))
#define DT_PLAIN (DT_NUMBER | DT(BOOL) | DT_QUANTIZED)
#define DT_ALL (DT_PLAIN | DT(STRING) | DT(RESOURCE) | DT(VARIANT))

struct kernel_def {
  const char *device;     /* "CPU"; NULL ends a list */
  const char *type_attr;  /* the attribute that `types` constrains; NULL: none */
  uint32_t types;         /* DT() bits */
  const char *type_attr2; /* a second one */
  uint32_t types2;
  bool (*fits)(const struct shoal_node *n); /* (optional) can it do this node, whose types are right? */
  unsigned flags;
  size_t state_size;                                         /* zeroed before init */
  shoal_status (*init)(struct kernel_init *ki, void *state); /* (optional) */
  void (*release)(void *state);                              /* (optional) */
  shoal_status (*run)(struct kernel_ctx *ctx);               /* this, or: */
  /* Starts work that ends later: calls ctx_done(ctx, status) exactly once, from any thread, perhaps before
   * returning. ctx and its inputs and outputs stay valid until then. Must heed ctx->step->cancel. */
  void (*start)(struct kernel_ctx *ctx);
  bool borrowable; /* what it changes beyond its outputs is the value of a variable, or state of its own: a device of
                      another type may run it over memory of that type */
  uint32_t host_in, host_out; /* bits: arguments of the op (a list is one) that are in host memory whatever the device
                                 (bit 31: all from 31 on). Strings, handles and variants always are */
};

struct kernel {
  const struct kernel_def *def;
  const struct op *op;
  const char *name;  /* the node's */
  const char *parts; /* names of the user's nodes that it was fused of, one behind the other, and "" at the end */
  int n_in, n_out;
  const uint8_t *in_types, *out_types; /* base dtype, + 100 for references */
  const uint8_t *host_out;             /* [n_out] is it in host memory? NULL: all are, on this device */
  struct device *device;
  struct resource_mgr *resources; /* of the device, or of the isolated session */
  void *state;
};

/* What init() sees. Attribute getters are graph.h's node_get_*(ki->node, ...). */
struct kernel_init {
  const struct shoal_node *node;
  struct kernel *kernel;
  struct device *device;
  struct resource_mgr *resources;
  struct function_runtime *functions; /* runtime/function.h: to find and compile functions; NULL if there are none */
  uint64_t random_seed;               /* drawn for this kernel instance: for ops whose seeds are 0, 0 */
  uint64_t session;                   /* unique in the process, never 0 in a session: a stateful node without a shared
                                         name has one state for all plans of its session */
};

struct kernel_ctx {
  const struct kernel *kernel;
  void *state; /* kernel->state */
  struct step *step;
  const struct tensor *const *in;  /* [n_in]; for a reference input read through: the variable's value now */
  struct tensor *out;              /* [n_out], empty before */
  struct variable *const *refs_in; /* [n_in]: the variable behind a reference input; NULL entries otherwise. NULL:
                                      the kernel has none */
  struct variable **refs_out;      /* [n_out], set by kernels whose outputs are references; NULL: it has none */
  uint64_t steal;                  /* bit i: input i is needed by nobody else after this kernel */
  struct tensor *place;            /* where output 0 is to be, if it has as many elements; NULL: anywhere. ctx_out's */
  uint64_t frame, iter;            /* of loops; 0 outside */
  bool is_dead;                    /* with KERNEL_DEAD_OK */
  int part;                        /* set with an error, by a fused node's kernel: which of its parts it is of */
  void (*done)(struct kernel_ctx *ctx, shoal_status s); /* the executor's; call ctx_done */
};

static inline const struct tensor *ctx_in(const struct kernel_ctx *ctx, int i) { return ctx->in[i]; }
/* The memory that output i is to be in: of a device, or NULL, the host's. */
static inline const struct device *ctx_out_memory(const struct kernel_ctx *ctx, int i) {
  return !ctx->kernel->host_out || ctx->kernel->host_out[i] ? NULL : ctx->kernel->device;
}
static inline struct pool *ctx_pool(const struct kernel_ctx *ctx) { return ctx->kernel->device->intra; }
static inline shoal_dtype ctx_in_type(const struct kernel_ctx *ctx, int i) { return (shoal_dtype)ctx->in[i]->dtype; }
static inline shoal_dtype ctx_out_type(const struct kernel_ctx *ctx, int i) {
  return dtype_base(ctx->kernel->out_types[i]);
}
/* An error of the kernel, with the name of the node that the user knows. NULL stays NULL. */
shoal_status ctx_error(const struct kernel_ctx *ctx, shoal_status s);
/* After the kernel: does each output have the type that the op says? What follows it reads memory on that word. Graphs
 * come from anyone, and not every kernel can see from its attributes what it will be given (functions, constants).
 * INTERNAL names the output. */
shoal_status ctx_type_error(const struct kernel_ctx *ctx, int i);
static inline shoal_status ctx_check_types(const struct kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->n_out; i++)
    if (UNLIKELY(ctx->out[i].buffer && ctx->out[i].dtype != ctx->kernel->out_types[i])) {
      shoal_status s = ctx_type_error(ctx, i);
      if (s) return s;
    }
  return NULL;
}
static inline void ctx_done(struct kernel_ctx *ctx, shoal_status s) { ctx->done(ctx, s); }

/* Output i, newly allocated with the kernel's output type; contents undefined. */
shoal_status ctx_out(struct kernel_ctx *ctx, int i, const struct shape *shape, struct tensor **out);
shoal_status ctx_out_dims(struct kernel_ctx *ctx, int i, int rank, const int64_t *dims, struct tensor **out);
/* Output i with input j's shape; takes over j's buffer when nobody else needs it and the element size fits (then
 * (*out)->data == ctx_in(ctx, j)->data: the kernel must be safe in place). */
shoal_status ctx_out_like(struct kernel_ctx *ctx, int i, int j, struct tensor **out);
/* Output i refers to input j's value, under another shape if given: no copy. */
shoal_status ctx_forward(struct kernel_ctx *ctx, int i, int j, const struct shape *shape);
/* Output i becomes *t, whose reference is taken over. */
void ctx_set(struct kernel_ctx *ctx, int i, struct tensor *t);
/* A scratch tensor of the device, for the length of the kernel; release it. */
shoal_status ctx_temp(struct kernel_ctx *ctx, shoal_dtype dtype, const struct shape *shape, struct tensor *out);

/* The variable behind reference input i. */
static inline struct variable *ctx_ref(const struct kernel_ctx *ctx, int i) { return ctx->refs_in[i]; }
/* Output i is the reference that came in as input j, or a variable (a new reference to it is taken). */
void ctx_set_ref(struct kernel_ctx *ctx, int i, struct variable *v);

/* Errors in TensorFlow's words for the usual mistakes. */
shoal_status ctx_check_scalar(const struct kernel_ctx *ctx, int i, const char *name);
shoal_status ctx_check_vector(const struct kernel_ctx *ctx, int i, const char *name);

/* The kernel for a node on a device, by type constraints: of the device type's own table, else of the op's row (those
 * of the CPU, and those that serve anywhere), else what the CPU lends. NOT_FOUND / INVALID_ARGUMENT name the op, the
 * types it was asked for and those there are. */
shoal_status kernel_find(const struct shoal_node *n, const char *device_type, const struct kernel_def **out);
/* Is there one? For types that only other tasks have: who knows; yes. */
bool kernel_supports(const struct shoal_node *n, const char *device_type);
/* The same of a node that asks for that type: one that the CPU lends will do (device.h). */
bool kernel_supports_if_asked(const struct shoal_node *n, const char *device_type);
/* Is there one, on the device that the node is on, that is not lent? */
bool kernel_is_here(const struct shoal_node *n);
/* Is it for a device of the host's type? These have the same kernels in every task; of others their own task knows. */
bool kernel_is_of_host(const struct shoal_node *n);
/* True when the kernel for this node, on its device, is KERNEL_ELEMENTWISE. */
bool kernel_is_elementwise(const struct shoal_node *n);
/* Which inputs and outputs of a node are in host memory, if this is its kernel on a device whose memory is its own. */
void kernel_memory(const struct shoal_node *n, const struct kernel_def *def, uint8_t *host_in, uint8_t *host_out);

/* ---- resource names by attribute: container and shared_name, else the node's name ---- */
struct resource_name {
  char *container, *name;
};
shoal_status resource_name_init(struct resource_name *n, const struct kernel_init *ki);
void resource_name_release(struct resource_name *n);

#endif
