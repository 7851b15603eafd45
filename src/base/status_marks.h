/* Marks of errors that few need; see status.h for the others. */
#ifndef BASE_STATUS_MARKS_H
#define BASE_STATUS_MARKS_H

#include "base/status.h"

/* Marks what a coordination service itself says, not the way to it (travels as a payload on the wire). Returns s. */
shoal_status status_mark_coordination(shoal_status s);
bool status_is_coordination(shoal_status s);
/* Marks what a task was told about its place in a cluster and cannot be: nothing was begun (stays in the process).
 * Returns s. */
shoal_status status_mark_not_begun(shoal_status s);
bool status_is_not_begun(shoal_status s);

#endif
