/* Times of a program's kernels on an NVIDIA card, summed by name. A library that the driver loads into the program:

     CUDA_INJECTION64_PATH=build/bench/libkernel_times.so PROGRAM

   It reads CUPTI's records of activity, which has the kernels of captured graphs too, and prints its sums to standard
   error at the end: milliseconds, launches, microseconds of one, name. */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4096, SHOWN = 60, BUFFER = 8 << 20 };

struct row {
  char name[160];
  double ms;
  long count;
};

static struct row rows[ROWS];
static int row_count;
static unsigned long long first, last;

static void add(const char *name, unsigned long long begin, unsigned long long end) {
  int i = 0;
  while (i < row_count && strncmp(rows[i].name, name, sizeof rows[i].name - 1)) i++;
  if (i == row_count) {
    if (row_count == ROWS) return;
    snprintf(rows[row_count++].name, sizeof rows[i].name, "%s", name);
  }
  rows[i].ms += (end - begin) * 1e-6;
  rows[i].count++;
  if (!first || begin < first) first = begin;
  if (end > last) last = end;
}

static void CUPTIAPI give(uint8_t **buffer, size_t *size, size_t *records) {
  *size = BUFFER, *records = 0;
  *buffer = aligned_alloc(8, *size);
}

static const char *copy_name(unsigned kind) {
  return kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy from the host"
         : kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                   : "copy on the card";
}

static void add_record(const CUpti_Activity *r) {
  if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const CUpti_ActivityKernel9 *k = (const void *)r;
    add(k->name, k->start, k->end);
  } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const CUpti_ActivityMemcpy6 *k = (const void *)r;
    add(copy_name(k->copyKind), k->start, k->end);
  } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const CUpti_ActivityMemset4 *k = (const void *)r;
    add("memset", k->start, k->end);
  }
}

static void CUPTIAPI take(CUcontext c, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  CUpti_Activity *r = NULL;
  (void)c, (void)stream, (void)size;
  while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS) add_record(r);
  free(buffer);
}

static int by_time(const void *a, const void *b) {
  double x = ((const struct row *)a)->ms, y = ((const struct row *)b)->ms;
  return x < y ? 1 : x > y ? -1 : 0;
}

static void report(void) {
  double sum = 0;
  cuptiActivityFlushAll(1);
  qsort(rows, row_count, sizeof *rows, by_time);
  for (int i = 0; i < row_count; i++) sum += rows[i].ms;
  fprintf(stderr, "kernels: %.1f ms of %.1f ms from the first to the last\n", sum, (last - first) * 1e-6);
  for (int i = 0; i < row_count && i < SHOWN; i++)
    fprintf(stderr, "%9.2f ms %7ld x %8.1f us  %s\n", rows[i].ms, rows[i].count, rows[i].ms * 1e3 / rows[i].count,
            rows[i].name);
}

int InitializeInjection(void);
int InitializeInjection(void) {
  cuptiActivityRegisterCallbacks(give, take);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
  atexit(report);
  return 1;
}
