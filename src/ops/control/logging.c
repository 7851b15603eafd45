/* Assert, Print and PrintV2: what a graph says to people. The texts are TensorFlow's, because programs and tests
 * match on them. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "ops/array/array_util.h"
#include "tensor/summarize.h"

/* ---- Assert ---- */

struct print_state {
  char *message;
  int64_t summarize, first_n;
  atomic_llong calls;
};

static shoal_status assert_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "summarize", &((struct print_state *)state)->summarize);
}

/* "[1 2 3][4 5]", with `between` between the tensors. */
static void print_data(struct kernel_ctx *ctx, int64_t summarize, const char *between, struct text *out) {
  for (int i = 1; i < ctx->kernel->n_in; i++) {
    text_addc(out, '[');
    tensor_summarize(ctx_in(ctx, i), summarize, false, out);
    text_addc(out, ']');
    if (i + 1 < ctx->kernel->n_in) text_adds(out, between);
  }
}

static shoal_status assert_run(struct kernel_ctx *ctx) {
  struct print_state *st = ctx->state;
  const struct tensor *cond = ctx_in(ctx, 0);
  if (cond->n != 1 || cond->rank > 1) return INVALID("In[0] should be a scalar: %s", tensor_shape_str(cond));
  if (*T_DATA(cond, const bool)) return NULL;
  struct text msg = {0};
  print_data(ctx, st->summarize, " ", &msg);
  shoal_status s = INVALID("assertion failed: %s", text_cstr(&msg));
  text_release(&msg);
  return s;
}

static const struct kernel_def assert_kernels[] = {{.device = "CPU",
                                                    .state_size = sizeof(struct print_state),
                                                    .init = assert_init,
                                                    .run = assert_run,
                                                    .host_in = UINT32_MAX},
                                                   {0}};

/* ---- Print ---- */

static shoal_status print_init(struct kernel_init *ki, void *state) {
  struct print_state *st = state;
  const char *message;
  TRY(node_get_string(ki->node, "message", &message));
  TRY(node_get_int(ki->node, "summarize", &st->summarize));
  TRY(node_get_int(ki->node, "first_n", &st->first_n));
  st->message = mem_strdup(message);
  return NULL;
}

static void print_release(void *state) { free(((struct print_state *)state)->message); }

static shoal_status print_run(struct kernel_ctx *ctx) {
  struct print_state *st = ctx->state;
  TRY(ctx_forward(ctx, 0, 0, NULL));
  if (st->first_n >= 0 && atomic_fetch_add(&st->calls, 1) >= st->first_n) return NULL;
  struct text line = {0};
  text_adds(&line, st->message);
  print_data(ctx, st->summarize, "", &line);
  text_addc(&line, '\n');
  fwrite(line.at, 1, line.n, stderr);
  text_release(&line);
  return NULL;
}

static shoal_status print_shape(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  return NULL;
}

static shoal_status print_grad(struct grad_ctx *c) {
  c->dx[0] = c->dy[0];
  return NULL;
}

static const struct kernel_def print_kernels[] = {{.device = "CPU",
                                                   .state_size = sizeof(struct print_state),
                                                   .init = print_init,
                                                   .release = print_release,
                                                   .run = print_run},
                                                  {0}};

/* ---- PrintV2 ---- */

struct print2_state {
  char *stream, *end;
};

static const char *const streams[] = {"stdout", "stderr", "log(info)", "log(warning)", "log(error)"};

static shoal_status print2_init(struct kernel_init *ki, void *state) {
  struct print2_state *st = state;
  const char *stream, *end;
  TRY(node_get_string(ki->node, "output_stream", &stream));
  TRY(node_get_string(ki->node, "end", &end));
  bool known = str_starts(stream, "file://");
  for (size_t i = 0; i < COUNT_OF(streams); i++) known |= str_equal(stream, streams[i]);
  if (!known) {
    struct text valid = {0};
    for (size_t i = 0; i < COUNT_OF(streams); i++) text_addf(&valid, " %s", streams[i]);
    shoal_status s = INVALID("Unknown output stream: %s, Valid streams are:%s", stream, text_cstr(&valid));
    text_release(&valid);
    return s;
  }
  st->stream = mem_strdup(stream);
  st->end = mem_strdup(end);
  return NULL;
}

static void print2_release(void *state) {
  struct print2_state *st = state;
  free(st->stream);
  free(st->end);
}

static shoal_status write_line(FILE *to, const struct text *line, const char *path) {
  size_t n = fwrite(text_cstr(line), 1, line->n, to);
  if (n != line->n || fflush(to)) return ERRNO_STATUS(errno, "%s", path);
  return NULL;
}

static shoal_status print2_run(struct kernel_ctx *ctx) {
  struct print2_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank != 0) return INVALID("Input is expected to be scalar, but got %s", tensor_shape_str(x));
  const struct str *value = x->data;
  struct text line = {0};
  text_add(&line, str_data(value), value->size);
  text_adds(&line, st->end);
  shoal_status s = NULL;
  if (str_starts(st->stream, "file://")) {
    struct file_writer w;
    s = file_writer_open_direct(&w, st->stream, true);
    if (!s) s = file_writer_add(&w, line.at, line.n);
    if (!s) s = file_writer_commit(&w);
    else file_writer_abort(&w);
  } else if (str_equal(st->stream, "stdout")) s = write_line(stdout, &line, "stdout");
  else if (str_equal(st->stream, "log(info)")) LOGI("%s", text_cstr(&line));
  else if (str_equal(st->stream, "log(warning)")) LOGW("%s", text_cstr(&line));
  else if (str_equal(st->stream, "log(error)")) LOGE("%s", text_cstr(&line));
  else s = write_line(stderr, &line, "stderr");
  text_release(&line);
  return s;
}

static shoal_status print2_shape(struct shape_ctx *c) {
  struct shape s;
  return shape_in_rank(c, 0, 0, &s);
}

static const struct kernel_def print2_kernels[] = {{.device = "CPU",
                                                    .state_size = sizeof(struct print2_state),
                                                    .init = print2_init,
                                                    .release = print2_release,
                                                    .run = print2_run},
                                                   {0}};

static const struct op_row rows[] = {
    {.name = "Assert",
     .in = "condition: bool, data: T",
     .attrs = "T: list(type) >= 1; summarize: int = 3",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_no_outputs,
     .kernels = assert_kernels},
    {.name = "Print",
     .in = "input: T, data: U",
     .out = "output: T",
     .attrs = "T: type; U: list(type) >= 0; message: string = ''; first_n: int = -1; summarize: int = 3",
     .flags = OP_STATEFUL,
     .shape = print_shape,
     .grad = print_grad,
     .kernels = print_kernels},
    {.name = "PrintV2",
     .in = "input: string",
     .attrs = "output_stream: string = 'stderr'; end: string = '\n'",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = print2_shape,
     .kernels = print2_kernels},
};
OP_FAMILY(logging, rows);
