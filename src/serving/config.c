/* Reading configurations of models; see config.h. There is one reader, of messages: text becomes a message first. */
#include "serving/config.h"

#include <stdatomic.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/strmap.h"
#include "graph/text_format.h"
#include "proto/proto_check.h"
#include "proto/serving_config.pb-c.h"
#include "proto/serving_config.wire.h"

/* MOST: models, and versions or labels of one. MOST_LISTED: versions and labels of all together, each of which may be
 * two bytes of a request. */
enum { MOST = 10000, MOST_LISTED = 100000, MOST_BYTES = 64 << 20 };

static shoal_status damaged(void) { return INVALID("the configuration of models does not parse as a protocol buffer"); }

static void set_text(char **to, const struct wire_field *f) {
  free(*to);
  *to = mem_strndup((const char *)f->data, f->size);
}

/* ---- versions ---- */

static shoal_status add_version(struct model_config *m, uint64_t v) {
  if (m->versions.n == MOST) return INVALID("more than %d versions", MOST);
  vec_push(&m->versions, (int64_t)v);
  return NULL;
}

static shoal_status read_specific(struct model_config *m, struct wire w) {
  struct wire_field f;
  enum wire_step step;
  m->policy = VERSIONS_SPECIFIC;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == FileSystemStoragePathSourceConfig_ServableVersionPolicy_Specific_versions)
      TRY(add_version(m, f.value));
    if (f.tag != FileSystemStoragePathSourceConfig_ServableVersionPolicy_Specific_versions_packed) continue;
    struct wire list = wire_inside(&f);
    for (uint64_t v; wire_left(&list);) {
      if (!wire_get_varint(&list, &v)) return damaged();
      TRY(add_version(m, v));
    }
  }
  return step == WIRE_BROKEN ? damaged() : NULL;
}

static shoal_status read_latest(struct model_config *m, struct wire w) {
  struct wire_field f;
  enum wire_step step;
  m->policy = VERSIONS_LATEST;
  m->latest = 1;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD)
    if (f.tag == FileSystemStoragePathSourceConfig_ServableVersionPolicy_Latest_num_versions && (uint32_t)f.value)
      m->latest = (uint32_t)f.value;
  return step == WIRE_BROKEN ? damaged() : NULL;
}

static shoal_status read_policy(struct model_config *m, struct wire w) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) switch (f.tag) {
      case FileSystemStoragePathSourceConfig_ServableVersionPolicy_latest: TRY(read_latest(m, wire_inside(&f))); break;
      case FileSystemStoragePathSourceConfig_ServableVersionPolicy_all: m->policy = VERSIONS_ALL; break;
      case FileSystemStoragePathSourceConfig_ServableVersionPolicy_specific:
        TRY(read_specific(m, wire_inside(&f)));
        break;
    }
  return step == WIRE_BROKEN ? damaged() : NULL;
}

static shoal_status read_label(struct model_config *m, struct wire w) {
  struct wire_field f;
  enum wire_step step;
  if (m->labels.n == MOST) return INVALID("more than %d labels", MOST);
  vec_push(&m->labels, (struct version_label){.name = mem_strdup("")});
  struct version_label *l = &vec_last(&m->labels);
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == ModelConfig_VersionLabelsEntry_key) set_text(&l->name, &f);
    if (f.tag == ModelConfig_VersionLabelsEntry_value) l->version = (int64_t)f.value;
  }
  return step == WIRE_BROKEN ? damaged() : NULL;
}

/* ---- models ---- */

static struct model_config *add_model(struct models_config *c, const char *name, const char *base_path) {
  vec_push(&c->models,
           (struct model_config){.name = mem_strdup(name), .base_path = mem_strdup(base_path), .latest = 1});
  return &vec_last(&c->models);
}

/* One of the two says it, as TensorFlow Serving has it; model_type is the older. */
static shoal_status check_platform(uint64_t type, const char *platform) {
  if (type && *platform) return INVALID("model_type (deprecated) and model_platform are both set");
  if (type && type != ModelType_TENSORFLOW) return INVALID("model_type is not TENSORFLOW");
  if (*platform && strcmp(platform, "tensorflow")) return INVALID("model_platform is not \"tensorflow\"");
  return NULL;
}

/* Of any configuration: whoever may reload them does not fill the log. */
static void warn_of_logging(void) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&told)) LOGW("logging_config of models is left aside: requests are not logged");
}

static shoal_status read_fields(struct model_config *m, struct wire w) {
  struct wire_field f;
  enum wire_step step;
  uint64_t type = 0;
  char *platform = mem_strdup("");
  shoal_status s = NULL;
  while (!s && (step = wire_next(&w, &f)) == WIRE_FIELD) switch (f.tag) {
      case ModelConfig_name: set_text(&m->name, &f); break;
      case ModelConfig_base_path: set_text(&m->base_path, &f); break;
      case ModelConfig_model_version_policy: s = read_policy(m, wire_inside(&f)); break;
      case ModelConfig_version_labels: s = read_label(m, wire_inside(&f)); break;
      case ModelConfig_model_type: type = f.value; break;
      case ModelConfig_model_platform: set_text(&platform, &f); break;
      case ModelConfig_logging_config: warn_of_logging(); break;
    }
  if (!s) s = step == WIRE_BROKEN ? damaged() : check_platform(type, platform);
  free(platform);
  return s;
}

static shoal_status check_model(const struct model_config *m, struct strmap *names) {
  if (!*m->name) return INVALID("it has no name");
  if (!*m->base_path) return INVALID("it has no base_path");
  if (strmap_has(names, m->name)) return INVALID("there are two models of that name");
  strmap_put(names, m->name, m->name);
  return NULL;
}

static shoal_status count(struct models_config *c, size_t *listed, const struct model_config *m, struct wire w) {
  *listed += m->versions.n + m->labels.n;
  c->bytes += sizeof *m + wire_left(&w) + m->versions.n * sizeof(int64_t) + m->labels.n * 64;
  return *listed > MOST_LISTED ? INVALID("more than %d versions and labels in all", MOST_LISTED) : NULL;
}

static shoal_status read_model(struct models_config *c, size_t *listed, struct strmap *names, struct wire w) {
  if (c->models.n == MOST) return INVALID("more than %d models", MOST);
  struct model_config *m = add_model(c, "", "");
  shoal_status s = read_fields(m, w);
  if (!s) s = check_model(m, names);
  if (!s) s = count(c, listed, m, w);
  return status_prefix(s, "model %zu of model_config_list, '%s': ", c->models.n, m->name);
}

void models_config_one(struct models_config *c, const char *name, const char *base_path) {
  *c = (struct models_config){0};
  add_model(c, name, base_path);
}

shoal_status models_config_read(struct models_config *c, struct wire w) {
  struct wire list;
  struct wire_field f;
  enum wire_step step;
  struct strmap names = {0};
  size_t listed = 0;
  shoal_status s = NULL;
  *c = (struct models_config){0};
  if (!find_ModelServerConfig_model_config_list(w, &list))
    return INVALID("the configuration of models has no model_config_list");
  while (!s && (step = wire_next(&list, &f)) == WIRE_FIELD)
    if (f.tag == ModelConfigList_config) s = read_model(c, &listed, &names, wire_inside(&f));
  strmap_release(&names);
  if (s) return s;
  return step == WIRE_BROKEN ? damaged() : NULL;
}

/* Text as a message. */
static shoal_status pack(const char *text, size_t n, uint8_t **data, size_t *size) {
  Tensorflow__Serving__ModelServerConfig *m;
  TRY(text_format_parse(&tensorflow__serving__model_server_config__descriptor, text, n, &m));
  *size = tensorflow__serving__model_server_config__get_packed_size(m);
  *data = mem_alloc(*size + 1);
  tensorflow__serving__model_server_config__pack(m, *data);
  proto_free(m);
  return NULL;
}

shoal_status models_config_read_file(struct models_config *c, const char *path) {
  char *text;
  size_t n, size = 0;
  uint8_t *data = NULL;
  *c = (struct models_config){0};
  TRY(file_read(path, MOST_BYTES, &text, &n));
  shoal_status s = pack(text, n, &data, &size);
  if (!s) s = models_config_read(c, wire_from(data, size));
  free(text);
  free(data);
  return status_prefix(s, "%s: ", path);
}

void model_config_release(struct model_config *m) {
  for (size_t i = 0; i < m->labels.n; i++) free(m->labels.at[i].name);
  vec_release(&m->labels);
  vec_release(&m->versions);
  free(m->name);
  free(m->base_path);
}

void models_config_release(struct models_config *c) {
  for (size_t i = 0; i < c->models.n; i++) model_config_release(&c->models.at[i]);
  vec_release(&c->models);
}
