/* Plans that wait: their values come in any order and on any thread, one of them may be dead, or fail, or never come.
 */
#include "unit.h"

#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include <shoal/shoal.h>

#include "device/device.h"
#include "runtime/plan.h"
#include "runtime/plan_internal.h"

enum { CHAIN = 20, ROUNDS = 200 };

struct setup {
  struct pool *inter, *intra;
  struct device *device;
  struct resource_mgr *resources;
  struct plan *plan;
};

static void add_edge(struct text *t, const char *op, const char *name, const char *in) {
  text_addf(t, "node { name: \"%s\" op: \"%s\" ", name, op);
  if (in) text_addf(t, "input: \"%s\" ", in);
  text_addf(t, "attr { key: \"%s\" value { type: DT_FLOAT } } ", in ? "T" : "tensor_type");
  text_addf(t, "attr { key: \"tensor_name\" value { s: \"%s\" } } ", name);
  for (int i = 0; i < 2; i++) text_addf(t, "attr { key: \"%s_device\" value { s: \"d\" } } ", i ? "send" : "recv");
  text_adds(t, "attr { key: \"send_device_incarnation\" value { i: 1 } } }\n");
}

static void add_node(struct text *t, const char *op, const char *name, const char *inputs) {
  text_addf(t, "node { name: \"%s\" op: \"%s\" %s attr { key: \"T\" value { type: DT_FLOAT } } }\n", name, op, inputs);
}

static void add_ret(struct text *t, int i, const char *in) {
  text_addf(t, "node { name: \"r%d\" op: \"_Retval\" input: \"%s\" attr { key: \"index\" value { i: %d } } ", i, in, i);
  text_adds(t, "attr { key: \"T\" value { type: DT_FLOAT } } }\n");
}

static void set_up(struct setup *s, struct text *def) {
  s->inter = pool_new(2, "inter");
  s->intra = pool_new(1, "intra");
  ASSERT_OK(device_new("CPU", "/job:a/replica:0/task:0", 0, s->intra, &s->device));
  s->resources = resource_mgr_new(NULL);
  struct shoal_graph *g = graph_new();
  ASSERT_OK(shoal_graph_import_text(g, text_cstr(def), def->n, NULL));
  ASSERT_OK(plan_compile(g, &(struct plan_options){.device = s->device, .resources = s->resources}, &s->plan));
  graph_free(g);
  text_release(def);
}

static void take_down(struct setup *s) {
  plan_unref(s->plan);
  resource_mgr_close(s->resources);
  device_free(s->device);
  pool_free(s->inter);
  pool_free(s->intra);
}

/* ---- a step ---- */

struct run {
  struct step step;
  struct cancel cancel;
  struct tensor rets[3];
  pthread_mutex_t lock;
  pthread_cond_t over;
  bool is_over;
  shoal_status status;
};

static void run_done(void *arg, shoal_status s) {
  struct run *r = arg;
  pthread_mutex_lock(&r->lock);
  r->is_over = true;
  r->status = s;
  pthread_cond_signal(&r->over);
  pthread_mutex_unlock(&r->lock);
}

static void begin(struct run *r, struct setup *s) {
  *r = (struct run){.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};
  cancel_init(&r->cancel);
  r->step = (struct step){.cancel = &r->cancel,
                          .rendezvous = rendezvous_local_new(),
                          .inter = s->inter,
                          .deadline = DEADLINE_NEVER,
                          .session = "",
                          .rets = r->rets,
                          .n_rets = 3};
  plan_run(s->plan, &r->step, run_done, r);
}

static shoal_status end(struct run *r) {
  pthread_mutex_lock(&r->lock);
  while (!r->is_over) pthread_cond_wait(&r->over, &r->lock);
  pthread_mutex_unlock(&r->lock);
  rendezvous_unref(r->step.rendezvous);
  cancel_release(&r->cancel);
  return r->status;
}

static void release(struct run *r) {
  for (int i = 0; i < 3; i++) tensor_release(&r->rets[i]);
}

static void send(struct run *r, const char *name, float value, bool is_dead) {
  char *key = rendezvous_key_make("d", 1, "d", name, 0, 0);
  struct tensor t = tensor_none();
  if (!is_dead) {
    ASSERT_OK(tensor_new(&t, SHOAL_FLOAT32, &(struct shape){.rank = 1, .dims = {4}}));
    for (int i = 0; i < 4; i++) ((float *)t.data)[i] = value;
  }
  ASSERT_OK(rendezvous_send(r->step.rendezvous, key, rendezvous_hash(key), &t, is_dead));
  free(key);
}

static float at(const struct run *r, int i) { return ((const float *)r->rets[i].data)[0]; }

/* ---- values in any order ---- */

/* A long chain on a, one on b, and both together: a and b are read by several segments, whoever comes last may take
 * their memory. */
static void build(struct text *def) {
  char name[32], in[96];
  add_edge(def, "_Recv", "a", NULL);
  add_edge(def, "_Recv", "b", NULL);
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < CHAIN; i++) {
      snprintf(name, sizeof name, "%c%d", 'p' + k, i);
      if (i) snprintf(in, sizeof in, "input: \"%c%d\" input: \"%c\"", 'p' + k, i - 1, 'a' + k);
      else snprintf(in, sizeof in, "input: \"%c\" input: \"%c\"", 'a' + k, 'a' + k);
      add_node(def, "AddV2", name, in);
    }
    add_ret(def, k, name);
  }
  snprintf(in, sizeof in, "input: \"p%d\" input: \"q%d\"", CHAIN - 1, CHAIN - 1);
  add_node(def, "Mul", "both", in);
  add_node(def, "Sub", "less", "input: \"both\" input: \"a\"");
  add_node(def, "Sub", "least", "input: \"less\" input: \"b\"");
  add_ret(def, 2, "least");
}

struct sending {
  struct run *run;
  const char *name;
  float value;
  int wait_us;
};

static void *send_later(void *arg) {
  struct sending *s = arg;
  if (s->wait_us) usleep((useconds_t)s->wait_us);
  send(s->run, s->name, s->value, false);
  return NULL;
}

static void check(const struct run *r, float a, float b) {
  float x = (CHAIN + 1) * a, y = (CHAIN + 1) * b;
  assert_float_equal(at(r, 0), x, 0);
  assert_float_equal(at(r, 1), y, 0);
  assert_float_equal(at(r, 2), x * y - a - b, 0);
}

static void in_any_order(void **state) {
  struct text def = {0};
  struct setup s;
  build(&def);
  set_up(&s, &def);
  assert_true(s.plan->straight && !plan_is_straight(s.plan));
  assert_int_equal(s.plan->n_calls, 2);
  assert_int_equal(s.plan->n_segments, 5); /* a, b, what follows from each alone, and from both */
  for (int i = 0; i < ROUNDS; i++) {
    struct run r;
    begin(&r, &s);
    float a = (float)(i % 7), b = (float)(i % 5);
    struct sending one = {&r, "a", a, i % 3 == 0 ? 100 : 0}, two = {&r, "b", b, i % 3 == 1 ? 100 : 0};
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, send_later, &one);
    pthread_create(&threads[1], NULL, send_later, &two);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
    ASSERT_OK(end(&r));
    check(&r, a, b);
    release(&r);
  }
  take_down(&s);
}

/* Two steps of one plan at once. */
static void side_by_side(void **state) {
  struct text def = {0};
  struct setup s;
  build(&def);
  set_up(&s, &def);
  struct run one, two;
  begin(&one, &s);
  begin(&two, &s);
  send(&two, "b", 2, false);
  send(&one, "a", 3, false);
  send(&two, "a", 4, false);
  send(&one, "b", 5, false);
  ASSERT_OK(end(&one));
  ASSERT_OK(end(&two));
  check(&one, 3, 5);
  check(&two, 4, 2);
  release(&one);
  release(&two);
  take_down(&s);
}

/* ---- dead values, and errors ---- */

static void dead_values(void **state) {
  struct text def = {0};
  struct setup s;
  build(&def);
  add_edge(&def, "_Send", "out", "p3");
  set_up(&s, &def);
  for (int i = 0; i < 4; i++) {
    struct run r;
    begin(&r, &s);
    bool dead = i % 2 == 0;
    send(&r, "b", 2, false);
    send(&r, "a", 1, dead);
    ASSERT_OK(end(&r));
    assert_true(tensor_valid(&r.rets[0]) == !dead && tensor_valid(&r.rets[2]) == !dead);
    assert_float_equal(at(&r, 1), 2 * (CHAIN + 1), 0);
    if (!dead) check(&r, 1, 2);
    release(&r);
  }
  take_down(&s);
}

/* What ended a step does not stay: the next one is well. */
static void errors_end_what_waits(void **state) {
  struct text def = {0};
  struct setup s;
  build(&def);
  text_adds(&def,
            "node { name: \"wrong\" op: \"CheckNumerics\" input: \"a\" attr { key: \"T\" value { type: DT_FLOAT } } "
            "attr { key: \"message\" value { s: \"not a number\" } } }\n");
  set_up(&s, &def);
  for (int i = 0; i < 3; i++) {
    struct run r;
    begin(&r, &s);
    if (i == 1) cancel_start(&r.cancel, STATUS(SHOAL_ABORTED, "nobody wants it"));
    else send(&r, "a", NAN, false); /* b never comes */
    if (i == 1) ASSERT_FAILS(end(&r), SHOAL_CANCELLED, "RecvAsync is cancelled");
    else ASSERT_FAILS(end(&r), SHOAL_INVALID_ARGUMENT, "not a number");
    release(&r);
    begin(&r, &s);
    send(&r, "b", 6, false);
    send(&r, "a", 5, false);
    ASSERT_OK(end(&r));
    check(&r, 5, 6);
    release(&r);
  }
  take_down(&s);
}

/* ---- control edges through constants ---- */

#define FLOAT(key) "attr { key: '" key "' value { type: DT_FLOAT } } "
#define VALUE(v) "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: " v " } } } "
#define TYPES(key) "attr { key: '" key "' value { list { type: DT_FLOAT } } } "

/* TensorFlow ties an op to what it shall wait for by its constants alone, where those wait: the update waits for a
 * queue that is never filled. */
static void what_a_constant_waits_for_its_readers_do(void **state) {
  static const char text[] =
      "node { name: 'q' op: 'FIFOQueueV2' " TYPES("component_types") "} "
      "node { name: 'get' op: 'QueueDequeueV2' input: 'q' " TYPES("component_types") "} "
      "node { name: 'v' op: 'VarHandleOp' " FLOAT("dtype") "attr { key: 'shape' value { shape { } } } } "
      "node { name: 'zero' op: 'Const' " FLOAT("dtype") VALUE("0") "} "
      "node { name: 'one' op: 'Const' input: '^get' " FLOAT("dtype") VALUE("1") "} "
      "node { name: 'init' op: 'AssignVariableOp' input: 'v' input: 'zero' " FLOAT("dtype") "} "
      "node { name: 'add' op: 'AssignAddVariableOp' input: 'v' input: 'one' " FLOAT("dtype") "} "
      "node { name: 'read' op: 'ReadVariableOp' input: 'v' " FLOAT("dtype") "} ";
  shoal_graph *g = shoal_graph_new();
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, (const char *[]){"init"}, 1, NULL));
  ASSERT_FAILS(shoal_session_run(s, &(shoal_run_options){.timeout_ms = 100}, NULL, NULL, 0, NULL, NULL, 0,
                                 (const char *[]){"add"}, 1, NULL),
               SHOAL_DEADLINE_EXCEEDED, "");
  shoal_tensor *v;
  ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, (const char *[]){"read:0"}, &v, 1, NULL, 0, NULL));
  assert_true(*(const float *)shoal_tensor_data(v) == 0);
  shoal_tensor_unref(v);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* ---- stages ---- */

enum { LARGE = 1 << 15 };

static void add_collective(struct text *t, const char *name, const char *in) {
  text_addf(t, "node { name: '%s' op: 'CollectiveReduce' input: '%s' " FLOAT("T"), name, in);
  text_adds(t, "attr { key: 'group_size' value { i: 1 } } attr { key: 'group_key' value { i: 1 } } ");
  text_addf(t, "attr { key: 'instance_key' value { i: %d } } ", name[1]);
  text_adds(t, "attr { key: 'merge_op' value { s: 'Add' } } attr { key: 'final_op' value { s: 'Id' } } ");
  text_adds(t, "attr { key: 'subdiv_offsets' value { list { i: 0 } } } }\n");
}

static int segment_of(const struct plan *p, const char *name) {
  for (int s = 0; s < p->n_segments; s++)
    for (int i = 0; i < p->segments[s].n; i++)
      if (!strcmp(p->nodes[p->segments[s].first + i].kernel->name, name)) return s;
  return -1;
}

static bool waits_for(const struct plan *p, int segment, int other) {
  for (int i = 0; i < p->segments[other].n_next; i++)
    if (p->nexts[p->segments[other].first_next + i] == segment) return true;
  return false;
}

/* A chain of four, of whose links the first and the third are to be sums; beside it what neither of them needs. */
static void build_stages(struct text *def, int n) {
  text_addf(def,
            "node { name: 'c' op: 'Const' " FLOAT("dtype")
            "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: %d } } float_val: 3 } } } }",
            n);
  add_node(def, "Neg", "n0", "input: \"c\"");
  add_node(def, "Neg", "n1", "input: \"n0\"");
  add_node(def, "Neg", "n2", "input: \"n1\"");
  add_node(def, "Neg", "n3", "input: \"n2\"");
  add_node(def, "Neg", "other", "input: \"c\"");
  add_collective(def, "x2", "n2");
  add_collective(def, "x0", "n0");
}

static void collectives_begin_as_soon_as_they_can(void **state) {
  struct text def = {0};
  struct setup s;
  build_stages(&def, LARGE);
  set_up(&s, &def);
  struct plan *p = s.plan;
  int first = segment_of(p, "n0"), second = segment_of(p, "n1"), third = segment_of(p, "n3");
  assert_int_equal(p->n_segments, 5);
  assert_true(first != second && second != third && first != third);
  assert_int_equal(segment_of(p, "n2"), second);
  assert_int_equal(segment_of(p, "other"), third); /* nobody waits for it */
  int x0 = segment_of(p, "x0"), x2 = segment_of(p, "x2");
  assert_true(waits_for(p, x0, first) && !waits_for(p, x0, second) && waits_for(p, x2, second));
  assert_true(waits_for(p, second, first) && waits_for(p, third, second));
  assert_true(!waits_for(p, second, x0) && !waits_for(p, third, x0) && !waits_for(p, third, x2));
  take_down(&s);
  build_stages(&def, LARGE / 4); /* small ones are begun together */
  set_up(&s, &def);
  assert_int_equal(s.plan->n_segments, 3);
  take_down(&s);
}

/* ---- chains of those who wait ---- */

enum { LINKS = 4000, SMALL_STACK = 512 << 10 };

static void *put_first(void *s) {
  shoal_status err = shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, (const char *[]){"put0"}, 1, NULL);
  return err;
}

struct chain {
  shoal_session *s;
  const char *target;
  shoal_status err;
};

static void *run_chain(void *arg) {
  struct chain *c = arg;
  c->err = shoal_session_run(c->s, NULL, NULL, NULL, 0, NULL, NULL, 0, &c->target, 1, NULL);
  return NULL;
}

/* Thousands of queues, each of which fills the next: whoever puts something into the first one serves them all, and
 * not each upon the stack of the one before. loop: in a plan with v1 control flow. */
static void chain_of_queues(bool loop) {
  struct text g = {0};
  text_adds(&g, "node { name: 'one' op: 'Const' " FLOAT("dtype") VALUE("1") "} ");
  for (int i = 0; i <= LINKS; i++)
    text_addf(&g, "node { name: 'q%d' op: 'FIFOQueueV2' " TYPES("component_types") "} ", i);
  text_adds(&g, "node { name: 'put0' op: 'QueueEnqueueV2' input: 'q0' input: 'one' " TYPES("Tcomponents") "} ");
  for (int i = 0; i < LINKS; i++) {
    text_addf(&g, "node { name: 'get%d' op: 'QueueDequeueV2' input: 'q%d' " TYPES("component_types") "} ", i, i);
    text_addf(&g, "node { name: 'put%d' op: 'QueueEnqueueV2' input: 'q%d' input: 'get%d' " TYPES("Tcomponents") "} ",
              i + 1, i + 1, i);
  }
  text_adds(&g, "node { name: 'all' op: 'NoOp' ");
  if (loop) text_adds(&g, "input: '^merge' ");
  for (int i = 1; i <= LINKS; i++) text_addf(&g, "input: '^put%d' ", i);
  text_adds(&g, "} node { name: 'merge' op: 'Merge' input: 'one' " FLOAT("T") "attr { key: 'N' value { i: 1 } } } ");
  shoal_graph *graph = shoal_graph_new();
  ASSERT_OK(shoal_graph_import_text(graph, text_cstr(&g), g.n, NULL));
  text_release(&g);
  struct chain c = {.target = "all"};
  ASSERT_OK(shoal_session_open(graph, NULL, &c.s));
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, SMALL_STACK);
  for (int i = 0; i < 2; i++) { /* the second time all is compiled */
    pthread_t chain, first;
    void *err;
    assert_int_equal(pthread_create(&chain, NULL, run_chain, &c), 0);
    usleep(200000); /* they wait by then; if not, there is less to see */
    assert_int_equal(pthread_create(&first, &small, put_first, c.s), 0);
    pthread_join(first, &err);
    ASSERT_OK((shoal_status)err);
    pthread_join(chain, NULL);
    ASSERT_OK(c.err);
  }
  pthread_attr_destroy(&small);
  ASSERT_OK(shoal_session_close(c.s));
  shoal_graph_free(graph);
}

static void a_chain_that_waits(void **state) { chain_of_queues(false); }

static void a_chain_that_waits_in_a_dataflow(void **state) { chain_of_queues(true); }

RUN_TESTS(cmocka_unit_test(a_chain_that_waits), cmocka_unit_test(a_chain_that_waits_in_a_dataflow),
          cmocka_unit_test(in_any_order), cmocka_unit_test(side_by_side), cmocka_unit_test(dead_values),
          cmocka_unit_test(errors_end_what_waits), cmocka_unit_test(collectives_begin_as_soon_as_they_can),
          cmocka_unit_test(what_a_constant_waits_for_its_readers_do))
