/* Norms, feed-forwards, attention and experts of transformers' decoders, tensor by tensor.
 *
 * Expected sums are made by hand from models/llama/modeling_llama.py and its likes (transformers 5.12)
 * and the saved tensors of PyTorch 2.14's derivatives.yaml; nothing here was printed by oomplan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "block_case.h"

enum { FF = 128, HEADS = 4, HEAD = H / HEADS, EXPERTS = 4, TOP = 2, EXPERT = 32 };
/* softmax's matrices: one of S x S per head */
#define SCORES(each) bytes_of((uint64_t)B * HEADS * S * S, each)

static void arch_of(uint64_t kv_heads)
{
	struct oom_arch *a = block_arch();

	block_begin();
	a->d_model = H;
	a->d_ff = FF;
	a->n_heads = HEADS;
	a->n_kv_heads = kv_heads;
	a->head_dim = HEAD;
}

/* ---- norms ---- */

static struct oom_val norm(struct oom_tape *t, struct oom_val x)
{
	return oom_norm(t, block_arch()->norm, "norm", x, 0);
}

/* hidden.to(fp32); hidden * rsqrt(hidden.pow(2).mean(-1) + eps); weight * hidden.to(input type).  In 16
 * bits pow and the product save the fp32 copy, rsqrt its result, the weight's product what it multiplies;
 * in fp32 there is no copy, and what is saved of x is the caller's. */
static void rms_norm(void **state)
{
	const uint64_t rows = 3 * TOKENS(1, 4);         /* mean, + eps, rsqrt */

	(void)state;
	arch_of(HEADS);
	block_arch()->norm = OOM_NORM_RMS;
	EXPECT(norm, "precision=bf16",
	       .allocated = TOKENS(H, 4)                /* to(fp32) */
			    + TOKENS(H, 4) + rows       /* pow */
			    + TOKENS(H, 4)              /* times rsqrt */
			    + TOKENS(H, 2)              /* to(bf16) */
			    + TOKENS(H, 2),             /* times weight */
	       .saved = TOKENS(H, 4) + TOKENS(1, 4) + TOKENS(H, 2), .params = H);
	EXPECT(norm, "precision=fp32", .allocated = TOKENS(H, 4) + rows + 2 * TOKENS(H, 4),
	       .saved = TOKENS(1, 4) + TOKENS(H, 4), .params = H);
}

/* Gemma: output * (1.0 + weight.float()), and only then to the input's type: the product saves both. */
static void rms_norm_plus_one(void **state)
{
	(void)state;
	arch_of(HEADS);
	block_arch()->norm = OOM_NORM_RMS_PLUS1;
	EXPECT(norm, "precision=bf16",
	       .allocated = TOKENS(H, 4) + TOKENS(H, 4) + 3 * TOKENS(1, 4) + TOKENS(H, 4)
			    + bytes_of(H, 4)            /* weight.float() */
			    + bytes_of(H, 4)            /* 1.0 + it */
			    + TOKENS(H, 4)              /* their product */
			    + TOKENS(H, 2),             /* type_as(x) */
	       .saved = TOKENS(H, 4) + TOKENS(1, 4) + TOKENS(H, 4) + bytes_of(H, 4), .params = H);
}

/* native_layer_norm: its input, mean and rstd (fp32 for 16-bit inputs: aten layer_norm_kernel.cu). */
static void layer_norm(void **state)
{
	static const struct {
		const char *plan;
		enum oom_norm norm;
		uint64_t width, params;
	} cases[] = {
		{"precision=bf16", OOM_NORM_LAYER, 2, 2 * H},
		{"precision=fp16", OOM_NORM_LAYER, 2, 2 * H},
		{"precision=fp32", OOM_NORM_LAYER, 4, 2 * H},
		{"precision=amp-bf16", OOM_NORM_LAYER, 4, 2 * H},       /* autocast runs it in fp32 */
		{"precision=bf16", OOM_NORM_LAYER_NO_BIAS, 2, H},
		{"precision=bf16", OOM_NORM_LAYER_PLAIN, 2, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		arch_of(HEADS);
		block_arch()->norm = cases[i].norm;
		EXPECT(norm, cases[i].plan, .allocated = TOKENS(H, cases[i].width) + 2 * TOKENS(1, 4),
		       .saved = 2 * TOKENS(1, 4), .params = cases[i].params);
	}
}

/* ---- feed-forwards ---- */

static struct oom_val gated(struct oom_tape *t, struct oom_val x)
{
	return oom_gated_mlp(t, x, block_arch()->act, D(FF), false);
}

static struct oom_val plain(struct oom_tape *t, struct oom_val x)
{
	return oom_plain_mlp(t, x, "fc1", "fc2", block_arch()->act, D(FF), true);
}

/* down(act(gate(x)) * up(x)): SiLU and the tanh form of GELU save their argument, the product both
 * factors, down_proj its input. */
static void gated_mlp(void **state)
{
	static const enum oom_act acts[] = {OOM_ACT_SILU, OOM_ACT_GELU, OOM_ACT_GELU_TANH};

	(void)state;
	for (int i = 0; i < 3; i++) {
		arch_of(HEADS);
		block_arch()->act = acts[i];
		EXPECT(gated, "precision=bf16",
		       .allocated = 4 * TOKENS(FF, 2)   /* gate, act, up, product */
				    + TOKENS(H, 2),     /* down */
		       .saved = 4 * TOKENS(FF, 2), .params = 3 * H * FF);
	}
	/* ReLU's derivative reads its result, which the product saves anyway: gate's goes */
	arch_of(HEADS);
	block_arch()->act = OOM_ACT_RELU;
	EXPECT(gated, "precision=bf16", .allocated = 4 * TOKENS(FF, 2) + TOKENS(H, 2),
	       .saved = 3 * TOKENS(FF, 2), .params = 3 * H * FF);
}

/* Autocast casts x for each layer anew and every weight once; all casts are saved. */
static void gated_mlp_under_autocast(void **state)
{
	const uint64_t casts = 2 * TOKENS(H, 2) + 3 * bytes_of(H * FF, 2);

	(void)state;
	arch_of(HEADS);
	block_arch()->act = OOM_ACT_SILU;
	EXPECT(gated, "precision=amp-bf16", .allocated = casts + 4 * TOKENS(FF, 2) + TOKENS(H, 2),
	       .saved = casts + 4 * TOKENS(FF, 2), .params = 3 * H * FF);
}

static void plain_mlp(void **state)
{
	static const struct {
		enum oom_act act;
		uint64_t made, kept;            /* tensors of FF per token */
	} cases[] = {
		{OOM_ACT_GELU, 2, 2},           /* saves its argument; fc2 the result */
		{OOM_ACT_RELU, 2, 1},           /* saves its result, fc2's input */
		{OOM_ACT_TANH, 2, 1},
		{OOM_ACT_RELU2, 3, 2},          /* relu, square: relu's result is both one's and pow's */
		{OOM_ACT_QUICK_GELU, 4, 3},     /* x * sigmoid(1.702 * x): x, sigmoid, the product */
		/* 0.5 * x * (1.0 + tanh(c * (x + 0.044715 * pow(x, 3.0)))): fc1 and eight more; pow
		 * saves x, tanh its result, the product both factors, fc2 its input */
		{OOM_ACT_GELU_NEW, 9, 5},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		arch_of(HEADS);
		block_arch()->act = cases[i].act;
		EXPECT(plain, "precision=fp32", .allocated = cases[i].made * TOKENS(FF, 4) + TOKENS(H, 4),
		       .saved = cases[i].kept * TOKENS(FF, 4), .params = 2 * H * FF + FF + H);
	}
}

/* ---- attention ---- */

static struct oom_val attention(struct oom_tape *t, struct oom_val x)
{
	struct oom_attn at = oom_attn_of(t, block_arch());

	return oom_attention(t, &at, x);
}

/* matmul of [b, h, s, d] as transpose(1, 2) leaves it copies each factor into rows (reshape of what no
 * view can express); softmax in fp32 saves its result, the second product the cast of it.  The kernel
 * reads fp16 and writes fp32 by itself; of bf16 an fp32 copy is made first (aten SoftMax.cpp,
 * half_to_float). */
static void eager_attention(void **state)
{
	const uint64_t scores = 2 * SCORES(2)           /* q k^T, times scale */
				+ SCORES(4)             /* softmax in fp32 */
				+ SCORES(2);            /* to(query.dtype) */
	const uint64_t out = 2 * TOKENS(H, 2)           /* context, laid out for o_proj */
			     + TOKENS(H, 2);            /* o_proj */
	const uint64_t saved = 3 * TOKENS(H, 2) + SCORES(4) + SCORES(2) + TOKENS(H, 2);

	(void)state;
	arch_of(HEADS);                         /* q, k, v and their copies */
	EXPECT(attention, "precision=fp16;attn=eager", .allocated = 6 * TOKENS(H, 2) + scores + out,
	       .saved = saved, .params = 4 * H * H);
	EXPECT(attention, "precision=bf16;attn=eager",
	       .allocated = 6 * TOKENS(H, 2) + scores + SCORES(4) + out, .saved = saved,
	       .params = 4 * H * H);
	/* two heads of keys and values: repeat_kv's copies are contiguous, matmul makes no others */
	arch_of(2);
	EXPECT(attention, "precision=fp16;attn=eager",
	       .allocated = TOKENS(H, 2) + 2 * TOKENS(H / 2, 2) + 3 * TOKENS(H, 2) + scores + out,
	       .saved = saved, .params = 2 * H * H + 2 * H * (H / 2));
	/* biases of q, k, v and o; Gemma 2's cap: divided, tanh, multiplied, of which tanh saves */
	arch_of(HEADS);
	block_arch()->qkv_bias = block_arch()->o_bias = true;
	block_arch()->softcap_attn = 50;
	EXPECT(attention, "precision=fp16;attn=eager",
	       .allocated = 6 * TOKENS(H, 2) + scores + 3 * SCORES(2) + out, .saved = saved + SCORES(2),
	       .params = 4 * H * H + 4 * H);
}

/* Qwen 3: an RMS norm of every head of q and k, whose fp32 copy, reciprocal roots (one per head) and
 * normed heads stay, while q_proj and k_proj go. */
static void attention_with_norms(void **state)
{
	const uint64_t norm_all = 3 * TOKENS(H, 4) + 3 * TOKENS(HEADS, 4) + 2 * TOKENS(H, 2),
		       norm_kept = TOKENS(H, 4) + TOKENS(HEADS, 4) + TOKENS(H, 2);
	const uint64_t kernel = TOKENS(H, 2) + TOKENS(HEADS, 4) + 2 * SCALAR;

	(void)state;
	arch_of(HEADS);
	block_arch()->norm = OOM_NORM_RMS;
	block_arch()->qk_norm = true;
	EXPECT(attention, "precision=bf16;attn=sdpa",
	       .allocated = 3 * TOKENS(H, 2) + 2 * norm_all + kernel + TOKENS(H, 2),
	       .saved = 2 * norm_kept + 3 * TOKENS(H, 2) + kernel, .params = 4 * H * H + 2 * HEAD);
}

/* _scaled_dot_product_flash_attention saves q, k, v, its result, the fp32 logsumexp and two random states;
 * the result is laid out as o_proj reads it. */
static void sdpa_attention(void **state)
{
	const uint64_t kernel = TOKENS(H, 2) + TOKENS(HEADS, 4) + 2 * SCALAR;

	(void)state;
	arch_of(HEADS);
	EXPECT(attention, "precision=bf16;attn=sdpa",
	       .allocated = 3 * TOKENS(H, 2) + kernel + TOKENS(H, 2), .saved = 3 * TOKENS(H, 2) + kernel,
	       .params = 4 * H * H);
	arch_of(1);                             /* enable_gqa: nothing is repeated */
	EXPECT(attention, "precision=bf16;attn=sdpa",
	       .allocated = TOKENS(H, 2) + 2 * TOKENS(HEAD, 2) + kernel + TOKENS(H, 2),
	       .saved = TOKENS(H, 2) + 2 * TOKENS(HEAD, 2) + kernel, .params = 2 * H * H + 2 * H * HEAD);
}

/* The flash-attn package keeps what the built-in kernel does, grouped heads as they are. */
static void flash_attention(void **state)
{
	const uint64_t kernel = TOKENS(H, 2) + TOKENS(HEADS, 4) + 2 * SCALAR;

	(void)state;
	for (uint64_t kv = 1; kv <= HEADS; kv *= 2) {
		const uint64_t qkv = TOKENS(H, 2) + 2 * TOKENS(kv * HEAD, 2);

		arch_of(kv);
		EXPECT(attention, "precision=bf16;attn=flash",
		       .allocated = qkv + kernel + TOKENS(H, 2), .saved = qkv + kernel,
		       .params = 2 * H * H + 2 * H * kv * HEAD);
	}
}

/* ---- experts ---- */

static struct oom_val experts(struct oom_tape *t, struct oom_val x)
{
	const struct oom_moe m = {.experts = EXPERTS, .top_k = TOP, .d_expert = EXPERT,
				  .act = OOM_ACT_SILU, .norm_topk = true, .scores_in_model_type = true};

	return oom_moe_mlp(t, &m, x);
}

/* models/qwen3_moe/modeling_qwen3_moe.py Qwen3MoeTopKRouter, integrations/moe.py
 * grouped_mm_experts_forward: TOP rows per token. */
static void mixture(void **state)
{
	const uint64_t router = TOKENS(EXPERTS, 2)      /* logits */
				+ TOKENS(EXPERTS, 4)    /* in fp32, for softmax */
				+ TOKENS(TOP, 2);       /* the weights in the model's type */
	const uint64_t router_kept = TOKENS(EXPERTS, 4) /* softmax's result */
				     + TOKENS(TOP, 8)   /* topk's indices */
				     + TOKENS(TOP, 4)   /* what /= divided, a clone */
				     + TOKENS(1, 4);    /* and by what */
	const uint64_t sorting = TOKENS(TOP, 8)         /* sorted experts */
				 + TOKENS(TOP, 4)       /* .int() */
				 + bytes_of(EXPERTS, 4) /* histc */
				 + TOKENS(TOP, 8);      /* arange */
	const uint64_t sorting_kept = TOKENS(TOP, 8)    /* perm: index's */
				      + TOKENS(TOP, 8)  /* perm // top_k: index's */
				      + TOKENS(TOP, 2)  /* sample_weights[perm]: the product's */
				      + bytes_of(EXPERTS, 4)    /* offsets: grouped_mm's */
				      + TOKENS(TOP, 1)  /* sentinel_mask: masked_fill_'s */
				      + TOKENS(TOP, 8); /* inv_perm: index's */
	const uint64_t experts_kept = TOKENS(TOP * H, 2)        /* dispatched: grouped_mm's */
				      + TOKENS(TOP * 2 * EXPERT, 2)     /* gate and up: silu's, the product's */
				      + TOKENS(TOP * EXPERT, 2) /* silu */
				      + TOKENS(TOP * EXPERT, 2) /* product: grouped_mm's */
				      + TOKENS(TOP * H, 2);     /* down: weighted */
	const uint64_t out = TOKENS(TOP * H, 2)         /* weighted */
			     + TOKENS(TOP * H, 2)       /* [inv_perm] */
			     + TOKENS(H, 2);            /* summed over TOP */
	const uint64_t saved = router_kept + sorting_kept + experts_kept;

	(void)state;
	arch_of(HEADS);
	EXPECT(experts, "precision=bf16",               /* topk's values, which /= makes the weights */
	       .allocated = router + TOKENS(TOP, 4) + sorting + out + saved, .saved = saved,
	       .params = EXPERTS * H + EXPERTS * 3 * H * EXPERT);
}

/* ---- embeddings and heads ---- */

enum { VOCAB = 256 };

static struct oom_val embedding(struct oom_tape *t, struct oom_val x)
{
	struct oom_val ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	return oom_op_add(t, x, oom_op_embedding(t, "embed_tokens", ids, VOCAB, D(H), 0));
}

/* Looked-up rows; embedding saves its indices, which are the batch. */
static void looked_up(void **state)
{
	(void)state;
	arch_of(HEADS);
	EXPECT(embedding, "precision=bf16", .allocated = 2 * TOKENS(H, 2), .saved = 0,
	       .params = VOCAB * H);
	EXPECT(embedding, "precision=fp32", .allocated = 2 * TOKENS(H, 4), .saved = 0,
	       .params = VOCAB * H);
}

static struct oom_val head(struct oom_tape *t, struct oom_val x)
{
	const struct oom_arch *a = block_arch();
	struct oom_val y = oom_op_linear(t, "lm_head", x, D(a->vocab), 0);

	return oom_causal_lm_loss(t, a, y);
}

/* loss/loss_utils.py ForCausalLMLoss: logits.float(), labels padded by one and cut, cross_entropy, which is
 * log_softmax (saves its result) and nll_loss (saves the labels and total_weight). */
static void head_and_loss(void **state)
{
	const uint64_t labels = bytes_of((uint64_t)B * (S + 1), 8) + TOKENS(1, 8);

	(void)state;
	arch_of(HEADS);
	block_arch()->vocab = VOCAB;
	EXPECT(head, "precision=bf16",
	       .allocated = TOKENS(VOCAB, 2) + TOKENS(VOCAB, 4) + labels + TOKENS(VOCAB, 4) + 2 * SCALAR,
	       .saved = TOKENS(VOCAB, 4) + TOKENS(1, 8) + SCALAR, .params = VOCAB * H);
	EXPECT(head, "precision=fp32", .allocated = 2 * TOKENS(VOCAB, 4) + labels + 2 * SCALAR,
	       .saved = TOKENS(VOCAB, 4) + TOKENS(1, 8) + SCALAR, .params = VOCAB * H);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rms_norm), cmocka_unit_test(rms_norm_plus_one), cmocka_unit_test(layer_norm),
		cmocka_unit_test(gated_mlp), cmocka_unit_test(gated_mlp_under_autocast),
		cmocka_unit_test(plain_mlp), cmocka_unit_test(eager_attention),
		cmocka_unit_test(sdpa_attention), cmocka_unit_test(flash_attention), cmocka_unit_test(mixture),
		cmocka_unit_test(attention_with_norms), cmocka_unit_test(looked_up),
		cmocka_unit_test(head_and_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
