/* Reading Examples; see example.h. Everything is bounded by the message itself: a count is known from bytes that are
 * there before memory is taken for it. */
#include "data/example.h"

#include "base/mem.h"
#include "proto/example.wire.h"

void feature_index_add(struct feature_index *x, const char *key, size_t column) {
  strmap_put(&x->columns, key, (void *)(uintptr_t)(column + 1));
}

void feature_index_release(struct feature_index *x) { strmap_release(&x->columns); }

/* One entry of a map<string, message>. */
static bool read_entry(struct wire w, struct wire_field *key, struct wire_field *value) {
  struct wire_field f;
  enum wire_step step;
  *key = *value = (struct wire_field){0};
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == Features_FeatureEntry_key) *key = f;
    if (f.tag == Features_FeatureEntry_value) *value = f;
  }
  return step == WIRE_END;
}

static bool scan_map(struct wire w, const struct feature_index *want, struct feature_slot *slots) {
  static const uint8_t nothing;
  struct wire_field f, key, value;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag != Features_feature) continue;
    if (!read_entry(wire_inside(&f), &key, &value)) return false;
    void *found = strmap_getn(&want->columns, key.size ? (const char *)key.data : "", key.size);
    if (!found) continue;
    struct feature_slot *slot = &slots[(uintptr_t)found - 1];
    if (!value.size && slot->data) continue;
    slot->data = value.size ? value.data : &nothing;
    slot->size = value.size;
  }
  return step == WIRE_END;
}

bool example_scan(const void *data, size_t n, const struct feature_index *want, struct feature_slot *slots) {
  struct wire w = wire_from(data, n);
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD)
    if (f.tag == Example_features && !scan_map(wire_inside(&f), want, slots)) return false;
  return step == WIRE_END;
}

bool sequence_example_scan(const void *data, size_t n, const struct feature_index *context,
                           struct feature_slot *context_slots, const struct feature_index *lists,
                           struct feature_slot *list_slots) {
  struct wire w = wire_from(data, n);
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == SequenceExample_context && !scan_map(wire_inside(&f), context, context_slots)) return false;
    if (f.tag == SequenceExample_feature_lists && !scan_map(wire_inside(&f), lists, list_slots)) return false;
  }
  return step == WIRE_END;
}

bool feature_open(const struct feature_slot *slot, struct feature *out) {
  struct wire w = wire_from(slot->data, slot->size);
  struct wire_field f;
  enum wire_step step;
  out->dtype = SHOAL_DT_INVALID;
  out->list = wire_from(slot->data, 0);
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == Feature_bytes_list) out->dtype = SHOAL_STRING;
    else if (f.tag == Feature_float_list) out->dtype = SHOAL_FLOAT32;
    else if (f.tag == Feature_int64_list) out->dtype = SHOAL_INT64;
    else continue;
    out->list = wire_inside(&f);
  }
  return step == WIRE_END;
}

/* ---- values of a list, each field one value or, packed, many; the three kinds of lists number them alike ---- */

enum { VALUE = BytesList_value >> 3 };
_Static_assert(FloatList_value >> 3 == VALUE && Int64List_value >> 3 == VALUE, "one number for the values of a list");

static int64_t count_varints(struct wire w) {
  int64_t n = 0;
  uint64_t v;
  while (w.at < w.end) {
    if (!wire_get_varint(&w, &v)) return -1;
    n++;
  }
  return n;
}

int64_t feature_count(const struct feature *f) {
  struct wire w = f->list;
  struct wire_field v;
  enum wire_step step;
  int64_t n = 0;
  while ((step = wire_next(&w, &v)) == WIRE_FIELD) {
    if (v.number != VALUE) continue;
    int64_t more = 1;
    if (f->dtype == SHOAL_STRING) {
      if (v.type != WIRE_BYTES) return -1;
    } else if (f->dtype == SHOAL_FLOAT32) {
      if (v.type == WIRE_BYTES) more = v.size % 4 ? -1 : (int64_t)(v.size / 4);
      else if (v.type != WIRE_FIXED32) return -1;
    } else {
      if (v.type == WIRE_BYTES) more = count_varints(wire_inside(&v));
      else if (v.type != WIRE_VARINT) return -1;
    }
    if (more < 0) return -1;
    n += more;
  }
  return step == WIRE_END ? n : -1;
}

void feature_copy(const struct feature *f, void *to) {
  struct wire w = f->list;
  struct wire_field v;
  struct str *strings = to;
  float *floats = to;
  int64_t *ints = to;
  while (wire_next(&w, &v) == WIRE_FIELD) {
    if (v.number != VALUE) continue;
    if (f->dtype == SHOAL_STRING) {
      str_set(strings++, (const char *)v.data, v.size);
    } else if (f->dtype == SHOAL_FLOAT32) {
      if (v.type != WIRE_BYTES) {
        *floats++ = wire_float(&v);
      } else {
        for (size_t i = 0; i + 4 <= v.size; i += 4) {
          uint32_t bits = (uint32_t)v.data[i] | (uint32_t)v.data[i + 1] << 8 | (uint32_t)v.data[i + 2] << 16 |
                          (uint32_t)v.data[i + 3] << 24;
          memcpy(floats++, &bits, 4);
        }
      }
    } else if (v.type != WIRE_BYTES) {
      *ints++ = (int64_t)v.value;
    } else {
      struct wire packed = wire_inside(&v);
      uint64_t n;
      while (packed.at < packed.end && wire_get_varint(&packed, &n)) *ints++ = (int64_t)n;
    }
  }
}

enum wire_step feature_list_next(struct feature_walk *w, struct feature_slot *out) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w->rest, &f)) == WIRE_FIELD) {
    if (f.tag != FeatureList_feature) continue;
    out->data = f.data;
    out->size = f.size;
    return WIRE_FIELD;
  }
  return step;
}
