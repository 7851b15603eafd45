/* `shoal word2vec train|phrases|neighbors|analogy`: word vectors, with the flags of the original program.
 *
 * Those have one dash and their value behind a blank ("-size 200"); both dashes and "=" do as well. What is asked for
 * is written when training is over; a run that is told to stop (Ctrl-C, SIGTERM) before that leaves no file behind, and
 * says so. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/stop.h"
#include "cli/cli.h"
#include "cli/word2vec.h"
#include "word2vec/classes.h"
#include "word2vec/count.h"
#include "word2vec/phrases.h"
#include "word2vec/projector.h"
#include "word2vec/train.h"
#include "word2vec/vectors.h"

enum { MB = 1 << 20 };

/* ---- what is asked for ---- */

struct word2vec_settings {
  struct word2vec_task task;
  struct word2vec_hosts *hosts; /* NULL: this process alone */
  const char *text, *output, *checkpoint_dir, *save_vocab, *read_vocab, *alpha, *sample;
  int64_t size, window, hs, negative, threads, iter, min_count, binary, cbow, debug, seed, memory_mb, meetings, classes;
};

static shoal_status read_real(const char *name, const char *text, double *out) {
  char *end;
  errno = 0;
  double v = strtod(text, &end);
  if (end == text || *end || errno || !isfinite(v)) return INVALID("-%s %s: expected a number", name, text);
  *out = v;
  return NULL;
}

static size_t memory_of(int64_t mb) { return mb ? (size_t)mb * MB : machine_memory() / 2; }

static shoal_status read_options(const struct word2vec_settings *s, struct training_options *o) {
  *o = (struct training_options){.width = (size_t)s->size,
                                 .window = (int)s->window,
                                 .negative = (int)s->negative,
                                 .cbow = s->cbow,
                                 .hs = s->hs,
                                 .rate = s->cbow ? 0.05 : 0.025,
                                 .sample = 1e-3,
                                 .passes = s->iter,
                                 .threads = (int)s->threads,
                                 .seed = (uint64_t)s->seed,
                                 .meetings = (int)s->meetings,
                                 .memory = memory_of(s->memory_mb)};
  if (s->alpha) TRY(read_real("alpha", s->alpha, &o->rate));
  if (s->sample) TRY(read_real("sample", s->sample, &o->sample));
  return training_options_check(o);
}

/* ---- training ---- */

static void tell(void *arg, const struct training_progress *p) {
  const bool *terminal = arg;
  fprintf(stderr, "%srate %.6f  %5.1f%%  %.0f words/s%s", *terminal ? "\r" : "", p->rate, 100 * p->part,
          (double)p->words / MAX(p->seconds, 1e-9), *terminal ? "  " : "\n");
}

/* What tasks of one job must have in common before they count words, and when they know them. */
static shoal_status compare_flags(const struct word2vec_settings *s, const struct corpus *c,
                                  const struct training_options *o) {
  char lines[1024];
  if (!s->hosts) return NULL;
  snprintf(lines, sizeof lines,
           "-train of %" PRId64
           " bytes\n-size %zu\n-window %d\n-negative %d\n-cbow %d\n-hs %d\n-alpha %g\n-sample %g\n"
           "-iter %" PRId64 "\n-seed %" PRIu64 "\n--meetings=%d\n-min-count %" PRId64 "\n%s -read-vocab\n",
           c->bytes, o->width, o->window, o->negative, o->cbow, o->hs, o->rate, o->sample, o->passes, o->seed,
           o->meetings, s->min_count, s->read_vocab ? "a" : "no");
  return word2vec_hosts_same(s->hosts, lines);
}

static shoal_status compare_words(const struct word2vec_settings *s, const struct word_vocabulary *v) {
  char lines[128];
  if (!s->hosts || !s->read_vocab) return NULL;
  snprintf(lines, sizeof lines, "a -read-vocab of %zu words\n%" PRId64 " words in the text\n", v->words.n, v->total);
  return word2vec_hosts_same(s->hosts, lines);
}

static shoal_status make_vocabulary(const struct word2vec_settings *s, const struct corpus *c,
                                    struct word_vocabulary *v) {
  if (s->read_vocab) TRY(word2vec_hosts_agree(s->hosts, vocabulary_read(v, s->read_vocab, s->min_count)));
  else {
    struct count_share share = {.join = word2vec_counts_join, .arg = s->hosts};
    if (s->hosts) share.parts = word2vec_hosts_tasks(s->hosts, &share.part);
    TRY(vocabulary_count_shared(v, c, s->min_count, (int)s->threads, memory_of(s->memory_mb),
                                s->hosts ? &share : NULL));
  }
  if (s->debug) fprintf(stderr, "%zu words in the vocabulary, %" PRId64 " in the text\n", v->words.n, v->total);
  if (v->dropped)
    fprintf(stderr,
            "the memory allowed did not do for counting: words that are there up to %" PRId64
            " times in a part of the text may be missing; see --memory\n",
            v->dropped);
  if (v->words.n == 2) fprintf(stderr, "the text has one word only: its vector will say nothing\n");
  return NULL;
}

/* With -debug 2: how long what was done since *from on took. */
static void took(const struct word2vec_settings *s, const char *what, int64_t *from) {
  int64_t now = clock_ns();
  if (s->debug > 1) fprintf(stderr, "%s took %.2f s\n", what, (double)(now - *from) / 1e9);
  *from = now;
}

static void saved(const char *what) { fprintf(stderr, "saved %s\n", what); }

static shoal_status save(const struct word2vec_settings *s, const struct word_vocabulary *v,
                         const struct word_model *m) {
  if (s->output) {
    if (s->classes) TRY(classes_write(&v->words, m->in, m->width, (int)s->classes, (int)s->threads, s->output));
    else TRY(vectors_write(&v->words, m->in, m->width, s->output, s->binary));
    saved(s->output);
  }
  if (s->checkpoint_dir) {
    TRY(projector_save(s->checkpoint_dir, v, m));
    saved(s->checkpoint_dir);
  }
  return NULL;
}

/* begun: what went wrong before, or NULL. */
static shoal_status train_and_save(const struct word2vec_settings *s, const struct corpus *c,
                                   const struct word_vocabulary *v, struct training_options o, shoal_status begun) {
  struct word_model m;
  bool terminal = isatty(STDERR_FILENO);
  if (!begun && (size_t)s->classes > v->words.n)
    begun = INVALID("-classes %" PRId64 ": there are %zu words to be put into classes", s->classes, v->words.n);
  TRY(word2vec_hosts_agree(s->hosts, begun));
  TRY(compare_words(s, v));
  if (s->debug > 1 || (s->debug && terminal)) o.tell = tell;
  o.arg = &terminal;
  word2vec_hosts_share(s->hosts, v, &o);
  int64_t from = clock_ns();
  shoal_status done = word2vec_train(&m, c, v, &o);
  if (terminal && o.tell) fprintf(stderr, "\n");
  if (shoal_status_code(done) == SHOAL_CANCELLED) return status_suffix(done, "; no vectors were saved");
  TRY(done);
  took(s, "training", &from);
  if (s->hosts && s->debug > 1) fprintf(stderr, "%.2f s of it in meetings\n", word2vec_hosts_met(s->hosts));
  if (word2vec_hosts_chief(s->hosts)) {
    done = save(s, v, &m);
    took(s, "writing", &from);
  }
  model_release(&m);
  return done;
}

/* What would be written after hours has its place before the first word is counted. */
static shoal_status check_place(const char *flag, const char *path) {
  if (!path) return NULL;
  if (file_is_directory(path)) return INVALID("%s %s is a folder, not a file", flag, path);
  if (file_exists(path) && !file_is_regular(path)) /* a device or a pipe, which is written as it is */
    return access(path, W_OK) ? ERRNO_STATUS(errno, "%s %s", flag, path) : NULL;
  char *target, *folder;
  TRY(status_prefix(file_follow_links(path, &target), "%s ", flag));
  folder = path_directory(target);
  const char *at = *folder ? folder : ".";
  shoal_status bad = NULL;
  if (access(at, W_OK) || !file_is_directory(at))
    bad = STATUS(SHOAL_NOT_FOUND, "%s %s: there is no folder %s that can be written to", flag, path, at);
  free(folder);
  free(target);
  return bad;
}

static shoal_status check_places(const struct word2vec_settings *s) {
  TRY(check_place("-output", s->output));
  TRY(check_place("-save-vocab", s->save_vocab));
  if (!s->checkpoint_dir) return NULL;
  TRY(status_prefix(directory_make(s->checkpoint_dir), "--checkpoint_dir: "));
  if (access(s->checkpoint_dir, W_OK)) return ERRNO_STATUS(errno, "--checkpoint_dir=%s", s->checkpoint_dir);
  return NULL;
}

static shoal_status run_train(struct word2vec_settings *s, char **paths, int n) {
  struct corpus c;
  struct word_vocabulary v;
  struct training_options o;
  TRY(read_options(s, &o));
  TRY(corpus_open(&c, paths, n));
  bool trains = s->output || s->checkpoint_dir;
  int64_t from = clock_ns();
  shoal_status done = trains ? word2vec_hosts_open(&s->task, (size_t)s->size, &s->hosts) : NULL;
  if (s->hosts) took(s, "finding the other tasks", &from);
  if (!done) done = word2vec_hosts_agree(s->hosts, word2vec_hosts_chief(s->hosts) ? check_places(s) : NULL);
  if (!done) done = compare_flags(s, &c, &o);
  if (!done) done = make_vocabulary(s, &c, &v);
  if (done) {
    word2vec_hosts_close(s->hosts);
    corpus_close(&c);
    return done;
  }
  took(s, "counting words", &from);
  if (s->save_vocab && word2vec_hosts_chief(s->hosts) && !(done = vocabulary_save(&v, s->save_vocab)))
    saved(s->save_vocab);
  if (trains) done = train_and_save(s, &c, &v, o, done);
  word2vec_hosts_close(s->hosts);
  vocabulary_release(&v);
  corpus_close(&c);
  return done;
}

/* The texts: -train's, and what is no flag. */
static char **texts(const char *text, int argc, char **argv, int *n) {
  char **paths = mem_zalloc((size_t)argc + 1, sizeof *paths);
  *n = 0;
  if (text) paths[(*n)++] = (char *)(uintptr_t)text;
  for (int i = 1; i < argc; i++) paths[(*n)++] = argv[i];
  return paths;
}

static int refuse(const char *action, const char *why, const char *usage) {
  fprintf(stderr, "shoal: word2vec %s: %s; usage: %s\n", action, why, usage);
  return EXIT_USAGE;
}

/* Is it one of the texts? */
static bool is_read(const char *path, char *const *texts, int n) {
  for (int i = 0; i < n; i++)
    if (file_same(path, texts[i])) return file_is_regular(path);
  return false;
}

/* What is wrong with the files that are to be written, or NULL. */
static const char *overwritten(const struct word2vec_settings *s, char *const *texts, int n) {
  if (s->output && is_read(s->output, texts, n)) return "-output is the text itself";
  if (s->save_vocab && is_read(s->save_vocab, texts, n)) return "-save-vocab is the text itself";
  if (s->output && s->read_vocab && file_same(s->output, s->read_vocab) && file_is_regular(s->output))
    return "-output is -read-vocab's file";
  bool same = s->output && s->save_vocab && file_same(s->output, s->save_vocab);
  return same && (file_is_regular(s->output) || !file_exists(s->output)) ? "-output and -save-vocab are the same file"
                                                                         : NULL;
}

static int train_main(int argc, char **argv) {
  struct word2vec_settings s = {.size = 100,
                                .window = 5,
                                .negative = 5,
                                .threads = cpu_count(),
                                .iter = 5,
                                .min_count = 5,
                                .cbow = 1,
                                .debug = 1,
                                .seed = 1};
  const struct flag flags[] = {
      {"train", "FILE", "the text, words between blanks; more files may follow the flags", .text = &s.text},
      {"output", "FILE", "where the vectors go", .text = &s.output},
      {"classes", "N", "put the words into so many classes; these go to -output, not the vectors (default 0: none)",
       .number = &s.classes, .max = CLASSES_MOST},
      {"binary", "0|1", "in the binary format (default 0: as text)", .number = &s.binary, .max = 1},
      {"checkpoint_dir", "DIR", "a checkpoint, and the files of TensorBoard's projector, go there",
       .text = &s.checkpoint_dir},
      {"size", "N", "numbers in a vector (default 100)", .number = &s.size, .min = 1, .max = 1 << 20},
      {"window", "N", "the most words on either side (default 5)", .number = &s.window, .min = 1,
       .max = TRAIN_MOST_WINDOW},
      {"sample", "X", "words more frequent than this are passed over now and then (default 1e-3; 0: none)",
       .text = &s.sample},
      {"hs", "0|1", "hierarchical softmax (default 0)", .number = &s.hs, .max = 1},
      {"negative", "N", "words drawn against each (default 5; 0: none)", .number = &s.negative,
       .max = TRAIN_MOST_NEGATIVE},
      {"threads", "N", "(default: the cores this process may use)", .number = &s.threads, .min = 1, .max = 1024},
      {"iter", "N", "passes over the text (default 5)", .number = &s.iter, .min = 1, .max = 1000000},
      {"min-count", "N", "words that are rarer are left out (default 5)", .number = &s.min_count, .min = 0,
       .max = INT64_MAX},
      {"alpha", "X", "the rate of learning at first (default 0.025, for CBOW 0.05)", .text = &s.alpha},
      {"cbow", "0|1", "1: a word from those around it; 0: those from it, skip-gram (default 1)", .number = &s.cbow,
       .max = 1},
      {"save-vocab", "FILE", "where the words and their counts go", .text = &s.save_vocab},
      {"read-vocab", "FILE", "take them from there instead of counting", .text = &s.read_vocab},
      {"debug", "0|1|2",
       "how much is told: nothing, progress on a terminal, always and how long each part took (default 1)",
       .number = &s.debug, .max = 2},
      {"seed", "N", "of chance; with one thread the same vectors come out (default 1)", .number = &s.seed,
       .max = INT64_MAX},
      {"memory", "MB", "for words, vectors and what is kept of the text (default: half of the machine's)",
       .number = &s.memory_mb, .min = 0, .max = INT64_MAX / MB},
      {"meetings", "N",
       "as several tasks: how often a pass their models become one (default: by the size of text and vocabulary)",
       .number = &s.meetings, .min = 0, .max = 1000000},
      {"worker_hosts", "HOST:PORT,...",
       "all tasks, as `shoal launch` tells them (or TF_CONFIG); each has a part of the text",
       .text = &s.task.worker_hosts, .may_be_empty = true},
      {"ps_hosts", "", "none: there are no parameter servers", .text = &s.task.ps_hosts, .may_be_empty = true},
      {"job_name", "NAME", "worker", .text = &s.task.job_name},
      {"task_index", "N", "this task", .number = &s.task.task_index, .min = 0, .max = INT32_MAX},
      {"insecure_bind_all", NULL, "listen beyond this machine without TLS", .on = &s.task.insecure_bind_all},
      TLS_FLAGS(s.task.tls),
  };
  static const char usage[] = "shoal word2vec train -train FILE -output FILE [-size N] [-cbow 0|1] ... [FILE...]";
  int code, n;
  if (!flags_parse(usage, flags, COUNT_OF(flags), &argc, argv, &code)) return code;
  if (s.classes && !s.output) return refuse("train", "-classes go to -output, which is missing", usage);
  if (!s.text && argc < 2) return refuse("train", "-train is missing", usage);
  if (!s.output && !s.save_vocab && !s.checkpoint_dir)
    return refuse("train", "say -output, --checkpoint_dir or -save-vocab: nothing would be kept", usage);
  char **paths = texts(s.text, argc, argv, &n);
  const char *wrong = overwritten(&s, paths, n);
  if (wrong) {
    free(paths);
    return refuse("train", wrong, usage);
  }
  tls_flags_use(&s.task.tls);
  stop_signals_take();
  shoal_status done = run_train(&s, paths, n);
  stop_signals_leave();
  free(paths);
  return done ? report(done) : EXIT_OK;
}

/* ---- phrases ---- */

static shoal_status run_phrases(const struct phrases_options *o, char **paths, int n, const char *output) {
  struct corpus c;
  int64_t joined = 0;
  TRY(corpus_open(&c, paths, n));
  shoal_status s = phrases_write(&c, o, output, &joined);
  corpus_close(&c);
  if (!s) fprintf(stderr, "%" PRId64 " phrases joined\nsaved %s\n", joined, output);
  return s;
}

static int phrases_main(int argc, char **argv) {
  const char *text = NULL, *output = NULL, *threshold = NULL;
  int64_t min_count = 5, threads = cpu_count(), memory_mb = 0;
  const struct flag flags[] = {
      {"train", "FILE", "the text; more files may follow the flags", .text = &text},
      {"output", "FILE", "where the text goes, phrases joined", .text = &output},
      {"threshold", "X", "pairs that score higher are joined (default 100)", .text = &threshold},
      {"min-count", "N", "words that are rarer are in no phrase (default 5)", .number = &min_count, .min = 0,
       .max = INT64_MAX},
      {"threads", "N", "(default: the cores this process may use)", .number = &threads, .min = 1, .max = 1024},
      {"memory", "MB", "for counts (default: half of the machine's)", .number = &memory_mb, .min = 0,
       .max = INT64_MAX / MB},
  };
  static const char usage[] = "shoal word2vec phrases -train FILE -output FILE [-threshold X] [-min-count N] [FILE...]";
  int code, n;
  if (!flags_parse(usage, flags, COUNT_OF(flags), &argc, argv, &code)) return code;
  if (!output || (!text && argc < 2))
    return refuse("phrases", output ? "-train is missing" : "-output is missing", usage);
  struct phrases_options o = {min_count, 100, (int)threads, memory_of(memory_mb)};
  shoal_status s = threshold ? read_real("threshold", threshold, &o.threshold) : NULL;
  if (s) return report(s);
  char **paths = texts(text, argc, argv, &n);
  if (is_read(output, paths, n)) {
    free(paths);
    return refuse("phrases", "-output is the text itself", usage);
  }
  stop_signals_take();
  s = check_place("-output", output);
  if (!s) s = run_phrases(&o, paths, n, output);
  stop_signals_leave();
  free(paths);
  return s ? report(s) : EXIT_OK;
}

/* ---- which ---- */

static const struct subcommand actions[] = {
    {"train", "make vectors of the words of a text", train_main},
    {"phrases", "write a text again, words that belong together joined by _", phrases_main},
    {"neighbors", "print the words nearest to a word", word2vec_neighbors_main},
    {"analogy", "print what is to C as B is to A", word2vec_analogy_main},
};

int word2vec_main(int argc, char **argv) {
  return actions_main(actions, COUNT_OF(actions), "[--flag=value ...]", argc, argv);
}
