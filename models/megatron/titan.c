/* FSDP2 with tensor, pipeline and context parallelism, as torchtitan mixes them: one rank in closed form.
 *
 * torchtitan b5bcd76 and, for the published readings, 9dec370 (December 2024): distributed/pipeline_parallel.py,
 * distributed/fsdp.py, models/llama3, and torch/distributed/pipelining/stage.py.  Estimated.  What torchtitan prints is
 * reserved memory: gathers and reductions have pools of their own, the plain loss leaves blocks behind (play.c).  Against
 * published readings: -2.6 % (8B, dp 2, cp 2), -2.4 % (8B, cp 8), -5.5 % (405B, tp 8, pp 8, cp 4), -14 % (the same with cp 8, which
 * should take no more); with 8,192 tokens, where the local batch of 32 is cut into as many micro-batches as there are
 * pipeline ranks (pipelining_utils.py), -12 % (1F1B) and +6 % (interleaved); -3.2, -4.1 and -4.3 % (Qwen3-32B, tp 8, pull request 1690).
 *
 *   tensor parallelism   weights by heads and by feed-forward width; the residual stream and the norms
 *                        hold their part of the sequence, what enters attention and the feed-forward is
 *                        gathered whole and kept by the matrix products
 *   context parallelism  every rank holds its part of the sequence throughout
 *   FSDP2                over dp x cp ranks: fp32 parameters, gradients, Adam's states (16 B per
 *                        parameter; pure bf16: 8).  Without a pipeline units are gathered one ahead of
 *                        the other; with one they stay gathered through the step, and gradients stay
 *                        whole and in fp32 until the last micro-batch has reduced them
 *                        (get_fsdp_reshard_after_forward_policy, backward_maybe_with_nosync)
 *   loss parallel        logits divided by vocabulary; otherwise gathered
 *
 * T tokens of a micro-batch on the rank, h hidden, f feed-forward, q, k widths, t tensor-parallel ranks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "parts.h"
#include "step/engines.h"

struct sizes {
	double T, h, q, k, f, v, t;
	bool gated;
};

static struct sizes sizes_of(const struct oom_megatron *m)
{
	return (struct sizes){.T = oom_mg_tokens(m, (double)m->seq), .h = (double)m->hidden,
			      .q = (double)m->heads * (double)m->kv_channels,
			      .k = (double)m->query_groups * (double)m->kv_channels,
			      .f = (double)m->ffn_hidden, .v = (double)m->vocab, .t = (double)m->tp,
			      .gated = m->swiglu != 0};
}

static void add_piece(struct mg_pieces *p, double bytes)
{
	if (bytes > 0 && p->n < MG_PIECES)
		p->bytes[p->n++] = bytes;
}

/* What a layer keeps without checkpointing. */
static void layer_pieces(const struct oom_megatron *m, bool experts, struct mg_pieces *p)
{
	const struct sizes z = sizes_of(m);
	const double part = 2 * z.T * z.h / z.t, whole = 2 * z.T * z.h, wide = 2 * z.T * z.f / z.t;

	p->n = 0;
	/* the norm's input in parts, its gathered output whole; q, k, v, attention's output and its
	 * fp32 logsumexp */
	add_piece(p, part);
	add_piece(p, whole);
	add_piece(p, 2 * z.T * z.q / z.t);
	add_piece(p, 2 * z.T * z.k / z.t);
	add_piece(p, 2 * z.T * z.k / z.t);
	add_piece(p, 2 * z.T * z.q / z.t);
	add_piece(p, 4 * z.T * (double)m->heads / z.t);
	p->mlp = p->n;
	/* the residual stream between the halves, and the second norm's input */
	add_piece(p, part);
	add_piece(p, part);
	if (experts) {
		add_piece(p, oom_mg_moe_saved(m, (double)m->seq));
		return;
	}
	add_piece(p, whole);
	/* gate, its SiLU, up and their product; without a gate the activation's input and output */
	for (int i = 0; i < (z.gated ? 4 : 2); i++)
		add_piece(p, wide);
}

static double sum_of(const struct mg_pieces *p)
{
	double sum = 0;

	for (size_t i = 0; i < p->n; i++)
		sum += p->bytes[i];
	return sum;
}

static double layer_bytes(const struct oom_megatron *m, bool experts)
{
	struct mg_pieces p;

	layer_pieces(m, experts, &p);
	return sum_of(&p);
}

/* With torchtitan's selective checkpointing: the block's input, every second matrix product of q, k, v, o,
 * gate, up, down (the first, third, fifth, seventh), attention's output (activation_checkpoint.py). */
static double selective_bytes(const struct oom_megatron *m)
{
	const struct sizes z = sizes_of(m);

	return 2 * z.T * z.h / z.t + 2 * z.T * (2 * z.q + z.k + z.f) / z.t +
	       4 * z.T * (double)m->heads / z.t + 2 * z.T * z.h;
}

static double kept_by(const struct oom_megatron *m, bool experts)
{
	const struct sizes z = sizes_of(m);

	return m->recompute == OOM_MG_RC_FULL	   ? 2 * z.T * z.h / z.t :
	       m->recompute == OOM_MG_RC_SELECTIVE ? fmin(selective_bytes(m), layer_bytes(m, experts)) :
						     layer_bytes(m, experts);
}

static void add(struct oom_mg_rank *o, const char *name, const char *formula, enum oom_mg_row_kind kind,
		double bytes)
{
	if (bytes > 0 && o->n_rows < OOM_MG_ROWS)
		o->row[o->n_rows++] = (struct oom_mg_row){name, formula, (uint64_t)bytes, kind};
}

/* The most passes a rank holds at once; of several chunks the interleaved schedule's warm-up
 * (torch/distributed/pipelining/schedules.py ScheduleInterleaved1F1B). */
static double passes(const struct oom_megatron *m, int64_t r)
{
	const int64_t v = m->vpp ? m->vpp : 1, all = m->num_microbatches * v,
		      warm = v == 1 ? m->pp - r : (v - 1) * m->pp + 2 * (m->pp - 1 - r) + 1,
		      deep = m->gpipe ? all : warm;

	return (double)(deep < all ? deep : all);
}

/* A stage has buffers for every micro-batch of a step, which its first layers take as they are, and for their
 * gradients; and keeps what it gave on until the pass's backward (torch/distributed/pipelining/stage.py
 * args_recv_info, grad_recv_info, fwd_cache).  Less the inputs that the layers keep anyway. */
static double between_stages(const struct oom_megatron *m, int64_t r, size_t n)
{
	const struct sizes z = sizes_of(m);
	const double all = (double)m->num_microbatches, hidden = 2 * z.T * z.h / z.t,
		     held = fmin(passes(m, r) / (double)n, all);
	double sum = 0;

	for (size_t i = 0; m->pp > 1 && i < n; i++) {
		sum += r > 0 || i > 0 ? (all - held) * hidden : 0;
		sum += r < m->pp - 1 || i + 1 < n ? (all + held) * hidden : 0;
	}
	return sum;
}

static bool splits_loss(const struct oom_megatron *m, const struct oom_plan *p)
{
	return p->loss_parallel && m->tp > 1;
}

/* Logits and what the loss makes of them: fp32, log-softmax and its gradient, 12 B each while the
 * gradient is made (train.py deletes the 16-bit ones before the backward).  The loss of divided logits is written
 * out: its log-softmax, the picked ones' gradient, an exponential and their sum, 16 B (torch/distributed/tensor/
 * parallel/loss.py, _nll_loss_and_log_softmax_backward). */
static double logits(const struct oom_megatron *m, const struct oom_plan *p)
{
	const struct sizes z = sizes_of(m);

	return splits_loss(m, p) ? 16 * z.T * z.v / z.t : 12 * z.T * z.v;
}

/* Ranks over which FSDP2 divides. */
static double shards_of(const struct oom_megatron *m, const struct oom_plan *p)
{
	return fmax(1, (double)(p->zero_stage ? m->dp * m->cp : 1) /
			       (double)(p->hybrid_shard ? p->nodes : 1));
}

/* What the chunks of a rank come to, in elements and bytes. */
struct chunks {
	size_t n;
	double dense, expert, unit;     /* parameters; those of the largest layer */
	double ends;                    /* of embedding and head, in elements */
	double saved, full;             /* bytes saved by one pass of all chunks; of a layer that keeps all */
	double loss;
};

static struct chunks chunks_of(const struct oom_megatron *m, const struct oom_plan *p, int64_t r)
{
	struct mg_chunk c[MG_CHUNKS];
	struct chunks k = {.n = oom_mg_chunks(m, r, c)};

	for (size_t i = 0; i < k.n; i++) {
		const struct mg_params q = oom_mg_params(m, &c[i], r == m->pp - 1);

		k.dense += q.dense;
		k.expert += q.expert;
		k.unit = fmax(k.unit, q.largest);
		k.saved += (double)c[i].dense * kept_by(m, false) + (double)c[i].moe * kept_by(m, true);
		k.full = fmax(k.full, layer_bytes(m, c[i].moe > 0));
		if (c[i].loss)
			k.loss = logits(m, p);
		if (c[i].embedding || c[i].loss)
			k.ends += (double)m->vocab / (double)m->tp * (double)m->hidden;
	}
	return k;
}

enum oom_status oom_titan_rank(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
			       struct oom_mg_rank *o, struct oom_error *err)
{
	const double ranks = shards_of(m, p),
		     expert_ranks = fmax(1, ranks / (double)m->ep),
		     wide = p->precision == OOM_BF16 || p->precision == OOM_FP16 ? 2 : 4,
		     moments = m->optimizer == OOM_MG_SGD ? 1 : 2;
	const struct chunks k = chunks_of(m, p, r);
	/* with one chunk a pass is all of the rank's layers; of several each is its part */
	const double saved = k.saved * (passes(m, r) / (double)k.n), between = between_stages(m, r, k.n),
		     whole = k.dense + k.expert, sharded = k.dense / ranks + k.expert / expert_ranks;
	double again;

	memset(o, 0, sizeof(*o));
	if (!(saved + k.loss + k.full + 32 * whole < 9e18))
		return oom_error_set(err, OOM_ERR_INVALID, "more than 8 EiB on one rank");
	o->params = (uint64_t)k.dense;
	o->expert_params = (uint64_t)k.expert;
	o->optimizer_bytes = (uint64_t)(moments * wide * sharded);
	o->in_flight = passes(m, r);
	add(o, "parameters", "fp32 (bf16 where training is pure bf16) / (dp x cp)", OOM_MG_ROW_WEIGHTS,
	    wide * sharded);
	add(o, "gradients", "as the parameters", OOM_MG_ROW_GRADS, wide * sharded);
	add(o, "optimizer state", "as the parameters, each", OOM_MG_ROW_OPTIMIZER,
	    moments * wide * sharded);
	add(o, "saved activations", "passes in flight x layers x bytes per layer", OOM_MG_ROW_SAVED, saved);
	add(o, "between stages", "2 B x T h / t x (a buffer received into for each micro-batch, its gradient's, "
	    "outputs of the passes in flight)", OOM_MG_ROW_FIXED, between);
	add(o, "gathered parameters",
	    m->pp > 1 ? "2 B x all of the rank's" : "2 B x (two layers twice, embedding and head)",
	    OOM_MG_ROW_GATHERED,
	    m->pp > 1 || p->zero_stage < 3 ? 2 * whole : 2 * fmin(whole, 4 * k.unit + k.ends));
	add(o, "whole gradients", "fp32, until the last micro-batch is through", OOM_MG_ROW_GATHERED,
	    m->pp > 1 ? 4 * whole : 0);
	/* a layer again, its gradients in 16 bit and the input of their reduction in fp32 */
	again = (m->recompute ? k.full : 0) + (m->pp > 1 ? 0 : (2 + 4) * k.unit);
	add(o, "logits", splits_loss(m, p) ? "16 B x tokens x vocabulary / t" : "12 B x tokens x vocabulary",
	    OOM_MG_ROW_TRANSIENT, k.loss);
	add(o, "a layer in backward", "recomputed and its gradients, beyond the logits",
	    OOM_MG_ROW_RECOMPUTED, again - k.loss);
	for (size_t i = 0; i < o->n_rows; i++)
		o->peak_bytes += o->row[i].bytes;
	o->activation_bytes = (uint64_t)saved;
	return OOM_OK;
}

/* ---- the same, to be played ---- */

static void fill_layer(const struct oom_megatron *m, bool experts, struct mg_flow_layer *l)
{
	const struct sizes z = sizes_of(m);

	layer_pieces(m, experts, m->recompute ? &l->again : &l->kept);
	if (m->recompute) {
		l->kept.n = l->kept.mlp = 0;
		add_piece(&l->kept, kept_by(m, experts));
	}
	oom_mg_layer_matrices(m, experts, &l->matrices);
	l->hidden = 2 * z.T * z.h / z.t;
	l->wide = 2 * z.T * (experts ? (double)m->moe_ffn : z.f) / z.t;
	l->attention = 2 * z.T * (z.q + 2 * z.k + 2 * z.q) / z.t;
}

static void wrap(const struct oom_megatron *m, double ranks, struct mg_wrapped *w)
{
	w->there = ranks > 1;
	w->stays = m->pp > 1;
	for (int kind = 0; kind < (m->experts ? 2 : 1); kind++) {
		struct mg_matrices x;
		double elems = 0;

		oom_mg_layer_matrices(m, kind == 1, &x);
		for (size_t i = 0; i < x.n; i++)
			elems += x.elems[i];
		w->gathered[kind] = w->grads[kind] = 2 * elems;
		w->reduced[kind] = 4 * elems;
	}
}

/* Of the gathered parameters what lies there throughout: the embedding and the head, which the root keeps. */
static void leave_root(struct mg_flow *f)
{
	double layers = 0;

	for (size_t k = 0; k < f->layer[0].matrices.n; k++)
		layers += f->layer[0].matrices.elems[k];
	for (size_t i = 0; i < f->rank.n_rows; i++)
		if (f->rank.row[i].kind == OOM_MG_ROW_GATHERED)
			f->rank.row[i].bytes = (uint64_t)fmax(0, (double)f->rank.row[i].bytes - 8 * layers);
}

enum oom_status oom_titan_flow(const struct oom_megatron *m, const struct oom_plan *p, int64_t r,
			       struct mg_flow *f, struct oom_error *err)
{
	const struct sizes z = sizes_of(m);
	const double ranks = shards_of(m, p);
	enum oom_status st;

	memset(f, 0, sizeof(*f));
	st = oom_titan_rank(m, p, r, &f->rank, err);
	if (st)
		return st;
	f->n_chunks = oom_mg_chunks(m, r, f->chunk);
	fill_layer(m, false, &f->layer[0]);
	if (m->experts)
		fill_layer(m, true, &f->layer[1]);
	f->split_loss = splits_loss(m, p);
	f->plain_loss = z.T * z.v / (f->split_loss ? z.t : 1);
	f->shards = 1;
	wrap(m, ranks, &f->wrapped);
	for (size_t i = 0; i < f->n_chunks; i++)
		f->wrapped.root += (double)(f->chunk[i].embedding + f->chunk[i].loss) * z.v / z.t * z.h;
	/* the layers' gathers are played; what stays gathered without a pipeline is the root's */
	if (!f->wrapped.stays)
		leave_root(f);
	oom_mg_order(m, r, f->n_chunks, &f->order);
	return OOM_OK;
}
