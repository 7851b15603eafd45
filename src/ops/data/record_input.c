/* RecordInput: batches of records from many files, in random order. Every record comes once in each epoch: files are
 * shuffled anew for each, some are read side by side into a buffer, and each record drawn is a random one of those.
 *
 * The order is drawn from the seed, and is not TensorFlow's: there it depends on threads as well. */
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "data/record.h"
#include "ops/array/array_util.h"
#include "tensor/strings.h"

struct open_file {
  struct record_reader reader;
  bool in_use;
};

struct record_state {
  char *pattern;
  int64_t seed, buffer_size, batch, parallel;
  float shift;
  enum record_compression compression;
  pthread_mutex_t lock;
  /* lock: */
  struct path_list files; /* in this epoch's order */
  size_t next_file;
  struct open_file *readers; /* [parallel] */
  VEC(struct text) buffer;
  struct philox_stream random;
  int64_t epoch; /* 0: not begun */
  bool any;      /* a record was seen in this epoch */
};

static shoal_status record_init(struct kernel_init *ki, void *state) {
  struct record_state *st = state;
  const struct shoal_node *n = ki->node;
  const char *pattern, *compression;
  TRY(node_get_string(n, "file_pattern", &pattern));
  TRY(node_get_int(n, "file_random_seed", &st->seed));
  TRY(node_get_float(n, "file_shuffle_shift_ratio", &st->shift));
  TRY(node_get_int(n, "file_buffer_size", &st->buffer_size));
  TRY(node_get_int(n, "file_parallelism", &st->parallel));
  TRY(node_get_int(n, "batch_size", &st->batch));
  TRY(node_get_string(n, "compression_type", &compression));
  TRY(record_compression_parse(compression, &st->compression));
  if (st->batch < 0) return INVALID("batch_size must not be negative: %" PRId64, st->batch);
  if (st->buffer_size < 1) st->buffer_size = 1;
  st->parallel = MIN(MAX(st->parallel, 1), 64);
  if (!(st->shift >= 0)) st->shift = 0;
  if (st->shift >= 1) st->shift = 0.999999f;
  st->pattern = mem_strdup(pattern);
  st->readers = mem_zalloc((size_t)st->parallel, sizeof *st->readers);
  pthread_mutex_init(&st->lock, NULL);
  return NULL;
}

static void record_release(void *state) {
  struct record_state *st = state;
  if (!st->pattern) return; /* init failed before there was anything */
  for (int64_t i = 0; i < st->parallel; i++)
    if (st->readers[i].in_use) record_reader_close(&st->readers[i].reader);
  for (size_t i = 0; i < st->buffer.n; i++) counted_text_release(&st->buffer.at[i]);
  vec_release(&st->buffer);
  path_list_release(&st->files);
  pthread_mutex_destroy(&st->lock);
  free(st->readers);
  free(st->pattern);
}

/* Files in the order of a new epoch: shuffled, then turned by the share asked for. */
static shoal_status begin_epoch(struct record_state *st) {
  path_list_release(&st->files);
  st->files = (struct path_list){0};
  TRY(file_glob(st->pattern, &st->files));
  size_t n = st->files.paths.n;
  if (!n) return NOT_FOUND("Found no files at %s", st->pattern);
  st->random = philox_stream(philox_from_seeds((uint64_t)st->seed, (uint64_t)++st->epoch));
  char **at = st->files.paths.at, **turned = mem_zalloc(n, sizeof *turned);
  for (size_t i = n - 1; i > 0; i--) {
    size_t other = (size_t)philox_below64(&st->random, i + 1);
    char *t = at[i];
    at[i] = at[other];
    at[other] = t;
  }
  size_t by = (size_t)((double)st->shift * (double)n);
  for (size_t i = 0; i < n; i++) turned[i] = at[(i + by) % n];
  memcpy(at, turned, n * sizeof *at);
  free(turned);
  st->next_file = 0;
  st->any = false;
  return NULL;
}

/* One record from this reader, or from the next file when its own is at the end; *got is false when there is none. */
static shoal_status read_one(struct record_state *st, struct open_file *f, bool *got) {
  struct text record = {0};
  for (*got = false; !*got;) {
    if (!f->in_use) {
      if (st->next_file == st->files.paths.n) return NULL;
      TRY(record_reader_open(&f->reader, st->files.paths.at[st->next_file], st->compression));
      st->next_file++;
      f->in_use = true;
    }
    shoal_status s = record_read(&f->reader, &record);
    if (s) {
      bool ended = shoal_status_code(s) == SHOAL_OUT_OF_RANGE;
      record_reader_close(&f->reader);
      f->in_use = false;
      counted_text_release(&record);
      if (!ended) return s;
      shoal_status_free(s);
      continue;
    }
    vec_push(&st->buffer, record);
    *got = st->any = true;
  }
  return NULL;
}

static shoal_status fill(struct record_state *st) {
  for (bool more = true; more && (int64_t)st->buffer.n < st->buffer_size;) {
    more = false;
    for (int64_t i = 0; i < st->parallel && (int64_t)st->buffer.n < st->buffer_size; i++) {
      bool got;
      TRY(read_one(st, &st->readers[i], &got));
      more |= got;
    }
  }
  return NULL;
}

static shoal_status draw_one(struct record_state *st, struct str *to) {
  if (!st->epoch) TRY(begin_epoch(st));
  TRY(fill(st));
  if (!st->buffer.n) {
    if (!st->any) return STATUS(SHOAL_OUT_OF_RANGE, "The files at %s hold no records", st->pattern);
    TRY(begin_epoch(st));
    TRY(fill(st));
    if (!st->buffer.n) return STATUS(SHOAL_OUT_OF_RANGE, "The files at %s hold no records", st->pattern);
  }
  size_t i = (size_t)philox_below64(&st->random, st->buffer.n);
  struct text chosen = st->buffer.at[i];
  st->buffer.at[i] = vec_pop(&st->buffer);
  str_set(to, text_cstr(&chosen), chosen.n);
  counted_text_release(&chosen);
  return NULL;
}

static shoal_status record_run(struct kernel_ctx *ctx) {
  struct record_state *st = ctx->state;
  struct shape shape = shape_vector(st->batch);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &shape, &y));
  shoal_status s = NULL;
  pthread_mutex_lock(&st->lock);
  for (int64_t i = 0; i < st->batch && !s; i++) s = draw_one(st, &T_DATA(y, struct str)[i]);
  pthread_mutex_unlock(&st->lock);
  return s;
}

static shoal_status record_shape(struct shape_ctx *c) {
  int64_t n;
  TRY(node_get_int(c->node, "batch_size", &n));
  c->out[0] = shape_vector(n);
  return NULL;
}

static const struct kernel_def record_kernels[] = {{.device = "CPU",
                                                    .flags = KERNEL_EXPENSIVE,
                                                    .state_size = sizeof(struct record_state),
                                                    .init = record_init,
                                                    .release = record_release,
                                                    .run = record_run},
                                                   {0}};

static const struct op_row rows[] = {
    {.name = "RecordInput",
     .out = "records: string",
     .attrs = "file_pattern: string; file_random_seed: int = 301; file_shuffle_shift_ratio: float = 0; "
              "file_buffer_size: int = 10000; file_parallelism: int = 16; batch_size: int = 32; compression_type: "
              "string = ''",
     .flags = OP_STATEFUL,
     .shape = record_shape,
     .kernels = record_kernels},
};
OP_FAMILY(record_input, rows);
