/* The list of a directory's checkpoints: which is the newest, which go. As tf.train.Saver keeps it: the last
 * max_to_keep stay, and one every so many hours stays for good. The `checkpoint` file is replaced after the new
 * checkpoint is complete and before an old one is removed, so that whatever it names is there at any moment. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "train/saver.h"

static double now(void) { return (double)wall_micros() * 1e-6; }

void saver_files_release(struct saver_files *f) {
  for (size_t i = 0; i < f->paths.n; i++) free(f->paths.at[i]);
  vec_release(&f->paths);
  vec_release(&f->times);
}

static void drop_first(struct saver_files *f, size_t i) {
  free(f->paths.at[i]);
  memmove(&f->paths.at[i], &f->paths.at[i + 1], (f->paths.n - i - 1) * sizeof *f->paths.at);
  memmove(&f->times.at[i], &f->times.at[i + 1], (f->times.n - i - 1) * sizeof *f->times.at);
  f->paths.n--;
  f->times.n--;
}

/* PREFIX.index, PREFIX.data-*, PREFIX.meta, or a file of the first format. The index goes first: without it nobody
 * takes what is left for a checkpoint. */
static void remove_checkpoint(const char *prefix) {
  char *index = mem_printf("%s.index", prefix), *meta = mem_printf("%s.meta", prefix);
  shoal_status_free(file_remove(index));
  char *pattern = mem_printf("%s.data-*-of-*", prefix);
  struct path_list files = {0};
  shoal_status_free(file_glob(pattern, &files));
  for (size_t i = 0; i < files.paths.n; i++) shoal_status_free(file_remove(files.paths.at[i]));
  path_list_release(&files);
  shoal_status_free(file_remove(meta));
  shoal_status_free(file_remove(prefix));
  free(index);
  free(meta);
  free(pattern);
}

shoal_status saver_files_check_name(const char *option, const char *dir) {
  return dir && !*dir ? INVALID("%s is empty: name a folder, or leave it out to save nothing", option) : NULL;
}

/* The checkpoint of the highest step, whatever the state file says; NULL: none. */
static char *highest(const char *dir) {
  struct path_list names = {0};
  char *found = NULL;
  int64_t step = -1;
  shoal_status_free(directory_list(dir, &names));
  for (size_t i = 0; i < names.paths.n; i++) {
    char *name = names.paths.at[i];
    if (!str_ends(name, ".index")) continue;
    name[strlen(name) - strlen(".index")] = 0;
    if (checkpoint_step(name) <= step) continue;
    step = checkpoint_step(name);
    free(found);
    found = mem_strdup(name);
  }
  path_list_release(&names);
  return found;
}

char *saver_files_why_none(const char *dir) {
  struct checkpoint_state state;
  shoal_status s = checkpoint_state_read(dir, NULL, &state);
  char *latest = s ? NULL : state.latest, *other = highest(dir);
  struct text why = {0};
  if (latest) text_addf(&why, "%s/checkpoint names %s, which has no files", dir, latest);
  else if (other) text_addf(&why, "%s has no file \"checkpoint\" that names one", dir);
  else text_addf(&why, "there is no checkpoint in %s", dir);
  if (other)
    text_addf(&why, "; %s is there: to go on from it, stop, and write model_checkpoint_path: \"%s\" into %s/checkpoint",
              other, other, dir);
  if (!s) checkpoint_state_release(&state);
  shoal_status_free(s);
  free(other);
  return text_take(&why);
}

/* The name inside the directory: what the state file says, so that a directory can be moved. */
static char *inside(const char *path) {
  const char *slash = strrchr(path, '/');
  return mem_strdup(slash ? slash + 1 : path);
}

static shoal_status write_state(struct saver_files *f, const char *path) {
  struct checkpoint_state state = {.latest = inside(path), .last_preserved = f->last_preserved};
  for (size_t i = 0; i < f->paths.n; i++) {
    vec_push(&state.all, inside(f->paths.at[i]));
    vec_push(&state.timestamps, f->times.at[i]);
  }
  char *dir = path_directory(path);
  shoal_status s = checkpoint_state_write(dir, NULL, &state);
  free(dir);
  checkpoint_state_release(&state);
  return s;
}

shoal_status saver_files_add(struct saver_files *f, const char *path) {
  for (size_t i = 0; i < f->paths.n; i++)
    if (!strcmp(f->paths.at[i], path)) drop_first(f, i--);
  vec_push(&f->paths, mem_strdup(path));
  vec_push(&f->times, now());
  if (f->next_kept == 0) f->next_kept = now() + f->keep_every_secs;
  VEC(char *) old = {0};
  while (f->max_to_keep > 0 && f->paths.n > (size_t)f->max_to_keep) {
    if (f->times.at[0] > f->next_kept) { /* this one stays for good, it only leaves the list */
      f->last_preserved = f->times.at[0];
      f->next_kept += f->keep_every_secs;
    } else {
      vec_push(&old, mem_strdup(f->paths.at[0]));
    }
    drop_first(f, 0);
  }
  shoal_status s = write_state(f, path);
  for (size_t i = 0; i < old.n; i++) {
    if (!s) remove_checkpoint(old.at[i]);
    free(old.at[i]);
  }
  vec_release(&old);
  return s;
}

/* What a process that was killed while it wrote has left in its directory: nobody else has reason to look at it. */
static void remove_leftovers(const char *dir) {
  struct path_list names = {0};
  shoal_status_free(directory_list(dir, &names));
  for (size_t i = 0; i < names.paths.n; i++) {
    const char *name = names.paths.at[i];
    char *path = mem_printf("%s/%s", dir, name);
    if (strstr(name, ".tempstate")) {
      shoal_status_free(file_remove(path));
    } else if (strstr(name, "_temp_") && file_is_directory(path)) {
      struct path_list parts = {0};
      shoal_status_free(directory_list(path, &parts));
      for (size_t k = 0; k < parts.paths.n; k++) {
        char *part = mem_printf("%s/%s", path, parts.paths.at[k]);
        shoal_status_free(file_remove(part));
        free(part);
      }
      path_list_release(&parts);
      shoal_status_free(directory_remove(path));
    }
    free(path);
  }
  path_list_release(&names);
}

shoal_status saver_files_recover(struct saver_files *f, const char *dir) {
  struct checkpoint_state state;
  shoal_status s = checkpoint_state_read(dir, NULL, &state);
  if (shoal_status_code(s) == SHOAL_NOT_FOUND) {
    shoal_status_free(s);
    remove_leftovers(dir);
    return NULL;
  }
  TRY(s);
  for (size_t i = 0; i < state.all.n; i++) {
    char *index = mem_printf("%s.index", state.all.at[i]);
    bool there = file_exists(index) || file_exists(state.all.at[i]);
    free(index);
    if (!there) continue;
    vec_push(&f->paths, state.all.at[i]);
    state.all.at[i] = NULL;
    vec_push(&f->times, i < state.timestamps.n ? state.timestamps.at[i] : now());
  }
  f->last_preserved = state.last_preserved;
  checkpoint_state_release(&state);
  remove_leftovers(dir);
  return NULL;
}

shoal_status saver_files_check_room(const char *path, int64_t bytes, int times) {
  char *dir = path_directory(path);
  const char *local;
  shoal_status s = directory_make(dir);
  if (!s) s = file_local_path(*dir ? dir : ".", &local);
  if (!s && access(local, W_OK | X_OK) != 0) s = ERRNO_STATUS(errno, "%s", local);
  struct statvfs fs;
  if (!s && statvfs(local, &fs) == 0) {
    double room = (double)fs.f_bavail * (double)fs.f_frsize;
    if (room < (double)bytes * times)
      s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s has %.1f MB left, and one checkpoint of this model takes %.1f MB%s",
                 local, room / 1e6, (double)bytes / 1e6,
                 times > 1 ? "; the first is kept until a second is complete" : "");
  }
  free(dir);
  return status_prefix(s, "checkpoints cannot be written: ");
}
