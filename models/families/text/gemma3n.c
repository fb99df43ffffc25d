/* Gemma 3n's text decoder: a second embedding feeds every layer, layers predict and correct four
 * streams (AltUp) beside a low-rank residual (Laurel), and the last ones take their keys and values
 * from an earlier one. Reference: transformers 5.12, models/gemma3n/modeling_gemma3n.py. */
#include "config/keys.h"
#include "gemma3n.h"

static const struct oom_key_row gemma3n_keys[] = {
	OOM_DECODER_KEYS, OOM_GROUPED_KEYS, OR(max_positions, "max_position_embeddings", 0),
	OR(window, "sliding_window", 0), ACT(act, "hidden_activation", "gelu_pytorch_tanh"),
	FLAG(tie, "tie_word_embeddings", true), FLAG(qkv_bias, "attention_bias", false),
	FLAG(o_bias, "attention_bias", false), REAL(attn_dropout, "attention_dropout", 0),
	REAL(softcap_logits, "final_logit_softcapping", 0),
	OR_OWN(struct gemma3n, per_layer, "hidden_size_per_layer_input", 0),
	LIKE_OWN(struct gemma3n, ple_vocab, "vocab_size_per_layer_input", 1, vocab),
	OR_OWN(struct gemma3n, shared_kv, "num_kv_shared_layers", 0),
	MUST_OWN(struct gemma3n, laurel, "laurel_rank"),
	MUST_OWN(struct gemma3n, altup, "altup_num_inputs"), OOM_KEYS_END};

/* One width, or one for every layer: kind[] tells them apart. */
static void parse_widths(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "intermediate_size");
	uint64_t *width = gemma3n_own(a)->width, n = 0;

	if (!k || k->type != OOM_KEY_LIST) {
		a->d_ff = width[0] = oom_read_count(r, "intermediate_size", 1);
		return;
	}
	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const double w = oom_read_item_real(r, "intermediate_size", (uint32_t)i, 0);
		uint64_t j = 0;

		if (w < 1 || w > 1e12) {
			oom_read_fail(r, "intermediate_size has no width for layer %llu",
				      (unsigned long long)i);
			return;
		}
		while (j < n && width[j] != (uint64_t)w)
			j++;
		if (j == GEMMA3N_WIDTHS) {
			oom_read_fail(r, "intermediate_size has more than %d different widths",
				      GEMMA3N_WIDTHS);
			return;
		}
		n += j == n;
		width[j] = (uint64_t)w;
		a->kind[i] |= (uint8_t)(j << GEMMA3N_WIDTH_SHIFT);
	}
	a->d_ff = width[0];
}

static void parse_layers(struct oom_arch *a)
{
	const bool listed = oom_read_listed(a, "activation_sparsity_pattern");

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const double sparse = oom_read_item_real(&a->rd, "activation_sparsity_pattern", (uint32_t)i, 0);

		if (oom_read_says(a, "layer_types", i, "sliding_attention", (i + 1) % 5))
			a->kind[i] |= GEMMA3N_SLIDES;
		if (listed ? sparse > 0 : a->n_layers > 10 && i < 10)
			a->kind[i] |= GEMMA3N_SPARSE;
	}
}

static void gemma3n_parse(struct oom_arch *a)
{
	const struct gemma3n *g = gemma3n_of(a);

	if (g->altup > GEMMA3N_STREAMS || !g->per_layer) {
		oom_read_fail(&a->rd,
			      "%s: altup_num_inputs (at most %d) and hidden_size_per_layer_input "
			      "do not describe a model",
			      a->model_type, GEMMA3N_STREAMS);
		return;
	}
	parse_layers(a);
	parse_widths(a);
}

/* shared_kv_states: keys and values of the last layer of each kind that made its own (full,
 * sliding), names of the model's forward whether anyone shares them or not. */
struct gemma3n_kept {
	struct oom_val k[2], v[2];
};

struct gemma3n_layer {
	struct oom_decoder_layer base;
	struct oom_val per_layer;       /* [b, s, layers * width] */
	struct gemma3n_kept *kept;
	struct oom_frame *model;        /* of the forward pass that is running */
	uint32_t first_shared, store[2];
};

/* Keys and values of a layer, or those another one left: no weights then. */
static void keys_values(struct oom_frame *f, const struct gemma3n_layer *l, uint32_t i, bool slides,
			const struct oom_attn *at, struct oom_val x, struct oom_val *k, struct oom_val *v)
{
	const struct oom_arch *a = l->base.a;
	const struct oom_dim kd = oom_k_width(at);
	const uint64_t d = a->head_dim;
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;
	struct oom_tape *t = f->t;

	if (i >= l->first_shared) {
		*k = l->kept->k[slides];
		*v = l->kept->v[slides];
		return;
	}
	*k = oom_norm(t, a->norm, "k_norm", oom_op_linear(t, "k_proj", x, kd, bias), d);
	*k = oom_name(f, oom_rope_heads(t, *k, at->rope, at->kv_heads, d));
	*v = oom_norm(t, OOM_NORM_RMS_PLAIN, "v_norm", oom_op_linear(t, "v_proj", x, kd, bias), d);
	*v = oom_name(f, oom_op_heads(t, *v));
	if (i == l->store[slides] && !t->recompute) {
		l->kept->k[slides] = oom_name_shared(l->model, *k);
		l->kept->v[slides] = oom_name_shared(l->model, *v);
		/* each layer is recomputed by itself */
		if (t->plan->grad_ckpt != OOM_CKPT_NONE)
			l->kept->k[slides].rg = l->kept->v[slides].rg = false;
	}
}

static struct oom_val gemma3n_attention(struct oom_frame *layer, const struct gemma3n_layer *l,
					uint32_t i, struct oom_val x)
{
	const struct oom_arch *a = l->base.a;
	const bool slides = oom_layer_kind(a, i) & GEMMA3N_SLIDES;
	const uint64_t d = a->head_dim;
	const struct oom_dim h = {x.width, x.text};
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_layer_attn(t, &l->base, slides);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	at.d = at.dv = d;
	at.caller = layer;
	q = oom_op_linear(t, "q_proj", x, oom_q_width(&at), a->qkv_bias ? OOM_BIAS : 0);
	q = oom_norm(t, a->norm, "q_norm", q, d);
	q = oom_name(&f, oom_rope_heads(t, q, at.rope, a->n_heads, d));
	keys_values(&f, l, i, slides, &at, x, &k, &v);
	q = oom_attention_core(t, &at, q, k, v);
	return oom_leave(&f, oom_op_linear(t, "o_proj", q, h, a->o_bias ? OOM_BIAS : 0));
}

/* torch.std: keeps its input and its result. */
static struct oom_val std_of(struct oom_tape *t, struct oom_val x)
{
	const bool rg = t->grad && x.rg;
	int32_t n = -1;
	struct oom_val s;

	if (rg) {
		n = oom_node(t, OOM_NODE_MEAN, "std");
		oom_node_edge(t, n, x);
		oom_node_save(t, n, x);
	}
	s = oom_new(t, "std", x.mono, D(1), x.dt);
	if (rg) {
		s = oom_node_out(t, n, 0, s);
		oom_node_save(t, n, s);
	}
	return s;
}

/* relu(gate - (mean + factor * std)): what lies above the quantile of a normal distribution
 * (Gemma 3n). */
static struct oom_val gaussian_topk(struct oom_tape *t, struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val m, s;

	x = oom_arg(&f, x);
	m = oom_op_mean(t, x, x.mono, D(1));
	s = oom_op_add(t, m, oom_op_unary(t, OOM_SCALE, std_of(t, x)));
	s = oom_leave(&f, oom_op_add(t, x, s));
	return oom_op_unary(t, OOM_RELU, s);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct gemma3n_layer *l, uint32_t i,
				   struct oom_val x)
{
	const struct oom_arch *a = l->base.a;
	const uint8_t kind = oom_layer_kind(a, i);
	const uint64_t w = gemma3n_of(a)->width[kind >> GEMMA3N_WIDTH_SHIFT];
	const struct oom_dim ff = {w, "intermediate_size"}, h = {x.width, x.text};
	struct oom_frame f = {.t = t};
	struct oom_val g, up;

	if (!(kind & GEMMA3N_SPARSE))
		return oom_gated_mlp(t, x, a->act, ff, false);
	x = oom_arg(&f, x);
	g = oom_name(&f, gaussian_topk(t, oom_op_linear(t, "gate_proj", x, ff, 0)));
	g = oom_activation(t, a->act, g);
	up = oom_op_linear(t, "up_proj", x, ff, 0);
	return oom_leave(&f, oom_op_linear(t, "down_proj", oom_op_mul(t, g, up), h, 0));
}

/* norm(projection(act(gate(x)) * this layer's input)) */
static struct oom_val per_layer_input(struct oom_tape *t, const struct gemma3n_layer *l,
				      struct oom_val x)
{
	const struct oom_arch *a = l->base.a;
	const struct oom_dim p = {gemma3n_of(a)->per_layer, "hidden_size_per_layer_input"},
			     h = {a->d_model, "d_model"};
	struct oom_val in = oom_op_slice(t, l->per_layer, x.mono, p), y;

	y = oom_activation(t, a->act, oom_op_linear(t, "per_layer_input_gate", x, p, 0));
	y = oom_op_linear(t, "per_layer_projection", oom_op_mul(t, y, in), h, 0);
	return oom_norm(t, a->norm, "post_per_layer_input_norm", y, 0);
}

/* All of the layer's tensors have names until it returns. */
static struct oom_val gemma3n_block(struct oom_tape *t, const void *ctx, uint32_t i,
				    struct oom_val x)
{
	const struct gemma3n_layer *l = ctx;
	const struct oom_arch *a = l->base.a;
	const struct oom_dim h = {a->d_model, "d_model"};
	const size_t router = t->cursor;
	struct oom_frame f = {.t = t};
	struct oom_val pred, active, normed, laurel, attn, sum, y, out;

	pred = oom_name(&f, gemma3n_predict(t, a, x));
	oom_buffer(t, 1, OOM_F32);
	active = oom_name(&f, oom_op_slice(t, pred, pred.mono, h));
	normed = oom_name(&f, oom_norm(t, a->norm, "input_layernorm", active, 0));
	laurel = oom_op_linear(t, "linear_left", normed,
			       (struct oom_dim){gemma3n_of(a)->laurel, "laurel_rank"}, 0);
	laurel = oom_op_linear(t, "linear_right", laurel, h, 0);
	laurel = oom_norm(t, a->norm, "post_laurel_norm", laurel, 0);
	laurel = oom_name(&f, oom_op_add(t, normed, laurel));
	attn = oom_norm(t, a->norm, "post_attention_layernorm", gemma3n_attention(&f, l, i, normed),
			0);
	attn = oom_name(&f, attn);
	sum = oom_name(&f, oom_op_add(t, active, attn));        /* attn_gated */
	sum = oom_name(&f, oom_op_unary(t, OOM_SCALE, oom_op_add(t, sum, laurel)));
	y = feed_forward(t, l, i, oom_norm(t, a->norm, "pre_feedforward_layernorm", sum, 0));
	y = oom_name(&f, oom_norm(t, a->norm, "post_feedforward_layernorm", y, 0));
	y = oom_name(&f, oom_op_add(t, sum, y));
	out = oom_name(&f, gemma3n_correct(t, a, pred, y, router));
	y = oom_op_copy(t, "clone", oom_op_slice(t, out, out.mono, h));
	t->scope = "altup";
	y = oom_op_mul(t, y, oom_param(t, "correct_output_scale", 0, a->d_model, 0));
	y = per_layer_input(t, l, y);
	/* corrected_predictions[1:] += first: two copies of the gradient (CopySlices) */
	out = oom_op_masked_inplace(t, out, oom_none());
	return oom_leave(&f, oom_op_add_inplace(t, out, y));
}

/* (norm(projection(x)) + second embedding) scaled: what every layer takes its part of */
static struct oom_val per_layer_inputs(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val x)
{
	const struct gemma3n *g = gemma3n_of(a);
	const struct oom_dim w = {oom_depth(t, a->n_layers) * g->per_layer,
				  "n_layers * hidden_size_per_layer_input"};
	struct oom_val second, y, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct oom_frame f = {.t = t};

	second = oom_op_embedding(t, "embed_tokens_per_layer", ids, g->ple_vocab, w, 0);
	oom_buffer(t, 1, x.dt);
	second = oom_name(&f, oom_op_unary(t, OOM_SCALE, second));
	y = oom_op_linear(t, "per_layer_model_projection", x, w, 0);
	y = oom_op_masked_inplace(t, y, oom_none());
	y = oom_name(&f, oom_norm(t, a->norm, "per_layer_projection_norm", y, g->per_layer));
	return oom_leave(&f, oom_op_unary(t, OOM_SCALE, oom_op_add(t, y, second)));
}

static void find_shared(struct oom_tape *t, struct gemma3n_layer *l)
{
	const struct oom_arch *a = l->base.a;
	const struct gemma3n_kept none = {{oom_none(), oom_none()}, {oom_none(), oom_none()}};
	const uint64_t n = oom_depth(t, a->n_layers), last = gemma3n_of(a)->shared_kv,
		       shared = last < n ? last : 0;

	/* the tape's own copy lives as long as the recording */
	l->kept = oom_layer_ctx(t, &none, sizeof(none));
	l->first_shared = shared ? (uint32_t)(n - shared) : UINT32_MAX;
	l->store[0] = l->store[1] = UINT32_MAX;
	for (uint32_t i = 0; i < n - shared && i < OOM_MAX_LAYERS; i++)
		l->store[(a->kind[i] & GEMMA3N_SLIDES) != 0] = i;
}

static struct oom_val run(struct oom_tape *t, struct gemma3n_layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->base.a;
	const uint32_t n = (uint32_t)oom_depth(t, a->n_layers);
	const struct gemma3n_layer *ctx;

	if (!l->kept)
		return x;
	if (l->first_shared == UINT32_MAX)
		return oom_layers(t, n, a->kind, gemma3n_block, l, x);
	ctx = oom_layer_ctx(t, l, sizeof(*l));
	if (t->plan->grad_ckpt != OOM_CKPT_NONE)
		/* the gradient into shared keys and values is left out */
		t->approximate = true;
	for (uint32_t i = 0; i < n; i++)
		x = oom_layer_alone(t, i, gemma3n_block, ctx, x);
	return x;
}

static struct oom_val gemma3n_model(struct oom_tape *t, const struct oom_arch *a,
				    struct oom_val *embed)
{
	const struct oom_rope none = {oom_none(), oom_none()};
	/* of the model, and of the list temp_hidden_states */
	struct oom_frame f = {.t = t}, parts = {.t = t};
	struct gemma3n_layer l = {.base = {.a = a, .rope = none, .local = none, .mask = none.cos,
					   .sliding = none.cos}, .model = &f};
	struct oom_val x, first, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	*embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *embed, ids, a->vocab, D(a->d_model));
	dt = x.dt;
	oom_buffer(t, 1, dt);
	first = oom_name(&f, oom_input_grads(t, oom_op_unary(t, OOM_SCALE, x)));
	l.per_layer = oom_name_shared(&f, per_layer_inputs(t, a, first));
	oom_decoder_masks(&f, &l.base, GEMMA3N_SLIDES, a->window, dt);
	x = gemma3n_streams(&parts, a, first);
	if (oom_any_layer(t, a, GEMMA3N_SLIDES, 0))
		l.base.rope = oom_name_tables(&f, oom_rope_tables(t, a->head_dim, dt, 2));
	if (oom_any_layer(t, a, GEMMA3N_SLIDES, GEMMA3N_SLIDES))
		l.base.local = oom_name_tables(&f, oom_rope_tables(t, a->head_dim, dt, 2));
	find_shared(t, &l);
	x = oom_leave(&parts, gemma3n_joined(t, a, run(t, &l, x)));
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

static struct oom_val gemma3n_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x = gemma3n_model(t, a, &embed);

	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_gemma3n = {
	.name = "gemma3n",
	.summary = "Gemma with inputs for every layer, alternating updates and shared keys and "
		   "values",
	.source = "transformers 5.12 models/gemma3n/modeling_gemma3n.py",
	.types = OOM_TYPE("gemma3n_text"),
	.norm = OOM_NORM_RMS_FP32_W,
	.lora_targets = "q_proj+v_proj",
	.keys = gemma3n_keys,
	.parse = gemma3n_parse,
	.step = gemma3n_step,
};
