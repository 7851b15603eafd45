/* Who saves in a folder holds a lock on the folder itself, for as long as the process lives, in whatever way it ends.
 *
 * Two runs that save in one folder remove each other's checkpoints and go on from each other's models, without a word:
 * each finds files it could have written. A file with the owner's number was rejected, since it stays when its owner is
 * killed and then keeps out the very run it belongs to. A lock on the folder leaves nothing behind. Some network file
 * systems lock no folders: there it is as it was without. */
#include "train/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

struct claim {
  int fd;
};

/* Of /proc/locks: "7: FLOCK  ADVISORY  WRITE 708 08:01:1837 0 EOF"; 0: not found, as of other machines. */
static long holder(int fd) {
  struct stat st;
  char line[256];
  long found = 0;
  FILE *f = fstat(fd, &st) ? NULL : fopen("/proc/locks", "re");
  while (f && !found && fgets(line, sizeof line, f)) {
    long pid;
    unsigned major_number, minor_number;
    unsigned long long inode;
    if (sscanf(line, "%*d: FLOCK %*s WRITE %ld %x:%x:%llu", &pid, &major_number, &minor_number, &inode) == 4 &&
        major_number == major(st.st_dev) && minor_number == minor(st.st_dev) && inode == (unsigned long long)st.st_ino)
      found = pid;
  }
  if (f) fclose(f);
  return found > 0 ? found : 0;
}

static shoal_status taken(const char *folder, int fd) {
  char who[48] = "";
  long pid = holder(fd);
  if (pid) snprintf(who, sizeof who, " (process %ld)", pid);
  return STATUS(SHOAL_FAILED_PRECONDITION,
                "another run%s saves in %s: each would go on from the other's checkpoints, and remove them. Give this "
                "one a folder of its own, or end the other",
                who, folder);
}

shoal_status claim_take(const char *folder, bool (*give_up)(void), struct claim **out) {
  enum { WAIT_S = 10, LOOK_MS = 100 };
  const char *path;
  *out = NULL;
  TRY(file_local_path(folder, &path));
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return NULL; /* whoever writes there will say why */
  int64_t until = clock_ns() + (int64_t)WAIT_S * 1000000000;
  bool said = false;
  while (flock(fd, LOCK_EX | LOCK_NB)) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || clock_ns() >= until || (give_up && give_up())) {
      shoal_status s = errno == EWOULDBLOCK ? taken(folder, fd) : NULL;
      close(fd);
      return s;
    }
    if (!said) LOGW("another run saves in %s: waiting %d s for its end", folder, WAIT_S);
    said = true;
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
  }
  *out = mem_zalloc(1, sizeof **out);
  (*out)->fd = fd;
  return NULL;
}

bool claim_is_held(const char *folder) {
  const char *path;
  shoal_status elsewhere = file_local_path(folder, &path);
  shoal_status_free(elsewhere);
  int fd = elsewhere ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  bool held = flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
  close(fd);
  return held;
}

void claim_free(struct claim *c) {
  if (!c) return;
  close(c->fd);
  free(c);
}
