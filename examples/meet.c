/* Tasks that tell each other something, and meet: values and barriers of the coordination service, which TensorFlow 2's
 * processes share (shoal/coordination.h). Every task tells what it is called, waits until all have, and lists them; the
 * chief cleans up.
 *
 *   shoal launch --ps=0 --workers=3 -- build/examples/meet
 */
#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(shoal_status s) {
  if (!s) return;
  shoal_status_print(s);
  exit(1);
}

int main(void) {
  shoal_cluster *cluster;
  shoal_server *server;
  char key[64], name[64];
  setvbuf(stdout, NULL, _IOLBF, 0);
  check(shoal_cluster_from_config(NULL, &cluster));
  check(shoal_server_start(
      SHOAL_OPTIONS(shoal_server_options, .cluster = shoal_cluster_json(cluster), .job = shoal_cluster_job(cluster),
                    .task = shoal_cluster_task(cluster), .coordination_service = 1),
      &server));

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
