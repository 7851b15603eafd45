/* Resources: what outlives a step. Variables, queues, tables, accumulators, iterators live in containers, under
 * (container, name) for each kind, and are shared by whoever uses the same name.
 *
 * An entry is the named place; it stays when the resource in it is destroyed and made anew. A handle tensor keeps
 * the entry, so a kernel that has seen a handle once reaches its resource without hashing a name again. */
#ifndef RUNTIME_RESOURCE_H
#define RUNTIME_RESOURCE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/ref.h"
#include "base/status.h"
#include "base/strmap.h"
#include "tensor/tensor.h"

struct resource;

/* The name by which TensorFlow asks for a variable that no name leads to. */
#define RESOURCE_NAMELESS "cd2c89b7-88b7-44c8-ad83-06c2a9158347"

struct resource_type {
  const char *name;  /* as handles carry it: "N10tensorflow3VarE", or our own */
  const char *label; /* for people: "variable", "queue" */
  void (*free)(struct resource *r);
};

/* The head of every resource. */
struct resource {
  const struct resource_type *type;
  struct ref refs;
  atomic_bool gone; /* no name leads to it any more */
};
static inline void resource_init(struct resource *r, const struct resource_type *type) {
  r->type = type;
  ref_init(&r->refs, 1);
  atomic_init(&r->gone, false);
}
static inline void resource_ref(struct resource *r) { ref_take(&r->refs); }
static inline void resource_unref(struct resource *r) {
  if (r && ref_drop(&r->refs)) r->type->free(r);
}

/* The resources of one device (or of one session, when sessions are isolated, or of one step). */
struct resource_mgr;
struct resource_mgr *resource_mgr_new(const char *default_container);
void resource_mgr_unref(struct resource_mgr *m);
struct resource_mgr *resource_mgr_ref(struct resource_mgr *m);
/* The caller holds the only reference, and nothing was ever made in it. */
bool resource_mgr_unused(struct resource_mgr *m);
const char *resource_mgr_default_container(const struct resource_mgr *m);

/* Empties every container and drops the reference: for owners. What is inside may refer to functions whose plans refer
 * back to m, so that the last reference alone would never go. */
void resource_mgr_close(struct resource_mgr *m);

/* container "" is the default one. Each returns a new reference in *out. */
shoal_status resource_find(struct resource_mgr *m, const char *container, const struct resource_type *type,
                           const char *name, struct resource **out); /* NOT_FOUND in TensorFlow's words */
/* make() is called, under the lock of that entry only, when there is none. */
shoal_status resource_find_or_make(struct resource_mgr *m, const char *container, const struct resource_type *type,
                                   const char *name, shoal_status (*make)(void *arg, struct resource **out), void *arg,
                                   struct resource **out);
/* ALREADY_EXISTS when taken. Takes over r's reference on success. */
shoal_status resource_add(struct resource_mgr *m, const char *container, const char *name, struct resource *r);
shoal_status resource_remove(struct resource_mgr *m, const char *container, const struct resource_type *type,
                             const char *name);
/* Empties a container. */
void resource_clear(struct resource_mgr *m, const char *container);
/* Visits everything, for status pages and listing (holds the lock). */
void resource_each(struct resource_mgr *m,
                   void (*fn)(void *arg, const char *container, const char *name, struct resource *r), void *arg);

/* ---- through entries: for kernels that use one name in every step ---- */

struct resource_entry;
/* The place for (container, type, name), made when absent; a new reference. */
struct resource_entry *resource_entry_get(struct resource_mgr *m, const char *container,
                                          const struct resource_type *type, const char *name);
struct resource_entry *resource_entry_ref(struct resource_entry *e);
void resource_entry_unref(struct resource_entry *e);
/* As resource_find and resource_find_or_make. m is the manager the entry came from. */
shoal_status resource_entry_find(struct resource_mgr *m, struct resource_entry *e, struct resource **out);
shoal_status resource_entry_find_or_make(struct resource_entry *e,
                                         shoal_status (*make)(void *arg, struct resource **out), void *arg,
                                         struct resource **out);

/* ---- through handles ---- */

/* A scalar DT_RESOURCE tensor for (container, name); type_name as TensorFlow has it. */
shoal_status resource_handle_tensor(struct resource_mgr *m, const char *device, const char *container, const char *name,
                                    const struct resource_type *type, struct tensor *out);
/* A handle that no name leads to: the resource lives as long as its handles. r (its reference is taken over) may be
 * NULL: made at first use. */
shoal_status resource_handle_anonymous(struct resource_mgr *m, const char *device, const char *prefix,
                                       const struct resource_type *type, struct resource *r, struct tensor *out);
/* A handle like that one, whose place is another's own: r is there (its reference is taken over), or NULL: nothing. */
shoal_status resource_handle_stand_in(struct resource_mgr *m, const struct tensor *handle,
                                      const struct resource_type *type, struct resource *r, struct tensor *out);
/* The first handle in a tensor; NULL when it is empty or of another type. */
const struct resource_handle *resource_handle_of(const struct tensor *handle);
/* Which of the managers has what a handle tensor names; -1: none. A handle that came from outside and was not used yet
 * is known by the name of its device. */
int resource_handle_among(const struct tensor *handle, struct resource_mgr *const *mgrs, char *const *devices, int n);
/* The resource a handle tensor names, of the type asked for. NOT_FOUND when it does not exist (yet). */
shoal_status resource_from_handle(struct resource_mgr *m, const struct tensor *handle, const struct resource_type *type,
                                  struct resource **out);
shoal_status resource_from_handle_or_make(struct resource_mgr *m, const struct tensor *handle,
                                          const struct resource_type *type,
                                          shoal_status (*make)(void *arg, struct resource **out), void *arg,
                                          struct resource **out);
/* Destroys what the handle names; ignore_missing makes NOT_FOUND fine. */
shoal_status resource_destroy(struct resource_mgr *m, const struct tensor *handle, bool ignore_missing);

#endif
