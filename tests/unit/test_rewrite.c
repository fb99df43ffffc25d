/* Rewriting a step of two layers that was written by hand, event by event: what the hooks are told, where, and
 * what comes of the streams.  What is expected follows from the comments of step/rewrite.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "step/rewrite.h"

#define ALLOC(row) ((row) << 2 | OOM_EV_ALLOC)
#define FREE(row) ((row) << 2 | OOM_EV_FREE)
#define GRAD(row) ((row) << 2 | OOM_EV_GRAD)
#define BEGINS(unit) (-OOM_UNIT_MARK - 2 * (unit))
#define ENDS(unit) (BEGINS(unit) - 1)

/* What the rows are. */
enum { INPUT_0, SCRATCH, INPUT_1, LOSS, HANDED, GRAD_1, GRAD_0, ACROSS, PASSING, ROWS };

static int32_t forward[] = {BEGINS(0), ALLOC(INPUT_0), ALLOC(SCRATCH), FREE(SCRATCH), ALLOC(ACROSS), ENDS(0),
			    BEGINS(1), ALLOC(INPUT_1), ENDS(1), ALLOC(LOSS)};
static int32_t backward[] = {FREE(LOSS), FREE(ACROSS),
			     BEGINS(1), ALLOC(HANDED), FREE(INPUT_1), ALLOC(PASSING), FREE(PASSING), ALLOC(GRAD_1),
			     GRAD(GRAD_1), ENDS(1),
			     BEGINS(0), FREE(HANDED), FREE(INPUT_0), ALLOC(GRAD_0), GRAD(GRAD_0), ENDS(0)};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct oom_row rows[ROWS];
static struct oom_param params[2];
static struct oom_tape from, to;

static int write_step(void **state)
{
	(void)state;
	memset(&from, 0, sizeof(from));
	memset(params, 0, sizeof(params));
	for (int i = 0; i < ROWS; i++)
		rows[i] = (struct oom_row){.width = 1000 + (uint64_t)i, .name = "row", .scope = "", .mult = 3, .dt = OOM_F32};
	/* units are counted from 1 there: 0 is none */
	params[0].grad = GRAD_0;
	params[0].unit = 1;
	params[1].grad = GRAD_1;
	params[1].unit = 2;
	from.rows = rows;
	from.n_rows = ROWS;
	from.params = params;
	from.n_params = 2;
	from.n_units = 2;
	from.streams[OOM_STREAM_FWD] = (struct oom_stream){forward, COUNT(forward), COUNT(forward)};
	from.streams[OOM_STREAM_BWD] = (struct oom_stream){backward, COUNT(backward), COUNT(backward)};
	return 0;
}

static void rewrite(const struct oom_hooks *hooks, size_t own)
{
	static struct oom_plan plan;

	plan = oom_plan_default();
	assert_int_equal(oom_rewrite(&from, &to, &plan, hooks, own), OOM_OK);
}

static void assert_stream(enum oom_stream_id id, const int32_t *want, size_t n)
{
	const struct oom_stream *s = &to.streams[id];

	for (size_t i = 0; i < n && i < s->n; i++)
		if (s->ev[i] != want[i])
			fail_msg("stream %d, event %zu: %d, not %d", (int)id, i, (int)s->ev[i], (int)want[i]);
	assert_int_equal(s->n, n);
}

static void without_hooks_all_is_copied(void **state)
{
	static const struct oom_hooks none;

	(void)state;
	rewrite(&none, 0);
	assert_stream(OOM_STREAM_FWD, forward, COUNT(forward));
	assert_stream(OOM_STREAM_BWD, backward, COUNT(backward));
	assert_stream(OOM_STREAM_EVAL, NULL, 0);
	assert_int_equal(to.n_rows, ROWS);
	assert_ptr_equal(to.rows, from.rows);   /* none was added */
	for (int i = 0; i < ROWS; i++) {
		assert_int_equal(to.rows[i].width, 1000 + i);
		assert_int_equal(to.rows[i].mult, 3);
		assert_ptr_equal(to.rows[i].name, rows[i].name);
	}
	oom_rewrite_release(&to);
	assert_null(to.rows);
}

/* ---- what the hooks are told ---- */

static char said[600];

static void say(const struct oom_rewrite *w, const char *what, int n)
{
	const size_t used = strlen(said);

	/* what is called, for what, and the layer the stream is in */
	snprintf(said + used, sizeof(said) - used, "%s%d@%d ", what, n, (int)w->unit);
}
static void begin(struct oom_rewrite *w) { say(w, "begin", (int)w->stream); }
static void end(struct oom_rewrite *w) { say(w, "end", (int)w->stream); }
static void unit_begin(struct oom_rewrite *w, size_t unit) { say(w, "in", (int)unit); }
static void unit_end(struct oom_rewrite *w, size_t unit) { say(w, "out", (int)unit); }
static void grad(struct oom_rewrite *w, int32_t row) { say(w, "grad", row); }
static bool freed(struct oom_rewrite *w, int32_t row)
{
	say(w, "free", row);
	return true;
}

static void places_in_their_order(void **state)
{
	static const struct oom_hooks all = {begin, end, NULL, unit_begin, unit_end, grad, freed};
	char want[600];

	(void)state;
	snprintf(want, sizeof(want),
		 "begin0@-1 in0@0 free%d@0 out0@0 in1@1 out1@1 end0@-1 "
		 "begin1@-1 free%d@-1 free%d@-1 in1@1 free%d@1 free%d@1 grad%d@1 out1@1 "
		 "in0@0 free%d@0 free%d@0 grad%d@0 out0@0 end1@-1 begin2@-1 end2@-1 ",
		 SCRATCH, LOSS, ACROSS, INPUT_1, PASSING, GRAD_1, HANDED, INPUT_0, GRAD_0);
	*said = 0;
	rewrite(&all, 0);
	assert_string_equal(said, want);
	/* a gradient's place is the hook's; all else went through */
	assert_stream(OOM_STREAM_FWD, forward, COUNT(forward));
	assert_int_equal(to.streams[OOM_STREAM_BWD].n, COUNT(backward) - 2);
	oom_rewrite_release(&to);
}

/* ---- what is known of rows ---- */

static void assert_maps(struct oom_rewrite *w)
{
	static const uint32_t of_grad[ROWS] = {[GRAD_0] = 1, [GRAD_1] = 2},
			      /* SCRATCH dies in its layer, ACROSS behind all layers at once */
			      kept[ROWS] = {[INPUT_0] = 1, [INPUT_1] = 2},
			      /* made by the second layer's backward for that of the first; PASSING dies where it was
			       * made, gradients are complete there */
			      handed[ROWS] = {[HANDED] = 2};

	for (int i = 0; i < ROWS; i++) {
		assert_int_equal(w->unit_of_grad[i], of_grad[i]);
		assert_int_equal(oom_rewrite_kept(w)[i], kept[i]);
		assert_int_equal(oom_rewrite_handed(w)[i], handed[i]);
		assert_int_equal(oom_rewrite_late(w)[i], i == LOSS);
	}
}

static void rows_and_their_layers(void **state)
{
	static const struct oom_hooks hooks = {.begin = assert_maps};

	(void)state;
	rewrite(&hooks, 0);
	oom_rewrite_release(&to);
}

/* ---- rows and events of a pass's own ---- */

struct own {
	int32_t gathered, copy;
	bool used;
};

/* A layer's weights are gathered where it begins and freed where it ends. */
static void gather(struct oom_rewrite *w, size_t unit)
{
	struct own *o = w->own;

	(void)unit;
	if (!o->used) {
		/* zeroed memory */
		assert_int_equal(o->gathered | o->copy, 0);
		o->used = true;
		o->gathered = oom_rewrite_row(w, "gathered", 4096, OOM_CAT_COMM, OOM_SHARE_PADDED);
		o->copy = oom_rewrite_copy(w, INPUT_1);
	}
	oom_rewrite_event(w, o->gathered, OOM_EV_ALLOC);
	/* no row: no event */
	oom_rewrite_event(w, -1, OOM_EV_ALLOC);
}

static void give_up(struct oom_rewrite *w, size_t unit)
{
	const struct own *o = w->own;

	(void)unit;
	oom_rewrite_event(w, o->gathered, OOM_EV_FREE);
}

/* The second layer's input stays until the pass frees it. */
static bool but_one(struct oom_rewrite *w, int32_t row)
{
	(void)w;
	return row != INPUT_1;
}

static void free_it(struct oom_rewrite *w)
{
	if (w->stream == OOM_STREAM_BWD)
		oom_rewrite_event(w, INPUT_1, OOM_EV_FREE);
}

static void a_pass_of_its_own(void **state)
{
	enum { GATHERED = ROWS, COPY };
	static const struct oom_hooks hooks = {
		.end = free_it, .unit_begin = gather, .unit_end = give_up, .freed = but_one};
	static const int32_t fwd[] = {BEGINS(0), ALLOC(GATHERED), ALLOC(INPUT_0), ALLOC(SCRATCH), FREE(SCRATCH),
				      ALLOC(ACROSS), FREE(GATHERED), ENDS(0), BEGINS(1), ALLOC(GATHERED),
				      ALLOC(INPUT_1), FREE(GATHERED), ENDS(1), ALLOC(LOSS)};
	static const int32_t bwd[] = {FREE(LOSS), FREE(ACROSS), BEGINS(1), ALLOC(GATHERED), ALLOC(HANDED),
				      ALLOC(PASSING), FREE(PASSING), ALLOC(GRAD_1), GRAD(GRAD_1), FREE(GATHERED), ENDS(1),
				      BEGINS(0), ALLOC(GATHERED), FREE(HANDED), FREE(INPUT_0), ALLOC(GRAD_0), GRAD(GRAD_0),
				      FREE(GATHERED), ENDS(0), FREE(INPUT_1)};

	(void)state;
	rewrite(&hooks, sizeof(struct own));
	assert_stream(OOM_STREAM_FWD, fwd, COUNT(fwd));
	assert_stream(OOM_STREAM_BWD, bwd, COUNT(bwd));
	assert_int_equal(to.n_rows, ROWS + 2);
	assert_ptr_not_equal(to.rows, from.rows);
	assert_string_equal(to.rows[GATHERED].name, "gathered");
	assert_int_equal(to.rows[GATHERED].width, 4096);
	assert_int_equal(to.rows[GATHERED].mult, 1);
	assert_int_equal(to.rows[GATHERED].cat, OOM_CAT_COMM);
	assert_int_equal(to.rows[GATHERED].share, OOM_SHARE_PADDED);
	assert_int_equal(to.rows[GATHERED].dt, OOM_U8);
	assert_int_equal(to.rows[GATHERED].born, OOM_STREAM_FWD);
	/* as large as what it copies, but one, where that stands for three layers */
	assert_int_equal(to.rows[COPY].width, rows[INPUT_1].width);
	assert_int_equal(to.rows[COPY].dt, OOM_F32);
	assert_int_equal(to.rows[COPY].mult, 1);
	assert_int_equal(to.rows[INPUT_1].mult, 3);
	assert_int_equal(from.n_rows, ROWS);
	oom_rewrite_release(&to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_hooks_all_is_copied),
		cmocka_unit_test(places_in_their_order),
		cmocka_unit_test(rows_and_their_layers),
		cmocka_unit_test(a_pass_of_its_own),
	};

	return cmocka_run_group_tests(tests, write_step, NULL);
}
