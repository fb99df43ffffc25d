/* Runs a block as a layer of a step and adds up what its forward pass made. */
#include "block_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "blocks/mixers.h"
#include "families/model.h"
#include "step/program.h"
#include "tape/timeline.h"

static struct oom_model model;
static block_fn now;

struct oom_arch *block_arch(void)
{
	return &model.arch;
}

static struct oom_val layer(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	(void)ctx;
	(void)i;
	return now(t, x);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const int32_t n = t->grad ? oom_node(t, OOM_NODE_LEAF, "input") : -1;
	struct oom_param p = {.elems = 1};
	static const int nothing;
	struct oom_val x, y;

	(void)a;
	oom_param_policy(t, &p);
	x = oom_new(t, "input", t->m_bs, (struct oom_dim){H, "width"}, (enum oom_dtype)p.dt);
	if (n >= 0)
		x = oom_node_out(t, n, 0, x);
	y = oom_layer_alone(t, 0, layer, oom_layer_ctx(t, &nothing, sizeof(nothing)), x);
	return oom_op_sum_wide(t, oom_op_unary(t, OOM_SCALE, y), OOM_MONO_ONE, D(1));
}

static const struct oom_family family = {.name = "block", .step = step};

void block_begin(void)
{
	memset(&model, 0, sizeof(model));
	model.arch.family = &family;
}

static void read_plan(struct oom_plan *plan, const char *text)
{
	char copy[200], *save = NULL;
	struct oom_error err;

	*plan = oom_plan_default();
	plan->micro_batch = B;
	plan->seq_len = S;
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *w = strtok_r(copy, ";", &save); w; w = strtok_r(NULL, ";", &save)) {
		char *value = strchr(w, '=');
		const struct oom_option *knob;

		assert_non_null(value);
		*value++ = '\0';
		knob = oom_knob_find(w);
		if (!knob || oom_plan_set(plan, knob, value, &err))
			fail_msg("no knob %s=%s", w, value);
	}
}

static uint64_t size_of(const struct oom_tape *t, int32_t row)
{
	const struct oom_row *r = &t->rows[row];

	return bytes_of(oom_mono_now(t, r->mono) * r->width, oom_dtype_bytes((enum oom_dtype)r->dt));
}

/* The forward pass: between the marks of the one layer rows are the block's. */
static struct block_sums add_up(const struct oom_tape *t, bool list)
{
	const struct oom_stream *s = &t->streams[OOM_STREAM_FWD];
	bool *mine = calloc(t->n_rows + 1, sizeof(*mine)), inside = false;
	struct block_sums sums = {0, 0, 0};

	assert_non_null(mine);
	for (size_t i = 0; i < s->n; i++) {
		const int32_t row = s->ev[i] >> 2;

		if (s->ev[i] < 0) {             /* the layer begins, and ends */
			inside = !inside;
		} else if ((s->ev[i] & 3) == OOM_EV_ALLOC && inside) {
			mine[row] = true;
			sums.allocated += size_of(t, row);
			sums.saved += size_of(t, row);
		} else if ((s->ev[i] & 3) == OOM_EV_FREE && mine[row]) {
			mine[row] = false;
			sums.saved -= size_of(t, row);
		}
	}
	for (size_t i = 0; list && i < s->n; i++)
		if (s->ev[i] >= 0 && (s->ev[i] & 3) == OOM_EV_ALLOC)
			printf("  %8llu %s %s\n", (unsigned long long)size_of(t, s->ev[i] >> 2),
			       mine[s->ev[i] >> 2] ? "saved" : "freed", t->rows[s->ev[i] >> 2].name);
	for (size_t i = 0; i < t->n_params; i++)
		sums.params += t->params[i].elems;
	free(mine);
	return sums;
}

static struct block_sums run(block_fn fn, const char *text, bool list)
{
	struct oom_tape *t = calloc(1, sizeof(*t));
	struct oom_plan plan;
	struct oom_error err;
	struct block_sums sums;

	assert_non_null(t);
	now = fn;
	read_plan(&plan, text);
	if (oom_record(t, &model, &plan, false, &err))
		fail_msg("%s", err.text);
	sums = add_up(t, list);
	oom_tape_release(t);
	free(t);
	return sums;
}

struct block_sums block_run(block_fn fn, const char *plan)
{
	return run(fn, plan, false);
}

void block_expect(const char *name, block_fn fn, const char *plan, struct block_sums want)
{
	const struct block_sums got = run(fn, plan, false);

	if (got.allocated == want.allocated && got.saved == want.saved && got.params == want.params)
		return;
	run(fn, plan, true);
	fail_msg("%s, %s: allocated %lld, saved %lld, freed %lld bytes, %lld parameters: by hand %lld, "
		 "%lld, %lld, %lld",
		 name, plan, (long long)got.allocated, (long long)got.saved,
		 (long long)(got.allocated - got.saved), (long long)got.params,
		 (long long)want.allocated, (long long)want.saved,
		 (long long)(want.allocated - want.saved), (long long)want.params);
}
