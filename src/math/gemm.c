/* The driver of matrix products: blocks for the caches, packs, and calls micro-kernels.
 *
 * B is packed whole (in chunks of columns when it is large), then blocks of C are shared out; each block walks
 * over all of K with its own packed piece of A. Where one block of rows covers C, it is the other way round: A is
 * packed whole, and each block packs its piece of B as it goes. No thread waits for another inside a product, and an
 * element's sum runs over K in blocks of the kernel's kc whatever the blocks of rows and columns are. Where C is small
 * and K is long, K is cut into pieces by a rule that knows only the sizes, and the pieces are added in order.
 *
 * OpenBLAS was measured against these kernels (docs/notes/gemm.md): on large float products the two are within
 * a few per cent, on the sizes of small models packing straight from a convolution's input and finishing rows in
 * cache wins; so there is one path for all types and none that depends on a library's threads. */
#include "math/gemm.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "math/gemm_epilogue.h"
#include "math/gemm_kernel.h"
#include "math/gemv.h"
#include "math/scratch.h"
#include "tensor/buffer.h"

enum {
  MAX_PACKED_B = 32 << 20, /* bytes of B packed at a time */
  SMALL_PACKED = 256 << 10,
  BLOCK_COLUMNS = 384, /* of C, where rows alone do not give every thread work */
  NARROW_PANELS = 4,   /* of B at least in a block that was made narrower for the threads' sake */
  SUMS_COLUMNS = 768,  /* at most, where sums are kept apart from C */
  LEAST_ROWS = 24,     /* of a block of C that was cut for the threads' sake, or a panel */
  PACK_ROWS = 16,      /* at a time: of more than so many rows caches lose the lines that the next panel begins in */
  PARALLEL_FLOPS = 2000000,
  THREAD_FLOPS = 4000000, /* a thread's share at least: some 30 us, about as long as it takes to wake one */
  SPLIT_AREA = 128 * 384, /* elements of C below which a long K is cut */
  SPLIT_K = 4096,
  MAX_SPLITS = 16,
};

struct gemm_job {
  const struct gemm *g;
  const struct gemm_kernel *kn;
  struct gemm_panel pa, pb;
  size_t in_size, acc_size;
  char *b;            /* packed columns [j0, j0 + n), panel after panel; NULL: each block packs its own */
  char *a;            /* all rows packed, kc steps of k after kc steps, panel after panel in each; NULL: likewise */
  size_t panel_bytes; /* of one panel of B over all of K */
  int64_t j0, n;
  int64_t panels; /* of rows of C */
  int64_t mb, nb; /* panels of rows and columns of a block, at most; nb a multiple of nr */
  int64_t n_blocks;
  bool whole;              /* blocks have all rows */
  int64_t splits, k_piece; /* K in `splits` pieces of k_piece */
  int threads;             /* at most */
  int64_t kc;              /* steps of k between packing: the kernel's kc or a little less, so that pieces are even */
  char *partial;           /* [splits][m][n] sums when splits > 1 */
  bool apart;              /* sums are kept in scratch and stored by gemm_finish_row */
};

static void pack(const struct gemm_operand *o, const struct gemm_panel *p, bool is_a, int64_t lane, int lanes,
                 int64_t k, int64_t n, void *dst) {
  bool k_runs = is_a != o->trans; /* k is the dimension that lies contiguous */
  int64_t ls = k_runs ? o->ld : 1, ks = k_runs ? 1 : o->ld;
  const char *at = (const char *)o->data + (size_t)(lane * ls + k * ks) * dtype_size(o->type);
  gemm_pack_block(p, at, o->type, ls, ks, o->conj, lanes, n, dst);
}

/* Packs the panels of lanes [lane, lane + lanes), `step` bytes apart. Where lanes lie contiguous, a few rows at a time
 * for all panels: a row of a large matrix is a page of its own, and to come back to it for every panel costs more than
 * the copying. */
static void pack_panels(const struct gemm_operand *o, const struct gemm_panel *p, bool is_a, int64_t lane,
                        int64_t lanes, int64_t k, int64_t n, char *dst, size_t step) {
  if (o->pack) {
    o->pack(o, p, lane, lanes, k, n, dst, step);
    return;
  }
  bool rows = is_a == o->trans;
  int64_t strip = rows ? MAX(PACK_ROWS, p->round) : n;
  int64_t quads = rows && gemm_packs_quads(p, o->type) ? lanes / 16 * 16 : 0;
  for (int64_t at = 0; at < n; at += strip) {
    if (quads)
      gemm_pack_quads((const float *)o->data + (k + at) * o->ld + lane, o->ld, quads, MIN(strip, n - at),
                      (float *)dst + at * p->width, step / sizeof(float));
    for (int64_t l = quads; l < lanes; l += p->width)
      pack(o, p, is_a, lane + l, (int)MIN(p->width, lanes - l), k + at, MIN(strip, n - at),
           dst + (size_t)(l / p->width) * step + (size_t)(at * p->width) * dtype_size(p->type));
  }
}

static void pack_b(void *arg, int64_t begin, int64_t end) {
  struct gemm_job *j = arg;
  int64_t col = begin * j->kn->nr;
  pack_panels(&j->g->b, &j->pb, false, j->j0 + col, MIN(end * j->kn->nr, j->n) - col, 0, j->g->k,
              j->b + (size_t)begin * j->panel_bytes, j->panel_bytes);
}

/* Of one panel of A over kc steps. */
static size_t row_bytes(const struct gemm_job *j) {
  struct gemm_rows *rows;
  if (j->kn->lie == GEMM_A_ROWS) return sizeof *rows + (size_t)j->kn->mr * sizeof *rows->own;
  return (size_t)j->kc * (size_t)j->kn->mr * j->in_size;
}

/* Of one panel of B over kc steps, in a block of its own. */
static size_t column_bytes(const struct gemm_job *j) {
  struct gemm_stretches *all;
  if (j->kn->lie == GEMM_B_STRETCHES) return sizeof *all + (size_t)j->kc * sizeof *all->at;
  return (size_t)j->kc * (size_t)j->kn->nr * j->in_size;
}

static void pack_a(void *arg, int64_t begin, int64_t end) {
  struct gemm_job *j = arg;
  size_t each = row_bytes(j), slice = (size_t)j->panels * each;
  for (int64_t i = begin; i < end; i++)
    pack_panels(&j->g->a, &j->pa, true, 0, j->g->m, i * j->kc, MIN(j->kc, j->g->k - i * j->kc),
                j->a + (size_t)i * slice, each);
}

/* Stores a tile that sticks out of C. */
static void store_edge(const struct gemm_job *j, const void *tile, void *c, int64_t ldc, int rows, int cols, bool add) {
  for (int r = 0; r < rows; r++) {
    const char *from = (const char *)tile + (size_t)r * (size_t)j->kn->nr * j->acc_size;
    char *to = (char *)c + (size_t)(r * ldc) * j->acc_size;
    if (!add) {
      memcpy(to, from, (size_t)cols * j->acc_size);
      continue;
    }
    switch (j->kn->acc) {
      case SHOAL_FLOAT32:
        for (int i = 0; i < cols; i++) ((float *)to)[i] += ((const float *)from)[i];
        break;
      case SHOAL_FLOAT64:
        for (int i = 0; i < cols; i++) ((double *)to)[i] += ((const double *)from)[i];
        break;
      case SHOAL_UINT32:
        for (int i = 0; i < cols; i++) ((uint32_t *)to)[i] += ((const uint32_t *)from)[i];
        break;
      case SHOAL_UINT64:
        for (int i = 0; i < cols; i++) ((uint64_t *)to)[i] += ((const uint64_t *)from)[i];
        break;
      case SHOAL_COMPLEX64:
        for (int i = 0; i < 2 * cols; i++) ((float *)to)[i] += ((const float *)from)[i];
        break;
      default:
        for (int i = 0; i < 2 * cols; i++) ((double *)to)[i] += ((const double *)from)[i];
    }
  }
}

/* Rows [i0, i0 + rows), columns [col, col + cols) of the chunk, over one piece of K. */
static void run_block(const struct gemm_job *j, int64_t i0, int64_t rows, int64_t col, int64_t cols, int64_t k0,
                      int64_t k1, char *partial) {
  const struct gemm *g = j->g;
  const struct gemm_kernel *kn = j->kn;
  int mr = kn->mr, nr = kn->nr;
  int64_t padded = (cols + nr - 1) / nr * nr;
  char *sums; /* where element (i0, col) goes */
  int64_t ld;
  bool edges = true; /* tiles may stick out and must be cut */
  if (partial) {
    sums = partial + (size_t)(i0 * j->n + col) * j->acc_size;
    ld = j->n;
  } else if (j->apart) {
    sums = scratch_get(SCRATCH_SUMS, (size_t)((rows + mr - 1) / mr * mr * padded) * j->acc_size);
    ld = padded;
    edges = false;
  } else {
    sums = (char *)g->c + (size_t)(i0 * g->ldc + j->j0 + col) * j->acc_size;
    ld = g->ldc;
  }
  bool add = !partial && g->accumulate;
  int64_t kc = j->kc;
  size_t a_step = row_bytes(j);
  size_t b_step = j->b ? j->panel_bytes : column_bytes(j);
  char *own_a = j->a ? NULL : scratch_get(SCRATCH_PACK, (size_t)((rows + mr - 1) / mr) * a_step);
  char *own_b = j->b ? NULL : scratch_get(SCRATCH_PANELS, (size_t)(padded / nr) * b_step);
  _Alignas(64) char tile[GEMM_MAX_TILE * 8];
  for (int64_t k = k0; k < k1; k += kc, add = true) {
    int64_t n = MIN(kc, k1 - k), steps = (n + kn->round - 1) / kn->round;
    if (own_b) pack_panels(&g->b, &j->pb, false, j->j0 + col, cols, k, n, own_b, b_step);
    if (own_a) pack_panels(&g->a, &j->pa, true, i0, rows, k, n, own_a, a_step);
    const char *a = own_a ? own_a : j->a + (size_t)(k / kc * j->panels) * a_step; /* i0 is 0 */
    const char *b = own_b ? own_b : j->b + (size_t)(col / nr) * b_step + (size_t)(k * nr) * j->in_size;
    for (int64_t c = 0; c < cols; c += nr, b += b_step) {
      int w = (int)MIN(nr, cols - c);
      for (int64_t i = 0; i < rows; i += mr) {
        char *to = sums + (size_t)(i * ld + c) * j->acc_size;
        int h = (int)MIN(mr, rows - i);
        if (h == mr && w == nr) {
          kn->micro(steps, a + (size_t)(i / mr) * a_step, b, to, ld, add);
        } else if (!edges && !kn->edge) {
          kn->micro(steps, a + (size_t)(i / mr) * a_step, b, to, ld, add);
        } else {
          if (kn->edge) kn->edge(steps, a + (size_t)(i / mr) * a_step, b, tile, nr, h, w);
          else kn->micro(steps, a + (size_t)(i / mr) * a_step, b, tile, nr, false);
          store_edge(j, tile, to, ld, h, w, add);
        }
      }
    }
  }
  if (!partial && (j->apart || g->epilogue))
    for (int64_t i = 0; i < rows; i++)
      gemm_finish_row(g, sums + (size_t)(i * ld) * j->acc_size, i0 + i, j->j0 + col, cols);
}

/* Panels of rows [begin, end), counted on through all blocks of columns and pieces of K. */
static void run_blocks(void *arg, int64_t begin, int64_t end) {
  const struct gemm_job *j = arg;
  const struct gemm *g = j->g;
  for (int64_t at = begin, some; at < end; at += some) {
    int64_t p = at % j->panels, u = at / j->panels, s = u % j->splits;
    some = MIN(MIN(end - at, j->mb), j->panels - p);
    int64_t i0 = p * j->kn->mr, col = u / j->splits * j->nb, k0 = s * j->k_piece;
    char *partial = j->splits > 1 ? j->partial + (size_t)(s * g->m * j->n) * j->acc_size : NULL;
    run_block(j, i0, MIN(some * j->kn->mr, g->m - i0), col, MIN(j->nb, j->n - col), k0, MIN(k0 + j->k_piece, g->k),
              partial);
  }
}

/* Adds the pieces of K in order, then finishes the rows. */
static void join_splits(void *arg, int64_t begin, int64_t end) {
  const struct gemm_job *j = arg;
  const struct gemm *g = j->g;
  size_t slice = (size_t)(g->m * j->n) * j->acc_size;
  for (int64_t i = begin; i < end; i++) {
    char *sum = j->partial + (size_t)(i * j->n) * j->acc_size;
    for (int64_t s = 1; s < j->splits; s++) {
      const char *more = sum + (size_t)s * slice;
      if (j->kn->acc == SHOAL_FLOAT32)
        for (int64_t c = 0; c < j->n; c++) ((float *)sum)[c] += ((const float *)more)[c];
      else
        for (int64_t c = 0; c < j->n; c++) ((double *)sum)[c] += ((const double *)more)[c];
    }
    if (g->accumulate) {
      char *c = (char *)g->c + (size_t)(i * g->ldc + j->j0) * j->acc_size;
      if (j->kn->acc == SHOAL_FLOAT32)
        for (int64_t x = 0; x < j->n; x++) ((float *)sum)[x] += ((const float *)c)[x];
      else
        for (int64_t x = 0; x < j->n; x++) ((double *)sum)[x] += ((const double *)c)[x];
    }
    gemm_finish_row(g, sum, i, j->j0, j->n);
  }
}

static int64_t least_panels(const struct gemm_kernel *kn) { return MAX(1, LEAST_ROWS / kn->mr); }

static void choose_blocks(struct gemm_job *j, int threads) {
  const struct gemm_kernel *kn = j->kn;
  int64_t cols = (j->n + kn->nr - 1) / kn->nr, want = threads > 1 ? 4 * threads : 1;
  int64_t narrow = MAX(BLOCK_COLUMNS / kn->nr, 1), nb = MIN(cols, j->apart ? SUMS_COLUMNS / kn->nr : cols);
  j->panels = (j->g->m + kn->mr - 1) / kn->mr;
  j->mb = MIN(j->panels, MAX(1, kn->mc / kn->mr));
  j->whole = j->mb == j->panels;
  int64_t blocks = (j->panels + j->mb - 1) / j->mb * j->splits;
  if (j->whole) { /* B is packed block by block */
    /* What a function packs (patches) is many times what they are made of: cut by columns alone, they stay in pieces.
     */
    int64_t least = j->g->b.pack ? 2 : 2 * NARROW_PANELS;
    nb = MIN(nb, narrow);
    while (nb >= least && blocks * ((cols + nb - 1) / nb) < want) nb = (nb + 1) / 2;
    bool enough = blocks * ((cols + nb - 1) / nb) >= want;
    j->whole = j->g->b.pack || enough || j->panels <= least_panels(kn);
  } else if (blocks * ((cols + nb - 1) / nb) < want) {
    nb = MIN(nb, narrow);
  }
  /* Even blocks of columns: no thread is left with a sliver. */
  int64_t n_blocks = (cols + nb - 1) / nb;
  j->nb = (cols + n_blocks - 1) / n_blocks * kn->nr;
  j->n_blocks = (j->n + j->nb - 1) / j->nb;
}

/* Blocks of rows are as large as the caches like them, and smaller towards the end of the loop. */
static void share_blocks(struct pool *pool, struct gemm_job *j) {
  int64_t least = j->whole ? j->panels : least_panels(j->kn);
  pool_for_tapered(pool, j->panels * j->n_blocks * j->splits, j->mb, least, j->threads, run_blocks, j);
}

static void choose_splits(struct gemm_job *j) {
  j->splits = 1;
  j->k_piece = j->g->k;
  bool summable = j->kn->acc == SHOAL_FLOAT32 || j->kn->acc == SHOAL_FLOAT64;
  if (!summable || j->g->m * j->n > SPLIT_AREA || j->g->k < 2 * SPLIT_K) return;
  int64_t splits = MIN(MAX_SPLITS, j->g->k / SPLIT_K);
  int64_t piece = (j->g->k + splits - 1) / splits;
  j->k_piece = (piece + j->kn->kc - 1) / j->kn->kc * j->kn->kc;
  j->splits = (j->g->k + j->k_piece - 1) / j->k_piece;
}

static void choose_steps(struct gemm_job *j) {
  enum { LEAST_RUN = 64 }; /* of steps: less is not worth the tile's way to C and back */
  int64_t blocks = (j->k_piece + j->kn->kc - 1) / j->kn->kc, round = j->kn->round, run = j->g->a.run;
  if (j->kn->lie == GEMM_A_ROWS && run && j->k_piece % run == 0) {
    for (j->kc = MIN(run, j->kn->kc); run % j->kc; j->kc--) {
    }
    if (j->kc >= LEAST_RUN) return;
  }
  j->kc = ((j->k_piece + blocks - 1) / blocks + round - 1) / round * round;
}

/* Room for packed panels: the thread's own scratch where it is little, else a buffer. */
static shoal_status panel_room(size_t bytes, struct buffer **buffer, char **out) {
  if (bytes > SMALL_PACKED) TRY(buffer_new(bytes, buffer));
  *out = *buffer ? (*buffer)->data : scratch_get(SCRATCH_SHARED, bytes);
  return NULL;
}

static void pack_shared(struct pool *pool, int64_t pieces, size_t each, void (*fn)(void *, int64_t, int64_t),
                        struct gemm_job *j) {
  pool_for((size_t)pieces * each > SMALL_PACKED ? pool : NULL, pieces, MAX(1, (int64_t)(SMALL_PACKED / 2 / each)), fn,
           j);
}

static shoal_status run_chunk(struct pool *pool, struct gemm_job *j) {
  const struct gemm *g = j->g;
  choose_splits(j);
  choose_steps(j);
  choose_blocks(j, j->threads);
  struct buffer *packed = NULL, *partial = NULL;
  int64_t cols = (j->n + j->kn->nr - 1) / j->kn->nr, slices = (g->k + j->kc - 1) / j->kc;
  size_t slice = (size_t)j->panels * row_bytes(j);
  j->a = j->b = NULL;
  if (j->whole && j->n_blocks > 1 && j->splits == 1) TRY(panel_room((size_t)slices * slice, &packed, &j->a));
  else if (!j->whole) TRY(panel_room((size_t)cols * j->panel_bytes, &packed, &j->b));
  if (j->splits > 1) {
    shoal_status s = buffer_new((size_t)(j->splits * g->m * j->n) * j->acc_size, &partial);
    if (s) {
      buffer_unref(packed);
      return s;
    }
    j->partial = partial->data;
  }
  if (j->a) pack_shared(pool, slices, slice, pack_a, j);
  if (j->b) pack_shared(pool, cols, j->panel_bytes, pack_b, j);
  share_blocks(pool, j);
  if (j->splits > 1) pool_for(NULL, g->m, 1, join_splits, j);
  buffer_unref(packed);
  buffer_unref(partial);
  return NULL;
}

/* K is empty: sums are zero. */
static void run_empty(const struct gemm *g) {
  if (g->accumulate) return;
  _Alignas(16) char zeros[256 * 16];
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t c = 0; c < g->n; c += 256) {
      memset(zeros, 0, sizeof zeros);
      gemm_finish_row(g, zeros, i, c, MIN(256, g->n - c));
    }
}

static const struct gemm_kernel *find_kernel(const struct gemm *g) {
  enum gemm_lie lie = !g->a.trans ? GEMM_A_ROWS : g->b.stretches ? GEMM_B_STRETCHES : GEMM_LANES;
  const struct gemm_kernel *kn = gemm_kernel_find(g->a.type, g->m, g->n, lie);
  /* With several blocks of rows B is packed once, over all of K. */
  if (kn && kn->lie == GEMM_B_STRETCHES && g->m > kn->mc) return gemm_kernel_find(g->a.type, g->m, g->n, GEMM_LANES);
  return kn;
}

shoal_status gemm_run(struct pool *pool, const struct gemm *g) {
  if (g->m <= 0 || g->n <= 0) return NULL;
  if (g->k <= 0) {
    run_empty(g);
    return NULL;
  }
  double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
  if (flops < PARALLEL_FLOPS) pool = NULL;
  if (gemv_suits(g)) return gemv_run(pool, g);
  struct gemm_job j = {.g = g, .kn = find_kernel(g)};
  j.threads = pool ? (int)MIN(pool_threads(pool), 1 + flops / THREAD_FLOPS) : 1;
  MUST(j.kn);
  MUST(j.kn->lie != GEMM_A_ROWS || (j.kn->mr <= GEMM_ROWS && j.kn->kc <= GEMM_ROW));
  enum gemm_lie a_lies = j.kn->lie == GEMM_A_ROWS ? GEMM_A_ROWS : GEMM_LANES;
  enum gemm_lie b_lies = j.kn->lie == GEMM_B_STRETCHES ? GEMM_B_STRETCHES : GEMM_LANES;
  j.pa = (struct gemm_panel){j.kn->mr, j.kn->group_a, j.kn->round, j.kn->in, a_lies};
  j.pb = (struct gemm_panel){j.kn->nr, j.kn->group_b, j.kn->round, j.kn->in, b_lies};
  j.in_size = dtype_size(j.kn->in);
  j.acc_size = dtype_size(j.kn->acc);
  j.apart = gemm_acc_type(g->type) != g->type && dtype_size(g->type) != j.acc_size;
  j.panel_bytes = (size_t)((g->k + j.kn->round - 1) / j.kn->round * j.kn->round) * (size_t)j.kn->nr * j.in_size;
  int64_t chunk = MAX(1, (int64_t)(MAX_PACKED_B / j.panel_bytes)) * j.kn->nr;
  for (j.j0 = 0; j.j0 < g->n; j.j0 += chunk) {
    j.n = MIN(chunk, g->n - j.j0);
    TRY(run_chunk(pool, &j));
  }
  return NULL;
}

struct batch {
  const struct gemm *g;
  const void *const *a, *const *b;
  void *const *c;
  shoal_status error;
  pthread_mutex_t lock; /* of error */
};

static void run_some(void *arg, int64_t begin, int64_t end) {
  struct batch *t = arg;
  struct gemm g = *t->g;
  for (int64_t i = begin; i < end; i++) {
    g.a.data = t->a[i];
    g.b.data = t->b[i];
    g.c = t->c[i];
    shoal_status s = gemm_run(NULL, &g);
    if (!s) continue;
    pthread_mutex_lock(&t->lock);
    status_merge(&t->error, s);
    pthread_mutex_unlock(&t->lock);
  }
}

shoal_status gemm_batch(struct pool *pool, const struct gemm *g, int64_t count, const void *const *a,
                        const void *const *b, void *const *c) {
  double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
  if (count == 1 || flops > 16.0 * PARALLEL_FLOPS) {
    struct gemm one = *g;
    for (int64_t i = 0; i < count; i++) {
      one.a.data = a[i];
      one.b.data = b[i];
      one.c = c[i];
      TRY(gemm_run(pool, &one));
    }
    return NULL;
  }
  struct batch t = {.g = g, .a = a, .b = b, .c = c};
  pthread_mutex_init(&t.lock, NULL);
  pool_for(pool, count, MAX(1, (int64_t)(PARALLEL_FLOPS / 4 / (flops + 1))), run_some, &t);
  pthread_mutex_destroy(&t.lock);
  return t.error;
}
