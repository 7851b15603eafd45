/* A dataset kept in files: the first walk to the end writes every element into a tensor bundle (checkpoint/bundle.h),
 * later ones, of this process or of another, read it.
 *
 * Component c of element e is the tensor named "      e_c", both numbers padded by blanks, the second to the width of
 * the last component's: as TensorFlow names them, so that either reads what the other wrote. The bundle appears under
 * its name only when complete. A file NAME_0.lockfile stands beside it while a walk is writing, so that two do not
 * write at once; it goes when the walk ends, whether it got to the end or not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/bundle.h"
#include "data/dataset.h"

enum { MAX_ITEMS = 10000000, ITEM_WIDTH = 7 }; /* TensorFlow's */

struct file_cache {
  struct dataset head;
  char *prefix, *lock_path;
};

struct file_iter {
  struct data_iterator head;
  enum { UNDECIDED, READING, WRITING, OVER } state;
  bool locked; /* the lock file is ours */
  struct bundle bundle;
  struct bundle_writer writer;
  int64_t at;
};

static size_t name_of(const struct dataset *d, int64_t element, int component, char out[64]) {
  int width = 1;
  for (int last = d->n - 1; last >= 10; last /= 10) width++;
  return (size_t)snprintf(out, 64, "%*lld_%*d", ITEM_WIDTH, (long long)element, width, component);
}

/* Gives up what is half written. */
static void stop(struct file_iter *c) {
  const struct file_cache *d = (const struct file_cache *)c->head.of;
  if (c->state == READING) bundle_close(&c->bundle);
  if (c->state == WRITING) bundle_writer_abort(&c->writer);
  if (c->locked) shoal_status_free(file_remove(d->lock_path));
  c->locked = false;
  c->state = OVER;
}

static void iter_free(struct data_iterator *it) { stop((struct file_iter *)it); }

static shoal_status lock(struct file_iter *c) {
  const struct file_cache *d = (const struct file_cache *)c->head.of;
  struct text who = {0};
  text_addf(&who, "Created at: %lld", (long long)(wall_micros() / 1000000));
  shoal_status s = file_create(d->lock_path, text_cstr(&who), who.n);
  text_release(&who);
  c->locked = !s;
  if (!s || shoal_status_code(s) != SHOAL_ALREADY_EXISTS) return s;
  shoal_status_free(s);
  char *was = NULL;
  size_t n = 0;
  shoal_status_free(file_read(d->lock_path, 4096, &was, &n));
  s = STATUS(SHOAL_ALREADY_EXISTS,
             "There appears to be a concurrent caching iterator running - cache lockfile already exists ('%s'). If you "
             "are sure no other running TF computations are using this cache prefix, delete the lockfile and "
             "re-initialize the iterator. Lockfile contents: %.*s",
             d->lock_path, (int)n, was ? was : "");
  free(was);
  return s;
}

static shoal_status begin(struct file_iter *c) {
  const struct file_cache *d = (const struct file_cache *)c->head.of;
  char *index = bundle_index_path(d->prefix);
  bool there = file_exists(index);
  free(index);
  if (there) {
    TRY(bundle_open(&c->bundle, d->prefix));
    c->state = READING;
    return NULL;
  }
  TRY(lock(c));
  shoal_status s = bundle_writer_open(&c->writer, d->prefix);
  if (s) stop(c);
  else c->state = WRITING;
  return s;
}

/* A file that is cut short is no end of the elements. */
static shoal_status read_component(struct file_iter *c, const char *name, size_t n, struct tensor *out) {
  shoal_status s = bundle_read(&c->bundle, name, n, out);
  if (shoal_status_code(s) != SHOAL_OUT_OF_RANGE) return s;
  shoal_status lost = STATUS(SHOAL_DATA_LOSS, "%s", shoal_status_message(s));
  shoal_status_free(s);
  return lost;
}

static shoal_status read_next(struct file_iter *c, struct tensor *out, bool *end) {
  const struct dataset *d = c->head.of;
  char name[64];
  for (int i = 0; i < d->n; i++) {
    size_t n = name_of(d, c->at, i, name);
    shoal_status s = read_component(c, name, n, &out[i]);
    if (!s && out[i].dtype != d->types[i]) {
      s = INVALID("Component %d of element %lld in the cache is of type %s, not %s", i, (long long)c->at,
                  dtype_tf_name((shoal_dtype)out[i].dtype), dtype_tf_name(d->types[i]));
      tensor_release(&out[i]);
    }
    if (!s) continue;
    tensors_release(out, i);
    if (i || shoal_status_code(s) != SHOAL_NOT_FOUND) return s;
    shoal_status_free(s);
    *end = true;
    return NULL;
  }
  *end = !d->n;
  c->at++;
  return NULL;
}

static shoal_status write_element(struct file_iter *c, const struct tensor *out) {
  const struct dataset *d = c->head.of;
  char name[64];
  if (c->at >= MAX_ITEMS)
    return INVALID("Upstream iterator is producing more than %d items, which is more than the cache limit.", MAX_ITEMS);
  for (int i = 0; i < d->n; i++) {
    size_t n = name_of(d, c->at, i, name);
    TRY(bundle_writer_add(&c->writer, name, n, &out[i]));
  }
  c->at++;
  return NULL;
}

static shoal_status write_next(struct file_iter *c, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct data_iterator *in;
  TRY(iterator_input(&c->head, &in));
  TRY(iterator_next(in, ctx, out, end));
  shoal_status s = NULL;
  if (!*end) {
    s = write_element(c, out);
    if (s) tensors_release(out, c->head.of->n);
  } else {
    c->state = OVER; /* finishing frees the writer, whatever comes of it */
    s = bundle_writer_finish(&c->writer);
  }
  if (s || *end) stop(c);
  return s;
}

static shoal_status next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct file_iter *c = (struct file_iter *)it;
  if (c->state == UNDECIDED) TRY(begin(c));
  switch (c->state) {
    case READING: return read_next(c, out, end);
    case WRITING: return write_next(c, ctx, out, end);
    default: *end = true; return NULL;
  }
}

static const struct data_iterator_type iter_type = {sizeof(struct file_iter), next, iter_free,
                                                    .begin = iterator_begin_later};

static shoal_status iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&iter_type, d);
  return NULL;
}

static void release(struct dataset *d) {
  struct file_cache *c = (struct file_cache *)d;
  free(c->prefix);
  free(c->lock_path);
}

static const struct dataset_type cache_type = {"FileCache", iterate, NULL, release};

struct dataset *dataset_file_cache(struct dataset *in, const char *prefix) {
  struct file_cache *d = (struct file_cache *)dataset_new(sizeof *d, &cache_type, in->n, in->types, in->shapes, &in, 1);
  d->prefix = mem_strdup(prefix);
  d->lock_path = mem_printf("%s_0.lockfile", prefix);
  return &d->head;
}
