/* Threads that do one thing together: each is given its number, and all are waited for. The first error is the
 * crew's. */
#ifndef WORD2VEC_CREW_H
#define WORD2VEC_CREW_H

#include "base/status.h"

shoal_status crew_run(int threads, shoal_status (*fn)(void *arg, int number), void *arg);

#endif
