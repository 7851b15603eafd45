/* Confinement: what --file_root lets through, and every way out that it must not. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_root.h"
#include "base/pool.h"
#include "base/text.h"
#include "unit.h"

static char dir[] = "/tmp/shoal_file_root_test.XXXXXX";
static struct file_roots *roots;

static char *in_dir(const char *name) { return mem_printf("%s/%s", dir, name); }

static void link_to(const char *target, const char *name) {
  char *path = in_dir(name);
  assert_int_equal(symlink(target, path), 0);
  free(path);
}

static bool is_a_link(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

static void put(const char *name, const char *text) {
  char *path = in_dir(name);
  ASSERT_OK(file_write(path, text, strlen(text)));
  free(path);
}

static void make(const char *name) {
  char *path = in_dir(name);
  ASSERT_OK(directory_make(path));
  free(path);
}

/* outside/secret; a/ and b/ are the roots; a/in, a/sub/deep, b/other, and links of all kinds in a/. */
static int set_up(void **state) {
  if (!mkdtemp(dir)) return -1;
  make("outside/dir");
  make("a/sub");
  make("b");
  put("outside/secret", "secret");
  put("a/in", "in");
  put("a/sub/deep", "deep");
  put("b/other", "other");
  link_to("sub/deep", "a/inside_link");
  link_to("sub", "a/inside_dir");
  link_to("../outside/secret", "a/out_link");
  link_to("../outside", "a/out_dir");
  link_to("/etc/passwd", "a/passwd");
  link_to("loop2", "a/loop1");
  link_to("loop1", "a/loop2");
  link_to("sub/../../outside/secret", "a/twisted");
  char *target = in_dir("b/other");
  link_to(target, "a/to_b"); /* absolute, but inside another root */
  free(target);
  char *given = in_dir("a/:"), *all = mem_printf("%s%s/b", given, dir);
  link_to("a", "alias");
  shoal_status s = file_roots_new(all, &roots);
  free(given);
  free(all);
  return s ? -1 : 0;
}

static int clean_up(void **state) {
  file_roots_free(roots);
  char *command = mem_printf("rm -rf '%s'", dir);
  int rc = system(command);
  free(command);
  return rc;
}

static shoal_code read_code(const char *name) {
  char *path = *name == '/' ? mem_strdup(name) : in_dir(name), *data = NULL;
  size_t n = 0;
  shoal_status s = file_read(path, 0, &data, &n);
  shoal_code code = shoal_status_code(s);
  if (code == SHOAL_PERMISSION_DENIED) {
    assert_non_null(strstr(shoal_status_message(s), path));
    assert_non_null(strstr(shoal_status_message(s), "--file_root="));
  }
  shoal_status_free(s);
  free(data);
  free(path);
  return code;
}

static void test_reading(void **state) {
  static const struct {
    const char *path;
    shoal_code code;
  } cases[] = {
      {"a/in", SHOAL_OK},
      {"a//./in", SHOAL_OK},
      {"a/sub/../in", SHOAL_OK},
      {"a/sub/deep", SHOAL_OK},
      {"a/inside_link", SHOAL_OK},
      {"a/inside_dir/deep", SHOAL_OK},
      {"a/inside_dir/../in", SHOAL_OK}, /* ".." after a link goes up from where the link leads */
      {"a/to_b", SHOAL_OK},
      {"b/other", SHOAL_OK},
      {"a/absent", SHOAL_NOT_FOUND},
      {"a/in/below", SHOAL_FAILED_PRECONDITION},
      {"a/loop1", SHOAL_UNKNOWN},
      {"outside/secret", SHOAL_PERMISSION_DENIED},
      {"a/../outside/secret", SHOAL_PERMISSION_DENIED},
      {"a/sub/../../outside/secret", SHOAL_PERMISSION_DENIED},
      {"a/out_link", SHOAL_PERMISSION_DENIED},
      {"a/out_dir/secret", SHOAL_PERMISSION_DENIED},
      {"a/twisted", SHOAL_PERMISSION_DENIED},
      {"a/passwd", SHOAL_PERMISSION_DENIED},
      {"alias/in", SHOAL_PERMISSION_DENIED},
      {"ab", SHOAL_PERMISSION_DENIED},
      {"aa/in", SHOAL_PERMISSION_DENIED},
      {"/etc/passwd", SHOAL_PERMISSION_DENIED},
      {"/", SHOAL_PERMISSION_DENIED},
      {"", SHOAL_PERMISSION_DENIED},
  };
  file_roots_use(roots);
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    shoal_code code = read_code(cases[i].path);
    if (code != cases[i].code) fail_msg("%s: %s", cases[i].path, shoal_code_name(code));
  }
  file_roots_use(NULL);
  assert_int_equal(read_code("outside/secret"), SHOAL_OK);
}

static void expect(shoal_status s, shoal_code code) {
  if (shoal_status_code(s) != code) fail_msg("%s", shoal_status_message(s));
  shoal_status_free(s);
}

static void test_changing(void **state) {
  char *new = in_dir("a/new/er/file"), *new_dir = in_dir("a/new/er"), *out = in_dir("outside/file"),
       *out_dir = in_dir("outside/new"), *via = in_dir("a/out_dir/file"), *secret = in_dir("outside/secret"),
       *passwd = in_dir("a/passwd"), *through = in_dir("a/out_link"), *to_b = in_dir("a/to_b"),
       *other = in_dir("b/other"), *nowhere = in_dir("a/nowhere"), *to_new = in_dir("a/to_new"),
       *made = in_dir("a/sub/made"), *loop = in_dir("a/loop1");
  link_to("../outside/made", "a/nowhere");
  link_to("sub/made", "a/to_new");
  file_roots_use(roots);
  ASSERT_OK(directory_make(new_dir));
  ASSERT_OK(file_write(new, "x", 1));
  expect(file_write(out, "x", 1), SHOAL_PERMISSION_DENIED);
  expect(file_write(via, "x", 1), SHOAL_PERMISSION_DENIED);
  expect(directory_make(out_dir), SHOAL_PERMISSION_DENIED);
  expect(directory_make_one(out_dir), SHOAL_PERMISSION_DENIED);
  expect(file_rename(new, out), SHOAL_PERMISSION_DENIED);
  expect(file_rename(secret, new), SHOAL_PERMISSION_DENIED);
  expect(file_remove(secret), SHOAL_PERMISSION_DENIED);
  expect(directory_remove(dir), SHOAL_PERMISSION_DENIED);
  assert_false(file_exists(secret));
  assert_false(file_is_directory(dir));
  assert_true(file_exists(new));
  /* In place: through a link that leads out, and to one made after the check would have been. */
  struct file_writer w;
  expect(file_writer_open_direct(&w, through, true), SHOAL_PERMISSION_DENIED);
  /* As a whole: a link stays, and what it leads to is replaced, or made, where that is inside. */
  expect(file_write(passwd, "mine", 4), SHOAL_PERMISSION_DENIED);
  expect(file_write(through, "mine", 4), SHOAL_PERMISSION_DENIED);
  expect(file_write(nowhere, "mine", 4), SHOAL_PERMISSION_DENIED);
  expect(file_write(loop, "mine", 4), SHOAL_UNKNOWN);
  ASSERT_OK(file_write(to_b, "theirs", 6));
  ASSERT_OK(file_write(to_new, "x", 1));
  ASSERT_OK(file_remove(passwd));
  ASSERT_OK(file_remove(new));
  ASSERT_OK(directory_remove(new_dir));
  int64_t size;
  expect(file_size(secret, &size), SHOAL_PERMISSION_DENIED);
  file_roots_use(NULL);
  ASSERT_OK(file_size(secret, &size));
  assert_int_equal(size, 6);
  assert_false(file_exists(passwd));
  assert_true(is_a_link(through) && is_a_link(to_b) && is_a_link(to_new) && is_a_link(nowhere));
  assert_true(file_is_regular(made) && !is_a_link(made));
  assert_false(file_exists(nowhere));
  ASSERT_OK(file_size(other, &size));
  assert_int_equal(size, 6);
  ASSERT_OK(file_write(other, "other", 5));
  ASSERT_OK(file_remove(made));
  assert_false(file_exists(out_dir));
  free(new), free(new_dir), free(out), free(out_dir), free(via), free(secret), free(passwd), free(through);
  free(to_b), free(other), free(nowhere), free(to_new), free(made), free(loop);
}

static size_t count(const char *pattern, shoal_code code) {
  struct path_list found = {0};
  char *path = in_dir(pattern);
  expect(file_glob(path, &found), code);
  size_t n = found.paths.n;
  path_list_release(&found);
  free(path);
  return n;
}

static void test_patterns(void **state) {
  file_roots_use(roots);
  assert_int_equal(count("a/*/deep", SHOAL_OK), 2); /* sub and inside_dir */
  assert_int_equal(count("a/out_dir/*", SHOAL_PERMISSION_DENIED), 0);
  assert_int_equal(count("a/out_di?/*", SHOAL_OK), 0);
  assert_int_equal(count("a/*/../../outside/*", SHOAL_OK), 0);
  assert_int_equal(count("a/none/*", SHOAL_OK), 0);
  assert_int_equal(count("*", SHOAL_PERMISSION_DENIED), 0);
  assert_int_equal(count("outside/*", SHOAL_PERMISSION_DENIED), 0);
  struct path_list found = {0};
  char *outside = in_dir("outside"), *sub = in_dir("a/sub");
  expect(directory_list(outside, &found), SHOAL_PERMISSION_DENIED);
  ASSERT_OK(directory_list(sub, &found));
  assert_int_equal(found.paths.n, 1);
  path_list_release(&found);
  file_roots_use(NULL);
  free(outside);
  free(sub);
}

/* Patterns that the C library's glob() dies of, or works at for ever. */
static void test_hostile_patterns(void **state) {
  struct text deep = {0}, wide = {0};
  text_adds(&deep, "a");
  for (int i = 0; i < 100000; i++) text_adds(&deep, "/*");
  assert_int_equal(count(deep.at, SHOAL_INVALID_ARGUMENT), 0);
  text_adds(&wide, "a");
  for (int i = 0; i < 500; i++) text_adds(&wide, "/*/..");
  text_adds(&wide, "/none");
  count(wide.at, SHOAL_RESOURCE_EXHAUSTED);
  file_roots_use(roots);
  assert_int_equal(count("a/i\\n", SHOAL_OK), 1);
  assert_int_equal(count("a/[i]n", SHOAL_OK), 1);
  assert_int_equal(count("a/su*/", SHOAL_OK), 1);
  assert_int_equal(count("a//s?b//../in", SHOAL_OK), 1);
  file_roots_use(NULL);
  text_release(&deep);
  text_release(&wide);
}

/* A pipe would block whoever opens it; in a root it is refused. */
static void test_pipes(void **state) {
  char *path = in_dir("a/pipe");
  assert_int_equal(mkfifo(path, 0600), 0);
  file_roots_use(roots);
  char *data;
  size_t n;
  shoal_status s = file_read(path, 0, &data, &n);
  assert_int_equal(shoal_status_code(s), SHOAL_PERMISSION_DENIED);
  shoal_status_free(s);
  file_roots_use(NULL);
  free(path);
}

static void see(void *arg) { *(const struct file_roots **)arg = file_roots_current(); }

static void test_pools_inherit(void **state) {
  struct pool *p = pool_new(1, "test");
  const struct file_roots *seen[3] = {NULL, NULL, NULL};
  file_roots_use(roots);
  pool_submit(p, see, &seen[0]);
  file_roots_use(NULL);
  pool_submit(p, see, &seen[1]);
  pool_free(p);
  assert_ptr_equal(seen[0], roots);
  assert_ptr_equal(seen[1], NULL);
}

/* While a thread swaps a directory for a link that leads out, a reader sees the file inside or an error, never the
 * secret. */
static atomic_bool stop;

static void *swap(void *arg) {
  char *real = in_dir("a/swap"), *away = in_dir("a/swap_away"), *link = in_dir("a/swap_link");
  while (!atomic_load(&stop)) {
    rename(real, away);
    rename(link, real);
    rename(real, link);
    rename(away, real);
  }
  free(real), free(away), free(link);
  return NULL;
}

static void test_race(void **state) {
  make("a/swap");
  put("a/swap/secret", "public");
  link_to("../outside", "a/swap_link");
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, swap, NULL), 0);
  char *path = in_dir("a/swap/secret");
  file_roots_use(roots);
  for (int i = 0; i < 20000; i++) {
    char *data = NULL;
    size_t n;
    shoal_status s = file_read(path, 0, &data, &n);
    if (!s) assert_string_equal(data, "public");
    free(s ? NULL : data);
    shoal_status_free(s);
  }
  file_roots_use(NULL);
  atomic_store(&stop, true);
  pthread_join(t, NULL);
  free(path);
}

static void test_bad_roots(void **state) {
  static const char *const bad[] = {"", "/nowhere/at/all", "/tmp::/tmp", "/tmp:", "/etc/passwd"};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    struct file_roots *r;
    shoal_status s = file_roots_new(bad[i], &r);
    assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
    assert_non_null(strstr(shoal_status_message(s), "--file_root"));
    shoal_status_free(s);
  }
}

static void *open_untold(void *path) {
  char *text = NULL;
  size_t n;
  shoal_status refused = file_read(path, 1 << 20, &text, &n);
  bool ok =
      shoal_status_code(refused) == SHOAL_PERMISSION_DENIED && strstr(shoal_status_message(refused), "--file_root");
  shoal_status_free(refused);
  file_roots_use(NULL); /* told */
  shoal_status s = file_read(path, 1 << 20, &text, &n);
  ok = ok && !s;
  shoal_status_free(s);
  free(text);
  return ok ? path : NULL;
}

static void test_threads_that_were_not_told(void **state) {
  char *path = in_dir("a/in");
  pthread_t t;
  void *ok = NULL;
  file_roots_close_unknown(true);
  assert_int_equal(pthread_create(&t, NULL, open_untold, path), 0);
  pthread_join(t, &ok);
  file_roots_close_unknown(false);
  assert_ptr_equal(ok, path);
  free(path);
}

/* A path holds a descriptor for each of its directories while it is walked: of the deep ones there are not any number.
 */
static void test_deep_paths(void **state) {
  enum { MOST = 1200 };
  struct text path = {0};
  text_addf(&path, "%s/a", dir);
  for (int i = 0; i < MOST; i++) text_adds(&path, "/d");
  ASSERT_OK(directory_make(text_cstr(&path)));
  const struct file_roots *before = file_roots_use(roots);
  struct file_place p;
  size_t shallower = path.n - 2 * 600;
  for (int again = 0; again < 3; again++) { /* what was held is given back, also when there was no more of it */
    ASSERT_FAILS(file_place_find(text_cstr(&path), true, &p), SHOAL_RESOURCE_EXHAUSTED, "deep");
    char *fits = mem_strndup(path.at, shallower);
    ASSERT_OK(file_place_find(fits, true, &p));
    file_place_release(&p);
    free(fits);
  }
  file_roots_use(before);
  text_release(&path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reading),
      cmocka_unit_test(test_changing),
      cmocka_unit_test(test_patterns),
      cmocka_unit_test(test_deep_paths),
      cmocka_unit_test(test_hostile_patterns),
      cmocka_unit_test(test_pipes),
      cmocka_unit_test(test_race),
      cmocka_unit_test(test_bad_roots),
      cmocka_unit_test(test_pools_inherit),
      cmocka_unit_test(test_threads_that_were_not_told),
  };
  return cmocka_run_group_tests(tests, set_up, clean_up);
}
