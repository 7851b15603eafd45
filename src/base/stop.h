/* Was this process told to stop? See stop.c. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include <stdbool.h>

/* Takes the signals; each begin has its end. */
void stop_signals_take(void);
void stop_signals_leave(void);
bool stop_told(void);
/* Another task was told so. */
void stop_tell(void);

#endif
