/* The processor's features, by getauxval or cpuid. The compiler's own __builtin_cpu_supports is not asked: clang and
 * gcc know different names, and neither knows whether the system saves a tile's registers. */
#include "base/cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#if defined(__aarch64__)
#include <sys/auxv.h>

/* From the kernel's hwcap.h, whose older copies lack them. */
enum { HAS_CRC32 = 1 << 7, HAS2_BF16 = 1 << 14 };

static void look(bool *has) {
  has[CPU_CRC32] = (getauxval(AT_HWCAP) & HAS_CRC32) != 0;
  has[CPU_BF16] = (getauxval(AT_HWCAP2) & HAS2_BF16) != 0;
}
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX };

static bool bit(unsigned leaf, unsigned sub, int reg, int n) {
  unsigned r[4] = {0};
  if (!__get_cpuid_count(leaf, sub, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) return false;
  return (r[reg] >> n & 1) != 0;
}

/* Which registers the system saves when it changes threads. */
static unsigned saved(void) {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static void look(bool *has) {
  enum { YMM = 0x06, ZMM = 0xe6, OS_XSAVE = 27 };
  has[CPU_SSE42] = bit(1, 0, ECX, 20);
  if (!bit(1, 0, ECX, OS_XSAVE)) return;
  unsigned kept = saved();
  has[CPU_AVX2] = (kept & YMM) == YMM && bit(7, 0, EBX, 5) && bit(1, 0, ECX, 12);
  has[CPU_AVX512] = (kept & ZMM) == ZMM && bit(7, 0, EBX, 16);
  has[CPU_AVX512_BF16] = has[CPU_AVX512] && bit(7, 1, EAX, 5);
  /* Tiles need the system's leave, once a process; not asked for where they are not there. */
  enum { REQUEST = 0x1023, TILE_DATA = 18, AMX_BF16 = 22, AMX_TILE = 24 };
  has[CPU_AMX] = has[CPU_AVX512] && bit(7, 0, EDX, AMX_TILE) && bit(7, 0, EDX, AMX_BF16) &&
                 syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#else
static void look(bool *has) {}
#endif

static const char *const names[CPU_FEATURES] = {
    [CPU_CRC32] = "crc32", [CPU_BF16] = "bf16",     [CPU_SSE42] = "sse4.2",
    [CPU_AVX2] = "avx2",   [CPU_AVX512] = "avx512", [CPU_AVX512_BF16] = "avx512_bf16",
    [CPU_AMX] = "amx",
};

const char *cpu_feature_name(enum cpu_feature f) { return names[f]; }

static int find(const char *word, size_t n) {
  for (int f = 0; f < CPU_FEATURES; f++)
    if (strlen(names[f]) == n && !memcmp(names[f], word, n)) return f;
  return -1;
}

/* Takes away what the list does not allow. */
static void restrict_to(const char *list, bool *has) {
  bool listed[CPU_FEATURES] = {0}, without = *list == '-';
  while (*list) {
    size_t n = strcspn(list, ","), minus = *list == '-';
    int f = find(list + minus, n - minus);
    if (f >= 0 && minus == without) listed[f] = true;
    else if (n != strlen("plain") || memcmp(list, "plain", n) != 0)
      LOGW("SHOAL_CPU: '%.*s' is not the name of a feature, or stands beside its opposite", (int)n, list);
    list += n + (list[n] == ',');
  }
  for (int f = 0; f < CPU_FEATURES; f++) has[f] = has[f] && listed[f] != without;
}

static bool has[CPU_FEATURES]; /* written once, before first use */

static void look_once(void) {
  look(has);
  const char *list = getenv("SHOAL_CPU");
  if (list && *list) restrict_to(list, has);
}

bool cpu_has(enum cpu_feature f) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static atomic_bool looked; /* it is asked for every panel that is packed */
  if (!atomic_load_explicit(&looked, memory_order_acquire)) {
    pthread_once(&once, look_once);
    atomic_store_explicit(&looked, true, memory_order_release);
  }
  return has[f];
}
