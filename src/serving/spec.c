/* See spec.h. */
#include "serving/spec.h"

#include "proto/serving.wire.h"
#include "proto/wrappers.wire.h"

static shoal_status damaged(void) { return INVALID("the request's model_spec does not parse as a protocol buffer"); }

static shoal_status read_version(struct wire w, int64_t *out) {
  struct wire_field f;
  enum wire_step step;
  *out = 0;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD)
    if (f.tag == Int64Value_value) *out = (int64_t)f.value;
  return step == WIRE_BROKEN ? damaged() : NULL;
}

shoal_status model_spec_read(struct wire w, struct model_spec *out) {
  struct wire_field f;
  enum wire_step step;
  *out = (struct model_spec){0};
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    struct chars text = {(const char *)f.data, f.size};
    if (f.tag == ModelSpec_name) out->name = text;
    if (f.tag == ModelSpec_signature_name) out->signature = text;
    if (f.tag == ModelSpec_version_label) {
      out->label = text;
      out->has_version = false;
    }
    if (f.tag == ModelSpec_version) {
      TRY(read_version(wire_inside(&f), &out->version));
      out->has_version = true;
      out->label = (struct chars){0};
    }
  }
  if (step == WIRE_BROKEN) return damaged();
  return out->name.n ? NULL : INVALID("ModelSpec has no name specified.");
}

void model_spec_put(struct text *t, const char *name, int64_t version, const char *signature) {
  put_ModelSpec_name(t, name);
  size_t at = begin_ModelSpec_version(t);
  if (version) put_Int64Value_value(t, version);
  wire_end(t, at);
  if (signature && *signature) put_ModelSpec_signature_name(t, signature);
}
