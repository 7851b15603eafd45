/* One task of a coordinated cluster, for tests/cluster/coordination_test.py: does what its arguments say, one after the
 * other, and tells what came of each.
 *
 *   coordination_member COMMAND ...      TF_CONFIG in the environment says which task it is
 *
 * set=KEY=VALUE, get=KEY=MS, try=KEY, list=DIRECTORY, delete=KEY, barrier=NAME=MS[=TASK,TASK], error=MESSAGE, told=MS
 * (waits for an error of another task), until=KEY (waits for a value, and says nothing). */
#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TASKS = 8 };

static void say(const char *command, shoal_status s, const char *text) {
  if (!s) printf("%s: %s\n", command, text);
  else printf("%s: %s: %s\n", command, shoal_code_name(shoal_status_code(s)), shoal_status_message(s));
  shoal_status_free(s);
}

static void list(const shoal_server *server, const char *directory) {
  shoal_value_list all = {0};
  say("list", shoal_coordination_list(server, directory, &all), directory);
  for (int i = 0; i < all.n; i++) printf("  %s = %s\n", all.keys[i], (const char *)all.values[i].data);
  shoal_value_list_free(&all);
}

static void get(const shoal_server *server, const char *key, const char *ms, bool quiet) {
  shoal_bytes value = {0};
  shoal_status s =
      ms ? shoal_coordination_get(server, key, atoll(ms), &value) : shoal_coordination_try_get(server, key, &value);
  if (!quiet || s) say(ms ? "get" : "try", s, value.data ? (const char *)value.data : "");
  shoal_bytes_free(&value);
}

static void barrier(const shoal_server *server, const char *name, const char *ms, char *among) {
  const char *tasks[MOST_TASKS];
  int n = 0;
  for (char *rest = among, *task; among && n < MOST_TASKS && (task = strtok_r(rest, ",", &rest));) tasks[n++] = task;
  say("barrier", shoal_coordination_barrier(server, name, atoll(ms), tasks, n), name);
}

static void wait_for_news(const shoal_server *server, int64_t ms) {
  shoal_status news = NULL;
  for (int64_t waited = 0; waited < ms && !(news = shoal_coordination_error(server)); waited += 10)
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  say("told", news, "nothing");
}

/* As soon as all tasks are there to hear of it. */
static void report(const shoal_server *server, const char *message) {
  shoal_status s;
  while (shoal_status_code(s = shoal_coordination_report_error(server, SHOAL_INTERNAL, message)) ==
         SHOAL_FAILED_PRECONDITION) {
    shoal_status_free(s);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  say("error", s, "reported");
}

static void follow(const shoal_server *server, char *command) {
  char *rest = command, *verb = strtok_r(rest, "=", &rest), *a = strtok_r(rest, "=", &rest),
       *b = strtok_r(rest, "=", &rest), *c = strtok_r(rest, "=", &rest);
  if (!a) a = verb + strlen(verb);
  if (!strcmp(verb, "set")) say("set", shoal_coordination_set(server, a, b, b ? strlen(b) : 0), a);
  if (!strcmp(verb, "get")) get(server, a, b ? b : "0", false);
  if (!strcmp(verb, "until")) get(server, a, "0", true);
  if (!strcmp(verb, "try")) get(server, a, NULL, false);
  if (!strcmp(verb, "list")) list(server, a);
  if (!strcmp(verb, "delete")) say("delete", shoal_coordination_delete(server, a), a);
  if (!strcmp(verb, "barrier")) barrier(server, a, b ? b : "0", c);
  if (!strcmp(verb, "error")) report(server, a);
  if (!strcmp(verb, "told")) wait_for_news(server, atoll(a));
}

int main(int argc, char **argv) {
  shoal_server *server;
  setvbuf(stdout, NULL, _IOLBF, 0);
  shoal_status s = shoal_server_start(SHOAL_OPTIONS(shoal_server_options, .coordination_service = 1), &server);
  if (s) say("start", s, "");
  if (s) return 1;
  for (int i = 1; i < argc; i++) follow(server, argv[i]);
  shoal_server_stop(server);
  return 0;
}
