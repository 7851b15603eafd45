/* Tasks that tell each other something, and meet: values and barriers of the coordination service, which TensorFlow 2's
 * processes share (shoal/coordination.h). Every task tells what it is called, waits until all have, and lists them; the
 * chief cleans up.
 *
 *   shoal launch --ps=0 --workers=3 -- build/examples/meet
 */
#include <unistd.h>

#include "common.h"

int main(int argc, char **argv) {
  struct cluster_flags where = {.coordination = true};
  char key[64], name[64];
  const struct flag flags[] = {CLUSTER_FLAGS(where), flags_end()};
  read_flags(argc, argv, "meet: tasks tell each other what they are called, and meet", flags);
  shoal_cluster *cluster = find_cluster(&where);
  if (!cluster)
    refuse(
        "nobody to meet: TF_CONFIG (shoal launch --ps=0 --workers=3 -- meet), or --worker_hosts and --job_name, say "
        "who");
  shoal_server *server = start_server(cluster, &where);

  snprintf(key, sizeof key, "names/%s/%d", shoal_cluster_job(cluster), shoal_cluster_task(cluster));
  snprintf(name, sizeof name, "process %d", (int)getpid());
  check(shoal_coordination_set(server, key, name, strlen(name)));
  check(shoal_coordination_barrier(server, "all have told", 60000, NULL, 0));

  shoal_value_list all;
  check(shoal_coordination_list(server, "names", &all));
  for (int i = 0; i < all.n; i++)
    printf("%s is %.*s\n", all.keys[i], (int)all.values[i].size, (const char *)all.values[i].data);
  shoal_value_list_free(&all);

  /* The leader has the values: nobody leaves while another may still ask. */
  check(shoal_coordination_barrier(server, "all have read", 60000, NULL, 0));
  if (shoal_cluster_is_chief(cluster)) check(shoal_coordination_delete(server, "names"));
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return 0;
}
