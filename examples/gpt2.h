/* GPT-2 as a graph: embeddings of tokens and places, layers of attention and of two dense layers each, and logits by
 * the table of tokens. Names and shapes of variables are those of the published model, so its checkpoints load:
 *
 *   model/wte [vocab, width]                model/h0/attn/c_attn/w [1, width, 3 width], b     and so on for h1, ...
 *   model/wpe [context, width]              model/h0/attn/c_proj/w [1, width, width], b
 *   model/ln_f/g, b [width]                 model/h0/mlp/c_fc/w [1, width, 4 width], b
 *   model/h0/ln_1/g, b; ln_2                model/h0/mlp/c_proj/w [1, 4 width, width], b */
#ifndef EXAMPLES_GPT2_H
#define EXAMPLES_GPT2_H

#include <math.h>

#include "common.h"

struct gpt2 {
  int64_t layers, heads, width, context, vocab; /* vocab: with padding */
  shoal_dtype dtype;                            /* of activations; variables are float32 */
  double dropout;
  shoal_out seed; /* of dropout; node NULL: none */
  bool recompute; /* layers once more on the way back, instead of keeping what is in them */
  bool untied;    /* logits have a table of their own, model/head [vocab, width] */
};

/* One copy of the model: over all tokens of a batch, or over one token that follows on others, whose keys and values
 * are kept. */
struct gpt2_copy {
  const struct gpt2 *m;
  shoal_graph *g;
  shoal_out mask;
  bool training;
  const shoal_var *kept; /* keys and values of each layer, [context, width]; NULL: of all tokens at once */
  shoal_out place;       /* with them: which token it is, [1] */
};

/* Weights that lead back into the sum of all layers begin smaller, the more of them there are. */
static inline double gpt2_stddev(const struct gpt2 *m, bool residual) {
  return residual ? 0.02 / sqrt(2 * (double)m->layers) : 0.02;
}

static inline shoal_out gpt2_dense(const struct gpt2_copy *c, shoal_out x, int64_t units, const char *name,
                                   bool residual) {
  return shoal_dense_with(c->g, x, units, name,
                          SHOAL_OPTIONS(shoal_dense_options, .kernel = "w", .bias = "b",
                                        .stddev = gpt2_stddev(c->m, residual), .leading = 1));
}

static inline shoal_out gpt2_norm(const struct gpt2_copy *c, shoal_out x, const char *name) {
  return shoal_layer_norm(c->g, x, name, SHOAL_OPTIONS(shoal_layer_norm_options, .scale = "g", .shift = "b"));
}

static inline shoal_out gpt2_drop(const struct gpt2_copy *c, shoal_out x) {
  if (!c->training) return x;
  return shoal_dropout(c->g, x, c->m->dropout, SHOAL_OPTIONS(shoal_dropout_options, .seed = c->m->seed));
}

/* What is kept, with the row of this token put in its place: [1, context, width]. */
static inline shoal_out gpt2_keep(const struct gpt2_copy *c, shoal_var kept, shoal_out row) {
  shoal_graph *g = c->g;
  const int32_t one[] = {1, (int32_t)c->m->width}, all[] = {1, (int32_t)c->m->context, (int32_t)c->m->width};
  row = shoal_reshape(g, row, shoal_constant_ints(g, SHOAL_SHAPE(2), one));
  shoal_op *put = shoal_resource_scatter_update(g, kept.handle, c->place, row);
  shoal_push_control(g, &put, 1);
  shoal_out value = shoal_read_variable_op(g, kept.handle, c->m->dtype);
  shoal_pop_control(g);
  return shoal_reshape(g, value, shoal_constant_ints(g, SHOAL_SHAPE(3), all));
}

static inline shoal_out gpt2_attention(const struct gpt2_copy *c, shoal_out x, int layer) {
  shoal_graph *g = c->g;
  shoal_push_scope(g, "attn");
  shoal_op *qkv = shoal_split(g, shoal_constant_int(g, 2), gpt2_dense(c, x, 3 * c->m->width, "c_attn", false), 3);
  shoal_out q = {qkv, 0}, k = {qkv, 1}, v = {qkv, 2};
  if (c->kept) {
    k = gpt2_keep(c, c->kept[2 * layer], k);
    v = gpt2_keep(c, c->kept[2 * layer + 1], v);
  }
  shoal_out y = shoal_attention(g, q, k, v, c->m->heads,
                                SHOAL_OPTIONS(shoal_attention_options, .mask = c->mask,
                                              .dropout = c->training ? c->m->dropout : 0, .drop_seed = c->m->seed));
  y = gpt2_dense(c, y, c->m->width, "c_proj", true);
  shoal_pop_scope(g);
  return gpt2_drop(c, y);
}

static inline shoal_out gpt2_mlp(const struct gpt2_copy *c, shoal_out x) {
  shoal_push_scope(c->g, "mlp");
  shoal_out h = shoal_gelu(c->g, gpt2_dense(c, x, 4 * c->m->width, "c_fc", false));
  h = gpt2_dense(c, h, c->m->width, "c_proj", true);
  shoal_pop_scope(c->g);
  return gpt2_drop(c, h);
}

static inline shoal_out gpt2_layer(const struct gpt2_copy *c, shoal_out h, int i) {
  char name[32];
  snprintf(name, sizeof name, "model/h%d", i);
  if (c->m->recompute) shoal_push_recompute(c->g);
  shoal_push_scope(c->g, name);
  h = shoal_add_v2(c->g, h, gpt2_attention(c, gpt2_norm(c, h, "ln_1"), i));
  h = shoal_add_v2(c->g, h, gpt2_mlp(c, gpt2_norm(c, h, "ln_2")));
  shoal_pop_scope(c->g);
  if (c->m->recompute) shoal_pop_recompute(c->g);
  return h;
}

/* The model's ends. Tokens [batch, time] to what the first layer gets, [batch, time, width]; *table gets the tokens'.
 */
static inline shoal_out gpt2_begin(const struct gpt2_copy *c, shoal_out tokens, shoal_var *table) {
  shoal_graph *g = c->g;
  const struct gpt2 *m = c->m;
  shoal_out places = shoal_init_normal(g, SHOAL_FLOAT32, SHOAL_SHAPE(m->context, m->width), 0, 0.01);
  shoal_var wpe = shoal_variable(g, "model/wpe", places);
  *table =
      shoal_variable(g, "model/wte", shoal_init_normal(g, SHOAL_FLOAT32, SHOAL_SHAPE(m->vocab, m->width), 0, 0.02));
  shoal_out h = shoal_embedding(g, *table, tokens, m->dtype);
  if (c->kept) return shoal_add_v2(g, h, shoal_embedding(g, wpe, c->place, m->dtype));
  return gpt2_drop(c, shoal_position_embedding(g, h, wpe));
}

/* What the last layer gives, to logits [..., vocab], by the tokens' table unless weights are untied. */
static inline shoal_out gpt2_end(const struct gpt2_copy *c, shoal_out h, shoal_var table) {
  shoal_graph *g = c->g;
  const struct gpt2 *m = c->m;
  h = gpt2_norm(c, h, "model/ln_f");
  if (m->untied)
    table =
        shoal_variable(g, "model/head", shoal_init_normal(g, SHOAL_FLOAT32, SHOAL_SHAPE(m->vocab, m->width), 0, 0.02));
  return shoal_embedding_logits(g, h, table);
}

static inline shoal_out gpt2_logits(const struct gpt2_copy *c, shoal_out tokens) {
  shoal_var table;
  shoal_out h = gpt2_begin(c, tokens, &table);
  for (int i = 0; i < (int)c->m->layers; i++) h = gpt2_layer(c, h, i);
  return gpt2_end(c, h, table);
}

/* For training: all tokens of a batch at once, each looks at those before it. */
static inline struct gpt2_copy gpt2_training(const struct gpt2 *m, shoal_graph *g) {
  struct gpt2_copy c = {m, g, shoal_causal_mask(g, m->dtype, m->context, m->context), true, NULL, {NULL, 0}};
  return c;
}

/* Room for the keys and values of one text: 2 * layers variables of this session, for the caller to free. */
static inline shoal_var *gpt2_room(const struct gpt2 *m, shoal_graph *g) {
  shoal_var *kept = (shoal_var *)calloc((size_t)(2 * m->layers), sizeof *kept);
  for (int i = 0; kept && i < 2 * (int)m->layers; i++) {
    char name[32];
    snprintf(name, sizeof name, "kept/h%d/%s", i / 2, i % 2 ? "values" : "keys");
    kept[i] = shoal_variable_local(g, name, shoal_init_zeros(g, m->dtype, SHOAL_SHAPE(m->context, m->width)));
  }
  return kept;
}

/* For writing: one token, at its place [1], which looks at what is kept up to there. */
static inline struct gpt2_copy gpt2_writing(const struct gpt2 *m, shoal_graph *g, const shoal_var *kept,
                                            shoal_out place) {
  shoal_out places =
      shoal_range(g, shoal_constant_int(g, 0), shoal_constant_int(g, (int32_t)m->context), shoal_constant_int(g, 1));
  struct gpt2_copy c = {m,     g,    shoal_attention_mask(g, m->dtype, shoal_less_equal(g, places, place)),
                        false, kept, place};
  return c;
}

#endif
