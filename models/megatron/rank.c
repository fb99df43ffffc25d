/* One pipeline rank of a Megatron launch: what stays, what is in flight, and the peak.
 *
 * The peak counter of a step without optimizer state (step 1) is lower by exactly that state: it is
 * created by the first optimizer step (measured: NVIDIA/Megatron-LM functional tests, peak(2) -
 * peak(1)).
 * What stays is in states.c; here is what is in flight. */
#include <math.h>
#include <string.h>

#include "rank.h"

void oom_mg_row(struct oom_mg_rank *o, const char *name, const char *formula,
		enum oom_mg_row_kind kind, double bytes)
{
	if (bytes <= 0 || o->n_rows == OOM_MG_ROWS)
		return;
	o->row[o->n_rows].name = name;
	o->row[o->n_rows].formula = formula;
	o->row[o->n_rows].kind = kind;
	o->row[o->n_rows++].bytes = (uint64_t)bytes;
}

/* Tensors that pass between stages and outlive the step: one received activation, one received
 * gradient. */
static double boundary(const struct oom_megatron *m)
{
	const double T = oom_mg_tokens(m, (double)m->seq) /
			 (m->sequence_parallel ? (double)m->tp : 1);

	return m->pp > 1 ? 2 * 2 * T * (double)m->hidden : 0;
}

/* ---- in flight ---- */

/* A pass of a chunk: its layers, the dropout mask behind the embedding. */
static double chunk_bytes(const struct oom_megatron *m, const struct mg_chunk *c, const struct chunk_sums *s)
{
	const double n = m->sequence_parallel ? (double)m->tp : 1,
		     T = oom_mg_tokens(m, (double)m->seq) / n;
	const struct mg_layer d = s->layer[0], e = s->layer[1];
	const double layers = (double)(c->dense + c->moe);
	const double ends = m->fp8 && m->ends_in_bf16 ? (c->embedding ? 1 : 0) + (c->loss ? 1 : 0) : 0;
	double sum = (double)c->dense * d.saved + (double)c->moe * e.saved;

	/* the layers at the ends in 16 bit: the first of the first kind, the last of the last */
	if (ends > 0 && layers >= ends) {
		struct oom_megatron plain = *m;

		plain.fp8 = 0;
		sum += ends * (oom_mg_layer(&plain, c->moe > 0, (double)m->seq, 0).saved -
			       (c->moe ? e.saved : d.saved));
	}
	if (m->recompute == OOM_MG_RC_FULL && m->recompute_uniform)
		sum /= (double)m->recompute_layers < layers ? (double)m->recompute_layers :
							      (layers > 1 ? layers : 1);
	if (m->recompute == OOM_MG_RC_FULL && !m->recompute_uniform &&
	    (double)m->recompute_layers < layers) {
		/* block: the others keep everything */
		const double kept = layers - (double)m->recompute_layers;

		/* what is computed again keeps its input, of either kind */
		sum = (double)m->recompute_layers * (c->moe ? e.saved : d.saved) + kept * (c->moe ? e.full : d.full);
	}
	if (c->embedding && m->hidden_dropout > 0)
		sum += T * (double)m->hidden;
	return sum;
}

/* What a pass of a chunk leaves in host memory. */
static double away_bytes(const struct oom_megatron *m, const struct mg_chunk *c)
{
	return *m->offload_modules ?
		       (double)c->dense * oom_mg_layer(m, false, (double)m->seq, 0).away +
			       (double)c->moe * oom_mg_layer(m, true, (double)m->seq, 0).away :
		       0;
}

/* The prediction layers behind the last one: a layer, two norms' inputs and outputs, the joined
 * input, each with its own logits (multi_token_prediction.py). */
static double mtp_bytes(const struct oom_megatron *m, const struct mg_chunk *c)
{
	const double n = m->sequence_parallel ? (double)m->tp : 1,
		     T = oom_mg_tokens(m, (double)m->seq) / n;

	return c->mtp ? (double)c->mtp * (oom_mg_layer(m, m->experts != 0, (double)m->seq, 0).saved +
					  2 * T * (double)m->hidden * 6) :
			0;
}

/* Logits alive at the loss, bytes each: bf16 and their fp32 copy, whose softmax is kept in place
 * (cross_entropy.py); the native fusion keeps one more fp32 buffer (fused_cross_entropy.py);
 * TransformerEngine's kernel writes the gradient over the bf16 logits (cross_entropy.py). */
double oom_mg_logit_bytes(const struct oom_megatron *m)
{
	const double per = m->pipe_engine			? oom_pipe_logits(m) :
			   m->precision == OOM_MG_FP32		? 8 :
			   m->cross_entropy == OOM_MG_CE_NATIVE ? 10 :
			   m->cross_entropy == OOM_MG_CE_TE	? 2 :
								  6;
	const double T = oom_mg_tokens(m,
				       (double)(m->stack == OOM_MG_T5 ? m->decoder_seq : m->seq));
	const double v = (double)m->padded_vocab / (double)m->tp, h = (double)m->hidden;
	const double loss = per * T * v;
	/* a moment later: gradient of the logits, of the head's input, and the head's weight
	 * gradient (or its dummy), where it trains */
	const double head = 2 * T * v + 2 * T * h + (m->lora_r ? 0 : 2 * v * h);

	return loss > head ? loss : head;
}

/* Micro-batches a group of an interleaved schedule holds: pp, or the next number that divides them
 * all (--microbatch-group-size-per-virtual-pipeline-stage). */
static int64_t group_size(const struct oom_megatron *m)
{
	int64_t g = m->pp;

	while (g < m->num_microbatches && m->num_microbatches % g)
		g++;
	return g < m->num_microbatches ? g : m->num_microbatches;
}

void oom_mg_order(const struct oom_megatron *m, int64_t r, size_t n_chunks, struct mg_order *o)
{
	const int64_t v = (int64_t)n_chunks, total = m->num_microbatches * v,
		      deep = m->gpipe ? m->num_microbatches : m->pp - r;

	o->micro = m->num_microbatches;
	o->group = v > 1 ? group_size(m) : 1;
	o->warm = v > 1 ? (m->pp - r - 1) * 2 + (v - 1) * o->group : deep - 1;
	o->warm = o->warm < total ? o->warm : total;
}

/* Largest sum of chunk passes in flight, and whether the loss is among them then.  Interleaved
 * schedules (schedules.py forward_backward_pipelining_with_interleaving) are played pass by pass
 * over two groups. */
static double in_flight(const struct oom_megatron *m, int64_t r, const double *chunk,
			size_t n_chunks, double loss, double *count)
{
	const int64_t v = (int64_t)n_chunks, total = m->num_microbatches * v;
	struct mg_order o;
	int64_t fwd = 0, bwd = 0;
	double live = 0, best = 0;

	oom_mg_order(m, r, n_chunks, &o);
	*count = (double)(o.warm + 1 < total ? o.warm + 1 : total);
	/* GPipe: every pass has been through the loss before the first one returns */
	if (v <= 1)
		return *count * chunk[0] + (m->gpipe ? *count : 1) * loss;
	for (int64_t steps = 0; fwd < total && steps < 4096; steps++) {
		const int64_t c = fwd % (o.group * v) / o.group;

		live += chunk[c];
		fwd++;
		if (live + (c == v - 1 ? loss : 0) > best)
			best = live + (c == v - 1 ? loss : 0);
		if (fwd > o.warm) {
			live -= chunk[v - 1 - bwd % (o.group * v) / o.group];
			bwd++;
		}
	}
	return best;
}

/* The last rank keeps the head's inputs and the logits' gradients of all micro-batches but the one
 * at work (tensor_parallel/layers.py embedding_activation_buffer, grad_output_buffer; no
 * --wgrad-deferral-limit). */
static double deferred(const struct oom_megatron *m, const struct mg_chunk *c)
{
	const double T = oom_mg_tokens(m, (double)m->seq), v = (double)m->padded_vocab / (double)m->tp;

	return m->defer_wgrad && m->pp > 1 && c->loss ?
		       (double)(m->num_microbatches - 1) *
			       (2 * T * v + 2 * T * (double)m->hidden /
						    (m->sequence_parallel ? (double)m->tp : 1)) :
		       0;
}

/* Of what waits in host memory one group of each module stays on the card, that of the last layer
 * (post_warmup_callback), and one is on its way back. */
static double offload_margin(const struct oom_megatron *m, const struct mg_chunk *c)
{
	return *m->offload_modules ? 2 * oom_mg_layer(m, c->moe > 0, (double)m->seq, 0).away : 0;
}

static double extras(const struct oom_megatron *m, const struct mg_chunk *c)
{
	const double n = m->sequence_parallel ? (double)m->tp : 1,
		     T = oom_mg_tokens(m, (double)m->seq) / n;
	/* the final norm's input and output */
	double sum = c->loss ? 2 * 2 * T * (double)m->hidden : 0;

	if (m->mask_in_loader)
		sum += (double)m->micro_batch * (double)m->seq * (double)m->seq / (double)m->cp;
	if (m->stack == OOM_MG_BERT && c->loss)
		/* dense, GELU and norm of the head, the pooler's input */
		sum += 4 * 2 * T * (double)m->hidden;
	return sum;
}

/* T5: encoder and decoder in one rank; the decoder's logits. */
static double t5_saved(const struct oom_megatron *m)
{
	const struct mg_layer e = oom_mg_layer(m, false, (double)m->seq, 0);
	const struct mg_layer d = oom_mg_layer(m, false, (double)m->decoder_seq, (double)m->seq);

	return (double)m->encoder_layers * e.saved + (double)m->decoder_layers * d.saved;
}

/* Parameters gathered for use when the weights are sharded (Megatron-FSDP): two units of a
 * layer, and the embedding. */
static double gathered(const struct oom_megatron *m, const struct mg_params *p)
{
	if (!m->fsdp || m->fsdp_sharding != OOM_MG_OPTIM_GRADS_PARAMS)
		return 0;
	return 2 * (2 * p->largest +
		    (m->fp8 && m->fp8_params ? p->largest_matrices * (oom_mg_fp8(m)->param - 2) :
					       0)) +
	       2 * (double)m->padded_vocab / (double)m->tp * (double)m->hidden;
}

static enum oom_status finish(const struct oom_megatron *m, struct oom_mg_rank *o, double act,
			      double head, double loss, double copies, struct oom_error *err)
{
	const double top = act + head + loss,
		     base = (double)(o->static_bytes + o->fixed_bytes) + boundary(m);
	double passing = 0, step = 0;

	for (size_t i = 0; i < o->n_rows; i++) {
		passing += o->row[i].kind == OOM_MG_ROW_PASSING ? (double)o->row[i].bytes : 0;
		step += o->row[i].kind == OOM_MG_ROW_STEP ? (double)o->row[i].bytes : 0;
	}

	if (!(base + top < 9e18))
		return oom_error_set(err, OOM_ERR_INVALID, "more than 8 EiB on one rank");
	o->alloc_bytes = (uint64_t)(base - passing);
	o->activation_bytes = (uint64_t)act;
	o->peak_bytes = (uint64_t)fmax(base - copies + top, base + step);
	o->peak_first_bytes = o->peak_bytes - o->optimizer_bytes;
	return OOM_OK;
}

static struct mg_layer layer_of(const struct oom_megatron *m, bool moe, struct mg_layers *layers)
{
	if (!layers->known[moe])
		layers->of[moe] = oom_mg_layer(m, moe, (double)m->seq, 0);
	layers->known[moe] = true;
	return layers->of[moe];
}

void oom_mg_add_up(const struct oom_megatron *m, int64_t r, const struct mg_chunk *c, size_t n,
		   struct mg_layers *layers, struct chunk_sums *s)
{
	bool dense = false, moe = false;

	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < n; i++) {
		dense |= c[i].dense > 0 || !c[i].moe;   /* top_layer asks of a stage without layers too */
		moe |= c[i].moe > 0;
	}
	if (dense)
		s->layer[0] = layer_of(m, false, layers);
	if (moe)
		s->layer[1] = layer_of(m, true, layers);
	for (size_t i = 0; i < n; i++) {
		const struct mg_params p = oom_mg_params(m, &c[i], r == m->pp - 1);

		s->params.dense += p.dense;
		s->params.expert += p.expert;
		s->params.adapters += p.adapters;
		s->params.expert_adapters += p.expert_adapters;
		s->params.largest = fmax(s->params.largest, p.largest);
		s->params.matrices += p.matrices;
		s->params.expert_matrices += p.expert_matrices;
		s->params.largest_matrices = fmax(s->params.largest_matrices, p.largest_matrices);
		s->late += deferred(m, &c[i]);
		s->margin = fmax(s->margin, offload_margin(m, &c[i]));
		s->away[i] = away_bytes(m, &c[i]);
		s->bytes[i] = chunk_bytes(m, &c[i], s) + mtp_bytes(m, &c[i]) +
			      oom_pipe_buffers(m, &c[i]);
		s->head = fmax(s->head, extras(m, &c[i]));
		if (c[i].loss)
			s->loss = oom_mg_logit_bytes(m) * (double)(1 + c[i].mtp);
	}
}

/* Elsewhere than at the loss: the top layer in backward, recomputed if need be. */
static double top_layer(const struct oom_megatron *m, const struct mg_chunk *last, const struct chunk_sums *s)
{
	const struct mg_layer l = s->layer[last->moe > 0];
	/* method block checkpoints the first layers: the top one has kept what it needs */
	const bool made_again = m->recompute == OOM_MG_RC_FULL &&
				(m->recompute_uniform || m->recompute_layers >= last->dense + last->moe);

	return (made_again ? l.full : 0) + l.transient;
}

/* Rows of what lies beside the passes while they are in flight; their sum, which is added to the head's. */
static double beside_passes(const struct oom_megatron *m, const struct chunk_sums *s, struct oom_mg_rank *o)
{
	const double whole = gathered(m, &s->params);

	oom_mg_row(o, "gathered parameters", "two units of a layer, and the embedding",
		   OOM_MG_ROW_GATHERED, whole);
	oom_mg_row(o, "deferred logit gradients", "2 B x all micro-batches but one x tokens x (V/t + h)",
		   OOM_MG_ROW_SAVED, s->late);
	oom_mg_row(o, "offloaded groups on the card", "two layers' worth: the last, and one on its way back",
		   OOM_MG_ROW_SAVED, s->margin);
	return whole + s->late + s->margin;
}

enum oom_status oom_mg_next_rank(const struct oom_megatron *m, int64_t r, struct mg_layers *layers,
				 struct oom_mg_rank *o, struct oom_error *err)
{
	double act, loss, head, copies;
	struct mg_chunk c[MG_CHUNKS];
	struct chunk_sums s;
	size_t n;

	if (r < 0 || r >= m->pp)
		return oom_error_set(err, OOM_ERR_INVALID, "pipeline rank %lld of %lld",
				     (long long)r, (long long)m->pp);
	memset(o, 0, sizeof(*o));
	n = oom_mg_chunks(m, r, c);
	oom_mg_add_up(m, r, c, n, layers, &s);
	loss = s.loss;
	oom_mg_between_steps(m, &s.params, c, n, o, &copies);
	if (m->stack == OOM_MG_T5) {
		act = t5_saved(m);
		o->in_flight = 1;
	} else {
		act = in_flight(m, r, s.bytes, n, loss, &o->in_flight) - (n == 1 ? loss : 0);
		if (n > 1)
			loss = 0;               /* counted where it falls among the passes */
	}
	oom_mg_row(o, "saved activations", "passes in flight x layers x bytes per layer", OOM_MG_ROW_SAVED,
		   act);
	oom_mg_row(o, "head", "final norm, attention mask of the batch", OOM_MG_ROW_SAVED, s.head);
	oom_mg_row(o, "logits", "bf16 + fp32 logits of one micro-batch", OOM_MG_ROW_TRANSIENT, loss);
	head = s.head + beside_passes(m, &s, o);
	if (m->stack != OOM_MG_T5 && s.margin > 0) {
		double passes;

		o->host_bytes = (uint64_t)in_flight(m, r, s.away, n, 0, &passes);
	}
	if (m->recompute == OOM_MG_RC_FULL || !loss) {
		const double again = top_layer(m, &c[n - 1], &s);

		oom_mg_row(o, "a layer in backward", "recomputed and its gradients, beyond the logits",
			   OOM_MG_ROW_RECOMPUTED, again - loss);
		loss = fmax(loss, again);
	}
	oom_mg_row(o, "between stages", "2 B x a received activation and a received gradient",
		   OOM_MG_ROW_FIXED, boundary(m));
	return finish(m, o, act, head, loss, copies, err);
}

enum oom_status oom_megatron_rank(const struct oom_megatron *m, int64_t r, struct oom_mg_rank *o,
				  struct oom_error *err)
{
	struct mg_layers layers = {.known = {false, false}};

	return oom_mg_next_rank(m, r, &layers, o, err);
}
