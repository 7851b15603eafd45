/* The memory and the cores that this process may use; see machine.h.
 *
 * A limit holds for a control group and all below it, so the way from the process's own group up to the root is looked
 * at. In a container the root of the folder is often the container's own group, while the text names the path outside
 * of it: what is not there is skipped. Version 2 has one hierarchy ("0::/path", memory.max), version 1 one for memory
 * ("7:memory:/path", memory.limit_in_bytes); a machine may have both mounted. */
#include "base/machine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"

enum { PATH = 4096 };

static size_t read_limit(const char *path) {
  char text[64];
  FILE *f = fopen(path, "re");
  if (!f) return SIZE_MAX;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  char *end;
  unsigned long long limit = strtoull(text, &end, 10); /* "max": no number, no limit */
  return end == text || !limit || limit > SIZE_MAX ? SIZE_MAX : (size_t)limit;
}

/* The least limit of a group and those above it, in one hierarchy. */
static size_t least_limit(const char *mounted, const char *below, const char *group, const char *file) {
  char at[PATH], path[2 * PATH];
  size_t least = SIZE_MAX;
  snprintf(at, sizeof at, "%s", group);
  for (;;) {
    size_t n = strlen(at);
    while (n && at[n - 1] == '/') at[--n] = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", mounted, below, at, file);
    size_t limit = read_limit(path);
    if (limit < least) least = limit;
    char *last = strrchr(at, '/');
    if (!last) return least;
    *last = 0;
  }
}

/* Is name one of "cpu,memory"? */
static bool has_name(const char *controllers, size_t n, const char *name) {
  for (const char *at = controllers, *end = controllers + n; at < end;) {
    const char *comma = memchr(at, ',', (size_t)(end - at));
    size_t length = (size_t)((comma ? comma : end) - at);
    if (length == strlen(name) && !memcmp(at, name, length)) return true;
    at += length + 1;
  }
  return false;
}

size_t machine_group_limit(const char *groups, const char *mounted, enum machine_limit what) {
  static const struct {
    const char *file, *controller, *below, *old_file;
  } kinds[] = {[MACHINE_MEMORY] = {"memory.max", "memory", "/memory", "memory.limit_in_bytes"},
               [MACHINE_CORES] = {"cpu.max", "cpu", "/cpu", "cpu.cfs_quota_us"}};
  size_t least = SIZE_MAX;
  for (const char *line = groups, *next; *line; line = next) {
    size_t n = strcspn(line, "\n");
    next = line + n + (line[n] == '\n');
    const char *name = memchr(line, ':', n);
    const char *path = name ? memchr(name + 1, ':', n - (size_t)(name + 1 - line)) : NULL;
    char group[PATH];
    if (!path || (size_t)(line + n - path) > sizeof group) continue;
    size_t length = (size_t)(line + n - path - 1);
    memcpy(group, path + 1, length);
    group[length] = 0;
    size_t limit = SIZE_MAX;
    if (path == name + 1) limit = least_limit(mounted, "", group, kinds[what].file);
    else if (has_name(name + 1, (size_t)(path - name - 1), kinds[what].controller))
      limit = least_limit(mounted, kinds[what].below, group, kinds[what].old_file);
    if (limit < least) least = limit;
  }
  return least;
}

static size_t memory, quota; /* of cores: microseconds in a tenth of a second */

static void look(void) {
  char groups[2 * PATH];
  size_t n = 0;
  memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  quota = SIZE_MAX;
  FILE *f = fopen("/proc/self/cgroup", "re");
  if (!f) return;
  n = fread(groups, 1, sizeof groups - 1, f);
  fclose(f);
  groups[n] = 0;
  size_t limit = machine_group_limit(groups, "/sys/fs/cgroup", MACHINE_MEMORY);
  if (limit < memory) memory = limit;
  quota = machine_group_limit(groups, "/sys/fs/cgroup", MACHINE_CORES);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

size_t machine_memory(void) {
  pthread_once(&once, look);
  return memory;
}

enum {
  SEVERAL_CORES = 8, /* with fewer, who looks out takes a core from those it waits for */
  CORE_QUOTA = 100000,
  LOOK_NS = 50000000,
  FEW_SWITCHES = 10, /* between two looks: times that a thread was pushed off its core */
};

bool machine_has_idle_cores(int64_t now) {
  static atomic_llong next;
  static atomic_long before;
  static atomic_bool idle;
  long long due = atomic_load_explicit(&next, memory_order_relaxed);
  if (now < due || !atomic_compare_exchange_strong(&next, &due, now + LOOK_NS)) return atomic_load(&idle);
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  long switches = u.ru_nivcsw - atomic_exchange(&before, u.ru_nivcsw);
  pthread_once(&once, look);
  bool several = cpu_count() >= SEVERAL_CORES && quota >= (size_t)SEVERAL_CORES * CORE_QUOTA;
  bool spare = several && switches < FEW_SWITCHES && now < due + LOOK_NS; /* of a look long ago nothing follows */
  atomic_store(&idle, spare);
  return spare;
}
