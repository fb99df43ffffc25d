/* Random models: every way of adding up a tape must give the same bytes.
 *
 * A model is a random program (a block of operations on a few named tensors, in up to three kinds
 * that alternate over up to thirty layers, under a random plan).  Its tape is added up
 *   - by oom_walk, which takes repeated layers in one step (timeline.c),
 *   - by the compiled form, for several batches (compiled.c),
 *   - here, event by event, the repeated layers as often as they are repeated, and
 *   - here, over a second tape on which every layer was recorded,
 * and the four must agree on peak, net, and the bytes of every category at the peak.  Numbers are
 * compared with one another: what the operations themselves cost is test_ops's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "blocks/blocks.h"
#include "families/model.h"
#include "step/program.h"
#include "tape/compiled.h"
#include "tape/timeline.h"

enum { MODELS = 250, STEPS = 14, NAMES = 5, KINDS = 3 };

/* ---- a random program ---- */

enum verb {
	LINEAR, UNARY, ADD, MUL, NORM, SOFTMAX, DROPOUT, CAST, SLICE, CAT, SPLIT, ATTEND, MASK, FIT,
	VERBS
};
struct action {
	uint8_t verb, a, b, to;
	uint64_t width;
};
static struct {
	uint64_t d, vocab;              /* width of the hidden states, of the head */
	uint32_t layers;
	uint8_t kind[64];
	uint8_t kinds;
	bool masked, tied;
	struct action step[KINDS][STEPS];
} now;

static uint64_t seed;

static uint64_t draw(uint64_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % n;
}

/* Widths that are whole 512-byte blocks, and some that are not. */
static uint64_t any_width(void)
{
	static const uint64_t widths[] = {1, 24, 40, 64, 100, 128, 256, 384, 1000, 1024};

	return widths[draw(sizeof(widths) / sizeof(widths[0]))];
}

static void make_model(struct oom_plan *p)
{
	static const int64_t precisions[] = {OOM_FP32, OOM_BF16, OOM_AMP_BF16, OOM_BF16_AMP};
	bool mixed;

	now.d = 32 * (1 + draw(12));
	now.vocab = draw(2) ? 500 : 4;
	now.layers = 1 + (uint32_t)draw(30);
	now.kinds = (uint8_t)(1 + draw(KINDS));
	now.masked = draw(2);
	now.tied = draw(2);
	mixed = !draw(4);
	for (uint32_t i = 0; i < now.layers; i++)
		now.kind[i] = (uint8_t)(mixed ? draw(now.kinds) : i % now.kinds);
	for (int k = 0; k < KINDS; k++)
		for (int i = 0; i < STEPS; i++)
			now.step[k][i] = (struct action){(uint8_t)draw(VERBS), (uint8_t)draw(NAMES),
							 (uint8_t)draw(NAMES), (uint8_t)draw(NAMES),
							 any_width()};
	*p = oom_plan_default();
	p->precision = precisions[draw(4)];
	p->grad_ckpt = draw(3) ? OOM_CKPT_NONE : OOM_CKPT_FULL;
	p->lora_r = draw(4) ? 0 : 8;
	if (p->lora_r)
		snprintf(p->lora_targets, sizeof(p->lora_targets), "all-linear");
	p->micro_batch = 1 + (int64_t)draw(3);
	p->seq_len = 8 + (int64_t)draw(90);
}

/* ---- the program in operations ---- */

struct layer {
	struct oom_val mask;
};

static void put(struct oom_tape *t, struct oom_val *name, struct oom_val x)
{
	oom_drop(t, *name);
	*name = x;
}

static struct oom_val of_width(struct oom_tape *t, struct oom_val x, uint64_t width)
{
	return x.width == width ? oom_share(t, x) :
				  oom_op_linear(t, "fit", oom_keep(x), (struct oom_dim){width, "w"}, 0);
}

static struct oom_val attend(struct oom_tape *t, struct oom_val q, struct oom_val k)
{
	struct oom_val w = oom_op_bmm(t, "scores", oom_op_heads(t, of_width(t, q, 64)),
				      oom_op_heads(t, of_width(t, k, 64)), t->m_bss, D(4), 16);

	w = oom_op_softmax(t, w, true);
	w = oom_op_bmm(t, "context", w, oom_op_heads(t, of_width(t, k, 64)), t->m_bs, D(64), 1);
	return oom_op_merge_heads(t, w);
}

static void act(struct oom_tape *t, const struct layer *l, const struct action *c,
		struct oom_val name[NAMES])
{
	const struct oom_val a = oom_keep(name[c->a]), b = oom_keep(name[c->b]);
	const struct oom_dim w = {c->width, "width"};
	struct oom_val y, part[2];

	switch ((enum verb)c->verb) {
	case LINEAR: y = oom_op_linear(t, "proj", a, w, c->width & 8 ? OOM_BIAS : 0); break;
	case UNARY: y = oom_op_unary(t, (enum oom_unary)(c->width % OOM_NEG), a); break;
	case ADD: y = oom_op_add(t, a, of_width(t, b, a.width)); break;
	case MUL: y = oom_op_mul(t, a, of_width(t, b, a.width)); break;
	case NORM: y = oom_norm(t, c->width & 1 ? OOM_NORM_LAYER : OOM_NORM_RMS, "norm", a, 0); break;
	case SOFTMAX: y = oom_op_softmax(t, a, c->width & 1); break;
	case DROPOUT: y = oom_op_dropout(t, a, 0.1); break;
	case CAST: y = oom_op_cast(t, a, c->width & 8 ? OOM_F32 : OOM_DT_BF16); break;
	case SLICE: y = oom_op_slice(t, a, a.mono, (struct oom_dim){(a.width + 1) / 2, "half"}); break;
	case CAT: y = oom_op_cat(t, a, b, (struct oom_dim){a.width + b.width, "both"}); break;
	case SPLIT: {
		const struct oom_dim halves[2] = {{a.width / 2, "half"}, {a.width - a.width / 2, "rest"}};

		if (a.width < 2)
			return;
		oom_op_split(t, a, 2, halves, part);
		y = oom_op_cat(t, part[1], part[0], (struct oom_dim){a.width, "turned"});
		break;
	}
	case ATTEND: y = attend(t, a, b); break;
	case MASK: y = oom_is_none(l->mask) ? oom_op_copy(t, "clone", a) :
					      oom_op_add(t, a, oom_keep(l->mask)); break;
	default: y = of_width(t, name[0], c->width); break;
	}
	if (y.width > 4096)                     /* joined again and again: cut */
		y = oom_op_slice(t, y, y.mono, D(64));
	put(t, &name[c->to], y);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	struct oom_val name[NAMES], y;

	for (int k = 0; k < NAMES; k++)
		name[k] = oom_share(t, x);
	for (int k = 0; k < STEPS; k++)
		act(t, l, &now.step[now.kind[i]][k], name);
	y = oom_op_add(t, oom_keep(x), of_width(t, name[1], now.d));
	for (int k = 0; k < NAMES; k++)
		oom_drop(t, name[k]);
	return oom_op_cast(t, y, (enum oom_dtype)x.dt);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_param p = {.elems = 1};
	struct oom_val w, x, ids = oom_input(t, "ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.mask = oom_none()};

	(void)a;
	oom_param_policy(t, &p);
	w = oom_param(t, "weight", now.vocab, now.d, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, w, ids, now.vocab, (struct oom_dim){now.d, "d"}));
	if (now.masked)
		l.mask = oom_new(t, "mask", t->m_bs, D(1), (enum oom_dtype)p.dt);
	x = oom_layers(t, now.layers, now.kind, block, &l, x);
	oom_drop_shared(t, l.mask);
	x = oom_norm(t, OOM_NORM_RMS, "norm", x, 0);
	if (now.tied)
		x = oom_op_matmul_param(t, "head", x, w, oom_none(), D(now.vocab));
	else
		x = oom_op_linear(t, "head", x, D(now.vocab), OOM_IS_HEAD);
	return oom_op_sum(t, oom_op_cast(t, x, OOM_F32), OOM_MONO_ONE, D(1));
}

/* ---- adding up ---- */

struct sum {
	int64_t peak, net, at[OOM_CATS];
};

static uint64_t *sizes(const struct oom_tape *t, uint64_t b, uint64_t s)
{
	uint64_t *size = calloc(t->n_rows + 1, sizeof(*size));

	assert_non_null(size);
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct oom_row *r = &t->rows[i];
		const uint64_t n = oom_mono_eval(t, r->mono, b, s, s) * r->width *
				   oom_dtype_bytes((enum oom_dtype)r->dt);

		size[i] = (n + 511) / 512 * 512;
	}
	return size;
}

/* Event by event; a repeated region is gone through as often as it is repeated. */
static struct sum play(const struct oom_tape *t, enum oom_stream_id id, const uint64_t *size,
		       bool acc)
{
	const struct oom_stream *s = &t->streams[id];
	struct sum r = {0, 0, {0}};
	int64_t live[OOM_CATS] = {0};
	uint32_t round = 0;
	size_t begin = 0;

	for (size_t i = 0; i < s->n; i++) {
		const int32_t ev = s->ev[i], row = ev >> 2;
		int64_t by = 0;

		if (oom_ev_is_unit(ev))
			continue;
		if (ev < 0) {
			const uint32_t k = (uint32_t)(-1 - ev);

			if (!(k & 1)) {
				begin = i;
				round = 1;
			} else if (round++ < t->reps[k / 2]) {
				i = begin;
			}
			continue;
		}
		switch (ev & 3) {
		case OOM_EV_ALLOC: by = (int64_t)size[row]; break;
		case OOM_EV_FREE: by = -(int64_t)size[row]; break;
		case OOM_EV_FREE_ALL: by = -(int64_t)size[row] * t->rows[row].mult; break;
		case OOM_EV_GRAD: by = acc ? -(int64_t)size[row] : 0; break;
		}
		live[t->rows[row].cat] += by;
		r.net += by;
		if (r.net > r.peak) {
			r.peak = r.net;
			memcpy(r.at, live, sizeof(live));
		}
	}
	return r;
}

/* How much was compared, so that it is not nothing. */
static struct {
	int repeated, checkpointed, compiled, batches;
} seen;

static void same(const char *what, uint64_t model, int pass, int64_t got, int64_t want)
{
	if (got != want)
		fail_msg("model %llu, pass %d, %s: %lld, expected %lld", (unsigned long long)model, pass, what,
			 (long long)got, (long long)want);
}

/* ---- the properties ---- */

static const struct {
	enum oom_stream_id stream;
	bool acc;
} passes[OOM_PASSES] = {{OOM_STREAM_FWD, false},
			{OOM_STREAM_BWD, false},
			{OOM_STREAM_BWD, true},
			{OOM_STREAM_EVAL, false}};

/* walk, the walk with categories, and the sum over repeated layers one by one. */
static void check_walk(const struct oom_tape *t, uint64_t model, const uint64_t *size)
{
	for (int p = 0; p < OOM_PASSES; p++) {
		const struct sum want = play(t, passes[p].stream, size, passes[p].acc);
		const struct oom_span got = oom_walk(t, passes[p].stream, size, passes[p].acc);
		int64_t at[OOM_CATS], net[OOM_CATS], sum = 0;
		int32_t row;

		same("walk's net", model, p, got.net, want.net);
		same("walk's peak", model, p, got.peak, want.peak);
		oom_walk_cats(t, &t->streams[passes[p].stream], size, passes[p].acc, at, net, &row);
		for (int c = 0; c < OOM_CATS; c++) {
			same("a category at the peak", model, p, at[c], want.at[c]);
			sum += net[c];
		}
		same("net over the categories", model, p, sum, want.net);
	}
}

static void check_compiled(const struct oom_tape *t, uint64_t model)
{
	struct oom_compiled c = {0};
	struct oom_span got[OOM_PASSES];

	if (oom_compile(&c, t, false) == OOM_ERR_LIMIT) {
		oom_compiled_release(&c);       /* too many sizes to be worth it: not used then */
		return;
	}
	assert_true(c.ready);
	seen.compiled++;
	for (uint64_t b = 1; b <= 4; b++)
		for (uint64_t s = 1; s <= 300; s = s * 3 + b) {
			const struct oom_batch at = {.b = b, .s = s, .t = s, .ranks = {.n = 1, .pad = 1}};
			uint64_t *size;

			if (!oom_conds_hold(t, b, s, s))
				continue;
			seen.batches++;
			size = sizes(t, b, s);
			assert_true(oom_compiled_spans(&c, t, &at, (uint64_t)1 << 46, got));
			for (int p = 0; p < OOM_PASSES; p++) {
				const struct sum want = play(t, passes[p].stream, size, passes[p].acc);

				same("compiled net", model, p, got[p].net, want.net);
				same("compiled peak", model, p, got[p].peak, want.peak);
			}
			free(size);
		}
	oom_compiled_release(&c);
}

/* The tape in closed form against one that has every layer. */
static void check_expanded(const struct oom_tape *t, const struct oom_tape *all, uint64_t model,
			   const uint64_t *size)
{
	uint64_t *each = sizes(all, all->val_b, all->val_s);

	for (int p = 0; p < OOM_PASS_EVAL; p++) {
		const struct sum got = play(t, passes[p].stream, size, passes[p].acc);
		const struct sum want = play(all, passes[p].stream, each, passes[p].acc);

		same("net in closed form", model, p, got.net, want.net);
		same("peak in closed form", model, p, got.peak, want.peak);
		for (int c = 0; c < OOM_CATS; c++)
			same("a category in closed form", model, p, got.at[c], want.at[c]);
	}
	free(each);
}

static void random_models(void **state)
{
	static const struct oom_family family = {.name = "random", .step = step};
	struct oom_tape *t = calloc(1, sizeof(*t)), *all = calloc(1, sizeof(*all));
	struct oom_model *model = calloc(1, sizeof(*model));
	struct oom_error err;
	struct oom_plan plan;

	(void)state;
	assert_true(t && all && model);
	model->arch.family = &family;
	for (uint64_t m = 1; m <= MODELS; m++) {
		uint64_t *size;

		seed = m;
		make_model(&plan);
		if (oom_record(t, model, &plan, false, &err) || oom_record(all, model, &plan, true, &err))
			fail_msg("model %llu: %s", (unsigned long long)m, err.text);
		seen.repeated += t->n_reps > 0;
		seen.checkpointed += t->n_ckpts > 0;
		size = sizes(t, t->val_b, t->val_s);
		check_walk(t, m, size);
		check_compiled(t, m);
		check_expanded(t, all, m, size);
		free(size);
	}
	print_message("%d with repeated layers, %d with checkpoints, %d compiled at %d batches\n",
		      seen.repeated, seen.checkpointed, seen.compiled, seen.batches);
	assert_true(seen.repeated > MODELS / 2 && seen.checkpointed > MODELS / 8 &&
		    seen.compiled > MODELS / 2 && seen.batches > MODELS);
	oom_tape_release(t);
	oom_tape_release(all);
	free(t);
	free(all);
	free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(random_models)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
