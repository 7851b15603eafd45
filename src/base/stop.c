/* Being told to stop: SIGTERM and SIGINT set a flag that training sessions look at between steps, and servers while
 * they serve. A second signal ends the process as it would without us, unless it comes within a second: schedulers,
 * timeout(1) and the like signal a process and its group, and mean it once. The handlers that were there come back when
 * the last user is gone. */
#include "base/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/clock.h"

enum { ONE_SIGNAL_NS = 1000000000 };

static atomic_bool told, hurried;
static atomic_llong first; /* when a signal came, in clock_ns(); 0: none did */

static struct {
  pthread_mutex_t lock;
  int users;                  /* lock */
  struct sigaction before[2]; /* lock */
} handlers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const int signals[] = {SIGTERM, SIGINT};

static void on_signal(int sig) {
  long long none = 0, now = clock_ns();
  atomic_store(&told, true);
  if (atomic_compare_exchange_strong(&first, &none, now) || now - none < ONE_SIGNAL_NS) return;
  signal(sig, SIG_DFL);
  raise(sig); /* once this handler has returned */
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
void stop_hurry(void) { atomic_store(&hurried, true); }
bool stop_hurried(void) { return atomic_load_explicit(&hurried, memory_order_relaxed); }
shoal_status stop_why(void) { return STATUS(SHOAL_CANCELLED, "told to stop while the next element was looked for"); }
