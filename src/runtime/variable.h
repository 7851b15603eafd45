/* Variables of both kinds. A ref variable (VariableV2) and a resource variable (VarHandleOp) are the same object;
 * they differ in how a graph gets at it.
 *
 * Reads are cheap: they share the buffer. A writer changes the buffer in place only when nobody else holds it;
 * otherwise it copies first (copy on write), so a value that was read never changes under the reader. */
#ifndef RUNTIME_VARIABLE_H
#define RUNTIME_VARIABLE_H

#include <pthread.h>

#include "runtime/resource.h"

struct variable {
  struct resource head;
  pthread_rwlock_t lock; /* held for reading while rows are gathered, for writing while the value changes */
  struct tensor value;   /* lock; invalid (buffer NULL) until initialised */
  shoal_dtype dtype;
  struct shape shape;       /* as declared; may be partly known */
  atomic_bool copy_on_read; /* sparse updates happen: writers change rows in place under the lock, readers copy, lest
                               every update of a few rows copy the whole table */
  char *name;               /* for errors */
};

extern const struct resource_type variable_type;     /* resource variables */
extern const struct resource_type variable_ref_type; /* ref variables: the same struct, but names of their own */

struct variable *variable_new(const char *name, shoal_dtype dtype, const struct shape *shape);
static inline void variable_unref(struct variable *v) { resource_unref(&v->head); }
/* A second reference to the value (a copy in copy-on-read mode); invalid when uninitialised. */
void variable_read(struct variable *v, struct tensor *out);
/* Call with the lock held for writing: makes value's buffer exclusively ours, copying when it is shared. */
shoal_status variable_make_writable(struct variable *v);

#endif
