/* Adapters of the embedding: rows of the table that train; prompt tuning and P-tuning: n trained tokens stand before every sequence (peft_model.py,
 * PeftModelForCausalLM.forward).  The step is one of longer sequences (oom_batch_sizes); here is what
 * makes the tokens. */
#include "adapters.h"
#include "config/arch.h"

/* Embedding, and for p-tuning three linear layers with two ReLUs (tuners/p_tuning/model.py), of one sequence; what they
 * make is repeated for all (peft_model.py get_prompt; huggingface/peft#2043). */
static struct oom_val tokens(struct oom_tape *t, uint64_t n, uint64_t d)
{
	/* of an encoder and a decoder, of which the latter's are used by nobody (num_transformer_submodules of utils/peft_types.py) */
	const uint64_t rows = t->task == OOM_TASK_SEQ2SEQ ? 2 * n : n;
	const uint64_t h = t->plan->encoder_hidden ? (uint64_t)t->plan->encoder_hidden : d;
	const struct oom_dim wide[] = {{h, "encoder_hidden_size"}, {h, "encoder_hidden_size"}, {d, "d_model"}};
	struct oom_val ids = oom_scratch_hold(t, "prompt_tokens", OOM_MONO_ONE, rows, OOM_I64), x;
	uint64_t in = d;

	x = oom_embedding_lookup(t, oom_param(t, "prompt_embeddings", rows, d, OOM_P_LORA), ids,
				 (struct oom_dim){d, "d_model"});
	for (int i = 0; oom_plan_adapter(t->plan) == OOM_ADAPTER_P_TUNING && i < 3; i++) {
		struct oom_val w = oom_param(t, "mlp_head.weight", wide[i].n, in, OOM_P_LORA | OOM_P_LINEAR),
			       b = oom_param(t, "mlp_head.bias", 0, wide[i].n, OOM_P_LORA);

		x = oom_op_matmul_param(t, "mlp_head", x, w, b, wide[i]);
		if (i < 2)
			x = oom_op_unary(t, OOM_RELU, x);
		in = wide[i].n;
	}
	return oom_op_expand_copy(t, x, t->m_b, (struct oom_dim){rows * d, "num_virtual_tokens * d_model"});
}

/* W.index_copy(0, indices, delta.to(W)): a whole table in every call, and again for a head that is tied
 * (tuners/trainable_tokens/layer.py, get_merged_weights).  What the rows were before lies beside. */
struct oom_val oom_token_rows(struct oom_tape *t, struct oom_val w)
{
	const uint64_t n = (uint64_t)t->plan->trainable_tokens;
	const struct oom_param *p = w.node <= -2 ? &t->params[-2 - w.node] : NULL;
	struct oom_val rows, index, y;
	int32_t node = -1;

	if (!n || !p || !oom_plan_adapted(t->plan) || !oom_word_table(t, p))
		return w;
	/* get_input_embeddings names one module: a decoder's own table of as many words is left as it is */
	if (!oom_is_none(t->token_rows) && t->token_table != w.node)
		return w;
	if (oom_is_none(t->token_rows)) {
		const uint64_t d = p->cols;
		const char *scope = t->scope;

		t->scope = "token_adapter";
		t->token_rows = oom_param(t, "trainable_tokens_delta", n, d, OOM_P_LORA);
		t->token_table = w.node;
		oom_buffer(t, n * d, (enum oom_dtype)t->token_rows.dt);
		t->scope = scope;
	}
	rows = oom_op_cast(t, oom_keep(t->token_rows), (enum oom_dtype)w.dt);
	index = oom_scratch_hold(t, "token indices", OOM_MONO_ONE, n, OOM_I64);
	if (t->grad) {
		node = oom_node(t, OOM_NODE_CUSTOM, "index_copy");
		oom_node_edge(t, node, rows);
		oom_node_save(t, node, index);
		oom_node_save(t, node, rows);   /* whose shape the gradient takes */
	}
	y = oom_new(t, "index_copy", OOM_MONO_ONE, (struct oom_dim){w.width, "vocab_size * d_model"},
		    (enum oom_dtype)w.dt);
	if (t->grad)
		y = oom_node_out(t, node, 0, y);
	oom_drop(t, index);
	oom_drop(t, rows);
	return y;
}

/* Mask and labels of the longer sequences, and what each was joined of (peft_model.py PeftModelForCausalLM.forward;
 * the part of a mask is made in fp32, which the whole then is). */
static void longer_inputs(struct oom_tape *t, uint64_t n)
{
	struct oom_val *name = t->prompts + 2;

	if (t->plan->padding_mask) {
		*name++ = oom_scratch_hold(t, "prefix mask", t->m_b, n, OOM_F32);
		*name++ = oom_new(t, "prefixed mask", t->m_bs, D(1), OOM_F32);
	}
	if (!t->no_labels && t->task == OOM_TASK_CAUSAL_LM) {
		*name++ = oom_scratch_hold(t, "prefix labels", t->m_b, n, OOM_I64);
		*name++ = oom_new(t, "prefixed labels", t->m_bs, D(1), OOM_I64);
	}
}

struct oom_val oom_prompted(struct oom_tape *t, struct oom_val x)
{
	const uint64_t n = (uint64_t)t->plan->virtual_tokens;
	const struct oom_dim d = {x.width, x.text};
	const char *scope = t->scope;
	struct oom_val p;

	if (!oom_plan_prompted(t->plan) || t->prompted)
		return x;
	t->prompted = true;
	t->scope = "prompt_encoder";
	longer_inputs(t, n);
	p = oom_op_cast(t, tokens(t, n, x.width), (enum oom_dtype)x.dt);
	t->prompts[0] = oom_share(t, p);
	if (p.width > n * x.width)
		p = oom_op_slice(t, p, p.mono, (struct oom_dim){n * x.width, "num_virtual_tokens * d_model"});
	x = oom_op_cat_into(t, p, x, t->m_bs, d);
	t->prompts[1] = oom_share(t, x);
	t->scope = scope;
	return x;
}

void oom_prompts_leave(struct oom_tape *t)
{
	for (size_t i = 0; i < sizeof(t->prompts) / sizeof(t->prompts[0]); i++) {
		oom_drop(t, t->prompts[i]);
		t->prompts[i] = oom_none();
	}
}

const struct oom_adapter oom_adapter_prompt = {.params = NULL};
const struct oom_adapter oom_adapter_adaption = {.attention = true};
