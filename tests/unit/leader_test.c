/* The leader of collectives: groups and instances are told to all when all are there, in order of rank; what does not
 * fit is told to all, too, and forgotten; who leaves is not waited for. */
#include <time.h>

#include "unit.h"

#include "base/clock.h"
#include "base/mem.h"
#include "collective/choose.h"
#include "collective/group.h"
#include "collective/leader.h"
#include "proto/step_stats.wire.h"

struct asked {
  struct leader_wait wait;
  bool answered;
  int size;
  shoal_status status;
  struct collective_group *group;
  int source;
};

static void answer(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source) {
  struct asked *a = (struct asked *)w;
  assert_false(a->answered);
  a->answered = true;
  a->status = s;
  a->source = source;
  if (!s && group) ASSERT_OK(collective_group_read(group->bytes.at, group->bytes.n, a->size, &a->group));
}

/* All are told the same, and nobody has a copy. */
static struct leader_answer *first_told;
static int told;

static void same_bytes(struct leader_wait *w, shoal_status s, struct leader_answer *group, int source) {
  ASSERT_OK(s);
  if (!told++) first_told = leader_answer_ref(group);
  assert_ptr_equal(first_told, group);
}

static void forget(struct asked *a) {
  shoal_status_free(a->status);
  collective_group_unref(a->group);
  *a = (struct asked){0};
}

static const char *device_of(int task, int ordinal) {
  static char name[4][80];
  static int turn;
  char *at = name[turn++ % 4];
  snprintf(at, sizeof *name, "/job:worker/replica:0/task:%d/device:CPU:%d", task, ordinal);
  return at;
}

static uint64_t asker;

static void join(struct leader *l, struct asked *a, int key, int size, int task, uint64_t incarnation) {
  struct text t = {0};
  const char *device = device_of(task, 0);
  put_DeviceAttributes_name(&t, device);
  put_DeviceAttributes_incarnation(&t, incarnation);
  if (incarnation != 77) put_DeviceAttributes_physical_device_desc(&t, COLLECTIVE_OURS);
  *a = (struct asked){.wait.done = answer, .size = size};
  leader_ask_group(l, &(struct group_question){asker, key, size, "CPU", device, wire_from(t.at, t.n)}, &a->wait);
  text_release(&t);
}

static struct instance_question question(int task, bool is_source) {
  return (struct instance_question){.asker = asker,
                                    .group_key = 1,
                                    .group_size = 2,
                                    .key = 5,
                                    .kind = COLLECTIVE_BROADCAST,
                                    .dtype = SHOAL_FLOAT32,
                                    .device = device_of(task, 0),
                                    .is_source = is_source};
}

static void ask(struct leader *l, struct asked *a, struct instance_question q) {
  *a = (struct asked){.wait.done = answer};
  leader_ask_instance(l, &q, &a->wait);
}

static void all_are_told_in_order_of_rank(void **state) {
  struct leader *l = leader_new();
  struct asked a[3];
  join(l, &a[0], 1, 3, 10, 5);
  join(l, &a[1], 1, 3, 2, 6);
  assert_false(a[0].answered || a[1].answered);
  join(l, &a[2], 1, 3, 0, 7);
  for (int i = 0; i < 3; i++) {
    assert_true(a[i].answered);
    ASSERT_OK(a[i].status);
    assert_true(a[i].group->all_ours);
    assert_string_equal(a[i].group->places[1].device, device_of(2, 0));
    assert_int_equal(collective_group_rank(a[i].group, device_of(10, 0)), 2); /* by number, not by letter */
    assert_int_equal(a[i].group->tasks[2], 2);
    forget(&a[i]);
  }
  /* Who asks again is answered; who was restarted is known by its new incarnation. */
  join(l, &a[0], 1, 3, 2, 77);
  assert_true(a[0].answered);
  assert_int_equal(a[0].group->places[1].incarnation, 77);
  assert_false(a[0].group->all_ours);
  forget(&a[0]);
  leader_free(l);
}

static void who_is_lost_is_waited_for(void **state) {
  struct leader *l = leader_new();
  struct asked a[2], other[2];
  for (int i = 0; i < 2; i++) {
    join(l, &a[i], 1, 2, i, 1);
    join(l, &other[i], 2, 2, 2 + i, 1);
  }
  for (int i = 0; i < 2; i++) forget(&a[i]), forget(&other[i]);
  leader_lose_task(l, "/job:worker/replica:0/task:1", NULL);
  join(l, &other[0], 2, 2, 2, 1);
  assert_true(other[0].answered); /* another group is as it was */
  forget(&other[0]);
  join(l, &a[0], 1, 2, 0, 1);
  assert_false(a[0].answered);
  join(l, &a[1], 1, 2, 1, 77);
  assert_true(a[0].answered && a[1].answered);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(a[i].group->places[1].incarnation, 77);
    forget(&a[i]);
  }
  leader_free(l);
}

static void what_does_not_fit_is_told_to_all(void **state) {
  struct leader *l = leader_new();
  struct asked a, b;
  join(l, &a, 1, 2, 0, 1);
  join(l, &b, 1, 3, 1, 1);
  assert_true(a.answered && b.answered);
  ASSERT_FAILS(a.status, SHOAL_INTERNAL, "group with size 3, but that group has size 2 (group_key=1)");
  ASSERT_FAILS(b.status, SHOAL_INTERNAL, "group with size 3");
  uint64_t heard[4];
  size_t n;
  assert_int_equal(leader_left(l, heard, 4, &n), 1); /* of the three that one says there are */
  /* and works again */
  join(l, &a, 1, 2, 0, 1);
  join(l, &b, 1, 2, 1, 1);
  assert_true(a.answered && b.answered && !a.status && !b.status);
  forget(&a);
  forget(&b);
  join(l, &a, 1, 2, 2, 1);
  ASSERT_FAILS(a.status, SHOAL_INTERNAL, "already full");
  for (int key = 0; key < 2; key++) {
    join(l, &a, key, key ? -1 : 1 << 20, 2, 1);
    ASSERT_FAILS(a.status, SHOAL_INVALID_ARGUMENT, "1 to 65536 members");
  }
  leader_free(l);
}

static void instances(void **state) {
  struct leader *l = leader_new();
  struct asked a, b;
  ask(l, &a, question(0, true));
  ASSERT_FAILS(a.status, SHOAL_ABORTED, "has to join it");
  for (int task = 0; task < 2; task++) join(l, task ? &b : &a, 1, 2, task, 1);
  forget(&a);
  forget(&b);
  ask(l, &a, question(1, true));
  assert_false(a.answered);
  ask(l, &b, question(0, false));
  assert_true(a.answered && b.answered && !a.status && !b.status);
  assert_int_equal(a.source, 1);
  assert_int_equal(b.source, 1);
  ask(l, &a, question(0, false));
  assert_true(a.answered && !a.status && a.source == 1);
  struct instance_question q = question(0, false);
  q.dtype = SHOAL_INT32;
  ask(l, &a, q);
  ASSERT_FAILS(a.status, SHOAL_INTERNAL, "Collective instance 5 expected type 1 and data_type 1");
  q.key = 6;
  ask(l, &a, q);
  q.device = device_of(1, 0);
  q.shape = (struct shape){.rank = 1, .dims = {3}};
  ask(l, &b, q);
  ASSERT_FAILS(a.status, SHOAL_INVALID_ARGUMENT, "Shape mismatch in the collective instance 6");
  ASSERT_FAILS(b.status, SHOAL_INVALID_ARGUMENT, "Shape mismatch");
  leader_free(l);
}

/* Of a group that is no more, by a member of another program's, which is complete by itself. */
static void who_waits_is_told_that_the_group_is_another(void **state) {
  struct leader *l = leader_new();
  struct asked a, b;
  for (int task = 0; task < 2; task++) join(l, task ? &b : &a, 1, 2, task, 1);
  forget(&a);
  forget(&b);
  ask(l, &a, question(0, true));
  nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL); /* then it is settled */
  join(l, &b, 1, 1, 2, 1);
  forget(&b);
  struct instance_question q = question(2, true);
  q.group_size = 1;
  ask(l, &b, q);
  assert_true(b.answered && !b.status && b.source == 0);
  assert_true(a.answered);
  ASSERT_FAILS(a.status, SHOAL_ABORTED, "group 1 has changed");
  leader_free(l);
}

/* Who waits for a task that was lost, or has left, is told why; after the second the group is as it was. */
static void who_waits_for_one_that_is_gone_is_told(void **state) {
  for (int left = 0; left < 2; left++) {
    struct leader *l = leader_new();
    struct asked a, b;
    for (int task = 0; task < 2; task++) join(l, task ? &b : &a, 1, 2, task, 1);
    forget(&a);
    forget(&b);
    ask(l, &a, question(0, true));
    assert_false(a.answered);
    shoal_status why = STATUS(SHOAL_UNAVAILABLE, "it is gone");
    (left ? leader_task_left : leader_lose_task)(l, "/job:worker/replica:0/task:2", why);
    assert_false(a.answered); /* it is in another group, if any */
    (left ? leader_task_left : leader_lose_task)(l, "/job:worker/replica:0/task:1", why);
    shoal_status_free(why);
    assert_true(a.answered);
    ASSERT_FAILS(a.status, SHOAL_UNAVAILABLE, "it is gone");
    join(l, &a, 1, 2, 0, 1);
    assert_true(a.answered == (left == 1));
    if (a.answered) forget(&a);
    else assert_true(leader_leave(l, &a.wait, NULL));
    if (!left) {
      leader_free(l);
      continue;
    }
    ask(l, &a, question(0, true)); /* nor does it come to what is begun later */
    assert_true(a.answered);
    ASSERT_FAILS(a.status, SHOAL_UNAVAILABLE, "it is gone");
    join(l, &b, 1, 2, 1, 1); /* until it is here again */
    forget(&b);
    ask(l, &a, question(0, true));
    assert_false(a.answered);
    ask(l, &b, question(1, false));
    assert_true(a.answered && b.answered && !a.status && !b.status);
    leader_free(l);
  }
}

/* Who comes in another step takes the place of those who wait, who are told; one that is a little behind is told
 * itself. */
static void members_are_in_one_step(void **state) {
  struct leader *l = leader_new();
  struct asked a, b;
  for (int task = 0; task < 2; task++) join(l, task ? &b : &a, 1, 2, task, 1);
  forget(&a);
  forget(&b);
  static const struct {
    int64_t first, second;
    bool tells_first;
  } cases[] = {{7, 8, true}, {8, 7, false}, {7, 290981, true}, {290981, 7, true}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct instance_question q[2] = {question(0, true), question(1, false)};
    q[0].step = cases[i].first;
    q[1].step = cases[i].second;
    ask(l, &a, q[0]);
    ask(l, &b, q[1]);
    struct asked *ended = cases[i].tells_first ? &a : &b, *waits = cases[i].tells_first ? &b : &a;
    assert_true(ended->answered && !waits->answered);
    char said[128];
    snprintf(said, sizeof said, "task:1/device:CPU:0 comes to instance 5 of collective group 1 in step %lld, where ",
             (long long)cases[i].second);
    ASSERT_FAILS(ended->status, SHOAL_ABORTED, said);
    assert_true(leader_leave(l, &waits->wait, NULL));
  }
  struct instance_question q[2] = {question(0, true), question(1, false)};
  q[0].step = 9; /* TensorFlow's task does not say */
  ask(l, &a, q[0]);
  ask(l, &b, q[1]);
  assert_true(a.answered && b.answered && !a.status && !b.status);
  q[1].step = 10; /* once they have met in it the number is anybody's */
  ask(l, &b, q[1]);
  assert_true(b.answered && !b.status);
  leader_free(l);
}

/* Members that want to communicate in other ways are told, all of them, and the instance is as new; who does not say
 * how is no reason. Later steps may have another way, if all have. */
static void hints_are_the_same(void **state) {
  struct leader *l = leader_new();
  struct asked a, b;
  for (int task = 0; task < 2; task++) join(l, task ? &b : &a, 1, 2, task, 1);
  forget(&a);
  forget(&b);
  const int cheapest = collective_hint(-1, false), ring = collective_hint(ALGORITHM_RING, false);
  struct instance_question q[2] = {question(0, true), question(1, false)};
  q[0].hint = cheapest;
  q[1].hint = ring;
  for (int i = 0; i < 2; i++) ask(l, i ? &b : &a, q[i]);
  static const char said[] =
      "instance 5 of group 1 expected communication_hint \"auto\" but got \"shoal:ring\" from "
      "/job:worker/replica:0/task:1";
  ASSERT_FAILS(a.status, SHOAL_INVALID_ARGUMENT, said);
  ASSERT_FAILS(b.status, SHOAL_INVALID_ARGUMENT, said);
  q[1].hint = 0;
  for (int i = 0; i < 2; i++) ask(l, i ? &b : &a, q[i]);
  assert_true(a.answered && b.answered && !a.status && !b.status);
  q[1].hint = collective_hint(ALGORITHM_DIRECT, true);
  ask(l, &b, q[1]);
  assert_true(b.answered && !b.status);
  leader_free(l);
}

static struct instance_question ordered(int task, int key, const struct order_held *holds) {
  struct instance_question q = question(task, false);
  q.group_size = 3;
  q.kind = COLLECTIVE_REDUCE;
  q.key = key;
  q.step = 7;
  if (holds) q.holds = *holds;
  return q;
}

/* Three that each wait for what another comes to later are told by the last of them; where one holds nothing back, is
 * in another step, or has left, nothing is said, and all can meet. */
static void orders_that_never_end_are_told(void **state) {
  struct leader *l = leader_new();
  struct asked a[3];
  for (int task = 0; task < 3; task++) join(l, &a[task], 1, 3, task, 1);
  for (int task = 0; task < 3; task++) forget(&a[task]);
  int64_t keys[4];
  struct order_held holds[3]; /* task i waits in 11 + i and comes to 11 + (i + 1) % 3 after it */
  for (int i = 0; i < 3; i++) {
    keys[i] = orders_key(1, 11 + (i + 1) % 3);
    holds[i] = (struct order_held){&keys[i], 1};
  }
  for (int turn = 0; turn < 2; turn++) {
    for (int task = 0; task < 2; task++) {
      ask(l, &a[task], ordered(task, 11 + task, &holds[task]));
      assert_false(a[task].answered);
    }
    ask(l, &a[2], ordered(2, 13, &holds[2]));
    for (int task = 0; task < 3; task++) {
      char said[256];
      int next = (task + 1) % 3;
      snprintf(said, sizeof said,
               "%s waits in instance %d of collective group 1 for %s, which comes there only after "
               "instance %d of collective group 1",
               device_of(next, 0), 11 + next, device_of(task, 0), 11 + task);
      assert_true(a[task].answered);
      assert_non_null(strstr(shoal_status_message(a[task].status), "in other orders by their members"));
      ASSERT_FAILS(a[task].status, SHOAL_INVALID_ARGUMENT, said);
    }
  }
  for (int way = 0; way < 3; way++) {
    struct instance_question q[3];
    for (int task = 0; task < 3; task++)
      q[task] = ordered(task, 11 + task, way == 0 && task == 1 ? NULL : &holds[task]);
    if (way == 1) q[1].step = 8;
    ask(l, &a[0], q[0]);
    ask(l, &a[1], q[1]);
    if (way == 2) {
      struct text why = {0};
      assert_true(leader_leave(l, &a[1].wait, &why));
      text_release(&why);
    }
    ask(l, &a[2], q[2]);
    for (int task = 0; task < 3; task++) {
      if (way == 2 && task == 1) continue;
      assert_false(a[task].answered);
      assert_true(leader_leave(l, &a[task].wait, NULL));
    }
  }
  keys[3] = orders_key(1, 9); /* what is held back, and what one waits in oneself, is no circle */
  for (int task = 0; task < 3; task++) ask(l, &a[task], ordered(task, 8, &(struct order_held){&keys[3], 1}));
  for (int task = 0; task < 3; task++) assert_true(a[task].answered && !a[task].status);
  for (int task = 0; task < 3; task++) ask(l, &a[task], ordered(task, 9, NULL));
  for (int task = 0; task < 3; task++) assert_true(a[task].answered && !a[task].status);
  leader_free(l);
}

/* What waits is found, with who has not come as far as that is known, and can be lost; who was started anew and joins
 * again ends the waits for the one before. */
static void who_is_missed_is_found(void **state) {
  struct leader *l = leader_new();
  struct leader_gaps gaps = {0};
  struct asked a, b;
  assert_false(leader_gaps_find(l, clock_ns(), &gaps));
  join(l, &a, 1, 2, 0, 1);
  assert_true(leader_gaps_find(l, 0, &gaps) && !gaps.n);
  assert_true(leader_gaps_find(l, clock_ns(), &gaps) && gaps.n == 1);
  assert_true(gaps.at[0].is_group && gaps.at[0].came == 1 && gaps.at[0].size == 2 && !gaps.at[0].say);
  assert_true(strmap_has(&gaps.at[0].tasks, "/job:worker/replica:0/task:0") && gaps.at[0].tasks.n == 1);
  join(l, &b, 1, 2, 1, 3);
  shoal_status why = STATUS(SHOAL_UNAVAILABLE, "it is gone");
  leader_gap_lose(l, &gaps.at[0], why); /* which is none any more */
  leader_gaps_release(&gaps);
  forget(&a);
  forget(&b);

  for (int turn = 0; turn < 2; turn++) {
    gaps = (struct leader_gaps){0};
    ask(l, &a, question(0, true));
    assert_true(leader_gaps_find(l, clock_ns(), &gaps) && gaps.n == 1 && gaps.at[0].absent.n == 1);
    const struct leader_absent *absent = gaps.at[0].absent.at;
    assert_string_equal(absent->device, device_of(1, 0));
    assert_true(absent->incarnation == 3 && absent->rank == 1 && !gaps.at[0].is_group);
    assert_string_equal(gaps.at[0].what, "instance 5 of collective group 1");
    if (!turn) leader_gap_lose(l, &gaps.at[0], why);
    else join(l, &b, 1, 2, 1, 4);
    assert_true(a.answered);
    if (!turn) ASSERT_FAILS(a.status, SHOAL_UNAVAILABLE, "it is gone");
    else ASSERT_FAILS(a.status, SHOAL_ABORTED, "group 1 has changed");
    leader_gaps_release(&gaps);
  }
  forget(&b);
  shoal_status_free(why);
  leader_free(l);
}

/* A leader that goes tells those who have not heard of what did not fit; one that stays waits for all anew. */
static void who_comes_late_is_told(void **state) {
  struct leader *l = leader_new();
  struct asked a[3];
  uint64_t heard[4];
  size_t n;
  asker = 7;
  for (int task = 0; task < 3; task++) join(l, &a[task], 1, 3, task, 1);
  for (int task = 0; task < 3; task++) forget(&a[task]);
  struct instance_question q[3];
  for (int task = 0; task < 3; task++) {
    q[task] = question(task, false);
    q[task].group_size = 3;
    q[task].kind = COLLECTIVE_REDUCE;
    q[task].shape = (struct shape){.rank = 1, .dims = {task == 1}};
  }
  for (int stays = 1; stays >= 0; stays--) {
    for (int task = 0; task < 2; task++) ask(l, &a[task], q[task]);
    for (int task = 0; task < 2; task++) ASSERT_FAILS(a[task].status, SHOAL_INVALID_ARGUMENT, "Shape mismatch");
    assert_int_equal(leader_left(l, heard, 4, &n), 1);
    assert_true(n == 2 && heard[0] == 7 && heard[1] == 7);
    if (!stays) break;
    ask(l, &a[2], q[2]);
    assert_false(a[2].answered);
    ask(l, &a[0], q[0]);
    q[1].shape = q[0].shape;
    ask(l, &a[1], q[1]);
    for (int task = 0; task < 3; task++) assert_true(a[task].answered && !a[task].status);
    assert_int_equal(leader_left(l, heard, 4, &n), 0); /* all have met in it */
    assert_int_equal(n, 0);
    for (int task = 0; task < 3; task++) q[task].key = 8, q[task].shape.dims[0] = task == 1;
  }
  q[1].key = 9; /* one that waits already, and one that comes after */
  ask(l, &a[2], q[2]);
  assert_false(a[2].answered);
  leader_last_words(l);
  ASSERT_FAILS(a[2].status, SHOAL_INVALID_ARGUMENT, "Shape mismatch in the collective instance 8");
  assert_int_equal(leader_left(l, heard, 4, &n), 0);
  ask(l, &a[2], q[2]);
  ASSERT_FAILS(a[2].status, SHOAL_INVALID_ARGUMENT, "Shape mismatch in the collective instance 8");
  ask(l, &a[1], q[1]);
  assert_false(a[1].answered); /* another is as it was */
  assert_true(leader_leave(l, &a[1].wait, NULL));
  asker = 0;
  leader_free(l);
}

static void broadcasts_have_one_source(void **state) {
  struct leader *l = leader_new();
  struct asked a, b;
  for (int task = 0; task < 2; task++) join(l, task ? &b : &a, 1, 2, task, 1);
  forget(&a);
  forget(&b);
  for (int sources = 0; sources <= 2; sources += 2) {
    ask(l, &a, question(0, sources > 0));
    ask(l, &b, question(1, sources > 0));
    const char *text = sources ? "Instance 5 already has source 0" : "Instance 5 found no source";
    ASSERT_FAILS(a.status, SHOAL_INTERNAL, text);
    ASSERT_FAILS(b.status, SHOAL_INTERNAL, text);
  }
  leader_free(l);
}

static void who_leaves_is_not_waited_for(void **state) {
  struct leader *l = leader_new();
  struct asked a, b;
  struct text why = {0};
  join(l, &a, 1, 2, 0, 1);
  assert_true(leader_leave(l, &a.wait, &why));
  assert_string_equal(text_cstr(&why), "1 of 2 members came: /job:worker/replica:0/task:0/device:CPU:0");
  text_release(&why);
  assert_false(a.answered);
  join(l, &a, 1, 2, 1, 1);
  assert_false(a.answered);
  join(l, &b, 1, 2, 2, 1);
  assert_true(a.answered && !a.status && b.answered && !b.status);
  assert_false(leader_leave(l, &a.wait, &why));
  forget(&a);
  forget(&b);
  leader_free(l);
}

static void there_is_a_bound(void **state) {
  struct leader *l = leader_new();
  static struct asked a[1024];
  struct asked b, c;
  join(l, &b, -1, 1, 0, 1);
  assert_true(b.answered && !b.status);
  forget(&b);
  for (int i = 0; i < 1024; i++) join(l, &a[i], i, 2, 0, 1); /* one complete group makes room */
  assert_false(a[1023].answered);
  join(l, &b, 5000, 2, 0, 1);
  ASSERT_FAILS(b.status, SHOAL_RESOURCE_EXHAUSTED, "1024 collective groups wait");
  join(l, &c, 0, 2, 1, 1);
  assert_true(c.answered && !c.status);
  forget(&c);
  forget(&a[0]);
  struct text why = {0};
  for (int i = 1; i < 1024; i++) assert_true(leader_leave(l, &a[i].wait, &why));
  text_release(&why);
  leader_free(l);
}

static void a_source_does_not_receive(void **state) {
  struct leader *l = leader_new();
  struct asked a, b;
  for (int task = 0; task < 2; task++) join(l, task ? &b : &a, 1, 2, task, 1);
  forget(&a);
  forget(&b);
  for (int task = 0; task < 2; task++) ask(l, task ? &b : &a, question(task, task == 0));
  assert_true(a.answered && !a.status && b.answered && !b.status && b.source == 0);
  ask(l, &a, question(0, false));
  ASSERT_FAILS(a.status, SHOAL_INTERNAL, "Instance 5 already has source 0, which now wants to receive");
  leader_free(l);
}

/* Who begins a thousand groups keeps nobody else out: its oldest go. */
static void who_has_most_makes_room(void **state) {
  struct leader *l = leader_new();
  static struct asked greedy[1023];
  struct asked old, new, b;
  asker = 1;
  join(l, &old, 5000, 1, 0, 1);
  assert_true(old.answered && !old.status);
  forget(&old);
  asker = 2;
  for (int i = 0; i < 1023; i++) join(l, &greedy[i], i, 2, 0, 1);
  asker = 3;
  join(l, &new, 5001, 2, 0, 1);
  assert_false(new.answered);
  assert_true(greedy[0].answered);
  ASSERT_FAILS(greedy[0].status, SHOAL_RESOURCE_EXHAUSTED, "1024 collective groups wait");
  asker = 2;
  join(l, &b, 5002, 2, 0, 1);
  ASSERT_FAILS(b.status, SHOAL_RESOURCE_EXHAUSTED, "1024 collective groups wait");
  asker = 1;
  join(l, &b, 5001, 2, 1, 1);
  assert_true(new.answered && !new.status &&b.answered && !b.status);
  forget(&new);
  forget(&b);
  struct text why = {0};
  for (int i = 1; i < 1023; i++) assert_true(leader_leave(l, &greedy[i].wait, &why));
  text_release(&why);
  asker = 0;
  leader_free(l);
}

static void a_member_tells_little(void **state) {
  struct leader *l = leader_new();
  struct asked a = {.wait.done = answer, .size = 1};
  char *type = mem_zalloc(101, 1);
  memset(type, 'X', 100);
  leader_ask_group(l, &(struct group_question){.size = 1, .device_type = type, .device = device_of(0, 0)}, &a.wait);
  ASSERT_FAILS(a.status, SHOAL_INVALID_ARGUMENT, "a member tells 0 bytes of its device, and 100 of its type");
  free(type);
  leader_free(l);
}

/* Thousands of members come, leave, come again with other names, and are all told by the same bytes. */
static void groups_of_thousands(void **state) {
  enum { MEMBERS = 20000 };
  struct leader *l = leader_new();
  struct asked *a = mem_zalloc(MEMBERS, sizeof *a);
  struct text why = {0};
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < MEMBERS - 1; i++) join(l, &a[i], 1, MEMBERS, i, 1);
    for (int i = 0; i < MEMBERS - 1 && !round; i++) assert_true(leader_leave(l, &a[i].wait, &why));
  }
  text_release(&why);
  const char *device = device_of(MEMBERS, 0);
  struct text t = {0};
  put_DeviceAttributes_name(&t, device);
  a[MEMBERS - 1] = (struct asked){.wait.done = answer, .size = MEMBERS};
  for (int i = 0; i < MEMBERS; i++) a[i].wait.done = same_bytes;
  leader_ask_group(l, &(struct group_question){asker, 1, MEMBERS, "CPU", device, wire_from(t.at, t.n)},
                   &a[MEMBERS - 1].wait);
  text_release(&t);
  assert_int_equal(told, MEMBERS);
  leader_answer_unref(first_told);
  free(a);
  leader_free(l);
}

/* Steps have the numbers that strangers give them: one far behind another is not a little behind it. */
static void steps_at_their_ends(void **state) {
  struct leader *l = leader_new();
  struct asked a, b, c;
  for (int task = 0; task < 2; task++) join(l, task ? &b : &a, 1, 2, task, 1);
  forget(&a);
  forget(&b);
  struct instance_question q[2] = {question(0, true), question(1, false)};
  q[0].step = INT64_MAX;
  q[1].step = INT64_MIN;
  ask(l, &a, q[0]);
  ask(l, &b, q[1]);
  assert_true(a.answered && !b.answered);
  ASSERT_FAILS(a.status, SHOAL_ABORTED, "in step -9223372036854775808, where");
  ask(l, &c, q[0]);
  assert_true(b.answered && !c.answered);
  ASSERT_FAILS(b.status, SHOAL_ABORTED, "in step 9223372036854775807, where");
  assert_true(leader_leave(l, &c.wait, NULL));
  leader_free(l);
}

enum { INSTANCES = 16000 };

/* Two of three wait in as many instances as there may be, and say as much as they may: who does not fit any more is
 * told, and the group, which makes no room for its own members, is as it was. */
static void instances_take_what_there_is(void **state) {
  struct leader *l = leader_new();
  struct asked *a = mem_zalloc(INSTANCES * 2, sizeof *a), third;
  int64_t *keys = mem_zalloc(MOST_HELD, sizeof *keys);
  int n = 0;
  for (int task = 0; task < 3; task++) join(l, &a[task], 1, 3, task, 1);
  for (int task = 0; task < 3; task++) forget(&a[task]);
  for (int i = 0; i < MOST_HELD; i++) keys[i] = orders_key(2, i);
  for (int held = MOST_HELD; held; held /= 2) {
    bool fits = true;
    for (; fits; n += fits) {
      struct instance_question q = ordered(n % 2, n / 2, &(struct order_held){keys, held});
      q.step = 1 + n / 2;
      ask(l, &a[n], q);
      fits = !a[n].answered;
    }
    assert_true(n > INSTANCES && n < INSTANCES * 2);
    ASSERT_FAILS(a[n].status, SHOAL_RESOURCE_EXHAUSTED, "bytes, as many as a leader keeps");
    join(l, &third, 1, 3, 2, 1);
    assert_true(third.answered && !third.status);
    forget(&third);
  }
  for (int i = 0; i < n; i++) assert_true(leader_leave(l, &a[i].wait, NULL));
  free(keys);
  free(a);
  leader_free(l);
}

/* Thousands of instances that wait, of a group of a hundred: of each some who are missed are named, of all no more than
 * there is room for. */
static void many_are_missed(void **state) {
  enum { MEMBERS = 100, NAMED = 1 << 15 };
  struct leader *l = leader_new();
  struct asked *a = mem_zalloc(INSTANCES, sizeof *a);
  struct leader_gaps gaps = {0};
  size_t absent = 0;
  for (int i = 0; i < MEMBERS; i++) join(l, &a[i], 1, MEMBERS, i, 1);
  for (int i = 0; i < MEMBERS; i++) forget(&a[i]);
  for (int i = 0; i < INSTANCES; i++) {
    struct instance_question q = question(0, true);
    q.group_size = MEMBERS;
    q.key = i;
    ask(l, &a[i], q);
    if (i) continue;
    assert_true(leader_gaps_find(l, INT64_MAX, &gaps));
    assert_int_equal(gaps.at[0].absent.n, 64);
    leader_gaps_release(&gaps);
  }
  assert_true(leader_gaps_find(l, INT64_MAX, &gaps));
  assert_int_equal(gaps.n, INSTANCES);
  for (size_t i = 0; i < gaps.n; i++) {
    assert_true(gaps.at[i].absent.n > 0);
    assert_string_equal(gaps.at[i].absent.at[0].device, device_of(1, 0));
    absent += gaps.at[i].absent.n;
  }
  assert_true(absent <= NAMED);
  leader_gaps_release(&gaps);
  for (int i = 0; i < INSTANCES; i++) assert_true(leader_leave(l, &a[i].wait, NULL));
  free(a);
  leader_free(l);
}

static double seconds_since(int64_t began) { return (double)(clock_ns() - began) * 1e-9; }

/* Thousands of members that wait in one step, each holding back the next thousand: who comes is looked for among them
 * for a moment, no more, as all who ask the leader wait meanwhile; a circle that is near is found all the same. */
static void searches_are_short(void **state) {
  enum { WAITING = 4000, AGAIN = 300 };
  struct leader *l = leader_new();
  struct asked *a = mem_zalloc(WAITING, sizeof *a), b, c;
  int64_t *keys = mem_zalloc(2 * WAITING, sizeof *keys);
  for (int task = 0; task < 3; task++) join(l, &a[task], 1, 3, task, 1);
  for (int task = 0; task < 3; task++) forget(&a[task]);
  for (int i = 0; i < 2 * WAITING; i++) keys[i] = orders_key(1, 100 + i);
  for (int i = WAITING - 1; i > 0; i--)
    ask(l, &a[i], ordered(0, 100 + i, &(struct order_held){&keys[i + 1], i % 100 ? 1 : MOST_HELD}));
  int64_t began = clock_ns();
  for (int i = 0; i < AGAIN; i++) {
    ask(l, &a[0], ordered(0, 100, &(struct order_held){&keys[1], MOST_HELD}));
    assert_true(leader_leave(l, &a[0].wait, NULL));
  }
  assert_true(seconds_since(began) < 15);
  int64_t two[2] = {orders_key(1, 11), orders_key(1, 12)};
  struct instance_question q[2] = {ordered(1, 12, &(struct order_held){&two[0], 1}),
                                   ordered(2, 11, &(struct order_held){&two[1], 1})};
  q[0].step = q[1].step = 8; /* others' steps are not looked at */
  ask(l, &b, q[0]);
  ask(l, &c, q[1]);
  ASSERT_FAILS(b.status, SHOAL_INVALID_ARGUMENT, "in other orders by their members");
  ASSERT_FAILS(c.status, SHOAL_INVALID_ARGUMENT, "in other orders by their members");
  for (int i = 1; i < WAITING; i++) assert_true(leader_leave(l, &a[i].wait, NULL));
  free(keys);
  free(a);
  leader_free(l);
}

/* A task that is lost, with a thousand groups that have thousands of instances between them: all are looked at once. */
static void groups_are_lost_together(void **state) {
  enum { GROUPS = 1000, TIMES = 3 };
  struct leader *l = leader_new();
  struct asked *a = mem_zalloc(INSTANCES, sizeof *a), b;
  shoal_status why = STATUS(SHOAL_UNAVAILABLE, "it has gone");
  double spent = 0;
  for (int turn = 0; turn < TIMES; turn++) {
    for (int i = 0; i < GROUPS; i++) {
      join(l, &b, i, 1, i % 2, 1);
      assert_true(b.answered && !b.status);
      forget(&b);
    }
    for (int i = 0; i < INSTANCES; i++) {
      struct instance_question q = question(i % 2, true);
      q.group_key = i % GROUPS;
      q.group_size = 1;
      q.key = i;
      ask(l, &a[i], q);
      assert_true(a[i].answered && !a[i].status);
    }
    int64_t began = clock_ns();
    leader_lose_task(l, "/job:worker/replica:0/task:1", why);
    spent += seconds_since(began);
  }
  assert_true(spent < 5);
  for (int task = 0; task < 2; task++) {
    struct instance_question q = question(task, true);
    q.group_key = task;
    q.group_size = 1;
    ask(l, &b, q);
    assert_true(b.answered);
    if (task == 0) ASSERT_OK(b.status);
    else ASSERT_FAILS(b.status, SHOAL_ABORTED, "is not in group 1 of 1 here");
  }
  shoal_status_free(why);
  free(a);
  leader_free(l);
}

RUN_TESTS(cmocka_unit_test(all_are_told_in_order_of_rank), cmocka_unit_test(who_is_lost_is_waited_for),
          cmocka_unit_test(what_does_not_fit_is_told_to_all), cmocka_unit_test(instances),
          cmocka_unit_test(who_waits_is_told_that_the_group_is_another),
          cmocka_unit_test(who_waits_for_one_that_is_gone_is_told), cmocka_unit_test(members_are_in_one_step),
          cmocka_unit_test(hints_are_the_same), cmocka_unit_test(orders_that_never_end_are_told),
          cmocka_unit_test(who_is_missed_is_found), cmocka_unit_test(who_comes_late_is_told),
          cmocka_unit_test(broadcasts_have_one_source), cmocka_unit_test(who_leaves_is_not_waited_for),
          cmocka_unit_test(there_is_a_bound), cmocka_unit_test(a_source_does_not_receive),
          cmocka_unit_test(who_has_most_makes_room), cmocka_unit_test(a_member_tells_little),
          cmocka_unit_test(groups_of_thousands), cmocka_unit_test(steps_at_their_ends),
          cmocka_unit_test(instances_take_what_there_is), cmocka_unit_test(many_are_missed),
          cmocka_unit_test(searches_are_short), cmocka_unit_test(groups_are_lost_together))
