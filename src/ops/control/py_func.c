/* Python functions in a graph: known, so that a graph which has one somewhere can be taken, placed and run without it;
 * where a task of TensorFlow's has the function the node goes there. Here there is no Python: running one says so. */
#include <stdlib.h>

#include "ops/state/state.h"

static shoal_status run(struct kernel_ctx *ctx) {
  return UNIMPLEMENTED(
      "callback %s is not found: %s calls a Python function of the client's process, and there is no Python "
      "here; place it on a task of TensorFlow's that has the function",
      *(char *const *)ctx->state, ctx->kernel->op->name);
}

static shoal_status init(struct kernel_init *ki, void *state) {
  const char *token;
  TRY(node_get_string(ki->node, "token", &token));
  *(char **)state = mem_strdup(token);
  return NULL;
}

static void release(void *state) { free(*(char **)state); }

static const struct kernel_def kernels[] = {
    {.device = "CPU", .state_size = sizeof(char *), .init = init, .release = release, .run = run}, {0}};

#define SIGNATURE .in = "input: Tin", .out = "output: Tout", .shape = shape_unknown_out, .kernels = kernels
#define TYPES "token: string; Tin: list(type) >= 0; Tout: list(type) >= 0"
static const struct op_row rows[] = {
    {.name = "PyFunc", SIGNATURE, .attrs = TYPES, .flags = OP_STATEFUL | OP_NO_GRADIENT},
    {.name = "PyFuncStateless", SIGNATURE, .attrs = TYPES, .flags = OP_NO_GRADIENT},
    {.name = "EagerPyFunc",
     SIGNATURE,
     .attrs = "token: string; is_async: bool = false; Tin: list(type) >= 0; Tout: list(type) >= 0",
     .flags = OP_STATEFUL | OP_NO_GRADIENT},
};
OP_FAMILY(py_func, rows);
