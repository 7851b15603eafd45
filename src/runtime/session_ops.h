/* What every kind of session can do: the table behind shoal/session.h. The local session is here, the remote one in
 * src/cluster; which kinds a build has is listed by the build (session_schemes). */
#ifndef RUNTIME_SESSION_OPS_H
#define RUNTIME_SESSION_OPS_H

#include "base/inside.h"
#include "base/text.h"
#include "graph/prune.h"
#include "shoal/devices.h"
#include "shoal/session.h"

struct session_ops {
  shoal_status (*extend)(shoal_session *s, struct shoal_graph *g);
  /* Closing: end() has the steps that run end, and nothing new begins; once the last call has left, free() is called.
   */
  shoal_status (*end)(shoal_session *s);
  void (*free)(shoal_session *s);
  void (*interrupt)(shoal_session *s);
  shoal_status (*run)(shoal_session *s, const shoal_run_options *o, const struct step_signature *sig,
                      shoal_tensor *const *feeds, shoal_tensor **fetches, shoal_bytes *metadata);
  shoal_status (*partial_setup)(shoal_session *s, const struct step_signature *sig, char **handle);
  shoal_status (*partial_run)(shoal_session *s, const char *handle, const struct step_signature *sig,
                              shoal_tensor *const *feeds, shoal_tensor **fetches);
  shoal_status (*make_callable)(shoal_session *s, const struct step_signature *sig, int64_t *callable);
  shoal_status (*run_callable)(shoal_session *s, int64_t callable, const shoal_run_options *o,
                               shoal_tensor *const *feeds, int n_feeds, shoal_tensor **fetches, int n_fetches,
                               shoal_bytes *metadata);
  shoal_status (*release_callable)(shoal_session *s, int64_t callable);
  shoal_status (*list_devices)(shoal_session *s, char **lines); /* made by session_device_line */
};

struct shoal_session {
  const struct session_ops *ops;
  struct inside calls; /* of all threads */
  atomic_bool closing; /* nobody comes in any more */
  char *gives_up;      /* why it is closed before its end; NULL: that was its end */
};

void session_init(shoal_session *s, const struct session_ops *ops);
/* What session_init made; nobody is inside. */
void session_release(shoal_session *s);

/* Around whatever uses a session: closing waits for those that are inside. Steps in the background are from before
 * their thread begins. CANCELLED when the session is being closed. Leaving hands on the outcome e: an error that
 * closing brought about is said to be that. */
shoal_status session_enter(shoal_session *s);
shoal_status session_leave(shoal_session *s, shoal_status e);

/* Ends the steps that are running, as closing does, from any thread; after it the session can only be closed. */
static inline void session_interrupt(shoal_session *s) { s->ops->interrupt(s); }

/* Closes it before its end: tasks whose steps it meets do not wait for it any more, and their sessions that met it fail
 * with why. */
shoal_status session_give_up(shoal_session *s, const char *why);

/* One device, for list_devices. */
void session_device_line(struct text *to, const shoal_device *d);

struct session_scheme {
  const char *prefix; /* "grpc://"; NULL ends the list */
  shoal_status (*open)(struct shoal_graph *g, const shoal_session_options *o, shoal_session **out);
};
extern const struct session_scheme session_schemes[];

shoal_status local_session_open(struct shoal_graph *g, const shoal_session_options *o, shoal_session **out);

#endif
