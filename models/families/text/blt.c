/* BLT, the Byte Latent Transformer: bytes through a small encoder, patches of them through a global
 * transformer, a decoder back to bytes; a frozen byte model says where patches begin.
 * Reference: transformers 5.12, models/blt/modeling_blt.py.
 *
 * Where patches begin depends on the text: their number is taken as bytes / patch_size.  The hash
 * embeddings' lookups and the cross-attention masks are left out, and the warning says so. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"

enum { PATCHER, ENCODER, GLOBAL, DECODER, STACKS };
static const char *const prefix[STACKS] = {"patcher_config", "encoder_config", "global_config",
					   "decoder_config"};
/* of stack k: extra[k * PER + ...] */
enum { DIM, FF, LAYERS, HEADS, KV, PER, HASH_ROWS = STACKS * PER, CROSS_K, PATCH };

static uint64_t get(struct oom_reader *r, int k, const char *key, uint64_t def)
{
	char path[96];

	snprintf(path, sizeof(path), "%s.%s", prefix[k], key);
	return oom_read_count_or(r, path, def);
}

static void parse(struct oom_arch *a)
{
	static const uint64_t usual[STACKS][4] = {{768, 2048, 14, 12},
						  {1024, 2816, 1, 16},
						  {2048, 5632, 25, 16},
						  {1024, 2816, 9, 16}};
	struct oom_reader *r = &a->rd;
	const struct oom_key *sizes = oom_read_key(r, "encoder_hash_byte_group_size");
	const uint64_t groups = sizes && sizes->type == OOM_KEY_LIST && sizes->n_items ?
					sizes->n_items :
					6;

	a->norm = OOM_NORM_RMS;
	a->act = OOM_ACT_SILU;
	a->vocab = oom_read_count_or(r, "vocab_size", 260);
	for (int k = 0; k < STACKS; k++) {
		uint64_t *x = &a->extra[k * PER];

		x[DIM] = get(r, k, "hidden_size", usual[k][0]);
		x[FF] = get(r, k, "intermediate_size", usual[k][1]);
		x[LAYERS] = get(r, k, "num_hidden_layers", usual[k][2]);
		x[HEADS] = get(r, k, "num_attention_heads", usual[k][3]);
		x[KV] = get(r, k, "num_key_value_heads", x[HEADS]);
		if (!x[DIM] || !x[FF] || !x[LAYERS] || !x[HEADS] || !x[KV] || x[DIM] % x[HEADS] ||
		    x[HEADS] % x[KV] || x[LAYERS] > OOM_MAX_LAYERS) {
			oom_read_fail(r, "%s does not describe a stack of layers", prefix[k]);
			return;
		}
	}
	a->d_model = a->extra[GLOBAL * PER + DIM];
	a->d_ff = a->extra[GLOBAL * PER + FF];
	a->n_layers = a->extra[GLOBAL * PER + LAYERS];
	a->n_heads = a->extra[GLOBAL * PER + HEADS];
	a->n_kv_heads = a->extra[GLOBAL * PER + KV];
	a->head_dim = a->d_model / a->n_heads;
	a->tie = oom_read_bool(r, "tie_word_embeddings", false) &&
		 a->extra[ENCODER * PER + DIM] == a->extra[DECODER * PER + DIM];
	a->float_logits = true;
	a->extra[HASH_ROWS] = oom_read_count_or(r, "encoder_hash_byte_group_vocab", 500002) *
			      groups *
			      oom_read_count_or(r, "encoder_hash_byte_group_nb_functions", 1);
	a->extra[CROSS_K] = oom_read_count_or(r, "cross_attn_k", 2);
	a->extra[PATCH] = oom_read_count_or(r, "patch_size", 4);
	if (!a->extra[CROSS_K] || a->extra[CROSS_K] > 64 || !a->extra[PATCH] ||
	    a->extra[PATCH] > 65536)
		oom_read_fail(r, "cross_attn_k and patch_size must be from 1 to 64 and 65536");
	snprintf(a->warning, sizeof(a->warning),
		 "blt: the number of patches is taken as bytes / patch_size, cross-attention and "
		 "hash "
		 "embeddings are approximated.");
	a->approximate = true;
}

struct stack {
	const struct oom_arch *a;
	struct oom_rope rope;
	/* patches: keys of the decoder's cross-attention, or none */
	struct oom_val mask, patches;
	int k;
	uint16_t m_tokens, m_len;
};

static uint64_t of(const struct oom_arch *a, int k, int what)
{
	return a->extra[k * PER + what];
}

static struct oom_attn attention_of(struct oom_tape *t, const struct stack *s)
{
	struct oom_attn at = oom_attn_of(t, s->a);

	at.heads = of(s->a, s->k, HEADS);
	at.kv_heads = of(s->a, s->k, KV);
	at.d = at.dv = of(s->a, s->k, DIM) / at.heads;
	at.mq = at.mk = s->m_tokens;
	at.sk = s->m_len;
	at.mask = s->mask;
	return at;
}

/* x + o(attention(norm(x), norm(patches))) */
static struct oom_val cross(struct oom_tape *t, const struct stack *s, struct oom_val x,
			    struct oom_val from, uint16_t m_from, uint16_t len)
{
	const uint64_t d = of(s->a, s->k, DIM);
	struct oom_attn at = attention_of(t, s);
	struct oom_val q, k, v, y;
	const struct oom_dim h = {d, "hidden_size"},
			     kv = {at.kv_heads * at.d, "n_kv_heads * head_dim"};

	at.mask = oom_none();
	at.causal = false;
	at.mk = m_from;
	at.sk = len;
	q = oom_op_linear(t, "q_proj", oom_norm(t, s->a->norm, "q_norm", oom_keep(x), 0), h, 0);
	from = oom_norm(t, s->a->norm, "k_norm", from, d);
	k = oom_op_linear_in(t, "k_proj", oom_keep(from), d, kv, 0);
	v = oom_op_linear_in(t, "v_proj", from, d, kv, 0);
	k.mono = v.mono = m_from;
	k.width = v.width = kv.n;
	y = oom_attention_core(t, &at, oom_op_heads(t, q), oom_op_heads(t, k), oom_op_heads(t, v));
	return oom_op_add(t, x, oom_op_linear(t, "o_proj", y, h, 0));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_arch *a = s->a;
	struct oom_attn at = attention_of(t, s);
	struct oom_rope rope = s->rope;
	struct oom_val h;

	(void)i;
	at.rope = &rope;
	if (!oom_is_none(s->patches))
		x = cross(t, s, x, oom_keep(s->patches), s->patches.mono,
			  oom_len_ceil(t, OOM_MONO_ONE, a->extra[PATCH]));
	h = oom_attention(t, &at, oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0));
	x = oom_op_add(t, x, h);
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	return oom_op_add(t, x,
			  oom_gated_mlp(t, h, a->act,
					(struct oom_dim){of(a, s->k, FF), "intermediate_size"},
					false));
}

static struct oom_val run(struct oom_tape *t, struct stack *s, int k, struct oom_val x,
			  struct oom_val patches)
{
	const struct oom_arch *a = s->a;
	const uint64_t n = k == GLOBAL ? oom_depth(t, of(a, k, LAYERS)) : of(a, k, LAYERS);

	s->k = k;
	s->patches = patches;
	s->m_len = k == GLOBAL ? oom_len_ceil(t, OOM_MONO_ONE, a->extra[PATCH]) : t->m_s;
	s->m_tokens = oom_mono_mul(t, t->m_b, s->m_len);
	s->mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, s->m_len, s->m_len);
	s->rope = oom_rope_tables(t, of(a, k, DIM) / of(a, k, HEADS), (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)n, NULL, block, s, x);
	oom_drop_shared(t, s->rope.cos);
	oom_drop_shared(t, s->rope.sin);
	oom_drop_shared(t, s->mask);
	return x;
}

/* The byte model that cuts the text: frozen, run without gradients. */
static void patcher(struct oom_tape *t, struct stack *s, struct oom_val ids)
{
	const struct oom_arch *a = s->a;
	const uint64_t d = of(a, PATCHER, DIM), kv = d / of(a, PATCHER, HEADS) * of(a, PATCHER, KV),
		       f = of(a, PATCHER, FF);
	const bool grad = t->grad;
	struct oom_val x;

	t->scope = "patcher";
	oom_param(t, "embed_tokens.weight", a->vocab, d, OOM_P_FROZEN);
	for (uint64_t i = 0; i < of(a, PATCHER, LAYERS); i++) {
		const uint64_t shape[][2] = {{d, d}, {kv, d}, {kv, d}, {d, d}, {f, d},
					     {f, d}, {d, f},  {0, d},  {0, d}};

		for (size_t j = 0; j < sizeof(shape) / sizeof(shape[0]); j++)
			oom_param(t, "weight", shape[j][0], shape[j][1],
				  OOM_P_FROZEN | (shape[j][0] ? OOM_P_LINEAR : OOM_P_NORM));
	}
	oom_param(t, "norm.weight", 0, d, OOM_P_FROZEN | OOM_P_NORM);
	oom_param(t, "lm_head.weight", a->vocab, d, OOM_P_FROZEN);
	t->grad = false;
	x = oom_new(t, "patcher hidden", ids.mono, (struct oom_dim){d, "hidden_size"}, OOM_DT_BF16);
	oom_scratch(t, "patcher feed-forward", ids.mono, 3 * f, OOM_DT_BF16);
	oom_drop(t, x);
	t->grad = grad;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t e = of(a, ENCODER, DIM), d = of(a, DECODER, DIM), k = a->extra[CROSS_K];
	const uint16_t m_len = oom_len_ceil(t, OOM_MONO_ONE, a->extra[PATCH]),
		       m_patches = oom_mono_mul(t, t->m_b, m_len);
	struct oom_val embed, x, p, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct stack s = {.a = a};
	const struct oom_dim wide = {e * k, "hidden_size * cross_attn_k"},
			     out = {d * k, "hidden_size * cross_attn_k"};

	patcher(t, &s, ids);
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, e, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab,
						      (struct oom_dim){e, "hidden_size"}));
	x = oom_op_add(t, x,
		       oom_op_embedding(t, "encoder_hash_tok_embedding", ids, a->extra[HASH_ROWS],
					(struct oom_dim){e, "hidden_size"}, 0));
	x = run(t, &s, ENCODER, x, oom_none());
	/* patch_reduce: the largest of every patch; projected to cross_attn_k queries each */
	p = oom_op_gather(t, "patch_reduce", oom_keep(x), oom_none(), m_patches,
			  (struct oom_dim){e, "hidden_size"});
	p = oom_op_linear(t, "patch_embedding_projection", p, wide, 0);
	{
		const struct oom_attn at = attention_of(t, &s);
		const struct oom_dim kv = {at.kv_heads * at.d, "n_kv_heads * head_dim"},
				     h = {e, "hidden_size"};
		struct oom_val q = oom_op_linear_in(t, "q_proj",
						    oom_norm(t, a->norm, "q_norm", oom_keep(p), e),
						    e, h, 0),
			       n;

		n = oom_norm(t, a->norm, "k_norm", oom_keep(x), 0);
		oom_drop(t, oom_op_linear(t, "k_proj", oom_keep(n), kv, 0));
		oom_drop(t, oom_op_linear(t, "v_proj", n, kv, 0));
		p = oom_op_add(t, p, oom_op_linear_in(t, "o_proj", q, e, h, 0));
	}
	/* the sizes of two sub configs that do not meet: only the weights are right */
	if (wide.n != a->d_model) {
		oom_drop(t, p);
		p = oom_new(t, "patches", m_patches, D(a->d_model), (enum oom_dtype)x.dt);
	}
	p = run(t, &s, GLOBAL, p, oom_none());
	{
		struct oom_reader r = a->rd;
		const uint64_t in =
			oom_read_count_or(&r, "decoder_config.hidden_size_global", 2048);

		if (in != p.width) {
			oom_drop(t, p);
			p = oom_new(t, "patches", m_patches,
				    (struct oom_dim){in, "hidden_size_global"},
				    (enum oom_dtype)x.dt);
		}
	}
	p = oom_op_linear(t, "patch_embedding_projection", p, out, 0);
	if (d != e) {
		oom_drop(t, x);
		x = oom_new(t, "bytes", t->m_bs, (struct oom_dim){d, "hidden_size"},
			    (enum oom_dtype)p.dt);
	}
	x = run(t, &s, DECODER, x, p);
	oom_drop_shared(t, p);
	x = oom_norm(t, a->norm, "norm", x, 0);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_blt = {
	.name = "blt",
	.summary = "bytes, patches of bytes, bytes again; a frozen byte model cuts the patches",
	.source = "transformers 5.12 models/blt/modeling_blt.py",
	.types = OOM_TYPE("blt"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
