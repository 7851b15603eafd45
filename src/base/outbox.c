/* The outbox of a thread; see outbox.h. */
#include "base/outbox.h"

__thread struct outbox *outbox;
