/* Serialized messages field by field, whatever their type; and rewritten as protobuf's own library writes them. */
#ifndef OPS_TEXT_MESSAGE_WIRE_H
#define OPS_TEXT_MESSAGE_WIRE_H

#include "base/text.h"
#include "base/wire.h"
#include "ops/text/message_type.h"

#define LOST(...) STATUS(SHOAL_DATA_LOSS, __VA_ARGS__)

enum { WIRE_GROUP = 3, WIRE_GROUP_END = 4, MESSAGE_MAX_DEPTH = 100 };

struct raw_field {
  uint32_t number;
  int wire;
  const uint8_t *tag, *end; /* all of it */
  uint64_t bits;            /* of numbers */
  struct wire body;         /* of bytes, and of groups without their tags */
};
/* The next field, groups included; WIRE_BROKEN also for an end of a group that did not begin. */
enum wire_step raw_next(struct wire *w, struct raw_field *f);

/* A number as its wire type has it: a varint, eight bytes or four. */
void message_put_bits(struct text *t, int wire, uint64_t bits);

/* The message with known fields in order of their numbers, each as its type says, and all others behind them:
 * DATA_LOSS when it is none, or lacks a required field. */
shoal_status message_rewrite(const struct message_type *m, struct wire w, struct text *out);
/* The same from text. */
shoal_status message_read_text(const struct message_type *m, const char *text, size_t size, struct text *out);

#endif
