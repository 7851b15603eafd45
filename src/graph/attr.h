/* Attribute values of nodes, as GraphDef's AttrValue has them, in our own memory. */
#ifndef GRAPH_ATTR_H
#define GRAPH_ATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

enum attr_kind {
  ATTR_NONE, /* an AttrValue with nothing set */
  ATTR_STRING,
  ATTR_INT,
  ATTR_FLOAT,
  ATTR_BOOL,
  ATTR_TYPE,
  ATTR_SHAPE,
  ATTR_TENSOR,
  ATTR_FUNC,
  ATTR_PLACEHOLDER, /* inside function bodies: the name of the attribute to put here */
  ATTR_LIST,
};

struct named_attr;

/* A function by name, with values for its attributes. */
struct func_attr {
  char *name;
  struct named_attr *attrs;
  int n_attrs;
};

struct attr {
  enum attr_kind kind;
  enum attr_kind of; /* ATTR_LIST: the kind of its elements; ATTR_NONE when the list is empty and untyped */
  union {
    struct {
      char *data; /* NUL-terminated beyond its n bytes */
      size_t n;
    } s; /* STRING, PLACEHOLDER */
    int64_t i;
    float f;
    bool b;
    int type; /* shoal_dtype, or a reference type's number */
    struct shape *shape;
    struct tensor *tensor;
    struct func_attr *func;
    struct {
      struct attr *at;
      size_t n;
    } list;
  };
};

struct named_attr {
  char *name;
  struct attr value;
};

struct attr attr_string(const char *data, size_t n);
struct attr attr_int(int64_t v);
struct attr attr_float(float v);
struct attr attr_bool(bool v);
struct attr attr_type(int type);
struct attr attr_shape(const struct shape *s);
struct attr attr_tensor(const struct tensor *t); /* takes a reference */
struct attr attr_func(const char *name);
/* An empty list of a kind, to be filled with attr_list_add (which takes over the element). */
struct attr attr_list(enum attr_kind of);
void attr_list_add(struct attr *list, struct attr element);
struct attr attr_copy(const struct attr *a);
void attr_release(struct attr *a);
/* Is it a function, or a list of them? */
bool attr_names_function(const struct attr *a);
bool attr_equal(const struct attr *a, const struct attr *b);
uint64_t attr_hash(const struct attr *a, uint64_t seed);
/* "int", "list(type)", ...: for errors. */
const char *attr_kind_name(const struct attr *a);
/* The value as a person reads it: "[1, 2]", "DT_FLOAT"; long ones are cut. */
void attr_print(const struct attr *a, struct text *out);

struct attr *named_attr_find(struct named_attr *attrs, int n, const char *name);

#endif
