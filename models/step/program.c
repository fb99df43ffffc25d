/* Programs: a structure's tape and the sums that are fixed by it, recorded when first asked for. */
#include "step/program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "blocks/blocks.h"
#include "families/model.h"
#include "ops/backward.h"
#include "tape/round.h"
#include "step/objectives.h"
#include "tape/timeline.h"
#include "tape/unroll.h"
#include "step/time/work.h"

static struct program *program_new(void)
{
	struct program *g = malloc(sizeof(*g));

	if (g)
		memset(g, 0, offsetof(struct program, key));
	return g;
}

/* ---- recording ---- */

double oom_kernels_of(const struct oom_plan *p)
{
	const double sm = p->attn == OOM_ATTN_EAGER ? 8 : floor(oom_capability(p));

	return sm > 8 ? 8 : sm;
}

/* FSDP's mixed precision is 16-bit weights in the tape; accelerate's autocast stays around FSDP1's (accelerator.py
 * prepare_model: native_amp; _prepare_fsdp2 goes without), which runs layer norms, losses and what else is on its
 * fp32 list in fp32. */
static int64_t recorded_precision(const struct oom_plan *p)
{
	const bool half = p->precision == OOM_AMP_FP16;

	if (!oom_engine_casts(p))
		return p->precision;
	if (oom_plan_autocasts(p))
		return half ? OOM_FP16_AMP : OOM_BF16_AMP;
	return half ? OOM_FP16 : OOM_BF16;
}

/* The choices a tape's structure depends on: all but the plain numbers. */
static struct oom_plan structure_of(const struct oom_plan *p)
{
	struct oom_plan k = *p;

	k.micro_batch = k.global_batch = k.grad_accum = k.seq_len = k.tgt_len = 0;
	k.gpus = k.nodes = k.gpus_per_node = k.allocator = k.lazy_modules = k.max_split = k.eval_accumulation = 0;
	/* the first GPU gathers what the replicas return */
	k.data_parallel = oom_plan_gathered_replicas(p) > 1;
	if (k.data_parallel)
		k.gpus = p->gpus;
	k.optimizer = k.zero_stage = k.engine = k.offload_optimizer = k.offload_gradients = k.offload_params =
		k.offload_activations = 0;
	/* hooks that gather parameters cut a compiled model's graph (ops/derivatives.c, softmax) */
	if (p->compile && !p->compile_layers && p->zero_stage == 3)
		k.zero_stage = 3;
	k.eval_generates = k.eval_new_tokens = k.eval_beams = 0;
	/* beside a base in fp32 shards, too, which FSDP2 gathers in 16 bit with what lies in its units */
	if (oom_engine_casts_adapters(p) || (oom_engine_casts(p) && oom_engine_of(p)->gathers_apart))
		k.adapter_fp32 = 0;
	if (k.adapter_fp32)
		k.quant_storage = 0;
	if (!oom_quantised_in_buffers(oom_plan_base(p)))
		k.packed_weights = 0;
	k.evaluates = k.eval_batch = k.step_in_backward = k.torch_autocast = k.zero_grad = k.fp32_grads = 0;
	k.no_sync = k.reduce_dtype = k.backward_prefetch = k.overlap_comm = 0;
	k.dataloader_workers = k.prefetch_factor = k.low_cpu_mem = k.quantised_load = k.empty_cache = k.save_sharded =
		k.save_total_limit = 0;
	k.hybrid_shard = k.bucket_view = k.reduce_bucket = k.max_live_params = k.sub_group_size = 0;
	k.rank0_contexts = k.prefetch_bucket = k.persistence = k.pp_schedule = k.cp_comm = k.recompute_layers = 0;
	k.precision = recorded_precision(p);
	k.use_reentrant = oom_ckpt_reenters(p) + oom_ckpt_around_units(p);
	k.margin = k.moe_imbalance = k.vllm_share = k.max_grad_norm = 0;
	k.vllm_sleep = k.rollouts = 0;
	k.fp8 = !oom_rank_engine_of(p) && p->fp8 != OOM_FP8_NONE;
	k.surplus_params = k.precision_unasked = k.precision_by_card = k.zero_said = k.framework = 0;
	k.step_in_backward = k.ema = 0;
	k.compute_capability = oom_kernels_of(p);
	return k;
}

void oom_batch_sizes(const struct oom_plan *p, uint64_t *b, uint64_t *s, uint64_t *tgt)
{
	*b = (uint64_t)p->micro_batch * oom_objective_of(p)->rows;
	*s = (uint64_t)p->seq_len + oom_virtual_tokens(p);
	*tgt = (uint64_t)(p->tgt_len ? p->tgt_len : p->seq_len);
}

void oom_program_size(struct program *g, const struct oom_batch *at)
{
	if (g->sized.known && g->sized.b == at->b && g->sized.s == at->s && g->sized.t == at->t)
		return;
	oom_monos_eval(&g->tape, at->b, at->s, at->t, g->sized.mono);
	g->sized.flops = oom_work_of(&g->tape, g->term, &g->fixed, g->sized.mono, &g->sized.work);
	g->sized.b = at->b;
	g->sized.s = at->s;
	g->sized.t = at->t;
	g->sized.known = true;
}

static void pass(struct oom_tape *t, const struct oom_arch *a, enum oom_stream_id stream,
		 bool train)
{
	struct oom_val loss;

	t->stream = stream;
	t->grad = train;
	t->train = train;
	t->cursor = t->unit = 0;
	t->beside.cursor = 0;
	oom_selection_pass(t);
	t->scope = "";
	loss = oom_objective_forward(t, a, train);
	oom_router_leave(t);
	if (train)
		oom_work_forward(t);
	if (train && !t->status)
		oom_backward(t, loss);
	else
		oom_drop(t, loss);
	while (t->n_outputs)                    /* what the training loop has kept */
		oom_drop(t, t->outputs[--t->n_outputs]);
	if (train)
		oom_work_backward(t);
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

static bool has_rows(const struct oom_tape *t, uint64_t vocab)
{
	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].flags & OOM_P_EMBEDDING && t->params[i].rows == vocab)
			return true;
	return false;
}

enum oom_status oom_record(struct oom_tape *t, const struct oom_model *m,
			   const struct oom_plan *p, bool expand, struct oom_error *err)
{
	static const uint8_t half[] = {[OOM_AMP_BF16] = OOM_DT_BF16,
				       [OOM_AMP_FP16] = OOM_DT_F16,
				       [OOM_BF16_AMP] = OOM_DT_BF16,
				       [OOM_FP16_AMP] = OOM_DT_F16};
	const struct oom_arch *a = &m->arch;
	struct oom_arch resized;

	if (oom_vocab_of(p, a) != a->vocab) {
		resized = *a;
		resized.vocab = oom_vocab_of(p, a);
		a = &resized;
	}
	t->task = oom_task_of(p, a);           /* which says what modules are called */
	oom_tape_reset(t, a, p);
	if (t->status) {
		t->arch = &m->arch;
		return oom_error_set(err, t->status, "out of host memory");
	}
	t->teacher = m->teacher ? &m->teacher->arch : NULL;
	oom_batch_sizes(p, &t->val_b, &t->val_s, &t->val_t);
	t->expand = expand;
	t->amp = p->precision == OOM_AMP_BF16 || p->precision == OOM_AMP_FP16 ||
		 p->precision == OOM_BF16_AMP || p->precision == OOM_FP16_AMP;
	t->amp_dt = t->amp ? half[p->precision] : OOM_F32;
	t->n_labels = oom_labels_of(p, a);
	pass(t, a, OOM_STREAM_FWD, true);
	oom_adapter_shared(t);
	if (oom_loss_takes_head(p->fused_ce) && !t->fused)
		oom_tape_warn(t, p->fused_ce == OOM_LOSS_FUSED ?
				     "loss=fused has no effect: this model's head is not one that is fused" :
				     "this loss has no effect: this model's head is not one that it takes in");
	if (p->num_layers && !t->depth_asked)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "num-layers: the depth of %s is not one number; change it in the config",
			      a->model_type);
	if (!t->status && !expand)
		pass(t, a, OOM_STREAM_EVAL, false);
	if (a == &resized && !t->status && !has_rows(t, resized.vocab))
		oom_tape_fail(t, OOM_ERR_INVALID, "resize-vocab: %s has no table of words that is resized", a->model_type);
	t->arch = &m->arch;                     /* a resized one lives no longer */
	if (t->status && t->err.text[0]) {
		oom_read_explain(&a->rd, t->of_config ? OOM_SUSPECT_ANY : OOM_SUSPECT_NOTHING, &t->err);
		return oom_error_set(err, t->status, "%s", t->err.text);
	}
	if (t->status)
		return oom_error_set(err, t->status, "out of host memory");
	mark_saved(t);
	return OOM_OK;
}

/* ---- which program ---- */

/* The graph is needed while it is recorded only: one memory serves all tapes in turn. */
static void lend_nodes(struct oom_evaluator *ev, struct oom_tape *t)
{
	struct oom_node *nodes = t->nodes;
	struct oom_sums *sums = t->sums;
	const size_t cap = t->cap_nodes;
	void *ctx = t->ctx;

	t->nodes = ev->nodes;
	t->cap_nodes = ev->cap_nodes;
	ev->nodes = nodes;
	ev->cap_nodes = cap;
	t->ctx = ev->ctx;
	ev->ctx = ctx;
	t->sums = ev->sums;
	ev->sums = sums;
}

static bool serves(const struct program *g, const struct oom_model *m, const struct oom_plan *key,
		   const struct oom_batch *at)
{
	return oom_model_is(g->model, g->print, m) && !memcmp(&g->key, key, sizeof(*key)) &&
	       oom_conds_hold(&g->tape, at->b, at->s, at->t);
}

static void forget(struct oom_evaluator *ev, struct program *g)
{
	oom_before_forget(ev, g, NULL);
	g->model = NULL;
	g->sized.known = false;
	for (int i = 0; i < OOM_VARIANTS && g->variant[i]; i++)
		oom_variant_release(g->variant[i]);
}

static void keep_as(struct program *g, const struct oom_model *m, const struct oom_plan *key)
{
	g->key = *key;
	g->tape.plan = &g->key;
	g->model = m;
	g->print = m->print;
}

static enum oom_status record_in(struct oom_evaluator *ev, struct program *g,
				 const struct oom_model *m, const struct oom_plan *p,
				 const struct oom_plan *key, bool expand, struct oom_error *err)
{
	struct oom_plan cast = *p;
	enum oom_status st;

	forget(ev, g);
	cast.precision = key->precision;
	cast.adapter_fp32 = key->adapter_fp32;
	if (!g->tape.nodes)
		lend_nodes(ev, &g->tape);
	st = oom_record(&g->tape, m, &cast, expand, err);
	if (!st)
		st = oom_names_check(&g->tape, p, err);
	if (!st)
		st = oom_program_bound(&g->tape, err);
	if (st)
		return st;
	oom_program_sum(g, p);
	oom_work_terms(&g->tape, g->term, &g->fixed);
	keep_as(g, m, key);
	/* the graph has served: what stays is rows and events */
	lend_nodes(ev, &g->tape);
	g->tape.n_nodes = 0;
	return OOM_OK;
}

/* Every layer, out of the tape that has the repeated ones once: a copy costs a tenth of a recording. */
static enum oom_status unroll_in(struct oom_evaluator *ev, struct program *g, const struct oom_model *m,
				 const struct oom_plan *p, const struct oom_plan *key, struct oom_error *err)
{
	struct program *once;
	enum oom_status st = oom_program_for(ev, m, p, &once, err);

	if (st)
		return st;
	forget(ev, g);
	oom_tape_release(&g->tape);
	st = oom_unroll(&once->tape, &g->tape);
	if (st == OOM_ERR_LIMIT)
		return record_in(ev, g, m, p, key, true, err);
	if (st)
		return oom_error_set(err, st, "out of host memory");
	oom_program_sum(g, p);
	keep_as(g, m, key);
	return OOM_OK;
}

/* The place for one more: an empty one, else the one that was asked for longest ago. */
static struct program **place_in(struct program **slot, size_t n)
{
	size_t oldest = 0;

	for (size_t i = 0; i < n; i++) {
		if (!slot[i] || !slot[i]->model)        /* what could not be recorded is in the way of nobody */
			return &slot[i];
		if (slot[i]->used < slot[oldest]->used)
			oldest = i;
	}
	return &slot[oldest];
}

static enum oom_status record_anew(struct oom_evaluator *ev, struct program **slot, size_t n, bool expand,
				   const struct oom_model *m, const struct oom_plan *p,
				   const struct oom_plan *key, size_t *at, struct oom_error *err)
{
	struct program **place = place_in(slot, n);

	if (!*place)
		*place = program_new();
	*at = (size_t)(place - slot);
	if (!*place)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	return expand ? unroll_in(ev, *place, m, p, key, err) : record_in(ev, *place, m, p, key, false, err);
}

static enum oom_status find(struct oom_evaluator *ev, struct program **slot, size_t n, bool expand,
			    const struct oom_model *m, const struct oom_plan *p,
			    struct program **out, struct oom_error *err)
{
	const struct oom_plan key = structure_of(p);
	enum oom_status st = OOM_OK;
	struct oom_batch at;
	size_t i = 0;

	oom_batch_sizes(p, &at.b, &at.s, &at.t);
	if (!expand && slot[ev->last] && serves(slot[ev->last], m, &key, &at)) {
		*out = slot[ev->last];
		return OOM_OK;
	}
	while (i < n && slot[i] && !serves(slot[i], m, &key, &at))
		i++;
	if (i == n || !slot[i])
		st = record_anew(ev, slot, n, expand, m, p, &key, &i, err);
	if (st)
		return st;
	*out = slot[i];
	(*out)->used = ++ev->clock;
	if (!expand)
		ev->last = (int)i;
	return OOM_OK;
}

bool oom_program_holds(struct program *g, const struct oom_batch *at)
{
	oom_program_size(g, at);
	return oom_conds_hold_at(&g->tape, g->sized.mono, at->b, at->s, at->t);
}

enum oom_status oom_program_for(struct oom_evaluator *ev, const struct oom_model *m,
				const struct oom_plan *p, struct program **out,
				struct oom_error *err)
{
	return find(ev, ev->slot, SLOTS, false, m, p, out, err);
}

enum oom_status oom_program_full(struct oom_evaluator *ev, const struct oom_model *m,
				 const struct oom_plan *p, struct program **out,
				 struct oom_error *err)
{
	return find(ev, ev->full, FULL_SLOTS, true, m, p, out, err);
}
