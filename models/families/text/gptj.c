/* GPT-J and CodeGen: one norm, attention and feed-forward side by side, rotation of every two,
 * scores in fp32. Reference: transformers 5.12, models/{gptj,codegen}/modeling_*.py. */
#include "blocks/decoder.h"
#include "config/keys.h"

struct gptj_kind {
	bool flash;             /* has a class for flash attention */
	bool fused;             /* one projection in four slices (CodeGen) */
	bool picked;            /* the rows of the table are picked by an index, in fp32 */
	bool mask_first;        /* scores are masked, then scaled */
};
OOM_KIND(gptj, struct gptj_kind);
static const struct oom_family_type gptj_types[] = {
	{"gptj", &(const struct gptj_kind){.flash = true}},
	{"codegen", &(const struct gptj_kind){.fused = true, .picked = true, .mask_first = true}},
	{NULL, NULL},
};

struct gptj {
	uint64_t rotary;
};
OOM_OWN(gptj, struct gptj);

static const struct oom_key_row gptj_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "n_embd"), MUST(n_layers, "n_layer"),
	MUST(n_heads, "n_head"), LIKE(d_ff, "n_inner", 4, d_model),
	MUST(max_positions, "n_positions"), ACT(act, "activation_function", "gelu_new"),
	REAL(dropout, "resid_pdrop", 0), REAL(attn_dropout, "attn_pdrop", 0),
	REAL(embed_dropout, "embd_pdrop", 0), FLAG(tie, "tie_word_embeddings", false),
	OR_OWN(struct gptj, rotary, "rotary_dim", 64), OOM_KEYS_END};

static void gptj_parse(struct oom_arch *a)
{
	const uint64_t rotary = gptj_of(a)->rotary;

	a->head_bias = true;
	if (rotary > a->head_dim || rotary < 2)
		oom_read_fail(&a->rd, "rotary_dim (%llu) must be from 2 to the head's %llu",
			      (unsigned long long)rotary, (unsigned long long)a->head_dim);
}

static bool written_out(const struct oom_tape *t, const struct oom_arch *a)
{
	return t->plan->attn != OOM_ATTN_FLASH || !gptj_kind_of(a)->flash;
}

/* One row of positions for all sequences, but for packed ones, whose collator gives each its own. */
static uint16_t of_positions(const struct oom_tape *t)
{
	return t->plan->packing ? t->m_bs : t->m_s;
}

/* tensor * cos + rotate_every_two(tensor) * sin; repeat_interleave makes the full tables anew
 * each time. */
static struct oom_val rotate(struct oom_tape *t, struct oom_val x, struct oom_val sincos,
			     uint64_t rot)
{
	const enum oom_dtype dt = sincos.dt;
	struct oom_frame f = {.t = t};
	struct oom_rope rope;

	rope.sin = oom_name(&f, oom_new(t, "sin", of_positions(t), D(rot), dt));
	rope.cos = oom_name(&f, oom_new(t, "cos", of_positions(t), D(rot), dt));
	return oom_leave(&f, oom_rope_apply(t, x, &rope, 1, x.width, x.width));
}

/* The rows of the sinusoidal table at the positions: a buffer in every layer.  What is made on the
 * way are names of f's, the attention's. */
static struct oom_val table(struct oom_frame *f, const struct oom_arch *a, enum oom_dtype dt)
{
	const struct gptj_kind *kind = gptj_kind_of(a);
	const uint64_t rot = gptj_of(a)->rotary;
	struct oom_tape *t = f->t;

	oom_buffer(t, a->max_positions * rot, OOM_F32);
	if (kind->picked)
		return oom_new(t, "embed_positions[position_ids]", of_positions(t), D(rot), OOM_F32);
	oom_name(f, oom_new(t, "embed_positions", OOM_MONO_ONE, D(a->max_positions * rot), OOM_F32));
	oom_name(f, oom_new(t, "repeated_position_ids", of_positions(t), D(rot), OOM_I64));
	return oom_op_cast(t, oom_new(t, "gather", of_positions(t), D(rot), OOM_F32), dt);
}

/* x[..., :rot] rotated, x[..., rot:] not, joined; every part is a name of f's. */
static struct oom_val joined(struct oom_frame *f, const struct oom_arch *a, struct oom_val rotated,
			     struct oom_val rest)
{
	rotated = oom_op_cat(f->t, oom_name(f, rotated), rest, D(a->d_model));
	rotated.perm = true;    /* permute(0, 2, 1, 3): the gradient meets cat before any view */
	return oom_name(f, rotated);
}

/* softmax(q k^T / sqrt(d) + mask) v, with q and k in fp32. */
static struct oom_val weights_of(struct oom_tape *t, const struct oom_decoder_layer *l,
				 struct oom_val q, struct oom_val k, enum oom_dtype dt)
{
	const struct oom_arch *a = l->a;
	const struct gptj_kind *kind = gptj_kind_of(a);
	struct oom_frame f = {.t = t};
	struct oom_val w;

	q = oom_name(&f, oom_op_cast(t, q, OOM_F32));
	k = oom_name(&f, oom_op_cast(t, k, OOM_F32));
	w = oom_op_bmm(t, "scores", q, k, t->m_bss, D(a->n_heads), a->head_dim);
	if (!kind->mask_first)
		w = oom_op_unary(t, OOM_SCALE, w);
	if (!oom_is_none(l->mask))
		w = oom_op_add(t, w, l->mask);
	if (kind->mask_first)
		w = oom_op_unary(t, OOM_SCALE, w);
	w = oom_op_cast(t, oom_op_softmax(t, w, false), dt);
	return oom_leave(&f, oom_op_dropout(t, w, a->attn_dropout));
}

/* p: queries, keys, values. */
static void project(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
		    struct oom_val p[3])
{
	static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
	static const int order[] = {0, 2, 1};
	const struct oom_dim h = D(a->d_model), parts[3] = {h, h, h};
	const struct gptj_kind *kind = gptj_kind_of(a);
	struct oom_tape *t = f->t;
	struct oom_val c[3];

	if (kind->fused) {
		x = oom_name(f, oom_op_linear(t, "qkv_proj", x, D(3 * a->d_model), 0));
		oom_op_split(t, x, 3, parts, c);
		/* four slices of the projection folded into one: a copy */
		for (int i = 0; i < 3; i++)
			p[order[i]] = oom_op_copy(t, "reshape", c[i]);
	} else {
		for (int i = 0; i < 3; i++)
			p[i] = oom_op_linear(t, names[i], x, h, 0);
	}
	p[2] = oom_name(f, oom_op_heads(t, p[2]));
}

static struct oom_val gptj_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				     struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint64_t rot = gptj_of(a)->rotary, left = a->head_dim - rot;
	const struct oom_dim h = D(a->d_model), whole = {a->n_heads * rot, "n_heads * rotary_dim"},
			     pass = {a->n_heads * left, NULL};
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], rest[2], sincos, y;

	project(&f, a, x, p);
	sincos = oom_name(&f, table(&f, a, p[1].dt));
	for (int i = 1; i >= 0; i--) {
		p[i] = oom_name(&f, p[i]);
		rest[i] = oom_name(&f, oom_op_slice(t, p[i], p[i].mono, pass));
		p[i] = oom_op_slice(t, p[i], p[i].mono, whole);
	}
	p[1] = rotate(t, p[1], sincos, rot);
	p[0] = rotate(t, p[0], sincos, rot);
	p[1] = joined(&f, a, p[1], rest[1]);
	p[0] = joined(&f, a, p[0], rest[0]);
	if (written_out(t, a)) {
		y = weights_of(t, l, p[0], p[1], p[2].dt);
		oom_block_returns(t, y);
		y = oom_op_bmm(t, "attention", oom_name(layer, y), p[2], t->m_bs, h,
			       oom_mono_now(t, t->m_s));
		y = oom_op_merge_heads(t, y);
	} else {
		y = oom_attention_core(t, &at, p[0], p[1], p[2]);
	}
	y = oom_op_dropout(t, oom_op_linear(t, "out_proj", y, h, 0), a->dropout);
	return oom_leave(&f, y);
}

/* The caller keeps a layer's (hidden, weights) until the next layer has returned its own. */
static struct oom_val gptj_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_frame f = {.t = t};
	struct oom_val h, y;

	if (t->plan->attn != OOM_ATTN_FLASH)
		oom_name(&f, oom_weights_before(t, i, a->n_heads, oom_linear_dtype(t, x.dt)));
	h = oom_name(&f, oom_norm(t, a->norm, "ln_1", x, 0));
	y = gptj_attention(&f, l, h);
	h = oom_plain_mlp(t, oom_take(&f, h), "fc_in", "fc_out", a->act, D(a->d_ff), true);
	h = oom_op_add(t, y, oom_op_dropout(t, h, a->dropout));
	return oom_leave(&f, oom_op_add(t, h, x));
}

static struct oom_val gptj_prepare(struct oom_frame *f, const struct oom_arch *a,
				   struct oom_decoder_layer *l, struct oom_val x)
{
	if (written_out(f->t, a))
		l->mask = oom_name_shared(f, oom_make_eager_mask(f->t, x.dt));
	return oom_op_dropout(f->t, x, a->embed_dropout);
}

static const struct oom_type_targets gptj_targets[] = {
	{"codegen", "qkv_proj", NULL}, {"gptj", NULL, "ln_1+ln_f"}, {NULL, NULL, NULL},
};

const struct oom_family oom_family_gptj = {
	.name = "gptj",
	.summary = "parallel decoder, rotation of every two, scores in fp32, eager attention",
	.source = "transformers 5.12 models/gptj/modeling_gptj.py",
	.types = gptj_types,
	.norm = OOM_NORM_LAYER,
	.lora_targets = "q_proj+v_proj",
	.type_targets = gptj_targets,
	.keys = gptj_keys,
	.parse = gptj_parse,
	.decoder = OOM_DECODER(.embed = "wte", .norm = "ln_f", .position_ids = true,
			       .block = gptj_block, .prepare = gptj_prepare),
};
