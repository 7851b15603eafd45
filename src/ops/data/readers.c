/* Readers: they take names of files from a queue and give out records, with keys that say where each came from.
 *
 * Reads of one reader take turns. One that needs the next file's name asks the queue and leaves its thread; when
 * the name comes, on whatever thread, it goes on. The files themselves are read where the read op runs. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ref.h"
#include "base/wire.h"
#include "data/record.h"
#include "ops/state/queue.h"
#include "proto/checkpoint.wire.h"
#include "tensor/strings.h"

enum reader_kind { READER_IDENTITY, READER_WHOLE_FILE, READER_LINES, READER_FIXED, READER_RECORDS };

struct reader_config {
  enum reader_kind kind;
  int64_t skip_lines;
  int64_t header, record, footer, hop; /* bytes */
  enum record_compression compression;
};

struct read;
struct reader_resource {
  struct resource head;
  char *name; /* "TextLineReader 'node'" */
  struct reader_config config;
  pthread_mutex_t lock;
  struct read *turns, *last_turn; /* lock: the first is running */
  /* Whoever has its turn, or, when nobody has, the lock: */
  int64_t started;
  _Atomic int64_t finished, produced; /* also asked for meanwhile */
  struct text work;
  bool open;
  struct byte_stream bytes;
  struct record_reader records;
  struct text ahead; /* READER_FIXED: bytes read but not yet hopped over */
  int64_t number;    /* of the line or record */
};

/* ---- files ---- */

static void close_file(struct reader_resource *r) {
  if (r->open) {
    if (r->config.kind == READER_RECORDS) record_reader_close(&r->records);
    else byte_stream_close(&r->bytes);
  }
  r->open = false;
}

static void free_reader(struct resource *res) {
  struct reader_resource *r = (struct reader_resource *)res;
  close_file(r);
  text_release(&r->work);
  counted_text_release(&r->ahead);
  pthread_mutex_destroy(&r->lock);
  free(r->name);
  free(r);
}

static const struct resource_type reader_type = {"N10tensorflow15ReaderInterfaceE", "reader", free_reader};

/* The next line without its end; *end when there is none. Carriage returns do not count. */
static shoal_status read_line(struct byte_stream *s, struct text *line, bool *end) {
  line->n = 0;
  for (bool any = false;;) {
    if (s->at == s->have) TRY(byte_stream_fill(s));
    if (s->at == s->have) {
      *end = !any;
      return NULL;
    }
    any = true;
    const char *from = s->out + s->at, *stop = memchr(from, '\n', s->have - s->at);
    size_t n = stop ? (size_t)(stop - from) : s->have - s->at;
    for (size_t i = 0; i < n;) {
      const char *cr = memchr(from + i, '\r', n - i);
      size_t part = cr ? (size_t)(cr - (from + i)) : n - i;
      if (!counted_text_add(line, from + i, part)) return NO_MEMORY(line->n + part, "a line");
      i += part + (cr ? 1 : 0);
    }
    s->at += n + (stop ? 1 : 0);
    if (stop) {
      *end = false;
      return NULL;
    }
  }
}

/* Appends up to n bytes; *got says how many. */
static shoal_status read_bytes(struct byte_stream *s, int64_t n, struct text *to, int64_t *got) {
  for (*got = 0; *got < n;) {
    if (s->at == s->have) TRY(byte_stream_fill(s));
    if (s->at == s->have) return NULL;
    size_t part = MIN((size_t)(n - *got), s->have - s->at);
    if (to && !counted_text_add(to, s->out + s->at, part)) return NO_MEMORY(to->n + part, "a record");
    s->at += part;
    *got += (int64_t)part;
  }
  return NULL;
}

static shoal_status start_file(struct reader_resource *r) {
  const struct reader_config *c = &r->config;
  const char *path = text_cstr(&r->work);
  r->number = 0;
  r->ahead.n = 0;
  if (c->kind == READER_IDENTITY || c->kind == READER_WHOLE_FILE) return NULL;
  if (c->kind == READER_RECORDS) TRY(record_reader_open(&r->records, path, c->compression));
  else TRY(byte_stream_open(&r->bytes, path, c->compression));
  r->open = true;
  if (c->kind == READER_LINES) {
    struct text line = {0};
    bool end = false;
    shoal_status s = NULL;
    for (; r->number < c->skip_lines && !end && !s; r->number++) s = read_line(&r->bytes, &line, &end);
    counted_text_release(&line);
    return s;
  }
  if (c->kind == READER_FIXED && c->header) {
    int64_t got;
    TRY(read_bytes(&r->bytes, c->header, NULL, &got));
    if (got < c->header) return STATUS(SHOAL_OUT_OF_RANGE, "reached end of file");
  }
  return NULL;
}

static shoal_status read_fixed(struct reader_resource *r, struct text *value, bool *produced) {
  const struct reader_config *c = &r->config;
  int64_t hop = c->hop ? c->hop : c->record, got;
  if (r->number) {
    int64_t kept = (int64_t)r->ahead.n - hop;
    if (kept >= 0) {
      memmove(r->ahead.at, r->ahead.at + hop, (size_t)kept);
      r->ahead.n = (size_t)kept;
    } else {
      r->ahead.n = 0;
      TRY(read_bytes(&r->bytes, -kept, NULL, &got));
      if (got < -kept) return NULL;
    }
  }
  int64_t want = c->record + c->footer - (int64_t)r->ahead.n;
  TRY(read_bytes(&r->bytes, want, &r->ahead, &got));
  if (got < want) return NULL;
  if (!counted_text_add(value, text_cstr(&r->ahead), (size_t)c->record)) return NO_MEMORY(c->record, "a record");
  *produced = true;
  r->number++;
  return NULL;
}

/* The key of a record: the file and a number in it. */
static shoal_status name_record(struct text *key, const char *work, uint64_t number) {
  char text[32];
  int n = snprintf(text, sizeof text, ":%" PRIu64, number);
  bool fits = counted_text_add(key, work, strlen(work)) && counted_text_add(key, text, (size_t)n);
  return fits ? NULL : NO_MEMORY(strlen(work), "a record's key");
}

/* One record of the current work; *end when the work is done (with or without a last record). */
static shoal_status read_record(struct reader_resource *r, struct text *key, struct text *value, bool *produced,
                                bool *end) {
  const char *work = text_cstr(&r->work);
  shoal_status s;
  *produced = *end = false;
  switch (r->config.kind) {
    case READER_IDENTITY:
      if (!counted_text_add(key, work, r->work.n)) return NO_MEMORY(r->work.n, "a record's key");
      if (!counted_text_add(value, work, r->work.n)) return NO_MEMORY(r->work.n, "a record");
      *produced = *end = true;
      return NULL;
    case READER_WHOLE_FILE: {
      char *data;
      size_t size;
      TRY(file_read(work, 0, &data, &size));
      *produced = *end = counted_text_add(key, work, r->work.n) && counted_text_add(value, data, size);
      free(data);
      return *produced ? NULL : NO_MEMORY(size, work);
    }
    case READER_LINES: {
      bool none;
      TRY(read_line(&r->bytes, value, &none));
      r->number++;
      *end = none;
      *produced = !none;
      return name_record(key, work, (uint64_t)r->number);
    }
    case READER_FIXED:
      TRY(name_record(key, work, (uint64_t)r->number));
      TRY(read_fixed(r, value, produced));
      *end = !*produced;
      return NULL;
    case READER_RECORDS:
      TRY(name_record(key, work, r->records.offset));
      s = record_read(&r->records, value);
      *end = shoal_status_code(s) == SHOAL_OUT_OF_RANGE;
      if (*end) {
        shoal_status_free(s);
        return NULL;
      }
      *produced = !s;
      return s;
  }
  return INTERNAL("A reader of no kind");
}

static void reset(struct reader_resource *r) {
  close_file(r);
  r->started = 0;
  r->finished = 0;
  r->produced = 0;
  r->work.n = 0;
  r->ahead.n = 0;
}

/* ---- turns ---- */

struct read {
  struct ref refs; /* its turn, and whoever is asking the queue for it */
  struct read *next;
  struct kernel_ctx *ctx;
  struct reader_resource *reader; /* references */
  struct queue *queue;
  int64_t want; /* -1: one, as scalars */
  VEC(struct text) keys, values;
  struct cancel_hook hook;
  bool waits; /* reader's lock: not yet its turn */
  _Atomic int asking;
};
enum { ASKED, ANSWERED, FAILED, LEFT };

static shoal_status set_strings(struct kernel_ctx *ctx, int o, bool scalar, const struct text *at, size_t n) {
  struct tensor *out;
  TRY(ctx_out_dims(ctx, o, scalar ? 0 : 1, (int64_t[]){(int64_t)n}, &out));
  for (size_t i = 0; i < n; i++) str_set(&T_DATA(out, struct str)[i], text_cstr(&at[i]), at[i].n);
  return NULL;
}

static void run(struct read *op);

static void unref_read(struct read *op) {
  if (!ref_drop(&op->refs)) return;
  for (size_t i = 0; i < op->keys.n; i++) counted_text_release(&op->keys.at[i]);
  for (size_t i = 0; i < op->values.n; i++) counted_text_release(&op->values.at[i]);
  vec_release(&op->keys);
  vec_release(&op->values);
  resource_unref((struct resource *)op->queue);
  resource_unref(&op->reader->head);
  free(op);
}

/* Ends the turn of op; the next one begins. */
static void finish(struct read *op, shoal_status s) {
  struct reader_resource *r = op->reader;
  struct kernel_ctx *ctx = op->ctx;
  if (!s) s = set_strings(ctx, 0, op->want < 0, op->keys.at, op->keys.n);
  if (!s) s = set_strings(ctx, 1, op->want < 0, op->values.at, op->values.n);
  pthread_mutex_lock(&r->lock);
  INVARIANT(5, r->turns == op && !op->waits);
  struct read *next = r->turns = op->next;
  if (!next) r->last_turn = NULL;
  else next->waits = false;
  pthread_mutex_unlock(&r->lock);
  unref_read(op);
  ctx_done(ctx, s);
  if (next) {
    cancel_deregister(next->ctx->step->cancel, &next->hook);
    run(next);
  }
}

static shoal_status take_work(struct reader_resource *r, struct tensor *name) {
  if (name->n != 1) return INVALID("Expected to dequeue a one-element string tensor");
  const struct str *s = T_DATA(name, const struct str);
  r->work.n = 0;
  text_add(&r->work, str_data(s), s->size);
  TRY(start_file(r));
  r->started++;
  return NULL;
}

static void got_work(void *arg, shoal_status s, struct tensor *tuple) {
  struct read *op = arg;
  if (!s) {
    s = take_work(op->reader, &tuple[0]);
    tensor_release(&tuple[0]);
  }
  if (s) {
    close_file(op->reader);
    atomic_store(&op->asking, FAILED);
    finish(op, s);
  } else if (atomic_exchange(&op->asking, ANSWERED) == LEFT) {
    run(op);
  }
}

/* Asks for the next work. True when it came before this returned: then the caller goes on, lest a queue full of empty
 * files pile up calls. Otherwise whoever brings the answer goes on. */
static bool ask(struct read *op) {
  atomic_store(&op->asking, ASKED);
  ref_take(&op->refs);
  queue_dequeue(op->queue, op->ctx->step->cancel, got_work, op);
  bool answered = atomic_exchange(&op->asking, LEFT) == ANSWERED;
  unref_read(op);
  return answered;
}

static void run(struct read *op) {
  struct reader_resource *r = op->reader;
  for (;;) {
    if (r->finished == r->started && !ask(op)) return;
    struct text key = {0}, value = {0};
    bool produced = false, end = false;
    shoal_status s = read_record(r, &key, &value, &produced, &end);
    if (produced) {
      vec_push(&op->keys, key);
      vec_push(&op->values, value);
      r->produced++;
    } else {
      counted_text_release(&key);
      counted_text_release(&value);
    }
    if (!s && end) {
      close_file(r);
      r->finished = r->started;
    }
    bool enough = op->want < 0 ? op->keys.n > 0 : (int64_t)op->keys.n >= op->want || (end && op->keys.n > 0);
    if (s || enough) {
      finish(op, s);
      return;
    }
  }
}

static void on_cancel(void *arg) {
  struct read *op = arg;
  struct reader_resource *r = op->reader;
  pthread_mutex_lock(&r->lock);
  bool mine = op->waits;
  if (mine) {
    struct read **at = &r->turns;
    while (*at != op) at = &(*at)->next;
    *at = op->next;
    r->last_turn = r->turns;
    while (r->last_turn && r->last_turn->next) r->last_turn = r->last_turn->next;
  }
  pthread_mutex_unlock(&r->lock);
  if (!mine) return;
  struct kernel_ctx *ctx = op->ctx;
  unref_read(op);
  ctx_done(ctx, STATUS(SHOAL_CANCELLED, "Read operation was cancelled"));
}

/* ---- the ops that read ---- */

static shoal_status new_read(struct kernel_ctx *ctx, int64_t want, struct read **out) {
  struct resource *reader, *queue;
  TRY(state_from_handle(ctx, 0, &reader_type, &reader));
  shoal_status s = state_from_handle(ctx, 1, &queue_type, &queue);
  if (s) {
    resource_unref(reader);
    return s;
  }
  const struct queue_spec *spec = queue_spec_of((struct queue *)queue);
  if (spec->n != 1) s = INVALID("Expected single component queue");
  else if (spec->types[0] != SHOAL_STRING) s = INVALID("Expected queue with single string component");
  if (s) {
    resource_unref(reader);
    resource_unref(queue);
    return s;
  }
  struct read *op = mem_zalloc(1, sizeof *op);
  ref_init(&op->refs, 1);
  op->ctx = ctx;
  op->reader = (struct reader_resource *)reader;
  op->queue = (struct queue *)queue;
  op->want = want;
  *out = op;
  return NULL;
}

static void start_read(struct kernel_ctx *ctx, int64_t want) {
  struct read *op;
  shoal_status s = new_read(ctx, want, &op);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  struct reader_resource *r = op->reader;
  pthread_mutex_lock(&r->lock);
  bool first = !r->turns;
  if (!first && !cancel_register(ctx->step->cancel, &op->hook, on_cancel, op)) {
    pthread_mutex_unlock(&r->lock);
    unref_read(op);
    ctx_done(ctx, STATUS(SHOAL_CANCELLED, "Read operation was cancelled"));
    return;
  }
  op->waits = !first;
  if (first) r->turns = op;
  else r->last_turn->next = op;
  r->last_turn = op;
  pthread_mutex_unlock(&r->lock);
  if (first) run(op);
}

static void read_start(struct kernel_ctx *ctx) { start_read(ctx, -1); }

static void read_up_to_start(struct kernel_ctx *ctx) {
  shoal_status s = ctx_check_scalar(ctx, 2, "num_records");
  int64_t want = s ? 0 : *T_DATA(ctx_in(ctx, 2), const int64_t);
  if (!s && want < 0) s = INVALID("num_records must not be negative, but is %" PRId64, want);
  if (!s && want == 0) {
    s = set_strings(ctx, 0, false, NULL, 0);
    if (!s) s = set_strings(ctx, 1, false, NULL, 0);
    ctx_done(ctx, s);
  } else if (s) {
    ctx_done(ctx, s);
  } else {
    start_read(ctx, want);
  }
}

/* ---- making ---- */

struct reader_maker {
  struct state_maker m;
  struct reader_config config;
  char *name;
};

static shoal_status not_negative(const struct shoal_node *n, const char *attr, int64_t *out) {
  TRY(node_get_int(n, attr, out));
  return *out >= 0 ? NULL : INVALID("%s must be >= 0 not %" PRId64, attr, *out);
}

static shoal_status maker_init(struct kernel_init *ki, struct reader_maker *st, enum reader_kind kind,
                               const char *label) {
  const struct shoal_node *n = ki->node;
  struct reader_config *c = &st->config;
  const char *compression = "";
  c->kind = kind;
  if (kind == READER_LINES) TRY(not_negative(n, "skip_header_lines", &c->skip_lines));
  if (kind == READER_FIXED) {
    TRY(not_negative(n, "header_bytes", &c->header));
    TRY(not_negative(n, "record_bytes", &c->record));
    TRY(not_negative(n, "footer_bytes", &c->footer));
    TRY(not_negative(n, "hop_bytes", &c->hop));
    if (c->record > INT64_MAX / 4 || c->footer > INT64_MAX / 4)
      return INVALID("Records of that size do not fit in memory");
    if (c->record == 0 && c->hop == 0) return INVALID("record_bytes must be > 0 when hop_bytes is 0");
    if (node_attr(n, "encoding")) TRY(node_get_string(n, "encoding", &compression));
  }
  if (kind == READER_RECORDS) TRY(node_get_string(n, "compression_type", &compression));
  TRY(record_compression_parse(compression, &c->compression));
  st->name = mem_printf("%s '%s'", label, n->name);
  return state_maker_init(&st->m, ki, &reader_type, true);
}
static shoal_status identity_init(struct kernel_init *ki, void *st) {
  return maker_init(ki, st, READER_IDENTITY, "IdentityReader");
}
static shoal_status whole_file_init(struct kernel_init *ki, void *st) {
  return maker_init(ki, st, READER_WHOLE_FILE, "WholeFileReader");
}
static shoal_status lines_init(struct kernel_init *ki, void *st) {
  return maker_init(ki, st, READER_LINES, "TextLineReader");
}
static shoal_status fixed_init(struct kernel_init *ki, void *st) {
  return maker_init(ki, st, READER_FIXED, "FixedLengthRecordReader");
}
static shoal_status records_init(struct kernel_init *ki, void *st) {
  return maker_init(ki, st, READER_RECORDS, "TFRecordReader");
}

static void maker_release(void *state) {
  struct reader_maker *st = state;
  state_maker_release(&st->m);
  free(st->name);
}

static shoal_status make(void *arg, struct resource **out) {
  struct reader_maker *st = arg;
  struct reader_resource *r = mem_zalloc(1, sizeof *r);
  resource_init(&r->head, &reader_type);
  pthread_mutex_init(&r->lock, NULL);
  r->name = mem_strdup(st->name);
  r->config = st->config;
  *out = &r->head;
  return NULL;
}

static shoal_status maker_run(struct kernel_ctx *ctx) {
  struct reader_maker *st = ctx->state;
  return state_maker_run(&st->m, ctx, make, st, NULL);
}

/* ---- state ---- */

/* A reader that nobody reads from just now, locked. */
static shoal_status find_idle(struct kernel_ctx *ctx, struct reader_resource **out) {
  struct resource *res;
  TRY(state_from_handle(ctx, 0, &reader_type, &res));
  struct reader_resource *r = (struct reader_resource *)res;
  pthread_mutex_lock(&r->lock);
  if (r->turns) {
    pthread_mutex_unlock(&r->lock);
    resource_unref(res);
    return STATUS(SHOAL_FAILED_PRECONDITION, "%s is being read from", r->name);
  }
  *out = r;
  return NULL;
}

static void let_go(struct reader_resource *r) {
  pthread_mutex_unlock(&r->lock);
  resource_unref(&r->head);
}

static shoal_status count_run(struct kernel_ctx *ctx) {
  struct resource *res;
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(state_from_handle(ctx, 0, &reader_type, &res));
  struct reader_resource *r = (struct reader_resource *)res;
  bool records = str_starts(ctx->kernel->op->name, "ReaderNumRecords");
  pthread_mutex_lock(&r->lock);
  *T_DATA(out, int64_t) = records ? r->produced : r->finished;
  pthread_mutex_unlock(&r->lock);
  resource_unref(res);
  return NULL;
}

static shoal_status reset_run(struct kernel_ctx *ctx) {
  struct reader_resource *r;
  TRY(find_idle(ctx, &r));
  reset(r);
  let_go(r);
  return NULL;
}

static bool has_state(const struct reader_resource *r) {
  return r->config.kind == READER_IDENTITY || r->config.kind == READER_WHOLE_FILE;
}

/* ReaderBaseState: 1 work_started, 2 work_finished, 3 num_records_produced, 4 current_work. */
static shoal_status serialize_run(struct kernel_ctx *ctx) {
  struct tensor *out;
  struct reader_resource *r;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(find_idle(ctx, &r));
  if (!has_state(r)) {
    let_go(r);
    return UNIMPLEMENTED("Reader SerializeState");
  }
  struct text t = {0};
  if (r->started) put_ReaderBaseState_work_started(&t, r->started);
  if (r->finished) put_ReaderBaseState_work_finished(&t, r->finished);
  if (r->produced) put_ReaderBaseState_num_records_produced(&t, r->produced);
  if (r->work.n) put_ReaderBaseState_current_work_n(&t, r->work.at, r->work.n);
  str_set(out->data, text_cstr(&t), t.n);
  text_release(&t);
  let_go(r);
  return NULL;
}

static shoal_status restore_from(struct reader_resource *r, const struct str *state) {
  if (!has_state(r)) return UNIMPLEMENTED("Reader RestoreState");
  reset(r);
  struct wire w = wire_from(str_data(state), state->size);
  struct wire_field f;
  enum wire_step step;
  int64_t started = 0, finished = 0, produced = 0;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == ReaderBaseState_work_started) started = (int64_t)f.value;
    if (f.tag == ReaderBaseState_work_finished) finished = (int64_t)f.value;
    if (f.tag == ReaderBaseState_num_records_produced) produced = (int64_t)f.value;
    if (f.tag == ReaderBaseState_current_work) {
      r->work.n = 0;
      text_add(&r->work, (const char *)f.data, f.size);
    }
  }
  if (step == WIRE_BROKEN) return INVALID("Could not parse state for %s", r->name);
  if (started < 0 || finished < 0 || produced < 0)
    return INVALID("Unexpected negative value when restoring in %s", r->name);
  if (started > finished)
    return INVALID("Inconsistent work started vs. finished when restoring in %s: work_started: %" PRId64
                   " work_finished: %" PRId64,
                   r->name, started, finished);
  r->started = started;
  r->finished = finished;
  r->produced = produced;
  return NULL;
}

static shoal_status restore_run(struct kernel_ctx *ctx) {
  const struct tensor *state = ctx_in(ctx, 1);
  if (state->rank != 0) {
    struct shape shape = tensor_shape(state);
    return INVALID("Reader state must be scalar, but had shape: %s", shape_str(&shape));
  }
  struct reader_resource *r;
  TRY(find_idle(ctx, &r));
  shoal_status s = restore_from(r, state->data);
  if (s) reset(r);
  let_go(r);
  return s;
}

/* ---- rows ---- */

#define KERNEL(id, ...) static const struct kernel_def id[] = {{.device = "CPU", __VA_ARGS__}, {0}}
#define MAKER(id, init_) \
  KERNEL(id, .state_size = sizeof(struct reader_maker), .init = init_, .release = maker_release, .run = maker_run)
MAKER(identity_kernels, identity_init);
MAKER(whole_file_kernels, whole_file_init);
MAKER(lines_kernels, lines_init);
MAKER(fixed_kernels, fixed_init);
MAKER(records_kernels, records_init);
KERNEL(read_kernels, .flags = KERNEL_EXPENSIVE, .start = read_start);
KERNEL(read_up_to_kernels, .flags = KERNEL_EXPENSIVE, .start = read_up_to_start);
KERNEL(count_kernels, .run = count_run);
KERNEL(reset_kernels, .run = reset_run);
KERNEL(serialize_kernels, .run = serialize_run);
KERNEL(restore_kernels, .run = restore_run);

static shoal_status shape_reader(struct shape_ctx *c) {
  c->out[0] = dtype_is_ref(c->node->out_types[0]) ? shape_vector(2) : shape_scalar();
  return NULL;
}

#define PLACE "container: string = ''; shared_name: string = ''"
#define MAKE(op, attrs_, more, kernels_)                                                           \
  {.name = op,                                                                                     \
   .out = "reader_handle: Ref(string)",                                                            \
   .attrs = attrs_,                                                                                \
   .flags = OP_STATEFUL,                                                                           \
   .shape = shape_reader,                                                                          \
   .kernels = kernels_},                                                                           \
  {                                                                                                \
    .name = op "V2", .out = "reader_handle: resource", .attrs = attrs_ more, .flags = OP_STATEFUL, \
    .shape = shape_reader, .kernels = kernels_                                                     \
  }
#define USE(op, v1, v2, out_, shape_, kernels_)                                                              \
  {.name = op, .in = "reader_handle: Ref(string)" v1, .out = out_, .shape = shape_, .kernels = kernels_}, {  \
    .name = op "V2", .in = "reader_handle: resource" v2, .out = out_, .flags = OP_STATEFUL, .shape = shape_, \
    .kernels = kernels_                                                                                      \
  }
static const struct op_row rows[] = {
    MAKE("WholeFileReader", PLACE, "", whole_file_kernels),
    MAKE("TextLineReader", "skip_header_lines: int = 0; " PLACE, "", lines_kernels),
    MAKE("FixedLengthRecordReader",
         "header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0; " PLACE,
         "; encoding: string = ''", fixed_kernels),
    MAKE("TFRecordReader", PLACE "; compression_type: string = ''", "", records_kernels),
    MAKE("IdentityReader", PLACE, "", identity_kernels),
    USE("ReaderRead", ", queue_handle: Ref(string)", ", queue_handle: resource", "key: string, value: string",
        shape_scalar_out, read_kernels),
    USE("ReaderReadUpTo", ", queue_handle: Ref(string), num_records: int64",
        ", queue_handle: resource, num_records: int64", "keys: string, values: string", NULL, read_up_to_kernels),
    USE("ReaderNumRecordsProduced", "", "", "records_produced: int64", shape_scalar_out, count_kernels),
    USE("ReaderNumWorkUnitsCompleted", "", "", "units_completed: int64", shape_scalar_out, count_kernels),
    USE("ReaderSerializeState", "", "", "state: string", shape_scalar_out, serialize_kernels),
    USE("ReaderRestoreState", ", state: string", ", state: string", NULL, NULL, restore_kernels),
    USE("ReaderReset", "", "", NULL, NULL, reset_kernels),
};
OP_FAMILY(readers, rows);
