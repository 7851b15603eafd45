/* Parameters of batches; see batch.h. */
#include <string.h>

#include "base/file.h"
#include "base/pool.h"
#include "graph/text_format.h"
#include "proto/proto_check.h"
#include "proto/serving_config.pb-c.h"
#include "serving/batch.h"

enum { MOST = 10000, MOST_BYTES = 1 << 20 };

typedef Google__Protobuf__Int64Value boxed;

void batch_parameters_default(struct batch_parameters *p) {
  *p = (struct batch_parameters){
      .max_batch_size = 1000, .max_enqueued_batches = 10, .num_batch_threads = MAX(1, cpu_count())};
}

static shoal_status take(int64_t *to, const boxed *from, const char *name, int64_t least) {
  if (!from) return NULL;
  if (from->value < least) return INVALID("%s is %lld, below %lld", name, (long long)from->value, (long long)least);
  *to = from->value;
  return NULL;
}

/* Large requests, which others split, run by themselves here in any case: what stays is how large batches are. */
static shoal_status take_execution_size(struct batch_parameters *p, const Tensorflow__Serving__BatchingParameters *m) {
  int64_t largest = p->max_batch_size;
  TRY(take(&largest, m->max_execution_batch_size, "max_execution_batch_size", 1));
  if (!m->enable_large_batch_splitting || !m->enable_large_batch_splitting->value) return NULL;
  if (largest > p->max_batch_size)
    return INVALID("max_execution_batch_size is %lld, above max_batch_size, %lld", (long long)largest,
                   (long long)p->max_batch_size);
  p->max_batch_size = largest;
  return NULL;
}

static shoal_status take_allowed(struct batch_parameters *p, const int64_t *sizes, size_t n) {
  if (n > MOST) return INVALID("allowed_batch_sizes: more than %d", MOST);
  for (size_t i = 0; i < n; i++) {
    if (sizes[i] < 1 || (i && sizes[i] <= sizes[i - 1]))
      return INVALID("allowed_batch_sizes entries must be monotonically increasing");
    vec_push(&p->allowed, sizes[i]);
  }
  if (n && sizes[n - 1] != p->max_batch_size)
    return INVALID("Last entry in allowed_batch_sizes must match max_batch_size; last entry was %lld; expected %lld",
                   (long long)sizes[n - 1], (long long)p->max_batch_size);
  return NULL;
}

static shoal_status take_all(struct batch_parameters *p, const Tensorflow__Serving__BatchingParameters *m) {
  TRY(take(&p->max_batch_size, m->max_batch_size, "max_batch_size", 1));
  TRY(take_execution_size(p, m));
  TRY(take(&p->batch_timeout_micros, m->batch_timeout_micros, "batch_timeout_micros", 0));
  TRY(take(&p->max_enqueued_batches, m->max_enqueued_batches, "max_enqueued_batches", 1));
  TRY(take(&p->num_batch_threads, m->num_batch_threads, "num_batch_threads", 1));
  p->pad = m->pad_variable_length_inputs;
  return take_allowed(p, m->allowed_batch_sizes, m->n_allowed_batch_sizes);
}

shoal_status batch_parameters_read_file(struct batch_parameters *p, const char *path) {
  char *text;
  size_t n;
  Tensorflow__Serving__BatchingParameters *m = NULL;
  batch_parameters_default(p);
  TRY(file_read(path, MOST_BYTES, &text, &n));
  shoal_status s = text_format_parse(&tensorflow__serving__batching_parameters__descriptor, text, n, &m);
  if (!s) s = take_all(p, m);
  proto_free(m);
  free(text);
  return status_prefix(s, "%s: ", path);
}

void batch_parameters_release(struct batch_parameters *p) { vec_release(&p->allowed); }
