/* The table of element types. */
#include "tensor/dtype.h"

#include "tensor/tensor.h"

struct dtype_info {
  size_t size;
  const char *name;    /* ours: float32 */
  const char *tf_name; /* in TensorFlow's errors and signatures: float */
  char group;
};

#define ROW(e, c, n, g) [e] = {sizeof(c), n, n, #g[0]},
static const struct dtype_info infos[DTYPE_COUNT] = {
    DTYPE_PLAIN(ROW)[SHOAL_STRING] = {sizeof(struct str), "string", "string", 'S'},
    [SHOAL_RESOURCE] = {sizeof(struct resource_handle *), "resource", "resource", 'R'},
    [SHOAL_VARIANT] = {sizeof(struct variant *), "variant", "variant", 'V'},
};

/* The four types TensorFlow spells in two ways. */
static const struct {
  shoal_dtype type;
  const char *name, *ref;
} tf_names[] = {{SHOAL_FLOAT32, "float", "float_ref"},
                {SHOAL_FLOAT64, "double", "double_ref"},
                {SHOAL_FLOAT16, "half", "half_ref"}};

bool dtype_valid(int t) { return t > 0 && t < DTYPE_COUNT && infos[t].name; }

size_t dtype_size(shoal_dtype t) { return dtype_valid(t) ? infos[t].size : 0; }

static char group(shoal_dtype t) { return dtype_valid(t) ? infos[t].group : 0; }

bool dtype_plain(shoal_dtype t) {
  char g = group(t);
  return g && g != 'S' && g != 'R' && g != 'V';
}

bool dtype_floating(shoal_dtype t) { return group(t) == 'F'; }
bool dtype_integer(shoal_dtype t) { return group(t) == 'I' || group(t) == 'U'; }
bool dtype_complex(shoal_dtype t) { return group(t) == 'C'; }

static const char *ref_name(int base) {
  static const char *const names[DTYPE_COUNT] = {
#define REF_NAME(e, c, n, g) [e] = n "_ref",
      DTYPE_PLAIN(REF_NAME)[SHOAL_STRING] = "string_ref",
      [SHOAL_RESOURCE] = "resource_ref",
      [SHOAL_VARIANT] = "variant_ref",
  };
  return dtype_valid(base) ? names[base] : NULL;
}

const char *dtype_tf_name(int t) {
  bool ref = dtype_is_ref(t);
  int base = dtype_base(t);
  for (size_t i = 0; i < sizeof tf_names / sizeof *tf_names; i++)
    if ((int)tf_names[i].type == base) return ref ? tf_names[i].ref : tf_names[i].name;
  if (!dtype_valid(base)) return "unknown";
  return ref ? ref_name(base) : infos[base].tf_name;
}

static bool same(const char *name, size_t n, const char *word) { return strlen(word) == n && !memcmp(name, word, n); }

shoal_dtype dtype_from_name(const char *name, size_t n) {
  if (n > 4 && !memcmp(name + n - 4, "_ref", 4)) {
    shoal_dtype base = dtype_from_name(name, n - 4);
    return base ? dtype_ref(base) : SHOAL_DT_INVALID;
  }
  for (size_t i = 0; i < sizeof tf_names / sizeof *tf_names; i++)
    if (same(name, n, tf_names[i].name)) return tf_names[i].type;
  for (int t = 1; t < DTYPE_COUNT; t++)
    if (infos[t].name && same(name, n, infos[t].name)) return (shoal_dtype)t;
  return SHOAL_DT_INVALID;
}

const char *shoal_dtype_name(shoal_dtype t) {
  if (dtype_is_ref(t)) return ref_name(dtype_base(t));
  return dtype_valid(t) ? infos[t].name : NULL;
}

size_t shoal_dtype_size(shoal_dtype t) { return dtype_plain(t) ? infos[t].size : 0; }
