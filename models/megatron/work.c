/* What a micro-batch asks of one rank of a Megatron launch, in closed form: the input of the step
 * time.
 *
 * Products as megatron/training/training.py counts them (num_floating_point_operations), divided
 * over tensor-parallel ranks; bytes through memory of TransformerEngine's fused kernels; messages of
 * tensor, expert and context parallelism and of the pipeline as megatron/core sends them
 * (tensor_parallel/mappings.py, transformer/moe/token_dispatcher.py, pipeline_parallel/schedules.py).
 *
 *   n tokens of a micro-batch on this rank    h, f, q, kv  widths    t, e, c  degrees */
#include <string.h>

#include "parts.h"
#include "tape/tape.h"

/* Kernels a layer launches, forward and backward: projections, norms, rotation, attention and the
 * residuals of a dense layer; router, permutation, grouped products and exchanges of one of experts.
 * Counted in TransformerEngine's modules, estimated where a module chooses. */
enum { DENSE_FWD = 18, DENSE_BWD = 26, EXPERTS_FWD = 46, EXPERTS_BWD = 60 };

/* Products of experts run over tokens that are sorted to them, on ranks that get unlike numbers of them: about half as
 * fast as one product of as many multiplications where experts are narrow and grouped (fitted with Blackwell's shares to
 * SimuMax's and half of Megatron-Bridge's rows, whose experts are 1,536 to 2,048 wide, and held on the other half:
 * models/step/time/README.md), 0.77 as fast where they are wide (Grok-1's 32,768 on 64 to 2,048 H100s, in bf16: NVIDIA's
 * dgxc-benchmarking, grok1/README_314b.md, 1.3; held on four and two of them a rank, and on Mixtral's 14,336 and 16,384). */
#define GROUPED 2.0
#define WIDE_EXPERTS 1.3
#define NARROW 1536.0

/* Bytes of a score in 16 bit that go through memory without a fused kernel (megatron/core/fusions/fused_softmax.py,
 * transformer/dot_product_attention.py): the product writes 2, the softmax reads and writes 2 each, dropout too, and a
 * mask of 1, and the second product reads 2; backward both products' gradients read 2 for each of theirs, the one of
 * the values writes 2, dropout's reads 3 and writes 2, the softmax' reads 4 and writes 2. */
enum { SCORE_FWD = 13, SCORE_BWD = 19 };

/* Where weights are frozen, nothing is cast for their gradients: of 4 bytes an element that is cast in two orders the second
 * order's one (TransformerEngine pytorch/module/linear.py, columnwise=backward_needs_input). */
#define FROZEN_UNCAST 0.25

/* Of one token in one layer, forward. */
struct token {
	double products;        /* elements of the weights it meets */
	double rated;           /* the same, in the tiles that they fill */
	double written;         /* elements that products write, forward and for their inputs' gradients */
	double depth;           /* inner sizes of the layer's products, forward and backward */
	double score;           /* multiplications with each key, over heads */
	double streamed;        /* elements products and point-wise kernels read and write; products alone */
	double multiplied;
};

/* A token meets `times` weights of `in` x `out`, of this rank's part (tape.h: tiles). */
static void product(const struct oom_megatron *m, double times, double in, double out,
		    struct token *k)
{
	k->products += times * in * out;
	k->rated += times * in * out *
		    oom_product_tiles((uint64_t)in, (uint64_t)out,
				      m->precision == OOM_MG_FP32 ? OOM_F32 : OOM_DT_BF16);
	k->written += times * (in + out);
	k->depth += in + out;
}

static void attention(const struct oom_megatron *m, struct token *k)
{
	const double h = (double)m->hidden, t = (double)m->tp, a = (double)m->heads,
		     d = (double)m->kv_channels, q = a * d, kv = (double)m->query_groups * d;

	if (m->mla) {
		const double dk = (double)(m->qk_head_dim + m->qk_pos_dim),
			     dv = (double)m->v_head_dim, rq = (double)m->q_lora_rank,
			     rk = (double)m->kv_lora_rank;

		if (rq > 0)
			product(m, 1, h, rq, k);
		product(m, 1, rq > 0 ? rq : h, a * dk / t, k);
		product(m, 1, h, rk + (double)m->qk_pos_dim, k);
		product(m, 1, rk, a * ((double)m->qk_head_dim + dv) / t, k);
		product(m, 1, a * dv / t, h, k);
		k->score += a * (dk + dv) / t;
		k->streamed += 4 * h + 3 * (rq + rk) + 8 * a * (dk + dv) / t;
		return;
	}
	product(m, 1, h, (q + 2 * kv) / t, k);
	product(m, 1, q / t, h, k);
	k->score += 2 * q / t;
	/* products; rotation reads and writes q and k; norms and residuals: with the sequence
	 * divided, a rank has but its part of these */
	k->multiplied += 2 * h + (2 * q + 2 * kv) / t;
	k->streamed += 2 * h + (2 * q + 2 * kv) / t + 2 * (q + kv) / t +
		       10 * h / (m->sequence_parallel ? t : 1);
}

static void mlp(const struct oom_megatron *m, double f, double times, double t, struct token *k)
{
	const double wide = m->swiglu ? 2 * f : f, h = (double)m->hidden;

	product(m, times, h, wide / t, k);
	product(m, times, f / t, h, k);
	k->multiplied += times * (2 * h + (wide + f) / t);
	k->streamed += times * (2 * h + (2 * wide + 2 * f) / t);
}

/* By how much longer experts take than one product; one of them per rank is not grouped. */
static double unlike(const struct oom_megatron *m)
{
	const double narrow = NARROW / (double)m->moe_ffn;

	return m->experts > m->ep ? WIDE_EXPERTS + (GROUPED - WIDE_EXPERTS) * (narrow < 1 ? narrow : 1) :
				    WIDE_EXPERTS;
}

static void experts(const struct oom_megatron *m, struct token *k)
{
	const double h = (double)m->hidden, topk = (double)m->moe_topk,
		     share = topk / (double)(m->etp ? m->tp : 1) * m->moe_imbalance;
	double rated;

	product(m, 1 / (double)(m->sequence_parallel ? m->tp : 1), h, (double)m->experts, k);
	if (m->moe_shared_ffn)
		mlp(m, (double)m->moe_shared_ffn, 1, (double)m->tp, k);
	/* with tensor parallelism outside of the experts every rank sends its part of the tokens */
	rated = k->rated;
	mlp(m, (double)m->moe_ffn, share, 1, k);
	k->rated = rated + unlike(m) * (k->rated - rated);
	k->streamed += share * 8 * h;           /* permuted and put back, each read and written */
}

/* Heads whose width is no multiple of 64 make batched products as slow as others of such sides. */
static double head_tiles(const struct oom_megatron *m)
{
	return m->kv_channels < 64 ? 1 :
				     oom_product_tiles((uint64_t)m->kv_channels, (uint64_t)m->kv_channels,
						       m->precision == OOM_MG_FP32 ? OOM_F32 : OOM_DT_BF16);
}

struct sum {
	double products, rated, written, depth, score, streamed, multiplied, fwd, bwd, tensor, expert;
	double uncast;
	/* adapters: products, their inputs' and outputs' elements forward and backward, modules, divided inputs */
	double adapters, adapters_rated, passed, adapted, rows;
};

/* Kernels of an adapter: two products, a scale, a sum; backward a scale, four products, a sum of two gradients. */
enum { ADAPTER_FWD = 4, ADAPTER_BWD = 6 };

/* Elements that go through memory for one token beside a module of `in` x `out` (Megatron-Bridge peft/utils.py
 * ParallelLinearAdapter.forward, lora_layers.py LoRALinear.forward): forward A reads its input, B writes, the scale reads and
 * writes, the sum reads two and writes one; backward the scale, two products that read what it left, and on the other side
 * one that reads the input, one that writes its gradient and the sum with the module's own. */
static void add_adapters(const struct oom_megatron *m, double n, bool moe, double again, struct sum *s)
{
	struct mg_adapter a[MG_ADAPTERS];
	const size_t count = m->lora_r ? oom_mg_adapters(m, moe, a) : 0;
	const double r = (double)m->lora_r,
		     tokens = (double)m->moe_topk / (double)(m->etp ? m->tp : 1) * m->moe_imbalance;

	for (size_t i = 0; i < count; i++) {
		const double rows = n * (a[i].routed ? tokens : 1);
		struct token k = {0};

		product(m, 1, a[i].row ? a[i].in : r / (double)m->tp, a[i].row ? r : a[i].in, &k);
		product(m, 1, r, a[i].row ? a[i].out / (double)m->tp : a[i].out, &k);
		s->adapters += rows * k.products;
		s->adapters_rated += rows * k.rated;
		s->written += rows * k.written;
		s->uncast += rows * k.written;
		s->depth += n * k.depth;
		s->passed += rows * ((a[i].in + 6 * a[i].out) * (1 + again) + 4 * a[i].out + 5 * a[i].in);
		s->adapted += n;
		s->rows += a[i].row && !a[i].routed ? n : 0;
	}
	s->fwd += n * ADAPTER_FWD * (double)count;
	s->bwd += n * ADAPTER_BWD * (double)count;
}

static void add_layers(const struct oom_megatron *m, double n, bool moe, double again, struct sum *s)
{
	struct token k = {0};
	const double h = (double)m->hidden;

	if (!(n > 0))
		return;
	attention(m, &k);
	if (moe)
		experts(m, &k);
	else
		mlp(m, (double)m->ffn_hidden, 1, (double)m->tp, &k);
	s->products += n * k.products;
	s->rated += n * k.rated;
	s->written += n * k.written;
	s->depth += n * k.depth;
	s->score += n * k.score;
	s->streamed += n * k.streamed;
	s->multiplied += n * k.multiplied;
	s->uncast += m->lora_r ? n * k.written * FROZEN_UNCAST : 0;
	s->fwd += n * (moe ? EXPERTS_FWD : DENSE_FWD);
	s->bwd += n * (moe ? EXPERTS_BWD : DENSE_BWD);
	s->tensor += n;
	add_adapters(m, n, moe, again, s);
	if (moe)
		s->expert += n * (double)m->moe_topk * h / (double)(m->etp ? m->tp : 1);
}

/* What collectives of the rank's layers send and how often: `again` is the share of layers that run twice,
 * n the tokens of a micro-batch on this rank, size the bytes of an element. */
static void add_traffic(const struct oom_megatron *m, const struct sum *s, double again, double n, double size,
			struct oom_work *w)
{
	const double h = (double)m->hidden, t = (double)m->tp;

	if (m->tp > 1) {
		/* an all-reduce, or a gather and a scatter, at each end of attention and MLP */
		w->tensor_calls = s->tensor * (4 + 2 * again);
		w->tensor_bytes = w->tensor_calls * n * h * size * 2 * (t - 1) / t;
		/* the inputs' gradients travel while the weights' are computed (layers.py,
		 * LinearWithGradAccumulationAndAsyncCommunication.backward) */
		w->tensor_behind = m->lora_r ? 0 : 2 / (4 + 2 * again);         /* frozen ones have none */
		/* an adapter's output is gathered where the module's is whole, and what it hands back is (ParallelLinearAdapter,
		 * lin_out_gather_output): half an all-reduce in each direction */
		w->tensor_calls += s->rows * (1 + again / 2);
		w->tensor_bytes += s->rows * (1 + again / 2) * n * h * size * 2 * (t - 1) / t;
	}
	if (m->ep > 1) {
		w->expert_calls = s->expert > 0 ? s->tensor * (4 + 2 * again) : 0;
		w->expert_copies = (double)m->moe_topk;
		w->expert_bytes = (4 + 2 * again) * n * size * s->expert * (double)(m->ep - 1) /
				  (double)m->ep * m->moe_imbalance;
	}
	if (m->cp > 1) {
		const double kv = 2 * (double)m->query_groups * (double)m->kv_channels / t,
			     q = (double)m->heads * (double)m->kv_channels / t,
			     c1 = (double)(m->cp - 1);

		/* keys and values travel around, backward with their gradients; or everything is
		 * exchanged before and after */
		w->context_calls = s->tensor * (m->cp_all_to_all ? 8 : 3 * c1);
		w->context_bytes = s->tensor * n * size *
				   (m->cp_all_to_all ? 2 * (2 * q + kv) * c1 / (double)m->cp :
						       3 * kv * c1);
	}
}

static void add_launches(const struct sum *s, double again, bool head, struct oom_work *w)
{
	w->launches = s->fwd * (1 + again) + (head ? 20 : 4);
	w->launches_back = s->bwd + (head ? 12 : 4);
	/* of a layer of experts what comes before them: how many tokens each gets is known on the card alone
	 * (megatron/core/transformer/transformer_config.py, cuda_graph_modules) */
	w->captured = s->tensor * (DENSE_FWD * (1 + again) + DENSE_BWD);
	w->replays = s->tensor * 2;
}

static struct oom_work rank_work(const struct oom_megatron *m, int64_t r)
{
	struct mg_chunk c[MG_CHUNKS];
	const size_t chunks = oom_mg_chunks(m, r, c);
	const double n = (double)m->micro_batch * (double)m->seq / (double)m->cp, h = (double)m->hidden,
		     t = (double)m->tp, keys = (double)m->seq,
		     causal = m->stack == OOM_MG_GPT && m->attention != OOM_MG_ATTN_UNFUSED ? 0.5 : 1,
		     size = m->precision == OOM_MG_FP32 ? 4 : 2,
		     again = m->recompute == OOM_MG_RC_FULL ?
				     m->recompute_layers && !m->recompute_uniform ?
				     (double)m->recompute_layers * (double)m->pp / (double)m->layers :
				     1 :
				     0,
		     core = m->recompute == OOM_MG_RC_SELECTIVE ? 1 : again, passes = m->lora_r ? 2 : 3;
	struct mg_params p;
	struct sum s = {0};
	struct oom_work w = {0};
	double head = 0, weights = 0;

	for (size_t i = 0; i < chunks; i++) {
		add_layers(m, (double)c[i].dense, false, again, &s);
		add_layers(m, (double)c[i].moe + (double)c[i].mtp * (m->experts > 0), true, again, &s);
		add_layers(m, (double)c[i].mtp * !m->experts, false, again, &s);
		if (c[i].loss)
			head += h * (double)m->padded_vocab / t * (double)(1 + c[i].mtp);
		p = oom_mg_params(m, &c[i], r == m->pp - 1);
		weights += p.dense + p.expert;
	}
	/* frozen weights have no gradient, their inputs do */
	*(m->precision == OOM_MG_FP32 ? &w.fp32_flops : &w.product_flops) =
		2 * n * ((passes + again) * s.rated + passes * head + (3 + again) * s.adapters_rated);
	if (m->precision != OOM_MG_FP32) {
		/* what runs again does so forward alone, half of what a layer writes in both directions */
		w.uncast = n * s.uncast * (1 + again / 2);
		w.written = n * (s.written * (1 + again / 2) + head / h + (head > 0) * h);
		w.depth = s.depth * (1 + again / 2) + (head > 0) * (h + head / h);
	}
	if (m->attention == OOM_MG_ATTN_UNFUSED)
		w.batched_flops = 2 * n * keys * (3 + core) * s.score * head_tiles(m);
	else    /* arXiv:2205.14135: five products backward for two forward */
		w.attention_flops = 2 * n * keys * causal * (3.5 + core) * s.score;
	w.model_flops = 2 * n * (passes * (s.products + head) + 3 * (s.adapters + keys * causal * s.score));
	w.bytes = n * size * ((3 + again) * s.streamed - (3 - passes) * s.multiplied + s.passed);
	if (m->attention == OOM_MG_ATTN_UNFUSED)
		w.bytes += n * keys * (double)m->heads / t * (SCORE_FWD * (1 + core) + SCORE_BWD) * s.tensor;
	/* a weight is read by three products; its gradient is added to an fp32 one by the third
	 * (tensor_parallel/layers.py, gradient_accumulation_fusion) */
	w.streamed = weights * (size * (passes + again) + (m->lora_r ? 0 : 8));
	/* logits in 16 bit and in fp32, softmax, gradient */
	w.bytes += head / h * n * 22;
	add_launches(&s, again, head > 0, &w);
	w.units = s.tensor;
	add_traffic(m, &s, again, n, size, &w);
	if (m->pp > 1) {
		w.pipeline_calls = 2 * (double)chunks;
		w.pipeline_bytes = w.pipeline_calls * n * h * size /
				   (m->sequence_parallel ? t : 1);
	}
	return w;
}

struct oom_work oom_mg_work(const struct oom_megatron *m)
{
	struct oom_work slowest = {0};
	const int64_t at[] = {0, m->pp / 2, m->pp - 1};

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		struct oom_work w;

		if (i && at[i] == at[i - 1])
			continue;
		w = rank_work(m, at[i]);
		if (w.model_flops >= slowest.model_flops)
			slowest = w;
	}
	return slowest;
}
