/* Opening CUDA's driver. */
#include "device/cuda/cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

/* An error of the card stays: every call of this process gets it again. */
#define LOST                                                                                                           \
  "the card is lost to this process, and will be there again when the process is started again; the system's log may " \
  "say why (Xid)"

/* The same number before there is a card. */
#define NOT_READY "the driver's modules may not be ready: does nvidia-smi show the card, and is nvidia-uvm loaded?"

static void describe(int error, char *out, size_t size);

static struct {
  pthread_once_t once;
  struct cuda_api api;
  int cards;
  const char *why;
} driver = {.once = PTHREAD_ONCE_INIT};

const char *cuda_symbols(void *library, const struct cuda_symbol *symbols) {
  for (; symbols->name; symbols++)
    if (!(*symbols->to = dlsym(library, symbols->name))) return symbols->name;
  return NULL;
}

/* The library stays open: cards outlive whoever asked first. */
static void look_for_driver(void) {
  int error;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    driver.why = "there is no NVIDIA driver (libcuda.so.1) on this machine";
    return;
  }
#define ROW(name, symbol, args) {symbol, (void **)(void *)&driver.api.name},
  const struct cuda_symbol symbols[] = {CUDA_FUNCTIONS(ROW){0}};
#undef ROW
  const char *missing = cuda_symbols(library, symbols);
  if (missing) {
    LOGW("the NVIDIA driver is too old: it has no %s", missing);
    driver.why = "the NVIDIA driver is too old";
  } else if ((error = driver.api.init(0)) || (error = driver.api.device_count(&driver.cards))) {
    static char text[600];
    char what[512];
    describe(error, what, sizeof what);
    snprintf(text, sizeof text, "the NVIDIA driver finds no card: %s", what);
    driver.why = text;
  } else if (!driver.cards) {
    driver.why = "the NVIDIA driver shows no card; CUDA_VISIBLE_DEVICES may hide them";
  }
}

static void open_driver(void) {
  look_for_driver();
  if (driver.why) LOGI("no card of NVIDIA's: %s", driver.why);
}

const struct cuda_api *cuda_api(const char **why) {
  pthread_once(&driver.once, open_driver);
  if (why) *why = driver.why;
  return driver.why ? NULL : &driver.api;
}

int cuda_card_count(void) { return cuda_api(NULL) ? driver.cards : 0; }

static _Thread_local CUcontext current;

void cuda_leave(void) { current = NULL; }

void cuda_enter(CUcontext context) {
  if (current != context) driver.api.context_set(context);
  current = context;
}

/* What else is to be said of an error, in order of their numbers' kinds. */
static const struct {
  int first, last;
  const char *hint;
} hints[] = {{35, 35, "the driver is older than the toolkit that this was built with: update it"},
             {46, 46, "another process has the card for itself, or it is being reset"},
             {100, 100, "CUDA_VISIBLE_DEVICES may hide the cards"},
             {101, 101, LOST},
             {209, 209, "this was built without kernels for such a card"},
             {214, 214, LOST},
             {220, 220, LOST},
             {222, 222, "the driver is older than the toolkit that this was built with: update it"},
             {700, 700, LOST},
             {702, 702, LOST},
             {709, 710, LOST},
             {714, 719, LOST},
             {802, 802, "the machine's NVLink fabric is not ready: is nvidia-fabricmanager running?"},
             {803, 803, "the driver and its kernel module are of different versions: load the module again, or reboot"},
             {CU_UNKNOWN, CU_UNKNOWN, LOST}};

static const char *hint_for(int error) {
  if (error == CU_UNKNOWN && !driver.cards) return NOT_READY;
  for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
    if (error >= hints[i].first && error <= hints[i].last) return hints[i].hint;
  return NULL;
}

bool cuda_is_lost(int error) {
  const char *hint = hint_for(error);
  return hint && !strcmp(hint, LOST);
}

static void describe(int error, char *out, size_t size) {
  const char *name = "CUDA's error", *text = "", *hint = hint_for(error);
  if (driver.api.error_name) driver.api.error_name(error, &name);
  if (driver.api.error_text) driver.api.error_text(error, &text);
  snprintf(out, size, "%s (%d)%s%s%s%s", name, error, *text ? ": " : "", text, hint ? "; " : "", hint ? hint : "");
}

shoal_status cuda_status(int error, const char *what) {
  char text[512];
  if (!error) return NULL;
  describe(error, text, sizeof text);
  return STATUS(error == CU_OUT_OF_MEMORY ? SHOAL_RESOURCE_EXHAUSTED : SHOAL_INTERNAL, "%s: %s", what, text);
}
