/* Subcommands that do several things: `shoal NAME ACTION ...`. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static void help(FILE *out, const struct subcommand *actions, size_t n, const char *name, const char *takes) {
  fprintf(out, "usage: shoal %s ACTION %s\n\n", name, takes);
  for (size_t i = 0; i < n; i++) fprintf(out, "  %-10s %s\n", actions[i].name, actions[i].summary);
  fprintf(out, "\n`shoal %s ACTION --help` lists an action's flags.\n", name);
}

int actions_main(const struct subcommand *actions, size_t n, const char *takes, int argc, char **argv) {
  for (size_t i = 0; argc > 1 && i < n; i++)
    if (!strcmp(argv[1], actions[i].name)) return actions[i].run(argc - 1, argv + 1);
  bool asked = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
  if (argc > 1 && !asked) fprintf(stderr, "shoal: %s: there is no action \"%s\"\n", argv[0], argv[1]);
  help(asked ? stdout : stderr, actions, n, argv[0], takes);
  return asked ? EXIT_OK : EXIT_USAGE;
}
