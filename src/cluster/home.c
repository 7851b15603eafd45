/* The master's own process; see home.h. The worker in it has all of this. */
#include "cluster/home.h"

#include "base/device_name.h"
#include "cluster/worker.h"

void home_next_step(struct worker *home, int64_t key, const char *leader, int64_t began, struct cancel *cancel,
                    void (*done)(void *arg, shoal_status s, int64_t id), void *arg) {
  collective_next_step(home, key, leader, began, cancel, done, arg);
}

shoal_status home_step_begins(struct worker *home, int64_t key, int64_t id, int64_t session) {
  return met_session_step(&home->collectives.sessions, session, key, id);
}

void home_step_over(struct worker *home, int64_t key, int64_t id, int64_t session, int64_t began, shoal_status failed) {
  collective_step_over(home, key, id, session, began, failed);
  met_session_step_over(&home->collectives.sessions, session, id);
}

void home_session_given_up(struct worker *home, int64_t session, const char *why) {
  met_session_give_up(home, session, why);
}

void home_session_over(struct worker *home, int64_t session) {
  failed_steps_end_session(&home->collectives.failed, session);
  met_session_over(&home->collectives.sessions, session);
}

char *home_group(struct worker *home) { return same_group_own(&home->group); }

shoal_status home_check_group(struct worker *home) { return same_group_check(&home->group, home->task); }

const char *home_address(const struct worker *home) {
  struct device_spec d;
  shoal_status unread = device_spec_parse(home->task, &d);
  const char *address = unread ? NULL : cluster_spec_find(home->spec, d.job, d.task);
  shoal_status_free(unread);
  return address;
}

char *home_heard_address(struct worker *home, const char *task) { return same_group_address(&home->group, task); }

struct rendezvous *home_rendezvous(struct worker *home, int64_t step_id) {
  return steps_get(home->steps, step_id);
}

void home_end_rendezvous(struct worker *home, int64_t step_id) { steps_cleanup(home->steps, step_id); }

shoal_status home_evaluate(struct worker *home, const struct shoal_node *n, const struct tensor *const *in,
                           struct cancel *cancel, struct tensor *out) {
  struct plan_options o = {.device = home->devices[0], .resources = home->resources[0]};
  return plan_evaluate(&o, n, in, cancel, out);
}
