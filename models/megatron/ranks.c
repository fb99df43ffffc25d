/* The ranks of a launch as one evaluation: the fullest one's phases, its step for the allocator, its
 * ledger. */
#include "ranks.h"

#include <stdio.h>
#include <string.h>

#include "families/model.h"
#include "rank.h"
#include "step/phases.h"
#include "step/replay.h"
#include "step/warnings.h"

/* When each kind of row is there, and whose it is. */
static const struct {
	uint8_t bucket, from, until;
	bool training;
	const char *kind, *born;        /* words for the ledger */
} life[OOM_MG_ROW_KINDS] = {
	[OOM_MG_ROW_WEIGHTS] = {OOM_BUCKET_PARAMS, OOM_AT_LOAD, OOM_AT_NEVER, false, "state", "load"},
	[OOM_MG_ROW_GRADS] = {OOM_BUCKET_GRADS, OOM_AT_LOAD, OOM_AT_NEVER, false, "state", "load"},
	[OOM_MG_ROW_MASTER] = {OOM_BUCKET_OPT, OOM_AT_LOAD, OOM_AT_NEVER, false, "state", "load"},
	[OOM_MG_ROW_OPTIMIZER] = {OOM_BUCKET_OPT, OOM_AT_STEP, OOM_AT_NEVER, false, "state",
				  "optimizer"},
	[OOM_MG_ROW_PASSING] = {OOM_BUCKET_GRADS, OOM_AT_BACKWARD, OOM_AT_STEP_END, true, "state",
				"backward"},
	[OOM_MG_ROW_LOW_GRADS] = {OOM_BUCKET_GRADS, OOM_AT_BACKWARD, OOM_AT_NEVER, true, "state",
				  "backward"},
	[OOM_MG_ROW_STEP] = {OOM_BUCKET_TEMP, OOM_AT_STEP, OOM_AT_STEP_END, true, "temporary",
			     "optimizer"},
	[OOM_MG_ROW_COPIES] = {OOM_BUCKET_GRADS, OOM_AT_STEP, OOM_AT_FORWARD, false, "state",
			       "optimizer"},
	[OOM_MG_ROW_FIXED] = {OOM_BUCKET_BUFFERS, OOM_AT_START, OOM_AT_NEVER, false, "workspace",
			      "start"},
	[OOM_MG_ROW_SAVED] = {OOM_BUCKET_SAVED, OOM_AT_FORWARD, OOM_AT_STEP, true,
			      "saved activation", "forward"},
	[OOM_MG_ROW_GATHERED] = {OOM_BUCKET_COMM, OOM_AT_FORWARD, OOM_AT_STEP, false,
				 "communication buffer", "forward"},
	[OOM_MG_ROW_TRANSIENT] = {OOM_BUCKET_LOGITS, OOM_AT_OUTPUT, OOM_AT_STEP, false,
				  "temporary", "forward"},
	[OOM_MG_ROW_RECOMPUTED] = {OOM_BUCKET_RECOMPUTE, OOM_AT_BACKWARD, OOM_AT_STEP, false,
				   "temporary", "backward"},
};

/* The rank's step: its rows, each from its moment to its other.  What one kind has several rows of
 * is one holding. */
static void schedule_of(const struct oom_mg_rank *k, struct oom_schedule *s)
{
	uint64_t sum[OOM_MG_ROW_KINDS] = {0};

	memset(s, 0, sizeof(*s));
	s->ranks = (struct oom_ranks){.n = 1, .pad = 1};
	s->chain.whole = true;
	for (size_t i = 0; i < k->n_rows; i++)
		sum[k->row[i].kind] += k->row[i].bytes;
	for (int i = 0; i < OOM_MG_ROW_KINDS; i++)
		oom_add_holding(s, life[i].kind, (enum oom_bucket)life[i].bucket, sum[i],
			 (enum oom_moment_of_step)life[i].from,
			 (enum oom_moment_of_step)life[i].until)->training = life[i].training;
}

/* The model undivided: its parameters, each once and without padding. */
static struct mg_params whole(const struct oom_megatron *m)
{
	struct mg_params sum = {0};
	struct oom_megatron w = *m;
	struct mg_chunk c[MG_CHUNKS];
	size_t n;

	w.tp = w.pp = w.cp = w.ep = w.etp = w.n_gpus = w.dp = 1;
	w.vpp = w.first_stage_layers = w.last_stage_layers = w.account_embedding = w.account_loss = 0;
	w.layout[0] = 0;
	w.split = OOM_MG_SPLIT_EVEN;
	w.padded_vocab = w.vocab;
	n = oom_mg_chunks(&w, 0, c);
	for (size_t i = 0; i < n; i++) {
		const struct mg_params p = oom_mg_params(&w, &c[i], true);

		sum.dense += p.dense;
		sum.expert += p.expert;
		sum.adapters += p.adapters;
		sum.expert_adapters += p.expert_adapters;
	}
	return sum;
}

/* Between the ends of the pipeline ranks hold the same layers, as far as they are of one kind; the
 * earlier have more passes in flight, so the first of them is the fullest. */
static bool less_than_before(const struct oom_megatron *m, int64_t r)
{
	return r > 1 && r < m->pp - 1 && oom_mg_ranks_alike(m);
}

/* Megatron's ranks and torchtitan's, which differ in what their layers keep and in what is divided over
 * the others. */
struct kind {
	enum oom_status (*rank)(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
				struct mg_layers *layers, struct oom_mg_rank *out, struct oom_error *err);
	enum oom_status (*flow)(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
				struct mg_flow *out, struct oom_error *err);
	const char *(*warning)(const struct oom_megatron *m);
};

/* The fullest pipeline rank. */
struct fullest {
	struct oom_megatron m;
	struct oom_mg_rank top;
	int64_t at;
	uint64_t least;                 /* the emptiest one's peak */
};

static enum oom_status find_fullest(const struct kind *kind, const struct oom_model *model,
				    const struct oom_plan *p, struct fullest *f, struct oom_error *err)
{
	struct mg_layers layers = {.known = {false, false}};
	struct oom_mg_rank one;
	enum oom_status st = oom_megatron_launch(model, p, &f->m, err);

	f->at = 0;
	f->top.peak_bytes = 0;
	f->least = UINT64_MAX;
	for (int64_t r = 0; !st && r < f->m.pp; r++) {
		if (less_than_before(&f->m, r) && r < f->m.pp - 2)
			continue;
		st = kind->rank(&f->m, p, r, &layers, &one, err);
		f->least = one.peak_bytes < f->least ? one.peak_bytes : f->least;
		if (one.peak_bytes <= f->top.peak_bytes)
			continue;
		f->top = one;
		f->at = r;
	}
	return st;
}

#define MIXED \
	"FSDP2 with tensor, pipeline, context or expert parallelism: torchtitan's own layers in place of " \
	"the model's, from its source (estimated); the fullest pipeline rank; " \
	"the embedding and the head count as a layer each where stages are cut; balanced routing"
#define NEAREST \
	"engine megatron: Megatron-core's own layers in place of the model's; the fullest pipeline " \
	"rank; balanced routing"

/* Megatron itself takes layers that do not divide over the stages when it is told how they lie. */
#define SPLITS(text) \
	{ \
		[OOM_MG_SPLIT_EVEN] = text, \
		[OOM_MG_SPLIT_ENDS] = text "; the layers do not divide over the stages: embedding and loss " \
					   "take the place of a layer each (--pp-embedding --pp-loss)", \
		[OOM_MG_SPLIT_UP] = text "; the layers do not divide over the stages: rounded up, the last " \
					 "stage takes what is left (--pp-layout)", \
		[OOM_MG_SPLIT_BALANCED] = text "; the layers do not divide over the stages: they differ by " \
					       "one (--pp-layout)", \
	}
static const char *const warnings[] = SPLITS(NEAREST);
static const char *const adapted_warnings[] =
	SPLITS(NEAREST "; adapters as Megatron-Bridge's LoRA has them, one for queries, keys and values and one for gate "
		       "and up, from its source (estimated)");

/* What changes the seconds alone here takes memory all the same. */
static void warn(const struct kind *kind, const struct oom_megatron *m, const struct oom_plan *p, struct oom_eval *out)
{
	size_t n = oom_warnings_add(out, 0, kind->warning(m));

	if (p->cuda_graphs)
		n = oom_warnings_add(out, n, "the pools of CUDA graphs are not counted: the run takes more");
	if (p->tp_overlap && m->tp > 1)
		oom_warnings_add(out, n, "the user buffers of tp-comm-overlap are not counted: the run takes more");
}

static enum oom_status evaluate(const struct kind *kind, const struct oom_model *model,
				const struct oom_plan *p, struct oom_eval *out, struct oom_alive *alive,
				struct oom_error *err)
{
	const struct oom_megatron *m;
	struct oom_schedule s;
	struct mg_params all;
	struct fullest f;
	enum oom_status st = find_fullest(kind, model, p, &f, err);

	if (st)
		return st;
	m = &f.m;
	all = whole(m);
	memset(out, 0, sizeof(*out));
	out->peak_op = out->peak_module = "";
	out->trainable_params = out->total_params = (uint64_t)all.dense + (uint64_t)all.expert;
	if (m->lora_r) {
		/* experts that share an adapter are those of a rank */
		out->trainable_params = (uint64_t)all.adapters + (uint64_t)all.expert_adapters * (uint64_t)m->ep;
		out->total_params += out->trainable_params;
	}
	out->active_params = (uint64_t)all.dense;
	if (m->experts)
		out->active_params += (uint64_t)all.expert / (uint64_t)m->experts *
				      (uint64_t)m->moe_topk;
	out->param_bytes = (m->precision == OOM_MG_FP32 ? 4 : 2) *
			   (f.top.params + f.top.expert_params + (m->lora_r ? f.top.trained_params : 0));
	out->grad_bytes = (m->precision == OOM_MG_FP16 ? 2 : (uint64_t)m->grad_bytes) * f.top.trained_params;
	out->opt_bytes = f.top.optimizer_bytes;
	schedule_of(&f.top, &s);
	oom_read_phases(&s, NULL, NULL, out, alive);
	/* forward + backward: 6 per active parameter and token, 4 where it is frozen, and the attention scores
	 * (Megatron's num_floating_point_operations) */
	out->flops_per_sample = (double)m->seq *
				((m->lora_r ? 4 : 6) * (double)out->active_params +
				 12 * (double)m->layers * (double)m->hidden * (double)m->seq) *
				(p->grad_ckpt == OOM_CKPT_FULL ? 4.0 / 3 : 1);
	out->work = oom_mg_work(m);
	out->host_pinned_bytes = out->offloaded_bytes = f.top.host_bytes;
	if (m->pp > 1) {
		out->stage = (uint32_t)f.at;
		out->n_stages = (uint32_t)m->pp;
		out->least_peak = f.least;
	}
	for (int i = OOM_PHASE_FWD1; alive && i <= OOM_PHASE_BWD2; i++)
		if (i != OOM_PHASE_OPT1)
			alive[i].op = "the last micro-batch in flight";
	warn(kind, m, p, out);
	return OOM_OK;
}

static enum oom_status play(const struct kind *kind, const struct oom_model *model,
			    const struct oom_plan *p, struct oom_player *player, struct oom_error *err)
{
	struct mg_flow flow;
	struct fullest f;
	enum oom_status st = find_fullest(kind, model, p, &f, err);

	if (!st)
		st = kind->flow(&f.m, p, f.at, &flow, err);
	return st ? st : oom_mg_play(&flow, player);
}

/* The ledger of the fullest pipeline rank. */
static enum oom_status ledger(const struct kind *kind, const struct oom_model *model,
			      const struct oom_plan *p, oom_ledger_fn fn, void *ctx, struct oom_error *err)
{
	struct fullest f;
	enum oom_status st = find_fullest(kind, model, p, &f, err);

	for (size_t i = 0; !st && i < f.top.n_rows; i++) {
		struct oom_ledger_row r = {.scope = "rank",
					   .name = f.top.row[i].name,
					   .kind = life[f.top.row[i].kind].kind,
					   .born = life[f.top.row[i].kind].born,
					   .bytes = f.top.row[i].bytes,
					   .count = 1,
					   .held = f.top.row[i].kind == OOM_MG_ROW_SAVED,
					   .source = "megatron/core, TransformerEngine; "
						     "arXiv:2205.05198"};

		snprintf(r.formula, sizeof(r.formula), "%s", f.top.row[i].formula);
		fn(ctx, &r);
	}
	return st;
}

enum oom_status oom_megatron_reserved(const struct oom_megatron *m, int64_t r, uint64_t *bytes,
				      struct oom_error *err)
{
	const struct oom_plan rules = {.allocator = OOM_ALLOC_NATIVE};
	struct oom_replay_result result = {0};
	struct oom_player player = {0};
	struct mg_flow flow;
	enum oom_status st = oom_mg_flow(m, r, &flow, err);

	oom_player_begin(&player, &rules, 0);
	if (!st)
		st = oom_mg_play(&flow, &player);
	if (!st)
		st = oom_player_end(&player, &result);
	if (!st)
		*bytes = result.reserved;
	oom_player_release(&player);
	return st;
}

/* ---- the two of them ---- */

static enum oom_status megatron_rank(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
				     struct mg_layers *layers, struct oom_mg_rank *out, struct oom_error *err)
{
	(void)p;
	return oom_mg_next_rank(m, r, layers, out, err);
}

static enum oom_status titan_rank(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
				  struct mg_layers *layers, struct oom_mg_rank *out, struct oom_error *err)
{
	(void)layers;
	return oom_titan_rank(m, p, r, out, err);
}

static enum oom_status megatron_flow(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
				     struct mg_flow *out, struct oom_error *err)
{
	(void)p;
	return oom_mg_flow(m, r, out, err);
}

static const char *megatron_warning(const struct oom_megatron *m)
{
	return m->lora_r ? adapted_warnings[m->split] : warnings[m->split];
}

static const char *titan_warning(const struct oom_megatron *m)
{
	(void)m;
	return MIXED;
}

#define RANKS(name) \
	static enum oom_status name##_evaluate(const struct oom_model *model, const struct oom_plan *p, \
					       struct oom_eval *out, struct oom_alive *alive, \
					       struct oom_error *err) \
	{ \
		return evaluate(&name, model, p, out, alive, err); \
	} \
	static enum oom_status name##_play(const struct oom_model *model, const struct oom_plan *p, \
					   struct oom_player *player, struct oom_error *err) \
	{ \
		return play(&name, model, p, player, err); \
	} \
	static enum oom_status name##_ledger(const struct oom_model *model, const struct oom_plan *p, \
					     oom_ledger_fn fn, void *ctx, struct oom_error *err) \
	{ \
		return ledger(&name, model, p, fn, ctx, err); \
	}

static const struct kind megatron = {megatron_rank, megatron_flow, megatron_warning};
static const struct kind titan = {titan_rank, oom_titan_flow, titan_warning};

RANKS(megatron)
RANKS(titan)

const struct oom_rank_engine oom_megatron_ranks = {
	.evaluate = megatron_evaluate, .play = megatron_play, .ledger = megatron_ledger,
	.workspaces_inside = true,
};
const struct oom_rank_engine oom_titan_ranks = {
	.evaluate = titan_evaluate, .play = titan_play, .ledger = titan_ledger,
};
