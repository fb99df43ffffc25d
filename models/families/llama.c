/* Pre-norm decoders with rotary positions: Llama and the many types that differ from it by
 * switches. Reference: transformers 5.12,
 * models/{llama,mistral,qwen2,qwen3,gemma,gemma2,granite,phi3,olmo2,mixtral,qwen2_moe,
 * olmoe,...}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "llama.h"

/* What a model type has that Llama has not. */
enum {
	SANDWICH = 1,           /* norms after attention and feed-forward too (Gemma 2) */
	POST_ONLY = 2,          /* norms after them only (OLMo 2) */
	SCALED_EMBED = 4,       /* embeddings times sqrt(d_model), inside the embedding module */
	MULTIPLIERS = 8,        /* embedding, residual and logit multipliers (Granite) */
	FUSED = 16,             /* qkv_proj and gate_up_proj in one (Phi-3) */
	QK_NORM = 32, QK_NORM_FULL = 64,
	QKV_BIAS = 128,
	EXPERTS = 256,          /* every layer a mixture */
	SCORES_CAST = 512,      /* router scores go on in the model's type */
	ALTERNATING = 1024,     /* every other layer slides (Gemma 2) */
	HEAD_BUFFER = 2048,     /* a scalar buffer beside the embedding (Gemma) */
	SHARED_GATE = 4096,
	FP32_NORM = 8192,       /* weight * in fp32, cast after (OLMo 2) */
	TIED = 16384,
	/* one norm, attention and feed-forward side by side (Cohere, Phi) */
	PARALLEL = 1 << 15,
	FUSED_MLP = 1 << 16,    /* gate_up_proj alone (GLM) */
	ALL_BIAS = 1 << 17,     /* every linear layer, by use_bias (StarCoder 2), or always (Phi) */
	NO_O_BIAS = 1 << 18,
	PATTERN_4 = 1 << 20,    /* three sliding layers, one full (OLMo 3, EXAONE 4) */
	QK_NORM_LATE = 1 << 21, /* query and key norms after the rotation (HunYuan) */
	FP32_ROPE = 1 << 22,    /* queries and keys rotated in fp32 (Cohere) */
	LOCAL_ROPE = 1 << 23,   /* full layers have no positions (Cohere 2) */
	INTERLEAVED = 1 << 24,  /* cos and sin spread anew in every layer (Helium) */
	EMBED_NORM = 1 << 25,   /* the final norm's like before the first layer too (nanochat) */
	SUB_NORM = 1 << 26,     /* norms before the output projections (BitNet) */
	XIELU = 1 << 27,        /* an activation with two parameters of its own (Apertus) */
	ERNIE_ROUTER = 1 << 29, TOPK_FIRST = 1 << 30,
	/* layers slide where layer_types says so, each kind with its rotary table (Mellum) */
	LAYER_ROPES = 1 << 28,
	/* five sliding layers, one full (Gemma 3), each kind with its rotary table */
	PATTERN_6 = 1 << 19,
};
static const struct {
	const char *type;
	unsigned flags;
	enum oom_norm norm;
	/* share of the head that is rotated when the config is silent; 0 = all */
	double rotary;
	const char *up, *down;  /* a plain feed-forward's layers; NULL: gated */
} kinds[] = {
	{"olmo", 0, OOM_NORM_LAYER_FP32, 0, NULL, NULL},
	{"olmo3", POST_ONLY | QK_NORM | QK_NORM_FULL | ALTERNATING | PATTERN_4, OOM_NORM_RMS_FP32, 0, NULL, NULL},
	{"exaone4", POST_ONLY | QK_NORM | ALTERNATING | PATTERN_4, OOM_NORM_RMS, 0, NULL, NULL},
	{"glm4", SANDWICH | FUSED_MLP | NO_O_BIAS, OOM_NORM_RMS, 0.5, NULL, NULL},
	{"hunyuan_v1_dense", QK_NORM | QK_NORM_LATE, OOM_NORM_RMS, 0, NULL, NULL},
	{"starcoder2", ALL_BIAS | TIED, OOM_NORM_LAYER, 0, "c_fc", "c_proj"},
	{"stablelm", 0, OOM_NORM_LAYER, 0.25, NULL, NULL}, {"phi", ALL_BIAS | PARALLEL, OOM_NORM_LAYER, 0.5, "fc1", "fc2"},
	{"gemma3_text", SCALED_EMBED | SANDWICH | ALTERNATING | PATTERN_6 | QK_NORM | TIED, OOM_NORM_RMS_PLUS1, 0, NULL, NULL},
	{"glm", FUSED_MLP | NO_O_BIAS, OOM_NORM_RMS, 0.5, NULL, NULL}, {"nemotron", 0, OOM_NORM_LAYER_1P, 0.5, "up_proj", "down_proj"},
	{"cohere", PARALLEL | TIED | FP32_ROPE, OOM_NORM_LAYER_WRITTEN_OUT, 0, NULL, NULL},
	{"cohere2", PARALLEL | TIED | FP32_ROPE | LOCAL_ROPE | ALTERNATING | PATTERN_4, OOM_NORM_LAYER_WRITTEN_OUT, 0, NULL, NULL},
	{"helium", INTERLEAVED, OOM_NORM_RMS_FP32_W, 0, NULL, NULL}, {"jais2", 0, OOM_NORM_LAYER, 0, "up_proj", "down_proj"},
	{"apertus", QK_NORM | XIELU, OOM_NORM_RMS, 0, "up_proj", "down_proj"}, {"hyperclovax", MULTIPLIERS, OOM_NORM_RMS, 0, NULL, NULL},
	{"nanochat", QK_NORM | QK_NORM_LATE | EMBED_NORM, OOM_NORM_RMS_PLAIN, 0, "fc1", "fc2"},
	{"moshi", 0, OOM_NORM_RMS, 0, NULL, NULL}, {"emu3_text_model", 0, OOM_NORM_RMS, 0, NULL, NULL},
	{"mllama_text_model", 0, OOM_NORM_RMS, 0, NULL, NULL}, {"phi4_multimodal", FUSED, OOM_NORM_RMS, 0, NULL, NULL},
	{"bitnet", SUB_NORM, OOM_NORM_RMS, 0, NULL, NULL}, {"cwm", ALTERNATING, OOM_NORM_RMS, 0, NULL, NULL},
	{"vaultgemma", SCALED_EMBED | ALTERNATING | TIED, OOM_NORM_RMS_PLUS1, 0, NULL, NULL}, {"ministral3", 0, OOM_NORM_RMS, 0, NULL, NULL},
 {"seed_oss", NO_O_BIAS, OOM_NORM_RMS, 0, NULL, NULL},
	{"llama", 0, OOM_NORM_RMS, 0, NULL, NULL}, {"mistral", 0, OOM_NORM_RMS, 0, NULL, NULL}, {"ministral", 0, OOM_NORM_RMS, 0, NULL, NULL}, {"arcee", 0, OOM_NORM_RMS, 0, "up_proj", "down_proj"},
	{"qwen2", QKV_BIAS, OOM_NORM_RMS, 0, NULL, NULL}, {"qwen3", QK_NORM, OOM_NORM_RMS, 0, NULL, NULL}, {"smollm3", 0, OOM_NORM_RMS, 0, NULL, NULL},
	{"gemma", SCALED_EMBED | TIED, OOM_NORM_RMS_PLUS1, 0, NULL, NULL},
	{"gemma2", SCALED_EMBED | SANDWICH | ALTERNATING | TIED, OOM_NORM_RMS_PLUS1, 0, NULL, NULL},
	{"granite", MULTIPLIERS, OOM_NORM_RMS, 0, NULL, NULL}, {"phi3", FUSED, OOM_NORM_RMS, 0, NULL, NULL},
	{"olmo2", POST_ONLY | QK_NORM | QK_NORM_FULL, OOM_NORM_RMS_FP32, 0, NULL, NULL},
	{"mixtral", EXPERTS, OOM_NORM_RMS, 0, NULL, NULL}, {"olmoe", EXPERTS | QK_NORM | QK_NORM_FULL | SCORES_CAST, OOM_NORM_RMS, 0, NULL, NULL},
	{"qwen3_moe", EXPERTS | QK_NORM | SCORES_CAST, OOM_NORM_RMS, 0, NULL, NULL},
	{"ernie4_5_moe", EXPERTS | ALL_BIAS | TIED | FP32_ROPE | INTERLEAVED | ERNIE_ROUTER | SCORES_CAST, OOM_NORM_RMS, 0, NULL, NULL},
	{"cohere2_moe", EXPERTS | PARALLEL | TIED | FP32_ROPE | LOCAL_ROPE | ALTERNATING | PATTERN_4 | SCORES_CAST | TOPK_FIRST,
	 OOM_NORM_LAYER_WRITTEN_OUT, 0, NULL, NULL},
	{"ernie4_5", ALL_BIAS | TIED | FP32_ROPE | INTERLEAVED, OOM_NORM_RMS, 0, NULL, NULL},
	{"granitemoe", EXPERTS | MULTIPLIERS, OOM_NORM_RMS, 0, NULL, NULL},
	{"granitemoeshared", EXPERTS | MULTIPLIERS, OOM_NORM_RMS, 0, NULL, NULL},
	{"hunyuan_v1_moe", EXPERTS | QK_NORM | QK_NORM_LATE, OOM_NORM_RMS, 0, NULL, NULL},
	{"phimoe", EXPERTS, OOM_NORM_LAYER, 0, NULL, NULL},
	{"flex_olmo", EXPERTS | POST_ONLY | QK_NORM | QK_NORM_FULL | SCORES_CAST, OOM_NORM_RMS_FP32, 0, NULL, NULL},
	{"mellum", EXPERTS | QK_NORM | SCORES_CAST | ALTERNATING | LAYER_ROPES, OOM_NORM_RMS, 0, NULL, NULL},
	{"qwen2_moe", EXPERTS | QKV_BIAS | SCORES_CAST | SHARED_GATE, OOM_NORM_RMS, 0, NULL, NULL},
};
enum { FLAGS, KIND, NORM_TOPK, N_CROSS, EMBED_MORE, MOSHI, HEAD_NORMS, N_EXTRA };   /* extra[] */

static bool is_type(const struct oom_arch *a, const char *type)
{
	return !strcmp(a->model_type, type);
}

static void parse_experts(struct oom_arch *a, unsigned flags)
{
	struct oom_reader *r = &a->rd;

	if (!(flags & EXPERTS))
		return;
	a->n_experts = oom_read_count_or(r, "num_local_experts", 0);
	if (!a->n_experts)
		a->n_experts = oom_read_count(r, "num_experts", 1);
	if (!strcmp(a->model_type, "hunyuan_v1_moe")) { /* one number, or one for every layer */
		a->top_k = (uint64_t)oom_read_item_real(r, "moe_topk", 0, 0);
		a->top_k = a->top_k ? a->top_k : oom_read_count_or(r, "moe_topk", 1);
	} else {
		a->top_k = oom_read_count(r, "num_experts_per_tok", 1);
	}
	a->d_expert = oom_read_count_or(r, "moe_intermediate_size", a->d_ff);
	a->extra[NORM_TOPK] = oom_read_bool(r, "norm_topk_prob", !(flags & SCORES_CAST)) &&
			      !(flags & TOPK_FIRST);
	a->d_shared = flags & SHARED_GATE ?
			      oom_read_count_or(r, "shared_expert_intermediate_size", 0) :
			      0;
	if (!strcmp(a->model_type, "hunyuan_v1_moe"))
		a->d_shared = a->d_expert = a->d_ff;
	if (!strcmp(a->model_type, "granitemoeshared"))
		a->d_shared = oom_read_count_or(r, "shared_intermediate_size", 0);
	if (flags & ERNIE_ROUTER)
		a->d_shared = a->d_expert * oom_read_count_or(r, "moe_num_shared_experts", 0);
	if (flags & TOPK_FIRST) {
		a->d_shared = a->d_expert * oom_read_count_or(r, "num_shared_experts", 0);
		a->d_ff = oom_read_count_or(r, "prefix_dense_intermediate_size", a->d_ff);
	}
	if (a->top_k > a->n_experts)
		snprintf(a->warning, sizeof(a->warning),
			 "num_experts_per_tok (%llu) is more than the %llu experts: no step runs "
			 "so.",
			 (unsigned long long)a->top_k, (unsigned long long)a->n_experts);
}

/* Which layers are dense although the model has experts: mlp_only_layers and decoder_sparse_step
 * (Qwen MoE). */
static void parse_kinds(struct oom_arch *a, unsigned flags)
{
	struct oom_reader *r = &a->rd;
	const uint64_t sparse = oom_read_count_or(r, "decoder_sparse_step", 1);
	const uint64_t set = oom_read_count_or(r, "sliding_window_pattern",
					       flags & PATTERN_4 ? 4 : 6),
		       pattern = set ? set : 6;
	const uint64_t start = flags & ERNIE_ROUTER ?
				       oom_read_count_or(r, "moe_layer_start_index", 1) :
				       0;
	const uint64_t every = flags & ERNIE_ROUTER ?
				       oom_read_count_or(r, "moe_layer_interval", 1) :
				       1;
	const double end = flags & ERNIE_ROUTER ? oom_read_real(r, "moe_layer_end_index", -1) : -1;
	const struct oom_key *only = oom_read_key(r, "mlp_only_layers");
	bool any = false;

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i),
			   *mlp = oom_read_item(r, "mlp_layer_types", (uint32_t)i);
		bool slides = flags & (PATTERN_6 | PATTERN_4) ? (i + 1) % pattern != 0 :
			      is_type(a, "cwm")		      ? i % 4 != 0 :
			      flags & LAYER_ROPES	      ? false :
			      flags & ALTERNATING	      ? !(i % 2) :
								a->window != 0;
		bool dense = flags & EXPERTS && sparse > 1 && (i + 1) % sparse;

		if (type)
			slides = !strcmp(type, "sliding_attention");
		if (flags & EXPERTS && mlp)
			dense = !strcmp(mlp, "dense");
		dense |= i < start || (every && (i + 1) % every) || (end >= 0 && (double)i > end);
		any |= slides;
		for (uint32_t j = 0; only && only->type == OOM_KEY_LIST && j < only->n_items; j++)
			dense |= oom_read_item_real(r, "mlp_only_layers", j, -1) == (double)i;
		a->kind[i] = (uint8_t)(slides | dense << 1);
	}
	if (flags & LAYER_ROPES && !any)
		a->window = 0;
}

/* What single types have and no other. */
static void parse_own(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *cross = is_type(a, "mllama_text_model") ?
					      oom_read_key(r, "cross_attention_layers") :
					      NULL;

	a->extra[MOSHI] = is_type(a, "moshi");
	a->extra[EMBED_MORE] = a->extra[MOSHI] ? 1 : is_type(a, "mllama_text_model") ? 8 : 0;
	a->float_logits = a->extra[EMBED_MORE] != 0;
	a->tie = a->tie && !a->extra[EMBED_MORE];      /* head and embedding differ in length */
	if (is_type(a, "phi")) {
		a->dropout = oom_read_real(r, "resid_pdrop", 0);
		a->embed_dropout = oom_read_real(r, "embd_pdrop", 0);
	}
	if (is_type(a, "stablelm")) {
		if (oom_read_bool(r, "use_parallel_residual", false))
			a->extra[FLAGS] |= PARALLEL;
		a->dropout = oom_read_real(r, "hidden_dropout", 0);
		a->extra[HEAD_NORMS] = oom_read_bool(r, "qk_layernorm", false);
	}
	if (is_type(a, "helium")) {
		a->o_bias = false;
		if (a->n_heads * a->head_dim != a->d_model)
			snprintf(a->warning, sizeof(a->warning),
				 "helium's output projection takes hidden_size, not "
				 "num_attention_heads * head_dim: "
				 "no step runs so.");
	}
	if (is_type(a, "emu3_text_model"))
		a->dropout = a->attn_dropout;
	for (uint32_t i = 0; cross && cross->type == OOM_KEY_LIST && i < cross->n_items; i++) {
		const double at = oom_read_item_real(r, "cross_attention_layers", i, -1);

		a->extra[N_CROSS] += at >= 0 && at < (double)a->n_layers;
	}
	for (uint64_t i = 3; is_type(a, "mllama_text_model") &&
			     (!cross || cross->type != OOM_KEY_LIST) && i < a->n_layers && i < 40;
	     i += 5)
		a->extra[N_CROSS]++;            /* the default: 3, 8, ... 38 */
	if (a->extra[N_CROSS] >= a->n_layers)
		oom_read_fail(r, "cross_attention_layers leaves no layer for text");
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *window;
	unsigned flags = 0;
	size_t k = sizeof(kinds) / sizeof(kinds[0]);

	a->norm = OOM_NORM_RMS;
	a->rotary_share = 1;
	while (k-- > 0)
		if (!strcmp(kinds[k].type, a->model_type)) {
			flags = kinds[k].flags;
			a->norm = kinds[k].norm;
			a->extra[KIND] = k;
			a->rotary_share = kinds[k].rotary > 0 ? kinds[k].rotary : 1;
		}
	if (oom_read_bool(r, "use_post_norm", false))   /* HyperCLOVA X */
		flags |= SANDWICH;
	a->extra[FLAGS] = flags;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = is_type(a, "moshi") ? oom_read_count(r, "ffn_dim", 2) / 2 :
					oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	if (!a->n_kv_heads || !a->head_dim) {
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
		return;
	}
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	if (!(flags & XIELU))
		a->act = oom_read_act(r,
				      oom_read_key(r, "hidden_activation") ? "hidden_activation" :
									     "hidden_act",
				      "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", (flags & TIED) != 0);
	a->qkv_bias = (flags & QKV_BIAS && oom_read_bool(r, "qkv_bias", true)) ||
		      (!(flags & QKV_BIAS) && oom_read_bool(r, "attention_bias", false));
	a->o_bias = !(flags & QKV_BIAS) && oom_read_bool(r, "attention_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->dropout = flags & FUSED ? oom_read_real(r, "resid_pdrop", 0) : 0;
	a->softcap_attn = oom_read_real(r, "attn_logit_softcapping", 0);
	a->softcap_logits = oom_read_real(r, "final_logit_softcapping", 0);
	if (flags & ALL_BIAS) {
		a->qkv_bias = a->o_bias = a->mlp_bias = oom_read_bool(r, "use_bias", true);
		a->head_bias = flags & PARALLEL || (flags & ERNIE_ROUTER && a->qkv_bias);
	}
	a->head_bias |= oom_read_bool(r, "lm_head_bias", false);
	a->qkv_bias |= oom_read_bool(r, "use_qkv_bias", false);
	a->o_bias = a->o_bias && !(flags & NO_O_BIAS);
	a->o_bias |= oom_read_bool(r, "attention_out_bias", false);
	a->dropout = oom_read_real(r, "residual_dropout", a->dropout);
	a->embed_dropout = oom_read_real(r, "embedding_dropout", 0);    /* StarCoder 2 */
	a->rotary_share = oom_read_real(r, "partial_rotary_factor", a->rotary_share);
	a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
					a->rotary_share);
	window = oom_read_key(r, "sliding_window");
	if (window && window->type == OOM_KEY_NUMBER && window->number >= 1 &&
	    window->number < 1e9 &&
	    oom_read_bool(r, "use_sliding_window", strncmp(a->model_type, "qwen", 4) != 0))
		a->window = (uint64_t)window->number;
	a->scale_logits = flags & MULTIPLIERS || !strncmp(a->model_type, "cohere", 6);
	if (oom_read_bool(r, "use_qk_norm", false) ||
	    (!is_type(a, "stablelm") && oom_read_bool(r, "qk_layernorm", false)))
		oom_read_fail(r, "%s with query and key norms is not modelled", a->model_type);
	parse_own(a);
	parse_experts(a, flags);
	parse_kinds(a, flags);
	if (flags & TOPK_FIRST &&
	    (a->d_shared || oom_read_real(r, "rms_norm_eps", 0) > 0 ||
	     strcmp(oom_read_string(r, "expert_selection_fn", "softmax"), "softmax"))) {
		a->approximate = true;
		snprintf(a->warning, sizeof(a->warning),
			 "%s: shared experts, sigmoid scores and RMS norms are approximated.",
			 a->model_type);
	}
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope, local;    /* local: the sliding layers' own tables (Gemma 3) */
	struct oom_val mask[2];         /* full, sliding */
};

static struct oom_val fused_attention(struct oom_tape *t, const struct oom_attn *at,
				      struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	const struct oom_dim q = {at->heads * at->d, "n_heads * head_dim"},
			     kv = {at->kv_heads * at->d, "n_kv_heads * head_dim"};
	const struct oom_dim parts[3] = {q, kv, kv};
	const uint64_t rot = at->rot_dim ? at->rot_dim : at->d;
	const struct oom_val arg = x;           /* the module's until it returns */
	struct oom_val p[3], local[3], qkv;

	qkv = oom_op_linear(t, "qkv_proj", oom_keep(arg),
			    (struct oom_dim){q.n + 2 * kv.n,
					     "(n_heads + 2 * n_kv_heads) * head_dim"},
			    0);
	oom_op_split(t, qkv, 3, parts, p);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
	oom_rope_pair(t, &p[0], &p[1], at->rope, at->heads, at->kv_heads, at->d, rot);
	/* torch.cat([rotated, rest]) although nothing rests: a copy */
	if (rot == at->d) {
		p[0] = oom_op_copy(t, "cat", p[0]);
		p[1] = oom_op_copy(t, "cat", p[1]);
	}
	for (int i = 0; i < 3; i++)             /* query_states and its like, to the end */
		local[i] = oom_share(t, p[i]);
	x = oom_op_linear(t, "o_proj", oom_attention_core(t, at, p[0], p[1], p[2]), h, 0);
	for (int i = 2; i >= 0; i--)
		oom_drop(t, local[i]);
	oom_drop(t, arg);
	return x;
}

static struct oom_val fused_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim f[2] = {D(a->d_ff), D(a->d_ff)}, h = {x.width, x.text};
	struct oom_val p[2], gate;

	oom_op_split(t, oom_op_linear(t, "gate_up_proj", oom_keep(x), D(2 * a->d_ff), 0), 2, f, p);
	gate = oom_share(t, p[0]);              /* a view of both halves, a local to the end */
	p[0] = oom_activation(t, a->act, p[0]);
	p[0] = oom_op_linear(t, "down_proj", oom_op_mul(t, p[1], p[0]), h, 0);
	oom_drop(t, gate);
	oom_done(t, x);
	return p[0];
}

/* where(x > 0, alpha_p * x * x + beta * x, (expm1(min(x, eps)) - x) * alpha_n + beta * x),
 * written out in Python. */
static struct oom_val xielu(struct oom_tape *t, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val ap = oom_param(t, "alpha_p", 0, 1, 0), an = oom_param(t, "alpha_n", 0, 1, 0),
		       pos, neg, cond;

	oom_buffer(t, 1, dt);
	oom_buffer(t, 1, dt);
	ap = oom_op_unary(t, OOM_SOFTPLUS, ap);
	an = oom_op_unary(t, OOM_ADD_SCALAR, oom_op_unary(t, OOM_SOFTPLUS, an));
	cond = oom_new(t, "x > 0", x.mono, (struct oom_dim){x.width, x.text}, OOM_U8);
	pos = oom_op_mul(t, oom_op_mul(t, ap, oom_keep(x)), oom_keep(x));
	pos = oom_op_add(t, pos, oom_op_unary(t, OOM_SCALE, oom_keep(x)));
	neg = oom_op_unary(t, OOM_EXP, oom_op_unary(t, OOM_CLAMP, oom_keep(x)));
	neg = oom_op_mul(t, oom_op_add(t, neg, oom_keep(x)), an);
	neg = oom_op_add(t, neg, oom_op_unary(t, OOM_SCALE, x));
	return oom_op_add(t, oom_op_masked(t, "where", pos, cond), neg);
}

static struct oom_val xielu_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	struct oom_val y = oom_op_linear(t, "up_proj", oom_keep(x), D(a->d_ff), 0);

	y = oom_op_linear(t, "down_proj", xielu(t, y), h, 0);
	oom_done(t, x);
	return y;
}

/* BitNet: down(norm(act(gate(x)) * up(x))). */
static struct oom_val sub_norm_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, f = D(a->d_ff);
	struct oom_val gate = oom_activation(t, a->act,
					     oom_op_linear(t, "gate_proj", oom_keep(x), f, 0));

	gate = oom_op_mul(t, gate, oom_op_linear(t, "up_proj", oom_keep(x), f, 0));
	gate = oom_op_linear(t, "down_proj", oom_norm(t, a->norm, "ffn_sub_norm", gate, 0), h, 0);
	oom_done(t, x);
	return gate;
}

/* Moshi: both halves are picked out of one projection. */
static struct oom_val moshi_mlp(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, f = D(a->d_ff);
	struct oom_val y = oom_op_linear(t, "fc1", oom_keep(x), D(2 * a->d_ff), 0), g;

	g = oom_activation(t, a->act, oom_op_slice(t, oom_keep(y), y.mono, f));
	y = oom_op_linear(t, "fc2", oom_op_mul(t, g, oom_op_slice(t, y, y.mono, f)), h, 0);
	oom_done(t, x);
	return y;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, uint8_t kind,
				   struct oom_val x)
{
	const uint64_t flags = a->extra[FLAGS];
	/* Phi MoE's sparsemixer always picks two */
	const struct oom_moe m = {.experts = a->n_experts,
				  .top_k = is_type(a, "phimoe") && a->n_experts > 1 ? 2 : a->top_k,
				  .d_expert = a->d_expert,
				  .d_shared = a->d_shared,
				  .act = a->act,
				  .norm_topk = a->extra[NORM_TOPK],
				  .scores_in_model_type = flags & SCORES_CAST,
				  .shared_gate = flags & SHARED_GATE,
				  .router_frozen_bias = flags & ERNIE_ROUTER,
				  .topk_first = flags & TOPK_FIRST,
				  .gate_fp32 = !strcmp(a->model_type, "hunyuan_v1_moe")};

	if (!strncmp(a->model_type, "granitemoe", 10))
		return oom_moe_parallel_experts(t, &m, x);
	if (a->n_experts && !(kind & 2))
		return oom_moe_mlp(t, &m, x);
	if (a->extra[MOSHI])
		return moshi_mlp(t, a, x);
	if (flags & XIELU)
		return xielu_mlp(t, a, x);
	if (flags & SUB_NORM)
		return sub_norm_mlp(t, a, x);
	if (flags & (FUSED | FUSED_MLP))
		return fused_mlp(t, a, x);
	if (kinds[a->extra[KIND]].up)
		return oom_plain_mlp(t, x, kinds[a->extra[KIND]].up, kinds[a->extra[KIND]].down,
				     a->act, D(a->d_ff), a->mlp_bias);
	return oom_gated_mlp(t, x, a->act, D(a->d_ff), a->mlp_bias);
}

/* residual + h, with Granite's multiplier or Phi-3's dropout before the sum */
static struct oom_val join(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			   struct oom_val h)
{
	if (a->extra[FLAGS] & MULTIPLIERS)
		h = oom_op_unary(t, OOM_SCALE, h);
	return oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
}

/* OLMo rotates in its tables' type and converts the results. */
static bool olmo(const struct oom_arch *a)
{
	return !strncmp(a->model_type, "olmo", 4) || is_type(a, "flex_olmo");
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint64_t flags = a->extra[FLAGS];
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const bool post = flags & (SANDWICH | POST_ONLY);
	struct oom_rope rope = flags & (PATTERN_6 | LAYER_ROPES) && kind & 1 ? l->local : l->rope;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val h;

	at.layer_names_weights = true;
	at.rope = &rope;
	at.mask = l->mask[kind & 1];
	at.qk_norm = flags & QK_NORM;
	at.qk_norm_full = flags & QK_NORM_FULL;
	at.qk_norm_late = flags & QK_NORM_LATE;
	at.rot_dim = (uint64_t)((double)a->head_dim * a->rotary_share);
	at.rope_fp32 = flags & FP32_ROPE && a->rope_axes != OOM_ROPE_3D_LAYER;
	at.rope_spread = flags & INTERLEAVED && !a->rope_axes;
	at.rope_sections = a->rope_axes == OOM_ROPE_3D_LAYER || a->rope_axes == OOM_ROPE_3D_SPREAD;
	if (flags & LOCAL_ROPE && !(kind & 1))
		at.rope = NULL;
	at.repeat_kv = a->extra[MOSHI] || is_type(a, "nemotron");
	at.rope_cat = is_type(a, "nemotron");
	at.rope_back = olmo(a) && !is_type(a, "olmoe");
	at.views_late = olmo(a) || is_type(a, "stablelm") || is_type(a, "nemotron") ||
			a->extra[MOSHI];
	at.q_scaled = is_type(a, "ministral3");
	at.norm_per_head = a->extra[HEAD_NORMS];
	at.o_square = is_type(a, "helium");
	at.rope_inline = is_type(a, "phi") || is_type(a, "stablelm");
	/* an attention's rotary module, its frequencies twice, though the model's own is used */
	for (int k = 0; k < 2 && is_type(a, "nemotron"); k++)
		oom_buffer(t, at.rot_dim / 2, OOM_F32);
	if (a->extra[MOSHI])                    /* every layer makes its own tables */
		rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	at.o_norm = flags & SUB_NORM ? "attn_sub_norm" : NULL;
	h = flags & POST_ONLY ? oom_share(t, x) :
				oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);
	if (flags & PARALLEL) {                 /* x + attention(h) + feed_forward(h) */
		struct oom_val y, sum;

		at.o = flags & ALL_BIAS ? "dense" : "o_proj";
		y = oom_attention(t, &at, oom_keep(h));
		if (is_type(a, "phi"))
			y = oom_op_dropout(t, y, a->dropout);
		h = oom_op_dropout(t, feed_forward(t, a, kind, h), a->dropout);
		/* all three are locals until the layer returns */
		sum = oom_op_add(t, oom_keep(y), oom_keep(h));
		sum = oom_op_add(t, sum, x);
		oom_drop(t, y);
		oom_drop(t, h);
		return sum;
	}
	/* the normed input, both branches: names of their own to the end */
	if (is_type(a, "stablelm")) {
		struct oom_val y = oom_attention(t, &at, oom_keep(h)), z;

		x = oom_op_add(t, x, oom_keep(y));
		z = feed_forward(t, a, kind,
				 oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0));
		x = oom_op_add(t, x, oom_op_dropout(t, z, a->dropout));
		oom_drop(t, y);
		oom_drop(t, h);
		return x;
	}
	h = flags & FUSED ? fused_attention(t, &at, h) : oom_attention(t, &at, h);
	if (a->extra[MOSHI]) {
		oom_drop(t, rope.cos);
		oom_drop(t, rope.sin);
	}
	if (post)
		h = oom_norm(t, a->norm, "post_attention_layernorm", h, 0);
	x = join(t, a, x, h);
	h = flags & POST_ONLY ? oom_share(t, x) :
				oom_norm(t, a->norm,
					 flags & SANDWICH ? "pre_feedforward_layernorm" :
							    "post_attention_layernorm",
					 oom_keep(x), 0);
	h = feed_forward(t, a, kind, h);
	if (post)
		h = oom_norm(t, a->norm, "post_feedforward_layernorm", h, 0);
	return join(t, a, x, h);
}

/* A mask for full attention is made although no layer may use it. */
static bool both_masks(const struct oom_arch *a)
{
	return is_type(a, "ministral") || is_type(a, "qwen2") || is_type(a, "qwen3") ||
	       is_type(a, "qwen2_moe") || is_type(a, "smollm3");
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t flags = a->extra[FLAGS],
		       rot = (uint64_t)((double)a->head_dim * a->rotary_share);
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab + a->extra[EMBED_MORE], a->d_model,
			  OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab + a->extra[EMBED_MORE], D(a->d_model));
	if (flags & SCALED_EMBED) {
		oom_buffer(t, 1, x.dt == OOM_F32 && !t->plan->qlora ? OOM_F32 : OOM_DT_BF16);
		x = oom_op_unary(t, OOM_SCALE, x);
	}
	x = oom_input_grads(t, x);
	if (flags & MULTIPLIERS)
		x = oom_op_unary(t, OOM_SCALE, x);
	/* inputs_embeds and position_ids, locals of the model */
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	dt = (enum oom_dtype)x.dt;
	l.mask[0] = flags & ALTERNATING || !a->window || both_masks(a) ?
			    oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s) :
			    oom_none();
	l.mask[1] = a->window ? oom_make_mask(t, true, a->window, dt, t->m_b, t->m_s, t->m_s) :
				oom_none();
	/* made only from a mask that is given */
	if (a->extra[MOSHI] && !t->plan->padding_mask) {
		oom_drop(t, l.mask[0]);
		oom_drop(t, l.mask[1]);
		l.mask[0] = l.mask[1] = oom_none();
	}
	l.rope.cos = l.rope.sin = oom_none();
	if (a->rope_axes)
		l.rope = oom_rope_tables_3d(t, rot ? rot : a->head_dim, dt, 2,
					    a->rope_axes != OOM_ROPE_3D_LAYER);
	else if (!a->extra[MOSHI])
		l.rope = oom_rope_tables(t, rot ? rot : a->head_dim,
					 (flags & FP32_ROPE && flags & INTERLEAVED) ||
							 (olmo(a) && !is_type(a, "olmo3") &&
							  !is_type(a, "olmoe")) ?
						 OOM_F32 :
						 dt,
					 2);
	l.local.cos = l.local.sin = oom_none();
	if (flags & PATTERN_6 || (flags & LAYER_ROPES && a->window))
		l.local = oom_rope_tables(t, a->head_dim, dt, 2);
	if (is_type(a, "phi")) {                /* under the embeddings' own name */
		oom_drop(t, first);
		x = oom_op_dropout(t, x, a->embed_dropout);
		first = oom_share(t, x);
	} else {
		x = oom_op_dropout(t, x, a->embed_dropout);
	}
	if (flags & EMBED_NORM)
		x = oom_norm(t, a->norm, "norm", x, 0);
	oom_llama_cross_unused(t, a, a->extra[N_CROSS]);
	if (is_type(a, "phi4_multimodal"))
		oom_llama_phi4_unused(t, a);
	x = oom_layers(t,
		       (uint32_t)(oom_depth(t, a->n_layers) > a->extra[N_CROSS] ?
					  oom_depth(t, a->n_layers) - a->extra[N_CROSS] :
					  1),
		       a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.local.cos);
	oom_drop_shared(t, l.local.sin);
	oom_drop_shared(t, l.mask[0]);
	oom_drop_shared(t, l.mask[1]);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	/* logits.float(), sliced and copied, whatever the library's usual loss */
	if (a->extra[MOSHI]) {
		const struct oom_plan *real = t->plan;
		struct oom_plan sliced = *real;

		sliced.fused_ce = sliced.fused_ce == OOM_LOSS_FUSED ? OOM_LOSS_FUSED :
								      OOM_LOSS_SLICED;
		t->plan = &sliced;
		x = oom_causal_tail(t, a, x, embed);
		t->plan = real;
		return x;
	}
	return oom_causal_tail(t, a, x, embed);
}

static const char *const types[] = {"llama",
				    "mistral",
				    "ministral",
				    "qwen2",
				    "qwen3",
				    "smollm3",
				    "gemma",
				    "gemma2",
				    "granite",
				    "phi3",
				    "olmo2",
				    "mixtral",
				    "olmoe",
				    "qwen3_moe",
				    "qwen2_moe",
				    "flex_olmo",
				    "mellum",
				    "hunyuan_v1_moe",
				    "phimoe",
				    "granitemoe",
				    "granitemoeshared",
				    "ernie4_5",
				    "ernie4_5_moe",
				    "cohere2_moe",
				    "olmo",
				    "olmo3",
				    "exaone4",
				    "glm4",
				    "hunyuan_v1_dense",
				    "starcoder2",
				    "stablelm",
				    "phi",
				    "gemma3_text",
				    "glm",
				    "nemotron",
				    "cohere",
				    "seed_oss",
				    "arcee",
				    "cohere2",
				    "helium",
				    "jais2",
				    "apertus",
				    "hyperclovax",
				    "nanochat",
				    "bitnet",
				    "moshi",
				    "emu3_text_model",
				    "mllama_text_model",
				    "phi4_multimodal",
				    "cwm",
				    "vaultgemma",
				    "ministral3",
				    NULL};

const struct oom_family oom_family_llama = {
	.name = "llama",
	.summary = "pre-norm decoder, rotary positions, grouped heads, gated feed-forward or "
		   "experts",
	.source = "transformers 5.12 models/llama/modeling_llama.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
