/* Datasets: descriptions of sequences of elements, each a tuple of tensors, and the iterators that walk them.
 *
 * A dataset is a variant: immutable, shared by reference count, made by an op. An iterator is used by one thread at a
 * time; datasets with threads of their own (parallel map, prefetch) hide them behind it. Adding a dataset: a struct
 * that begins with struct dataset, its iterator, a constructor here, and its op's row. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "base/cancel.h"
#include "runtime/function.h"
#include "tensor/tensor.h"

struct dataset;
struct dataset_origin; /* data/dataset_graph.h */
struct data_iterator;

/* An attribute of SkipDataset that asks for `unmade` of dataset_skip; TensorFlow passes it by. */
#define DATASET_SKIP_UNMADE "_skip_unmade"

enum { SIZE_INFINITE = -1, SIZE_UNKNOWN = -2, SIZE_NOT_ASKED = -3 };

struct dataset_type {
  const char *name;
  shoal_status (*iterate)(struct dataset *d, struct data_iterator **out);
  int64_t (*size)(const struct dataset *d);                 /* elements, or SIZE_...; NULL: the first input's */
  void (*release)(struct dataset *d);                       /* (optional) what the type added */
  struct seed_generator *(*seeds)(const struct dataset *d); /* (optional) where its iterators draw seeds */
};

struct dataset {
  struct variant head;
  const struct dataset_type *type;
  int n;                /* components of an element */
  shoal_dtype *types;   /* [n] */
  struct shape *shapes; /* [n] as far as known */
  struct dataset **inputs;
  int n_inputs;
  const char *op;                     /* the op that made it, of the registry; NULL: made inside another */
  struct dataset_origin *origin;      /* its node, a reference; NULL: likewise */
  struct function_runtime *functions; /* those that the node names, a reference; NULL: it names none */
  struct tensor *args;                /* [n_args] what the node was given */
  int n_args;
  int depth, parts;              /* of what stands above it, itself and what its functions captured among them */
  bool own_seeds;                /* one of those is a shuffle with seeds of its own (ops/data/dataset_final.c) */
  struct dataset *_Atomic final; /* what iterators over it walk: itself, another (a reference), NULL: none has yet */
  atomic_int_fast64_t asked;     /* what size() answered, or SIZE_NOT_ASKED: several may have the same input */
};

/* A graph may name one input many times, again and again: 50 zips of pairs are 2^50 iterators. */
enum { DATASET_MAX_DEPTH = 2000, DATASET_MAX_PARTS = 1 << 16, DATASET_MAX_COMPONENTS = 1 << 16 };

/* What a call of next() may want of whoever makes it. */
struct data_ctx {
  struct cancel *cancel; /* never NULL */
};
/* Is the call to end before it has found anything? Whoever loops or waits asks, and gives the reason: its step was
 * cancelled, or the process was told to stop and this is all that it still does. */
bool data_ended(const struct data_ctx *ctx);
shoal_status data_why_ended(const struct data_ctx *ctx);

struct data_iterator_type {
  size_t size;
  /* Fills out[n], or sets *end. After the end, or an error, it may be called again. */
  shoal_status (*next)(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end);
  void (*release)(struct data_iterator *it); /* (optional) */
  /* (optional) Passes the next element by without making it, where that is less work and no function may fail. */
  shoal_status (*skip)(struct data_iterator *it, struct data_ctx *ctx, bool *end);
  /* (optional) Makes the iterators over what is walked from the beginning on; NULL: that over the first input. With
   * them shuffles draw their seeds, in the order that TensorFlow has. */
  shoal_status (*begin)(struct data_iterator *it);
};

struct data_iterator {
  const struct data_iterator_type *type;
  struct dataset *of;               /* a reference */
  struct data_iterator *in;         /* over the first input, where there is one; released with the iterator */
  const struct data_iterator *user; /* whose `in` this is, if anybody's */
};

/* ---- for those who use datasets ---- */
extern const struct variant_type dataset_variant;
struct dataset *dataset_ref(struct dataset *d);
void dataset_unref(struct dataset *d);
/* The dataset in a scalar variant tensor (no new reference). */
shoal_status dataset_from_tensor(const struct tensor *t, struct dataset **out);
/* A scalar variant tensor that takes over d's reference. */
shoal_status dataset_to_tensor(struct dataset *d, struct tensor *out);
int64_t dataset_size(const struct dataset *d);
shoal_status dataset_iterate(struct dataset *d, struct data_iterator **out);
shoal_status iterator_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end);
void iterator_free(struct data_iterator *it);
/* Passes one element by. */
shoal_status iterator_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end);
/* The iterator over the first input, made when first asked for. */
shoal_status iterator_input(struct data_iterator *it, struct data_iterator **in);
/* A begin: the input is walked later, or not at all. */
shoal_status iterator_begin_later(struct data_iterator *it);
void tensors_release(struct tensor *t, int n);
/* Waits for a change, but not for long: whoever waits looks at its cancellation again.
 * change: made by cond_init(). */
void data_wait(pthread_cond_t *change, pthread_mutex_t *lock);

/* Counts inputs (those of the op that made d) into its depth and parts. INVALID_ARGUMENT when there are too many. */
shoal_status dataset_bound(struct dataset *d, const struct tensor *const *inputs, int n);
/* a + b and a * b of sizes: SIZE_UNKNOWN when either is or the result does not fit. */
int64_t size_add(int64_t a, int64_t b);
int64_t size_times(int64_t a, int64_t b);

/* ---- for those who make them ---- */
/* size: of the whole struct. Types and shapes are copied; inputs get a reference each. */
struct dataset *dataset_new(size_t size, const struct dataset_type *type, int n, const shoal_dtype *types,
                            const struct shape *shapes, struct dataset *const *inputs, int n_inputs);
/* d's shapes become what both agree on; other has as many components. */
void dataset_widen(struct dataset *d, const struct dataset *other);
struct data_iterator *iterator_new(const struct data_iterator_type *type, struct dataset *of);

/* A function with the values it captured. */
struct captured {
  struct function *f;
  struct function_runtime *runtime; /* a reference */
  struct tensor *args;              /* [n] after the element's own */
  int n;
  bool must_not_end; /* preserve_cardinality: OUT_OF_RANGE from the function is an error */
};
void captured_init(struct captured *c, struct function *f, struct function_runtime *runtime,
                   const struct tensor *const *args, int n);
void captured_release(struct captured *c);
shoal_status captured_call(const struct captured *c, struct data_ctx *ctx, const struct tensor *in, int n_in,
                           struct tensor *rets, int n_rets);

/* ---- the kinds there are ---- */
/* Each takes references of its own. types/shapes [n]: of the elements made. */
struct dataset *dataset_of_tensors(const struct tensor *t, int n);
shoal_status dataset_of_slices(const struct tensor *t, int n, struct dataset **out);
struct dataset *dataset_range(int64_t start, int64_t stop, int64_t step, shoal_dtype type);
struct dataset *dataset_take(struct dataset *in, int64_t count);
/* unmade: elements are passed by without being made where that can be; functions are not called for them. */
struct dataset *dataset_skip(struct dataset *in, int64_t count, bool unmade);
struct dataset *dataset_repeat(struct dataset *in, int64_t count);
/* shards SHARD_HINT: as many as AutoShardDataset says; walking it as it is is an error. */
enum { SHARD_HINT = -1 };
struct dataset *dataset_shard(struct dataset *in, int64_t shards, int64_t index, bool require_non_empty);
shoal_status dataset_concatenate(struct dataset *a, struct dataset *b, struct dataset **out);
struct dataset *dataset_zip(struct dataset *const *in, int n);
struct dataset *dataset_batch(struct dataset *in, int64_t size, bool drop_remainder);
/* The size of the batches that d itself makes; -1 when it is no batch. */
int64_t dataset_batch_rows(const struct dataset *d);
/* pad_shapes, pad_values: [components]. */
shoal_status dataset_padded_batch(struct dataset *in, int64_t size, bool drop_remainder, const struct shape *pad_shapes,
                                  const struct tensor *pad_values, struct dataset **out);
shoal_status dataset_unbatch(struct dataset *in, struct dataset **out);
struct dataset *dataset_window(struct dataset *in, int64_t size, int64_t shift, int64_t stride, bool drop_remainder);
/* The same, each window a batch. */
struct dataset *dataset_sliding(struct dataset *in, int64_t size, int64_t shift, int64_t stride, bool drop_remainder);
/* Each batch cut into as many parts as there are replicas. */
struct dataset *dataset_rebatch(struct dataset *in, int64_t replicas);
/* Batches of the given sizes, in turn, whatever those that come in. */
struct dataset *dataset_rebatch_sizes(struct dataset *in, const int64_t *sizes, int64_t n, bool drop_remainder);
/* Batches as sparse tensors, in variants; row_shape: of one element, -1 as large as the largest. */
struct dataset *dataset_sparse_batch(struct dataset *in, int64_t size, const struct shape *row_shape);
shoal_status dataset_sparse_slices(const struct tensor *indices, const struct tensor *values,
                                   const struct tensor *shape, struct dataset **out);

/* Where shuffles of one dataset op draw their seeds: shared by its iterators, so that each epoch differs. */
struct seed_generator;
struct seed_generator *seed_generator_new(int64_t seed, int64_t seed2, bool reshuffle);
struct seed_generator *seed_generator_ref(struct seed_generator *g);
void seed_generator_unref(struct seed_generator *g);
/* The states of all generators of a dataset and of those above it; and back, into a dataset made by the same ops.
 * INVALID_ARGUMENT when it is not. */
void dataset_seeds_save(const struct dataset *d, struct text *out);
shoal_status dataset_seeds_load(const struct dataset *d, const void *saved, size_t n);
/* own: the generator goes with this dataset, where another op's is named in the graph. */
struct dataset *dataset_shuffle(struct dataset *in, int64_t buffer, struct seed_generator *seeds, int64_t repeat,
                                bool own);
/* Marks the shuffles with seeds of their own that d is made of, all the ways that lead to them: had one a mark? */
bool dataset_seeds_used(struct dataset *d);
struct dataset *dataset_random(struct seed_generator *seeds);
struct dataset *dataset_cache(struct dataset *in); /* in memory */
/* In a tensor bundle of that name. */
struct dataset *dataset_file_cache(struct dataset *in, const char *prefix);
struct dataset *dataset_prefetch(struct dataset *in, int64_t buffer);
/* An iterator that runs `in` (taken over) ahead on a thread of its own. */
struct data_iterator *iterator_prefetch(struct dataset *of, struct data_iterator *in, int64_t buffer);

struct element_spec {
  int n;
  const shoal_dtype *types;
  const struct shape *shapes;
};
/* f is taken over (its captured values). parallel: calls in flight; 1: one after another. unordered: what is ready
 * first comes first. */
struct dataset *dataset_map(struct dataset *in, struct captured *f, const struct element_spec *spec, int64_t parallel,
                            bool unordered);
struct dataset *dataset_filter(struct dataset *in, struct captured *f, bool stop_at_false);
struct dataset *dataset_flat_map(struct dataset *in, struct captured *f, const struct element_spec *spec);
struct dataset *dataset_interleave(struct dataset *in, struct captured *f, const struct element_spec *spec,
                                   int64_t cycle, int64_t block, bool ahead);
struct dataset *dataset_scan(struct dataset *in, struct captured *f, const struct tensor *state, int n_state,
                             const struct element_spec *spec);

/* f: key_func, reduce_func, window_size_func; taken over, as all functions here. */
struct dataset *dataset_group_by_window(struct dataset *in, struct captured f[3], const struct element_spec *spec);
/* f: key_func, init_func, reduce_func, finalize_func. */
shoal_status dataset_group_by_reducer(struct dataset *in, struct captured f[4], const struct element_spec *spec,
                                      struct dataset **out);
/* f: init_func, next_func(state), finalize_func(state). */
struct dataset *dataset_generator(struct captured f[3], const struct element_spec *spec);
shoal_status dataset_unique(struct dataset *in, struct dataset **out);
/* in[0] says from which of the others each element comes. */
shoal_status dataset_directed(struct dataset *const *in, int n, bool stop_on_empty, struct dataset **out);
struct dataset *dataset_ignore_errors(struct dataset *in);
struct dataset *dataset_sampling(struct dataset *in, float rate, int64_t seed, int64_t seed2);
struct dataset *dataset_sleep(struct dataset *in, int64_t micros);
/* A serialized Options message that travels with the dataset; what all of them say together. */
struct dataset *dataset_options(struct dataset *in, const void *options, size_t n);
void dataset_get_options(const struct dataset *d, struct text *out);
/* Fails when the transformations around are not these: those applied later (names are taken over), and earlier. */
struct dataset *dataset_assert_next(struct dataset *in, char **names, int n);
shoal_status dataset_check_previous(const struct dataset *in, const char *const *names, int n);
/* An error when there are more or fewer elements. */
struct dataset *dataset_assert_size(struct dataset *in, int64_t count);

enum record_kind { RECORDS_LINES, RECORDS_TFRECORD, RECORDS_FIXED };
struct record_options {
  enum record_kind kind;
  const char *compression;        /* "", "GZIP", "ZLIB" */
  int64_t header, record, footer; /* RECORDS_FIXED */
  const struct tensor *offsets;   /* RECORDS_TFRECORD: where each file's first record begins; NULL: at 0 */
};
shoal_status dataset_records(const struct tensor *filenames, const struct record_options *o, struct dataset **out);

/* Elements that go into files as they pass, elements that come from there, and both: written by the first walk, read by
 * later ones (data/snapshot.h). compression: a number of data/record.h. shard (f NULL: all into one) and reader are
 * taken over; the reader makes one dataset of that of the shards'. NOT_FOUND when there is nothing to load. */
struct dataset *dataset_saving(struct dataset *in, const char *folder, int compression, struct captured *shard);
shoal_status dataset_loading(const char *folder, int compression, struct captured *reader,
                             const struct element_spec *spec, struct dataset **out);
struct dataset *dataset_snapshot(struct dataset *in, const char *folder, const char *hash, int compression,
                                 struct captured *reader, struct captured *shard);

#endif
