/* Steps by outputs instead of names: what is fed, what is fetched and where it goes.
 *
 *   float l;
 *   shoal_session_step(session, SHOAL_FEED(x, images, y, labels), SHOAL_FETCH(loss, &l), train);
 *
 * A fetched scalar may go to a float, double, int32_t, int64_t or bool (numbers are converted); anything may go to a
 * shoal_tensor *, of which the caller then has a reference. */
#ifndef SHOAL_STEP_H
#define SHOAL_STEP_H

#include <shoal/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_feed {
  shoal_out to;
  shoal_tensor *value;
} shoal_feed;

typedef struct shoal_fetch {
  shoal_out from;
  void *to;       /* a number, or a shoal_tensor * */
  shoal_dtype as; /* the number's type; SHOAL_DT_INVALID: to is a shoal_tensor ** */
} shoal_fetch;

typedef struct shoal_feeds {
  const shoal_feed *at;
  int n;
} shoal_feeds;

typedef struct shoal_fetches {
  const shoal_fetch *at;
  int n;
} shoal_fetches;

/* SHOAL_NO_FEEDS, SHOAL_NO_FETCHES; or up to eight pairs of (output, tensor), of (output, where to): SHOAL_FEED(x,
 * images, y, labels), SHOAL_FETCH(loss, &l). */
#ifdef __cplusplus
#define SHOAL_NO_FEEDS (shoal_feeds())
#define SHOAL_NO_FETCHES (shoal_fetches())
#define SHOAL_FEED(...) (shoal_cpp::feed(__VA_ARGS__))
#define SHOAL_FETCH(...) (shoal_cpp::fetch(__VA_ARGS__))
#else
#define SHOAL_NO_FEEDS ((shoal_feeds){0, 0})
#define SHOAL_NO_FETCHES ((shoal_fetches){0, 0})
#define SHOAL_FEED(...) \
  ((shoal_feeds){(const shoal_feed[]){SHOAL_PAIRS_(SHOAL_FEED_, __VA_ARGS__)}, SHOAL_PAIR_COUNT_(__VA_ARGS__)})
#define SHOAL_FETCH(...) \
  ((shoal_fetches){(const shoal_fetch[]){SHOAL_PAIRS_(SHOAL_FETCH_, __VA_ARGS__)}, SHOAL_PAIR_COUNT_(__VA_ARGS__)})
#endif

/* Runs one step; target may be NULL. On an error nothing is stored. Outputs are looked up by their names, as a session
 * may have been extended by several graphs: one of a graph that the session does not have is whatever has its name. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_step(shoal_session *s, shoal_feeds feeds, shoal_fetches fetches,
                                                           const shoal_op *target);
/* The same step n times, one after the other, with the same feeds (which are for what does not change: data come from
 * constants, variables or datasets). What is stored is what the last one fetched. On a card, where a step is captured
 * as a whole and is all there, they are queued without waiting between them. After an error some of the steps may have
 * been made. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_steps(shoal_session *s, int64_t n, shoal_feeds feeds,
                                                            shoal_fetches fetches, const shoal_op *target);

#ifdef __cplusplus
}

/* ---- how the macros above are made in C++: by overloads, into room of their own ---- */
namespace shoal_cpp {
template <class Pairs, class One, int N>
struct pairs {
  One at[N];
  operator Pairs() const {
    Pairs p = {at, N};
    return p;
  }
};

inline void put(shoal_feed *to, shoal_out o, shoal_tensor *v) {
  to->to = o;
  to->value = v;
}
inline void put_fetch(shoal_fetch *to, shoal_out o, void *p, shoal_dtype as) {
  to->from = o;
  to->to = p;
  to->as = as;
}
inline void put(shoal_fetch *to, shoal_out o, float *p) { put_fetch(to, o, p, SHOAL_FLOAT32); }
inline void put(shoal_fetch *to, shoal_out o, double *p) { put_fetch(to, o, p, SHOAL_FLOAT64); }
inline void put(shoal_fetch *to, shoal_out o, int32_t *p) { put_fetch(to, o, p, SHOAL_INT32); }
inline void put(shoal_fetch *to, shoal_out o, int64_t *p) { put_fetch(to, o, p, SHOAL_INT64); }
inline void put(shoal_fetch *to, shoal_out o, bool *p) { put_fetch(to, o, p, SHOAL_BOOL); }
inline void put(shoal_fetch *to, shoal_out o, shoal_tensor **p) { put_fetch(to, o, p, SHOAL_DT_INVALID); }

template <class One>
inline void fill(One *) {}
template <class One, class P, class... Rest>
inline void fill(One *to, shoal_out o, P p, Rest... rest) {
  put(to, o, p);
  fill(to + 1, rest...);
}

template <class... T>
inline pairs<shoal_feeds, shoal_feed, sizeof...(T) / 2> feed(T... v) {
  pairs<shoal_feeds, shoal_feed, sizeof...(T) / 2> p;
  fill(p.at, v...);
  return p;
}
template <class... T>
inline pairs<shoal_fetches, shoal_fetch, sizeof...(T) / 2> fetch(T... v) {
  pairs<shoal_fetches, shoal_fetch, sizeof...(T) / 2> p;
  fill(p.at, v...);
  return p;
}
}  // namespace shoal_cpp
#else
/* ---- how the macros above are made in C ---- */
#define SHOAL_FEED_(o, v) \
  { (o), (v) }
#define SHOAL_FETCH_(o, p)                     \
  {                                            \
    (o), (p), _Generic((p),                  \
        float *: SHOAL_FLOAT32,              \
        double *: SHOAL_FLOAT64,             \
        int32_t *: SHOAL_INT32,              \
        int64_t *: SHOAL_INT64,              \
        bool *: SHOAL_BOOL,                  \
        shoal_tensor **: SHOAL_DT_INVALID) \
  }
#define SHOAL_17TH_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, N, ...) N
#define SHOAL_PAIR_COUNT_(...) SHOAL_17TH_(__VA_ARGS__, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0)
#define SHOAL_PAIRS_(f, ...)                                                                                         \
  SHOAL_17TH_(__VA_ARGS__, SHOAL_PAIRS8_, 0, SHOAL_PAIRS7_, 0, SHOAL_PAIRS6_, 0, SHOAL_PAIRS5_, 0, SHOAL_PAIRS4_, 0, \
              SHOAL_PAIRS3_, 0, SHOAL_PAIRS2_, 0, SHOAL_PAIRS1_, 0)                                                  \
  (f, __VA_ARGS__)
#define SHOAL_PAIRS1_(f, a, b) f(a, b)
#define SHOAL_PAIRS2_(f, a, b, ...) f(a, b), SHOAL_PAIRS1_(f, __VA_ARGS__)
#define SHOAL_PAIRS3_(f, a, b, ...) f(a, b), SHOAL_PAIRS2_(f, __VA_ARGS__)
#define SHOAL_PAIRS4_(f, a, b, ...) f(a, b), SHOAL_PAIRS3_(f, __VA_ARGS__)
#define SHOAL_PAIRS5_(f, a, b, ...) f(a, b), SHOAL_PAIRS4_(f, __VA_ARGS__)
#define SHOAL_PAIRS6_(f, a, b, ...) f(a, b), SHOAL_PAIRS5_(f, __VA_ARGS__)
#define SHOAL_PAIRS7_(f, a, b, ...) f(a, b), SHOAL_PAIRS6_(f, __VA_ARGS__)
#define SHOAL_PAIRS8_(f, a, b, ...) f(a, b), SHOAL_PAIRS7_(f, __VA_ARGS__)
#endif
#endif
