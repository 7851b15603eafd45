/* GraphDef from anyone: importing gives a graph or a named error; a graph that was taken can be exported, and what was
 * exported can be imported again. The first byte chooses between the binary and the text form. */
#include <stdint.h>
#include <stdlib.h>

#include <shoal/graph.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  shoal_graph *g = shoal_graph_new();
  shoal_status s = data[0] & 1 ? shoal_graph_import_text(g, (const char *)data + 1, size - 1, NULL)
                               : shoal_graph_import(g, data + 1, size - 1, NULL);
  if (s) {
    if (shoal_status_message(s)[0] == 0) abort();
    shoal_status_free(s);
    shoal_graph_free(g);
    return 0;
  }
  shoal_bytes out;
  s = shoal_graph_export(g, &out);
  if (s) abort();
  shoal_graph *again = shoal_graph_new();
  s = shoal_graph_import(again, out.data, out.size, NULL);
  if (s) abort();
  shoal_bytes_free(&out);
  shoal_graph_free(again);
  shoal_graph_free(g);
  return 0;
}
