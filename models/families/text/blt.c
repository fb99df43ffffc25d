/* BLT, the Byte Latent Transformer: bytes through a small encoder, patches of them through a global
 * transformer, a decoder back to bytes; a frozen byte model says where patches begin.
 * Reference: transformers 5.12, models/blt/modeling_blt.py.
 *
 * Where patches begin depends on the text: their number is taken as bytes / patch_size.  The hash
 * embeddings' lookups and the cross-attention masks are left out, and the warning says so. */
#include <stdio.h>

#include "blocks/blocks.h"
#include "config/keys.h"

enum { PATCHER, ENCODER, GLOBAL, DECODER, STACKS };
struct blt_sizes {
	uint64_t d, ff, layers, heads, kv_heads;
};
struct blt {
	struct blt_sizes stack[STACKS];
	uint64_t hash_vocab, hash_functions, hash_rows, cross_k, patch, global_width;
};
OOM_OWN(blt, struct blt);

#define COUNT(field, word, number) OR_OWN(struct blt, field, word, number)
#define STACK(k, prefix, wide, feed, deep, many) \
	COUNT(stack[k].d, prefix ".hidden_size", wide), \
		COUNT(stack[k].ff, prefix ".intermediate_size", feed), \
		COUNT(stack[k].layers, prefix ".num_hidden_layers", deep), \
		COUNT(stack[k].heads, prefix ".num_attention_heads", many)
static const struct oom_key_row blt_keys[] = {
	OR(vocab, "vocab_size", 260), STACK(PATCHER, "patcher_config", 768, 2048, 14, 12),
	STACK(ENCODER, "encoder_config", 1024, 2816, 1, 16),
	STACK(GLOBAL, "global_config", 2048, 5632, 25, 16),
	STACK(DECODER, "decoder_config", 1024, 2816, 9, 16),
	FLAG(tie, "tie_word_embeddings", false),
	COUNT(hash_vocab, "encoder_hash_byte_group_vocab", 500002),
	COUNT(hash_functions, "encoder_hash_byte_group_nb_functions", 1),
	COUNT(cross_k, "cross_attn_k", 2), COUNT(patch, "patch_size", 4),
	COUNT(global_width, "decoder_config.hidden_size_global", 2048), OOM_KEYS_END};

static void blt_parse(struct oom_arch *a)
{
	static const char *const prefix[STACKS] = {"patcher_config", "encoder_config",
						   "global_config", "decoder_config"};
	struct blt *own = blt_own(a);
	struct oom_reader *r = &a->rd;
	const struct blt_sizes *whole = &own->stack[GLOBAL];
	const struct oom_key *sizes = oom_read_key(r, "encoder_hash_byte_group_size");

	a->act = OOM_ACT_SILU;
	for (int k = 0; k < STACKS; k++) {
		struct blt_sizes *n = &own->stack[k];
		char path[96];

		snprintf(path, sizeof(path), "%s.num_key_value_heads", prefix[k]);
		n->kv_heads = oom_read_count_or(r, path, n->heads);
		if (!n->d || !n->ff || !n->layers || !n->heads || !n->kv_heads || n->d % n->heads ||
		    n->heads % n->kv_heads || n->layers > OOM_MAX_LAYERS) {
			oom_read_fail(r, "%s does not describe a stack of layers", prefix[k]);
			return;
		}
	}
	a->d_model = whole->d;
	a->d_ff = whole->ff;
	a->n_layers = whole->layers;
	a->n_heads = whole->heads;
	a->n_kv_heads = whole->kv_heads;
	a->head_dim = a->d_model / a->n_heads;
	a->tie &= own->stack[ENCODER].d == own->stack[DECODER].d;
	a->float_logits = true;
	own->hash_rows = own->hash_vocab * own->hash_functions *
			 (sizes && sizes->type == OOM_KEY_LIST && sizes->n_items ? sizes->n_items : 6);
	if (!own->cross_k || own->cross_k > 64 || !own->patch || own->patch > 65536)
		oom_read_fail(r, "cross_attn_k and patch_size must be from 1 to 64 and 65536");
	oom_warn(a, "blt: the number of patches is taken as bytes / patch_size, cross-attention "
		 "and hash embeddings are approximated.");
	a->approximate = true;
}

struct stack {
	const struct oom_arch *a;
	const struct blt_sizes *n;
	struct oom_rope rope;
	/* patches: keys of the decoder's cross-attention, or none */
	struct oom_val mask, patches;
	uint16_t m_tokens, m_len;
};

static uint16_t patches_len(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_len_ceil(t, OOM_MONO_ONE, blt_of(a)->patch);
}

static struct oom_attn attention_of(struct oom_tape *t, const struct stack *s)
{
	struct oom_attn at = oom_attn_of(t, s->a);

	at.heads = s->n->heads;
	at.kv_heads = s->n->kv_heads;
	at.d = at.dv = s->n->d / at.heads;
	at.mq = at.mk = s->m_tokens;
	at.sk = s->m_len;
	at.mask = s->mask;
	return at;
}

/* x + o(attention(norm(x), norm(patches))); both are borrowed. */
static struct oom_val cross(struct oom_tape *t, const struct stack *s, struct oom_val x)
{
	struct oom_attn at = attention_of(t, s);
	const uint64_t d = s->n->d;
	const struct oom_dim h = {d, "hidden_size"},
			     kv = {at.kv_heads * at.d, "n_kv_heads * head_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v, from;

	at.mask = oom_none();
	at.causal = false;
	at.mk = s->patches.mono;
	at.sk = patches_len(t, s->a);
	q = oom_op_linear(t, "q_proj", oom_norm(t, s->a->norm, "q_norm", x, 0), h, 0);
	from = oom_name(&f, oom_norm(t, s->a->norm, "k_norm", s->patches, d));
	k = oom_op_linear_in(t, "k_proj", from, d, kv, 0);
	v = oom_op_linear_in(t, "v_proj", oom_take(&f, from), d, kv, 0);
	k.mono = v.mono = at.mk;
	k.width = v.width = kv.n;
	q = oom_op_heads(t, q);
	k = oom_op_heads(t, k);
	q = oom_attention_core(t, &at, q, k, oom_op_heads(t, v));
	return oom_op_add(t, x, oom_op_linear(t, "o_proj", q, h, 0));
}

static struct oom_val blt_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct stack *s = ctx;
	const struct oom_arch *a = s->a;
	const struct oom_dim ff = {s->n->ff, "intermediate_size"};
	struct oom_attn at = attention_of(t, s);
	struct oom_rope rope = s->rope;
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	at.rope = &rope;
	if (!oom_is_none(s->patches))
		x = oom_name(&f, cross(t, s, x));
	h = oom_attention(t, &at, oom_norm(t, a->norm, "input_layernorm", x, 0));
	x = oom_rename(&f, x, oom_op_add(t, x, h));
	h = oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = oom_gated_mlp(t, h, a->act, ff, false);
	return oom_leave(&f, oom_op_add(t, x, h));
}

/* The k-th stack over x, consumed. */
static struct oom_val run(struct oom_tape *t, const struct oom_arch *a, int k, struct oom_val x,
			  struct oom_val patches)
{
	struct stack s = {.a = a, .n = &blt_of(a)->stack[k], .patches = patches};
	const uint64_t layers = k == GLOBAL ? oom_depth(t, s.n->layers) : s.n->layers;
	const enum oom_dtype dt = x.dt;
	struct oom_frame f = {.t = t};

	s.m_len = k == GLOBAL ? patches_len(t, a) : t->m_s;
	s.m_tokens = oom_mono_mul(t, t->m_b, s.m_len);
	s.mask = oom_name_shared(&f, oom_make_mask(t, true, 0, dt, t->m_b, s.m_len, s.m_len));
	s.rope = oom_name_tables(&f, oom_rope_tables(t, s.n->d / s.n->heads, dt, 2));
	return oom_leave(&f, oom_layers(t, (uint32_t)layers, NULL, blt_block, &s, x));
}

/* The byte model that cuts the text: frozen, run without gradients. */
static void patcher(struct oom_tape *t, const struct oom_arch *a, struct oom_val ids)
{
	const struct blt_sizes *n = &blt_of(a)->stack[PATCHER];
	const uint64_t d = n->d, kv = d / n->heads * n->kv_heads, ff = n->ff;
	struct oom_frame f = {.t = t};
	const bool grad = t->grad;

	t->scope = "patcher";
	oom_param(t, "embed_tokens.weight", a->vocab, d, OOM_P_FROZEN);
	for (uint64_t i = 0; i < n->layers; i++) {
		const uint64_t shape[][2] = {{d, d}, {kv, d}, {kv, d}, {d, d}, {ff, d},
					     {ff, d}, {d, ff},  {0, d},  {0, d}};

		for (size_t j = 0; j < sizeof(shape) / sizeof(shape[0]); j++)
			oom_param(t, "weight", shape[j][0], shape[j][1],
				  OOM_P_FROZEN | (shape[j][0] ? OOM_P_LINEAR : OOM_P_NORM));
	}
	oom_param(t, "norm.weight", 0, d, OOM_P_FROZEN | OOM_P_NORM);
	oom_param(t, "lm_head.weight", a->vocab, d, OOM_P_FROZEN);
	t->grad = false;
	oom_name(&f, oom_new(t, "patcher hidden", ids.mono, (struct oom_dim){d, "hidden_size"},
			     OOM_DT_BF16));
	oom_scratch(t, "patcher feed-forward", ids.mono, 3 * ff, OOM_DT_BF16);
	oom_leave(&f, oom_none());
	t->grad = grad;
}

/* The encoder's cross-attention of patches p, consumed, to bytes x, borrowed: without its mask and
 * scores. */
static struct oom_val gather_bytes(struct oom_tape *t, const struct oom_arch *a, struct oom_val p,
				   struct oom_val x)
{
	const struct blt_sizes *n = &blt_of(a)->stack[ENCODER];
	const struct oom_dim h = {n->d, "hidden_size"},
			     kv = {n->kv_heads * (n->d / n->heads), "n_kv_heads * head_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val q, k;

	p = oom_name(&f, p);
	q = oom_op_linear_in(t, "q_proj", oom_norm(t, a->norm, "q_norm", p, n->d), n->d, h, 0);
	k = oom_name(&f, oom_norm(t, a->norm, "k_norm", x, 0));
	oom_discard(t, oom_op_linear(t, "k_proj", k, kv, 0));
	oom_discard(t, oom_op_linear(t, "v_proj", oom_take(&f, k), kv, 0));
	q = oom_op_linear_in(t, "o_proj", q, n->d, h, 0);
	return oom_op_add(t, oom_take(&f, p), q);
}

/* x of the width that the next stack takes: two sub configs that do not meet have the right weights
 * alone. */
static struct oom_val met(struct oom_tape *t, const char *name, struct oom_val x,
			  struct oom_dim width)
{
	if (x.width == width.n)
		return x;
	oom_discard(t, x);
	return oom_new(t, name, x.mono, width, x.dt);
}

static struct oom_val blt_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct blt *own = blt_of(a);
	const uint64_t e = own->stack[ENCODER].d, d = own->stack[DECODER].d;
	const struct oom_dim h = {e, "hidden_size"}, dec = {d, "hidden_size"},
			     wide = {e * own->cross_k, "hidden_size * cross_attn_k"},
			     out = {d * own->cross_k, "hidden_size * cross_attn_k"},
			     taken = {own->global_width, "hidden_size_global"};
	const uint16_t m_patches = oom_mono_mul(t, t->m_b, patches_len(t, a));
	struct oom_frame f = {.t = t};
	struct oom_val embed, x, p, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	patcher(t, a, ids);
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, e, OOM_P_EMBEDDING);
	x = oom_input_grads(t, oom_op_embedding_param(t, embed, ids, a->vocab, h));
	x = oom_op_add(t, x, oom_op_embedding(t, "encoder_hash_tok_embedding", ids, own->hash_rows,
					      h, 0));
	x = oom_name(&f, run(t, a, ENCODER, x, oom_none()));
	/* patch_reduce: the largest of every patch; projected to cross_attn_k queries each */
	p = oom_op_gather(t, "patch_reduce", x, oom_none(), m_patches, h);
	p = oom_op_linear(t, "patch_embedding_projection", p, wide, 0);
	p = met(t, "patches", gather_bytes(t, a, p, x), D(a->d_model));
	p = met(t, "patches", run(t, a, GLOBAL, p, oom_none()), taken);
	p = oom_op_linear(t, "patch_embedding_projection", p, out, 0);
	x = met(t, "bytes", oom_take(&f, x), dec);
	p = oom_name_shared(&f, p);
	x = oom_leave(&f, run(t, a, DECODER, x, p));
	return oom_causal_tail(t, a, oom_norm(t, a->norm, "norm", x, 0), embed);
}

const struct oom_family oom_family_blt = {
	.name = "blt",
	.summary = "bytes, patches of bytes, bytes again; a frozen byte model cuts the patches",
	.source = "transformers 5.12 models/blt/modeling_blt.py",
	.types = OOM_TYPE("blt"),
	.norm = OOM_NORM_RMS,
	.lora_targets = "q_proj+v_proj",
	.keys = blt_keys,
	.parse = blt_parse,
	.step = blt_step,
};
