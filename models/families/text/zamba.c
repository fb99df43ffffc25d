/* Zamba: Mamba layers (Zamba 2: Mamba 2), every few of them after a transformer block whose weights
 * all such layers share. Reference: transformers 5.12, models/{zamba,zamba2}/modeling_*.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/mixers.h"
#include "families/towers/weights.h"

/* extra[] */
enum {
	SECOND,
	INNER,
	STATE,
	RANK,
	KERNEL,
	HEADS,
	GROUPS,
	CHUNK,
	BIAS,
	CONV_BIAS,
	MAMBA_ACT,
	BLOCKS,
	ADAPTER,
	ATTN_ADAPTER,
	ROPE,
	ADAPTERS
};
enum { MAMBA, HYBRID };                 /* kinds: HYBRID + the number of its shared block */

static void parse_kinds(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *list = oom_read_key(r, "layers_block_type");
	const bool second = a->extra[SECOND], listed = second && list && list->type == OOM_KEY_LIST;
	const uint64_t period = second ? 1 : oom_read_count(r, "attn_layer_period", 1);
	const uint64_t offset = second ? 0 : oom_read_count(r, "attn_layer_offset", 0);
	uint64_t hybrids = 0;

	for (uint32_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *word = listed ? oom_read_item(r, "layers_block_type", i) : NULL;
		/* Zamba 2's default: one after every five, seven times, then two more by hand */
		bool hybrid = second ? (i % 6 == 0 && i && i <= 42) || i == 47 || i == 51 :
				       i == 2 || (i > 2 && (i - 3) % period == offset);

		if (word)
			hybrid = !strcmp(word, "hybrid");
		a->kind[i] = (uint8_t)(hybrid ? HYBRID + hybrids++ % a->extra[BLOCKS] : MAMBA);
	}
	a->extra[ADAPTERS] = hybrids / a->extra[BLOCKS];
	if (hybrids < a->extra[BLOCKS])
		a->extra[BLOCKS] = hybrids;
}

static struct oom_selective selective_of(const struct oom_arch *a)
{
	return (struct oom_selective){.inner = a->extra[INNER],
				      .d_state = a->extra[STATE],
				      .rank = a->extra[RANK],
				      .kernel = a->extra[KERNEL],
				      .heads = a->extra[HEADS],
				      .by_head = true,
				      .bias = a->extra[BIAS],
				      .conv_bias = a->extra[CONV_BIAS],
				      .act = (enum oom_act)a->extra[MAMBA_ACT]};
}

static struct oom_ssd ssd_of(const struct oom_arch *a)
{
	return (struct oom_ssd){.inner = a->extra[INNER],
				.heads = a->extra[HEADS],
				.d_state = a->extra[STATE],
				.d_head = a->extra[HEADS] ? a->extra[INNER] / a->extra[HEADS] : 0,
				.groups = a->extra[GROUPS],
				.kernel = a->extra[KERNEL],
				.chunk = a->extra[CHUNK],
				.bias = a->extra[BIAS],
				.out_bias = a->extra[BIAS],
				.conv_bias = true,
				.mask_any_batch = true,
				.name_taken_over = true,
				.norm = OOM_GATED_RMS_GROUPS,
				.act = OOM_ACT_SILU};
}

static void parse_mixer(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *rank = oom_read_key(r, "mamba_dt_rank");
	const bool second = a->extra[SECOND];
	const double expand = oom_read_real(r, "mamba_expand", 2);

	if (!(expand > 0 && expand < 1e6)) {
		oom_read_fail(r, "mamba_expand (%g) is out of range", expand);
		return;
	}
	a->extra[INNER] = (uint64_t)(expand * (double)a->d_model);
	a->extra[STATE] = oom_read_count(r, "mamba_d_state", 1);
	a->extra[KERNEL] = oom_read_count(r, "mamba_d_conv", 1);
	a->extra[HEADS] = oom_read_count(r, "n_mamba_heads", 1);
	if (second) {
		struct oom_ssd m;

		a->extra[GROUPS] = oom_read_count(r, "mamba_ngroups", 1);
		a->extra[CHUNK] = oom_read_count(r, "chunk_size", 1);
		a->extra[BIAS] = oom_read_bool(r, "add_bias_linear", false);
		m = ssd_of(a);
		oom_ssd_check(r, &m);
	} else {
		struct oom_selective m;

		a->extra[RANK] = rank && rank->type == OOM_KEY_NUMBER ?
					 oom_read_count(r, "mamba_dt_rank", 1) :
					 (a->d_model + 15) / 16;
		a->extra[BIAS] = oom_read_bool(r, "mamba_proj_bias", false);
		a->extra[CONV_BIAS] = oom_read_bool(r, "mamba_conv_bias", true);
		a->extra[MAMBA_ACT] = oom_read_act(r, "hidden_mamba_act", "silu");
		m = selective_of(a);
		oom_selective_check(r, &m);
	}
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS;
	a->extra[SECOND] = !strcmp(a->model_type, "zamba2");
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count_or(r, "intermediate_size", 0);
	a->d_ff = a->d_ff ? a->d_ff : 4 * a->d_model;
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = a->extra[SECOND] ? 0 : oom_read_count_or(r, "attention_head_dim", 0);
	a->head_dim = a->head_dim ? a->head_dim : 2 * a->d_model / a->n_heads;
	if (!a->n_kv_heads || !a->head_dim)
		oom_read_fail(r, "num_key_value_heads and head_dim must be positive");
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "gelu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->extra[BLOCKS] = a->extra[SECOND] ? oom_read_count(r, "num_mem_blocks", 1) : 1;
	if (a->extra[SECOND]) {
		a->extra[ADAPTER] = oom_read_count(r, "adapter_rank", 1);
		a->extra[ATTN_ADAPTER] = oom_read_bool(r, "use_shared_attention_adapter", false);
		a->extra[ROPE] = oom_read_bool(r, "use_mem_rope", false);
		if (a->extra[BLOCKS] > 8)
			oom_read_fail(r, "num_mem_blocks (%llu): at most 8 are modelled",
				      (unsigned long long)a->extra[BLOCKS]);
	}
	parse_mixer(a);
	if (r->status)
		return;
	parse_kinds(a);
	snprintf(a->warning, sizeof(a->warning),
		 "%s: counted as it runs without the mamba_ssm and causal_conv1d kernels; with them training needs far less.",
		 a->model_type);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask, original;
	uint32_t shared[8];             /* where the parameters of each shared block begin */
};

/* linear(x) + an adapter of the layer's own beside a shared weight. */
static struct oom_val adapted(struct oom_tape *t, const struct oom_arch *a, struct oom_val y,
			      struct oom_val x, struct oom_dim out)
{
	struct oom_val z = oom_op_linear(t, "0", oom_keep(x),
					 (struct oom_dim){a->extra[ADAPTER], "adapter_rank"}, 0);

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
	struct oom_val y = oom_op_linear(t, name, oom_keep(x), w, 0);

	if (c && a->extra[ATTN_ADAPTER]) {
		to_own(t, c);
		y = adapted(t, a, y, x, (struct oom_dim){2 * a->d_model, "2 * d_model"});
		to_shared(t, c);
	}
	return oom_op_heads(t, y);
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x,
				struct cursors *c)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim h = D(a->d_model);
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v, local[3];

	at.mask = l->mask;
	q = projection(t, a, "q_proj", x, a->n_heads, c);
	k = projection(t, a, "k_proj", x, a->n_kv_heads, c);
	v = projection(t, a, "v_proj", x, a->n_kv_heads, c);
	if (a->extra[ROPE]) {
		oom_rope_pair(t, &q, &k, &rope, a->n_heads, a->n_kv_heads, a->head_dim,
			      a->head_dim);
	}
	local[0] = oom_share(t, q);
	local[1] = oom_share(t, k);
	local[2] = oom_share(t, v);
	q = oom_op_linear(t, "o_proj", oom_attention_core(t, &at, q, k, v), h, 0);
	for (int i = 0; i < 3; i++)
		oom_drop(t, local[i]);
	oom_drop(t, x);
	return q;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				   struct cursors *c)
{
	const struct oom_dim h = D(a->d_model), f[2] = {D(a->d_ff), D(a->d_ff)},
			     both = D(2 * a->d_ff);
	const unsigned bias = a->extra[BIAS] ? OOM_BIAS : 0;
	struct oom_val y, p[2];

	if (!a->extra[SECOND])
		return oom_gated_mlp(t, x, a->act, f[0], false);
	y = oom_op_linear(t, "gate_up_proj", oom_keep(x), both, bias);
	if (c) {
		to_own(t, c);
		y = adapted(t, a, y, x, both);
		to_shared(t, c);
	}
	oom_op_split(t, y, 2, f, p);
	y = oom_op_mul(t, oom_activation(t, a->act, p[0]), p[1]);
	y = oom_op_linear(t, "down_proj", y, h, bias);
	oom_drop(t, x);
	return y;
}

/* The shared block on [x, embeddings]; without cursors only its own weights, no layer's
 * adapters. */
static struct oom_val shared_block(struct oom_tape *t, const struct layer *l, struct oom_val x,
				   struct cursors *c)
{
	const struct oom_arch *a = l->a;
	struct oom_val h = oom_op_cat(t, x, oom_keep(l->original),
				      (struct oom_dim){2 * a->d_model, "2 * d_model"});

	h = oom_norm(t, a->norm, "input_layernorm", h, 0);
	h = attention(t, l, h, c);
	h = oom_norm(t, a->norm, "pre_ff_layernorm", h, 0);
	return feed_forward(t, a, h, c);
}

/* A block of its own has the adapters of all layers, and uses one. */
static void idle_adapters(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t out[4] = {2 * a->d_ff, 2 * a->d_model, 2 * a->d_model, 2 * a->d_model};
	const uint64_t in[4] = {a->d_model, 2 * a->d_model, 2 * a->d_model, 2 * a->d_model};

	for (uint64_t i = 1; i < a->extra[ADAPTERS]; i++)
		for (int j = 0; j < (a->extra[ATTN_ADAPTER] ? 4 : 1); j++) {
			oom_drop(t,
				 oom_param(t, "adapter", a->extra[ADAPTER], in[j], OOM_P_UNUSED));
			oom_drop(t,
				 oom_param(t, "adapter", out[j], a->extra[ADAPTER], OOM_P_UNUSED));
		}
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : MAMBA;
	struct oom_val h = oom_none(), y;

	if (kind != MAMBA) {
		struct cursors c = {.shared = l->shared[(kind - HYBRID) % 8], .apart = !a->tie};

		to_shared(t, &c);
		h = shared_block(t, l, oom_keep(x), &c);
		to_own(t, &c);
		if (!a->tie && a->extra[SECOND])
			idle_adapters(t, a);
		h = oom_op_linear(t, "linear", h, D(a->d_model), 0);
	}
	y = kind == MAMBA ? oom_share(t, x) : oom_op_add(t, oom_keep(x), oom_keep(h));
	y = oom_norm(t, a->norm, "input_layernorm", y, 0);
	if (a->extra[SECOND]) {
		const struct oom_ssd m = ssd_of(a);

		y = oom_ssd_mixer(t, &m, y);
	} else {
		const struct oom_selective m = selective_of(a);

		y = oom_selective_mixer(t, &m, y);
	}
	x = oom_op_add(t, x, y);
	if (!oom_is_none(h))
		oom_drop(t, h);
	return x;
}

static void shared_weights(struct oom_tape *t, struct layer *l)
{
	struct oom_val x = oom_new(t, "x", t->m_bs, D(l->a->d_model), OOM_F32);
	const uint64_t depth = oom_depth(t, l->a->n_layers);
	uint64_t hybrids = 0;

	/* the first hybrid layers own the blocks: a shallow model may have fewer */
	for (uint64_t i = 0; i < depth && i < OOM_MAX_LAYERS; i++)
		hybrids += l->a->kind[i] >= HYBRID;
	for (uint64_t i = 0; i < l->a->extra[BLOCKS] && i < hybrids; i++) {
		l->shared[i] = (uint32_t)t->cursor;
		oom_drop(t, shared_block(t, l, oom_keep(x), NULL));
	}
	oom_drop(t, x);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a, .rope = {oom_none(), oom_none()}};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	l.original = oom_input(t, "x", t->m_bs, a->d_model, OOM_F32);
	l.mask = oom_none();
	if (a->extra[ROPE])
		l.rope.cos = l.rope.sin = oom_input(t, "x", t->m_s, a->head_dim, OOM_F32);
	if (a->tie) {                           /* tie_word_embeddings ties these too, or nothing */
		struct oom_weights first_of_all;

		oom_weights_begin(t, &first_of_all);
		shared_weights(t, &l);
		oom_weights_end(t, &first_of_all);
	}
	t->scope = "embed_tokens";
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);
	l.original = oom_op_copy(t, "clone", oom_keep(x));
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	if (a->extra[ROPE])
		l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), a->kind, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, l.original);
	oom_drop_shared(t, oom_share(t, ids));
	x = oom_norm(t, a->norm, "final_layernorm", x, 0);
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const struct oom_family_type types[] = {
	{"zamba", NULL}, {"zamba2", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_zamba = {
	.name = "zamba",
	.summary = "Mamba layers, some after a transformer block of shared weights",
	.source = "transformers 5.12 models/zamba/modeling_zamba.py",
	.types = types,
	.lora_targets = "in_proj+q_proj+v_proj",
	.parse = parse,
	.step = step,
};
