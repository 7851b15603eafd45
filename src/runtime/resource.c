/* Resources by name, and through handles.
 *
 * A manager holds containers, a container holds entries, an entry holds at most one resource. The map of
 * entries is locked by the manager, what is in an entry by the entry: making a resource (which may read a file)
 * holds up nobody but those who want the same one.
 *
 * Why entries that outlive their resource: a handle is made long before the variable it names has a value, and a
 * handle is used once a step for ever after. Holding the place instead of the thing makes the second and
 * every later use one lock and one count. Rejected: looking names up in each step (a hash and two string
 * compares an op), and caching the resource itself in kernels (a variable destroyed and made anew would be two).
 *
 * An entry belongs to one manager, told by the manager's number: a handle that comes to another manager (an isolated
 * session, another device of the process) is looked up there by name. */
#include "runtime/resource.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/ref.h"
#include "base/text.h"
#include "base/vec.h"
#include "runtime/resource_ahead.h"

struct resource_entry {
  struct ref refs;
  uint64_t mgr; /* the manager's number */
  pthread_mutex_t lock;
  struct resource *r;          /* lock, but to guess where it is; NULL: nothing there */
  struct container *container; /* valid while the manager lives; NULL: an anonymous place */
  char *container_name, *name;
  const struct resource_type *type;
};

struct container {
  char *name;
  struct strmap entries; /* "name\n" + type name -> struct resource_entry * */
  atomic_bool exists;    /* something was made in it since it was last cleared */
};

struct resource_mgr {
  struct ref refs;
  uint64_t number;
  char *default_container;
  pthread_mutex_t lock;
  struct strmap containers; /* lock: name -> struct container *; containers live as long as the manager */
};

struct resource_mgr *resource_mgr_new(const char *default_container) {
  static _Atomic uint64_t numbers;
  struct resource_mgr *m = mem_zalloc(1, sizeof *m);
  ref_init(&m->refs, 1);
  m->number = atomic_fetch_add(&numbers, 1) + 1;
  m->default_container = mem_strdup(default_container && *default_container ? default_container : "localhost");
  pthread_mutex_init(&m->lock, NULL);
  return m;
}

struct resource_mgr *resource_mgr_ref(struct resource_mgr *m) {
  ref_take(&m->refs);
  return m;
}

bool resource_mgr_unused(struct resource_mgr *m) { return ref_count(&m->refs) == 1 && m->containers.n == 0; }

const char *resource_mgr_default_container(const struct resource_mgr *m) { return m->default_container; }

struct resource_entry *resource_entry_ref(struct resource_entry *e) {
  ref_take(&e->refs);
  return e;
}

void resource_entry_unref(struct resource_entry *e) {
  if (!e || !ref_drop(&e->refs)) return;
  resource_unref(e->r);
  pthread_mutex_destroy(&e->lock);
  free(e->container_name);
  free(e->name);
  free(e);
}

/* With the lock, or before others know the entry. */
static void entry_set(struct resource_entry *e, struct resource *r) { __atomic_store_n(&e->r, r, __ATOMIC_RELAXED); }

/* Empties an entry; what was in it is released outside of every lock. */
static struct resource *entry_take(struct resource_entry *e) {
  pthread_mutex_lock(&e->lock);
  struct resource *r = e->r;
  entry_set(e, NULL);
  if (r) atomic_store(&r->gone, true);
  pthread_mutex_unlock(&e->lock);
  return r;
}

void resource_mgr_unref(struct resource_mgr *m) {
  if (!m || !ref_drop(&m->refs)) return;
  void *value;
  for (size_t i = 0; strmap_next(&m->containers, &i, NULL, &value);) {
    struct container *c = value;
    for (size_t j = 0; strmap_next(&c->entries, &j, NULL, &value);) {
      struct resource_entry *e = value;
      resource_unref(entry_take(e)); /* a handle may keep the entry; the resource goes with the manager */
      resource_entry_unref(e);
    }
    strmap_release(&c->entries);
    free(c->name);
    free(c);
  }
  strmap_release(&m->containers);
  pthread_mutex_destroy(&m->lock);
  free(m->default_container);
  free(m);
}

static void make_key(struct text *key, const struct resource_type *type, const char *name) {
  text_adds(key, name);
  text_addc(key, '\n');
  text_adds(key, type->name);
}

/* The place for (container, type, name) with a new reference; NULL when it is not there and must not be made. */
static struct resource_entry *entry_get(struct resource_mgr *m, const char *container, const struct resource_type *type,
                                        const char *name, bool make) {
  if (!*container) container = m->default_container;
  struct text key = {0};
  make_key(&key, type, name);
  pthread_mutex_lock(&m->lock);
  struct container *c = strmap_get(&m->containers, container);
  if (!c && make) {
    c = mem_zalloc(1, sizeof *c);
    c->name = mem_strdup(container);
    strmap_put(&m->containers, container, c);
  }
  struct resource_entry *e = c ? strmap_get(&c->entries, text_cstr(&key)) : NULL;
  if (!e && make) {
    e = mem_zalloc(1, sizeof *e);
    ref_init(&e->refs, 1);
    e->mgr = m->number;
    pthread_mutex_init(&e->lock, NULL);
    e->container = c;
    e->container_name = mem_strdup(container);
    e->name = mem_strdup(name);
    e->type = type;
    strmap_put(&c->entries, text_cstr(&key), e);
  }
  if (e) resource_entry_ref(e);
  pthread_mutex_unlock(&m->lock);
  text_release(&key);
  return e;
}

struct resource_entry *resource_entry_get(struct resource_mgr *m, const char *container,
                                          const struct resource_type *type, const char *name) {
  return entry_get(m, container, type, name, true);
}

static bool container_exists(struct resource_mgr *m, const char *container) {
  pthread_mutex_lock(&m->lock);
  struct container *c = strmap_get(&m->containers, container);
  bool exists = c && atomic_load(&c->exists);
  pthread_mutex_unlock(&m->lock);
  return exists;
}

static shoal_status missing(struct resource_mgr *m, const char *container, const struct resource_type *type,
                            const char *name) {
  if (!*container) container = m->default_container;
  if (!container_exists(m, container))
    return NOT_FOUND("Container %s does not exist. (Could not find resource: %s/%s)", container, container, name);
  return NOT_FOUND("Resource %s/%s/%s does not exist.", container, name, type->name);
}

shoal_status resource_entry_find(struct resource_mgr *m, struct resource_entry *e, struct resource **out) {
  pthread_mutex_lock(&e->lock);
  struct resource *r = e->r;
  if (r) resource_ref(r);
  pthread_mutex_unlock(&e->lock);
  if (UNLIKELY(!r)) return missing(m, e->container_name, e->type, e->name);
  *out = r;
  return NULL;
}

shoal_status resource_entry_find_or_make(struct resource_entry *e,
                                         shoal_status (*make)(void *arg, struct resource **out), void *arg,
                                         struct resource **out) {
  shoal_status s = NULL;
  pthread_mutex_lock(&e->lock);
  if (!e->r) {
    struct resource *made = NULL;
    s = make(arg, &made);
    if (!s) entry_set(e, made);
    if (!s && e->container) atomic_store(&e->container->exists, true);
  }
  if (!s) {
    resource_ref(e->r);
    *out = e->r;
  }
  pthread_mutex_unlock(&e->lock);
  return s;
}

shoal_status resource_find(struct resource_mgr *m, const char *container, const struct resource_type *type,
                           const char *name, struct resource **out) {
  struct resource_entry *e = entry_get(m, container, type, name, false);
  if (!e) return missing(m, container, type, name);
  shoal_status s = resource_entry_find(m, e, out);
  resource_entry_unref(e);
  return s;
}

shoal_status resource_find_or_make(struct resource_mgr *m, const char *container, const struct resource_type *type,
                                   const char *name, shoal_status (*make)(void *arg, struct resource **out), void *arg,
                                   struct resource **out) {
  struct resource_entry *e = entry_get(m, container, type, name, true);
  shoal_status s = resource_entry_find_or_make(e, make, arg, out);
  resource_entry_unref(e);
  return s;
}

shoal_status resource_add(struct resource_mgr *m, const char *container, const char *name, struct resource *r) {
  struct resource_entry *e = entry_get(m, container, r->type, name, true);
  pthread_mutex_lock(&e->lock);
  bool taken = e->r != NULL;
  if (!taken) {
    entry_set(e, r);
    atomic_store(&e->container->exists, true);
  }
  pthread_mutex_unlock(&e->lock);
  shoal_status s = NULL;
  if (taken) s = STATUS(SHOAL_ALREADY_EXISTS, "Resource %s/%s/%s", e->container_name, e->name, e->type->name);
  resource_entry_unref(e);
  return s;
}

/* Drops an emptied entry that nobody holds but the map, so that names used once do not pile up. */
static void forget(struct resource_mgr *m, struct resource_entry *e) {
  struct text key = {0};
  make_key(&key, e->type, e->name);
  pthread_mutex_lock(&m->lock);
  struct container *c = strmap_get(&m->containers, e->container_name);
  bool last = c && strmap_get(&c->entries, text_cstr(&key)) == e && ref_count(&e->refs) == 2; /* the map's and ours */
  pthread_mutex_lock(&e->lock);
  last = last && !e->r;
  pthread_mutex_unlock(&e->lock);
  if (last) {
    strmap_remove(&c->entries, text_cstr(&key));
    ref_drop(&e->refs);
  }
  pthread_mutex_unlock(&m->lock);
  text_release(&key);
}

shoal_status resource_remove(struct resource_mgr *m, const char *container, const struct resource_type *type,
                             const char *name) {
  struct resource_entry *e = entry_get(m, container, type, name, false);
  struct resource *r = e ? entry_take(e) : NULL;
  shoal_status s = NULL;
  if (!r) {
    if (!*container) container = m->default_container;
    s = container_exists(m, container) ? NOT_FOUND("Resource %s/%s/%s does not exist.", container, name, type->name)
                                       : NOT_FOUND("Container %s does not exist.", container);
  } else {
    forget(m, e);
  }
  resource_unref(r);
  resource_entry_unref(e);
  return s;
}

void resource_clear(struct resource_mgr *m, const char *container) {
  if (!*container) container = m->default_container;
  VEC(struct resource_entry *) entries = {0};
  void *value;
  pthread_mutex_lock(&m->lock);
  struct container *c = strmap_get(&m->containers, container);
  if (c) {
    atomic_store(&c->exists, false);
    for (size_t i = 0; strmap_next(&c->entries, &i, NULL, &value);) vec_push(&entries, resource_entry_ref(value));
  }
  pthread_mutex_unlock(&m->lock);
  for (size_t i = 0; i < entries.n; i++) {
    resource_unref(entry_take(entries.at[i]));
    forget(m, entries.at[i]);
    resource_entry_unref(entries.at[i]);
  }
  vec_release(&entries);
}

void resource_mgr_close(struct resource_mgr *m) {
  VEC(char *) names = {0};
  const char *name;
  pthread_mutex_lock(&m->lock);
  for (size_t i = 0; strmap_next(&m->containers, &i, &name, NULL);) vec_push(&names, mem_strdup(name));
  pthread_mutex_unlock(&m->lock);
  for (size_t i = 0; i < names.n; i++) {
    resource_clear(m, names.at[i]);
    free(names.at[i]);
  }
  vec_release(&names);
  resource_mgr_unref(m);
}

/* Each is told of without the manager's lock, which is taken under those of resources. */
void resource_each(struct resource_mgr *m,
                   void (*fn)(void *arg, const char *container, const char *name, struct resource *r), void *arg) {
  VEC(struct resource_entry *) entries = {0};
  void *value;
  pthread_mutex_lock(&m->lock);
  for (size_t i = 0; strmap_next(&m->containers, &i, NULL, &value);) {
    struct container *c = value;
    for (size_t j = 0; strmap_next(&c->entries, &j, NULL, &value);) vec_push(&entries, resource_entry_ref(value));
  }
  pthread_mutex_unlock(&m->lock);
  for (size_t i = 0; i < entries.n; i++) {
    struct resource_entry *e = entries.at[i];
    pthread_mutex_lock(&e->lock);
    struct resource *r = e->r;
    if (r) resource_ref(r);
    pthread_mutex_unlock(&e->lock);
    if (r) {
      fn(arg, e->container_name, e->name, r);
      resource_unref(r);
    }
    resource_entry_unref(e);
  }
  vec_release(&entries);
}

/* ---- through handles ---- */

static void fill(struct resource_handle *h, struct resource_entry *e) {
  h->release_entry = resource_entry_unref;
  h->entry = e;
}

static shoal_status handle_scalar(struct resource_handle *h, struct tensor *out) {
  shoal_status s = tensor_new_scalar(out, SHOAL_RESOURCE);
  if (s) resource_handle_unref(h);
  else *T_DATA(out, struct resource_handle *) = h;
  return s;
}

shoal_status resource_handle_tensor(struct resource_mgr *m, const char *device, const char *container, const char *name,
                                    const struct resource_type *type, struct tensor *out) {
  if (!*container) container = m->default_container;
  struct resource_handle *h = resource_handle_new(device, container, name, type->name);
  fill(h, entry_get(m, container, type, name, true));
  return handle_scalar(h, out);
}

/* A handle whose place no map has. */
static shoal_status handle_apart(struct resource_mgr *m, const char *device, const char *container, const char *name,
                                 const struct resource_type *type, struct resource *r, struct tensor *out) {
  struct resource_handle *h = resource_handle_new(device, container, name, type->name);
  struct resource_entry *e = mem_zalloc(1, sizeof *e);
  ref_init(&e->refs, 1);
  e->mgr = m->number;
  pthread_mutex_init(&e->lock, NULL);
  e->container_name = mem_strdup(container);
  e->name = mem_strdup(name);
  e->type = type;
  e->r = r;
  fill(h, e);
  return handle_scalar(h, out);
}

shoal_status resource_handle_anonymous(struct resource_mgr *m, const char *device, const char *prefix,
                                       const struct resource_type *type, struct resource *r, struct tensor *out) {
  static _Atomic uint64_t numbers;
  char *name = mem_printf("%s%llu", prefix, (unsigned long long)atomic_fetch_add(&numbers, 1));
  shoal_status s = handle_apart(m, device, m->default_container, name, type, r, out);
  free(name);
  return s;
}

shoal_status resource_handle_stand_in(struct resource_mgr *m, const struct tensor *handle,
                                      const struct resource_type *type, struct resource *r, struct tensor *out) {
  const struct resource_handle *h = resource_handle_of(handle);
  return handle_apart(m, h->device, *h->container ? h->container : m->default_container, h->name, type, r, out);
}

const struct resource_handle *resource_handle_of(const struct tensor *handle) {
  return handle->dtype == SHOAL_RESOURCE && handle->n > 0 ? *T_DATA(handle, struct resource_handle *) : NULL;
}

/* Where a handle was found to lead to; NULL: nothing is known, or it is none. */
static const struct resource_entry *entry_of(const struct tensor *handle) {
  const struct resource_handle *h = resource_handle_of(handle);
  return h ? __atomic_load_n(&h->entry, __ATOMIC_ACQUIRE) : NULL;
}

int resource_handle_among(const struct tensor *handle, struct resource_mgr *const *mgrs, char *const *devices, int n) {
  const struct resource_handle *h = resource_handle_of(handle);
  const struct resource_entry *e = h ? __atomic_load_n(&h->entry, __ATOMIC_ACQUIRE) : NULL;
  int i = h ? n - 1 : -1;
  while (i >= 0 && (e ? mgrs[i]->number != e->mgr : strcmp(devices[i], h->device) != 0)) i--;
  return i;
}

static shoal_status wrong_type(const struct resource_handle *h, const struct resource_type *type) {
  return INVALID("Trying to access resource using the wrong type. Expected %s got %s (resource %s)", type->name,
                 h->type_name, h->name);
}

/* The entry behind a handle, kept in the handle when it is its first use here: *mine says that the caller holds a
 * reference. */
static shoal_status resolve(struct resource_mgr *m, const struct tensor *handle, const struct resource_type *type,
                            struct resource_entry **out, bool *mine) {
  *mine = false;
  if (UNLIKELY(handle->dtype != SHOAL_RESOURCE))
    return INVALID("A resource handle was expected, not a tensor of type %s", dtype_tf_name(handle->dtype));
  if (UNLIKELY(handle->n == 0)) return INVALID("Empty resource handle");
  struct resource_handle *h = *T_DATA(handle, struct resource_handle *);
  if (UNLIKELY(!h)) return INVALID("The resource handle names nothing");
  struct resource_entry *e = __atomic_load_n(&h->entry, __ATOMIC_ACQUIRE);
  if (LIKELY(e && e->type == type && e->mgr == m->number)) {
    *out = e;
    return NULL;
  }
  if (e ? e->type != type : *h->type_name && strcmp(h->type_name, type->name) != 0) return wrong_type(h, type);
  e = entry_get(m, h->container, type, h->name, true);
  *out = e;
  if (__atomic_load_n(&h->entry, __ATOMIC_ACQUIRE)) {
    *mine = true;
    return NULL;
  }
  __atomic_store_n(&h->release_entry, resource_entry_unref, __ATOMIC_RELEASE);
  struct resource_entry *none = NULL;
  *mine = !__atomic_compare_exchange_n(&h->entry, &none, e, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return NULL;
}

shoal_status resource_from_handle(struct resource_mgr *m, const struct tensor *handle, const struct resource_type *type,
                                  struct resource **out) {
  struct resource_entry *e;
  bool mine;
  TRY(resolve(m, handle, type, &e, &mine));
  shoal_status s = resource_entry_find(m, e, out);
  if (mine) resource_entry_unref(e);
  return s;
}

shoal_status resource_from_handle_or_make(struct resource_mgr *m, const struct tensor *handle,
                                          const struct resource_type *type,
                                          shoal_status (*make)(void *arg, struct resource **out), void *arg,
                                          struct resource **out) {
  struct resource_entry *e;
  bool mine;
  TRY(resolve(m, handle, type, &e, &mine));
  shoal_status s = resource_entry_find_or_make(e, make, arg, out);
  if (mine) resource_entry_unref(e);
  return s;
}

/* A way of five places, each known only by the one before it: one place of all of them at a time, so that no core waits
 * for the same thing twice. Nothing is looked at that no reference keeps: what is in an entry is only guessed at. */
void resource_fetch_ahead(const struct tensor *const *in, int n) {
  enum { LINE = 64, VARIABLE_LINES = 3 };
  for (int i = 0; i < n; i++) __builtin_prefetch(in[i]);
  for (int i = 0; i < n; i++) __builtin_prefetch(in[i]->data);
  for (int i = 0; i < n; i++) {
    const struct resource_handle *h = resource_handle_of(in[i]);
    if (h) __builtin_prefetch(h), __builtin_prefetch(&h->entry);
  }
  for (int i = 0; i < n; i++) {
    const struct resource_entry *e = entry_of(in[i]);
    if (e) __builtin_prefetch(&e->lock, 1), __builtin_prefetch(&e->r), __builtin_prefetch(&e->type);
  }
  for (int i = 0; i < n; i++) {
    const struct resource_entry *e = entry_of(in[i]);
    const char *r = e ? (const char *)__atomic_load_n(&e->r, __ATOMIC_RELAXED) : NULL;
    for (int k = 0; r && k < VARIABLE_LINES; k++) __builtin_prefetch(r + (ptrdiff_t)k * LINE, 1);
  }
}

/* Handles that came from elsewhere (a feed, another task) know their type by its name only: every entry of that
 * container is asked. Destroying is rare. */
static struct resource_entry *find_by_type_name(struct resource_mgr *m, const struct resource_handle *h) {
  struct text key = {0};
  text_addf(&key, "%s\n%s", h->name, h->type_name);
  pthread_mutex_lock(&m->lock);
  struct container *c = strmap_get(&m->containers, *h->container ? h->container : m->default_container);
  struct resource_entry *e = c ? strmap_get(&c->entries, text_cstr(&key)) : NULL;
  if (e) resource_entry_ref(e);
  pthread_mutex_unlock(&m->lock);
  text_release(&key);
  return e;
}

shoal_status resource_destroy(struct resource_mgr *m, const struct tensor *handle, bool ignore_missing) {
  const struct resource_handle *h = resource_handle_of(handle);
  if (!h) return INVALID("Empty resource handle");
  struct resource_entry *e = __atomic_load_n(&((struct resource_handle *)(uintptr_t)h)->entry, __ATOMIC_ACQUIRE);
  if (e && e->mgr == m->number) resource_entry_ref(e);
  else e = find_by_type_name(m, h);
  struct resource *r = e ? entry_take(e) : NULL;
  bool found = r != NULL;
  resource_unref(r);
  resource_entry_unref(e);
  if (found || ignore_missing) return NULL;
  const char *container = *h->container ? h->container : m->default_container;
  if (!container_exists(m, container)) return NOT_FOUND("Container %s does not exist.", container);
  return NOT_FOUND("Resource %s/%s/<unknown> does not exist.", container, h->name);
}
