/* What is handed from thread to thread by means that ThreadSanitizer does not see: by arming a descriptor
 * again, say. The giver calls handover_give() with the object just before, the taker handover_take() just
 * after; what the one wrote the other then sees. That it is so is the means' doing; in ordinary builds these are
 * nothing. */
#ifndef BASE_HANDOVER_H
#define BASE_HANDOVER_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HANDOVER_TOLD
#endif
#elif defined(__SANITIZE_THREAD__)
#define HANDOVER_TOLD
#endif

#ifdef HANDOVER_TOLD
void __tsan_acquire(void *at);
void __tsan_release(void *at);
static inline void handover_give(void *at) { __tsan_release(at); }
static inline void handover_take(void *at) { __tsan_acquire(at); }
#else
static inline void handover_give(void *at) { (void)at; }
static inline void handover_take(void *at) { (void)at; }
#endif

#endif
