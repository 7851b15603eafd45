/* Where the command begins. `shoal --version` is answered here; for all else the library is loaded, which holds the
 * subcommands too, and its shoal_main() called.
 *
 * The command is not linked to the library because that is linked to OpenBLAS, whose threads and buffers are made as it
 * is loaded: a script that only asks for the version need not wait for them. The library is looked for beside the
 * command and where it was installed. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <shoal/shoal.h>

#include "cli/cli.h"

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--version")) {
    return printf("shoal %s\n", SHOAL_VERSION) < 0 || fflush(stdout) ? EXIT_FAILED : EXIT_OK;
  }
  void *library = dlopen(SHOAL_LIBRARY, RTLD_LAZY | RTLD_GLOBAL);
  int (*run)(int, char **) = NULL;
  if (library) *(void **)&run = dlsym(library, "shoal_main");
  if (!run) {
    fprintf(stderr, "shoal: the library cannot be loaded: %s\n", dlerror());
    return EXIT_FAILED;
  }
  return run(argc, argv);
}
