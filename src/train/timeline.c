/* RunMetadata's step stats as a Chrome trace: a process for each device, and in it as many lanes as ops ran at once. An
 * op goes into the first lane that is free when it starts. */
#include "train/timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"
#include "base/wire.h"
#include "proto/config.wire.h"
#include "proto/step_stats.wire.h"

struct span {
  int64_t start, end; /* microseconds */
  const uint8_t *name, *label;
  size_t name_n, label_n;
};

static void put_quoted(struct text *t, const void *data, size_t n) {
  const unsigned char *p = data;
  text_addc(t, '"');
  for (size_t i = 0; i < n; i++) {
    if (p[i] == '"' || p[i] == '\\') text_addf(t, "\\%c", p[i]);
    else if (p[i] < 32 || p[i] >= 127) text_addf(t, "\\u%04x", p[i]);
    else text_addc(t, (char)p[i]);
  }
  text_addc(t, '"');
}

/* The op's type, which stands in the label: "name = Type(inputs)". */
static void type_of(const struct span *s, const char **at, size_t *n) {
  const char *label = (const char *)s->label, *equals = memmem(label, s->label_n, " = ", 3);
  *at = (const char *)s->name;
  *n = s->name_n;
  if (!equals) return;
  const char *from = equals + 3, *end = label + s->label_n, *paren = memchr(from, '(', (size_t)(end - from));
  *at = from;
  *n = (size_t)((paren ? paren : end) - from);
}

static struct span read_span(struct wire w) {
  struct span s = {0};
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == NodeExecStats_all_start_micros) s.start = (int64_t)f.value;
    if (f.tag == NodeExecStats_all_end_rel_micros) s.end = (int64_t)f.value;
    if (f.tag == NodeExecStats_node_name) s.name = f.data, s.name_n = f.size;
    if (f.tag == NodeExecStats_timeline_label) s.label = f.data, s.label_n = f.size;
  }
  s.end = s.start + MAX(s.end, 0);
  if (!s.label) s.label = s.name, s.label_n = s.name_n;
  return s;
}

static int by_start(const void *a, const void *b) {
  const struct span *x = a, *y = b;
  return x->start != y->start ? (x->start > y->start) - (x->start < y->start) : (x->end > y->end) - (x->end < y->end);
}

static void put_device(struct text *events, int pid, struct wire device) {
  VEC(struct span) spans = {0};
  VEC(int64_t) lanes = {0}; /* when each is free again */
  struct wire_field name = {0};
  for (struct wire_field f; wire_next(&device, &f) == WIRE_FIELD;) {
    if (f.tag == DeviceStepStats_device) name = f;
    if (f.tag == DeviceStepStats_node_stats) vec_push(&spans, read_span(wire_inside(&f)));
  }
  if (events->n) text_adds(events, ",\n");
  text_addf(events, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":", pid);
  put_quoted(events, name.data, name.data ? name.size : 0);
  text_adds(events, "}}");
  if (spans.n) qsort(spans.at, spans.n, sizeof *spans.at, by_start);
  for (size_t i = 0; i < spans.n; i++) {
    const struct span *s = &spans.at[i];
    size_t lane = 0, type_n;
    const char *type;
    while (lane < lanes.n && lanes.at[lane] > s->start) lane++;
    if (lane == lanes.n) vec_push(&lanes, 0);
    lanes.at[lane] = MAX(s->end, s->start + 1);
    type_of(s, &type, &type_n);
    text_addf(events,
              ",\n{\"ph\":\"X\",\"cat\":\"Op\",\"pid\":%d,\"tid\":%zu,\"ts\":%" PRId64 ",\"dur\":%" PRId64 ",\"name\":",
              pid, lane, s->start, s->end - s->start);
    put_quoted(events, type, type_n);
    text_adds(events, ",\"args\":{\"name\":");
    put_quoted(events, s->name, s->name_n);
    text_adds(events, ",\"op\":");
    put_quoted(events, type, type_n);
    text_adds(events, "}}");
  }
  vec_release(&spans);
  vec_release(&lanes);
}

shoal_status timeline_json(const void *metadata, size_t size, struct text *out) {
  struct text events = {0};
  struct wire w = wire_from(metadata, size);
  enum wire_step step;
  int pid = 0;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag != RunMetadata_step_stats) continue;
    struct wire stats = wire_inside(&f);
    for (struct wire_field d; wire_next(&stats, &d) == WIRE_FIELD;)
      if (d.tag == StepStats_dev_stats) put_device(&events, pid++, wire_inside(&d));
  }
  shoal_status s = step == WIRE_BROKEN ? STATUS(SHOAL_DATA_LOSS, "the run metadata does not parse") : NULL;
  if (!s) text_addf(out, "{\"traceEvents\":[\n%s\n]}\n", text_cstr(&events));
  text_release(&events);
  return s;
}
