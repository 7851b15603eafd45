/* ConfigProto; see session_config.h. */
#include "runtime/session_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/named.h"
#include "proto/config.wire.h"

enum { MAX_FILTERS = 100000 }; /* as many as a cluster may have tasks */
enum { MAX_THREADS = 4096 };

void session_config_release(struct session_config *c) {
  for (size_t i = 0; i < c->filters.n; i++) free(c->filters.at[i]);
  vec_release(&c->filters);
}

void graph_options_read(struct session_config *c, struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == GraphOptions_build_cost_model) c->cost_every = (int64_t)f.value;
    if (f.tag != GraphOptions_rewrite_options) continue;
    struct wire rewriter = wire_inside(&f);
    for (struct wire_field k; wire_next(&rewriter, &k) == WIRE_FIELD;)
      if (k.tag == RewriterConfig_disable_meta_optimizer) c->as_is = k.value != 0;
  }
}

void session_config_ask(struct session_config *c, const struct device_type *type, int n) {
  int i = 0;
  while (i < c->n_devices && strcmp(c->devices[i].type, type->name) != 0) i++;
  if (i == MAX_DEVICE_TYPES) return;
  c->devices[i] = (struct device_count){type->name, n};
  c->n_devices = MAX(c->n_devices, i + 1);
}

/* An entry of device_count. */
static void read_count(struct session_config *c, struct wire w) {
  char name[64] = "";
  int count = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == ConfigProto_DeviceCountEntry_key)
      snprintf(name, sizeof name, "%.*s", (int)MIN(f.size, sizeof name - 1), (const char *)f.data);
    if (f.tag == ConfigProto_DeviceCountEntry_value) count = (int)f.value;
  }
  const struct device_type *type = count ? device_type_find(name) : device_type_named(name);
  if (type) session_config_ask(c, type, count);
}

shoal_status session_config_add_virtual(struct device_options *o, double mb) {
  if (o->n_virtual == MOST_VIRTUAL) return INVALID("virtual_devices: more than %d of them", MOST_VIRTUAL);
  if (!(mb >= 1 && mb < 1e9)) return INVALID("virtual_devices: memory_limit_mb is %g", mb);
  o->virtual_devices[o->n_virtual++] = (struct virtual_device){o->n_cards - 1, (int64_t)(mb * (1 << 20))};
  return NULL;
}

shoal_status session_config_read_virtual(const char *what, const char *text, struct device_options *o) {
  o->n_cards = 1;
  for (const char *at = text; *at;) {
    char *end = (char *)at;
    double mb = *at == ',' ? 0 : strtod(at, &end);
    if ((end == at && *at != ',') || (*end && !strchr(",+", *end)) || (*end == '+' && strchr(",+", end[1])))
      return INVALID("%s=%s: expected megabytes, as in 1024+1024,4096", what, text);
    if (end != at) TRY(status_prefix(session_config_add_virtual(o, mb), "%s=%s: ", what, text));
    if (*end == ',') o->n_cards++;
    at = end + (*end != 0);
  }
  return NULL;
}

/* One card's: the limits of its devices; a card without any is whole. */
static shoal_status read_virtual(struct device_options *o, struct wire w) {
  o->n_cards++;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == GPUOptions_Experimental_VirtualDevices_memory_limit_mb)
      TRY(session_config_add_virtual(o, wire_float(&f)));
    if (f.tag != GPUOptions_Experimental_VirtualDevices_memory_limit_mb_packed) continue;
    for (size_t at = 0; f.size - at >= sizeof(float); at += sizeof(float)) {
      float mb;
      memcpy(&mb, f.data + at, sizeof mb);
      TRY(session_config_add_virtual(o, mb));
    }
  }
  return NULL;
}

static shoal_status read_visible(struct device_options *o, const struct wire_field *f) {
  if (f->size >= VISIBLE_TEXT) return INVALID("visible_device_list: more than %d characters", VISIBLE_TEXT - 1);
  snprintf(o->visible, sizeof o->visible, "%.*s", (int)f->size, (const char *)f->data);
  return NULL;
}

static shoal_status read_gpu_options(struct device_options *o, struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == GPUOptions_per_process_gpu_memory_fraction) o->memory_fraction = wire_double(&f);
    if (f.tag == GPUOptions_allow_growth) o->allow_growth = f.value != 0;
    if (f.tag == GPUOptions_visible_device_list) TRY(read_visible(o, &f));
    if (f.tag != GPUOptions_experimental) continue;
    struct wire inside = wire_inside(&f);
    for (struct wire_field k; wire_next(&inside, &k) == WIRE_FIELD;)
      if (k.tag == GPUOptions_Experimental_virtual_devices) TRY(read_virtual(o, wire_inside(&k)));
  }
  return NULL;
}

static shoal_status read_filter(struct session_config *c, const struct wire_field *f) {
  if (c->filters.n == MAX_FILTERS)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "device_filters: more than %d of them", MAX_FILTERS);
  vec_push(&c->filters, mem_strndup((const char *)f->data, f->size));
  return NULL;
}

static shoal_status read_leader(struct session_config *c, const struct wire_field *f) {
  if (f->size >= sizeof c->leader || memchr(f->data, 0, f->size))
    return INVALID("collective_group_leader: no name of a task: it has %zu characters", f->size);
  snprintf(c->leader, sizeof c->leader, "%.*s", (int)f->size, (const char *)f->data);
  return NULL;
}

char *session_config_leader(struct wire w) {
  struct wire experimental;
  char *leader = NULL;
  if (!find_ConfigProto_experimental(w, &experimental)) return NULL;
  for (struct wire_field f; wire_next(&experimental, &f) == WIRE_FIELD;) {
    if (f.tag != ConfigProto_Experimental_collective_group_leader || !f.size) continue;
    free(leader);
    leader = mem_strndup((const char *)f.data, f.size);
  }
  return leader;
}

void session_config_write_leader(const char *leader, struct text *out) {
  size_t experimental = begin_ConfigProto_experimental(out);
  put_ConfigProto_Experimental_collective_group_leader(out, leader);
  wire_end(out, experimental);
}

static shoal_status read_experimental(struct session_config *c, struct wire w) {
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == ConfigProto_Experimental_share_session_state_in_clusterspec_propagation)
      c->shared_state = f.value != 0;
    if (f.tag == ConfigProto_Experimental_collective_group_leader) TRY(read_leader(c, &f));
    if (f.tag == ConfigProto_Experimental_collective_nccl) c->device_options.across = f.value != 0;
  }
  return NULL;
}

shoal_status session_config_read(struct session_config *c, struct wire w) {
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag == ConfigProto_intra_op_parallelism_threads) c->intra_threads = (int)f.value;
    if (f.tag == ConfigProto_inter_op_parallelism_threads) c->inter_threads = (int)f.value;
    if (f.tag == ConfigProto_allow_soft_placement) c->soft_placement = f.value != 0;
    if (f.tag == ConfigProto_log_device_placement) c->log_placement = f.value != 0;
    if (f.tag == ConfigProto_use_per_session_threads) c->own_threads |= f.value != 0;
    if (f.tag == ConfigProto_operation_timeout_in_ms) c->operation_timeout_ms = (int64_t)f.value;
    if (f.tag == ConfigProto_isolate_session_state) c->isolated = f.value != 0;
    if (f.tag == ConfigProto_device_count) read_count(c, wire_inside(&f));
    if (f.tag == ConfigProto_gpu_options) TRY(read_gpu_options(&c->device_options, wire_inside(&f)));
    if (f.tag == ConfigProto_device_filters) TRY(read_filter(c, &f));
    if (f.tag == ConfigProto_graph_options) graph_options_read(c, wire_inside(&f));
    if (f.tag == ConfigProto_session_inter_op_thread_pool) c->inter_pools++, c->own_threads = true;
    if (f.tag == ConfigProto_cluster_def) c->cluster_def = wire_inside(&f);
    if (f.tag == ConfigProto_experimental) TRY(read_experimental(c, wire_inside(&f)));
  }
  return step == WIRE_BROKEN ? INVALID("ConfigProto does not parse as a protocol buffer") : NULL;
}

/* For programs that have no ConfigProto; one that speaks of its cards' memory has the word. */
static shoal_status read_environment(struct device_options *o) {
  const char *text = getenv("SHOAL_VIRTUAL_DEVICES");
  if (!text || !*text || o->n_cards || o->memory_fraction > 0) return NULL;
  return session_config_read_virtual("SHOAL_VIRTUAL_DEVICES", text, o);
}

int session_config_count(const struct device_type *type) {
  struct device_options o = {0};
  int cards[MOST_CARDS], all = 0;
  shoal_status wrong = read_environment(&o); /* whoever opens a session is told */
  shoal_status_free(wrong);
  int n = device_cards(type, &o, -1, cards);
  for (int card = 0; card < n; card++) {
    int parts = 0;
    for (int i = 0; i < o.n_virtual; i++) parts += o.virtual_devices[i].card == card;
    all += MAX(parts, 1);
  }
  return all;
}

/* What is promised of devices by collective_nccl is there, or it is told. */
static shoal_status check_across(const struct device_options *o) {
  for (const struct device_type *const *t = device_types; *t && o->across; t++) {
    bool used = !(*t)->host && device_type_find((*t)->name) == *t && (*t)->count(-1) > 0;
    const char *why = used && (*t)->why_apart ? (*t)->why_apart() : NULL;
    if (why) return UNIMPLEMENTED("config.experimental.collective_nccl: %s", why);
  }
  return NULL;
}

shoal_status session_config_check(struct session_config *c) {
  TRY(read_environment(&c->device_options));
  TRY(check_across(&c->device_options));
  for (int i = 0; i < c->n_devices; i++) {
    const struct device_count *d = &c->devices[i];
    int least = device_type_named(d->type)->host;
    if (d->n < least || d->n > SESSION_MAX_DEVICES)
      return INVALID("a session has %d to %d %s devices, not %d", least, SESSION_MAX_DEVICES, d->type, d->n);
  }
  if (c->inter_threads > MAX_THREADS || c->intra_threads > MAX_THREADS)
    return INVALID("%d and %d threads were asked for; the most is %d", c->inter_threads, c->intra_threads, MAX_THREADS);
  return device_options_check(&c->device_options, c->devices, c->n_devices);
}

void session_config_write(const shoal_session_options *o, struct text *out) {
  if (o->config_size) text_add(out, o->config, o->config_size);
  if (o->allow_soft_placement) put_ConfigProto_allow_soft_placement(out, true);
  if (o->log_device_placement) put_ConfigProto_log_device_placement(out, true);
  if (o->operation_timeout_ms > 0) put_ConfigProto_operation_timeout_in_ms(out, o->operation_timeout_ms);
  for (const char *const *f = o->device_filters; f && *f; f++) session_config_add_filter(*f, out);
  if (o->isolate_session_state) put_ConfigProto_isolate_session_state(out, true);
  if (!o->rewrites_off || !*o->rewrites_off) return;
  size_t graph_options = begin_ConfigProto_graph_options(out), rewriter = begin_GraphOptions_rewrite_options(out);
  put_RewriterConfig_disable_meta_optimizer(out, true);
  wire_end(out, rewriter);
  wire_end(out, graph_options);
}

void session_config_add_filter(const char *filter, struct text *out) { put_ConfigProto_device_filters(out, filter); }

void session_config_write_counts(const struct device_count *counts, int n, struct text *out) {
  for (int i = 0; i < n; i++) {
    size_t entry = begin_ConfigProto_device_count(out);
    put_ConfigProto_DeviceCountEntry_key(out, counts[i].type);
    put_ConfigProto_DeviceCountEntry_value(out, counts[i].n);
    wire_end(out, entry);
  }
}

/* Of the cards in their order: the megabytes of their devices. */
static void write_virtual(const struct device_options *o, struct text *out) {
  size_t experimental = begin_GPUOptions_experimental(out);
  for (int card = 0; card < o->n_cards; card++) {
    size_t devices = begin_GPUOptions_Experimental_virtual_devices(out);
    for (int i = 0; i < o->n_virtual; i++) {
      const struct virtual_device *d = &o->virtual_devices[i];
      if (d->card == card)
        put_GPUOptions_Experimental_VirtualDevices_memory_limit_mb(out, (float)((double)d->memory / (1 << 20)));
    }
    wire_end(out, devices);
  }
  wire_end(out, experimental);
}

void session_config_write_devices(const struct device_options *o, struct text *out) {
  size_t options = begin_ConfigProto_gpu_options(out);
  if (o->memory_fraction > 0) put_GPUOptions_per_process_gpu_memory_fraction(out, o->memory_fraction);
  if (o->visible[0]) put_GPUOptions_visible_device_list(out, o->visible);
  if (o->n_cards) write_virtual(o, out);
  if (o->allow_growth) put_GPUOptions_allow_growth(out, true);
  wire_end(out, options);
}
