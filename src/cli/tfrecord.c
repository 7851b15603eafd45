/* `shoal tfrecord cat|count|verify|make`: files of records (TFRecord), plain or packed by gzip or zlib.
 *
 * A damaged record ends the file it is in, with an error that names file and offset, and the exit code is that of a
 * failure; `verify` names every one of them (the first MOST_TOLD of a file) and fails at its end. --skip_corrupt goes
 * on behind damage instead, and says at the end of the file how many there were. A file that cannot be unpacked any
 * further has nothing behind. Offsets are those of the unpacked stream. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/wire.h"
#include "cli/cli.h"
#include "data/record.h"
#include "graph/text_format.h"
#include "proto/example.pb-c.h"
#include "proto/example.wire.h"
#include "proto/proto_check.h"
#include "tensor/strings.h"

/* ---- what to do with a record ---- */

enum { MOST_TOLD = 20 }; /* damaged records of a file, each by a line */

enum at_damage { END_THERE, SKIP, TELL };

struct records {
  const char *path;
  uint64_t sound, bytes, damaged;
  int64_t limit; /* of records that are printed; 0: none */
  enum at_damage at_damage;
};

typedef void visit(struct records *r, uint64_t offset, const struct text *record);

/* The record as a message of that type, if it is one: every field is known, and there is one. */
static bool print_as(const ProtobufCMessageDescriptor *d, const struct text *record, struct text *out) {
  ProtobufCMessage *m = NULL;
  shoal_status s = proto_unpack(d, record->at, record->n, &m);
  bool is = !s && !m->n_unknown_fields;
  if (is) text_format_print(m, out);
  shoal_status_free(s);
  proto_free(m);
  return is && out->n;
}

static void print_record(struct records *r, uint64_t offset, const struct text *record) {
  struct text out = {0};
  if (print_as(&tensorflow__example__descriptor, record, &out) ||
      print_as(&tensorflow__sequence_example__descriptor, record, &out)) {
    printf("# %s: record %" PRIu64 " at %" PRIu64 "\n", r->path, r->sound, offset);
  } else {
    out.n = 0;
    text_add_shown(&out, record->at, record->n, false);
    text_addc(&out, '\n');
  }
  fwrite(out.at, 1, out.n, stdout);
  text_release(&out);
}

static void print_nothing(struct records *r, uint64_t offset, const struct text *record) {
  (void)r, (void)offset, (void)record;
}

/* ---- reading ---- */

static const char *const packings[] = {"none", "gzip", "zlib"};

/* "auto": by the file's first bytes. */
static shoal_status packing_of(const char *name, const char *path, enum record_compression *out) {
  if (!strcmp(name, "auto")) return record_compression_guess(path, out);
  for (size_t i = 0; i < COUNT_OF(packings); i++)
    if (!strcmp(name, packings[i])) {
      *out = (enum record_compression)i; /* in the same order */
      return NULL;
    }
  return INVALID("--compression=%s: expected none, gzip or zlib", name);
}

/* Reads on behind a damaged record. False when the file ends with it. */
static bool go_on(struct records *r, struct record_reader *reader, shoal_status why) {
  uint64_t skipped = 0;
  if (r->at_damage == TELL && r->damaged < MOST_TOLD) report(status_prefix(why, "%s: ", r->path));
  else shoal_status_free(why);
  r->damaged++;
  return record_skip(reader, &skipped);
}

static shoal_status read_all(struct records *r, struct record_reader *reader, visit *to) {
  struct text record = {0};
  shoal_status s = NULL;
  while (!s && !(r->limit && r->sound >= (uint64_t)r->limit)) {
    uint64_t offset = reader->offset;
    s = record_read(reader, &record);
    if (r->at_damage && shoal_status_code(s) == SHOAL_DATA_LOSS && reader->fault != RECORD_BAD_STREAM) {
      bool more = go_on(r, reader, s);
      s = NULL;
      if (!more) break;
      continue;
    }
    if (s) break;
    to(r, offset, &record);
    r->sound++;
    r->bytes += record.n;
  }
  counted_text_release(&record);
  if (shoal_status_code(s) == SHOAL_DATA_LOSS && reader->fault == RECORD_BAD_STREAM) /* which names the file */
    return status_suffix(s, ", behind %" PRIu64 " bytes of records", reader->offset);
  if (shoal_status_code(s) != SHOAL_OUT_OF_RANGE) return status_prefix(s, "%s: ", r->path);
  shoal_status_free(s);
  if (r->at_damage == TELL && reader->in.within) /* (reading, this is the end, as in tf.data) */
    return STATUS(SHOAL_DATA_LOSS, "%s: the packed stream is cut off behind %" PRIu64 " bytes", r->path,
                  reader->offset);
  return NULL;
}

static shoal_status read_file(struct records *r, const char *packing, visit *to) {
  enum record_compression c;
  struct record_reader reader;
  TRY(packing_of(packing, r->path, &c));
  TRY(record_reader_open(&reader, r->path, c));
  shoal_status s = read_all(r, &reader, to);
  record_reader_close(&reader);
  return s;
}

struct record_reading {
  const char *usage;
  visit *to;
  void (*end)(const struct records *r); /* what is said of a file that was read */
  enum at_damage at_damage;
};

static void say_count(const struct records *r) { printf("%" PRIu64 " %s\n", r->sound, r->path); }
static void say_sound(const struct records *r) {
  printf("%s: %" PRIu64 " records, %" PRIu64 " bytes\n", r->path, r->sound, r->bytes);
}

static int read_files(const struct record_reading *what, int argc, char **argv) {
  const char *packing = "auto";
  bool skip_corrupt = false;
  int64_t limit = 0;
  const struct flag flags[] = {
      {"compression", "auto|none|gzip|zlib", "how the files are packed (default auto: by their first bytes)",
       .text = &packing},
      {"skip_corrupt", NULL, "go on behind damaged records, and say how many there were", .on = &skip_corrupt},
      {"limit", "N", "no more than this many records of each file (default: all)", .number = &limit, .min = 0,
       .max = INT64_MAX},
  };
  int code;
  if (!flags_parse(what->usage, flags, COUNT_OF(flags), &argc, argv, &code)) return code;
  if (argc < 2) {
    fprintf(stderr, "shoal: tfrecord: name a file; usage: %s\n", what->usage);
    return EXIT_USAGE;
  }
  code = EXIT_OK;
  for (int i = 1; i < argc; i++) {
    struct records r = {.path = argv[i], .limit = limit, .at_damage = skip_corrupt ? SKIP : what->at_damage};
    shoal_status s = read_file(&r, packing, what->to);
    if (!s && what->end) what->end(&r);
    if (s && what->end && r.sound) fprintf(stderr, "shoal: %s: %" PRIu64 " sound records, then:\n", r.path, r.sound);
    if (s) code = report(s);
    fflush(stdout);
    if (r.damaged)
      fprintf(stderr, "shoal: %s: %" PRIu64 " damaged record%s%s\n", r.path, r.damaged, r.damaged == 1 ? "" : "s",
              skip_corrupt ? " skipped" : "");
    if (r.damaged && r.at_damage == TELL) code = EXIT_FAILED;
  }
  return code;
}

static int cat_main(int argc, char **argv) {
  static const struct record_reading what = {"shoal tfrecord cat [--skip_corrupt] [--limit=N] FILE...", print_record,
                                             NULL};
  return read_files(&what, argc, argv);
}

static int count_main(int argc, char **argv) {
  static const struct record_reading what = {"shoal tfrecord count [--skip_corrupt] FILE...", print_nothing, say_count};
  return read_files(&what, argc, argv);
}

static int verify_main(int argc, char **argv) {
  static const struct record_reading what = {"shoal tfrecord verify [--skip_corrupt] FILE...", print_nothing, say_sound,
                                             TELL};
  return read_files(&what, argc, argv);
}

/* ---- making ---- */

struct record_making {
  struct record_writer to;
  const char *feature; /* records are Examples, with this feature; NULL: they are what is read */
  struct text example;
};

static shoal_status add(struct record_making *m, const char *data, size_t n) {
  if (!m->feature) return record_write(&m->to, data, n);
  struct text *t = &m->example;
  t->n = 0;
  size_t features = begin_Example_features(t), entry = begin_Features_feature(t);
  put_Features_FeatureEntry_key(t, m->feature);
  size_t value = begin_Features_FeatureEntry_value(t), list = begin_Feature_bytes_list(t);
  put_BytesList_value_n(t, data, n);
  wire_end(t, list);
  wire_end(t, value);
  wire_end(t, entry);
  wire_end(t, features);
  return record_write(&m->to, t->at, t->n);
}

static shoal_status add_lines(struct record_making *m, const char *path) {
  FILE *from = !strcmp(path, "-") ? stdin : fopen(path, "rb");
  if (!from) return ERRNO_STATUS(errno, "%s", path);
  char *line = NULL;
  size_t room = 0;
  shoal_status s = NULL;
  for (ssize_t n; !s && (errno = 0, n = getline(&line, &room, from)) >= 0;)
    s = add(m, line, (size_t)n - (n > 0 && line[n - 1] == '\n'));
  if (!s && (ferror(from) || errno)) s = ERRNO_STATUS(errno ? errno : EIO, "%s", path);
  free(line);
  if (from != stdin) fclose(from);
  return s;
}

static shoal_status add_file(struct record_making *m, const char *path) {
  char *data;
  size_t n;
  TRY(file_read(path, 0, &data, &n));
  shoal_status s = add(m, data, n);
  free(data);
  return s;
}

static shoal_status make(struct record_making *m, const char *output, const char *packing, bool whole, char **paths,
                         int n) {
  enum record_compression c;
  TRY(packing_of(packing, output, &c));
  TRY(record_writer_open_whole(&m->to, output, c));
  shoal_status s = NULL;
  for (int i = 0; i < n && !s; i++) s = whole ? add_file(m, paths[i]) : add_lines(m, paths[i]);
  if (!s) return record_writer_close(&m->to);
  record_writer_abort(&m->to);
  return s;
}

static int make_main(int argc, char **argv) {
  const char *output = NULL, *packing = "none";
  struct record_making m = {0};
  bool whole = false;
  const struct flag flags[] = {
      {"output", "FILE", "the file to write", .text = &output},
      {"compression", "none|gzip|zlib", "how to pack it (default none)", .text = &packing},
      {"files", NULL, "a record is a whole file, not a line of one", .on = &whole},
      {"feature", "NAME", "records are Examples, with the bytes as this feature (default: the bytes alone)",
       .text = &m.feature},
  };
  static const char usage[] = "shoal tfrecord make --output=FILE [--files] [--feature=NAME] INPUT...";
  int code;
  if (!flags_parse(usage, flags, COUNT_OF(flags), &argc, argv, &code)) return code;
  if (!output || argc < 2 || !strcmp(packing, "auto")) {
    fprintf(stderr, "shoal: tfrecord make: %s; usage: %s\n",
            !output    ? "--output is missing"
            : argc < 2 ? "name what to read (- is standard input)"
                       : "--compression=auto is for reading",
            usage);
    return EXIT_USAGE;
  }
  shoal_status s = make(&m, output, packing, whole, argv + 1, argc - 1);
  text_release(&m.example);
  return s ? report(s) : EXIT_OK;
}

/* ---- which ---- */

static const struct subcommand actions[] = {
    {"cat", "print records: Examples as text, others as escaped bytes, a line each", cat_main},
    {"count", "count them", count_main},
    {"verify", "check every checksum", verify_main},
    {"make", "make a file, of lines of text or of whole files", make_main},
};

int tfrecord_main(int argc, char **argv) {
  return actions_main(actions, COUNT_OF(actions), "[--flag=value ...] FILE...", argc, argv);
}
