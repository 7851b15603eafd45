/* Which cards a task uses: gpu_options as TensorFlow heeds them, and its words for those that make no sense.
 *
 * A task that has no cards heeds none of them: a program with gpu_options runs where there are none. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "device/device.h"

int device_asked(const struct device_type *type, const struct device_count *asked, int n) {
  int wanted = -1;
  for (int i = 0; i < n; i++)
    if (!strcmp(asked[i].type, type->name)) wanted = asked[i].n;
  return wanted;
}

/* One entry of the list: text up to a comma; spaces around it are passed over. */
static shoal_status read_card(const char *text, size_t n, const char *list, int have, int *card) {
  char digits[16];
  int64_t value;
  for (; n && *text == ' '; text++) n--;
  while (n && text[n - 1] == ' ') n--;
  snprintf(digits, sizeof digits, "%.*s", (int)MIN(n, sizeof digits - 1), text);
  if (n >= sizeof digits || !str_to_int64(digits, &value))
    return INVALID("Could not parse entry in 'visible_device_list': '%.*s'. visible_device_list = %s", (int)n, text,
                   list);
  if (value < 0 || value >= have)
    return INVALID("'visible_device_list' listed an invalid Device id '%s' but visible device count is %d", digits,
                   have);
  *card = (int)value;
  return NULL;
}

static shoal_status read_visible(const char *list, int have, int cards[MOST_CARDS], int *n) {
  bool used[MOST_CARDS] = {false};
  *n = 0;
  for (const char *at = list;; at++) {
    size_t size = strcspn(at, ",");
    int card;
    TRY(read_card(at, size, list, have, &card));
    if (used[card]) return INVALID("visible_device_list contained duplicate entries: %s", list);
    used[card] = true;
    cards[(*n)++] = card;
    at += size;
    if (!*at) return NULL;
  }
}

/* Those that may be used, however many were asked for. */
static shoal_status find_cards(const struct device_type *type, const struct device_options *o, int cards[MOST_CARDS],
                               int *n) {
  int have = MIN(type->count(-1), MOST_CARDS);
  if (*o->visible) return read_visible(o->visible, have, cards, n);
  for (*n = 0; *n < have; ++*n) cards[*n] = *n;
  return NULL;
}

int device_cards(const struct device_type *type, const struct device_options *o, int asked, int cards[MOST_CARDS]) {
  if (type->host || !asked) return type->count(asked);
  int n;
  shoal_status s = find_cards(type, o, cards, &n);
  if (s) n = 0;
  shoal_status_free(s);
  return asked < 0 ? n : MIN(asked, n);
}

static shoal_status check_virtual(const struct device_options *o, int used, int valid) {
  if (o->memory_fraction > 0)
    return INVALID("It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set.");
  if (used < o->n_cards)
    return STATUS(SHOAL_UNKNOWN, "Not enough GPUs to create virtual devices. num_gpus_to_use: %d #virtual_devices: %d",
                  used, o->n_cards);
  if (*o->visible && valid != o->n_cards)
    return INVALID(
        "The number of GPUs in visible_device_list doesn't match the number of elements in the virtual_devices list. "
        "#GPUs in visible_device_list: %d virtual_devices.size(): %d",
        valid, o->n_cards);
  if (valid != o->n_cards)
    return STATUS(SHOAL_UNKNOWN,
                  "The number of valid GPUs doesn't match the number of elements in the virtual_devices list. #valid "
                  "GPUs: %d virtual_devices.size(): %d",
                  valid, o->n_cards);
  return NULL;
}

static shoal_status check_type(const struct device_type *type, const struct device_options *o, int asked) {
  int cards[MOST_CARDS], valid = 0;
  if (asked) TRY(find_cards(type, o, cards, &valid));
  if (valid && !(o->memory_fraction >= 0 && o->memory_fraction <= 1))
    return INVALID("per_process_gpu_memory_fraction is %g: expected 0 to 1 (more than a card has is not supported)",
                   o->memory_fraction);
  return o->n_cards ? check_virtual(o, asked < 0 ? valid : MIN(asked, valid), valid) : NULL;
}

shoal_status device_options_check(const struct device_options *o, const struct device_count *asked, int n_asked) {
  for (const struct device_type *const *t = device_types; *t; t++) {
    int wanted = device_asked(*t, asked, n_asked);
    if ((*t)->host || (!wanted && !o->n_cards) || device_type_find((*t)->name) != *t) continue;
    TRY(check_type(*t, o, wanted));
  }
  return NULL;
}
