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
#include "proto/proto_check.h"
#include "runtime/session_config.h"

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

static shoal_status read_fraction(const char *text, double *fraction) {
  char *end;
  *fraction = strtod(text, &end);
  if (*end || !(*fraction > 0 && *fraction <= 1))
    return INVALID("--gpu_memory_fraction=%s: expected a number above 0, at most 1", text);
  return NULL;
}

shoal_status config_flags_write(const struct config_flags *f, struct text *out) {
  struct device_options devices = {.allow_growth = f->allow_growth};
  if (f->memory_fraction) TRY(read_fraction(f->memory_fraction, &devices.memory_fraction));
  if (f->visible && strlen(f->visible) >= VISIBLE_TEXT)
    return INVALID("--visible_device_list: more than %d characters", VISIBLE_TEXT - 1);
  if (f->visible) strcpy(devices.visible, f->visible);
  if (f->virtual_devices) TRY(session_config_read_virtual("--virtual_devices", f->virtual_devices, &devices));
  if (f->session_config) TRY(add_text(f->session_config, out));
  if (f->memory_fraction || f->visible || f->virtual_devices || f->allow_growth)
    session_config_write_devices(&devices, out);
  return NULL;
}
