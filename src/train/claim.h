/* A folder of checkpoints belongs to one run at a time: who saves there holds it. */
#ifndef TRAIN_CLAIM_H
#define TRAIN_CLAIM_H

#include <stdbool.h>

#include "base/status.h"

struct claim;
/* Waits a little for whoever is just going; then it is FAILED_PRECONDITION, with the process that has the folder where
 * that can be told. *out is NULL where the file system knows no locks. give_up (or NULL) ends the wait. */
shoal_status claim_take(const char *folder, bool (*give_up)(void), struct claim **out);
void claim_free(struct claim *c);
/* Does anybody save there now? */
bool claim_is_held(const char *folder);

#endif
