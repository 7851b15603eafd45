/* The flag --device of every example: which type of device computes, and which of them.
 *
 *   --device=CPU     --device=GPU     --device=GPU:1     or as graphs have it: --device=/gpu:1, --device=/device:GPU:1
 *
 * Without it each op is where the first of TensorFlow's rules puts it: on a GPU if there is one that has a kernel for
 * it, else on the CPU. With it all of a task's ops are asked to be on that device, and those that have no kernel there
 * (strings, input, checkpoints) are elsewhere: allow_soft_placement. That would also let a device pass that is not
 * there, so what was asked for is looked up first, among the devices of a session in this process: a server of this
 * process has the same ones. */
#ifndef EXAMPLES_DEVICE_H
#define EXAMPLES_DEVICE_H

#include <shoal/shoal.h>

#include "flags.h"

#define DEVICE_FLAG(to) flag_text("device", "CPU, GPU or GPU:N, where to compute; none: where kernels are", &(to))

enum { DEVICE_NAME = 96 };

/* Type and number of what the flag says: "GPU", "GPU:1", "gpu:1", "/gpu:1", "/device:GPU:1". Is it of that form? */
static inline bool read_device(const char *given, char type[16], int *number) {
  static const char prefix[] = "/device:";
  given += !strncmp(given, prefix, sizeof prefix - 1) ? (int)sizeof prefix - 1 : *given == '/';
  size_t n = strcspn(given, ":");
  char *end = NULL;
  *number = 0;
  if (n < 1 || n > 15) return false;
  for (size_t i = 0; i < n; i++) type[i] = given[i] >= 'a' && given[i] <= 'z' ? (char)(given[i] - 'a' + 'A') : given[i];
  type[n] = 0;
  if (!given[n]) return true;
  long v = strtol(given + n + 1, &end, 10);
  *number = (int)v;
  return given[n + 1] >= '0' && given[n + 1] <= '9' && !*end && v < 10000;
}

/* The end: there is no such device, or there are not so many from it on, but these. */
static inline void refuse_device(const char *given, int count, const shoal_device *list, int n) {
  fprintf(stderr, "%s: --device=%s: ", program_name, given);
  if (count > 1) fprintf(stderr, "there is no such device here for each of %d; there is", count);
  else fprintf(stderr, "there is no such device here; there is");
  for (int i = 0; i < n; i++) {
    const char *short_name = strrchr(list[i].name, '/'); /* "/device:GPU:0" */
    fprintf(stderr, "%s %s", i ? "," : "", short_name ? short_name + strlen("/device:") : list[i].name);
  }
  fprintf(stderr, "\n`shoal devices` says why there is no other\n");
  exit(2);
}

/* Are `count` devices there, from that one on? */
static inline bool have_devices(const shoal_device *list, int n, const char *type, int number, int count) {
  char name[DEVICE_NAME];
  int found = 0;
  for (int k = 0; k < count; k++) {
    snprintf(name, sizeof name, "/device:%s:%d", type, number + k);
    for (int i = 0; i < n; i++) {
      const char *tail = strstr(list[i].name, "/device:");
      found += tail && !strcmp(tail, name);
    }
  }
  return found == count;
}

/* Looks up what the flag says, `count` devices from that one on. CPUs are logical: there are as many as a session is
 * told to have. */
static inline void check_device(const char *given, int count) {
  char type[16];
  int number = 0, n = 0;
  if (!given) return;
  if (!read_device(given, type, &number)) {
    fprintf(stderr, "%s: --device=%s: expected CPU, GPU, or one of them with its number, as GPU:1\n", program_name,
            given);
    exit(2);
  }
  shoal_graph *g = shoal_graph_new();
  shoal_session *session = NULL;
  shoal_device *list = NULL;
  shoal_session_options options = {0};
  options.size = sizeof options;
  options.cpu_devices = strcmp(type, "CPU") ? 1 : count;
  shoal_status s = shoal_session_open(g, &options, &session);
  if (!s) s = shoal_session_devices(session, &list, &n);
  if (s) {
    fprintf(stderr, "%s: --device=%s: %s\n", program_name, given, shoal_status_message(s));
    exit(1);
  }
  if (!have_devices(list, n, type, number, count))
    refuse_device(given, have_devices(list, n, type, number, 1) ? count : 1, list, n);
  free(list);
  shoal_status_free(shoal_session_close(session));
  shoal_graph_free(g);
}

/* The name for graphs of device number i from there on, behind the name of its task, "/job:worker/task:1", or "" in
 * this process. Without the flag it is the task's. */
static inline void name_device(const char *given, const char *task, int i, char out[DEVICE_NAME]) {
  char type[16] = "";
  int number = 0;
  if (given && read_device(given, type, &number))
    snprintf(out, DEVICE_NAME, "%.64s/device:%s:%d", task, type, number + i);
  else snprintf(out, DEVICE_NAME, "%.64s", task);
}

/* The same in a task of a cluster: a parameter server only serves, and may be on a host without such devices. */
static inline void check_task_device(const shoal_cluster *cluster, const char *given, int count) {
  if (!cluster || strcmp(shoal_cluster_job(cluster), "ps") != 0) check_device(given, count);
}

/* For programs of one process: what is built from here to shoal_pop_device is there. */
static inline void push_device(shoal_graph *g, const char *given) {
  char name[DEVICE_NAME];
  check_device(given, 1);
  name_device(given, "", 0, name);
  shoal_push_device(g, name);
}

/* Options of the sessions: NULL without the flag. */
static inline const shoal_session_options *device_session(const char *given) {
  static shoal_session_options options;
  options.size = sizeof options;
  options.allow_soft_placement = true;
  return given ? &options : NULL;
}

#endif
