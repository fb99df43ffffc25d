/* What a layer of a small model saves for its backward pass, summed by hand: a term for each tensor that its operations
 * keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "priced.h"
#include "small_models.h"

/* Two sequences of 64 tokens; a tensor of so many elements per token, and softmax's matrices. */
enum { B = 2, S = 64, N = B * S, KVH = KV * HEAD };
#define ROUND(n) (((uint64_t)(n) + 511) / 512 * 512)
#define T(width, each) ROUND((uint64_t)N * (width) * (each))
#define SCORES(each) ROUND((uint64_t)B * A * S * S * (each))
/* Flash attention: its result, which the output projection saves too, logsumexp, two random states. */
#define KERNEL (T(H, 2) + T(A, 4) + 2 * 512)
/* The result is laid out as queries are: [b, heads, s, d] where they come from torch.cat, so that the
 * output projection saves a copy (aten flash_api.cpp, out = empty_like(q)). */
#define KERNEL_CAT (KERNEL + T(H, 2))
/* eager: rotated queries, repeated keys and values as matmul lays them out, softmax in fp32, its 16-bit
 * copy, the context laid out */
#define EAGER (4 * T(H, 2) + SCORES(4) + SCORES(2))
/* LlamaRMSNorm in 16 bits over `w` elements, `rows` per token: fp32 copy, reciprocal roots, what the weight
 * multiplies; and with the result that linear layers save */
#define RMS_OF(w, rows) (T(w, 4) + T(rows, 4) + T(w, 2))
#define RMS (RMS_OF(H, 1) + T(H, 2))
/* OLMo 2's applies the weight in fp32 */
#define RMS_WIDE(w) (T(w, 4) + T(1, 4) + T(w, 4))
/* Gemma's: the same with 1 + weight, and the result */
#define RMS_PLUS (RMS_WIDE(H) + ROUND(H * 4) + T(H, 2))
/* nn.LayerNorm: its input, mean and reciprocal deviation, and the result, which a linear layer saves */
#define NORM (T(H, 2) + 2 * T(1, 4) + T(H, 2))
/* gate, its activation, up, their product */
#define MLP (4 * T(F, 2))

static const struct saved_row {
	const char *type, *keys;
	enum oom_task task;
	enum oom_attention attn;
	uint64_t saved;
} layers[] = {
	/* queries and keys rotated, values */
	{"llama", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA, 2 * RMS + T(H, 2) +
	 2 * T(KVH, 2) + KERNEL + MLP},
	{"llama", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_EAGER, 2 * RMS + EAGER + MLP},
	{"llama", SIZES UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA, 2 * RMS + 3 * T(H, 2) + KERNEL +
	 MLP},
	{"mistral", GROUPED UNTIED ",\"sliding_window\":null", OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 2 * RMS + T(H, 2) + 2 * T(KVH, 2) + KERNEL + MLP},
	{"qwen2", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_EAGER, 2 * RMS + EAGER + MLP},
	/* norms of heads between projection and rotation */
	{"qwen3", GROUPED UNTIED ",\"head_dim\":16", OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 2 * RMS + RMS_OF(H, A) + RMS_OF(KVH, KV) + T(H, 2) + 2 * T(KVH, 2) + KERNEL + MLP},
	/* norms behind the branches: the layers' inputs are the residual stream itself */
	{"olmo2", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 2 * T(H, 2) + RMS_WIDE(H) + RMS_WIDE(KVH) + T(H, 2) + 2 * T(KVH, 2) + KERNEL + MLP +
		 2 * RMS_WIDE(H)},
	{"gemma", GROUPED TIED ",\"head_dim\":16", OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 2 * RMS_PLUS + T(H, 2) + 2 * T(KVH, 2) + KERNEL + MLP},
	/* values are a view of the fused projection, which therefore stays whole; so does gate and up */
	{"phi3", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 2 * RMS + T(H, 2) + T(KVH, 2) + T(H + 2 * KVH, 2) + KERNEL_CAT + T(2 * F, 2) +
		 2 * T(F, 2)},
	/* one projection of three views; GELU in its written form: argument, tanh, both factors, product */
	{"gpt2", "\"vocab_size\":1000,\"n_embd\":64,\"n_layer\":3,\"n_head\":4,\"n_positions\":512,\"resid_pdrop\":0,"
	 "\"embd_pdrop\":0,\"attn_pdrop\":0" TIED,
	 OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA, 2 * NORM + T(3 * H, 2) + KERNEL + 5 * T(4 * H, 2)},
	/* both norms of one input; queries and keys joined again after a part of them was rotated */
	{"gpt_neox", SIZES UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 2 * NORM - T(H, 2) + T(3 * H, 2) + 2 * T(H, 2) + KERNEL_CAT + 2 * T(F, 2)},
	/* one norm for both branches; half of each head is rotated; GELU in its written form */
	{"phi", SIZES UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 NORM + 3 * T(H, 2) + KERNEL_CAT + 5 * T(F, 2)},
	/* a quarter of each head is rotated */
	{"stablelm", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 2 * NORM + T(H, 2) + 2 * T(KVH, 2) + KERNEL_CAT + MLP},
	{"starcoder2", GROUPED TIED ",\"residual_dropout\":0,\"embedding_dropout\":0", OOM_TASK_CAUSAL_LM,
	 OOM_ATTN_SDPA, 2 * NORM + T(H, 2) + 2 * T(KVH, 2) + KERNEL + 2 * T(F, 2)},
	/* OLMo's norm works on an fp32 copy, and its result is cast back */
	{"olmo", GROUPED UNTIED, OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA,
	 2 * (T(H, 4) + 2 * T(1, 4) + T(H, 2)) + T(H, 2) + 2 * T(KVH, 2) + KERNEL + MLP},
	/* ReLU's result is fc2's input */
	{"opt", "\"vocab_size\":1000,\"hidden_size\":64,\"ffn_dim\":128,\"num_hidden_layers\":3,\"word_embed_proj_dim\":64,"
	 "\"num_attention_heads\":4,\"max_position_embeddings\":512,\"dropout\":0" TIED,
	 OOM_TASK_CAUSAL_LM, OOM_ATTN_SDPA, 2 * NORM + 3 * T(H, 2) + KERNEL + T(F, 2)},
	/* norms after: each norm's result is the next layer's input */
	{"bert", SIZES ",\"hidden_dropout_prob\":0,\"attention_probs_dropout_prob\":0",
	 OOM_TASK_MASKED_LM, OOM_ATTN_SDPA,
	 3 * T(H, 2) + KERNEL + 2 * NORM + 2 * T(F, 2)},
	/* dropout's masks, a byte an element: of both branches (attention's is the kernel's own matter) */
	{"bert", SIZES ",\"hidden_dropout_prob\":0.1,\"attention_probs_dropout_prob\":0",
	 OOM_TASK_MASKED_LM, OOM_ATTN_SDPA,
	 3 * T(H, 2) + KERNEL + 2 * NORM + 2 * T(F, 2) + 2 * T(H, 1)},
};

/* What a fourth layer adds to three. */
static uint64_t one_layer(const struct saved_row *row, enum oom_checkpointing ckpt)
{
	struct oom_plan p = oom_plan_default();
	uint64_t saved[2];
	char json[1200];

	p.task = row->task;
	p.attn = row->attn;
	p.precision = OOM_BF16;
	p.grad_ckpt = ckpt;
	p.micro_batch = B;
	p.seq_len = S;
	snprintf(json, sizeof(json), "{\"model_type\":\"%s\",%s}", row->type, row->keys);
	for (int k = 0; k < 2; k++) {
		p.num_layers = L + k;
		saved[k] = must(json, &p).saved_bytes;
	}
	return saved[1] - saved[0];
}

static void check_layers(enum oom_checkpointing ckpt, uint64_t instead)
{
	int bad = 0;

	for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) {
		const uint64_t got = one_layer(&layers[i], ckpt),
			       want = instead ? instead : layers[i].saved;

		if (got != want) {
			print_error("%s, attention %d: a layer saves %llu bytes, by hand %llu (%+lld)\n",
				    layers[i].type, (int)layers[i].attn, (unsigned long long)got,
				    (unsigned long long)want, (long long)(got - want));
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

static void layers_by_hand(void **state)
{
	(void)state;
	check_layers(OOM_CKPT_NONE, 0);
}

/* Of a checkpointed layer there is its input alone, whatever the layer is made of. */
static void checkpointed_layers(void **state)
{
	(void)state;
	check_layers(OOM_CKPT_FULL, T(H, 2));
}

/* The same of image classifiers, whose sequence is the image's: n tokens of each of two images. */
static void image_layers(void **state)
{
#define U(width, each) ROUND((uint64_t)B * n * (width) * (each))
	static const struct {
		const char *type, *keys;
		uint64_t tokens, scales;        /* branches times a learned factor, which saves them */
	} rows[] = {
		{"vit", IMAGE, PATCHES + 1, 0},
		{"deit", IMAGE, PATCHES + 2, 0},
		{"ijepa", IMAGE, PATCHES, 0},
		{"dinov2", IMAGE ",\"mlp_ratio\":2", PATCHES + 1, 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint64_t n = rows[i].tokens;
		/* two norms (input, statistics, result), q, k, v, the kernel, fc1 and GELU's result */
		const uint64_t want = 2 * (2 * U(H, 2) + 2 * U(1, 4)) + 3 * U(H, 2) +
				      (U(H, 2) + U(A, 4) + 2 * 512) + 2 * U(F, 2) +
				      rows[i].scales * U(H, 2);
		struct oom_plan p = oom_plan_default();
		uint64_t saved[2];
		char json[1200];

		p.task = OOM_TASK_IMAGE_CLS;
		p.attn = OOM_ATTN_SDPA;
		p.precision = OOM_BF16;
		p.micro_batch = B;
		snprintf(json, sizeof(json), "{\"model_type\":\"%s\",%s}", rows[i].type, rows[i].keys);
		for (int k = 0; k < 2; k++) {
			p.num_layers = L + k;
			saved[k] = must(json, &p).saved_bytes;
		}
		if (saved[1] - saved[0] != want)
			fail_msg("%s: a layer saves %llu bytes, by hand %llu", rows[i].type,
				 (unsigned long long)(saved[1] - saved[0]), (unsigned long long)want);
	}
#undef U
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(layers_by_hand), cmocka_unit_test(checkpointed_layers),
					   cmocka_unit_test(image_layers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
