/* Kernels of the CPU's in the tables of other types of devices (kernel_borrow.c).
 *
 * A kernel of such a table has one of the CPU's inside, made of the same node for a CPU that stands in for the device:
 * what it computes with is memory of the host's, and who borrows it sees to that. */
#ifndef RUNTIME_KERNEL_BORROW_H
#define RUNTIME_KERNEL_BORROW_H

#include <pthread.h>

#include "base/strmap.h"
#include "runtime/kernel.h"

/* The state of such a kernel begins with one. */
struct borrowing {
  struct kernel inner; /* the CPU's */
};
/* host: a CPU of the device's name, which is there as long as the kernel. */
shoal_status borrowing_init(struct kernel_init *ki, struct device *host, struct borrowing *b);
void borrowing_release(void *state);
static inline const struct kernel *borrowed(const struct kernel_ctx *ctx) {
  return &((const struct borrowing *)ctx->state)->inner;
}
/* Runs it over inputs and variables that are the host's; the outputs are put where the context's are. */
shoal_status borrowing_run(struct kernel_ctx *ctx, const struct tensor *const *in, struct variable *const *refs);

/* *out becomes `like`, for the nodes that a kernel of the CPU's serves; of plain numbers alone, if so asked. False:
 * none are left. */
bool borrow_kernel(const struct op *op, const struct kernel_def *from, bool plain, const struct kernel_def *like,
                   struct kernel_def *out);

/* Lists of such kernels, each made when it is first asked for: static, begun by BORROWED_LISTS. */
struct borrowed_lists {
  pthread_mutex_t lock;
  bool (*one)(const struct op *op, const struct kernel_def *from, struct kernel_def *out); /* false: not that one */
  struct strmap by_op;                                                                     /* lock */
};
#define BORROWED_LISTS(one_) \
  { .lock = PTHREAD_MUTEX_INITIALIZER, .one = one_ }
/* What becomes of the CPU's kernels of an op; perhaps none. */
const struct kernel_def *borrow_all(struct borrowed_lists *l, const struct op *op);

/* What a device of plain numbers may be asked for beyond its own kernels: a type's `lent` (kernel_lent.c). */
const struct kernel_def *kernel_lent(const struct op *op);

#endif
