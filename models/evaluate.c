/* The spine: one plan in, one evaluation out.
 *
 *   plan -> tape (recorded once per structure) -> row sizes for this batch -> phases -> peak
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator.h"
#include "blocks.h"
#include "engines.h"
#include "model.h"
#include "optimizers.h"
#include "program.h"
#include "timeline.h"

struct oom_evaluator *oom_evaluator_new(void)
{
	return calloc(1, sizeof(struct oom_evaluator));
}

void oom_evaluator_free(struct oom_evaluator *ev)
{
	if (!ev)
		return;
	for (int i = 0; i < SLOTS; i++) {
		if (!ev->slot[i].touched)
			continue;               /* never written: not a page of it exists */
		oom_tape_release(&ev->slot[i].tape);
		oom_compiled_release(&ev->slot[i].fast);
	}
	oom_tape_release(&ev->full);
	oom_replay_release(&ev->replay);
	free(ev->nodes);
	free(ev->size);
	free(ev);
}

/* ---- recording ---- */

/* The choices a tape's structure depends on: all but the plain numbers. */
static struct oom_plan structure_of(const struct oom_plan *p)
{
	struct oom_plan k = *p;

	k.micro_batch = k.global_batch = k.grad_accum = k.seq_len = k.tgt_len = 0;
	k.gpus = k.nodes = k.allocator = k.eval_accumulation = 0;
	k.optimizer = k.zero_stage = k.engine = k.offload_optimizer = k.offload_params =
		k.offload_activations = 0;
	k.dataloader_workers = k.prefetch_factor = k.low_cpu_mem = k.save_sharded =
		k.save_total_limit = 0;
	k.hybrid_shard = k.bucket_view = k.reduce_bucket = k.max_live_params = k.sub_group_size = 0;
	k.precision = oom_engine_casts(p) ? p->precision == OOM_AMP_FP16 ? OOM_FP16 : OOM_BF16 :
					    p->precision;
	k.margin = k.moe_imbalance = 0;
	k.surplus_params = 0;
	k.compute_capability = p->attn == OOM_ATTN_EAGER ? 8 : floor(oom_capability(p));
	if (k.compute_capability > 8)           /* Hopper and Blackwell run Ampere's kernels */
		k.compute_capability = 8;
	return k;
}

static void sizes_of(const struct oom_plan *p, uint64_t *b, uint64_t *s, uint64_t *tgt)
{
	*b = (uint64_t)p->micro_batch;
	*s = (uint64_t)p->seq_len;
	*tgt = (uint64_t)(p->tgt_len ? p->tgt_len : p->seq_len);
}

static void pass(struct oom_tape *t, const struct oom_arch *a, enum oom_stream_id stream,
		 bool train)
{
	struct oom_val loss;

	t->stream = stream;
	t->grad = train;
	t->train = train;
	t->cursor = 0;
	t->scope = "";
	oom_amp_enter(t);
	loss = a->family->step(t, a);
	/* accelerate's wrapper, on the way out */
	if (t->plan->convert_outputs_fp32 && train && !oom_is_none(t->output))
		oom_drop(t, oom_op_cast(t, oom_keep(t->output), OOM_F32));
	oom_drop(t, t->output);
	t->output = oom_none();
	oom_amp_leave(t);
	for (size_t i = 0; train && i < t->n_monos; i++)
		t->flops_fwd[i] = t->flops[i] + t->flops_attn[i];
	if (train && !t->status)
		oom_backward(t, loss);
	else
		oom_drop(t, loss);
	for (size_t i = 0; train && i < t->n_monos; i++)
		t->flops_again[i] = t->flops[i] + t->flops_attn[i] - t->flops_fwd[i];
}

/* Rows that outlive the forward are saved activations. */
static void mark_saved(struct oom_tape *t)
{
	const struct oom_stream *s = &t->streams[OOM_STREAM_FWD];

	for (size_t i = 0; i < t->n_rows; i++)
		if (t->rows[i].born == OOM_STREAM_FWD && t->rows[i].cat == OOM_CAT_TEMP)
			t->rows[i].cat = OOM_CAT_SAVED;
	for (size_t i = 0; i < s->n; i++)
		if (s->ev[i] >= 0 &&
		    ((s->ev[i] & 3) == OOM_EV_FREE || (s->ev[i] & 3) == OOM_EV_FREE_ALL) &&
		    t->rows[s->ev[i] >> 2].cat == OOM_CAT_SAVED)
			t->rows[s->ev[i] >> 2].cat = OOM_CAT_TEMP;
}

static enum oom_status record(struct oom_tape *t, const struct oom_model *m,
			      const struct oom_plan *p, bool expand, struct oom_error *err)
{
	static const uint8_t half[] = {[OOM_AMP_BF16] = OOM_DT_BF16,
				       [OOM_AMP_FP16] = OOM_DT_F16,
				       [OOM_BF16_AMP] = OOM_DT_BF16};
	/* task and labels are decided per recording */
	struct oom_arch *a = (struct oom_arch *)&m->arch;

	oom_tape_reset(t, a, p);
	sizes_of(p, &t->val_b, &t->val_s, &t->val_t);
	t->expand = expand;
	t->amp = p->precision == OOM_AMP_BF16 || p->precision == OOM_AMP_FP16 ||
		 p->precision == OOM_BF16_AMP;
	t->amp_dt = t->amp ? half[p->precision] : OOM_F32;
	a->task = p->task ? (enum oom_task)p->task : a->default_task;
	a->n_labels = p->num_labels ? (uint64_t)p->num_labels : a->config_labels;
	pass(t, a, OOM_STREAM_FWD, true);
	if (!t->status && !expand)
		pass(t, a, OOM_STREAM_EVAL, false);
	if (t->status) {
		oom_error_set(err, t->status, "%s",
			      t->err.text[0] ? t->err.text : "out of host memory");
		return t->status;
	}
	mark_saved(t);
	return OOM_OK;
}

/* ---- parameters ---- */

static uint64_t block(uint64_t bytes)
{
	return (bytes + 511) / 512 * 512;
}

/* NF4: two elements a byte, an 8-bit absmax per 64, an fp32 one per 256 of those, the code books
 * (bitsandbytes functional.py quantize_4bit); without double quantisation an fp32 absmax per 64. */
static uint64_t nf4_bytes(uint64_t n, bool twice, uint64_t *rounded)
{
	const uint64_t blocks = (n + 63) / 64, packed = (n + 1) / 2,
		       second = (blocks + 255) / 256 * 4;

	if (twice) {
		*rounded += block(packed) + block(blocks) + block(second) + block(64) + block(1024) + block(4);
		return packed + blocks + second + 64 + 1024 + 4;
	}
	*rounded += block(packed) + block(blocks * 4) + block(64);
	return packed + blocks * 4 + 64;
}

static void sum_params(struct program *g, const struct oom_plan *p)
{
	const struct oom_tape *t = &g->tape;
	uint64_t routed = 0;

	g->total = g->trainable = g->active = g->param_bytes = g->param_rounded = g->grad_bytes =
		g->layer = g->root = g->head = 0;
	memset(g->state, 0, sizeof(g->state));
	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *q = &t->params[i];
		uint64_t bytes = q->elems * oom_dtype_bytes((enum oom_dtype)q->dt), rounded = 0;

		if (q->flags & OOM_P_NF4)
			bytes = nf4_bytes(q->elems, p->double_quant, &rounded);
		else
			rounded = block(bytes);
		g->total += q->elems * q->count;
		g->param_bytes += bytes * q->count;
		g->param_rounded += rounded * q->count;
		if (q->flags & OOM_P_EXPERT)
			routed += q->elems * q->count;
		if (q->count > 1)
			g->layer += q->elems;
		if (q->flags & (OOM_P_EMBEDDING | OOM_P_HEAD))
			g->root += q->elems * q->count;
		if (q->flags & OOM_P_HEAD && !(q->flags & OOM_P_EMBEDDING))
			g->head += q->elems * q->count;
		if (!q->trainable)
			continue;
		g->trainable += q->elems * q->count;
		if (q->grad >= 0)
			g->grad_bytes += bytes * q->count;
	}
	if (!g->layer)
		/* no repeated block: all of it is one unit */
		g->layer = g->total - g->root;
	if (routed && t->arch->n_experts && t->arch->top_k)
		g->active = g->total - routed +
			    (uint64_t)((double)routed * (double)t->arch->top_k /
				       (double)t->arch->n_experts);
}

/* A structure does not depend on its optimizer, only these sums do.  A parameter no gradient
 * reaches has no state. */
static const struct oom_state_sums *sum_state(struct program *g, int64_t optimizer)
{
	const struct oom_optimizer *opt = oom_optimizer_at((size_t)optimizer);
	struct oom_state_sums *sums = &g->state[optimizer];

	if (sums->ready)
		return sums;
	for (size_t i = 0; i < g->tape.n_params; i++) {
		const struct oom_param *q = &g->tape.params[i];
		uint64_t rounded = 0;

		if (!q->trainable || q->grad < 0)
			continue;
		sums->bytes += opt->state(q, &rounded) * q->count;
		sums->rounded += rounded * q->count;
	}
	sums->quantised = strstr(opt->choice.name, "8bit");
	/* two code books of 256 fp32 values, shared */
	if (sums->quantised && sums->bytes) {
		sums->bytes += 2048;
		sums->rounded += 2048;
	}
	opt->temps(g->tape.params, g->tape.n_params, sums->rounded, sums->temps);
	sums->ready = true;
	return sums;
}

/* LoRA whose targets name no layer trains nothing: refused, with the names that exist. */
static enum oom_status check_adapters(const struct oom_tape *t, const struct oom_plan *p,
				      struct oom_error *err)
{
	const char *seen[32];
	char list[300] = "";
	size_t n = 0, used = 0;

	if (!p->lora_r)
		return OOM_OK;
	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *q = &t->params[i];
		size_t j = 0;

		if (q->flags & OOM_P_LORA)
			return OOM_OK;
		if (!(q->flags & OOM_P_LINEAR) || q->flags & OOM_P_HEAD)
			continue;
		while (j < n && strcmp(seen[j], q->scope))
			j++;
		if (j < n || n == sizeof(seen) / sizeof(seen[0]))
			continue;
		seen[n++] = q->scope;
		if (used < sizeof(list) - 1)
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 used ? ", " : "", q->scope);
	}
	return oom_error_set(err, OOM_ERR_INVALID,
			     "lora-targets \"%s\" match no layer of this model; it has: "
			     "all-linear, %s",
			     p->lora_targets, list);
}

/* ---- which program ---- */

static bool conds_hold(const struct oom_tape *t, uint64_t b, uint64_t s, uint64_t tgt)
{
	for (size_t i = 0; i < t->n_conds; i++) {
		const struct oom_cond *c = &t->conds[i];
		const double left = (double)oom_mono_eval(t, c->mono, b, s, tgt) * (double)c->width;
		const double right = (double)oom_mono_eval(t, c->mono2, b, s, tgt) *
				     (double)c->width2;

		if ((left > right) != c->above)
			return false;
	}
	return true;
}

/* The graph is needed while it is recorded only: one memory serves all tapes in turn. */
static void lend_nodes(struct oom_evaluator *ev, struct oom_tape *t)
{
	struct oom_node *nodes = t->nodes;
	const size_t cap = t->cap_nodes;

	t->nodes = ev->nodes;
	t->cap_nodes = ev->cap_nodes;
	ev->nodes = nodes;
	ev->cap_nodes = cap;
}

enum oom_status oom_program_for(struct oom_evaluator *ev, const struct oom_model *m,
				const struct oom_plan *p, struct program **out,
				struct oom_error *err)
{
	const struct oom_plan key = structure_of(p);
	struct oom_plan cast = *p;
	struct program *g, *oldest = &ev->slot[0];
	uint64_t b, s, tgt;
	enum oom_status st;

	sizes_of(p, &b, &s, &tgt);
	g = &ev->slot[ev->last];
	if (g->model == m && !memcmp(&g->key, &key, sizeof(key)) &&
	    conds_hold(&g->tape, b, s, tgt)) {
		*out = g;
		return OOM_OK;
	}
	for (int i = 0; i < SLOTS; i++) {
		g = &ev->slot[i];
		if (g->model == m && !memcmp(&g->key, &key, sizeof(key)) &&
		    conds_hold(&g->tape, b, s, tgt)) {
			g->used = ++ev->clock;
			ev->last = i;
			*out = g;
			return OOM_OK;
		}
		if (g->used < oldest->used)
			oldest = g;
	}
	g = oldest;
	g->touched = true;
	g->model = NULL;
	g->fast.ready = g->spanned = false;
	g->evaluations = 0;
	cast.precision = key.precision;
	if (!g->tape.nodes)
		lend_nodes(ev, &g->tape);
	st = record(&g->tape, m, &cast, false, err);
	if (!st)
		st = check_adapters(&g->tape, p, err);
	if (st)
		return st;
	sum_params(g, p);
	g->key = key;
	g->tape.plan = &g->key;
	g->model = m;
	g->used = ++ev->clock;
	ev->last = (int)(g - ev->slot);
	/* the graph has served: what stays is rows and events */
	lend_nodes(ev, &g->tape);
	g->tape.n_nodes = 0;
	*out = g;
	return OOM_OK;
}

/* ---- sizes and phases ---- */

#define ROW_LIMIT ((uint64_t)1 << 46)

enum oom_status oom_row_sizes(struct oom_evaluator *ev, const struct oom_tape *t, uint64_t b,
			      uint64_t s, uint64_t tgt, struct oom_error *err)
{
	uint64_t mono[96];

	if (t->n_rows > ev->cap_size) {
		uint64_t *q = realloc(ev->size, t->n_rows * 2 * sizeof(*q));

		if (!q)
			return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
		ev->size = q;
		ev->cap_size = t->n_rows * 2;
	}
	for (size_t i = 0; i < t->n_monos; i++)
		mono[i] = oom_mono_eval(t, (uint16_t)i, b, s, tgt);
	for (size_t i = 0; i < t->n_rows; i++) {
		const struct oom_row *r = &t->rows[i];
		uint64_t n;

		if (__builtin_mul_overflow(mono[r->mono],
					   r->width * oom_dtype_bytes((enum oom_dtype)r->dt), &n) ||
		    n > ROW_LIMIT)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "%s.%s alone would need more than 64 TiB", r->scope,
					     r->name);
		ev->size[i] = (n + 511) & ~(uint64_t)511;
	}
	return OOM_OK;
}

/* The batch as it lies on the GPU: ids, labels and mask, or pixels and labels. */
static uint64_t input_bytes(const struct oom_tape *t, const struct oom_arch *a,
			    const struct oom_plan *p, uint64_t b, uint64_t s, uint64_t tgt,
			    uint64_t *rounded)
{
	const enum oom_task task = p->task ? (enum oom_task)p->task : a->default_task;
	const uint64_t side = p->image_size ? (uint64_t)p->image_size : a->image_size;
	const bool full = p->precision == OOM_FP32 || p->precision == OOM_AMP_BF16 ||
			  p->precision == OOM_AMP_FP16;
	uint64_t x[4] = {b * s * 8, b * 8, 0, b * t->pixels * (full ? 4 : 2)};

	if (task == OOM_TASK_IMAGE_CLS)
		x[0] = b * (a->channels ? a->channels : 3) * side * side * (full ? 4 : 2);
	else if (task == OOM_TASK_SEQ2SEQ) {
		x[1] = b * tgt * 8;
		if (a->frame)
			x[0] = b * (a->frames ? a->frames : s) * a->frame * (full ? 4 : 2);
	}
	else if (task != OOM_TASK_SEQ_CLS)
		x[1] = b * s * 8;
	if (p->padding_mask)
		x[2] = b * s * 8;
	*rounded = block(x[0]) + block(x[1]) + block(x[2]) + block(x[3]);
	return x[0] + x[1] + x[2] + x[3];
}

/* The model as an engine meets it: its wrapped unit is a block, the rest (embeddings, head) is
 * the root's. */
static struct oom_engine_in engine_in(const struct program *g, const struct oom_state_sums *state)
{
	return (struct oom_engine_in){.total = g->total,
				      .trainable = g->trainable,
				      .params = g->param_rounded,
				      .grads = g->grad_bytes,
				      .opt = state->rounded,
				      .temps = {state->temps[0], state->temps[1]},
				      .layer = g->layer,
				      .root = g->root,
				      .head = g->head,
				      .half = g->param_bytes < 3 * g->total,
				      .quantised = state->quantised};
}

/* Net and peak of every pass.  Engines, optimizers and allocators do not change them: the last ones
 * are kept.  A structure evaluated often is compiled; the compiled form gives the same bytes. */
static enum oom_status spans_of(struct oom_evaluator *ev, struct program *g, uint64_t b, uint64_t s,
				uint64_t tgt, unsigned flags, struct oom_error *err)
{
	enum { WORTH = 48 };
	const struct oom_tape *t = &g->tape;
	enum oom_status st;

	if (g->spanned && g->span_of[0] == b && g->span_of[1] == s && g->span_of[2] == tgt &&
	    !(flags & OOM_EVAL_BUCKETS))
		return OOM_OK;
	g->spanned = false;
	if (++g->evaluations == WORTH && oom_compile(&g->fast, t) == OOM_ERR_MEMORY)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	if (!g->fast.ready || flags & OOM_EVAL_BUCKETS ||
	    !oom_compiled_spans(&g->fast, t, b, s, tgt, ROW_LIMIT, g->span)) {
		st = oom_row_sizes(ev, t, b, s, tgt, err);
		if (st)
			return st;
		g->span[OOM_PASS_FWD] = oom_walk(t, OOM_STREAM_FWD, ev->size, false);
		g->span[OOM_PASS_BWD] = oom_walk(t, OOM_STREAM_BWD, ev->size, false);
		g->span[OOM_PASS_BWD_ACC] = oom_walk(t, OOM_STREAM_BWD, ev->size, true);
		g->span[OOM_PASS_EVAL] = oom_walk(t, OOM_STREAM_EVAL, ev->size, false);
	}
	g->spanned = true;
	g->span_of[0] = b;
	g->span_of[1] = s;
	g->span_of[2] = tgt;
	return OOM_OK;
}

/* Logits of one evaluation batch as Trainer keeps them: under autocast accelerate has made them
 * fp32. */
static uint64_t eval_logits(const struct oom_arch *a, const struct oom_plan *p, uint64_t b,
			    uint64_t s, uint64_t tgt)
{
	const enum oom_task task = p->task ? (enum oom_task)p->task : a->default_task;
	const uint64_t bytes = p->precision == OOM_BF16 || p->precision == OOM_FP16 ? 2 : 4;

	if (task == OOM_TASK_SEQ_CLS || task == OOM_TASK_IMAGE_CLS)
		return b * (p->num_labels ? (uint64_t)p->num_labels : a->config_labels) * bytes;
	return b * (task == OOM_TASK_SEQ2SEQ ? tgt : s) * a->vocab * bytes;
}

/* n batches' logits pile up before they go to the host: the last batch meets n - 1 of them, and
 * torch.cat then copies the pile while it and the newest are alive (trainer.py evaluation_loop,
 * trainer_pt_utils.py nested_concat).  The first evaluation comes after training steps:
 * optimizer states lie there (held). */
static void pile_up(struct oom_eval *out, uint64_t n, uint64_t one, uint64_t base, uint64_t held)
{
	const uint64_t most = (uint64_t)1 << 60, pile = one && n > most / one ? most : n * one;
	const uint64_t run = out->peak[OOM_PHASE_EVAL] + held + pile - (pile < one ? pile : one),
		       cat = base + held + 2 * pile;

	out->peak[OOM_PHASE_EVAL] = run > cat ? run : cat;
	if (out->peak[OOM_PHASE_EVAL] > out->overall_peak) {
		out->overall_peak = out->peak[OOM_PHASE_EVAL];
		out->peak_phase = OOM_PHASE_EVAL;
	}
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Peak of the backward passes.  f is what the forward left on the card, all of it with what went to
 * the host: in the last layer that has been freed either way. */
static uint64_t backward_peak(const struct oom_span span[OOM_PASSES], const struct oom_states *s,
			      uint64_t base, uint64_t f, uint64_t all, uint64_t kept, bool many)
{
	const struct oom_span b = span[OOM_PASS_BWD], acc = span[OOM_PASS_BWD_ACC];
	const uint64_t moved = base + s->bwd, late = base + s->bwd_late;
	const uint64_t last = b.late > -(int64_t)all ? all + (uint64_t)b.late : 0,
		       last_acc = acc.late > -(int64_t)all ? all + (uint64_t)acc.late : 0;
	const uint64_t once = most(moved + f + (uint64_t)b.peak, late + last);

	if (!many && !s->grads_reduced)
		return once;
	/* reduced: a gradient is added to its shard and freed as soon as it is made; the shards
	 * fill up meanwhile */
	if (s->grads_reduced)
		return most(moved + f + (many ? kept : s->grads_first) + (uint64_t)acc.peak,
			    most(late + kept + last_acc, base + kept + s->bwd_end));
	return most(once, kept + most(moved + f + (uint64_t)acc.peak, late + last_acc));
}

static void phases(const struct program *g, const struct oom_plan *p,
		   const struct oom_span span[OOM_PASSES], struct oom_eval *out, uint64_t base,
		   const struct oom_states *states)
{
	const struct oom_tape *t = &g->tape;
	const struct oom_span f = span[OOM_PASS_FWD], b = span[OOM_PASS_BWD],
			      e = span[OOM_PASS_EVAL];
	/* activation offloading: what repeated layers keep is on the host but for one (torchtune
	 * _activation_offloading.py) */
	const uint64_t away = p->offload_activations && f.layers > f.one ?
				      (uint64_t)(f.layers - f.one) :
				      0;
	const bool many = p->grad_accum > 1, reduced = states->grads_reduced;
	const uint64_t grads = (uint64_t)(f.net + b.net), kept = reduced ? states->grads : grads;
	const uint64_t held = many ? kept : 0, start = base + states->fwd_start + held,
		       left = (uint64_t)f.net - away;
	const uint64_t fpeak = most(base + states->fwd + held + (uint64_t)f.peak - away, start);
	const uint64_t bpeak = backward_peak(span, states, base, left, (uint64_t)f.net, kept, many);

	out->offloaded_bytes = away;
	out->peak[OOM_PHASE_LOAD] = out->end[OOM_PHASE_LOAD] = states->params + t->buffer_rounded;
	out->peak[OOM_PHASE_EVAL] = base + states->fwd + (uint64_t)e.peak;
	out->end[OOM_PHASE_EVAL] = base;
	for (int step = 0; step < 2; step++) {
		const uint64_t opt = step || states->opt_from_start ? states->opt : 0;
		const int i = step * 3;

		out->peak[OOM_PHASE_FWD1 + i] = fpeak + opt;
		out->end[OOM_PHASE_FWD1 + i] = base + opt + held + left;
		out->peak[OOM_PHASE_BWD1 + i] = bpeak + opt;
		out->end[OOM_PHASE_BWD1 + i] = base + opt + kept;
		out->peak[OOM_PHASE_OPT1 + i] = base + kept + states->opt + states->temps[step];
		out->end[OOM_PHASE_OPT1 + i] = base + states->opt;
	}
	out->overall_peak = 0;
	for (int i = OOM_PHASE_FWD1; i <= OOM_PHASE_OPT2; i++)
		if (out->peak[i] > out->overall_peak) {
			out->overall_peak = out->peak[i];
			out->peak_phase = (enum oom_phase)i;
		}
	out->saved_bytes = left;
	out->floor_bytes = states->comm + (states->bwd > states->fwd ? states->bwd : states->fwd);
}

/* A product's two gradients cost as much as itself each; frozen weights need but one of them. */
static double flops_of(const struct program *g, const struct oom_plan *p, uint64_t b, uint64_t s,
		       uint64_t tgt)
{
	const struct oom_tape *t = &g->tape;
	double f = 0;

	for (size_t i = 0; i < t->n_monos; i++)
		f += ((p->lora_r ? 2 : 3) * t->flops_fwd[i] + t->flops_again[i]) *
		     (double)oom_mono_eval(t, (uint16_t)i, b, s, tgt);
	return f / (double)(b ? b : 1);
}

/* What is fixed by the structure and its optimizer. */
static void counts(const struct program *g, const struct oom_state_sums *state,
		   struct oom_eval *out)
{
	out->total_params = g->total;
	out->trainable_params = g->trainable;
	out->active_params = g->active ? g->active : g->total;
	out->param_bytes = g->param_bytes;
	out->buffer_bytes = g->tape.buffer_bytes;
	out->grad_bytes = g->grad_bytes;
	out->opt_bytes = state->bytes;
}

/* Weights on disk decide how many parameters a type has that no family models: the difference is
 * counted like the rest, activations are not. */
static void surplus(const struct program *g, const struct oom_plan *p, struct oom_engine_in *in,
		    struct oom_eval *out)
{
	const double more = p->surplus_params > 0 ? (double)p->surplus_params : 0,
		     n = (double)(g->total ? g->total : 1);
	const uint64_t elems = (uint64_t)more,
		       bytes = (uint64_t)(more * (double)g->param_bytes / n);

	if (!elems)
		return;
	in->total += elems;
	in->params += bytes;
	out->total_params += elems;
	out->active_params += elems;
	out->param_bytes += bytes;
	if (p->lora_r)
		return;
	in->trainable += elems;
	in->grads += (uint64_t)(more * (double)g->grad_bytes / n);
	in->opt += (uint64_t)(more * (double)out->opt_bytes / n);
	out->trainable_params += elems;
	out->grad_bytes += in->grads - g->grad_bytes;
	out->opt_bytes += (uint64_t)(more * (double)out->opt_bytes / n);
}

enum oom_status oom_evaluate(struct oom_evaluator *ev, const struct oom_model *model,
			     const struct oom_plan *plan, unsigned flags, struct oom_eval *out,
			     struct oom_error *err)
{
	uint64_t b, s, tgt, inputs, base;
	const struct oom_state_sums *state;
	struct oom_engine_in in;
	struct oom_states states;
	struct program *g;
	enum oom_status st;

	if (plan->engine == OOM_ENGINE_MEGATRON)
		return oom_megatron_evaluate(model, plan, flags, out, err);
	sizes_of(plan, &b, &s, &tgt);
	st = oom_program_for(ev, model, plan, &g, err);
	if (!st)
		st = spans_of(ev, g, b, s, tgt, flags, err);
	if (st)
		return st;
	out->input_bytes = input_bytes(&g->tape, &model->arch, plan, b, s, tgt, &inputs);
	out->warning = g->tape.warning	   ? g->tape.warning :
		       g->tape.approximate ? "PEFT 0.20 stops with an error on this model with "
					     "these adapters: the figures are what it would hold" :
					     "";
	state = sum_state(g, plan->optimizer);
	counts(g, state, out);
	in = engine_in(g, state);
	surplus(g, plan, &in, out);
	st = oom_engine_states(plan, &in, &states, err);
	if (st)
		return st;
	if (!states.grads_reduced && !plan->lora_r)     /* theirs are in no tape */
		states.comm += in.grads - g->grad_bytes;
	if (*states.warning)
		out->warning = states.warning;
	base = states.params + states.comm + g->tape.buffer_rounded + inputs;
	phases(g, plan, g->span, out, base, &states);
	if (!states.grads_reduced && !plan->lora_r)     /* no collective's buffer */
		out->floor_bytes -= in.grads - g->grad_bytes;
	if (plan->eval_accumulation)
		pile_up(out, (uint64_t)plan->eval_accumulation,
			eval_logits(&model->arch, plan, b, s, tgt), base, states.opt);
	if (flags & OOM_EVAL_BUCKETS) {
		const enum oom_phase at = (enum oom_phase)(flags >> 8), top = out->peak_phase;
		const uint64_t most = out->overall_peak;

		if (at) {
			out->peak_phase = at;
			out->overall_peak = out->peak[at];
		}
		oom_compose(g, plan, ev->size, out, inputs, &states);
		out->peak_phase = top;
		out->overall_peak = most;
	}
	out->host_pinned_bytes = states.host_pinned + out->offloaded_bytes;
	out->host_pageable_bytes = states.host_pageable;
	out->nvme_bytes = states.nvme;
	out->flops_per_sample = flops_of(g, plan, b, s, tgt);
	out->reserved_replayed = false;
	out->reserved_bytes = oom_reserved_estimate(out, plan);
	/* the replay plays plain single-GPU steps: sharded and offloaded plans keep the estimate */
	if (flags & OOM_EVAL_REPLAY && !plan->zero_stage && plan->gpus == 1 &&
	    plan->offload_optimizer == OOM_OFFLOAD_NONE && !plan->offload_activations) {
		st = record(&ev->full, model, plan, true, err);
		if (!st)
			st = oom_replay(&ev->replay, &ev->full, plan, &out->reserved_bytes, err);
		out->reserved_replayed = !st;
		if (st == OOM_ERR_LIMIT)
			st = OOM_OK;            /* too deep to replay: the estimate stands */
	}
	/* the pile of an evaluation, which is not replayed */
	if (out->reserved_bytes < out->overall_peak) {
		out->reserved_bytes = out->overall_peak;
		out->reserved_replayed = false;
	}
	oom_overheads(out, plan);
	return st;
}
