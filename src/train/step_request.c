/* Steps by outputs: names are made from nodes, values go where the caller said. Everything in src/train that runs a
 * step does it through this file. */
#include "train/step_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/block.h"
#include "base/given.h"
#include "graph/builder.h"
#include "runtime/replay.h"

static bool same_out(shoal_out a, shoal_out b) { return a.node == b.node && a.index == b.index; }

int step_fetch(struct step_request *s, shoal_out what) {
  for (size_t i = 0; i < s->fetches.n; i++)
    if (same_out(s->fetches.at[i], what)) return (int)i;
  vec_push(&s->fetches, what);
  return (int)s->fetches.n - 1;
}

void step_target(struct step_request *s, const shoal_op *op) {
  for (size_t i = 0; i < s->targets.n; i++)
    if (s->targets.at[i] == op) return;
  if (op) vec_push(&s->targets, op);
}

shoal_status step_feed(struct step_request *s, shoal_out to, shoal_tensor *value) {
  for (size_t i = 0; i < s->feeds.n; i++)
    if (to.node && same_out(s->feeds.at[i].to, to))
      return INVALID("Same tensor is fed twice in one step: %s:%d", to.node->name, to.index);
  vec_push(&s->feeds, (shoal_feed){to, value});
  return NULL;
}

/* Values and metadata, for another run. */
static void drop_values(struct step_request *s) {
  for (size_t i = 0; i < s->values.n; i++) shoal_tensor_unref(s->values.at[i]);
  vec_clear(&s->values);
  shoal_bytes_free(&s->metadata);
}

void step_clear(struct step_request *s) {
  drop_values(s);
  vec_clear(&s->feeds);
  vec_clear(&s->fetches);
  vec_clear(&s->targets);
  s->options = (shoal_run_options){0};
}

void step_release(struct step_request *s) {
  drop_values(s);
  vec_release(&s->feeds);
  vec_release(&s->fetches);
  vec_release(&s->values);
  vec_release(&s->targets);
}

/* All names of a step in one piece of memory: "node:index" for outputs. */
struct request_names {
  const char **at;
  char *text;
};

/* What a client of TensorFlow's checks before it asks a server. Other feeds than placeholders' go by what is known of
 * their shape, too. */
static shoal_status check_feed(const shoal_feed *f) {
  const struct shoal_node *n = f->to.node;
  if (!f->value) return INVALID("the value fed to %s:%d is NULL", n->name, f->to.index);
  shoal_dtype want = out_type(f->to), is = (shoal_dtype)f->value->t.dtype;
  if (want != is)
    return INVALID("Cannot feed a value of type %s for Tensor '%s:%d', which is of type %s", shoal_dtype_name(is),
                   n->name, f->to.index, shoal_dtype_name(want));
  struct shape declared = out_shape(f->to), given = tensor_shape(&f->value->t);
  if (!shape_compatible(&declared, &given))
    return INVALID("Cannot feed value of shape %s for Tensor '%s:%d', which has shape %s", shape_str(&given), n->name,
                   f->to.index, shape_str(&declared));
  return NULL;
}

static shoal_status check(const struct step_request *s) {
  for (size_t i = 0; i < s->feeds.n; i++) {
    if (!s->feeds.at[i].to.node) return INVALID("feed %zu of the step is no output of a node", i);
    TRY(check_feed(&s->feeds.at[i]));
  }
  for (size_t i = 0; i < s->fetches.n; i++)
    if (!s->fetches.at[i].node) return INVALID("fetch %zu of the step is no output of a node", i);
  return NULL;
}

static char *put_name(struct request_names *n, size_t i, char *at, shoal_out o) {
  n->at[i] = at;
  return at + sprintf(at, "%s:%d", o.node->name, o.index) + 1;
}

static struct request_names make_names(const struct step_request *s) {
  enum { INDEX = 14 };
  size_t bytes = 1;
  for (size_t i = 0; i < s->feeds.n; i++) bytes += strlen(s->feeds.at[i].to.node->name) + INDEX;
  for (size_t i = 0; i < s->fetches.n; i++) bytes += strlen(s->fetches.at[i].node->name) + INDEX;
  struct request_names n = {block_zalloc((s->feeds.n + s->fetches.n + s->targets.n + 1) * sizeof *n.at),
                            block_alloc(bytes)};
  char *at = n.text;
  for (size_t i = 0; i < s->feeds.n; i++) at = put_name(&n, i, at, s->feeds.at[i].to);
  for (size_t i = 0; i < s->fetches.n; i++) at = put_name(&n, s->feeds.n + i, at, s->fetches.at[i]);
  for (size_t i = 0; i < s->targets.n; i++) n.at[s->feeds.n + s->fetches.n + i] = s->targets.at[i]->name;
  return n;
}

shoal_status step_run(struct step_request *s, shoal_session *session) {
  TRY(check(s));
  drop_values(s);
  struct request_names n = make_names(s);
  shoal_tensor **feeds = block_zalloc((s->feeds.n + 1) * sizeof *feeds);
  for (size_t i = 0; i < s->feeds.n; i++) feeds[i] = s->feeds.at[i].value;
  vec_reserve(&s->values, s->fetches.n + 1);
  shoal_status e = shoal_session_run(session, &s->options, n.at, feeds, (int)s->feeds.n, n.at + s->feeds.n,
                                     s->values.at, (int)s->fetches.n, n.at + s->feeds.n + s->fetches.n,
                                     (int)s->targets.n, s->options.trace_level ? &s->metadata : NULL);
  if (!e) s->values.n = s->fetches.n;
  if (shoal_status_code(e) == SHOAL_NOT_FOUND &&
      (strstr(shoal_status_message(e), "FetchOutputs node") || strstr(shoal_status_message(e), "Some target nodes")))
    status_suffix(e,
                  "\nA session has what the graph had when it was opened; shoal_session_extend takes what came since.");
  if (shoal_status_code(e) == SHOAL_FAILED_PRECONDITION &&
      (strstr(shoal_status_message(e), "Could not find variable") || strstr(shoal_status_message(e), "uninitialized")))
    status_suffix(e,
                  "\nVariables have no values yet: run the op that shoal_initialize(g) made, or restore a checkpoint.");
  block_free(feeds);
  block_free(n.at);
  block_free(n.text);
  return e;
}

/* ---- where values go ---- */

double tensor_number(const shoal_tensor *t) {
  if (!t || t->t.n < 1) return NAN;
  switch (t->t.dtype) {
    case SHOAL_FLOAT32: return (double)*T_DATA(&t->t, float);
    case SHOAL_FLOAT64: return *T_DATA(&t->t, double);
    case SHOAL_INT32: return *T_DATA(&t->t, int32_t);
    case SHOAL_INT64: return (double)*T_DATA(&t->t, int64_t);
    case SHOAL_UINT8: return *T_DATA(&t->t, uint8_t);
    case SHOAL_BOOL: return *T_DATA(&t->t, bool);
    case SHOAL_BFLOAT16: return (double)bf16_to_float(*T_DATA(&t->t, bf16));
    case SHOAL_FLOAT16: return (double)f16_to_float(*T_DATA(&t->t, f16));
    default: return NAN;
  }
}

static bool is_number(shoal_dtype t) {
  return t == SHOAL_FLOAT32 || t == SHOAL_FLOAT64 || t == SHOAL_INT32 || t == SHOAL_INT64 || t == SHOAL_BOOL;
}

static bool has_number(shoal_dtype t) {
  return is_number(t) || t == SHOAL_UINT8 || t == SHOAL_BFLOAT16 || t == SHOAL_FLOAT16;
}

static shoal_status fetch_fits(const shoal_fetch *f, const shoal_tensor *value) {
  if (f->as == SHOAL_DT_INVALID) return NULL;
  const struct tensor *t = &value->t;
  if (t->n != 1) {
    struct shape shape = tensor_shape(t);
    return INVALID("%s:%d has the shape %s: it does not fit into one number", f->from.node->name, f->from.index,
                   shape_str(&shape));
  }
  if (!has_number((shoal_dtype)t->dtype))
    return INVALID("%s:%d is of type %s: it does not fit into a number", f->from.node->name, f->from.index,
                   shoal_dtype_name((shoal_dtype)t->dtype));
  if (!is_number(f->as)) return INVALID("a number of type %s cannot be fetched", shoal_dtype_name(f->as));
  return NULL;
}

static void fetch_store(const shoal_fetch *f, shoal_tensor *value) {
  if (f->as == SHOAL_DT_INVALID) {
    *(shoal_tensor **)f->to = shoal_tensor_ref(value);
    return;
  }
  if (f->as == SHOAL_INT64 && value->t.dtype == SHOAL_INT64) { /* a double would round it */
    *(int64_t *)f->to = *T_DATA(&value->t, int64_t);
    return;
  }
  double v = tensor_number(value);
  switch (f->as) {
    case SHOAL_FLOAT32: *(float *)f->to = (float)v; break;
    case SHOAL_FLOAT64: *(double *)f->to = v; break;
    case SHOAL_INT32: *(int32_t *)f->to = isnan(v) ? 0 : (int32_t)fmin(fmax(v, INT32_MIN), INT32_MAX); break;
    case SHOAL_INT64: *(int64_t *)f->to = isnan(v) ? 0 : (int64_t)fmin(fmax(v, -0x1p63), 0x1p63 - 1024); break;
    default: *(bool *)f->to = v != 0; break;
  }
}

static shoal_tensor *fetched(struct step_request *s, const shoal_fetch *f) {
  return s->values.at[step_fetch(s, f->from)];
}

shoal_status step_store(struct step_request *s, shoal_fetches fetches) {
  for (int i = 0; i < fetches.n; i++) TRY(fetch_fits(&fetches.at[i], fetched(s, &fetches.at[i])));
  for (int i = 0; i < fetches.n; i++) fetch_store(&fetches.at[i], fetched(s, &fetches.at[i]));
  return NULL;
}

shoal_status step_ask(struct step_request *s, const char *func, shoal_feeds feeds, shoal_fetches fetches,
                      const shoal_op *target) {
  TRY(given_array(func, "feeds.at", feeds.at, feeds.n));
  TRY(given_array(func, "fetches.at", fetches.at, fetches.n));
  for (int i = 0; i < fetches.n; i++)
    if (!fetches.at[i].to) return INVALID("%s: fetches.at[%d].to is NULL", func, i);
  for (int i = 0; i < feeds.n; i++) TRY(step_feed(s, feeds.at[i].to, feeds.at[i].value));
  for (int i = 0; i < fetches.n; i++) step_fetch(s, fetches.at[i].from);
  step_target(s, target);
  return NULL;
}

/* ---- short forms ---- */

shoal_status shoal_session_step(shoal_session *session, shoal_feeds feeds, shoal_fetches fetches,
                                const shoal_op *target) {
  GIVEN(session);
  struct step_request s = {0};
  shoal_status e = step_ask(&s, __func__, feeds, fetches, target);
  if (!e) e = step_run(&s, session);
  if (!e) e = step_store(&s, fetches);
  step_release(&s);
  return e;
}

/* Some of them are queued with the one that is run, where that is captured. */
static shoal_status run_times(struct step_request *s, shoal_session *session, int64_t n) {
  shoal_status e = NULL;
  while (n > 0 && !e) {
    n--;
    replay_more(&n);
    e = step_run(s, session);
    replay_more(NULL);
  }
  return e;
}

shoal_status shoal_session_steps(shoal_session *session, int64_t n, shoal_feeds feeds, shoal_fetches fetches,
                                 const shoal_op *target) {
  GIVEN(session);
  if (n < 1) return INVALID("%s: %" PRId64 " steps cannot be made", __func__, n);
  struct step_request s = {0};
  shoal_status e = step_ask(&s, __func__, feeds, fetches, target);
  if (!e) e = run_times(&s, session, n);
  if (!e) e = step_store(&s, fetches);
  step_release(&s);
  return e;
}

shoal_status session_run_op(shoal_session *s, const shoal_op *op) {
  return op ? shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, op) : NULL;
}

shoal_status session_get_int(shoal_session *s, shoal_out what, int64_t *out) {
  return shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(what, out), NULL);
}
