/* JSON in place: checked once as a whole, then walked without a tree of it.
 *
 * What TensorFlow Serving's parser takes beside JSON is taken: NaN, Infinity, -Infinity, Inf. */
#ifndef SERVING_JSON_H
#define SERVING_JSON_H

#include "base/status.h"
#include "base/text.h"
#include "graph/node_def.h"

enum { JSON_MAX_DEPTH = 64 };
enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* INVALID_ARGUMENT "JSON Parse error: ... at offset: N". The functions below want a text that passed. */
shoal_status json_check(const char *text, size_t n);

/* A value: its first character. The text ends behind all that is walked. */
typedef const char *json_value;

json_value json_first(const char *text);
enum json_type json_type_of(json_value v);
const char *json_type_name(enum json_type t); /* "Null", "Array", ... */
/* What follows it. */
const char *json_end(json_value v);

/* for (struct json_walk w = json_inside(v); json_next(&w, &key, &value);): of objects and arrays (key NULL then). */
struct json_walk {
  const char *at;
  char close;
};
struct json_walk json_inside(json_value v);
bool json_next(struct json_walk *w, json_value *key, json_value *value);
int64_t json_count(json_value v);
/* The last member of that name; NULL: there is none. */
json_value json_member(json_value object, const char *name);

/* A string's bytes, unescaped, appended. */
void json_string(json_value v, struct text *out);
bool json_string_is(json_value v, const char *s);
/* Numbers: one without a fraction and an exponent that fits is an integer. */
struct json_number {
  enum { JSON_SIGNED, JSON_UNSIGNED, JSON_DECIMAL } kind; /* UNSIGNED: it fits only there */
  int64_t i;
  uint64_t u;
  double d; /* of any kind */
};
struct json_number json_number_of(json_value v);

/* The value's text, for errors, cut where it is long. */
void json_show(json_value v, struct text *out);

#endif
