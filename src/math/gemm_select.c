/* Which micro-kernel a product gets: tables best first, plain C last. */
#include <pthread.h>

#include "base/log.h"
#include "base/mem.h"
#include "math/gemm_kernel.h"

static const struct gemm_kernel *const *tables(void) {
  static const struct gemm_kernel *const list[] = {
#if defined(__aarch64__)
    gemm_kernels_neon,
#endif
#if defined(__x86_64__)
    gemm_kernels_x86,
#endif
    gemm_kernels_generic,
    NULL
  };
  return list;
}

shoal_dtype gemm_acc_type(shoal_dtype t) {
  switch (t) {
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16: return SHOAL_FLOAT32;
    case SHOAL_INT8:
    case SHOAL_UINT8:
    case SHOAL_INT16:
    case SHOAL_UINT16:
    case SHOAL_INT32: return SHOAL_UINT32;
    case SHOAL_INT64: return SHOAL_UINT64;
    default: return t;
  }
}

/* Every kernel of this machine is tried on a small product once before it is used: one that a compiler or an
 * emulated processor got wrong is left out, and the next best takes its place. */
enum { MAX_KERNELS = 16, PROOF_STEPS = 3 };

static bool proven(const struct gemm_kernel *k) {
  enum { MAX_MR = 32, MAX_NR = 32, MAX_K = 32 * PROOF_STEPS, ODD = 5 };
  static _Alignas(64) uint16_t a[MAX_MR * MAX_K], b[MAX_NR * MAX_K];
  static _Alignas(64) float fa[MAX_MR * MAX_K], fb[MAX_NR * MAX_K], c[MAX_MR * (MAX_NR + ODD)];
  bool narrow = k->in == SHOAL_BFLOAT16;
  if (k->acc != SHOAL_FLOAT32) return true;
  bool in_rows = k->lie == GEMM_A_ROWS;
  struct gemm_rows rows;
  for (int i = 0; i < GEMM_ROWS; i++) rows.at[i] = fa + i * MAX_K;
  union { /* in two stretches */
    struct gemm_stretches panel;
    char room[sizeof(struct gemm_stretches) + 2 * sizeof(struct gemm_stretch)];
  } b_in = {.panel = {.step = k->nr, .n = 2}};
  b_in.panel.at[0] = (struct gemm_stretch){fb, 0, 1};
  b_in.panel.at[1] = (struct gemm_stretch){fb + k->nr, 1, PROOF_STEPS - 1};
  int n = k->round * PROOF_STEPS, ldc = k->nr + ODD;
  for (int l = 0; l < MAX(k->mr, k->nr); l++)
    for (int p = 0; p < n; p++) { /* small whole numbers: every sum is exact */
      float x = (float)((l * 7 + p * 3) % 5 - 2), y = (float)((l * 5 + p * 11) % 7 - 3);
      int at_a = in_rows ? l * MAX_K + p : p / k->group_a * k->mr * k->group_a + l * k->group_a + p % k->group_a;
      int at_b = p / k->group_b * k->nr * k->group_b + l * k->group_b + p % k->group_b;
      if (l < k->mr && narrow) a[at_a] = bf16_from_float(x).bits;
      else if (l < k->mr) fa[at_a] = x;
      if (l < k->nr && narrow) b[at_b] = bf16_from_float(y).bits;
      else if (l < k->nr) fb[at_b] = y;
    }
  for (int i = 0; i < k->mr * ldc; i++) c[i] = 1000;
  const void *panel_a = in_rows ? (void *)&rows : narrow ? (void *)a : fa;
  const void *panel_b = k->lie == GEMM_B_STRETCHES ? (void *)&b_in : narrow ? (void *)b : fb;
  k->micro(PROOF_STEPS, panel_a, panel_b, c, ldc, false);
  k->micro(PROOF_STEPS, panel_a, panel_b, c, ldc, true);
  for (int i = 0; i < k->mr; i++)
    for (int j = 0; j < ldc; j++) {
      float want = j < k->nr ? 0 : 1000;
      for (int p = 0; p < n && j < k->nr; p++)
        want += 2 * (float)((i * 7 + p * 3) % 5 - 2) * (float)((j * 5 + p * 11) % 7 - 3);
      if (c[i * ldc + j] != want) return false;
    }
  return true;
}

static bool trusted[2][MAX_KERNELS]; /* by table and row; written once, before first use */

static void prove_all(void) {
  for (int t = 0; tables()[t] && tables()[t] != gemm_kernels_generic; t++)
    for (int i = 0; tables()[t][i].name; i++) {
      const struct gemm_kernel *k = &tables()[t][i];
      trusted[t][i] = (!k->usable || k->usable()) && proven(k);
      if (!trusted[t][i] && (!k->usable || k->usable())) LOGW("%s gives wrong sums here and is not used", k->name);
    }
}

static bool usable(int table, int i) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, prove_all);
  return tables()[table] == gemm_kernels_generic || trusted[table][i];
}

bool gemm_kernel_trusted(const struct gemm_kernel *k) {
  for (int t = 0; tables()[t]; t++)
    for (int i = 0; tables()[t][i].name; i++)
      if (&tables()[t][i] == k) return usable(t, i);
  return false;
}

/* What n costs in tiles of `whole` that can be cut to multiples of `step`; a cut tile is slower by about a step. */
static float extent(int64_t n, int whole, int step) {
  int64_t rest = n % whole, cut = rest ? MIN(whole, (rest + step - 1) / step * step + step) : 0;
  return (float)(n - rest + cut);
}

/* The kernels of one table that take packed elements of this type; the first table that has any wins, and
 * within it the kernel that wastes least on this shape. */
static const struct gemm_kernel *find_packed(shoal_dtype in, int64_t m, int64_t n, enum gemm_lie lie) {
  for (int t = 0; tables()[t]; t++) {
    const struct gemm_kernel *best = NULL;
    float best_cost = 0, rank = 0;
    for (const struct gemm_kernel *k = tables()[t]; k->name; k++) {
      if (k->in != in || (k->lie && k->lie != lie) || !usable(t, (int)(k - tables()[t]))) continue;
      /* Kernels of another kind (cost above 2: slower instructions) only when the better kind is absent. */
      if (best && k->cost > 2 * rank) break;
      if (!best) rank = k->cost;
      float tiles = extent(m, k->mr, k->edge ? k->edge_m : k->mr) * extent(n, k->nr, k->edge ? k->edge_n : k->nr);
      if (!best || tiles * k->cost < best_cost) {
        best = k;
        best_cost = tiles * k->cost;
      }
    }
    if (best) return best;
  }
  return NULL;
}

const struct gemm_kernel *gemm_kernel_find(shoal_dtype type, int64_t m, int64_t n, enum gemm_lie lie) {
  if (type == SHOAL_BFLOAT16) {
    const struct gemm_kernel *k = find_packed(SHOAL_BFLOAT16, m, n, GEMM_LANES);
    if (k) return k;
  }
  if (type != SHOAL_FLOAT32) lie = GEMM_LANES; /* others are converted on the way */
  return find_packed(gemm_acc_type(type), m, n, lie);
}

const char *gemm_kernel_name(shoal_dtype type, int64_t m, int64_t n) {
  const struct gemm_kernel *k = gemm_kernel_find(type, m, n, GEMM_A_ROWS);
  return k ? k->name : "none";
}
