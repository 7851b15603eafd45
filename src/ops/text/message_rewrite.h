/* Between message_wire.c and message_text.c: rewriting with the depth it begins at. */
#ifndef OPS_TEXT_MESSAGE_REWRITE_H
#define OPS_TEXT_MESSAGE_REWRITE_H

#include "ops/text/message_wire.h"

/* strict: a field that is not repeated comes once, and one member of a oneof. */
shoal_status message_rewrite_at(const struct message_type *m, struct wire w, bool strict, int depth, struct text *out);

#endif
