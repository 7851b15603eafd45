/* What `shoal server` is told of devices and sessions, as the ConfigProto that shoal_server_options has: so the flags
 * and a program's ConfigProto are read in one place, and mean the same. Flags come after --session_config, and are laid
 * over it. */
#include "cli/config_flags.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "graph/text_format.h"
#include "proto/config.pb-c.h"
#include "proto/config.wire.h"
#include "proto/proto_check.h"

static shoal_status add_text(const char *text, struct text *out) {
  Tensorflow__ConfigProto *config;
  TRY(status_prefix(text_format_parse(&tensorflow__config_proto__descriptor, text, strlen(text), &config),
                    "--session_config: "));
  size_t n = tensorflow__config_proto__get_packed_size(config);
  uint8_t *bytes = mem_alloc(n + 1);
  tensorflow__config_proto__pack(config, bytes);
  text_add(out, (const char *)bytes, n);
  free(bytes);
  proto_free(config);
  return NULL;
}

static shoal_status add_fraction(const char *text, struct text *out) {
  char *end;
  double fraction = strtod(text, &end);
  if (*end || !(fraction > 0 && fraction <= 1))
    return INVALID("--gpu_memory_fraction=%s: expected a number above 0, at most 1", text);
  put_GPUOptions_per_process_gpu_memory_fraction(out, fraction);
  return NULL;
}

/* "1024+1024,,4096": the megabytes of a card's devices, and the next card's. */
static shoal_status add_virtual(const char *text, struct text *out) {
  size_t experimental = begin_GPUOptions_experimental(out), card = begin_GPUOptions_Experimental_virtual_devices(out);
  for (const char *at = text; *at;) {
    char *end = (char *)at;
    double mb = *at == ',' ? 0 : strtod(at, &end);
    if (end != at) put_GPUOptions_Experimental_VirtualDevices_memory_limit_mb(out, (float)mb);
    if ((end == at && *at != ',') || (*end && !strchr(",+", *end)) || (*end == '+' && strchr(",+", end[1])))
      return INVALID("--virtual_devices=%s: expected megabytes, as in 1024+1024,4096", text);
    if (*end == ',') {
      wire_end(out, card);
      card = begin_GPUOptions_Experimental_virtual_devices(out);
    }
    at = end + (*end != 0);
  }
  wire_end(out, card);
  wire_end(out, experimental);
  return NULL;
}

shoal_status config_flags_write(const struct config_flags *f, struct text *out) {
  if (f->session_config) TRY(add_text(f->session_config, out));
  if (!f->memory_fraction && !f->visible && !f->virtual_devices && !f->allow_growth) return NULL;
  size_t options = begin_ConfigProto_gpu_options(out);
  if (f->memory_fraction) TRY(add_fraction(f->memory_fraction, out));
  if (f->visible) put_GPUOptions_visible_device_list(out, f->visible);
  if (f->virtual_devices) TRY(add_virtual(f->virtual_devices, out));
  if (f->allow_growth) put_GPUOptions_allow_growth(out, true);
  wire_end(out, options);
  return NULL;
}
