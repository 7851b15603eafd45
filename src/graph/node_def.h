/* NodeDefs and AttrValues on the wire: what GraphDef and FunctionDef are made of.
 *
 * A parsed node_def points into the bytes it came from; only its attributes are memory of its own. */
#ifndef GRAPH_NODE_DEF_H
#define GRAPH_NODE_DEF_H

#include "base/chars.h"
#include "base/vec.h"
#include "base/wire.h"
#include "graph/attr.h"

struct node_def {
  struct chars name, op, device;
  VEC(struct chars) in; /* "x", "x:1", "x:out:0" (in functions), and then "^x" */
  VEC(struct named_attr) attrs;
  VEC(struct chars) original_names, original_funcs;
  struct chars full_type; /* experimental_type's bytes */
};

enum { ATTR_MAX_DEPTH = 32 };   /* of functions in attributes of functions in ... */
enum { NODE_MAX_ATTRS = 1000 }; /* each is looked for among those before it */

/* *d may be a zeroed one or one used before: its lists keep their memory, its attributes must have been taken.
 * budget: for tensors, see tensor_proto.h. */
shoal_status node_def_parse(struct wire w, size_t *budget, struct node_def *d);
/* Takes the attributes out, as graph_add wants them. */
struct named_attr *node_def_take_attrs(struct node_def *d, int *n);
void node_def_release(struct node_def *d);

shoal_status attr_proto_decode(struct wire w, size_t *budget, int depth, struct attr *out);
/* Cannot fail but for variants in tensors that have no encoding. */
shoal_status attr_proto_encode(const struct attr *a, struct text *out);
/* A map<string, AttrValue> as the field of that tag. */
shoal_status attr_proto_encode_map(const struct named_attr *attrs, int n, uint32_t tag, struct text *out);
/* One entry of such a map. */
shoal_status named_attr_decode(struct wire w, size_t *budget, int depth, struct named_attr *out);

#endif
