#include "shoal/version.h"

const char *shoal_version(void) { return SHOAL_VERSION; }

int shoal_version_number(void) { return SHOAL_VERSION_NUMBER; }
