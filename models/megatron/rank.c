/* One pipeline rank of a Megatron launch: what stays, what is in flight, and the peak.
 *
 * The peak counter of a step without optimizer state (step 1) is lower by exactly that state: it is
 * created by the first optimizer step (measured: NVIDIA/Megatron-LM functional tests, peak(2) -
 * peak(1)). */
#include <math.h>
#include <string.h>

#include "parts.h"

static void row(struct oom_mg_rank *o, const char *name, const char *formula,
		enum oom_mg_row_kind kind, double bytes)
{
	if (bytes <= 0 || o->n_rows == OOM_MG_ROWS)
		return;
	o->row[o->n_rows].name = name;
	o->row[o->n_rows].formula = formula;
	o->row[o->n_rows].kind = kind;
	o->row[o->n_rows++].bytes = (uint64_t)bytes;
}

/* ---- between steps ---- */

/* Ranks the optimizer's part lies over.  A layer-wise optimizer gives each rank whole parameters, of
 * which the mean is taken here (layer_wise_optimizer.py: as even as it can pack them). */
static double optimizer_ranks(const struct oom_megatron *m, double ranks)
{
	return m->distributed_optimizer || m->fsdp || m->layerwise || oom_pipe_divides(m) ?
		       ranks / (double)m->optimizer_instances :
		       1;
}

/* Muon has momentum for the layers' matrices and Adam for all else (optimizer/__init__.py,
 * is_muon_managed_matrix_parameter). */
static double moment_bytes(const struct oom_megatron *m, double params, double matrices)
{
	const double adam = (double)(m->exp_avg_bytes + m->exp_avg_sq_bytes);

	return m->optimizer == OOM_MG_SGD ? 4 * params :
	       m->optimizer == OOM_MG_MUON ? 4 * matrices + adam * (params - matrices) :
					     adam * params;
}

/* What 8-bit recipes keep, on a card whose units multiply in any layout and on one that wants the
 * transpose as well (Hopper, Ada): TransformerEngine d0067d0 pytorch/csrc/quantizer.cpp,
 * is_non_tn_fp8_gemm_supported; scales are one per 128 x 128 of weights and per 128 of inputs
 * (fp32), per 32 (one byte), per 16 (one byte). */
static const struct mg_fp8 fp8s[][2] = {
	[OOM_MG_FP8_TENSORWISE] = {{2, 2, 1}, {1, 1, 1}},
	[OOM_MG_FP8_BLOCKWISE] = {{2, 2, 1 + 4.0 / 128}, {2, 2, 1 + 4.0 / 128}},
	[OOM_MG_FP8_MXFP8] = {{2 + 2.0 / 32, 2 + 2.0 / 32, 1 + 1.0 / 32},
			      {2 + 2.0 / 32, 2 + 2.0 / 32, 1 + 1.0 / 32}},
	[OOM_MG_FP8_NVFP4] = {{1 + 2.0 / 16, 1 + 2.0 / 16, 0.5 + 1.0 / 16},
			      {1 + 2.0 / 16, 1 + 2.0 / 16, 0.5 + 1.0 / 16}},
};

const struct mg_fp8 *oom_mg_fp8(const struct oom_megatron *m)
{
	return &fp8s[m->fp8_recipe][m->gpu_arch == OOM_MG_BLACKWELL];
}

/* Elements of the rank's matrices that are multiplied in fp8: without the layers at both ends where
 * these stay in 16 bit. */
static double in_fp8(const struct oom_megatron *m, const struct mg_params *p, const struct mg_chunk *c,
		     size_t n, bool expert)
{
	double layers = 0, ends = 0;

	if (!m->fp8)
		return 0;
	for (size_t i = 0; i < n; i++) {
		layers += (double)(c[i].dense + c[i].moe + c[i].mtp);
		ends += m->ends_in_bf16 ? (c[i].embedding ? 1 : 0) + (c[i].loss ? 1 : 0) : 0;
	}
	return (expert ? p->expert_matrices : p->matrices) *
	       (layers > ends ? (layers - ends) / layers : m->stack == OOM_MG_T5);
}

/* Bytes a parameter: weight, gradient buffer, fp32 master, moments; and over how many ranks each
 * lies.  Of them `eight` elements are multiplied in fp8. */
static double states(const struct oom_megatron *m, struct oom_mg_rank *o, double params,
		     double matrices, double eight, double ranks, const char *which)
{
	const bool fp32 = m->precision == OOM_MG_FP32, fp16 = m->precision == OOM_MG_FP16;
	const double shard = optimizer_ranks(m, ranks);
	const bool wshard = m->fsdp && m->fsdp_sharding == OOM_MG_OPTIM_GRADS_PARAMS;
	const bool gshard = m->fsdp && m->fsdp_sharding >= OOM_MG_OPTIM_GRADS;
	const double kept = m->fp8_params ? eight * (oom_mg_fp8(m)->param - 2) : 0,
		     grad = fp32 ? 4 :
			    fp16 ? 2 :
				   (double)m->grad_bytes;
	const double w = ((fp32 ? 4 : 2) * params + kept) / (wshard ? shard : 1),
		     g = grad * params / (gshard ? shard : 1);
	const double master = fp32 ? 0 : (double)m->main_param_bytes * params / shard;
	/* fp16 gradients are unscaled into an fp32 copy, freed when the next step begins */
	const double copy = fp16 && !m->pipe_engine ? 4 * params / shard : 0,
		     second = oom_pipe_second_gradients(m, params), mom = moment_bytes(m, params, matrices) / shard;

	row(o, which, "weights: 2 B (4 in fp32) per parameter", OOM_MG_ROW_WEIGHTS, w);
	row(o, "gradient buffer",
	    "grad_dtype per parameter, never sharded by the distributed optimizer",
	    oom_pipe_passing_gradients(m) ? OOM_MG_ROW_PASSING : OOM_MG_ROW_GRADS, g);
	row(o, "16-bit gradients", "2 B per parameter beside the fp32 ones", OOM_MG_ROW_LOW_GRADS, second);
	row(o, "master weights", "4 B / (dp x cp) with the distributed optimizer",
	    OOM_MG_ROW_MASTER, master);
	row(o, "optimizer state", "exp_avg + exp_avg_sq; muon: momentum of matrices", OOM_MG_ROW_OPTIMIZER, mom);
	row(o, "fp32 gradients", "4 B, fp16 only, between the steps", OOM_MG_ROW_COPIES, copy);
	o->optimizer_bytes += (uint64_t)mom;
	o->static_bytes += (uint64_t)(w + g + second + master + mom + copy);
	return copy;
}

/* cuBLAS allocates a workspace per thread that multiplies (forward, autograd) inside the caching
 * allocator: 8.125 MiB before Hopper, 32 MiB from it on (ATen CUDABlas.cpp), or what
 * CUBLAS_WORKSPACE_CONFIG says; TransformerEngine one of 4 or 32 MiB
 * (transformer_engine/pytorch/module/base.py get_cublas_workspace_size_bytes), and four more for
 * grouped GEMM's streams. */
static double workspaces(const struct oom_megatron *m, struct oom_mg_rank *o)
{
	const bool hopper = m->gpu_arch != OOM_MG_AMPERE;
	const double one = m->cublas_kib ? (double)m->cublas_kib * 1024 :
			   hopper	 ? 32.0 * 1048576 :
					   8519680.0;
	const double te = m->local_layers ? 0 : hopper ? 32.0 * 1048576 : 4.0 * 1048576;
	const double grouped = m->experts && m->moe_grouped_gemm ?
				       4 * (hopper ? 32.0 : 4.0) * 1048576 :
				       0;

	row(o, "cuBLAS workspaces", "2 threads x workspace", OOM_MG_ROW_FIXED, 2 * one);
	row(o, "TransformerEngine workspace", "4 MiB, 32 MiB from Hopper on", OOM_MG_ROW_FIXED, te);
	row(o, "grouped GEMM workspaces", "4 streams", OOM_MG_ROW_FIXED, grouped);
	return 2 * one + te + grouped;
}

/* Megatron's local layers write attention's scores into a buffer that is kept for good, and gather divided
 * sequences into the same one (core/utils.py GlobalMemoryBuffer "mpu"; transformer/dot_product_attention.py
 * matmul_input_buffer, tensor_parallel/layers.py all_gather_buffer). */
static double global_buffer(const struct oom_megatron *m, struct oom_mg_rank *o)
{
	const double scores = oom_mg_scores_buffer(m, (double)m->seq),
		     gathered = m->sequence_parallel ?
					2 * oom_mg_tokens(m, (double)m->seq) * (double)m->hidden :
					0,
		     sum = m->local_layers ? fmax(scores, gathered) : 0;

	row(o, "global memory buffer", "2 B x the larger of b a s s / t and, gathered, T h", OOM_MG_ROW_FIXED,
	    sum);
	return sum;
}

/* With fused weight-gradient accumulation the gradient goes straight into the buffer, and autograd
 * is handed a 16-bit dummy: one for every shape of matrix, kept for good
 * (transformer_engine/pytorch/module/base.py get_dummy_wgrad). */
static double dummies(const struct oom_megatron *m, const struct mg_chunk *c, size_t n,
		      struct oom_mg_rank *o)
{
	bool dense = m->stack == OOM_MG_T5, moe = false;
	double sum = 0;

	if (!m->grad_accum_fusion || m->local_layers)
		return 0;
	for (size_t i = 0; i < n; i++) {
		dense |= c[i].dense > 0;
		moe |= c[i].moe > 0 || c[i].mtp > 0;
	}
	sum = 2 * oom_mg_matrix_elems(m, dense, moe && m->experts);
	row(o, "dummy weight gradients", "2 B x one matrix of every shape", OOM_MG_ROW_FIXED, sum);
	return sum;
}

/* Weights in 8 bit beside the 16-bit ones: each module quantises its weight in the first micro-batch of
 * a step, into a workspace that it keeps for good (base.py _fp8_workspaces, is_first_microbatch in
 * megatron/core/extensions/transformer_engine.py). */
static double eight_bit_copies(const struct oom_megatron *m, double eight, struct oom_mg_rank *o)
{
	const double sum = m->fp8_params || m->local_layers ? 0 : eight * oom_mg_fp8(m)->cached;

	row(o, "8-bit copies of weights", "rows, and their transpose where the card wants it",
	    OOM_MG_ROW_FIXED, sum);
	return sum;
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
static double chunk_bytes(const struct oom_megatron *m, const struct mg_chunk *c)
{
	struct oom_megatron plain = *m;
	const double n = m->sequence_parallel ? (double)m->tp : 1,
		     T = oom_mg_tokens(m, (double)m->seq) / n;
	const struct mg_layer d = oom_mg_layer(m, false, (double)m->seq, 0),
			      e = oom_mg_layer(m, true, (double)m->seq, 0);
	const double layers = (double)(c->dense + c->moe);
	const double ends = m->fp8 && m->ends_in_bf16 ? (c->embedding ? 1 : 0) + (c->loss ? 1 : 0) : 0;
	double sum = (double)c->dense * d.saved + (double)c->moe * e.saved;

	plain.fp8 = 0;
	/* the layers at the ends in 16 bit: the first of the first kind, the last of the last */
	if (ends > 0 && layers >= ends)
		sum += ends * (oom_mg_layer(&plain, c->moe > 0, (double)m->seq, 0).saved -
			       (c->moe ? e.saved : d.saved));

	if (m->recompute == OOM_MG_RC_FULL && m->recompute_uniform)
		sum /= (double)m->recompute_layers < layers ? (double)m->recompute_layers :
							      (layers > 1 ? layers : 1);
	if (m->recompute == OOM_MG_RC_FULL && !m->recompute_uniform &&
	    (double)m->recompute_layers < layers) {
		/* block: the others keep everything */
		const double kept = layers - (double)m->recompute_layers;

		sum = (double)m->recompute_layers * d.saved + kept * (c->moe ? e.full : d.full);
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
	const struct mg_layer l = oom_mg_layer(m, m->experts != 0, (double)m->seq, 0);

	return (double)c->mtp * (l.saved + 2 * T * (double)m->hidden * 6);
}

/* Logits alive at the loss, bytes each: bf16 and their fp32 copy, whose softmax is kept in place
 * (cross_entropy.py); the native fusion keeps one more fp32 buffer (fused_cross_entropy.py);
 * TransformerEngine's kernel writes the gradient over the bf16 logits (cross_entropy.py). */
static double logit_bytes(const struct oom_megatron *m)
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
	 * gradient (or its dummy) */
	const double head = 2 * T * v + 2 * T * h + 2 * v * h;

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
	return 2 * oom_mg_layer(m, c->moe > 0, (double)m->seq, 0).away;
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

/* What the chunks of a rank hold together. */
struct chunk_sums {
	struct mg_params params;
	double bytes[MG_CHUNKS], away[MG_CHUNKS];       /* of one pass through each: kept, offloaded */
	double loss, head, late, margin;
};

static void add_up(const struct oom_megatron *m, int64_t r, const struct mg_chunk *c, size_t n,
		   struct chunk_sums *s)
{
	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < n; i++) {
		const struct mg_params p = oom_mg_params(m, &c[i], r == m->pp - 1);

		s->params.dense += p.dense;
		s->params.expert += p.expert;
		s->params.largest = fmax(s->params.largest, p.largest);
		s->params.matrices += p.matrices;
		s->params.expert_matrices += p.expert_matrices;
		s->params.largest_matrices = fmax(s->params.largest_matrices, p.largest_matrices);
		s->late += deferred(m, &c[i]);
		s->margin = fmax(s->margin, offload_margin(m, &c[i]));
		s->away[i] = away_bytes(m, &c[i]);
		s->bytes[i] = chunk_bytes(m, &c[i]) + mtp_bytes(m, &c[i]) +
			      oom_pipe_buffers(m, &c[i]);
		s->head = fmax(s->head, extras(m, &c[i]));
		if (c[i].loss)
			s->loss = logit_bytes(m) * (double)(1 + c[i].mtp);
	}
}

enum oom_status oom_megatron_rank(const struct oom_megatron *m, int64_t r, struct oom_mg_rank *o,
				  struct oom_error *err)
{
	struct mg_chunk c[MG_CHUNKS];
	struct chunk_sums s;
	double act, loss, head, copies = 0, eight;
	struct mg_step step;
	struct mg_params sum;
	size_t n;

	if (r < 0 || r >= m->pp)
		return oom_error_set(err, OOM_ERR_INVALID, "pipeline rank %lld of %lld",
				     (long long)r, (long long)m->pp);
	memset(o, 0, sizeof(*o));
	n = oom_mg_chunks(m, r, c);
	add_up(m, r, c, n, &s);
	sum = s.params;
	head = s.head;
	loss = s.loss;
	o->params = (uint64_t)sum.dense;
	o->expert_params = (uint64_t)sum.expert;
	eight = in_fp8(m, &sum, c, n, false);
	copies += states(m, o, sum.dense, sum.matrices, eight, (double)(m->dp * m->cp),
			 "dense weights");
	if (sum.expert > 0) {
		const double more = in_fp8(m, &sum, c, n, true);

		copies += states(m, o, sum.expert, sum.expert_matrices, more,
				 (double)(m->n_gpus / (m->etp * m->ep * m->pp)), "expert weights");
		eight += more;
	}
	oom_pipe_step(m, sum.dense + sum.expert, (double)(m->dp * m->cp), &step);
	row(o, "the step's own", "a bucket that is reduced; the rank's part of the gradients, flat and in fp32",
	    OOM_MG_ROW_STEP, oom_mg_step_peak(&step, 2 * (sum.dense + sum.expert)));
	o->fixed_bytes = (uint64_t)(workspaces(m, o) + global_buffer(m, o) + dummies(m, c, n, o) +
				    eight_bit_copies(m, eight, o));
	if (m->stack == OOM_MG_T5) {
		act = t5_saved(m);
		o->in_flight = 1;
	} else {
		act = in_flight(m, r, s.bytes, n, loss, &o->in_flight) - (n == 1 ? loss : 0);
		if (n > 1)
			loss = 0;               /* counted where it falls among the passes */
	}
	row(o, "saved activations", "passes in flight x layers x bytes a layer", OOM_MG_ROW_SAVED,
	    act);
	row(o, "head", "final norm, attention mask of the batch", OOM_MG_ROW_SAVED, head);
	row(o, "logits", "bf16 + fp32 logits of one micro-batch", OOM_MG_ROW_TRANSIENT, loss);
	row(o, "gathered parameters", "two units of a layer, and the embedding",
	    OOM_MG_ROW_GATHERED, gathered(m, &sum));
	row(o, "deferred logit gradients", "2 B x all micro-batches but one x tokens x (V/t + h)",
	    OOM_MG_ROW_SAVED, s.late);
	row(o, "offloaded groups on the card", "two layers' worth: the last, and one on its way back",
	    OOM_MG_ROW_SAVED, s.margin);
	head += gathered(m, &sum) + s.late + s.margin;
	if (m->stack != OOM_MG_T5 && s.margin > 0) {
		double passes;

		o->host_bytes = (uint64_t)in_flight(m, r, s.away, n, 0, &passes);
	}
	if (m->recompute == OOM_MG_RC_FULL || !loss) {
		/* elsewhere than at the loss: the top layer in backward, recomputed if need be */
		const bool moe = c[n - 1].moe > 0;
		const struct mg_layer l = oom_mg_layer(m, moe, (double)m->seq, 0);
		/* method block checkpoints the first layers: the top one has kept what it needs */
		const bool made_again = m->recompute == OOM_MG_RC_FULL &&
					(m->recompute_uniform ||
					 m->recompute_layers >= c[n - 1].dense + c[n - 1].moe);
		const double again = (made_again ? l.full : 0) + l.transient;

		row(o, "a layer in backward", "recomputed and its gradients, beyond the logits",
		    OOM_MG_ROW_RECOMPUTED, again - loss);
		loss = fmax(loss, again);
	}
	row(o, "between stages", "2 B x a received activation and a received gradient",
	    OOM_MG_ROW_FIXED, boundary(m));
	return finish(m, o, act, head, loss, copies, err);
}

/* ---- the same, to be played ---- */

/* Logits and what the loss makes of them, or what comes a moment later, whichever is more. */
static size_t loss_blocks(const struct oom_megatron *m, double *out)
{
	const double T = oom_mg_tokens(m, (double)m->seq), h = (double)m->hidden,
		     v = (double)m->padded_vocab / (double)m->tp, low = 2 * T * v, high = 4 * T * v,
		     head[] = {low, 2 * T * h, 2 * v * h}, all = logit_bytes(m);
	size_t n = 0;

	if (all <= head[0] + head[1] + head[2]) {
		memcpy(out, head, sizeof(head));
		return 3;
	}
	/* as many fp32 ones as there are, the others in 16 bit */
	for (double left = all; left >= low && n < MG_FLOW_LOSS; left -= out[n++])
		out[n] = left >= high ? high : low;
	return n;
}

static void fill_layer(const struct oom_megatron *m, bool experts, struct mg_flow_layer *l)
{
	const double T = oom_mg_tokens(m, (double)m->seq);

	oom_mg_layer_pieces(m, experts, (double)m->seq, &l->kept, &l->again);
	oom_mg_layer_matrices(m, experts, &l->matrices);
	l->hidden = 2 * T * (double)m->hidden / (m->sequence_parallel ? (double)m->tp : 1);
	l->wide = oom_mg_layer(m, experts, (double)m->seq, 0).transient - l->hidden;
	l->gathered = m->sequence_parallel ? 2 * T * (double)m->hidden : 0;
	l->attention = oom_mg_attention_gradients(m, (double)m->seq);
}

enum oom_status oom_mg_flow(const struct oom_megatron *m, int64_t r, struct mg_flow *f,
			    struct oom_error *err)
{
	enum oom_status st;
	struct chunk_sums s;

	memset(f, 0, sizeof(*f));
	if (m->stack == OOM_MG_T5)
		return OOM_ERR_LIMIT;
	st = oom_megatron_rank(m, r, &f->rank, err);
	if (st)
		return st;
	f->n_chunks = oom_mg_chunks(m, r, f->chunk);
	add_up(m, r, f->chunk, f->n_chunks, &s);
	fill_layer(m, false, &f->layer[0]);
	if (m->experts)
		fill_layer(m, true, &f->layer[1]);
	for (size_t i = 0; i < f->n_chunks; i++) {
		const struct mg_params p = oom_mg_params(m, &f->chunk[i], r == m->pp - 1);
		const double T = oom_mg_tokens(m, (double)m->seq) /
				 (m->sequence_parallel ? (double)m->tp : 1);

		f->ends[i] = oom_pipe_buffers(m, &f->chunk[i]) +
			     (double)f->chunk[i].mtp * 12 * T * (double)m->hidden +
			     (f->chunk[i].embedding && m->hidden_dropout > 0 ? T * (double)m->hidden : 0);
		f->end_elems[i] = p.dense + p.expert;
		for (int kind = 0; kind < 2; kind++)
			for (size_t k = 0; k < f->layer[kind].matrices.n; k++)
				f->end_elems[i] -= f->layer[kind].matrices.elems[k] *
						   (double)(kind ? f->chunk[i].moe : f->chunk[i].dense);
		f->n_loss = f->chunk[i].loss ? loss_blocks(m, f->loss) : f->n_loss;
	}
	f->rest = s.late + s.margin;
	if (f->n_loss && f->n_loss < MG_FLOW_LOSS)
		f->loss[f->n_loss++] = s.head;
	else
		f->rest += s.head;
	f->recomputed = m->recompute == OOM_MG_RC_FULL && !m->recompute_uniform ? m->recompute_layers : 0;
	/* distributed/param_and_grad_buffer.py has a buffer of weights for the distributed optimizer */
	f->flat_weights = m->distributed_optimizer || m->pipe_engine;
	f->flat_states = m->pipe_engine;
	f->shards = optimizer_ranks(m, (double)(m->dp * m->cp));
	f->made_bytes = m->precision == OOM_MG_FP32 ? 4 : 2;
	f->grad_bytes = oom_pipe_own_gradients(m);
	f->grads_stay = oom_pipe_divides(m);
	oom_mg_order(m, r, f->n_chunks, &f->order);
	oom_pipe_step(m, s.params.dense + s.params.expert, (double)(m->dp * m->cp), &f->step);
	return OOM_OK;
}
