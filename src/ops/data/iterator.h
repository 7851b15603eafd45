/* Iterators as resources: what the ops share that make, ask, save and pass them. */
#ifndef OPS_DATA_ITERATOR_H
#define OPS_DATA_ITERATOR_H

#include "data/data_thread.h"
#include "ops/data/dataset_state.h"

struct iterator {
  struct resource head;
  struct task_line *line;
  struct element_spec spec; /* what its elements must be; n 0: anything */
  /* used by tasks of the line alone: */
  struct data_iterator *at; /* NULL until initialised */
  int64_t asked;            /* how often `at` was asked for an element and did not answer that it had ended */
  bool failed;              /* some of them were errors */
  struct text seeds;        /* the seeds of the dataset's shuffles when `at` was made */
};
extern const struct resource_type iterator_type;

/* The iterator walks d from the beginning. On its line. */
shoal_status iterator_begin(struct iterator *it, struct dataset *d);

struct element_spec element_spec_copy(const struct element_spec *s);
void element_spec_release(struct element_spec *s);
/* Are elements of these types and shapes what is wanted? (n 0: anything is.) */
shoal_status element_spec_check(const struct element_spec *want, int n, const shoal_dtype *types,
                                const struct shape *shapes);
/* Hands tensors to the kernel's outputs; they must be of its types. Those handed over are set to none. */
shoal_status element_give(struct kernel_ctx *ctx, struct tensor *t, int n);

/* Output 0 is input 0, a handle to a resource of that type, as a string. */
shoal_status handle_to_string(struct kernel_ctx *ctx, const struct resource_type *type);
/* Output 0 is the handle in the string that is input 0; *out (a new reference) what it leads to. */
shoal_status handle_from_string(struct kernel_ctx *ctx, const struct resource_type *type, struct resource **out);

#endif
