/* Resource handles and variants as messages.
 *
 * A variant's type is looked up by its name. One that is not registered here (a dataset on its way through this
 * task, say) is kept as its parts, as TensorFlow keeps it, and written out again unchanged. */
#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/vec.h"
#include "proto/tensor.wire.h"
#include "proto/types.wire.h"
#include "tensor/tensor_proto.h"

/* ---- handles ---- */

static bool take_string(char **to, const struct wire_field *f) {
  char *copy = mem_try_strndup((const char *)f->data, f->size);
  if (!copy) return false;
  free(*to);
  *to = copy;
  return true;
}

shoal_status handle_proto_decode(const void *data, size_t size, struct resource_handle **out) {
  struct resource_handle *h = resource_handle_new("", "", "", "");
  h->hash_code = 0;
  struct wire w = wire_from(data, size);
  struct wire_field f;
  enum wire_step r;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == ResourceHandleProto_hash_code) h->hash_code = f.value;
    char **to = NULL;
    if (f.tag == ResourceHandleProto_device) to = &h->device;
    else if (f.tag == ResourceHandleProto_container) to = &h->container;
    else if (f.tag == ResourceHandleProto_name) to = &h->name;
    else if (f.tag == ResourceHandleProto_maybe_type_name) to = &h->type_name;
    if (!to || take_string(to, &f)) continue;
    resource_handle_unref(h);
    return NO_MEMORY(f.size, "a resource's name");
  }
  if (r == WIRE_BROKEN) {
    resource_handle_unref(h);
    return INVALID("Malformed ResourceHandleProto");
  }
  resource_handle_unref(*out);
  *out = h;
  return NULL;
}

static void put_nonempty(struct text *out, uint32_t tag, const char *s) {
  if (*s) wire_add_str(out, tag, s);
}

void handle_proto_encode(const struct resource_handle *h, struct text *out) {
  put_nonempty(out, ResourceHandleProto_device, h->device);
  put_nonempty(out, ResourceHandleProto_container, h->container);
  put_nonempty(out, ResourceHandleProto_name, h->name);
  if (h->hash_code) put_ResourceHandleProto_hash_code(out, h->hash_code);
  put_nonempty(out, ResourceHandleProto_maybe_type_name, h->type_name);
}

/* ---- types of variants ---- */

static pthread_mutex_t types_lock = PTHREAD_MUTEX_INITIALIZER;
/* Registered while the library is loaded: nothing is allocated that its unloading would lose. */
static struct {
  const struct variant_type *at[64];
  size_t n;
} types; /* types_lock */

void variant_type_register(const struct variant_type *type) {
  pthread_mutex_lock(&types_lock);
  bool known = false;
  for (size_t i = 0; i < types.n; i++) known |= types.at[i] == type;
  if (!known && types.n == sizeof types.at / sizeof *types.at) abort();
  if (!known) types.at[types.n++] = type;
  pthread_mutex_unlock(&types_lock);
}

const struct variant_type *variant_type_find(const char *name, size_t n) {
  const struct variant_type *found = NULL;
  pthread_mutex_lock(&types_lock);
  for (size_t i = 0; i < types.n && !found; i++)
    if (strlen(types.at[i]->name) == n && !memcmp(types.at[i]->name, name, n)) found = types.at[i];
  pthread_mutex_unlock(&types_lock);
  return found;
}

/* A value of a type not known here. */
struct opaque {
  struct variant head;
  struct text type_name, metadata;
  struct tensor *tensors;
  int n_tensors;
};

static void free_tensors(struct tensor *t, int n) {
  for (int i = 0; i < n; i++) tensor_release(&t[i]);
  free(t);
}

static void opaque_free(struct variant *v) {
  struct opaque *o = (struct opaque *)v;
  text_release(&o->type_name);
  text_release(&o->metadata);
  free_tensors(o->tensors, o->n_tensors);
  free(o);
}

static const struct variant_type opaque_type = {.name = "", .free = opaque_free};

static shoal_status make_variant(struct wire name, struct wire metadata, struct tensor *tensors, int n,
                                 struct variant **out) {
  const struct variant_type *type = variant_type_find((const char *)name.at, wire_left(&name));
  if (type && type->decode) {
    shoal_status s = type->decode(metadata.at, wire_left(&metadata), tensors, n, out);
    free_tensors(tensors, n);
    return s;
  }
  struct opaque *o = mem_zalloc(1, sizeof *o);
  variant_init(&o->head, &opaque_type);
  o->tensors = tensors;
  o->n_tensors = n;
  if (!text_try_add(&o->type_name, (const char *)name.at, wire_left(&name)) ||
      !text_try_add(&o->metadata, (const char *)metadata.at, wire_left(&metadata))) {
    variant_unref(&o->head);
    return NO_MEMORY(wire_left(&name) + wire_left(&metadata), "a variant");
  }
  *out = &o->head;
  return NULL;
}

shoal_status variant_proto_decode(struct wire w, size_t *budget, int depth, struct variant **out) {
  if (depth > VARIANT_MAX_DEPTH) return INVALID("Variants are nested more than %d deep", VARIANT_MAX_DEPTH);
  struct wire name = {0}, metadata = {0};
  VEC(struct tensor) tensors = {0};
  struct wire_field f;
  enum wire_step r;
  shoal_status s = NULL;
  while (!s && (r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == VariantTensorDataProto_type_name) name = wire_inside(&f);
    else if (f.tag == VariantTensorDataProto_metadata) metadata = wire_inside(&f);
    else if (f.tag == VariantTensorDataProto_tensors) {
      struct tensor t;
      s = tensor_proto_decode_nested(wire_inside(&f), budget, depth, &t);
      if (!s) vec_push(&tensors, t);
    }
  }
  if (!s && r == WIRE_BROKEN) s = INVALID("Malformed VariantTensorDataProto");
  if (s || (!wire_left(&name) && !tensors.n && !wire_left(&metadata))) {
    free_tensors(tensors.at, (int)tensors.n);
    return s;
  }
  struct variant *v = NULL;
  TRY(make_variant(name, metadata, tensors.at, (int)tensors.n, &v));
  variant_unref(*out);
  *out = v;
  return NULL;
}

static shoal_status put_parts(const char *name, size_t name_n, const struct text *metadata,
                              const struct tensor *tensors, int n, int depth, struct text *out) {
  if (name_n) put_VariantTensorDataProto_type_name_n(out, name, name_n);
  if (metadata->n) put_VariantTensorDataProto_metadata_n(out, metadata->at, metadata->n);
  for (int i = 0; i < n; i++) {
    size_t at = begin_VariantTensorDataProto_tensors(out);
    TRY(tensor_proto_encode_nested(&tensors[i], depth, out));
    wire_end(out, at);
  }
  return NULL;
}

shoal_status variant_proto_encode(const struct variant *v, int depth, struct text *out) {
  if (!v) return NULL;
  if (depth > VARIANT_MAX_DEPTH) return INVALID("Variants are nested more than %d deep", VARIANT_MAX_DEPTH);
  if (v->type == &opaque_type) {
    const struct opaque *o = (const struct opaque *)v;
    return put_parts(o->type_name.at, o->type_name.n, &o->metadata, o->tensors, o->n_tensors, depth, out);
  }
  if (!v->type->encode) return UNIMPLEMENTED("A variant of type %s cannot leave its task", v->type->name);
  struct text metadata = {0};
  struct tensor *tensors = NULL;
  int n = 0;
  TRY(v->type->encode(v, &metadata, &tensors, &n));
  shoal_status s = put_parts(v->type->name, strlen(v->type->name), &metadata, tensors, n, depth, out);
  text_release(&metadata);
  free_tensors(tensors, n);
  return s;
}
