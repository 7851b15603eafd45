/* `shoal`: finds the subcommand and runs it. Part of the library; start.c says why. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "cli/cli.h"

static const struct subcommand subcommands[] = {
    {"server", "run one task of a cluster, in place of tf.train.Server", server_main},
    {"status", "show what a server is doing and what its steps wait for", status_main, .prints = true},
    {"stop", "end a server, or all servers of a cluster", stop_main},
    {"devices", "list the devices of this machine, or of servers and their clusters", devices_main, .prints = true},
    {"launch", "run a program as a whole cluster, on this machine or on several", launch_main},
    {"tfrecord", "print, count, check and make files of records", tfrecord_main, .prints = true},
    {"saved_model", "show SavedModels and run them", saved_model_main, .prints = true},
    {"serve", "answer requests to models, in place of TensorFlow Serving", serve_main},
    {"word2vec", "make vectors of the words of a text, and ask for the nearest", word2vec_main},
    {"bench", "measure what processes of this host do together", bench_main, .prints = true},
};

static void help(FILE *out) {
  fprintf(out, "usage: shoal SUBCOMMAND [--flag=value ...]\n\n");
  for (size_t i = 0; i < COUNT_OF(subcommands); i++)
    fprintf(out, "  %-11s %s\n", subcommands[i].name, subcommands[i].summary);
  fprintf(out, "\n`shoal SUBCOMMAND --help` lists a subcommand's flags; `shoal --version` tells the version.\n");
}

/* "help launch" is "launch --help". */
static void help_last(int argc, char **argv) {
  memmove(argv + 1, argv + 2, (size_t)(argc - 2) * sizeof *argv);
  argv[argc - 1] = (char *)(uintptr_t) "--help";
}

/* The exit code of what is there to print: on a full disk it has failed. */
static int printed(int code) {
  if (!fflush(stdout) && !ferror(stdout)) return code;
  fprintf(stderr, "shoal: standard output cannot be written: is the disk full?\n");
  return code == EXIT_OK ? EXIT_FAILED : code;
}

/* A command that was started with a standard stream closed would print into the next file or connection it opens. */
static void keep_standard_streams(void) {
  for (int fd = 0; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
}

int shoal_main(int argc, char **argv) {
  keep_standard_streams();
  if (argc < 2) {
    help(stderr);
    return EXIT_USAGE;
  }
  if (argc > 2 && !strcmp(argv[1], "help")) help_last(argc, argv);
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
    help(stdout);
    return printed(EXIT_OK);
  }
  if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
    printf("shoal %s\n", SHOAL_VERSION);
    return printed(EXIT_OK);
  }
  for (size_t i = 0; i < COUNT_OF(subcommands); i++)
    if (!strcmp(argv[1], subcommands[i].name)) {
      int code = subcommands[i].run(argc - 1, argv + 1);
      return subcommands[i].prints ? printed(code) : code;
    }
  const char *meant =
      suggest_name(argv[1], strlen(argv[1]), &subcommands->name, COUNT_OF(subcommands), sizeof *subcommands);
  fprintf(stderr, "shoal: there is no subcommand \"%s\"; ", argv[1]);
  if (meant) fprintf(stderr, "did you mean \"%s\"?\n", meant);
  else fprintf(stderr, "`shoal --help` lists them\n");
  return EXIT_USAGE;
}
