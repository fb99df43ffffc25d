/* Names of a function live as Python's do: every case is a few lines of Python and when each tensor dies.
 *
 * The order of births and deaths is written down as a string: a capital letter is a storage's birth, the small one its
 * death (CPython counts references: a storage dies with its last name). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tape/frame.h"

static struct oom_plan plan;

struct scene {
	struct oom_tape *t;
	struct oom_frame f;
};

static struct scene begin(void)
{
	struct scene s = {.t = calloc(1, sizeof(struct oom_tape))};

	assert_non_null(s.t);
	oom_tape_reset(s.t, NULL, &plan);
	s.t->val_b = 2;
	s.t->val_s = s.t->val_t = 64;
	s.f = (struct oom_frame){.t = s.t};
	return s;
}

static struct oom_val tensor(struct scene *s)
{
	return oom_new(s->t, "x", s->t->m_bs, D(64), OOM_F32);
}

/* An operation of x: a new tensor is there before x is given up, unless x is borrowed. */
static struct oom_val op(struct scene *s, struct oom_val x)
{
	const struct oom_val y = tensor(s);

	oom_done(s->t, x);
	return y;
}

/* The events so far, in order. */
static void happened(struct scene *s, const char *want)
{
	const struct oom_stream *e = &s->t->streams[s->t->stream];
	char got[100];
	size_t n = 0;

	assert_int_equal(s->t->status, OOM_OK);
	for (size_t i = 0; i < e->n && n < sizeof(got) - 1; i++) {
		const int32_t row = e->ev[i] >> 2;

		got[n++] = (char)((e->ev[i] & 3) == OOM_EV_ALLOC ? 'A' + row : 'a' + row);
	}
	got[n] = 0;
	assert_string_equal(got, want);
}

static void end(struct scene *s)
{
	oom_tape_release(s->t);
	free(s->t);
}

/* return g(f(x)): f(x) dies when g has run. */
static void a_temporary(void **state)
{
	struct scene s = begin();
	struct oom_val x = tensor(&s), y = op(&s, op(&s, oom_keep(x)));

	(void)state;
	happened(&s, "ABCb");
	oom_discard(s.t, y);
	happened(&s, "ABCbc");
	end(&s);
}

/* h = f(x); return g(h): h lives until the function returns. */
static void a_name(void **state)
{
	struct scene s = begin();
	struct oom_val h = oom_name(&s.f, tensor(&s)), y = op(&s, h);

	(void)state;
	assert_true(h.kept);
	happened(&s, "AB");
	y = oom_leave(&s.f, y);
	happened(&s, "ABa");
	assert_false(y.kept);
	oom_discard(s.t, y);
	happened(&s, "ABab");
	end(&s);
}

/* h = f(x); h = g(h): the old h goes only when the new one is there. */
static void a_name_that_changes(void **state)
{
	struct scene s = begin();
	struct oom_val h = oom_name(&s.f, tensor(&s));

	(void)state;
	h = oom_rename(&s.f, h, op(&s, h));
	happened(&s, "ABa");
	h = oom_rename(&s.f, h, op(&s, h));
	happened(&s, "ABaCb");
	oom_discard(s.t, oom_leave(&s.f, h));
	happened(&s, "ABaCbc");
	end(&s);
}

/* h = f(x); del h. */
static void del(void **state)
{
	struct scene s = begin();
	struct oom_val h = oom_name(&s.f, tensor(&s)), k = oom_name(&s.f, tensor(&s));

	(void)state;
	oom_forget(&s.f, h);
	happened(&s, "ABa");
	oom_forget(&s.f, oom_none());           /* a name for nothing */
	happened(&s, "ABa");
	oom_discard(s.t, oom_leave(&s.f, k));
	happened(&s, "ABab");
	end(&s);
}

/* g(h) as the last use of h, as if it had no name. */
static void the_last_use(void **state)
{
	struct scene s = begin();
	struct oom_val h = oom_name(&s.f, tensor(&s)), y = op(&s, oom_take(&s.f, h));

	(void)state;
	happened(&s, "ABa");
	oom_discard(s.t, oom_leave(&s.f, y));
	happened(&s, "ABab");
	end(&s);
}

/* a = f(); b = a; del a: b still holds it. */
static void two_names_for_one(void **state)
{
	struct scene s = begin();
	struct oom_val a = oom_name(&s.f, tensor(&s)), b = oom_name(&s.f, a);

	(void)state;
	assert_int_equal(a.sto, b.sto);
	oom_forget(&s.f, a);
	happened(&s, "A");
	oom_forget(&s.f, b);
	happened(&s, "Aa");
	oom_discard(s.t, oom_leave(&s.f, oom_none()));
	end(&s);
}

/* Names go last to first, as CPython gives up locals; the result stays, also where it had a name. */
static void leaving(void **state)
{
	struct scene s = begin();
	struct oom_val a = oom_name(&s.f, tensor(&s)), b = oom_name(&s.f, tensor(&s)), c = oom_name(&s.f, tensor(&s));
	struct oom_val y;

	(void)state;
	(void)a;
	(void)c;
	y = oom_leave(&s.f, b);
	happened(&s, "ABCca");
	assert_int_equal(s.f.n, 0);
	oom_discard(s.t, y);
	happened(&s, "ABCcab");
	end(&s);
}

/* def g(h): ... called as g(f(x)): the caller's temporary lives until g returns; called as g(h), it is the caller's. */
static void arguments(void **state)
{
	struct scene s = begin();
	struct oom_val x = oom_arg(&s.f, tensor(&s)), y = op(&s, x);
	struct oom_frame caller = {.t = s.t};
	struct oom_val mine;

	(void)state;
	happened(&s, "AB");
	y = oom_leave(&s.f, y);
	happened(&s, "ABa");
	mine = oom_name(&caller, y);
	y = op(&s, oom_arg(&s.f, mine));
	oom_discard(s.t, oom_leave(&s.f, y));
	happened(&s, "ABaCc");                  /* b is the caller's still */
	oom_discard(s.t, oom_leave(&caller, oom_none()));
	happened(&s, "ABaCcb");
	end(&s);
}

/* return y, weights: each is the caller's, whatever it was called here. */
static void a_second_result(void **state)
{
	struct scene s = begin();
	struct oom_val y = oom_name(&s.f, tensor(&s)), w = oom_name(&s.f, tensor(&s)), second = oom_give(&s.f, w);

	(void)state;
	y = oom_leave(&s.f, y);
	happened(&s, "AB");
	oom_discard(s.t, second);
	oom_discard(s.t, y);
	happened(&s, "ABba");
	end(&s);
}

/* A layer's second result waits for the loop over layers; the next layer's takes its place. */
static void a_result_beside(void **state)
{
	struct scene s = begin();
	struct oom_val x;

	(void)state;
	oom_give_beside(&s.f, oom_name(&s.f, tensor(&s)));
	oom_discard(s.t, oom_leave(&s.f, oom_none()));
	happened(&s, "A");
	oom_give_beside(&s.f, tensor(&s));
	happened(&s, "ABa");
	x = oom_take_beside(s.t);
	assert_true(oom_is_none(oom_take_beside(s.t)));
	oom_discard(s.t, x);
	happened(&s, "ABab");
	end(&s);
}

/* What all layers share is a name like any other where nothing is checkpointed ... */
static void shared_names(void **state)
{
	struct scene s = begin();
	struct oom_val mask = oom_name_shared(&s.f, tensor(&s)), h = oom_name(&s.f, tensor(&s));

	(void)state;
	(void)mask;
	oom_forget_shared(&s.f);
	happened(&s, "ABa");
	oom_discard(s.t, oom_leave(&s.f, h));
	happened(&s, "ABab");
	end(&s);
}

/* ... and outlives its frame where layers are run again; one that no layer takes does not. */
static void shared_names_of_checkpointed_layers(void **state)
{
	struct scene s;
	struct oom_val taken, left;

	(void)state;
	plan.grad_ckpt = OOM_CKPT_FULL;
	s = begin();
	taken = oom_name_for(&s.f, tensor(&s), true);
	left = oom_name_for(&s.f, tensor(&s), false);
	(void)taken;
	(void)left;
	oom_node(s.t, OOM_NODE_CKPT, "checkpoint");
	oom_discard(s.t, oom_leave(&s.f, oom_none()));
	happened(&s, "ABb");
	assert_int_equal(s.t->n_held, 1);
	plan.grad_ckpt = OOM_CKPT_NONE;
	end(&s);
}

/* Layers that are frozen, and nothing before them trains, leave no checkpoint: nobody holds what they shared. */
static void shared_names_of_frozen_layers(void **state)
{
	struct scene s;

	(void)state;
	plan.grad_ckpt = OOM_CKPT_FULL;
	s = begin();
	oom_node(s.t, OOM_NODE_CKPT, "checkpoint of layers before");
	oom_name_shared(&s.f, tensor(&s));
	oom_discard(s.t, oom_leave(&s.f, oom_none()));
	happened(&s, "Aa");
	assert_int_equal(s.t->n_held, 0);
	plan.grad_ckpt = OOM_CKPT_NONE;
	end(&s);
}

/* Parameters and absent tensors own no storage: a name for one is nothing. */
static void names_of_nothing(void **state)
{
	struct scene s = begin();
	struct oom_val none = oom_name(&s.f, oom_none()), p = oom_name(&s.f, oom_param(s.t, "weight", 4, 4, 0));

	(void)state;
	assert_true(oom_is_none(none));
	assert_int_equal(s.f.n, 0);
	assert_int_equal(p.sto, -1);
	oom_discard(s.t, oom_leave(&s.f, p));
	happened(&s, "");
	end(&s);
}

/* A place that was given up is used again: 48 names at a time, not in all. */
static void places_are_used_again(void **state)
{
	struct scene s = begin();
	struct oom_val h = oom_none();

	(void)state;
	for (int i = 0; i < 10 * OOM_FRAME_NAMES; i++) {
		const struct oom_val x = oom_name(&s.f, tensor(&s));

		oom_forget(&s.f, h);
		h = x;
	}
	assert_int_equal(s.t->status, OOM_OK);
	assert_true(s.f.n <= 2);
	oom_discard(s.t, oom_leave(&s.f, h));
	assert_int_equal(oom_tape_held(s.t, 0), -1);
	end(&s);
}

static void several_at_once(void **state)
{
	struct scene s = begin();
	struct oom_val x[3] = {tensor(&s), oom_none(), tensor(&s)};

	(void)state;
	oom_name_each(&s.f, x, 3);
	assert_true(x[0].kept && x[2].kept);
	oom_discard(s.t, oom_leave(&s.f, oom_none()));
	happened(&s, "ABba");
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_temporary),
		cmocka_unit_test(a_name),
		cmocka_unit_test(a_name_that_changes),
		cmocka_unit_test(del),
		cmocka_unit_test(the_last_use),
		cmocka_unit_test(two_names_for_one),
		cmocka_unit_test(leaving),
		cmocka_unit_test(arguments),
		cmocka_unit_test(a_second_result),
		cmocka_unit_test(a_result_beside),
		cmocka_unit_test(shared_names),
		cmocka_unit_test(shared_names_of_checkpointed_layers),
		cmocka_unit_test(shared_names_of_frozen_layers),
		cmocka_unit_test(names_of_nothing),
		cmocka_unit_test(places_are_used_again),
		cmocka_unit_test(several_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
