/* What lies on the card from one moment of the step to another, in a replay: weights come one parameter at
 * a time, FSDP1's joined unit by unit, what an engine holds in one piece (buckets, flat partitions) is one
 * block.  States are the optimizer's own: its update makes them (replay.c). */
#include "ops/ops.h"
#include "step/playing.h"
#include "step/program.h"
#include "tape/round.h"

/* ---- what is this rank's ---- */

bool oom_playing_mine(const struct playing *g, int64_t unit)
{
	const struct oom_chain *c = &g->s->chain;

	if (c->whole)
		return true;
	if (unit == BEFORE_ALL)
		return c->times[OOM_PART_BEFORE] > 0;
	if (unit >= (int64_t)g->v->tape->n_units)
		return c->times[OOM_PART_AFTER] > 0;
	return unit >= (int64_t)c->first && unit < (int64_t)(c->first + c->times[OOM_PART_LAYER]);
}

bool oom_playing_param(const struct playing *g, size_t i, int64_t *outside)
{
	const struct oom_param *q = &g->v->tape->params[i];

	if (q->unit)
		*outside = (int64_t)g->v->tape->n_units;
	return oom_playing_mine(g, q->unit ? (int64_t)q->unit - 1 : *outside);
}

static uint64_t scaled(uint64_t bytes, uint64_t part, uint64_t whole)
{
	return part == whole || !whole ? bytes :
					 (uint64_t)((double)bytes * (double)part / (double)whole);
}

/* A parameter's blocks. */
void oom_playing_weight(struct playing *g, const struct oom_param *p, uint64_t part, uint64_t whole)
{
	struct oom_replay *r = playing_allocator(g);
	uint64_t block[OOM_QUANTISED_BLOCKS];
	size_t n;

	if (!(p->flags & OOM_P_QUANTISED)) {
		oom_allocate(r, scaled(p->elems * oom_dtype_bytes((enum oom_dtype)p->dt), part,
				       whole));
		return;
	}
	n = oom_quantised_blocks(g->plan, p, block);
	for (size_t i = 0; i < n; i++)
		oom_allocate(r, i || oom_param_whole(p, g->plan) ? block[i] : scaled(block[i], part, whole));
}

/* ---- FSDP1's flat parameters ---- */

/* torch/distributed/fsdp/_init_utils.py, PARAM_BROADCAST_BUCKET_SIZE; two are under way
 * (torch/csrc/distributed/c10d/comm.cpp, broadcast_coalesced: max_in_flight). */
#define BROADCAST ((uint64_t)250 << 20)

struct wrapping {
	uint64_t flat;          /* bytes of the unit */
	uint64_t bucket;        /* that is being filled */
	int32_t sent[2];
	size_t n;               /* parameters moved to the card */
};

/* A bucket's block is NCCL's stream's as well and is not used again before the broadcast is through
 * (ProcessGroupNCCL.cpp, recordStream).  The first rank is: it copies every parameter from pageable memory, for which
 * the host waits.  Of a quantised model the other ranks have the parameters on the meta device, of others zeros in host
 * memory (transformers modeling_utils.py, is_fsdp_enabled() and not is_local_dist_rank_0() and not is_quantized;
 * huggingface/transformers#33154; fms-acceleration loads GPTQ on rank 0 alone): FSDP makes them on the card without a copy (param_init_fn, to_empty),
 * and the host runs through the model while the card waits for the first rank.  All that they are sent is new
 * memory then.  How far they get ahead depends on the host; this is the most. */
static void bucket_done(struct playing *g, int32_t block)
{
	if (g->sent && block >= 0)
		g->sent[g->n_sent++] = block;
	else
		oom_free(playing_allocator(g), block);
}

static void send(struct playing *g, struct wrapping *u)
{
	bucket_done(g, u->sent[0]);
	u->sent[0] = u->sent[1];
	u->sent[1] = u->bucket ? oom_allocate(playing_allocator(g), u->bucket) : -1;
	u->bucket = 0;
}

static size_t blocks_of(const struct playing *g, const struct oom_param *p, uint64_t block[OOM_QUANTISED_BLOCKS])
{
	if (p->flags & OOM_P_QUANTISED)
		return oom_quantised_blocks(g->plan, p, block);
	block[0] = p->elems * oom_dtype_bytes((enum oom_dtype)p->dt);
	return 1;
}

/* A parameter comes to the card; what a quantised one has beside its codes stays there. */
static int32_t load(struct playing *g, const struct oom_param *p)
{
	uint64_t block[OOM_QUANTISED_BLOCKS];
	const size_t n = blocks_of(g, p, block);
	const int32_t codes = oom_allocate(playing_allocator(g), block[0]);

	for (size_t i = 1; i < n; i++)
		oom_allocate(playing_allocator(g), block[i]);
	return codes;
}

static bool of_base(const struct oom_param *p)
{
	return !(p->flags & (OOM_P_LORA | OOM_P_BESIDE));
}

static bool in_units(const struct playing *g, const struct oom_param *p)
{
	return of_base(p) && !oom_param_whole(p, g->plan);
}

/* A parameter's share of the weights that this rank holds; what no rank shares is in both sums. */
static void play_share(struct playing *g, const struct oom_param *p, const struct oom_holding *h)
{
	const uint64_t whole = h->bytes == g->s->in.params ? 0 : g->s->in.whole;

	oom_playing_weight(g, p, h->bytes - whole, g->s->in.params - whole);
}

/* transformers 5 loads a quantised model on the card of every rank (update_device_map: the rank's own), into one
 * segment that it takes and gives up beforehand (modeling_utils.py caching_allocator_warmup). */
static void load_whole(struct playing *g)
{
	const struct oom_tape *t = g->v->tape;
	uint64_t block[OOM_QUANTISED_BLOCKS], sum = 0;

	for (size_t i = 0; i < t->n_params; i++)
		if (of_base(&t->params[i]))
			for (size_t k = blocks_of(g, &t->params[i], block); k--;)
				sum += oom_block(block[k]);
	oom_free(playing_allocator(g), oom_allocate(playing_allocator(g), sum));
	for (size_t i = 0; i < t->n_params; i++)
		if (of_base(&t->params[i]))
			g->loaded[i] = load(g, &t->params[i]);
}

/* A parameter of a unit, which comes to the card now where it is not there. */
static void move(struct playing *g, struct wrapping *u, size_t param)
{
	const struct oom_param *p = &g->v->tape->params[param];
	uint64_t block[OOM_QUANTISED_BLOCKS];

	g->p->moved[u->n++] = g->loaded ? g->loaded[param] : load(g, p);
	blocks_of(g, p, block);
	u->flat += block[0];
	u->bucket += block[0];
	if (u->bucket >= BROADCAST)
		send(g, u);
}

/* _init_param_handle_from_module: a unit's parameters are moved to the card one by one, rank 0's are
 * broadcast (sync_module_states, as accelerate asks), joined to a flat one, and the rank's part of that is
 * cloned (_flat_param.py FlatParamHandle.shard); the others go when the function returns.  The allocator
 * keeps what that took. */
static struct oom_wrapped wrap_unit(struct playing *g, uint32_t unit, size_t from, size_t to, bool stays)
{
	struct wrapping u = {.sent = {-1, -1}};
	const struct oom_param *p = g->v->tape->params;
	struct oom_wrapped part = {-1, 0, 0};
	int32_t flat;

	for (size_t i = from; i < to; i++)
		if (p[i].unit == unit && in_units(g, &p[i]))
			move(g, &u, i);
	if (!u.n)
		return part;
	send(g, &u);
	send(g, &u);
	send(g, &u);
	flat = oom_allocate(playing_allocator(g), u.flat);
	part.whole = u.flat;
	part.bytes = oom_shared_bytes(u.flat, OOM_SHARE_PART, g->s->ranks);
	part.block = oom_allocate(playing_allocator(g), part.bytes);
	oom_free(playing_allocator(g), flat);
	for (size_t i = 0; i < u.n; i++)
		oom_free(playing_allocator(g), g->p->moved[i]);
	if (!stays)                             /* flat_param_to(cpu) */
		oom_free(playing_allocator(g), part.block);
	return part;
}

/* accelerate makes fp32 of what 16-bit checkpoints were sharded from, which is the default type of loading from
 * transformers 5 on (accelerator.py prepare_model, param.data.to(torch.float32)). */
static void upcast(struct playing *g, struct oom_wrapped part)
{
	if (!part.bytes)
		return;
	oom_allocate(playing_allocator(g), 2 * part.bytes);
	oom_free(playing_allocator(g), part.block);
}

/* When the first forward begins, a unit's tensors for the computation are made and emptied (_flat_param.py
 * init_flat_param_attributes): its part and the whole in the type of the computation and, where the shards have another,
 * the whole in theirs. */
static void make_attributes(struct playing *g, struct oom_wrapped part)
{
	struct oom_replay *r = playing_allocator(g);

	if (!part.bytes)
		return;
	if (g->s->master)
		oom_free(r, oom_allocate(r, part.bytes));
	oom_free(r, oom_allocate(r, part.whole));
	if (g->s->master)
		oom_free(r, oom_allocate(r, 2 * part.whole));
}

/* FSDP2 and ZeRO-3 make the rank's part of a parameter and drop it, one after the other (_fsdp_param.py
 * _init_sharded_param; DeepSpeed partition_parameters.py, Init over a module that is there). */
static void divide(struct playing *g, const struct oom_holding *h, bool stays)
{
	const struct oom_tape *t = g->v->tape;
	uint64_t block[OOM_QUANTISED_BLOCKS];

	load_whole(g);
	for (size_t i = 0; i < t->n_params; i++) {
		const struct oom_param *p = &t->params[i];

		if (!of_base(p) && stays)
			play_share(g, p, h);
		/* buffers stay, unless they are counted apart */
		if (!of_base(p) || (stays && !in_units(g, p)))
			continue;
		blocks_of(g, p, block);
		if (stays)
			oom_allocate(playing_allocator(g), scaled(block[0], h->bytes - g->s->in.whole, g->s->in.params - g->s->in.whole));
		oom_free(playing_allocator(g), g->loaded[i]);
	}
}

/* Layers in their order, then the root.  Adapters are units of their own (PEFT's fsdp_auto_wrap_policy). */
static void wrap(struct playing *g, const struct oom_holding *h, bool stays)
{
	const struct oom_tape *t = g->v->tape;

	if (g->loaded)
		load_whole(g);
	for (size_t i = 0; i < t->n_params && stays; i++)
		if (t->params[i].flags & OOM_P_LORA || (!g->loaded && oom_param_whole(&t->params[i], g->plan)))
			play_share(g, &t->params[i], h);
	for (size_t k = 0; k < t->n_units; k++)
		g->p->units[k + 1] = wrap_unit(g, (uint32_t)k + 1, t->units[k].param0, t->units[k].param1, stays);
	g->p->units[0] = wrap_unit(g, 0, 0, t->n_params, stays);
	while (g->n_sent)
		oom_free(playing_allocator(g), g->sent[--g->n_sent]);
	for (size_t k = 0; k <= t->n_units && stays && g->s->master; k++)       /* as FSDP.fsdp_modules names them */
		upcast(g, g->p->units[k]);
	g->wrapped = true;
}

void oom_playing_attributes(struct playing *g)
{
	for (size_t k = 0; k <= g->v->tape->n_units; k++)
		make_attributes(g, g->p->units[k]);
}

/* Ids or pixels, labels, and the padding mask where there is one. */
static void batch(struct playing *g)
{
	const uint64_t b = (uint64_t)g->plan->micro_batch, seq = (uint64_t)g->plan->seq_len,
		       ids = b * seq * 8, all = g->input_bytes,
		       mask = seq && g->plan->padding_mask && all > 2 * ids ? ids : 0;
	const uint64_t first = seq ? ids : all > b * 8 ? all - b * 8 : 0;

	oom_allocate(playing_allocator(g), first);
	if (all > first + mask)
		oom_allocate(playing_allocator(g), all - first - mask);
	if (mask)
		oom_allocate(playing_allocator(g), mask);
}

/* Each trained parameter's part of a holding that is as large as all their gradients, or so many times. */
void oom_playing_per_trained(struct playing *g, uint64_t part)
{
	const struct oom_tape *t = g->v->tape;

	for (size_t i = 0; i < t->n_params; i++)
		if (t->params[i].trainable)
			oom_allocate(playing_allocator(g), scaled(t->params[i].elems * oom_dtype_bytes((enum oom_dtype)t->params[i].dt),
							  part, g->s->in.trained));
}

/* Another model's parameters; its buffers in one. */
static void per_beside(struct playing *g, uint64_t part)
{
	const struct oom_beside *o = &g->v->tape->beside;
	uint64_t sum = 0, rounded;

	for (size_t i = 0; i < o->n; i++) {
		if (!(o->params[i].flags & OOM_P_BESIDE))
			continue;
		oom_playing_weight(g, &o->params[i], part, o->rounded);
		oom_param_bytes(&o->params[i], g->plan, &rounded);
		sum += rounded;
	}
	if (sum < o->rounded)
		oom_allocate(playing_allocator(g), scaled(o->rounded - sum, part, o->rounded));
}

static void take(struct playing *g, size_t i)
{
	const struct oom_holding *h = &g->s->hold[i];
	const struct oom_tape *t = g->v->tape;
	int64_t outside = BEFORE_ALL;

	g->there |= 1u << i;
	g->held[i] = -1;
	switch ((enum oom_pieces)h->pieces) {
	case OOM_PER_PARAM:
		if (g->loaded && i == OOM_HOLD_WEIGHTS) {
			divide(g, h, true);
			break;
		}
		if (i == OOM_HOLD_WEIGHTS && g->s->chain.whole && h->bytes == g->s->in.params &&
		    oom_quantised_on_card(g->plan) && g->plan->quantised_load != OOM_QLOAD_MADE) {
			oom_playing_load_quantised(g);
			break;
		}
		/* of a part of the chain each is whole */
		for (size_t k = 0; k < t->n_params; k++)
			if (!g->s->chain.whole && oom_playing_param(g, k, &outside))
				oom_playing_weight(g, &t->params[k], 1, 1);
			else if (g->s->chain.whole)
				play_share(g, &t->params[k], h);
		break;
	case OOM_PER_TRAINED: oom_playing_per_trained(g, h->bytes); break;
	case OOM_PER_BESIDE: per_beside(g, h->bytes); break;
	case OOM_PER_UNIT: wrap(g, h, true); break;
	case OOM_PER_INPUT: batch(g); break;
	case OOM_PER_GATHER: g->held[i] = oom_playing_gathered(g, h->bytes); break;
	case OOM_PER_STATE:
	case OOM_PER_FLAT_STATE: break;         /* the update makes them */
	case OOM_IN_ONE: g->held[i] = oom_allocate(playing_allocator(g), h->bytes); break;
	}
}

void oom_playing_come(struct playing *g, enum oom_moment_of_step moment)
{
	for (size_t i = 0; i < g->s->n_hold; i++) {
		const struct oom_holding *h = &g->s->hold[i];

		if (h->from != moment || !h->bytes || g->there >> i & 1)
			continue;
		if (h->place == OOM_ON_GPU)
			take(g, i);
		else if (h->pieces == OOM_PER_UNIT)
			wrap(g, h, false);
		else if (g->loaded && i == OOM_HOLD_WEIGHTS && moment == OOM_AT_LOAD)
			divide(g, h, false);
	}
}

void oom_playing_go(struct playing *g, enum oom_moment_of_step moment)
{
	for (size_t i = 0; i < g->s->n_hold; i++) {
		if (g->s->hold[i].until != moment || !(g->there >> i & 1))
			continue;
		g->there &= ~(1u << i);
		if (g->s->hold[i].pieces == OOM_PER_GATHER)
			oom_playing_gathered_go(g);
		oom_free(playing_allocator(g), g->held[i]);
	}
}
