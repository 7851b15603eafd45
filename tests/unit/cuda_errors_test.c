/* What is said of errors of NVIDIA's driver and its cards; without either. */
#include "unit.h"

#include "device/cuda/cuda_api.h"
#include "device/memory.h"

static void says(shoal_status s, shoal_code code, const char *words) {
  assert_int_equal(shoal_status_code(s), code);
  if (!strstr(shoal_status_message(s), words)) fail_msg("\"%s\" lacks \"%s\"", shoal_status_message(s), words);
  shoal_status_free(s);
}

static void errors_say_what_to_do(void **state) {
  assert_null(cuda_status(0, "nothing"));
  says(cuda_status(719, "work on the card"), SHOAL_INTERNAL, "work on the card: ");
  says(cuda_status(719, "work on the card"), SHOAL_INTERNAL, "lost to this process");
  says(cuda_status(214, "a copy"), SHOAL_INTERNAL, "Xid");
  says(cuda_status(209, "kernels"), SHOAL_INTERNAL, "without kernels for such a card");
  says(cuda_status(222, "kernels"), SHOAL_INTERNAL, "update it");
  says(cuda_status(803, "beginning"), SHOAL_INTERNAL, "different versions");
  says(cuda_status(CU_OUT_OF_MEMORY, "memory"), SHOAL_RESOURCE_EXHAUSTED, "memory: ");
  assert_true(cuda_is_lost(700) && !cuda_is_lost(1) && !cuda_is_lost(CU_OUT_OF_MEMORY));
}

/* The account has room, the card has not: who has the most is told all the same. */
static void no_memory_says_who_has_it(void **state) {
  struct device_memory m;
  struct device_piece a, b;
  device_memory_init(&m, 1000);
  device_memory_enter(&m, "little", 10, &a);
  device_memory_enter(&m, "much", 100, &b);
  says(device_memory_none(&m, "GPU:0", 50, ", and the driver has no more"), SHOAL_RESOURCE_EXHAUSTED,
       "50 bytes on GPU:0: 110 of 1000 bytes are in use, and the driver has no more; most by much (100 bytes), little");
  device_memory_give(&m, &a);
  device_memory_give(&m, &b);
  device_memory_release(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(errors_say_what_to_do),
                                     cmocka_unit_test(no_memory_says_who_has_it)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
