/* HRM text: two stacks of layers run again and again, a fast one several times before each run of
 * the slow one; only the last fast runs keep a graph.
 * Reference: transformers 5.12, models/hrm_text/modeling_hrm_text.py; Wang et al. 2025,
 * arXiv:2506.21734. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"

/* extra[]: BP and on are the fast runs with a graph, by slow cycle */
enum { H_CYCLES, L_CYCLES, N_BP, BP };
enum { MOST_BP = 12, MOST_RUNS = 15 };

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *bp = oom_read_key(r, "L_bp_cycles");
	const bool listed = bp && bp->type == OOM_KEY_LIST;

	a->norm = OOM_NORM_RMS_PLAIN;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count_or(r, "num_layers_per_stack", 0);
	/* a file of old says the layers of one stack here */
	if (!a->n_layers)
		a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = a->n_kv_heads = oom_read_count(r, "num_attention_heads", 1);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->extra[H_CYCLES] = oom_read_count(r, "H_cycles", 1);
	a->extra[L_CYCLES] = oom_read_count(r, "L_cycles", 1);
	a->extra[N_BP] = listed ? bp->n_items : 1;
	if (!a->head_dim || a->extra[N_BP] > MOST_BP || a->extra[H_CYCLES] > MOST_RUNS ||
	    a->extra[L_CYCLES] > MOST_RUNS ||
	    a->extra[H_CYCLES] * (a->extra[L_CYCLES] + 1) > MOST_RUNS) {
		oom_read_fail(r,
			      "H_cycles (%llu) of L_cycles (%llu): at most %d runs of a stack are "
			      "modelled",
			      (unsigned long long)a->extra[H_CYCLES],
			      (unsigned long long)a->extra[L_CYCLES], MOST_RUNS);
		return;
	}
	a->extra[BP] = 2;
	for (uint32_t i = 0; listed && i < bp->n_items; i++)
		a->extra[BP + i] = (uint64_t)oom_read_item_real(r, "L_bp_cycles", i, 1);
}

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope;
	struct oom_val mask;
};

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	struct oom_rope rope = l->rope;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);

	(void)i;
	at.rope = &rope;
	at.mask = l->mask;
	at.gated = true;
	at.gate_bias = a->qkv_bias;
	x = oom_op_add(t, x, oom_attention(t, &at, h));
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	return oom_op_add(t, x, oom_gated_mlp(t, h, a->act, D(a->d_ff), a->mlp_bias));
}

/* One run of a stack, whose parameters begin at *start (0: they are met for the first time). */
static struct oom_val run(struct oom_tape *t, const struct layer *l, struct oom_val x,
			  size_t *start, bool grad)
{
	const size_t at = t->cursor;
	const bool was = t->grad, expand = t->expand;

	t->grad = was && grad;
	/* Runs of one stack share its weights' copies of autocast: made in the first, kept for those
	 * with a graph.  A layer that stands for others would give up in one run what it took in another. */
	t->expand |= t->amp;
	if (*start)
		t->cursor = *start;
	else
		*start = at;
	x = oom_layers(t, (uint32_t)oom_depth(t, l->a->n_layers), NULL, block, l, x);
	t->expand = expand;
	if (*start != at)
		t->cursor = at;
	x = oom_norm(t, l->a->norm, "final_norm", x, 0);
	t->grad = was;
	return x;
}

/* Fast runs of slow cycle h that keep a graph: the list is padded with ones in front. */
static uint64_t with_graph(const struct oom_arch *a, uint64_t h)
{
	const uint64_t n = a->extra[N_BP],
		       pad = a->extra[H_CYCLES] > n ? a->extra[H_CYCLES] - n : 0;

	return h < pad ? 1 : h - pad < n ? a->extra[BP + h - pad] : 1;
}

static struct oom_val cycles(struct oom_tape *t, const struct layer *l, struct oom_val high,
			     struct oom_val low)
{
	const struct oom_arch *a = l->a;
	size_t slow = 0, fast = 0;

	for (uint64_t h = 0; h < a->extra[H_CYCLES]; h++) {
		for (uint64_t i = 0; i < a->extra[L_CYCLES]; i++) {
			const bool grad = i + with_graph(a, h) >= a->extra[L_CYCLES], was = t->grad;

			t->grad = was && grad;
			low = oom_op_add(t, low, oom_keep(high));
			t->grad = was;
			low = run(t, l, low, &fast, grad);
			if (!grad)
				low.rg = false;
		}
		high = run(t, l, oom_op_add(t, high, oom_keep(low)), &slow, true);
	}
	oom_drop(t, low);
	return high;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, low, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "model";
	oom_drop(t, oom_param(t, "z_L_init", 0, a->d_model, OOM_P_FROZEN));
	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_op_unary(t, OOM_SCALE, oom_input_grads(t, x));
	first = oom_share(t, x);
	ids = oom_new(t, "position ids", t->m_s, D(1), OOM_I64);
	l.mask = oom_make_mask(t, true, 0, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	low = oom_new(t, "z_L", t->m_bs, D(a->d_model), (enum oom_dtype)x.dt);
	x = cycles(t, &l, x, low);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, oom_share(t, ids));
	oom_drop(t, ids);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_hrm_text = {
	.name = "hrm_text",
	.summary = "two stacks of layers run in nested cycles",
	.source = "transformers 5.12 models/hrm_text/modeling_hrm_text.py",
	.types = OOM_TYPE("hrm_text"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
