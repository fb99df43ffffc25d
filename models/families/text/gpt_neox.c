/* GPT-NeoX (Pythia): parallel attention and feed-forward, fused qkv, partial rotary positions;
 * Persimmon: the same one after the other, with norms of queries and keys.
 * Reference: transformers 5.12, models/{gpt_neox,persimmon}/modeling_*.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct gpt_neox_kind {
	bool sequential;        /* whatever the config says; no dropout but the feed-forward's */
	bool qk_norm;           /* unless the config says otherwise */
	struct oom_decoder decoder;
};
OOM_KIND(gpt_neox, struct gpt_neox_kind);
struct gpt_neox {
	bool parallel;
	double dropout;                 /* of the attention's result and the embeddings */
};
OOM_OWN(gpt_neox, struct gpt_neox);

static const struct oom_key_row gpt_neox_keys[] = {
	OOM_DECODER_KEYS, MUST(d_ff, "intermediate_size"),
	OR(max_positions, "max_position_embeddings", 2048), ACT(act, "hidden_act", "gelu"),
	REAL(dropout, "hidden_dropout", 0), REAL(attn_dropout, "attention_dropout", 0),
	FLAG(tie, "tie_word_embeddings", false), FLAG(qkv_bias, "attention_bias", true),
	FLAG_OWN(struct gpt_neox, parallel, "use_parallel_residual", true),
	REAL(rotary_share, "rotary_pct", 0.25), OOM_KEYS_END};

static void gpt_neox_parse(struct oom_arch *a)
{
	const struct gpt_neox_kind *kind = gpt_neox_kind_of(a);
	struct gpt_neox *own = gpt_neox_own(a);
	struct oom_reader *r = &a->rd;

	a->rotary_share = oom_read_real(r, "partial_rotary_factor", a->rotary_share);
	if (oom_read_explicit(r, "rope_parameters.partial_rotary_factor"))
		a->rotary_share = oom_read_real(r, "rope_parameters.partial_rotary_factor",
						a->rotary_share);
	own->dropout = kind->sequential ? 0 : a->dropout;
	own->parallel &= !kind->sequential;
	a->qk_norm = kind->qk_norm && oom_read_bool(r, "qk_layernorm", true);
}

/* Persimmon's parts: views of the projection; the norm's kernel makes them contiguous for
 * itself. */
static void persimmon_parts(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			    struct oom_val p[3])
{
	static const char *const norms[] = {"q_layernorm", "k_layernorm"};

	for (int i = 0; i < 3; i++)
		p[i] = oom_op_slice(t, x, x.mono, D(a->d_model));
	for (int i = 0; i < 2 && a->qk_norm; i++)
		p[i] = oom_op_layer_norm(t, norms[i], p[i], a->head_dim, true, true);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
}

/* layer: the frame of the block, where the weights have a name. */
static struct oom_val gpt_neox_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
					 struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct gpt_neox_kind *kind = gpt_neox_kind_of(a);
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_layer_attn(t, l, false);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], qkv;

	at.caller = layer;
	x = oom_arg(&f, x);                     /* the normed states, until the call returns */
	qkv = oom_op_linear(t, "query_key_value", x, D(3 * a->d_model), bias);
	qkv = oom_name(&f, qkv);
	if (kind->sequential)
		persimmon_parts(t, a, qkv, p);
	else
		oom_op_split(t, oom_op_heads(t, qkv), 3, parts, p);
	at.rot_dim = oom_rot_dim(a);
	at.rope_inline = at.rope_cat = kind->sequential;
	oom_attn_rotate(&f, &at, &p[0], &p[1]);
	oom_name_each(&f, p, 2);                /* query_states and key_states, until the call returns */
	x = oom_attention_core(t, &at, p[0], p[1], p[2]);
	return oom_leave(&f, oom_op_linear(t, "dense", x, h, bias));
}

static struct oom_val gpt_neox_block(struct oom_tape *t, const void *ctx, uint32_t i,
				     struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct gpt_neox_kind *kind = gpt_neox_kind_of(a);
	const struct gpt_neox *own = gpt_neox_of(a);
	struct oom_frame f = {.t = t};
	struct oom_val y, h;

	(void)i;
	y = gpt_neox_attention(&f, l, oom_norm(t, a->norm, "input_layernorm", x, 0));
	y = oom_op_dropout(t, y, own->dropout);
	if (!kind->sequential)                  /* attn_output; Persimmon has one name for all */
		y = oom_name(&f, y);
	if (!own->parallel)
		x = kind->sequential ? oom_name(&f, oom_op_add(t, y, x)) : oom_rename(&f, y, oom_op_add(t, y, x));
	h = oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = oom_plain_mlp(t, h, "dense_h_to_4h", "dense_4h_to_h", a->act, D(a->d_ff), true);
	h = oom_op_dropout(t, h, a->dropout);
	if (!kind->sequential)
		h = oom_name(&f, h);
	if (own->parallel)
		h = oom_op_add(t, h, y);
	return oom_leave(&f, oom_op_add(t, h, x));
}

static struct oom_val gpt_neox_prepare(struct oom_frame *f, const struct oom_arch *a,
				       struct oom_decoder_layer *l, struct oom_val x)
{
	const enum oom_dtype dt = x.dt;
	struct oom_tape *t = f->t;

	l->mask = oom_name_shared(f, oom_causal_mask(t, 0, dt));
	x = oom_op_dropout(t, x, gpt_neox_of(a)->dropout);
	l->rope = oom_name_tables(f, oom_rope_tables(t, oom_rot_dim(a), dt, 2));
	return x;
}

#define LAYERS .position_ids = true, .block = gpt_neox_block, .prepare = gpt_neox_prepare
static const struct gpt_neox_kind gpt_neox = {
	.decoder = {LAYERS, .embed = "embed_in", .norm = "final_layer_norm", .head = "embed_out"}};
static const struct gpt_neox_kind persimmon = {
	.sequential = true, .qk_norm = true,
	.decoder = {LAYERS, .embed = "embed_tokens", .norm = "final_layernorm"}};
static const struct oom_family_type gpt_neox_types[] = {
	{"gpt_neox", &gpt_neox}, {"persimmon", &persimmon}, {NULL, NULL},
};

static struct oom_val gpt_neox_step(struct oom_tape *t, const struct oom_arch *a)
{
	return oom_decoder_step(t, a, &gpt_neox_kind_of(a)->decoder);
}

const struct oom_family oom_family_gpt_neox = {
	.name = "gpt_neox",
	.summary = "parallel decoder, fused qkv, partial rotary positions",
	.source = "transformers 5.12 models/gpt_neox/modeling_gpt_neox.py",
	.types = gpt_neox_types,
	.norm = OOM_NORM_LAYER,
	.lora_targets = "query_key_value",
	.keys = gpt_neox_keys,
	.parse = gpt_neox_parse,
	.decoder = &gpt_neox.decoder,           /* or Persimmon's, whose layers are the same */
	.step = gpt_neox_step,
};
