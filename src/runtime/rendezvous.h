/* Rendezvous: where a step's sends meet its receives, by key. Values are consumed: one receive for one send.
 *
 * The interface has a local implementation here and one in src/cluster that fetches from other tasks. */
#ifndef RUNTIME_RENDEZVOUS_H
#define RUNTIME_RENDEZVOUS_H

#include <string.h>

#include "base/cancel.h"
#include "base/keyed_hash.h"
#include "base/ref.h"
#include "base/status.h"
#include "tensor/tensor.h"

/* Called once: with the value (owned by the callee) or an error (consumed). May run on the sender's thread. */
typedef void (*rendezvous_done)(void *arg, shoal_status s, struct tensor *value, bool is_dead);

struct rendezvous;
struct rendezvous_ops {
  void (*send)(struct rendezvous *r, const char *key, uint64_t hash, struct tensor *value, bool is_dead,
               shoal_status *s);
  void (*recv)(struct rendezvous *r, const char *key, uint64_t hash, struct cancel *cancel, rendezvous_done done,
               void *arg);
  /* (optional) The same for one who wants it in the memory of that device, or else the host's. */
  void (*recv_into)(struct rendezvous *r, const char *key, uint64_t hash, struct device *to, struct cancel *cancel,
                    rendezvous_done done, void *arg);
  /* Ends every waiting and future receive with a copy of why (consumed; not NULL). */
  void (*abort)(struct rendezvous *r, shoal_status why);
  void (*free)(struct rendezvous *r);
};
struct rendezvous {
  const struct rendezvous_ops *ops;
  struct ref refs;
};

/* What stands beside a key in all calls; whoever uses a key often makes it once. Strangers choose keys. */
static inline uint64_t rendezvous_hash(const char *key) { return hash_keyed(key, strlen(key), 0); }
/* The value is taken over. */
static inline shoal_status rendezvous_send(struct rendezvous *r, const char *key, uint64_t hash, struct tensor *value,
                                           bool is_dead) {
  shoal_status s = NULL;
  r->ops->send(r, key, hash, value, is_dead, &s);
  return s;
}
static inline void rendezvous_recv(struct rendezvous *r, const char *key, uint64_t hash, struct cancel *cancel,
                                   rendezvous_done done, void *arg) {
  r->ops->recv(r, key, hash, cancel, done, arg);
}
static inline void rendezvous_recv_into(struct rendezvous *r, const char *key, uint64_t hash, struct device *to,
                                        struct cancel *cancel, rendezvous_done done, void *arg) {
  if (r->ops->recv_into) r->ops->recv_into(r, key, hash, to, cancel, done, arg);
  else r->ops->recv(r, key, hash, cancel, done, arg);
}
static inline void rendezvous_abort(struct rendezvous *r, shoal_status why) { r->ops->abort(r, why); }
static inline struct rendezvous *rendezvous_ref(struct rendezvous *r) {
  ref_take(&r->refs);
  return r;
}
static inline void rendezvous_unref(struct rendezvous *r) {
  if (r && ref_drop(&r->refs)) r->ops->free(r);
}

/* Within one process. */
struct rendezvous *rendezvous_local_new(void);
/* Does nobody wait, and no value? */
bool rendezvous_local_is_empty(struct rendezvous *r);
/* Its step has been cleaned up: waiting receives end with ABORTED, and so do those to come, and sends. */
void rendezvous_local_end(struct rendezvous *r, int64_t step);
/* Calls fn for each key somebody waits for (status pages). */
void rendezvous_local_waiting(struct rendezvous *r, bool (*fn)(void *arg, const char *key), void *arg);

/* ---- keys: "SRC_DEVICE;INCARNATION;DST_DEVICE;EDGE_NAME;FRAME:ITER" ---- */
struct rendezvous_key {
  const char *src, *dst, *edge; /* point into text; not terminated */
  size_t src_n, dst_n, edge_n;
  uint64_t incarnation, frame, iter;
};
shoal_status rendezvous_key_parse(const char *text, struct rendezvous_key *out);
char *rendezvous_key_make(const char *src, uint64_t incarnation, const char *dst, const char *edge, uint64_t frame,
                          uint64_t iter);

#endif
