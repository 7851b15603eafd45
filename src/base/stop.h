/* Was this process told to stop? See stop.c. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include <stdbool.h>

#include "base/status.h"

/* Takes the signals; each begin has its end. */
void stop_signals_take(void);
void stop_signals_leave(void);
bool stop_told(void);
/* Another task was told so. */
void stop_tell(void);
/* What may have no end of its own, as the search for a dataset's next element, ends now, with what stop_why() says. */
void stop_hurry(void);
bool stop_hurried(void);
shoal_status stop_why(void);

#endif
