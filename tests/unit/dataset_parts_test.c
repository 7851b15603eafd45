/* Datasets made of one another: an iterator whose input fails to begin, options that are there very often. */
#include "unit.h"

#include "data/data_thread.h"
#include "data/dataset.h"

static struct dataset *numbers(void) { return dataset_range(0, 10, 1, SHOAL_INT64); }

/* The map cannot have its threads: the two above it end as well, each once. */
static void a_beginning_that_fails_is_undone_once(void **state) {
  struct captured identity = {0};
  struct shape scalar = {0};
  shoal_dtype type = SHOAL_INT64;
  struct element_spec spec = {1, &type, &scalar};
  struct dataset *in = numbers(), *map = dataset_map(in, &identity, &spec, 4, false), *few = dataset_take(map, 5),
                 *fewer = dataset_take(few, 4);
  struct data_iterator *it = NULL;
  assert_null(data_threads_take(DATA_THREADS));
  ASSERT_FAILS(dataset_iterate(fewer, &it), SHOAL_RESOURCE_EXHAUSTED, "threads for datasets");
  assert_null(it);
  data_threads_give(DATA_THREADS);
  dataset_unref(fewer);
  dataset_unref(few);
  dataset_unref(map);
  dataset_unref(in);
}

/* 16,384 ways lead to the one that has them. */
static void options_are_told_once(void **state) {
  struct dataset *in = numbers(), *d = dataset_options(in, "what is said", 12);
  struct text told = {0};
  dataset_unref(in);
  for (int i = 0; i < 14; i++) {
    struct dataset *both;
    ASSERT_OK(dataset_concatenate(d, d, &both));
    dataset_unref(d);
    d = both;
  }
  dataset_get_options(d, &told);
  assert_string_equal(text_cstr(&told), "what is said");
  text_release(&told);
  dataset_unref(d);
}

/* Of one that comes twice the last place counts. */
static void later_options_count(void **state) {
  struct dataset *in = numbers(), *a = dataset_options(in, "a", 1), *b = dataset_options(in, "b", 1), *ab, *aba;
  struct text told = {0};
  ASSERT_OK(dataset_concatenate(a, b, &ab));
  ASSERT_OK(dataset_concatenate(ab, a, &aba));
  dataset_get_options(aba, &told);
  assert_string_equal(text_cstr(&told), "ba");
  text_release(&told);
  struct dataset *all[] = {aba, ab, b, a, in};
  for (size_t i = 0; i < COUNT_OF(all); i++) dataset_unref(all[i]);
}

RUN_TESTS(cmocka_unit_test(a_beginning_that_fails_is_undone_once), cmocka_unit_test(options_are_told_once),
          cmocka_unit_test(later_options_count))
