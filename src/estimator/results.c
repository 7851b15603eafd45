/* What evaluations found: numbers by name, written into event files and read again from them. Who decides by results
 * (early stopping, the best exporter) reads files: the evaluator is another process, and a run that was begun again
 * knows what the one before had found. */
#include "estimator/estimator.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/wire.h"
#include "data/record.h"
#include "proto/event.wire.h"
#include "tensor/strings.h"

void results_put(struct shoal_results *r, const char *name, double value) {
  for (size_t i = 0; i < r->all.n; i++)
    if (!strcmp(r->all.at[i].name, name)) {
      r->all.at[i].value = value;
      return;
    }
  vec_push(&r->all, (struct result_row){mem_strdup(name), value});
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const struct result_row *)a)->name, ((const struct result_row *)b)->name);
}

shoal_status results_write(struct shoal_results *r, const char *dir, int64_t step) {
  qsort(r->all.at, r->all.n, sizeof *r->all.at, by_name);
  shoal_events *events;
  TRY(shoal_events_open(dir, &events));
  shoal_status s = NULL;
  for (size_t i = 0; i < r->all.n && !s; i++)
    if (strcmp(r->all.at[i].name, "global_step"))
      s = shoal_events_scalar(events, step, r->all.at[i].name, (float)r->all.at[i].value);
  shoal_status closed = shoal_events_close(events);
  status_merge(&s, closed);
  return s;
}

void shoal_results_free(shoal_results *r) {
  if (!r) return;
  for (size_t i = 0; i < r->all.n; i++) free(r->all.at[i].name);
  vec_release(&r->all);
  free(r);
}
int shoal_results_count(const shoal_results *r) { return (int)r->all.n; }
const char *shoal_results_name(const shoal_results *r, int i) {
  return i >= 0 && (size_t)i < r->all.n ? r->all.at[i].name : NULL;
}
static const struct result_row *find_row(const struct shoal_results *r, const char *name) {
  for (size_t i = 0; name && i < r->all.n; i++)
    if (!strcmp(r->all.at[i].name, name)) return &r->all.at[i];
  return NULL;
}
bool results_has(const struct shoal_results *r, const char *name) { return find_row(r, name) != NULL; }
double shoal_results_value(const shoal_results *r, const char *name) {
  const struct result_row *row = find_row(r, name);
  return row ? row->value : NAN;
}

/* ---- reading ---- */

typedef void value_fn(void *arg, int64_t step, double value);

static void read_value(struct wire w, const char *tag, int64_t step, value_fn *fn, void *arg) {
  struct wire_field f;
  bool is = false, has = false;
  float value = 0;
  while (wire_next(&w, &f) == WIRE_FIELD) {
    if (f.tag == Summary_Value_tag) is = f.size == strlen(tag) && !memcmp(f.data, tag, f.size);
    if (f.tag == Summary_Value_simple_value) {
      value = wire_float(&f);
      has = true;
    }
  }
  if (is && has) fn(arg, step, (double)value);
}

static void read_event(const struct text *record, const char *tag, value_fn *fn, void *arg) {
  struct wire w = wire_from(record->at, record->n), summary;
  struct wire_field f;
  int64_t step = 0;
  while (wire_next(&w, &f) == WIRE_FIELD)
    if (f.tag == Event_step) step = (int64_t)f.value;
  if (!find_Event_summary(wire_from(record->at, record->n), &summary)) return;
  while (wire_next(&summary, &f) == WIRE_FIELD)
    if (f.tag == Summary_value) read_value(wire_inside(&f), tag, step, fn, arg);
}

/* What is cut off at its end is being written, or was when its writer went: what is before it counts. */
static void read_file(const char *path, const char *tag, value_fn *fn, void *arg) {
  struct record_reader r;
  struct text record = {0};
  shoal_status s = record_reader_open(&r, path, RECORD_PLAIN);
  if (!s) {
    while (!(s = record_read(&r, &record))) read_event(&record, tag, fn, arg);
    record_reader_close(&r);
  }
  shoal_status_free(s);
  counted_text_release(&record);
}

shoal_status results_read(const char *dir, const char *tag, value_fn *fn, void *arg) {
  struct path_list files = {0};
  char *pattern = mem_printf("%s/events.out.tfevents.*", dir);
  shoal_status s = file_is_directory(dir) ? file_glob(pattern, &files) : NULL;
  free(pattern);
  if (!s) path_list_sort(&files);
  for (size_t i = 0; !s && i < files.paths.n; i++) read_file(files.paths.at[i], tag, fn, arg);
  path_list_release(&files);
  return s;
}
