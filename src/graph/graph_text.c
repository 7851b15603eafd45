/* Graphs as text: by way of the binary form, so that there is one importer and one exporter. */
#include <stdlib.h>

#include "base/given.h"
#include "base/mem.h"
#include "graph/import.h"
#include "graph/text_format.h"
#include "proto/graph.pb-c.h"
#include "proto/proto_check.h"
#include "shoal/graph.h"

shoal_status shoal_graph_import_text(shoal_graph *g, const char *text, size_t size, const char *prefix) {
  GIVEN(g);
  GIVEN_ARRAY(text, (int64_t)(size > 0));
  Tensorflow__GraphDef *def;
  TRY(text_format_parse(&tensorflow__graph_def__descriptor, text, size, &def));
  size_t n = tensorflow__graph_def__get_packed_size(def);
  uint8_t *bytes = mem_alloc(n);
  tensorflow__graph_def__pack(def, bytes);
  proto_free(def);
  shoal_status s = shoal_graph_import(g, bytes, n, prefix);
  free(bytes);
  return s;
}

shoal_status shoal_graph_export_text(const shoal_graph *g, shoal_bytes *out) {
  GIVEN(g);
  GIVEN(out);
  *out = (shoal_bytes){0};
  struct text bytes = {0}, text = {0};
  Tensorflow__GraphDef *def = NULL;
  shoal_status s = graph_export(g, NULL, &bytes);
  if (!s) s = proto_unpack(&tensorflow__graph_def__descriptor, bytes.at, bytes.n, &def);
  if (!s) {
    text_format_print(def, &text);
    out->size = text.n;
    out->data = text_take(&text);
  }
  proto_free(def);
  text_release(&bytes);
  return s;
}
