/* Calling functions of the graph's library from kernels: PartitionedCall, While, If, dataset functions.
 *
 * A function is compiled once per (name, attributes) and device, on first use, and kept with the session's
 * runtime. A call is a step of its own with the caller's cancellation and resources; a body that is on several devices
 * (function_place.c) has a rendezvous of its own too. */
#ifndef RUNTIME_FUNCTION_H
#define RUNTIME_FUNCTION_H

#include "runtime/kernel.h"

struct function_runtime;
struct function_def; /* graph/function.h */
struct function;     /* owned by the runtime; compiled when first called */

/* Starts with the functions that library has now; more are added with function_runtime_add. Shared by reference count:
 * a dataset may outlive the session that made it. */
struct function_runtime *function_runtime_new(const struct shoal_graph *library);
shoal_status function_runtime_add(struct function_runtime *r, const struct shoal_graph *library);
struct function_runtime *function_runtime_ref(struct function_runtime *r);
void function_runtime_unref(struct function_runtime *r);
/* The devices that bodies may be placed on, with what the session calls them (NULL: as they are) and their resources;
 * and rewrites that bodies are not to have (rewrite_options'). Once, before anything is called; without it, and on
 * devices that are not among them, a body runs where it is called. */
void function_runtime_place(struct function_runtime *r, struct device *const *devices, char *const *names,
                            struct resource_mgr *const *resources, int n, const char *rewrites_off);
/* Adds those of `from` whose names r does not have. */
void function_runtime_inherit(struct function_runtime *r, struct function_runtime *from);
/* A definition by name, a new reference; NULL: none. */
struct function_def *function_runtime_find(struct function_runtime *r, const char *name);
/* A hash of what a function does: of its body and of those it names in turn, whatever they are called. 0: none. */
uint64_t function_runtime_hash(struct function_runtime *r, const char *name);

/* Finds a function and makes its body. Functions that are not there are errors. The kernel_init's device and resources
 * are used. Calls nested deeper than a fixed bound fail when they are made. */
shoal_status function_get(struct kernel_init *ki, const struct func_attr *f, struct function **out);
/* Of a function called on a device with memory of its own, the arguments and results that are in host memory all the
 * same: bits, 31 for all from there on. Strings, handles and variants always are. */
struct function_memory {
  uint32_t host_args, host_rets;
};
shoal_status function_get_with(struct kernel_init *ki, const struct func_attr *f, struct function_memory memory,
                               struct function **out);
/* The function that a whole graph is (taken over): it has no arguments, and one result, the input of ret. r's own, of
 * which there is one. */
shoal_status function_of_graph(struct function_runtime *r, struct device *device, struct resource_mgr *resources,
                               struct shoal_graph *g, struct shoal_node *ret, struct function **out);
int function_args(const struct function *f);
int function_rets(const struct function *f);
shoal_dtype function_ret_type(const struct function *f, int i);

/* Called once, from any thread. rets ([function_rets]) are owned by the callee when s is NULL. */
typedef void (*function_done)(void *arg, shoal_status s, struct tensor *rets);
/* args are copied by reference: the caller keeps its own. */
void function_call(struct function *f, struct step *caller, const struct tensor *args, int n_args, function_done done,
                   void *arg);
/* The same, and waits: for kernels that run on threads of their own (dataset iterators), never on inter threads
 * of a step that the call itself needs. Without a step (NULL) the call has its own cancellation. rets: room for n_rets;
 * a function that gives another number of results is not called. */
shoal_status function_call_sync(struct function *f, struct step *caller, const struct tensor *args, int n_args,
                                struct tensor *rets, int n_rets);

#endif
