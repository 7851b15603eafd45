/* The models of a server and their versions: found in folders, loaded, named in requests, dropped.
 *
 * One thread looks at the folders every so often. A version that is new is loaded beside those that are served, and
 * only when it is there do those go that the policy wants no more; each of them after its last request. So versions
 * change without a request that fails. */
#ifndef SERVING_CATALOG_H
#define SERVING_CATALOG_H

#include "base/text.h"
#include "serving/config.h"
#include "serving/servable.h"
#include "serving/spec.h"

struct catalog;

struct catalog_options {
  int64_t poll_ms;         /* between looks at the folders; 0: 1000 */
  int max_retries;         /* of a version that cannot be loaded; below 0: 5 */
  int64_t retry_ms;        /* between them; 0: a minute */
  const char *config_file; /* looked at again every config_poll_ms; NULL: never. Outlives the catalog */
  int64_t config_poll_ms;
  const struct batch_parameters *batching; /* NULL: requests are run one by one. Outlives the catalog */
  shoal_session_options session;
};

/* Takes the configuration over, and loads what is there. Models that cannot be loaded are told of on standard error;
 * an error only when there are models and versions, and none of them can be. */
shoal_status catalog_new(struct models_config *config, const struct catalog_options *o, struct catalog **out);
void catalog_free(struct catalog *c);

/* A reference to what a request means: NOT_FOUND, INVALID_ARGUMENT for a label that is none. */
shoal_status catalog_find(struct catalog *c, const struct model_spec *spec, struct servable **out);

/* How the versions of a model are, for each that a spec names (all, where it names none). */
struct version_status {
  int64_t version;
  int state; /* ModelVersionStatus_State */
  shoal_code code;
  const char *message; /* within the call alone */
};
shoal_status catalog_status(struct catalog *c, const struct model_spec *spec,
                            void (*each)(void *arg, const struct version_status *v), void *arg);

/* Another configuration, taken over: done is called once it is in force, or cannot be, on the catalog's thread. They
 * wait for each other; of one for which nobody waits any more when it has its turn nothing comes. */
void catalog_reload(struct catalog *c, struct models_config *config, bool (*is_gone)(void *arg),
                    void (*done)(void *arg, shoal_status s), void *arg);

#endif
