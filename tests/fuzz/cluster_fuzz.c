/* Descriptions of clusters from anyone: flags, TF_CONFIG, a ClusterDef in a request. Each is taken, and then is in
 * order, or refused by name. The first byte chooses the form. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cluster/cluster_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  struct cluster_spec c = {0};
  char *job = NULL;
  int task = 0;
  /* In braces: what does not begin so is the name of a file. */
  char *text = mem_printf("{%.*s", (int)(size - 1), (const char *)data + 1);
  shoal_status s = NULL;
  if (data[0] % 4 == 0) s = cluster_spec_from_json(&c, "--cluster_spec", text);
  else if (data[0] % 4 == 1) s = cluster_spec_from_tf_config(&c, "TF_CONFIG", text, &job, &task);
  else if (data[0] % 4 == 2) s = cluster_spec_from_proto(&c, data + 1, size - 1, 1000);
  else s = cluster_spec_add_hosts(&c, "--ps_hosts", "ps", text + 1);
  if (!s) s = cluster_spec_check(&c);
  if (s && !shoal_status_message(s)[0]) abort();
  for (size_t i = 0; !s && i < c.jobs.n; i++)
    for (size_t k = 0; k < c.jobs.at[i].tasks.n; k++) {
      const char *address = NULL;
      shoal_status found = cluster_spec_task(&c, c.jobs.at[i].name, c.jobs.at[i].tasks.at[k].index, &address);
      if (found || strcmp(address, c.jobs.at[i].tasks.at[k].address) != 0) abort();
    }
  shoal_status_free(s);
  free(text);
  free(job);
  cluster_spec_release(&c);
  return 0;
}
