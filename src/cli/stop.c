/* `shoal stop TARGET...` or `shoal stop --cluster_spec=...`: ends servers from outside. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

#include <shoal/cluster.h>

int stop_main(int argc, char **argv) {
  int64_t timeout = 5000;
  const char *cluster = NULL;
  struct tls_flags tls = {0};
  const struct flag flags[] = {
      {"cluster_spec", "JSON|FILE", "stop every task of this cluster", .text = &cluster},
      {"timeout_ms", "N", "give up on a server after this (default 5000)", .number = &timeout, .min = 1,
       .max = 3600000},
      TLS_FLAGS(tls),
  };
  int code;
  if (!flags_parse("shoal stop (grpc://HOST:PORT ... | --cluster_spec=JSON|FILE)", flags, sizeof flags / sizeof *flags,
                   &argc, argv, &code))
    return code;
  if (argc < 2 && !cluster) {
    fprintf(stderr,
            "shoal: stop: name a server (grpc://127.0.0.1:2222) or give --cluster_spec; a job of `shoal launch` is "
            "stopped by Ctrl-C, or by SIGTERM to its process, which `shoal status` names\n");
    return EXIT_USAGE;
  }
  tls_flags_use(&tls);
  code = EXIT_OK;
  if (cluster) {
    shoal_status s = shoal_cluster_stop(cluster, timeout);
    if (s) code = report(s);
  }
  for (int i = 1; i < argc; i++) {
    shoal_status s = shoal_server_remote_stop(argv[i], timeout);
    if (s) code = report(s);
  }
  return code;
}
