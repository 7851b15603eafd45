/* Pictures for classifiers, each by its number: from a folder with a folder of files for each class, from a file of
 * TFRecords as ImageNet is kept in (tf.train.Example with image/encoded and image/class/label), or from IDX files.
 *
 * A step's pictures are known by its number (shoal_batches), so a run that goes on sees what it would have seen: all
 * kinds can be asked for any picture. Records are found by one pass over the file, which is mapped; that their lengths
 * lead to its end is checked, their contents by the ops that parse them. Files are decoded and scaled by ops too, in a
 * session of this program's own, on the CPU, by several threads, while the step before runs; what is fed to the model
 * are bytes, [batch, side, side, 3]. To train with, pictures may be changed at random: cut out of one that is an eighth
 * larger, and turned round. How follows from the step and the place in it.
 *
 *   TFRecords    uint64 length, uint32 checksum, data, uint32 checksum */
#ifndef EXAMPLES_PICTURES_H
#define EXAMPLES_PICTURES_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ahead.h"
#include "common.h"

struct picture {
  char *path;                /* a file; or */
  const unsigned char *data; /* a record */
  size_t size;
  int64_t label;
};

struct pictures {
  struct picture *at;
  int64_t n, room, classes;
  shoal_tensor *bytes, *labels; /* of IDX: [n, h, w] or [n, h, w, channels]; [n] */
  int64_t side, scaled;         /* of what is fed; of what is cut from, which is more where it is changed at random */
  /* How one is decoded. */
  shoal_graph *g;
  shoal_session *session;
  shoal_out in, out, label; /* bytes; [side, side, 3]; of a record */
  /* Which are in a batch, and who makes them. */
  shoal_batches *batches;
  int64_t batch, readers;
  uint64_t seed;
  struct ahead ahead;
  char error[512]; /* what went wrong with one; "": nothing */
};

static inline void refuse_pictures(const char *path, const char *what) {
  fprintf(stderr, "%s: --data=%s: %s\n", program_name, path, what);
  exit(1);
}

static inline struct picture *add_picture(struct pictures *p) {
  if (p->n == p->room) {
    p->room = p->room ? 2 * p->room : 1024;
    p->at = (struct picture *)realloc(p->at, (size_t)p->room * sizeof *p->at);
    if (!p->at) refuse("no memory for so many pictures");
  }
  struct picture none = {NULL, NULL, 0, 0};
  p->at[p->n] = none;
  return &p->at[p->n++];
}

/* ---- a folder of classes ---- */

static inline int visible(const struct dirent *d) { return d->d_name[0] != '.'; }

/* The entries of a folder in the order of their names; -1: it is none. */
static inline int list_folder(const char *path, struct dirent ***out) { return scandir(path, out, visible, alphasort); }

static inline void add_class(struct pictures *p, const char *folder, int64_t label) {
  struct dirent **file = NULL;
  int n = list_folder(folder, &file);
  for (int i = 0; i < n; i++) {
    size_t size = strlen(folder) + strlen(file[i]->d_name) + 2;
    struct picture *one = add_picture(p);
    one->path = (char *)malloc(size);
    if (!one->path) refuse("no memory for so many pictures");
    snprintf(one->path, size, "%s/%s", folder, file[i]->d_name);
    one->label = label;
    free(file[i]);
  }
  free(file);
}

static inline void add_folder(struct pictures *p, const char *path) {
  struct dirent **folder = NULL;
  int n = list_folder(path, &folder);
  for (int i = 0; i < n; i++) {
    char name[4096];
    struct stat s;
    snprintf(name, sizeof name, "%s/%s", path, folder[i]->d_name);
    if (!stat(name, &s) && S_ISDIR(s.st_mode)) add_class(p, name, p->classes++);
    free(folder[i]);
  }
  free(folder);
  if (!p->n) refuse_pictures(path, "there is no folder of pictures for each class in it");
}

/* ---- records ---- */

static inline uint64_t record_length(const unsigned char *p) {
  uint64_t v = 0;
  for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
  return v;
}

static inline void add_records(struct pictures *p, const char *path) {
  struct stat s;
  int fd = open(path, O_RDONLY);
  if (fd < 0 || fstat(fd, &s)) refuse_pictures(path, strerror(errno));
  if (s.st_size < 1) refuse_pictures(path, "it is empty");
  void *map = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) refuse_pictures(path, strerror(errno));
  close(fd);
  const unsigned char *at = (const unsigned char *)map;
  size_t left = (size_t)s.st_size;
  while (left) {
    uint64_t length = left >= 16 ? record_length(at) : 0;
    if (left < 16 || length > left - 16) refuse_pictures(path, "these are no TFRecords, or they are cut short");
    struct picture *one = add_picture(p);
    one->data = at + 12;
    one->size = (size_t)length;
    at += 16 + length;
    left -= 16 + (size_t)length;
  }
}

/* ---- IDX ---- */

/* Are there files as MNIST has them? PATH/train-images-idx3-ubyte (which: "train"), plain or gzipped, and labels beside
 * them. */
static inline bool add_idx(struct pictures *p, const char *path, const char *which) {
  static const char *const ends[] = {"", ".gz"};
  for (int i = 0; i < 2; i++) {
    char images[4096], labels[4096];
    snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte%s", path, which, ends[i]);
    snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte%s", path, which, ends[i]);
    if (access(images, F_OK)) continue;
    check(shoal_read_idx(images, &p->bytes));
    check(shoal_read_idx(labels, &p->labels));
    p->n = shoal_tensor_dim(p->bytes, 0);
    int rank = shoal_tensor_rank(p->bytes);
    bool colours = rank == 4 && shoal_tensor_dim(p->bytes, 3) == 3;
    if ((rank != 3 && !colours) || shoal_tensor_dtype(p->bytes) != SHOAL_UINT8 ||
        shoal_tensor_dtype(p->labels) != SHOAL_UINT8 || shoal_tensor_elements(p->labels) != p->n || !p->n)
      refuse_pictures(path, "these are no pictures of bytes with as many labels");
    return true;
  }
  return false;
}

/* ---- one picture ---- */

/* Of a record: the picture in the example, as it was encoded, and its label. */
static inline shoal_out parse_record(struct pictures *p, shoal_out record) {
  shoal_graph *g = p->g;
  const char *const keys[] = {"image/encoded", "image/class/label"};
  const shoal_out defaults[] = {shoal_constant_string(g, ""), shoal_constant_int64(g, -1)};
  const shoal_dims scalars[] = {SHOAL_SCALAR, SHOAL_SCALAR};
  shoal_op *parsed = shoal_parse_single_example(g, record, defaults, 2, 0, NULL, 0, keys, 2, NULL, 0, scalars, 2);
  shoal_out image = {parsed, 0}, label = {parsed, 1};
  p->label = label;
  return image;
}

/* Bytes of an encoded picture to [h, w, 3]. */
static inline shoal_out decode(shoal_graph *g, shoal_out bytes) {
  shoal_decode_image_options o = SHOAL_DECODE_IMAGE_DEFAULTS;
  o.channels = 3;
  o.expand_animations = false;
  return shoal_decode_image_with(g, bytes, &o);
}

/* The placeholder for a picture of IDX, and what is [h, w, 3] of it. */
static inline shoal_out idx_picture(struct pictures *p) {
  shoal_graph *g = p->g;
  int64_t h = shoal_tensor_dim(p->bytes, 1), w = shoal_tensor_dim(p->bytes, 2);
  bool grey = shoal_tensor_rank(p->bytes) == 3;
  const int32_t thrice[] = {1, 1, grey ? 3 : 1};
  p->in = shoal_placeholder(g, SHOAL_UINT8, SHOAL_SHAPE(h, w, grey ? 1 : 3), "picture");
  return shoal_tile(g, p->in, shoal_constant_ints(g, SHOAL_SHAPE(3), thrice));
}

/* To [side, side, 3], by bilinear interpolation. */
static inline shoal_out scale_to(shoal_graph *g, shoal_out picture, int64_t side) {
  const int32_t sides[] = {(int32_t)side, (int32_t)side};
  shoal_resize_bilinear_options o = SHOAL_RESIZE_BILINEAR_DEFAULTS;
  o.half_pixel_centers = true;
  shoal_out many = shoal_expand_dims(g, picture, shoal_constant_int(g, 0));
  many = shoal_resize_bilinear_with(g, many, shoal_constant_ints(g, SHOAL_SHAPE(2), sides), &o);
  return shoal_cast(g, shoal_round(g, many), SHOAL_UINT8);
}

/* A graph that makes one picture, and its session. */
static inline void open_decoder(struct pictures *p) {
  shoal_out picture;
  p->g = shoal_graph_new();
  shoal_push_device(p->g, "/device:CPU:0");
  if (p->bytes) picture = idx_picture(p);
  else {
    p->in = shoal_placeholder(p->g, SHOAL_STRING, SHOAL_SCALAR, "picture");
    picture = p->at[0].path ? shoal_read_file(p->g, p->in) : parse_record(p, p->in);
    picture = decode(p->g, picture);
  }
  p->out = scale_to(p->g, picture, p->scaled);
  shoal_pop_device(p->g);
  if (shoal_report(p->g)) exit(1);
  check(shoal_session_open(p->g, NULL, &p->session));
}

/* What is fed to make picture i, for the caller to unref. */
static inline shoal_tensor *picture_input(const struct pictures *p, int64_t i) {
  shoal_tensor *in = NULL;
  if (p->bytes) {
    int64_t h = shoal_tensor_dim(p->bytes, 1), w = shoal_tensor_dim(p->bytes, 2);
    const int64_t dims[] = {h, w, shoal_tensor_rank(p->bytes) == 3 ? 1 : 3};
    size_t size = (size_t)(dims[0] * dims[1] * dims[2]);
    const unsigned char *all = (const unsigned char *)shoal_tensor_const_data(p->bytes);
    check(shoal_tensor_from(SHOAL_UINT8, 3, dims, all + size * (size_t)i, size, &in));
  } else if (p->at[i].path) check(shoal_tensor_from_string(p->at[i].path, strlen(p->at[i].path), &in));
  else check(shoal_tensor_from_string((const char *)p->at[i].data, p->at[i].size, &in));
  return in;
}

/* Where a picture is cut out, and whether it is turned round. */
struct cut {
  int64_t row, column;
  bool mirrored;
};

/* salt: of the step and the place in it; 0: the middle, as it is. */
static inline struct cut choose_cut(const struct pictures *p, uint64_t salt) {
  int64_t room = p->scaled - p->side;
  struct cut c = {room / 2, room / 2, false};
  if (!salt || !room) return c;
  uint64_t x = (salt + p->seed) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  c.row = (int64_t)((x >> 8) % (uint64_t)(room + 1));
  c.column = (int64_t)((x >> 32) % (uint64_t)(room + 1));
  c.mirrored = x & 1;
  return c;
}

static inline void cut_out(const struct pictures *p, struct cut c, const unsigned char *from, unsigned char *to) {
  for (int64_t row = 0; row < p->side; row++)
    for (int64_t column = 0; column < p->side; column++) {
      int64_t at = c.column + (c.mirrored ? p->side - 1 - column : column);
      memcpy(to + (row * p->side + column) * 3, from + ((row + c.row) * p->scaled + at) * 3, 3);
    }
}

/* Picture i to `to`, side x side x 3 bytes, and its label. */
static inline shoal_status make_picture(const struct pictures *p, int64_t i, uint64_t salt, unsigned char *to,
                                        int64_t *label) {
  shoal_tensor *in = picture_input(p, i), *out = NULL;
  shoal_status s;
  *label = p->bytes ? ((const unsigned char *)shoal_tensor_const_data(p->labels))[i] : p->at[i].label;
  if (p->label.node)
    s = shoal_session_step(p->session, SHOAL_FEED(p->in, in), SHOAL_FETCH(p->out, &out, p->label, label), NULL);
  else s = shoal_session_step(p->session, SHOAL_FEED(p->in, in), SHOAL_FETCH(p->out, &out), NULL);
  if (!s) cut_out(p, choose_cut(p, salt), (const unsigned char *)shoal_tensor_const_data(out), to);
  shoal_tensor_unref(in);
  shoal_tensor_unref(out);
  return s;
}

/* ---- batches ---- */

/* One thread's share of a batch: every so-manieth picture. */
struct reader {
  const struct pictures *p;
  pthread_t thread;
  bool running;
  const int64_t *row;
  int64_t first, n;
  uint64_t salt; /* of the batch; 0: nothing is changed */
  unsigned char *to;
  int32_t *label;
  char error[512];
};

static inline void read_one(struct reader *r, int64_t i) {
  const struct pictures *p = r->p;
  int64_t label = 0, size = p->side * p->side * 3;
  const char *path = p->bytes || !p->at[r->row[i]].path ? "" : p->at[r->row[i]].path;
  shoal_status s = make_picture(p, r->row[i], r->salt ? r->salt + (uint64_t)i : 0, r->to + i * size, &label);
  if (s)
    snprintf(r->error, sizeof r->error, "picture %lld%s%s: %s", (long long)r->row[i], *path ? ", " : "", path,
             shoal_status_message(s));
  else if (label < 0 || label >= p->classes)
    snprintf(r->error, sizeof r->error, "picture %lld is of class %lld; --classes=%lld", (long long)r->row[i],
             (long long)label, (long long)p->classes);
  shoal_status_free(s);
  r->label[i] = (int32_t)label;
}

static inline void *read_share(void *arg) {
  struct reader *r = (struct reader *)arg;
  for (int64_t i = r->first; i < r->n && !*r->error; i += r->p->readers) read_one(r, i);
  return NULL;
}

/* These pictures as two tensors: [n, side, side, 3] of bytes, [n] of labels. */
static inline void make_rows(struct pictures *p, const int64_t *rows, int64_t n, uint64_t salt, shoal_tensor **values) {
  const int64_t dims[] = {n, p->side, p->side, 3};
  struct reader *reader = (struct reader *)calloc((size_t)p->readers, sizeof *reader);
  if (!reader) refuse("no memory for so many --readers");
  check(shoal_tensor_new(SHOAL_UINT8, 4, dims, &values[0]));
  check(shoal_tensor_new(SHOAL_INT32, 1, dims, &values[1]));
  for (int64_t k = 0; k < p->readers; k++) {
    struct reader *r = &reader[k];
    r->p = p;
    r->row = rows;
    r->first = k;
    r->n = n;
    r->salt = salt;
    r->to = (unsigned char *)shoal_tensor_data(values[0]);
    r->label = (int32_t *)shoal_tensor_data(values[1]);
    r->running = k + 1 < p->readers && !pthread_create(&r->thread, NULL, read_share, r);
    if (!r->running) read_share(r); /* the last share is our own */
  }
  for (int64_t k = 0; k < p->readers; k++) {
    if (reader[k].running) pthread_join(reader[k].thread, NULL);
    if (*reader[k].error && !*p->error) memcpy(p->error, reader[k].error, sizeof p->error);
  }
  free(reader);
}

static inline void make_batch(void *arg, int64_t step, shoal_tensor **values) {
  struct pictures *p = (struct pictures *)arg;
  uint64_t salt = p->scaled > p->side ? (uint64_t)(step + 1) << 20 : 0;
  make_rows(p, shoal_batches_at(p->batches, step), p->batch, salt, values);
}

static inline void check_pictures(const struct pictures *p) {
  if (!*p->error) return;
  fprintf(stderr, "%s: %s\n", program_name, p->error);
  exit(1);
}

/* For the hook that feeds: the pictures of a step, and the next ones are begun. */
static inline shoal_status fill_pictures(void *arg, int64_t position, shoal_tensor **values) {
  struct pictures *p = (struct pictures *)arg;
  ahead_take(&p->ahead, position, values);
  check_pictures(p);
  ahead_begin(&p->ahead, position + 1);
  return NULL;
}

/* What pictures are read for. */
struct reading {
  int64_t side, classes, batch, readers, seed;
  bool changed; /* at random, for training */
  bool test;    /* of IDX those to test with, t10k-..., if they are there */
};

/* The result stays where it is: threads know its address. */
static inline void open_pictures(struct pictures *p, const char *path, const struct reading *r) {
  struct stat s;
  memset(p, 0, sizeof *p);
  p->side = r->side;
  p->scaled = r->changed ? (r->side * 9 + 7) / 8 : r->side;
  p->batch = r->batch;
  p->readers = r->readers;
  p->seed = (uint64_t)r->seed;
  p->ahead.make = make_batch;
  p->ahead.arg = p;
  if (stat(path, &s)) refuse_pictures(path, strerror(errno));
  if (!S_ISDIR(s.st_mode)) add_records(p, path);
  else if (!(r->test && add_idx(p, path, "t10k")) && !add_idx(p, path, "train")) add_folder(p, path);
  p->classes = r->classes;
  check_given(shoal_batches_new(p->n, r->batch, p->seed, 0, 1, &p->batches));
  open_decoder(p);
}

static inline void close_pictures(struct pictures *p) {
  ahead_end(&p->ahead);
  check(shoal_session_close(p->session));
  shoal_graph_free(p->g);
  for (int64_t i = 0; p->at && i < p->n; i++) free(p->at[i].path);
  free(p->at);
  shoal_tensor_unref(p->bytes);
  shoal_tensor_unref(p->labels);
  shoal_batches_free(p->batches);
}

#endif
