/* A folder for the files of a test program: made before its tests, and dropped with all in it after them. */
#ifndef UNIT_FOLDER_H
#define UNIT_FOLDER_H

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "unit.h"

static char folder[] = "/tmp/shoal_unit_test.XXXXXX";

/* For cmocka_run_group_tests. */
static int make_dir(void **state) { return mkdtemp(folder) ? 0 : -1; }

static int drop_dir(void **state) {
  char *command = mem_printf("rm -rf '%s'", folder);
  int rc = system(command);
  free(command);
  return rc;
}

/* A path in it; the caller frees it. */
static char *in_dir(const char *name) { return mem_printf("%s/%s", folder, name); }

#endif
