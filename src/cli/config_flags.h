/* Flags of a server that stand for fields of its ConfigProto. */
#ifndef CLI_CONFIG_FLAGS_H
#define CLI_CONFIG_FLAGS_H

#include "base/text.h"
#include "cli/cli.h"

struct config_flags {
  const char *session_config, *memory_fraction, *visible, *virtual_devices;
  bool allow_growth;
};
#define CONFIG_FLAGS(f)                                                                                         \
  {"gpu_memory_fraction", "F", "how much of a card's memory a device may take", .text = &(f).memory_fraction},  \
      {"visible_device_list", "N[,...]", "the cards to use, in the order of their devices (default: all)",      \
       .text = &(f).visible},                                                                                   \
      {"virtual_devices", "MB[+MB...][,...]", "several devices on a card: the memory of each, card after card", \
       .text = &(f).virtual_devices},                                                                           \
      {"allow_growth", NULL, "as TensorFlow's; a card's memory is always taken as it is needed",                \
       .on = &(f).allow_growth},                                                                                \
  {                                                                                                             \
    "session_config", "TEXT",                                                                                   \
        "a ConfigProto as text, as a tf.train.Server's config: devices, threads, what sessions do not say",     \
        .text = &(f).session_config                                                                             \
  }
/* Appends the serialized ConfigProto. */
shoal_status config_flags_write(const struct config_flags *f, struct text *out);

#endif
