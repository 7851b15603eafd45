/* `shoal status TARGET`: what a server is doing. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

#include <shoal/cluster.h>

int status_main(int argc, char **argv) {
  int64_t timeout = 5000;
  struct tls_flags tls = {0};
  const struct flag flags[] = {{"timeout_ms", "N", "give up after this (default 5000)", .number = &timeout},
                               TLS_FLAGS(tls)};
  int code;
  if (!flags_parse("shoal status grpc://HOST:PORT ...", flags, sizeof flags / sizeof *flags, &argc, argv, &code))
    return code;
  if (argc < 2) {
    fprintf(stderr, "shoal: status: which server? `shoal status grpc://127.0.0.1:2222`\n");
    return EXIT_USAGE;
  }
  tls_flags_use(&tls);
  code = EXIT_OK;
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
