/* Writes shoal/places.h from the public headers: every call that can make a mistake is a macro that hands on the file
 * and line it stands at, so that an error names the user's place and not ours.
 *
 *   gen_places FILE HEADER...
 *
 * A declaration counts when it may leave an error behind: it returns a status that must be checked; or it builds, that
 * is, returns an output, an op or a variable, or takes a graph or a builder to change. The macro has the function's own
 * name, so that nothing else changes for the program, and the function's value; a function that is not called but named
 * (a pointer to it) stays what it is. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 4096 };

static char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) {
    perror(path);
    exit(1);
  }
  fseek(f, 0, SEEK_END);
  long size = ftell(f);
  rewind(f);
  char *text = malloc((size_t)size + 1);
  if (!text || fread(text, 1, (size_t)size, f) != (size_t)size) {
    perror(path);
    exit(1);
  }
  text[size] = 0;
  fclose(f);
  return text;
}

static bool starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

/* Takes a word off the front. */
static bool take(const char **at, const char *word) {
  if (!starts(*at, word)) return false;
  *at += strlen(word);
  *at += strspn(*at, " \n");
  return true;
}

/* One declaration, from behind SHOAL_API or static inline. */
static void add(FILE *to, const char *at) {
  bool checked = take(&at, "SHOAL_MUST_CHECK");
  const char *open = strchr(at, '('), *name = open;
  if (!open) return;
  while (name > at && (isalnum((unsigned char)name[-1]) || name[-1] == '_')) name--;
  char type[LONGEST];
  snprintf(type, sizeof type, "%.*s", (int)(name - at), at);
  for (size_t n = strlen(type); n && strchr(" \n", type[n - 1]);) type[--n] = 0;
  int length = (int)(open - name);
  if (length && name[length - 1] == '_') return; /* what the macros themselves are made of */
  const char *kind = NULL;
  bool builds = starts(open, "(shoal_graph *g") || starts(open, "(shoal_builder *b");
  if (!strcmp(type, "shoal_status") && checked) kind = "STATUS";
  else if (!strcmp(type, "shoal_out") || !strcmp(type, "shoal_var")) kind = type;
  else if (!strcmp(type, "shoal_op *")) kind = "OP";
  else if (starts(name, "shoal_run(")) kind = "bool";
  else if (builds && !strcmp(type, "void")) kind = "VOID";
  else if (builds) kind = "OTHER";
  if (kind) fprintf(to, "#define %.*s(...) SHOAL_PLACED_%s_(%.*s(__VA_ARGS__))\n", length, name, kind, length, name);
}

static const char head[] =
    "/* Places of mistakes, written by tools/gen_places.c from the headers: do not edit. SHOAL_NO_PLACES turns it off. "
    "*/\n"
    "#ifndef SHOAL_PLACES_H\n#define SHOAL_PLACES_H\n\n#include <shoal/layers.h>\n\n"
    "#ifndef SHOAL_NO_PLACES\n#define SHOAL_PLACED_VOID_(call) (call, shoal_place_(__FILE__, __LINE__))\n"
    "#define SHOAL_PLACED_STATUS_(call) shoal_placed_status_(call, __FILE__, __LINE__)\n"
    "#ifdef __cplusplus\nnamespace shoal_cpp {\ntemplate <class T>\ninline T placed(T value, const char *file, int "
    "line) {\n"
    "  shoal_place_(file, line);\n  return value;\n}\n}  // namespace shoal_cpp\n"
    "#define SHOAL_PLACED_OTHER_(call) shoal_cpp::placed(call, __FILE__, __LINE__)\n"
    "#define SHOAL_PLACED_OP_ SHOAL_PLACED_OTHER_\n#define SHOAL_PLACED_bool_ SHOAL_PLACED_OTHER_\n"
    "#define SHOAL_PLACED_shoal_out_ SHOAL_PLACED_OTHER_\n#define SHOAL_PLACED_shoal_var_ SHOAL_PLACED_OTHER_\n"
    "#else\n"
    "static inline shoal_out shoal_placed_out_(shoal_out v, const char *file, int line) {\n"
    "  shoal_place_(file, line);\n  return v;\n}\n"
    "static inline shoal_var shoal_placed_var_(shoal_var v, const char *file, int line) {\n"
    "  shoal_place_(file, line);\n  return v;\n}\n"
    "static inline shoal_op *shoal_placed_op_(shoal_op *v, const char *file, int line) {\n"
    "  shoal_place_(file, line);\n  return v;\n}\n"
    "static inline bool shoal_placed_bool_(bool v, const char *file, int line) {\n"
    "  shoal_place_(file, line);\n  return v;\n}\n"
    "#define SHOAL_PLACED_shoal_out_(call) shoal_placed_out_(call, __FILE__, __LINE__)\n"
    "#define SHOAL_PLACED_shoal_var_(call) shoal_placed_var_(call, __FILE__, __LINE__)\n"
    "#define SHOAL_PLACED_OP_(call) shoal_placed_op_(call, __FILE__, __LINE__)\n"
    "#define SHOAL_PLACED_bool_(call) shoal_placed_bool_(call, __FILE__, __LINE__)\n"
    "/* It ends with an assignment: of a result that nobody reads clang would warn. */\n"
    "#define SHOAL_PLACED_OTHER_(call)            \\\n"
    "  __extension__({                            \\\n    __auto_type placed_ = call;              \\\n"
    "    __typeof__(placed_) *given_ = &placed_;  \\\n    shoal_place_(__FILE__, __LINE__);        \\\n"
    "    *given_ = placed_;                       \\\n  })\n"
    "#endif\n\n";

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: gen_places FILE HEADER...\n");
    return 2;
  }
  FILE *to = fopen(argv[1], "wb");
  if (!to) {
    perror(argv[1]);
    return 1;
  }
  fputs(head, to);
  for (int i = 2; i < argc; i++) {
    char *text = read_file(argv[i]);
    for (const char *at = text; at; at = strchr(at, '\n')) {
      at += *at == '\n';
      const char *rest = at;
      if (take(&rest, "SHOAL_API ") || take(&rest, "static inline ")) add(to, rest);
    }
    free(text);
  }
  fputs("#endif\n#endif\n", to);
  return ferror(to) || fclose(to) ? 1 : 0;
}
