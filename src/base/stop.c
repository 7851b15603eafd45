/* Being told to stop: SIGTERM and SIGINT set a flag that training sessions look at between steps, and servers while
 * they serve. A second signal ends the process as it would without us. The handlers that were there come back when the
 * last user is gone. */
#include "base/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static atomic_bool told;

static struct {
  pthread_mutex_t lock;
  int users;                  /* lock */
  struct sigaction before[2]; /* lock */
} handlers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const int signals[] = {SIGTERM, SIGINT};

static void on_signal(int sig) {
  atomic_store(&told, true);
  signal(sig, SIG_DFL);
}

void stop_signals_take(void) {
  pthread_mutex_lock(&handlers.lock);
  if (handlers.users++ == 0)
    for (int i = 0; i < 2; i++) {
      struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
      sigemptyset(&action.sa_mask);
      sigaction(signals[i], &action, &handlers.before[i]);
    }
  pthread_mutex_unlock(&handlers.lock);
}

void stop_signals_leave(void) {
  pthread_mutex_lock(&handlers.lock);
  if (--handlers.users == 0)
    for (int i = 0; i < 2; i++) sigaction(signals[i], &handlers.before[i], NULL);
  pthread_mutex_unlock(&handlers.lock);
}

bool stop_told(void) { return atomic_load(&told); }
void stop_tell(void) { atomic_store(&told, true); }
