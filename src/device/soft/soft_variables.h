/* The variables of a kernel that is borrowed from the CPU, opened for it (soft_variables.c). */
#ifndef DEVICE_SOFT_SOFT_VARIABLES_H
#define DEVICE_SOFT_SOFT_VARIABLES_H

#include "base/vec.h"
#include "runtime/kernel.h"

struct soft_variable {
  struct variable *real;     /* a reference; locked for writing */
  struct variable *stand_in; /* with the value open */
};

struct soft_variables {
  VEC(struct soft_variable) all; /* by address, each once */
  struct variable **refs;        /* [n_in] for the kernel: ctx->refs_in of stand-ins; NULL: it has none */
};

/* For the inputs, which are open: those that are handles become handles of stand-ins. To be closed on an error, too. */
shoal_status soft_variables_open(struct soft_variables *vars, const struct kernel_ctx *ctx, struct tensor *in);
/* When the inputs are released and the outputs put away: variables have what the kernel left in the stand-ins, and
 * references that it gave out lead to them. */
shoal_status soft_variables_close(struct soft_variables *vars, struct kernel_ctx *ctx);

#endif
