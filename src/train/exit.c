/* How a training program ends. */
#include "base/status_marks.h"
#include "base/stop.h"
#include "train/train_session.h"

bool shoal_preempted(void) { return stop_told(); }

int shoal_train_exit(shoal_status error) {
  enum { NOT_BEGUN = 2 }; /* as commands have it for flags that make no sense */
  bool lost = status_is_lost_task(error);
  shoal_status_print(error);
  bool gave_up = stop_told() && (!error || shoal_status_code(error) == SHOAL_CANCELLED);
  int code = gave_up || lost ? SHOAL_EXIT_RETRY : status_is_not_begun(error) ? NOT_BEGUN : error ? 1 : 0;
  shoal_status_free(error);
  return code;
}
