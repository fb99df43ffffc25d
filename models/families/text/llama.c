/* Pre-norm decoders with rotary positions: Llama and the many types that differ from it as
 * llama_types.c says. Reference: transformers 5.12,
 * models/{llama,mistral,qwen2,qwen3,gemma,gemma2,granite,phi3,olmo2,mixtral,qwen2_moe,
 * olmoe,...}/modeling_*.py. */
#include "blocks/decoder.h"
#include "llama.h"

enum { SLIDES = 1, DENSE = 2 };         /* of kind[]; OOM_LLAMA_CROSS besides */

struct llama_layer {
	struct oom_decoder_layer base;
	struct oom_crossed crossed;     /* what cross-attention layers attend to */
};

/* One projection for all three.  name: NULL is Phi-3's, whose rotated and passed parts are joined in any
 * case. */
static struct oom_val llama_fused_attention(struct oom_tape *t, const struct oom_attn *at,
					    const char *name, struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text};
	const struct oom_dim q = {at->heads * at->d, "n_heads * head_dim"},
			     kv = {at->kv_heads * at->d, "n_kv_heads * head_dim"};
	const struct oom_dim parts[3] = {q, kv, kv};
	const uint64_t rot = at->rot_dim ? at->rot_dim : at->d;
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	x = oom_arg(&f, x);
	y = oom_op_linear(t, name ? name : "qkv_proj", x,
			  (struct oom_dim){q.n + 2 * kv.n, "(n_heads + 2 * n_kv_heads) * head_dim"},
			  at->qkv_bias ? OOM_BIAS : 0);
	oom_op_split(t, y, 3, parts, p);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, p[i]);
	oom_rope_pair(t, &p[0], &p[1], at->rope, at->heads, at->kv_heads, at->d, rot);
	/* torch.cat([rotated, rest]) although nothing rests: a copy */
	for (int i = 0; i < 2 && rot == at->d && !name; i++)
		p[i] = oom_op_copy(t, "cat", p[i]);
	oom_name_each(&f, p, 3);
	y = oom_attention_core(t, at, p[0], p[1], p[2]);
	return oom_leave(&f, oom_op_linear(t, at->o, y, h, at->o_bias ? OOM_BIAS : 0));
}

/* residual + h, with Granite's multiplier or Phi-3's dropout before the sum */
static struct oom_val llama_join(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				 struct oom_val h)
{
	if (llama_kind(a)->multipliers)
		h = oom_op_unary(t, OOM_SCALE, h);
	return oom_op_add(t, x, llama_kind(a)->dropout_within ? h : oom_op_dropout(t, h, a->dropout));
}

/* What a module returns: where its last operation is the dropout, its argument in lives that long. */
static struct oom_val llama_returned(struct oom_frame *f, const struct oom_arch *a, struct oom_val in, struct oom_val y)
{
	if (!llama_kind(a)->dropout_within)
		return y;
	y = oom_op_dropout(f->t, y, a->dropout);
	oom_forget(f, in);
	return y;
}

static const struct oom_llama_norm_names *names(const struct oom_arch *a)
{
	static const struct oom_llama_norm_names usual = {
		"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
		"norm", "q_norm", "k_norm"};

	return llama_kind(a)->names ? llama_kind(a)->names : &usual;
}

/* The attention's switches.  f: the layer's frame; sliding: whether it slides. */
static struct oom_attn llama_attention_of(struct oom_frame *f, const struct oom_decoder_layer *l,
					  bool sliding, const struct oom_rope *rope)
{
	const struct oom_arch *a = l->a;
	const struct oom_llama_kind *k = llama_kind(a);
	struct oom_attn at = oom_attn_of(f->t, a);

	at.caller = f;
	at.q_norm = names(a)->q;
	at.k_norm = names(a)->k;
	at.rope = k->rope_sliding_only && !sliding ? NULL : rope;
	at.mask = sliding ? l->sliding : l->mask;
	at.qk_norm = k->qk != OOM_QK_PLAIN || llama_of(a)->qk_norm;
	at.qk_norm_full = k->qk == OOM_QK_WHOLE;
	at.qk_norm_late = k->qk == OOM_QK_LATE;
	at.rot_dim = oom_rot_dim(a);
	at.rope_fp32 = k->rope_fp32 && a->rope_axes != OOM_ROPE_3D_LAYER;
	at.rope_spread = k->rope_spread && !a->rope_axes;
	at.rope_sections = a->rope_axes == OOM_ROPE_3D_LAYER || a->rope_axes == OOM_ROPE_3D_SPREAD;
	at.rope_cat = k->rope_cat;
	at.rope_back = k->rope_back;
	at.rope_inline = k->rope_inline;
	at.repeat_kv = k->repeat_kv;
	at.repeat_kv_flash = k->repeat_kv_flash;
	at.views_late = k->views_late;
	at.q_scaled = k->q_scaled;
	at.norm_per_head = llama_of(a)->head_norms;
	at.o_square = k->o_square;
	at.o_norm = k->o_norm;
	at.o = k->o ? k->o : at.o;
	return at;
}

/* x + attention(h) + feed_forward(h): all three are locals until the layer returns. */
static struct oom_val llama_parallel(struct oom_frame *f, const struct oom_arch *a,
				     const struct oom_attn *at, bool dense, struct oom_val x)
{
	struct oom_tape *t = f->t;
	struct oom_val h, y, z;

	h = oom_name(f, oom_norm(t, a->norm, names(a)->before, x, 0));
	y = oom_attention(t, at, h);
	if (llama_kind(a)->branch_dropout)
		y = oom_op_dropout(t, y, a->dropout);
	y = oom_name(f, y);
	z = oom_llama_feed_forward(t, a, dense, oom_take(f, h));
	z = oom_name(f, oom_op_dropout(t, z, a->dropout));
	return oom_op_add(t, oom_op_add(t, y, z), x);
}

/* StableLM: the normed input and attention's output have names of their own to the end. */
static struct oom_val llama_named(struct oom_frame *f, const struct oom_arch *a,
				  const struct oom_attn *at, bool dense, struct oom_val x)
{
	struct oom_tape *t = f->t;
	struct oom_val h, y;

	h = oom_name(f, oom_norm(t, a->norm, names(a)->before, x, 0));
	y = oom_name(f, oom_attention(t, at, h));
	x = oom_name(f, oom_op_add(t, x, y));
	h = oom_norm(t, a->norm, names(a)->after, x, 0);
	h = oom_llama_feed_forward(t, a, dense, h);
	return oom_op_add(t, x, oom_op_dropout(t, h, a->dropout));
}

static struct oom_val llama_sequential(struct oom_frame *f, const struct oom_arch *a,
				       const struct oom_attn *at, bool dense, struct oom_val x)
{
	const enum oom_llama_norms norms = llama_of(a)->norms;
	const bool before = norms != OOM_NORMS_AFTER, after = norms != OOM_NORMS_BEFORE;
	const struct oom_llama_kind *k = llama_kind(a);
	struct oom_tape *t = f->t;
	struct oom_val h, in;

	h = before ? oom_norm(t, a->norm, names(a)->before, x, 0) : x;
	in = h = k->dropout_within ? oom_name(f, h) : h;
	h = k->fused_qkv || k->qkv ? llama_fused_attention(t, at, k->qkv, h) :
				     oom_attention(t, at, h);
	h = llama_returned(f, a, in, h);
	if (k->layer_tables) {
		oom_forget(f, at->rope->cos);
		oom_forget(f, at->rope->sin);
	}
	if (after)
		h = oom_norm(t, a->norm, names(a)->after, h, 0);
	x = oom_name(f, llama_join(t, a, x, h));
	h = before ? oom_norm(t, a->norm, after || k->names ? names(a)->before_mlp : names(a)->after, x, 0) : x;
	in = h = k->dropout_within ? oom_name(f, h) : h;
	h = llama_returned(f, a, in, oom_llama_feed_forward(t, a, dense, h));
	if (after)
		h = oom_norm(t, a->norm, names(a)->after_mlp, h, 0);
	return llama_join(t, a, x, h);
}

static struct oom_val llama_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct llama_layer *l = ctx;
	const struct oom_arch *a = l->base.a;
	const struct oom_llama_kind *k = llama_kind(a);
	const uint8_t layer = oom_layer_kind(a, i);
	const bool sliding = layer & SLIDES, dense = layer & DENSE,
		   local = sliding && k->local_tables;
	struct oom_rope rope = local ? l->base.local : l->base.rope;
	struct oom_frame f = {.t = t};
	struct oom_attn at = llama_attention_of(&f, &l->base, sliding, &rope);

	if (l->crossed.there && layer & OOM_LLAMA_CROSS)
		return oom_llama_cross_layer(t, a, &l->crossed, x);
	for (uint64_t j = 0; j < k->layer_frequencies; j++)
		oom_buffer(t, at.rot_dim / 2, OOM_F32);
	/* in torch's default type, which is the loaded one while from_pretrained makes the model */
	if (k->tables_kept && t->plan->rope_tables >= (int64_t)k->tables_kept)
		for (int j = 0; j < 2; j++)
			oom_buffer(t, a->max_positions * at.rot_dim, oom_loaded_dtype(t->plan));
	if (k->layer_tables) {
		/* in the values' type (modeling_moshi.py, MoshiAttention.forward: rotary_emb(value_states, ...)) */
		rope = oom_rope_tables(t, a->head_dim, oom_linear_dtype(t, x.dt), 2);
		rope.cos = oom_name(&f, rope.cos);
		rope.sin = oom_name(&f, rope.sin);
	}
	switch (llama_of(a)->shape) {
	case OOM_SHAPE_PARALLEL: x = llama_parallel(&f, a, &at, dense, x); break;
	case OOM_SHAPE_NAMED: x = llama_named(&f, a, &at, dense, x); break;
	case OOM_SHAPE_UNEVEN: x = oom_llama_uneven(&f, a, at, layer, x); break;
	case OOM_SHAPE_SEQUENTIAL: x = llama_sequential(&f, a, &at, dense, x); break;
	}
	return oom_leave(&f, x);
}

/* Masks and rotary tables. */
static void llama_shares(struct oom_frame *f, struct oom_decoder_layer *l, enum oom_dtype dt)
{
	const struct oom_arch *a = l->a;
	const struct oom_llama_kind *k = llama_kind(a);
	const uint64_t rot = oom_rot_dim(a) ? oom_rot_dim(a) : a->head_dim;
	const bool full = k->slide != OOM_SLIDE_ALL || !a->window || k->both_masks;
	const uint64_t window = a->window ? a->window : k->sliding_mask;  /* 1: no sequence is shorter */
	struct oom_tape *t = f->t;

	if (full)
		l->mask = oom_name_for(f, oom_causal_mask(t, 0, dt), oom_any_layer(t, a, SLIDES, 0));
	if (window)
		l->sliding = oom_name_for(f, oom_causal_mask(t, window, dt),
					  oom_any_layer(t, a, SLIDES, SLIDES));
	if (k->mask_if_padded && !t->plan->padding_mask) {
		oom_forget(f, l->mask);
		oom_forget(f, l->sliding);
		l->mask = l->sliding = oom_none();
	}
	if (a->rope_axes || (!k->layer_tables && (!k->local_tables || oom_any_layer(t, a, SLIDES, 0))))
		l->rope = oom_name_tables(f, oom_rope_tables_of(t, a, rot, k->tables_fp32 && !a->rope_axes ? OOM_F32 : dt));
	if (k->local_tables && a->window && oom_any_layer(t, a, SLIDES, SLIDES))
		l->local = oom_name_tables(f, oom_rope_tables(t, a->head_dim, dt, 2));
}

static struct oom_val llama_prepare(struct oom_frame *f, const struct oom_arch *a,
				    struct oom_decoder_layer *l, struct oom_val x)
{
	const struct oom_llama_kind *k = llama_kind(a);
	struct oom_tape *t = f->t;

	((struct llama_layer *)l)->crossed = t->crossed;
	llama_shares(f, l, x.dt);
	if (k->embed_dropout_renames)
		x = oom_rename(f, x, oom_op_dropout(t, x, a->embed_dropout));
	else
		x = oom_op_dropout(t, x, a->embed_dropout);
	if (k->embed_norm)
		x = oom_norm(t, a->norm, names(a)->last, x, 0);
	if (k->unused && !t->crossed.there)
		k->unused(t, a);
	return x;
}

static struct oom_val llama_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_llama_kind *k = llama_kind(a);
	const uint64_t passed = t->crossed.there ? 0 : llama_of(a)->cross;
	const struct oom_decoder d = {.embed = "embed_tokens", .more_rows = k->embed_more,
				      .norm = names(a)->last, .position_ids = true,
				      .gemma_embed = k->scaled_embed, .multiplied = k->multipliers,
				      .kinds = !passed, .passed = passed,
				      .layer_size = sizeof(struct llama_layer),
				      .block = llama_block, .prepare = llama_prepare};
	struct oom_val embed, x = oom_decoder_model(t, a, &d, &embed);

	if (t->crossed.there)
		t->crossed.over(t, t->crossed.ctx);
	if (k->shift_logits)
		t->shift = OOM_SHIFT_LOGITS_FP32;
	return oom_causal_tail(t, a, x, embed);
}

static const char *llama_unasked(const struct oom_arch *a, enum oom_task task)
{
	(void)task;
	return llama_kind(a)->towers ? OOM_ON_WORDS_ALONE("images or audio take", "them") : "";
}

/* Their queries, keys and values are one layer. */
static const struct oom_type_targets llama_targets[] = {
	{"phi3", "all-linear", NULL}, {"phi4_multimodal", "all-linear", NULL},
	{"llama", NULL, "input_layernorm+post_attention_layernorm+norm"}, {"mistral", NULL, "input_layernorm+post_attention_layernorm+norm"},
	{"phi", NULL, "input_layernorm+final_layernorm"}, {"gemma", NULL, "input_layernorm+post_attention_layernorm+norm"},
	{"gemma2", NULL, "input_layernorm+post_attention_layernorm+pre_feedforward_layernorm+post_feedforward_layernorm+norm"},
	{"gemma3_text", NULL, "input_layernorm+post_attention_layernorm+pre_feedforward_layernorm+post_feedforward_layernorm+norm"},
	{"qwen2", NULL, "post_attention_layernorm"}, {"qwen3", NULL, "post_attention_layernorm"}, {NULL, NULL, NULL},
};

const struct oom_family oom_family_llama = {
	.name = "llama",
	.summary = "pre-norm decoder, rotary positions, grouped heads, gated feed-forward or "
		   "experts",
	.source = "transformers 5.12 models/llama/modeling_llama.py",
	.types = oom_llama_types,
	.inner_types = oom_llama_remote_types,
	.lora_targets = "q_proj+v_proj",
	.type_targets = llama_targets,
	.unasked = llama_unasked,
	.parse = oom_llama_parse,
	.step = llama_step,
};
