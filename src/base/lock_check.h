/* The order of locks, checked while a program runs: only in builds with SHOAL_CHECK_LOCKS (`make asan`, fuzzing),
 * into whose files this header is put by the compiler's -include. Elsewhere locks are pthread's own and cost what they
 * cost.
 *
 * A lock is known by the file that makes it, or first takes a static one, and what it is called there. The order is the
 * list in lock_check.c: who holds one may take those that stand after it, and locks that are not in the list, under
 * which nothing is taken. Locks of one kind are taken by rising addresses. Nobody waits for a condition with a second
 * lock in hand. What breaks this ends the program with both places, whether or not another thread was there to be in
 * the way.
 *
 * Not in `make tsan`: the checker's own lock would order the threads, and hide the races looked for there. */
#ifndef BASE_LOCK_CHECK_H
#define BASE_LOCK_CHECK_H

#ifdef SHOAL_CHECK_LOCKS
#include <pthread.h>

int lock_check_init(pthread_mutex_t *m, const pthread_mutexattr_t *a, const char *name, const char *file);
int lock_check_destroy(pthread_mutex_t *m);
int lock_check_lock(pthread_mutex_t *m, const char *name, const char *file, int line);
int lock_check_trylock(pthread_mutex_t *m, const char *name, const char *file, int line);
int lock_check_unlock(pthread_mutex_t *m);
int lock_check_rw_init(pthread_rwlock_t *l, const pthread_rwlockattr_t *a, const char *name, const char *file);
int lock_check_rw_destroy(pthread_rwlock_t *l);
int lock_check_read(pthread_rwlock_t *l, const char *name, const char *file, int line);
int lock_check_try_read(pthread_rwlock_t *l, const char *name, const char *file, int line);
int lock_check_write(pthread_rwlock_t *l, const char *name, const char *file, int line);
int lock_check_rw_unlock(pthread_rwlock_t *l);
int lock_check_wait(pthread_cond_t *c, pthread_mutex_t *m, const char *name, const char *file, int line);
int lock_check_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until, const char *name,
                         const char *file, int line);

#ifndef LOCK_CHECK_ITSELF
#define pthread_mutex_init(m, a) lock_check_init(m, a, #m, __FILE__)
#define pthread_mutex_destroy(m) lock_check_destroy(m)
#define pthread_mutex_lock(m) lock_check_lock(m, #m, __FILE__, __LINE__)
#define pthread_mutex_trylock(m) lock_check_trylock(m, #m, __FILE__, __LINE__)
#define pthread_mutex_unlock(m) lock_check_unlock(m)
#define pthread_rwlock_init(l, a) lock_check_rw_init(l, a, #l, __FILE__)
#define pthread_rwlock_destroy(l) lock_check_rw_destroy(l)
#define pthread_rwlock_rdlock(l) lock_check_read(l, #l, __FILE__, __LINE__)
#define pthread_rwlock_tryrdlock(l) lock_check_try_read(l, #l, __FILE__, __LINE__)
#define pthread_rwlock_wrlock(l) lock_check_write(l, #l, __FILE__, __LINE__)
#define pthread_rwlock_unlock(l) lock_check_rw_unlock(l)
#define pthread_cond_wait(c, m) lock_check_wait(c, m, #m, __FILE__, __LINE__)
#define pthread_cond_timedwait(c, m, t) lock_check_timedwait(c, m, t, #m, __FILE__, __LINE__)
#endif
#endif
#endif
