/* StepStats and RunMetadata, written field by field (messages step_stats.proto and config.proto). */
#include "runtime/run_metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/wire.h"
#include "graph/import.h"
#include "proto/config.wire.h"
#include "proto/step_stats.wire.h"
#include "proto/tensor.wire.h"
#include "tensor/tensor_proto.h"

static void encode_output(const struct step_stats_row *r, struct text *out) {
  size_t node_output = begin_NodeExecStats_output(out);
  size_t tensor = begin_NodeOutput_tensor_description(out);
  if (r->out_type) put_TensorDescription_dtype(out, r->out_type);
  struct text shape = {0};
  if (r->out_shape.rank >= 0) {
    shape_proto_encode(&r->out_shape, &shape);
    put_TensorDescription_shape_n(out, shape.at, shape.n);
    text_release(&shape);
  }
  size_t allocation = begin_TensorDescription_allocation_description(out);
  put_AllocationDescription_requested_bytes(out, r->out_bytes);
  put_AllocationDescription_allocator_name(out, "cpu");
  wire_end(out, allocation);
  wire_end(out, tensor);
  wire_end(out, node_output);
}

static void encode_row(const struct step_stats_row *r, struct text *out) {
  int64_t start = r->start_ns / 1000, length = (r->end_ns - r->start_ns + 999) / 1000;
  size_t node = begin_DeviceStepStats_node_stats(out);
  put_NodeExecStats_node_name(out, r->name);
  put_NodeExecStats_all_start_micros(out, start);
  put_NodeExecStats_op_end_rel_micros(out, length);
  put_NodeExecStats_all_end_rel_micros(out, length);
  if (r->has_output) encode_output(r, out);
  put_NodeExecStats_timeline_label(out, r->label);
  put_NodeExecStats_scheduled_micros(out, start);
  put_NodeExecStats_all_start_nanos(out, r->start_ns);
  put_NodeExecStats_op_end_rel_nanos(out, (r->end_ns - r->start_ns));
  put_NodeExecStats_all_end_rel_nanos(out, (r->end_ns - r->start_ns));
  put_NodeExecStats_scheduled_nanos(out, r->start_ns);
  wire_end(out, node);
}

void step_stats_encode(const struct step_stats *s, struct text *out) {
  size_t n;
  const struct step_stats_row *rows = step_stats_rows(s, &n);
  bool *done = mem_zalloc(n, sizeof *done);
  for (size_t i = 0; i < n; i++) {
    if (done[i]) continue;
    size_t device = begin_StepStats_dev_stats(out);
    put_DeviceStepStats_device(out, rows[i].device);
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
    size_t field = begin_RunMetadata_step_stats(&t);
    step_stats_encode(stats, &t);
    wire_end(&t, field);
  }
  for (int i = 0; i < n_parts; i++) {
    struct text part = {0};
    struct export_options o = {.assigned = true};
    shoal_status s = graph_export(parts[i], &o, &part);
    if (!s) put_RunMetadata_partition_graphs_n(&t, part.at, part.n);
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
