/* Values of all replicas, one after another along their first dimension.
 *
 * What a collective gathers has one shape, so where the replicas' numbers of rows are not known before the step they
 * tell each other those first, fill up with rows of zeros to as many as the largest has, and leave these out of what
 * has come, as TensorFlow does. Where they are known, all have the same number, and nothing is asked. */
#include <stdlib.h>

#include "graph/given.h"
#include "strategy/tensorflow.h"
#include "train/pieces.h"

static shoal_out as_type(struct shoal_graph *g, shoal_out value, shoal_dtype type) {
  struct build b = build_begin(g, "Bitcast", NULL);
  build_in(&b, value);
  build_attr_type(&b, "type", type);
  return build_end_out(&b);
}

/* Of one shape in all replicas. The op has no bfloat16: its bits go as those of the other type of two bytes. */
shoal_out gather_member(struct shoal_graph *g, const struct shoal_strategy *s, int key, shoal_out value) {
  if (strategy_with_tensorflow(s)) return tensorflow_refuse(g, "gathering");
  if (s->replicas > 1 && out_type(value) == SHOAL_BFLOAT16)
    return as_type(g, gather_member(g, s, key, as_type(g, value, SHOAL_FLOAT16)), SHOAL_BFLOAT16);
  struct build b = build_begin(g, s->replicas > 1 ? "CollectiveGatherV2" : "Identity", NULL);
  build_in(&b, value);
  if (s->replicas > 1) strategy_add_keys(&b, g, s, key);
  return build_end_out(&b);
}

/* ---- numbers of rows ---- */

/* -1: that is not known before the step. */
static int64_t rows_known(shoal_out value) {
  struct shape shape = out_shape(value);
  return shape.rank > 0 ? shape.dims[0] : shape.rank;
}

static bool never_asks(const struct shoal_strategy *s) { return s->replicas == 1 || strategy_with_tensorflow(s); }

static bool are_even(const struct shoal_strategy *s, const shoal_out *values, int stride) {
  int64_t first = rows_known(values[0]);
  bool even = first >= 0;
  for (int i = 1; i < s->local; i++) even = even && rows_known(values[(ptrdiff_t)i * stride]) == first;
  return even || never_asks(s);
}

static shoal_out rows_of(struct shoal_graph *g, shoal_out value) {
  const int64_t zero[] = {0}, one[] = {1};
  return build_op3(g, "Slice", build_op1(g, "Shape", value), build_const_ints(g, SHOAL_INT32, zero, 1),
                   build_const_ints(g, SHOAL_INT32, one, 1));
}

static shoal_out lengths_member(struct shoal_graph *g, const struct shoal_strategy *s, int key, shoal_out value) {
  return gather_member(g, s, key, rows_of(g, value));
}

/* ---- values ---- */

/* A list of one. */
static shoal_out most_of(struct shoal_graph *g, shoal_out lengths) {
  struct build b = build_begin(g, "Max", NULL);
  build_in(&b, lengths);
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  build_attr_bool(&b, "keep_dims", true);
  return build_end_out(&b);
}

static shoal_out filled_up(struct shoal_graph *g, shoal_out value, shoal_out most) {
  const int64_t one[] = {1}, rest[] = {-1};
  shoal_out more = build_op2(g, "Sub", most, rows_of(g, value));
  shoal_out inner = build_op3(g, "Slice", build_op1(g, "Shape", value), build_const_ints(g, SHOAL_INT32, one, 1),
                              build_const_ints(g, SHOAL_INT32, rest, 1));
  shoal_out zero = shoal_init_zeros(g, out_type(value), SHOAL_SCALAR);
  shoal_out fill = build_op2(g, "Fill", flat_join(g, (const shoal_out[]){more, inner}, 2, 0), zero);
  return flat_join(g, (const shoal_out[]){value, fill}, 2, 0);
}

/* The places of rows that are somebody's, where each has room for `most`. */
static shoal_out places(struct shoal_graph *g, shoal_out lengths, shoal_out most) {
  shoal_out end = build_op2(g, "Reshape", most, build_const_ints(g, SHOAL_INT32, NULL, 0));
  shoal_out row = build_op3(g, "Range", build_const_int(g, SHOAL_INT32, 0), end, build_const_int(g, SHOAL_INT32, 1));
  shoal_out is = build_op2(g, "Less", row, build_op2(g, "ExpandDims", lengths, build_const_int(g, SHOAL_INT32, 1)));
  return flat_of(g, build_op1(g, "Where", flat_of(g, is)));
}

shoal_out gather_values(struct shoal_graph *g, const struct shoal_strategy *s, int key, shoal_out value,
                        shoal_out lengths) {
  if (!lengths.node) return gather_member(g, s, key, value);
  shoal_out most = most_of(g, lengths);
  shoal_out all = gather_member(g, s, key, filled_up(g, value, most));
  return build_op3(g, "GatherV2", all, places(g, lengths, most), build_const_int(g, SHOAL_INT32, 0));
}

/* ---- in a replica ---- */

/* The first replica says for all whether they ask, since it is built before the others are known. */
shoal_out gather_lengths(struct shoal_replica *r, shoal_out value) {
  struct shoal_graph *g = r->maker.g;
  struct replica_run *run = r->run;
  int64_t rows = rows_known(value);
  if (!r->index) vec_push(&run->gathered, rows);
  if (r->next_gather >= run->gathered.n) return (shoal_out){0}; /* one too many: the run says so */
  int64_t first = run->gathered.at[r->next_gather++];
  if (first < 0) return never_asks(r->strategy) ? (shoal_out){0} : lengths_member(g, r->strategy, r->key++, value);
  if (rows >= 0 && rows != first && !graph_error(g))
    graph_fail(g,
               INVALID("replica %d gathers %lld rows, and the first one %lld: numbers that are known before the step "
                       "must be the same in all",
                       r->index, (long long)rows, (long long)first));
  return (shoal_out){0};
}

shoal_out shoal_replica_gather(shoal_replica *r, shoal_out value) {
  shoal_out lengths = gather_lengths(r, value);
  return replica_join(r, gather_values(r->maker.g, r->strategy, r->key++, value, lengths));
}

/* ---- outside ---- */

static shoal_out *gather_all(shoal_graph *g, struct shoal_strategy *s, const shoal_out *values, int stride) {
  bool even = are_even(s, values, stride);
  shoal_out *members = mem_zalloc((size_t)s->local, sizeof *members);
  for (int i = 0; i < s->local; i++) {
    shoal_out value = values[(ptrdiff_t)i * stride];
    strategy_push_device(g, s, i);
    shoal_out lengths = even ? (shoal_out){0} : lengths_member(g, s, s->next_key, value);
    members[i] = gather_values(g, s, s->next_key + !even, value, lengths);
    graph_pop_device(g);
  }
  s->next_key += even ? 1 : 2;
  return members;
}

shoal_out shoal_strategy_gather(shoal_graph *g, shoal_strategy *s, const shoal_out *values, int stride) {
  GRAPH_GIVEN(g, s, (shoal_out){0});
  GRAPH_GIVEN(g, values, (shoal_out){0});
  return strategy_first_of(g, s, gather_all(g, s, values, stride));
}
