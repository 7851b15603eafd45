/* `shoal word2vec neighbors|analogy`: questions asked of a file of vectors, given behind the flags or, without any, as
 * lines of standard input. A word that has no vector is told of, and the next question is answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/word2vec.h"
#include "word2vec/vectors.h"

enum { MOST_WORDS = 64 };

struct word2vec_question {
  const char *action, *usage;
  size_t least, most;            /* words of a question */
  const float signs[MOST_WORDS]; /* of each word's vector; zeros: all are added */
};

struct word2vec_asking {
  const struct word2vec_question *what;
  struct vectors vectors;
  struct word_neighbor *found; /* [top] */
  size_t top;
};

static bool find_words(const struct word2vec_asking *a, char **words, size_t n, size_t *ids) {
  bool all = true;
  for (size_t i = 0; i < n; i++) {
    int64_t id = words_find(&a->vectors.words, words[i], strlen(words[i]));
    if (id < 0) fprintf(stderr, "shoal: word2vec: \"%s\" has no vector\n", words[i]);
    all = all && id >= 0;
    ids[i] = (size_t)id;
  }
  return all;
}

static bool is_question(const struct word2vec_question *q, size_t n) {
  if (n >= q->least && n <= q->most) return true;
  if (q->least == q->most) fprintf(stderr, "shoal: word2vec %s: a question has %zu words", q->action, q->least);
  else fprintf(stderr, "shoal: word2vec %s: a question has %zu to %zu words", q->action, q->least, q->most);
  fprintf(stderr, ", not %zu; usage: %s\n", n, q->usage);
  return false;
}

/* Prints the answer; false: there is none. */
static bool answer(const struct word2vec_asking *a, char **words, size_t n) {
  size_t ids[MOST_WORDS];
  float signs[MOST_WORDS];
  if (!is_question(a->what, n) || !find_words(a, words, n, ids)) return false;
  for (size_t i = 0; i < n; i++) signs[i] = a->what->signs[i] != 0 ? a->what->signs[i] : 1;
  size_t found = vectors_near(&a->vectors, ids, signs, n, a->found, a->top);
  for (size_t i = 0; i < found; i++)
    printf("%s %.6f\n", word_text(&a->vectors.words, a->found[i].word), (double)a->found[i].cosine);
  return true;
}

/* A line's words, in place: how many there are, of which MOST_WORDS are kept. */
static size_t split(char *line, char **words) {
  size_t n = 0;
  char *rest;
  for (char *w = strtok_r(line, " \t\r\n", &rest); w; w = strtok_r(NULL, " \t\r\n", &rest), n++)
    if (n < MOST_WORDS) words[n] = w;
  return n;
}

static bool answer_lines(const struct word2vec_asking *a) {
  char *line = NULL, *words[MOST_WORDS];
  size_t room = 0, n;
  bool all = true;
  while (getline(&line, &room, stdin) >= 0)
    if ((n = split(line, words))) {
      all = answer(a, words, n) && all;
      printf("\n");
      fflush(stdout);
    }
  free(line);
  return all;
}

static int ask(const struct word2vec_question *what, int argc, char **argv) {
  const char *path = NULL, *binary = NULL;
  int64_t top = 10;
  struct word2vec_asking a = {.what = what};
  const struct flag flags[] = {
      {"vectors", "FILE", "the vectors, in either format", .text = &path},
      {"top", "N", "how many words (default 10)", .number = &top, .min = 1, .max = 1 << 20},
      {"binary", "0|1", "which format it is (default: by its first words)", .text = &binary},
  };
  int code;
  if (!flags_parse(what->usage, flags, COUNT_OF(flags), &argc, argv, &code)) return code;
  if (!path) {
    fprintf(stderr, "shoal: word2vec %s: --vectors is missing; usage: %s\n", what->action, what->usage);
    return EXIT_USAGE;
  }
  if (argc > 1 && !is_question(what, (size_t)argc - 1)) return EXIT_USAGE;
  if (binary && strcmp(binary, "0") != 0 && strcmp(binary, "1") != 0) {
    fprintf(stderr, "shoal: --binary=%s: expected 0 or 1\n", binary);
    return EXIT_USAGE;
  }
  enum vectors_format format = !binary ? VECTORS_GUESS : strcmp(binary, "0") != 0 ? VECTORS_BINARY : VECTORS_TEXT;
  shoal_status s = vectors_read(&a.vectors, path, format);
  if (s) return report(s);
  vectors_normalize(&a.vectors);
  a.top = MIN((size_t)top, a.vectors.words.n);
  a.found = mem_zalloc(a.top, sizeof *a.found);
  bool all = argc > 1 ? answer(&a, argv + 1, (size_t)argc - 1) : answer_lines(&a);
  free(a.found);
  vectors_release(&a.vectors);
  return all ? EXIT_OK : EXIT_FAILED;
}

int word2vec_neighbors_main(int argc, char **argv) {
  static const struct word2vec_question what = {
      "neighbors", "shoal word2vec neighbors --vectors=FILE [--top=N] [WORD...]", 1, MOST_WORDS, {0}};
  return ask(&what, argc, argv);
}

int word2vec_analogy_main(int argc, char **argv) {
  static const struct word2vec_question what = {
      "analogy", "shoal word2vec analogy --vectors=FILE [--top=N] [A B C]", 3, 3, {-1, 1, 1}};
  return ask(&what, argc, argv);
}
