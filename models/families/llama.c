/* Llama and the many types that differ from it by switches: biases, qk-norm, grouped heads, head size, tied head,
 * sliding windows.  Reference: transformers 5.12, models/{llama,mistral,qwen2,qwen3,...}/modeling_*.py. */
#include <string.h>

#include "../blocks.h"

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const bool qwen2 = !strcmp(a->model_type, "qwen2"), qwen3 = !strcmp(a->model_type, "qwen3");
	const struct oom_key *window;

	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->d_ff = oom_read_count(r, "intermediate_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->n_heads ? a->d_model / a->n_heads : 0);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_act", "silu");
	a->norm = OOM_NORM_RMS;
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->qkv_bias = qwen2 || oom_read_bool(r, "attention_bias", false);
	a->o_bias = !qwen2 && oom_read_bool(r, "attention_bias", false);
	a->mlp_bias = oom_read_bool(r, "mlp_bias", false);
	a->qk_norm = qwen3;
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	window = oom_read_key(r, "sliding_window");
	if (window && window->type == OOM_KEY_NUMBER && oom_read_bool(r, "use_sliding_window", !qwen2 && !qwen3))
		a->window = (uint64_t)window->number;
	a->rotary_share = 1;
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
	struct oom_val h;

	(void)i;
	at.rope = &rope;
	at.mask = l->mask;
	h = oom_norm(t, a->norm, "input_layernorm", oom_keep(x), 0);
	h = oom_attention(t, &at, h);
	x = oom_op_add(t, x, h);
	h = oom_norm(t, a->norm, "post_attention_layernorm", oom_keep(x), 0);
	h = oom_gated_mlp(t, h, a->act, D(a->d_ff), a->mlp_bias);
	return oom_op_add(t, x, h);
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a};

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	x = oom_input_grads(t, x);
	first = oom_share(t, x);                /* inputs_embeds, a local of the model */
	l.mask = oom_make_mask(t, true, a->window, (enum oom_dtype)x.dt, t->m_b, t->m_s, t->m_s);
	l.rope = oom_rope_tables(t, a->head_dim, (enum oom_dtype)x.dt, 2);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.rope.cos);
	oom_drop_shared(t, l.rope.sin);
	oom_drop_shared(t, l.mask);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

static const char *const types[] = {"llama", "mistral", "qwen2", "qwen3", NULL};

const struct oom_family oom_family_llama = {
	.name = "llama",
	.summary = "pre-norm decoder, rotary positions, grouped heads, gated feed-forward",
	.source = "transformers 5.12 models/llama/modeling_llama.py",
	.types = types,
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
