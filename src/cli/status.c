/* `shoal status TARGET...`: what servers are doing. `shoal status --cluster_spec=...`: all tasks of a cluster in a
 * table. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

#include <shoal/cluster.h>

int status_main(int argc, char **argv) {
  int64_t timeout = 5000;
  const char *cluster = NULL;
  struct tls_flags tls = {0};
  const struct flag flags[] = {
      {"cluster_spec", "JSON|FILE", "all tasks of this cluster", .text = &cluster},
      {"timeout_ms", "N", "give up after this (default 5000)", .number = &timeout, .min = 1, .max = 3600000},
      TLS_FLAGS(tls)};
  int code;
  if (!flags_parse("shoal status (grpc://HOST:PORT ... | --cluster_spec=JSON|FILE)", flags,
                   sizeof flags / sizeof *flags, &argc, argv, &code))
    return code;
  if (argc < 2 && !cluster) {
    fprintf(stderr, "shoal: status: which server? `shoal status grpc://127.0.0.1:2222`, or give --cluster_spec\n");
    return EXIT_USAGE;
  }
  tls_flags_use(&tls);
  code = EXIT_OK;
  if (cluster) {
    char *table = NULL;
    shoal_status s = shoal_cluster_status(cluster, timeout, &table);
    if (table) fputs(table, stdout);
    if (s) code = report(s);
    free(table);
  }
  for (int i = 1; i < argc; i++) {
    char *text = NULL;
    shoal_status s = shoal_server_remote_status(argv[i], timeout, &text);
    if (s) {
      code = report(s);
      continue;
    }
    fputs(text, stdout);
    free(text);
  }
  return code;
}
