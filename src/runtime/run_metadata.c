/* StepStats and RunMetadata, written field by field (messages step_stats.proto and config.proto). */
#include "runtime/run_metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/wire.h"
#include "graph/import.h"
#include "tensor/tensor_proto.h"

static void encode_output(const struct step_stats_row *r, struct text *out) {
  size_t node_output = wire_begin(out, 7);
  size_t tensor = wire_begin(out, 3);
  if (r->out_type) wire_put_uint(out, 1, (uint64_t)r->out_type);
  struct text shape = {0};
  if (r->out_shape.rank >= 0) {
    shape_proto_encode(&r->out_shape, &shape);
    wire_put_text(out, 2, &shape);
    text_release(&shape);
  }
  size_t allocation = wire_begin(out, 4);
  wire_put_uint(out, 1, (uint64_t)r->out_bytes);
  wire_put_str(out, 3, "cpu");
  wire_end(out, allocation);
  wire_end(out, tensor);
  wire_end(out, node_output);
}

static void encode_row(const struct step_stats_row *r, struct text *out) {
  int64_t start = r->start_ns / 1000, length = (r->end_ns - r->start_ns + 999) / 1000;
  size_t node = wire_begin(out, 2);
  wire_put_str(out, 1, r->name);
  wire_put_uint(out, 2, (uint64_t)start);
  wire_put_uint(out, 4, (uint64_t)length);
  wire_put_uint(out, 5, (uint64_t)length);
  if (r->has_output) encode_output(r, out);
  wire_put_str(out, 8, r->label);
  wire_put_uint(out, 9, (uint64_t)start);
  wire_put_uint(out, 13, (uint64_t)r->start_ns);
  wire_put_uint(out, 15, (uint64_t)(r->end_ns - r->start_ns));
  wire_put_uint(out, 16, (uint64_t)(r->end_ns - r->start_ns));
  wire_put_uint(out, 17, (uint64_t)r->start_ns);
  wire_end(out, node);
}

void step_stats_encode(const struct step_stats *s, struct text *out) {
  size_t n;
  const struct step_stats_row *rows = step_stats_rows(s, &n);
  bool *done = mem_zalloc(n, sizeof *done);
  for (size_t i = 0; i < n; i++) {
    if (done[i]) continue;
    size_t device = wire_begin(out, 1);
    wire_put_str(out, 1, rows[i].device);
    for (size_t k = i; k < n; k++) {
      if (done[k] || strcmp(rows[k].device, rows[i].device)) continue;
      encode_row(&rows[k], out);
      done[k] = true;
    }
    wire_end(out, device);
  }
  free(done);
}

shoal_status run_metadata_encode(const struct step_stats *stats, struct shoal_graph *const *parts, int n_parts,
                                 shoal_bytes *out) {
  struct text t = {0};
  if (stats) {
    size_t field = wire_begin(&t, 1);
    step_stats_encode(stats, &t);
    wire_end(&t, field);
  }
  for (int i = 0; i < n_parts; i++) {
    struct text part = {0};
    struct export_options o = {.assigned = true};
    shoal_status s = graph_export(parts[i], &o, &part);
    if (!s) wire_put_text(&t, 3, &part);
    text_release(&part);
    if (s) {
      text_release(&t);
      return s;
    }
  }
  size_t n = t.n;
  *out = (shoal_bytes){text_take(&t), n};
  return NULL;
}
