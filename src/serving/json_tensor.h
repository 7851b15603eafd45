/* Tensors as JSON, as TensorFlow Serving's REST has them: requests in rows ("instances") or columns ("inputs"), answers
 * likewise ("predictions", "outputs"). Its words in errors, too. */
#ifndef SERVING_JSON_TENSOR_H
#define SERVING_JSON_TENSOR_H

#include "serving/json.h"
#include "serving/query.h"

enum json_format { JSON_ROWS, JSON_COLUMNS };

/* Values for q's inputs from the body of a request, which has been checked and is an object of n bytes. */
shoal_status json_read_inputs(struct query *q, json_value document, size_t n, enum json_format *format);
/* One tensor of that type, of a value that is somewhere in a text of n bytes. */
shoal_status json_read_tensor(json_value v, size_t n, shoal_dtype dtype, const struct unpack_room *room,
                              struct tensor *out);
/* How much of an answer that is being written has been counted: it is before it is there, in steps. */
struct json_room {
  const struct unpack_room *room;
  size_t counted;
};
/* May it become n bytes longer, and a bit? */
shoal_status json_room_for(struct json_room *r, const struct text *out, size_t n);
/* The answers, as the request came; counted in q's room as they are written. */
shoal_status json_write_answers(const struct query *q, enum json_format format, struct text *out);

/* { "b64": "..." }? And what it holds, appended. */
bool json_is_base64(json_value v);
shoal_status json_base64(json_value v, struct text *out);
/* A number so that it is read back as the same; NaN, Infinity. */
void json_write_float(struct text *out, float v);
void json_write_double(struct text *out, double v);
/* n bytes of UTF-8 as a string, with its quotes. */
void json_write_string(struct text *out, const char *s, size_t n);
/* Any bytes, as { "b64": "..." }. */
void json_write_base64(struct text *out, const char *s, size_t n);

#endif
