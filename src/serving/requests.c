/* See requests.h. */
#include "serving/requests.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/strmap.h"

/* Microseconds: 10, and each bound 1.8 times the one before, as TensorFlow Serving has them. */
enum { BOUNDS = 33, CODES = 17, MOST_MODELS = 10000 };

struct latency {
  int64_t counts[BOUNDS + 1];
  int64_t n;
  double sum;
};

struct model_requests {
  int64_t codes[CODES];
  struct latency latency[REQUEST_APIS][REQUEST_ENTRIES];
};

static struct {
  pthread_mutex_t lock;
  struct strmap models; /* lock: name -> struct model_requests *, for ever */
} requests = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(struct latency *l, double us) {
  double bound = 10;
  int i = 0;
  for (; i < BOUNDS && us > bound; i++) bound *= 1.8;
  l->counts[i]++;
  l->n++;
  l->sum += us;
}

void requests_count(const char *model, enum request_api api, enum request_entry entry, int64_t began, shoal_status s) {
  double us = (double)(clock_ns() - began) / 1000;
  int code = (int)(s ? shoal_status_code(s) : SHOAL_OK);
  pthread_mutex_lock(&requests.lock);
  if (!model || (requests.models.n >= MOST_MODELS && !strmap_has(&requests.models, model))) model = "";
  struct model_requests *m = strmap_get(&requests.models, model);
  if (!m) strmap_put(&requests.models, model, m = mem_zalloc(1, sizeof *m));
  if (code >= 0 && code < CODES) m->codes[code]++;
  if (!s) note(&m->latency[api][entry], us);
  pthread_mutex_unlock(&requests.lock);
}

/* A value inside quotes. */
static void write_label(struct text *out, const char *s) {
  for (; *s; s++) {
    if (*s == '\n') text_adds(out, "\\n");
    else if (*s == '"' || *s == '\\') text_addf(out, "\\%c", *s);
    else text_addc(out, *s);
  }
}

static void write_latency(struct text *out, const char *model, const char *api, const char *entry,
                          const struct latency *l) {
  static const char name[] = ":tensorflow:serving:request_latency";
  struct text labels = {0};
  text_adds(&labels, "{model_name=\"");
  write_label(&labels, model);
  text_addf(&labels, "\",API=\"%s\",entrypoint=\"%s\"", api, entry);
  double bound = 10;
  int64_t below = 0;
  for (int i = 0; i < BOUNDS; i++, bound *= 1.8) {
    below += l->counts[i];
    text_addf(out, "%s_bucket%s,le=\"%g\"} %" PRId64 "\n", name, text_cstr(&labels), bound, below);
  }
  text_addf(out, "%s_bucket%s,le=\"+Inf\"} %" PRId64 "\n", name, text_cstr(&labels), l->n);
  text_addf(out, "%s_sum%s} %g\n%s_count%s} %" PRId64 "\n", name, text_cstr(&labels), l->sum, name, text_cstr(&labels),
            l->n);
  text_release(&labels);
}

void requests_write(struct text *out) {
  static const char *const apis[] = {"Predict", "Classify", "Regress", "MultiInference"};
  static const char *const entries[] = {"GRPC", "REST"};
  const char *name;
  void *at;
  pthread_mutex_lock(&requests.lock);
  text_adds(out, "# TYPE :tensorflow:serving:request_count counter\n");
  for (size_t i = 0; strmap_next(&requests.models, &i, &name, &at);)
    for (int c = 0; c < CODES; c++) {
      const struct model_requests *m = at;
      if (!m->codes[c]) continue;
      text_adds(out, ":tensorflow:serving:request_count{model_name=\"");
      write_label(out, name);
      text_addf(out, "\",status=\"%s\"} %" PRId64 "\n", shoal_code_name((shoal_code)c), m->codes[c]);
    }
  text_adds(out, "# TYPE :tensorflow:serving:request_latency histogram\n");
  for (size_t i = 0; strmap_next(&requests.models, &i, &name, &at);)
    for (int k = 0; k < REQUEST_APIS * REQUEST_ENTRIES; k++) {
      const struct latency *l = &((const struct model_requests *)at)->latency[k / REQUEST_ENTRIES][k % REQUEST_ENTRIES];
      if (l->n) write_latency(out, name, apis[k / REQUEST_ENTRIES], entries[k % REQUEST_ENTRIES], l);
    }
  pthread_mutex_unlock(&requests.lock);
}
