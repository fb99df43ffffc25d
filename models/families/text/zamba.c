/* Zamba: Mamba layers (Zamba 2: Mamba 2), every few of them after a transformer block whose weights
 * all such layers share. Reference: transformers 5.12, models/{zamba,zamba2}/modeling_*.py. */
#include "blocks/mixers.h"
#include "config/keys.h"
#include "families/towers/weights.h"

enum { MAMBA, HYBRID };                 /* kinds: HYBRID + the number of its shared block */
enum { MAX_BLOCKS = 8 };

struct zamba {
	uint64_t inner, state, rank, kernel, heads, groups, chunk;      /* of the mixer */
	bool bias, conv_bias;
	enum oom_act mamba_act;
	uint64_t head_dim;              /* 0: twice the usual */
	uint64_t blocks;                /* shared ones */
	uint64_t adapter, adapters;     /* rank; layers that adapt one block */
	bool attn_adapter, rope;
};
OOM_OWN(zamba, struct zamba);

/* What sets the two apart. */
struct zamba_kind {
	const struct oom_key_row *keys;
	bool (*check)(struct oom_arch *a);      /* the mixer's sizes */
	struct oom_val (*mixer)(struct oom_tape *t, const struct oom_arch *a, struct oom_val x);
	/* layers adapt the blocks they share, whose feed-forwards are gate_up_proj */
	bool adapts;
	bool listed;                    /* no attn_layer_period: only layers_block_type says which are hybrid */
};
OOM_KIND(zamba, struct zamba_kind);

static const struct oom_key_row zamba_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"),
	LIKE(d_ff, "intermediate_size", 4, d_model), MUST(n_layers, "num_hidden_layers"),
	MUST(n_heads, "num_attention_heads"), LIKE(n_kv_heads, "num_key_value_heads", 1, n_heads),
	OR(max_positions, "max_position_embeddings", 0), ACT(act, "hidden_act", "gelu"),
	FLAG(tie, "tie_word_embeddings", true), REAL(attn_dropout, "attention_dropout", 0),
	MUST_OWN(struct zamba, state, "mamba_d_state"),
	MUST_OWN(struct zamba, kernel, "mamba_d_conv"),
	MUST_OWN(struct zamba, heads, "n_mamba_heads"), OOM_KEYS_END};
static const struct oom_key_row zamba1_keys[] = {
	OR_OWN(struct zamba, head_dim, "attention_head_dim", 0),
	OR_OWN(struct zamba, blocks, NULL, 1),
	FLAG_OWN(struct zamba, bias, "mamba_proj_bias", false),
	FLAG_OWN(struct zamba, conv_bias, "mamba_conv_bias", true),
	ACT_OWN(struct zamba, mamba_act, "hidden_mamba_act", "silu"), OOM_KEYS_END};
static const struct oom_key_row zamba2_keys[] = {
	MUST_OWN(struct zamba, blocks, "num_mem_blocks"),
	MUST_OWN(struct zamba, adapter, "adapter_rank"),
	FLAG_OWN(struct zamba, attn_adapter, "use_shared_attention_adapter", false),
	FLAG_OWN(struct zamba, rope, "use_mem_rope", false),
	MUST_OWN(struct zamba, groups, "mamba_ngroups"),
	MUST_OWN(struct zamba, chunk, "chunk_size"),
	FLAG_OWN(struct zamba, bias, "add_bias_linear", false), OOM_KEYS_END};

static struct oom_selective selective_of(const struct oom_arch *a)
{
	const struct zamba *z = zamba_of(a);

	return (struct oom_selective){.module = "mamba", .inner = z->inner, .d_state = z->state, .rank = z->rank,
				      .kernel = z->kernel, .heads = z->heads, .by_head = true,
				      .bias = z->bias, .conv_bias = z->conv_bias,
				      .act = z->mamba_act};
}

static bool selective_fits(struct oom_arch *a)
{
	struct oom_selective m;

	zamba_own(a)->rank = oom_read_dt_rank(a, "mamba_dt_rank");
	m = selective_of(a);
	return oom_selective_check(&a->rd, &m);
}

static struct oom_val selective(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_selective m = selective_of(a);

	return oom_selective_mixer(t, &m, x);
}

static struct oom_ssd ssd_of(const struct oom_arch *a)
{
	const struct zamba *z = zamba_of(a);

	return (struct oom_ssd){.module = "mamba", .inner = z->inner, .heads = z->heads, .d_state = z->state,
				.d_head = z->heads ? z->inner / z->heads : 0, .groups = z->groups,
				.kernel = z->kernel, .chunk = z->chunk, .bias = z->bias,
				.out_bias = z->bias, .conv_bias = true, .mask_any_batch = true,
				.name_taken_over = true, .norm = OOM_GATED_RMS_GROUPS,
				.act = OOM_ACT_SILU};
}

static bool ssd_fits(struct oom_arch *a)
{
	const struct oom_ssd m = ssd_of(a);

	return oom_ssd_check(&a->rd, &m);
}

static struct oom_val ssd(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_ssd m = ssd_of(a);

	return oom_ssd_mixer(t, &m, x);
}

static const struct zamba_kind zamba1 = {
	.keys = zamba1_keys, .check = selective_fits, .mixer = selective};
static const struct zamba_kind zamba2 = {
	.keys = zamba2_keys, .check = ssd_fits, .mixer = ssd, .adapts = true, .listed = true};
static const struct oom_family_type zamba_types[] = {
	{"zamba", &zamba1}, {"zamba2", &zamba2}, {NULL, NULL},
};

static void parse_layers(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const bool by_list = zamba_kind_of(a)->listed;
	const uint64_t period = by_list ? 1 : oom_read_count(r, "attn_layer_period", 1);
	const uint64_t offset = by_list ? 0 : oom_read_count(r, "attn_layer_offset", 0);
	struct zamba *z = zamba_own(a);
	uint64_t hybrids = 0;

	for (uint32_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		/* Zamba 2's default: one after every five, seven times, then two more by hand */
		const bool usual = by_list ? (i % 6 == 0 && i && i <= 42) || i == 47 || i == 51 :
					     i == 2 || (i > 2 && (i - 3) % period == offset),
			   hybrid = oom_read_says(a, "layers_block_type", i, "hybrid", usual);

		a->kind[i] = (uint8_t)(hybrid ? HYBRID + hybrids++ % z->blocks : MAMBA);
	}
	z->adapters = hybrids / z->blocks;
	if (hybrids < z->blocks)
		z->blocks = hybrids;
}

static void zamba_parse(struct oom_arch *a)
{
	const double expand = oom_read_real(&a->rd, "mamba_expand", 2);
	const struct zamba_kind *kind = zamba_kind_of(a);
	struct zamba *z = zamba_own(a);

	a->d_ff = a->d_ff ? a->d_ff : 4 * a->d_model;
	oom_read_rows(a, kind->keys);
	a->head_dim = z->head_dim ? z->head_dim : 2 * a->d_model / a->n_heads;
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(&a->rd, "num_key_value_heads and head_dim must be positive");
	if (z->blocks > MAX_BLOCKS)
		oom_read_fail(&a->rd, "num_mem_blocks (%llu): at most %d are modelled",
			      (unsigned long long)z->blocks, MAX_BLOCKS);
	if (!(expand > 0 && expand < 1e6)) {
		oom_read_fail(&a->rd, "mamba_expand (%g) is out of range", expand);
		return;
	}
	z->inner = (uint64_t)(expand * (double)a->d_model);
	if (!kind->check(a) || a->rd.status)
		return;
	parse_layers(a);
	oom_warn_kernels(a, "the mamba_ssm and causal_conv1d kernels", "them");
}

struct zamba_layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask, original;
	uint32_t shared[MAX_BLOCKS];    /* where the parameters of each shared block begin */
};

/* y + an adapter of the layer's own on x, beside a shared weight. */
static struct oom_val adapted(struct oom_tape *t, const struct oom_arch *a, struct oom_val y,
			      struct oom_val x, struct oom_dim out)
{
	const struct oom_dim rank = {zamba_of(a)->adapter, "adapter_rank"};
	struct oom_val z = oom_op_linear(t, "0", x, rank, 0);

	return oom_op_add(t, y, oom_op_linear(t, "1", z, out, 0));
}

struct cursors {
	size_t shared, own;
	bool apart;             /* every layer has weights of its own after all */
};

static void to_shared(struct oom_tape *t, struct cursors *c)
{
	if (c->apart)
		return;
	c->own = t->cursor;
	t->cursor = c->shared;
}

static void to_own(struct oom_tape *t, struct cursors *c)
{
	if (c->apart)
		return;
	c->shared = t->cursor;
	t->cursor = c->own;
}

/* One of query, key and value projections of 2 * d_model. */
static struct oom_val projection(struct oom_tape *t, const struct oom_arch *a, const char *name,
				 struct oom_val x, uint64_t heads, struct cursors *c)
{
	const struct oom_dim w = {heads * a->head_dim, "n_heads * head_dim"};
	struct oom_val y = oom_op_linear(t, name, x, w, 0);

	if (c && zamba_of(a)->attn_adapter) {
		to_own(t, c);
		y = adapted(t, a, y, x, (struct oom_dim){2 * a->d_model, "2 * d_model"});
		to_shared(t, c);
	}
	return oom_op_heads(t, y);
}

static struct oom_val zamba_attention(struct oom_tape *t, const struct zamba_layer *l,
				      struct oom_val x, struct cursors *c)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val p[3], y;

	x = oom_arg(&f, x);
	at.mask = l->mask;
	p[0] = projection(t, a, "q_proj", x, a->n_heads, c);
	p[1] = projection(t, a, "k_proj", x, a->n_kv_heads, c);
	p[2] = projection(t, a, "v_proj", x, a->n_kv_heads, c);
	if (zamba_of(a)->rope)
		oom_rope_pair(t, &p[0], &p[1], &l->rope, a->n_heads, a->n_kv_heads, a->head_dim,
			      a->head_dim);
	oom_name_each(&f, p, 3);
	y = oom_attention_core(t, &at, p[0], p[1], p[2]);
	return oom_leave(&f, oom_op_linear(t, "o_proj", y, h, 0));
}

static struct oom_val zamba_feed_forward(struct oom_tape *t, const struct oom_arch *a,
					 struct oom_val x, struct cursors *c)
{
	const struct oom_dim h = D(a->d_model), ff[2] = {D(a->d_ff), D(a->d_ff)},
			     both = D(2 * a->d_ff);
	const unsigned bias = zamba_of(a)->bias ? OOM_BIAS : 0;
	struct oom_frame f = {.t = t};
	struct oom_val y, p[2];

	if (!zamba_kind_of(a)->adapts)
		return oom_gated_mlp(t, x, a->act, ff[0], false);
	x = oom_arg(&f, x);
	y = oom_op_linear(t, "gate_up_proj", x, both, bias);
	if (c) {
		to_own(t, c);
		y = adapted(t, a, y, x, both);
		to_shared(t, c);
	}
	oom_op_split(t, y, 2, ff, p);
	y = oom_op_mul(t, oom_activation(t, a->act, p[0]), p[1]);
	return oom_leave(&f, oom_op_linear(t, "down_proj", y, h, bias));
}

/* The shared block on [x, embeddings]; without cursors only its own weights, no layer's
 * adapters. */
static struct oom_val shared_block(struct oom_tape *t, const struct zamba_layer *l,
				   struct oom_val x, struct cursors *c)
{
	const struct oom_arch *a = l->a;
	struct oom_val h = oom_op_cat(t, x, l->original,
				      (struct oom_dim){2 * a->d_model, "2 * d_model"});

	h = oom_norm(t, a->norm, "input_layernorm", h, 0);
	h = zamba_attention(t, l, h, c);
	h = oom_norm(t, a->norm, "pre_ff_layernorm", h, 0);
	return zamba_feed_forward(t, a, h, c);
}

/* A block of its own has the adapters of all layers, and uses one. */
static void idle_adapters(struct oom_tape *t, const struct oom_arch *a)
{
	const struct zamba *z = zamba_of(a);
	const uint64_t out[4] = {2 * a->d_ff, 2 * a->d_model, 2 * a->d_model, 2 * a->d_model};
	const uint64_t in[4] = {a->d_model, 2 * a->d_model, 2 * a->d_model, 2 * a->d_model};

	for (uint64_t i = 1; i < z->adapters; i++)
		for (int j = 0; j < (z->attn_adapter ? 4 : 1); j++) {
			oom_param(t, "adapter", z->adapter, in[j], OOM_P_UNUSED);
			oom_param(t, "adapter", out[j], z->adapter, OOM_P_UNUSED);
		}
}

static struct oom_val zamba_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct zamba_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t layer = oom_layer_kind(a, i);
	struct oom_frame f = {.t = t};
	struct oom_val h, y = x;

	if (layer != MAMBA) {
		struct cursors c = {.shared = l->shared[(layer - HYBRID) % MAX_BLOCKS],
				    .apart = !a->tie};

		to_shared(t, &c);
		h = shared_block(t, l, x, &c);
		to_own(t, &c);
		if (!a->tie && zamba_kind_of(a)->adapts)
			idle_adapters(t, a);
		h = oom_name(&f, oom_op_linear(t, "linear", h, D(a->d_model), 0));
		y = oom_op_add(t, x, h);
	}
	y = zamba_kind_of(a)->mixer(t, a, oom_norm(t, a->norm, "input_layernorm", y, 0));
	return oom_leave(&f, oom_op_add(t, x, y));
}

/* tie_word_embeddings ties the shared blocks too, or nothing: their weights come first of all. */
static void shared_weights(struct oom_tape *t, const struct oom_arch *a, struct zamba_layer *l)
{
	const uint64_t depth = oom_depth(t, a->n_layers);
	struct oom_weights first_of_all;
	struct oom_frame f = {.t = t};
	uint64_t hybrids = 0;
	struct oom_val x;

	l->original = oom_input(t, "x", t->m_bs, a->d_model, OOM_F32);
	if (zamba_of(a)->rope)
		l->rope.cos = l->rope.sin = oom_input(t, "x", t->m_s, a->head_dim, OOM_F32);
	oom_weights_begin(t, &first_of_all);
	x = oom_name(&f, oom_new(t, "x", t->m_bs, D(a->d_model), OOM_F32));
	/* the first hybrid layers own the blocks: a shallow model may have fewer */
	for (uint64_t i = 0; i < depth && i < OOM_MAX_LAYERS; i++)
		hybrids += a->kind[i] >= HYBRID;
	for (uint64_t i = 0; i < zamba_of(a)->blocks && i < hybrids; i++) {
		l->shared[i] = (uint32_t)t->cursor;
		oom_name(&f, shared_block(t, l, x, NULL));
	}
	oom_leave(&f, oom_none());
	oom_weights_end(t, &first_of_all);
}

static struct oom_val zamba_model(struct oom_tape *t, const struct oom_arch *a,
				  struct oom_val *embed)
{
	struct zamba_layer l = {.a = a, .rope = {oom_none(), oom_none()}, .mask = oom_none()};
	struct oom_frame f = {.t = t};
	struct oom_val x, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	t->scope = "embed_tokens";
	*embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	if (a->tie)
		shared_weights(t, a, &l);
	t->scope = "embed_tokens";
	x = oom_op_embedding_param(t, *embed, ids, a->vocab, D(a->d_model));
	x = oom_name(&f, oom_input_grads(t, x));
	l.original = oom_name_shared(&f, oom_op_copy(t, "clone", x));
	ids = oom_name_shared(&f, oom_position_ids(t));
	oom_name(&f, ids);
	l.mask = oom_name_shared(&f, oom_causal_mask(t, 0, x.dt));
	if (zamba_of(a)->rope)
		l.rope = oom_name_tables(&f, oom_rope_tables(t, a->head_dim, x.dt, 2));
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, zamba_block, &l, x);
	x = oom_norm(t, a->norm, "final_layernorm", x, 0);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

static struct oom_val zamba_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x = zamba_model(t, a, &embed);

	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_zamba = {
	.name = "zamba",
	.summary = "Mamba layers, some after a transformer block of shared weights",
	.source = "transformers 5.12 models/zamba/modeling_zamba.py",
	.types = zamba_types,
	.norm = OOM_NORM_RMS,
	.lora_targets = "in_proj+q_proj+v_proj",
	.keys = zamba_keys,
	.parse = zamba_parse,
	.step = zamba_step,
};
