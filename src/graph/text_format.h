/* Protocol buffers as text: what .pbtxt files and the `checkpoint` state file hold.
 *
 *   node {
 *     name: "x"
 *     attr { key: "dtype" value { type: DT_FLOAT } }
 *   }
 *
 * Works on any generated message through its descriptor. */
#ifndef GRAPH_TEXT_FORMAT_H
#define GRAPH_TEXT_FORMAT_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

enum { TEXT_FORMAT_MAX_DEPTH = 100 };

/* A new message in *out (a pointer to a message pointer), freed with proto_free (proto/proto_check.h). Errors say
 * "LINE:COLUMN: ...", both counted from 1. */
shoal_status text_format_parse(const ProtobufCMessageDescriptor *d, const char *text, size_t size, void *out);
/* Appends msg, which has been unpacked or parsed, or is nested no deeper than such a one. */
void text_format_print(const void *msg, struct text *out);

#endif
