/* Rows of a traced step, gathered under a lock. */
#include "runtime/step_stats.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"

struct step_stats {
  bool ends;
  pthread_mutex_t lock;
  VEC(struct step_stats_row) rows; /* lock */
};

struct step_stats *step_stats_new(bool ends) {
  struct step_stats *s = mem_zalloc(1, sizeof *s);
  s->ends = ends;
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

void step_stats_free(struct step_stats *s) {
  if (!s) return;
  for (size_t i = 0; i < s->rows.n; i++) {
    free(s->rows.at[i].device);
    free(s->rows.at[i].name);
    free(s->rows.at[i].label);
  }
  vec_release(&s->rows);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static void add(struct step_stats *s, struct step_stats_row row) {
  pthread_mutex_lock(&s->lock);
  vec_push(&s->rows, row);
  pthread_mutex_unlock(&s->lock);
}

static bool is_told(const struct step_stats *s, const char *op) {
  if (*op != '_') return true;
  static const char *const hidden[] = {"_Send", "_Recv", "_HostSend", "_HostRecv", "_DeviceSend", "_DeviceRecv"};
  for (size_t i = 0; i < COUNT_OF(hidden); i++)
    if (!strcmp(op, hidden[i])) return false;
  return s->ends || (strcmp(op, "_Arg") && strcmp(op, "_Retval"));
}

void step_stats_node(struct step_stats *s, const char *device, const struct kernel *k, int64_t start_ns, int64_t end_ns,
                     const struct tensor *out) {
  if (!is_told(s, k->op->name)) return;
  struct step_stats_row row = {.device = mem_strdup(device),
                               .name = mem_strdup(k->name),
                               .label = mem_printf("%s = %s()", k->name, k->op->name),
                               .start_ns = start_ns,
                               .end_ns = end_ns};
  if (k->n_out > 0 && tensor_valid(&out[0])) {
    row.has_output = true;
    row.out_type = (shoal_dtype)out[0].dtype;
    row.out_shape = tensor_shape(&out[0]);
    row.out_bytes = (int64_t)tensor_bytes(&out[0]);
  }
  add(s, row);
}

void step_stats_span(struct step_stats *s, const char *device, const char *name, const char *label, int64_t start_ns,
                     int64_t end_ns, int64_t bytes) {
  add(s, (struct step_stats_row){.device = mem_strdup(device),
                                 .name = mem_strdup(name),
                                 .label = mem_strdup(label),
                                 .start_ns = start_ns,
                                 .end_ns = end_ns,
                                 .out_bytes = bytes,
                                 .has_output = bytes > 0,
                                 .out_shape = shape_unknown()});
}

const struct step_stats_row *step_stats_rows(const struct step_stats *s, size_t *n) {
  *n = s->rows.n;
  return s->rows.at;
}

void step_stats_rename(struct step_stats *s, const char *from, const char *to) {
  size_t n = strlen(from);
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->rows.n; i++) {
    char *device = s->rows.at[i].device;
    if (strncmp(device, from, n) || device[n] != '/') continue;
    s->rows.at[i].device = mem_printf("%s%s", to, device + n);
    free(device);
  }
  pthread_mutex_unlock(&s->lock);
}
