/* A GPU's kernels beside the CPU's: layers of neural networks. See gpu_case.h. */
#include "gpu_case.h"

static void list(shoal_builder *b, const char *attr, int64_t n, int64_t h, int64_t w, int64_t c) {
  shoal_build_ints(b, attr, (int64_t[]){n, h, w, c}, 4);
}

/* ---- convolutions ---- */

static void padded(shoal_builder *b, const char *how, int stride, int dilation) {
  list(b, "strides", 1, stride, stride, 1);
  list(b, "dilations", 1, dilation, dilation, 1);
  shoal_build_string(b, "padding", how);
}
static void same(shoal_builder *b) { padded(b, "SAME", 1, 1); }
static void valid(shoal_builder *b) { padded(b, "VALID", 1, 1); }
static void same_2(shoal_builder *b) { padded(b, "SAME", 2, 1); }
static void valid_2(shoal_builder *b) { padded(b, "VALID", 2, 1); }
static void dilated(shoal_builder *b) { padded(b, "SAME", 1, 2); }
static void explicit_2(shoal_builder *b) {
  padded(b, "EXPLICIT", 2, 1);
  shoal_build_ints(b, "explicit_paddings", (int64_t[]){0, 0, 1, 2, 0, 1, 0, 0}, 8);
}
static void first(shoal_builder *b, const char *how, int stride) {
  list(b, "strides", 1, 1, stride, stride);
  shoal_build_string(b, "padding", how);
  shoal_build_string(b, "data_format", "NCHW");
}
static void first_same(shoal_builder *b) { first(b, "SAME", 1); }
static void first_same_2(shoal_builder *b) { first(b, "SAME", 2); }

#define TF32 .slack = 300

static void convolutions(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 9, 8, 3), D(3, 3, 3, 5)}, .attrs = same, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 9, 8, 16), D(3, 3, 16, 24)}, .attrs = same, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 9, 8, 8), D(1, 1, 8, 16)}, .attrs = valid, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 8, 8), D(3, 3, 8, 16)}, .attrs = same_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 13, 9, 4), D(7, 7, 4, 8)}, .attrs = same_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 9, 4), D(5, 3, 4, 8)}, .attrs = valid_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 9, 4), D(3, 3, 4, 8)}, .attrs = dilated, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 9, 4), D(3, 3, 4, 8)}, .attrs = explicit_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 9, 8), D(3, 3, 4, 16)}, .attrs = same, TF32}, /* two groups */
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 3, 9, 8), D(3, 3, 3, 5)}, .attrs = first_same, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 8, 12, 8), D(3, 3, 8, 16)}, .attrs = first_same_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(0, 9, 8, 3), D(3, 3, 3, 5)}, .attrs = same}};
  TRY_ALL(cases);
}

static void convolutions_back_to_images(void **state) {
  static const struct gpu_case cases[] = {{.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 9, 8, 3), D(3, 3, 3, 5), D(2, 9, 8, 5)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 9, 8, 16), D(1, 1, 16, 8), D(2, 9, 8, 8)},
                                           .attrs = valid,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 12, 8, 8), D(3, 3, 8, 16), D(2, 6, 4, 16)},
                                           .attrs = same_2,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 12, 9, 4), D(5, 3, 4, 8), D(2, 4, 4, 8)},
                                           .attrs = valid_2,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 12, 9, 4), D(3, 3, 4, 8), D(2, 12, 9, 8)},
                                           .attrs = dilated,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 12, 9, 8), D(3, 3, 4, 16), D(2, 12, 9, 16)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 8, 12, 8), D(3, 3, 8, 16), D(2, 16, 6, 4)},
                                           .attrs = first_same_2,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 9, 8, 0), D(3, 3, 0, 5), D(2, 9, 8, 5)},
                                           .attrs = same}};
  TRY_ALL(cases);
}

static void convolutions_back_to_filters(void **state) {
  static const struct gpu_case cases[] = {{.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 9, 8, 3), INTS(INT32, 3, 3, 3, 5), D(2, 9, 8, 5)},
                                           .attrs = same,
                                           .slack = 1000},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 9, 8, 16), INTS(INT32, 1, 1, 16, 40), D(2, 9, 8, 40)},
                                           .attrs = valid,
                                           .slack = 1000},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 12, 8, 8), INTS(INT32, 3, 3, 8, 16), D(2, 6, 4, 16)},
                                           .attrs = same_2,
                                           .slack = 1000},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 12, 9, 4), INTS(INT32, 3, 3, 4, 8), D(2, 12, 9, 8)},
                                           .attrs = dilated,
                                           .slack = 1000},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 12, 9, 8), INTS(INT32, 3, 3, 4, 16), D(2, 12, 9, 16)},
                                           .attrs = same,
                                           .slack = 1000},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 8, 12, 8), INTS(INT32, 3, 3, 8, 16), D(2, 16, 6, 4)},
                                           .attrs = first_same_2,
                                           .slack = 1000},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(0, 9, 8, 3), INTS(INT32, 3, 3, 3, 5), D(0, 9, 8, 5)},
                                           .attrs = same}};
  TRY_ALL(cases);
}

static void solid(shoal_builder *b) {
  shoal_build_ints(b, "strides", (int64_t[]){1, 1, 2, 2, 1}, 5);
  shoal_build_string(b, "padding", "SAME");
}

static void convolutions_of_solids(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "Conv3D", .n_in = 2, .in = {D(2, 5, 6, 7, 4), D(3, 3, 3, 4, 8)}, .attrs = solid, TF32},
      {.op = "Conv3DBackpropInputV2",
       .n_in = 3,
       .in = {INTS(INT32, 2, 5, 6, 7, 4), D(3, 3, 3, 4, 8), D(2, 5, 3, 4, 8)},
       .attrs = solid,
       TF32},
      {.op = "Conv3DBackpropFilterV2",
       .n_in = 3,
       .in = {D(2, 5, 6, 7, 4), INTS(INT32, 3, 3, 3, 4, 8), D(2, 5, 3, 4, 8)},
       .attrs = solid,
       .slack = 1000}};
  TRY_ALL(cases);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(convolutions), cmocka_unit_test(convolutions_back_to_images),
                                     cmocka_unit_test(convolutions_back_to_filters),
                                     cmocka_unit_test(convolutions_of_solids)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
