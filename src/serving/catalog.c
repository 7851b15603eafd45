/* See catalog.h.
 *
 * The table of models changes on the catalog's thread alone, and under the lock; that thread reads it without, and
 * loads with no lock held. Requests take the lock for as long as it takes to find a version. */
#include "serving/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/file.h"
#include "base/file_root.h"
#include "base/log.h"
#include "base/strmap.h"
#include "proto/serving.wire.h"
#include "serving/batch.h"
#include "serving/warmup.h"

/* ENDED: so many versions that are gone are told of. */
enum { POLL_MS = 1000, RETRIES = 5, RETRY_MS = 60000, ENDED = 32 };

struct version {
  int64_t number;
  int state;                 /* ModelVersionStatus_State */
  struct servable *servable; /* when it is available */
  shoal_status why;          /* why it could not be loaded */
  int tries;
  int64_t again; /* when it is tried again */
};

struct served_model {
  struct model_config config;
  VEC(struct version) versions; /* by number, the newest first */
  bool kept;                    /* while a configuration is taken: it is in it */
  bool missing;                 /* it was said that there are no versions */
  shoal_status unreadable;      /* the thread's: why its folder cannot be read; NULL: it can */
};

struct reload {
  struct models_config config;
  bool (*is_gone)(void *arg);
  void (*done)(void *arg, shoal_status s);
  void *arg;
  struct reload *next;
};

struct catalog {
  struct catalog_options o;
  pthread_t thread;
  bool has_thread;
  pthread_mutex_t lock;
  pthread_cond_t news;
  struct strmap models;   /* lock: name -> struct served_model * */
  struct reload *reloads; /* lock: first come, first */
  bool stopping;          /* lock */
  int64_t reread_at;      /* the thread's: when the file is looked at again */
  uint64_t config_hash;   /* the thread's: of its text as it was last read; 0: it could not be */
};

/* A version's number and the name of its folder. */
struct version_folder {
  int64_t number;
  const char *name;
};
typedef VEC(struct version_folder) found_list;

static bool is_stopping(struct catalog *c) {
  pthread_mutex_lock(&c->lock);
  bool stopping = c->stopping;
  pthread_mutex_unlock(&c->lock);
  return stopping;
}

/* ---- one version ---- */

static struct version *find_version(const struct served_model *m, int64_t number) {
  for (size_t i = 0; i < m->versions.n; i++)
    if (m->versions.at[i].number == number) return &m->versions.at[i];
  return NULL;
}

/* Call with the lock held. */
static struct version *add_version(struct served_model *m, int64_t number) {
  size_t at = 0;
  while (at < m->versions.n && m->versions.at[at].number > number) at++;
  vec_push(&m->versions, (struct version){0});
  memmove(&m->versions.at[at + 1], &m->versions.at[at], (m->versions.n - 1 - at) * sizeof *m->versions.at);
  m->versions.at[at] = (struct version){.number = number, .state = ModelVersionStatus_State_START};
  return &m->versions.at[at];
}

static void load(struct catalog *c, struct served_model *m, struct version *v, const char *folder) {
  char *dir = mem_printf("%s/%s", m->config.base_path, folder);
  struct servable *made = NULL;
  pthread_mutex_lock(&c->lock);
  v->state = ModelVersionStatus_State_LOADING;
  pthread_mutex_unlock(&c->lock);
  shoal_status s = servable_load(m->config.name, v->number, dir, &c->o.session, &made);
  if (!s && c->o.batching) made->batcher = batcher_new(c->o.batching);
  if (!s) s = warmup(made, dir);
  if (s) {
    servable_unref(made);
    made = NULL;
  }
  if (s) LOGE("model '%s', version %" PRId64 ": %s", m->config.name, v->number, shoal_status_message(s));
  else LOGI("model '%s': version %" PRId64 " is served", m->config.name, v->number);
  pthread_mutex_lock(&c->lock);
  shoal_status before = v->why;
  v->why = s;
  v->servable = made;
  v->state = s ? ModelVersionStatus_State_END : ModelVersionStatus_State_AVAILABLE;
  v->tries = s ? v->tries + 1 : 0;
  v->again = clock_ns() + c->o.retry_ms * 1000000;
  pthread_mutex_unlock(&c->lock);
  shoal_status_free(before);
  free(dir);
}

/* Is it to be loaded now? One that was dropped, and is wanted again, is. */
static bool is_due(const struct catalog *c, const struct version *v) {
  if (v->state == ModelVersionStatus_State_START) return true;
  if (v->state != ModelVersionStatus_State_END) return false;
  return !v->why || (v->tries <= c->o.max_retries && clock_ns() >= v->again);
}

static void drop(struct catalog *c, struct served_model *m, struct version *v) {
  pthread_mutex_lock(&c->lock);
  struct servable *gone = v->servable;
  v->servable = NULL;
  v->state = ModelVersionStatus_State_END;
  pthread_mutex_unlock(&c->lock);
  if (gone) LOGI("model '%s': version %" PRId64 " is dropped", m->config.name, v->number);
  servable_unref(gone);
}

static bool is_listed(const found_list *wanted, int64_t number) {
  for (size_t i = 0; i < wanted->n; i++)
    if (wanted->at[i].number == number) return true;
  return false;
}

/* Those that are gone are not told of for ever. One that is wanted, and failed, is: it would be new at the next look.
 */
static void forget(struct catalog *c, struct served_model *m, const found_list *wanted) {
  pthread_mutex_lock(&c->lock);
  size_t ended = 0, kept = 0;
  for (size_t i = 0; i < m->versions.n; i++) {
    struct version *v = &m->versions.at[i];
    bool gone = v->state == ModelVersionStatus_State_END && !is_listed(wanted, v->number);
    if (gone && ++ended > ENDED) shoal_status_free(v->why);
    else m->versions.at[kept++] = *v;
  }
  m->versions.n = kept;
  pthread_mutex_unlock(&c->lock);
}

/* ---- one model ---- */

static int newest_first(const void *a, const void *b) {
  int64_t x = ((const struct version_folder *)a)->number, y = ((const struct version_folder *)b)->number;
  return (x < y) - (x > y);
}

/* The folders whose names are numbers. */
static shoal_status look(const struct served_model *m, struct path_list *names, found_list *out) {
  TRY(directory_list(m->config.base_path, names));
  for (size_t i = 0; i < names->paths.n; i++) {
    const char *name = names->paths.at[i];
    int64_t number;
    if (name[strspn(name, "0123456789")] || !str_to_int64(name, &number)) continue;
    char *path = mem_printf("%s/%s", m->config.base_path, name);
    if (file_is_directory(path)) vec_push(out, (struct version_folder){number, name});
    free(path);
  }
  if (out->n) qsort(out->at, out->n, sizeof *out->at, newest_first);
  return NULL;
}

static bool is_wanted(const struct model_config *m, const found_list *there, size_t i) {
  if (i && there->at[i].number == there->at[i - 1].number) return false; /* "1" and "01" */
  if (m->policy == VERSIONS_LATEST) return (int64_t)i < m->latest;
  if (m->policy == VERSIONS_ALL) return true;
  for (size_t k = 0; k < m->versions.n; k++)
    if (m->versions.at[k] == there->at[i].number) return true;
  return false;
}

static void load_wanted(struct catalog *c, struct served_model *m, const found_list *wanted) {
  for (size_t i = 0; i < wanted->n && !is_stopping(c); i++) {
    struct version *v = find_version(m, wanted->at[i].number);
    if (!v) {
      pthread_mutex_lock(&c->lock);
      v = add_version(m, wanted->at[i].number);
      pthread_mutex_unlock(&c->lock);
    }
    if (is_due(c, v)) load(c, m, v, wanted->at[i].name);
  }
}

/* While none of the wanted ones can be served the others are. */
static void drop_unwanted(struct catalog *c, struct served_model *m, const found_list *wanted) {
  bool served = !wanted->n;
  for (size_t i = 0; i < wanted->n && !served; i++) {
    const struct version *v = find_version(m, wanted->at[i].number);
    served = v && v->servable;
  }
  for (size_t i = 0; i < m->versions.n && served; i++) {
    struct version *v = &m->versions.at[i];
    if (v->servable && !is_listed(wanted, v->number)) drop(c, m, v);
  }
  forget(c, m, wanted);
}

/* The folder has a model itself, where folders of versions are looked for. */
static bool is_version(const char *base) {
  char *packed = mem_printf("%s/saved_model.pb", base), *text = mem_printf("%s/saved_model.pbtxt", base);
  bool is = file_exists(packed) || file_exists(text);
  free(packed);
  free(text);
  return is;
}

/* any: there are versions, but none that is wanted. */
static void say_missing(struct served_model *m, shoal_status why, bool any) {
  if (!m->missing && why) LOGW("model '%s': %s", m->config.name, shoal_status_message(why));
  else if (!m->missing && !any && is_version(m->config.base_path))
    LOGW("model '%s': %s is a version itself; what is served is the folder that versions are in, which are numbers",
         m->config.name, m->config.base_path);
  else if (!m->missing && any)
    LOGW("model '%s': none of the versions that model_version_policy names is in %s", m->config.name,
         m->config.base_path);
  else if (!m->missing)
    LOGW("model '%s': no versions in %s: a version is a folder whose name is a number", m->config.name,
         m->config.base_path);
  m->missing = true;
  shoal_status_free(why);
}

static void look_after(struct catalog *c, struct served_model *m) {
  struct path_list names = {0};
  found_list there = {0}, wanted = {0};
  shoal_status s = look(m, &names, &there);
  shoal_status_free(m->unreadable);
  m->unreadable = status_copy(s);
  for (size_t i = 0; i < there.n; i++)
    if (is_wanted(&m->config, &there, i)) vec_push(&wanted, there.at[i]);
  if (s || !wanted.n) say_missing(m, status_copy(s), there.n > 0);
  else m->missing = false;
  if (!s) {
    load_wanted(c, m, &wanted);
    drop_unwanted(c, m, &wanted);
  }
  shoal_status_free(s);
  vec_release(&there);
  vec_release(&wanted);
  path_list_release(&names);
}

static void model_free(struct served_model *m) {
  for (size_t i = 0; i < m->versions.n; i++) {
    servable_unref(m->versions.at[i].servable);
    shoal_status_free(m->versions.at[i].why);
  }
  vec_release(&m->versions);
  shoal_status_free(m->unreadable);
  model_config_release(&m->config);
  free(m);
}

/* ---- all models ---- */

static void look_after_all(struct catalog *c) {
  const char *name;
  void *m;
  for (size_t i = 0; strmap_next(&c->models, &i, &name, &m) && !is_stopping(c);) look_after(c, m);
}

/* Puts a configuration's models in the place of those that are there; what is in both keeps its versions. */
static void take_config(struct catalog *c, struct models_config *config) {
  VEC(struct served_model *) gone = {0};
  const char *name;
  void *at;
  pthread_mutex_lock(&c->lock);
  for (size_t i = 0; i < config->models.n; i++) {
    struct model_config *mine = &config->models.at[i];
    struct served_model *m = strmap_get(&c->models, mine->name);
    if (!m) strmap_put(&c->models, mine->name, m = mem_zalloc(1, sizeof *m));
    else model_config_release(&m->config);
    m->config = *mine;
    m->kept = true;
    m->missing = false;
  }
  for (size_t i = 0; strmap_next(&c->models, &i, &name, &at);) {
    struct served_model *m = at;
    if (!m->kept) vec_push(&gone, m);
    m->kept = false;
  }
  for (size_t i = 0; i < gone.n; i++) strmap_remove(&c->models, gone.at[i]->config.name);
  pthread_mutex_unlock(&c->lock);
  vec_release(&config->models); /* what was in it is the models' */
  for (size_t i = 0; i < gone.n; i++) model_free(gone.at[i]);
  vec_release(&gone);
}

static bool is_served(const struct served_model *m) {
  for (size_t i = 0; i < m->versions.n; i++)
    if (m->versions.at[i].servable) return true;
  return false;
}

/* What TensorFlow Serving says of models that are not served after a configuration was taken; and labels must be of
 * versions that are. A model whose folder cannot be read is none that became available, whatever versions of another
 * folder are still served: TensorFlow Serving answers nothing then, and waits. */
static shoal_status check_served(struct catalog *c) {
  struct text t = {0}, why = {0};
  int n = 0;
  const char *name;
  void *at;
  for (size_t i = 0; strmap_next(&c->models, &i, &name, &at);) {
    const struct served_model *m = at;
    if (m->unreadable)
      text_addf(&why, "; Could not find base path %s for servable %s with error %s", m->config.base_path, name,
                shoal_status_message(m->unreadable));
    if (!is_served(m) || m->unreadable) {
      text_addf(&t, "%s{name: %s}", n++ ? ", " : "", name);
      for (size_t k = 0; k < m->versions.n; k++)
        if (m->versions.at[k].why) text_addf(&t, " due to error: %s", shoal_status_message(m->versions.at[k].why));
    }
    for (size_t k = 0; k < m->config.labels.n && !n; k++) {
      const struct version_label *l = &m->config.labels.at[k];
      const struct version *v = find_version(m, l->version);
      if (v && v->servable) continue;
      text_release(&t);
      text_release(&why);
      return STATUS(SHOAL_FAILED_PRECONDITION,
                    "Request to assign label '%s' to version %" PRId64
                    " of model %s, which is not currently available for inference",
                    l->name, l->version, name);
    }
  }
  shoal_status s =
      n ? STATUS(SHOAL_UNKNOWN, "%d servable(s) did not become available: {%s}%s", n, text_cstr(&t), text_cstr(&why))
        : NULL;
  text_release(&t);
  text_release(&why);
  return s;
}

static struct reload *next_reload(struct catalog *c) {
  pthread_mutex_lock(&c->lock);
  struct reload *r = c->reloads;
  if (r) c->reloads = r->next;
  pthread_mutex_unlock(&c->lock);
  return r;
}

static void end_reload(struct reload *r, shoal_status s) {
  r->done(r->arg, s);
  models_config_release(&r->config);
  free(r);
}

static struct reload *next_wanted_reload(struct catalog *c) {
  struct reload *r;
  while ((r = next_reload(c)) && r->is_gone(r->arg))
    end_reload(r, STATUS(SHOAL_CANCELLED, "nobody waits for the answer"));
  return r;
}

/* False: it is over. */
static bool wait_for_news(struct catalog *c) {
  int64_t until = clock_ns() + c->o.poll_ms * 1000000;
  pthread_mutex_lock(&c->lock);
  while (!c->stopping && !c->reloads && cond_wait_until(&c->news, &c->lock, until)) continue;
  bool on = !c->stopping;
  pthread_mutex_unlock(&c->lock);
  return on;
}

static shoal_status hash_config(const struct catalog *c, uint64_t *out) {
  char *text;
  size_t n;
  TRY(file_read(c->o.config_file, 0, &text, &n));
  *out = hash_bytes(text, n, 0);
  free(text);
  return NULL;
}

/* Another configuration, where the file has changed; true: it is taken. One that cannot be read is told of once, and
 * changes nothing. */
static bool reread_config(struct catalog *c) {
  struct models_config config = {0};
  uint64_t hash = 0;
  if (!c->o.config_file || clock_ns() < c->reread_at) return false;
  c->reread_at = clock_ns() + c->o.config_poll_ms * 1000000;
  shoal_status s = hash_config(c, &hash);
  if (hash == c->config_hash) {
    shoal_status_free(s);
    return false;
  }
  c->config_hash = hash;
  if (!s) s = models_config_read_file(&config, c->o.config_file);
  if (!s) take_config(c, &config);
  else LOGE("--model_config_file: %s", shoal_status_message(s));
  bool taken = !s;
  models_config_release(&config);
  shoal_status_free(s);
  return taken;
}

/* What became of a configuration of the file. */
static void tell_config(struct catalog *c) {
  shoal_status s = check_served(c);
  if (s) LOGE("--model_config_file: %s", shoal_status_message(s));
  shoal_status_free(s);
}

static void *attend(void *arg) {
  struct catalog *c = arg;
  pthread_setname_np(pthread_self(), "shoal-models");
  file_roots_use(NULL);
  while (wait_for_news(c)) {
    struct reload *r = next_wanted_reload(c);
    bool reread = !r && reread_config(c);
    if (r) take_config(c, &r->config);
    look_after_all(c);
    if (r) end_reload(r, check_served(c));
    if (reread) tell_config(c);
  }
  for (struct reload *r; (r = next_reload(c));) end_reload(r, STATUS(SHOAL_UNAVAILABLE, "the server is stopping"));
  return NULL;
}

void catalog_reload(struct catalog *c, struct models_config *config, bool (*is_gone)(void *arg),
                    void (*done)(void *arg, shoal_status s), void *arg) {
  struct reload *r = mem_zalloc(1, sizeof *r), **end;
  *r = (struct reload){.config = *config, .is_gone = is_gone, .done = done, .arg = arg};
  *config = (struct models_config){0};
  pthread_mutex_lock(&c->lock);
  bool stopping = c->stopping;
  for (end = &c->reloads; *end;) end = &(*end)->next;
  if (!stopping) *end = r;
  pthread_cond_broadcast(&c->news);
  pthread_mutex_unlock(&c->lock);
  if (stopping) end_reload(r, STATUS(SHOAL_UNAVAILABLE, "the server is stopping"));
}

/* Not one of several models is served, and it is not for want of versions. */
static shoal_status check_start(const struct catalog *c) {
  shoal_status why = NULL;
  const char *name;
  void *at;
  for (size_t i = 0; strmap_next(&c->models, &i, &name, &at);) {
    const struct served_model *m = at;
    if (is_served(m)) {
      shoal_status_free(why);
      return NULL;
    }
    for (size_t k = 0; k < m->versions.n && !why; k++) why = status_copy(m->versions.at[k].why);
  }
  return why;
}

shoal_status catalog_new(struct models_config *config, const struct catalog_options *o, struct catalog **out) {
  struct catalog *c = mem_zalloc(1, sizeof *c);
  c->o = *o;
  if (!c->o.poll_ms) c->o.poll_ms = POLL_MS;
  if (c->o.max_retries < 0) c->o.max_retries = RETRIES;
  if (!c->o.retry_ms) c->o.retry_ms = RETRY_MS;
  pthread_mutex_init(&c->lock, NULL);
  cond_init(&c->news);
  take_config(c, config);
  look_after_all(c);
  if (c->o.config_file) shoal_status_free(hash_config(c, &c->config_hash));
  shoal_status s = check_start(c);
  int err = s ? 0 : pthread_create(&c->thread, NULL, attend, c);
  if (err) s = ERRNO_STATUS(err, "no thread for models");
  c->has_thread = !s;
  if (s) catalog_free(c);
  else *out = c;
  return s;
}

void catalog_free(struct catalog *c) {
  if (!c) return;
  pthread_mutex_lock(&c->lock);
  c->stopping = true;
  pthread_cond_broadcast(&c->news);
  pthread_mutex_unlock(&c->lock);
  if (c->has_thread) pthread_join(c->thread, NULL);
  const char *name;
  void *m;
  for (size_t i = 0; strmap_next(&c->models, &i, &name, &m);) model_free(m);
  strmap_release(&c->models);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->news);
  free(c);
}

/* ---- finding ---- */

static struct served_model *find_model(const struct catalog *c, struct chars name) {
  return name.n && !slice_has_nul(name) ? strmap_getn(&c->models, name.at, name.n) : NULL;
}

static const struct version_label *find_label(const struct served_model *m, struct chars label) {
  for (size_t i = 0; i < m->config.labels.n; i++)
    if (slice_is(label, m->config.labels.at[i].name)) return &m->config.labels.at[i];
  return NULL;
}

static shoal_status no_servable(const struct model_spec *spec, bool latest, int64_t version) {
  if (latest) return NOT_FOUND("Servable not found for request: Latest(%s)", SLICE_CSTR(spec->name));
  return NOT_FOUND("Servable not found for request: Specific(%s, %" PRId64 ")", SLICE_CSTR(spec->name), version);
}

/* Call with the lock held. */
static shoal_status find(const struct catalog *c, const struct model_spec *spec, struct servable **out) {
  const struct served_model *m = find_model(c, spec->name);
  bool latest = !spec->has_version && !spec->label.at;
  int64_t version = spec->version;
  if (spec->label.at) {
    const struct version_label *l = m ? find_label(m, spec->label) : NULL;
    if (!l) return INVALID("Unrecognized servable version label: %s", SLICE_CSTR(spec->label));
    version = l->version;
  }
  for (size_t i = 0; m && i < m->versions.n; i++) {
    const struct version *v = &m->versions.at[i];
    if (!v->servable || (!latest && v->number != version)) continue;
    *out = servable_ref(v->servable);
    return NULL;
  }
  return no_servable(spec, latest, version);
}

shoal_status catalog_find(struct catalog *c, const struct model_spec *spec, struct servable **out) {
  pthread_mutex_lock(&c->lock);
  shoal_status s = find(c, spec, out);
  pthread_mutex_unlock(&c->lock);
  return s;
}

/* Call with the lock held. */
static shoal_status tell(const struct catalog *c, const struct model_spec *spec,
                         void (*each)(void *arg, const struct version_status *v), void *arg) {
  const struct served_model *m = find_model(c, spec->name);
  const struct version_label *l = m && spec->label.at ? find_label(m, spec->label) : NULL;
  if (spec->label.at && !l) return INVALID("Unrecognized servable version label: %s", SLICE_CSTR(spec->label));
  bool all = !spec->has_version && !l;
  int64_t version = l ? l->version : spec->version;
  int told = 0;
  for (size_t i = 0; m && i < m->versions.n; i++) {
    const struct version *v = &m->versions.at[i];
    if (!all && v->number != version) continue;
    each(arg, &(struct version_status){v->number, v->state, v->why ? shoal_status_code(v->why) : SHOAL_OK,
                                       v->why ? shoal_status_message(v->why) : ""});
    told++;
  }
  if (told) return NULL;
  if (all) return NOT_FOUND("Could not find any versions of model %s", SLICE_CSTR(spec->name));
  return NOT_FOUND("Could not find version %" PRId64 " of model %s", version, SLICE_CSTR(spec->name));
}

shoal_status catalog_status(struct catalog *c, const struct model_spec *spec,
                            void (*each)(void *arg, const struct version_status *v), void *arg) {
  pthread_mutex_lock(&c->lock);
  shoal_status s = tell(c, spec, each, arg);
  pthread_mutex_unlock(&c->lock);
  return s;
}
