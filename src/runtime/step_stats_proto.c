/* Rows of a traced step as NodeExecStats, grouped by device. */
#include "runtime/step_stats_proto.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "base/wire.h"
#include "tensor/tensor_proto.h"

static void put_output(const struct step_stats_row *r, struct text *out) {
  size_t output = wire_begin(out, 7);
  size_t tensor = wire_begin(out, 3);
  wire_put_uint(out, 1, (uint64_t)r->out_type);
  size_t shape = wire_begin(out, 2);
  shape_proto_encode(&r->out_shape, out);
  wire_end(out, shape);
  size_t allocation = wire_begin(out, 4);
  wire_put_uint(out, 1, (uint64_t)r->out_bytes);
  wire_put_str(out, 3, "cpu");
  wire_end(out, allocation);
  wire_end(out, tensor);
  wire_end(out, output);
}

static void put_row(const struct step_stats_row *r, struct text *out) {
  uint64_t start = (uint64_t)r->start_ns, took = (uint64_t)(r->end_ns - r->start_ns);
  uint64_t took_us = took / 1000 ? took / 1000 : 1;
  wire_put_str(out, 1, r->name);
  wire_put_uint(out, 2, start / 1000);
  wire_put_uint(out, 4, took_us);
  wire_put_uint(out, 5, took_us);
  if (r->has_output) put_output(r, out);
  wire_put_str(out, 8, r->label);
  wire_put_uint(out, 9, start / 1000);
  wire_put_uint(out, 13, start);
  wire_put_uint(out, 15, took);
  wire_put_uint(out, 16, took);
  wire_put_uint(out, 17, start);
}

void step_stats_encode(const struct step_stats *s, struct text *out) {
  size_t n;
  const struct step_stats_row *rows = step_stats_rows(s, &n);
  VEC(const char *) devices = {0}; /* few: a task's own */
  for (size_t i = 0; i < n; i++) {
    bool known = false;
    for (size_t k = 0; k < devices.n && !known; k++) known = !strcmp(devices.at[k], rows[i].device);
    if (!known) vec_push(&devices, rows[i].device);
  }
  for (size_t d = 0; d < devices.n; d++) {
    size_t device = wire_begin(out, 1);
    wire_put_str(out, 1, devices.at[d]);
    for (size_t i = 0; i < n; i++) {
      if (strcmp(rows[i].device, devices.at[d])) continue;
      size_t node = wire_begin(out, 2);
      put_row(&rows[i], out);
      wire_end(out, node);
    }
    wire_end(out, device);
  }
  vec_release(&devices);
}
