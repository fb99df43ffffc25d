/* Gemma 3n's text decoder: a second embedding feeds every layer, layers predict and correct four
 * streams (AltUp) beside a low-rank residual (Laurel), and the last ones take their keys and values
 * from an earlier one. Reference: transformers 5.12, models/gemma3n/modeling_gemma3n.py. */
#include <stdio.h>
#include <string.h>

#include "blocks/blocks.h"

enum { PER_LAYER, PLE_VOCAB, SHARED_KV, LAUREL, ALTUP, WIDTHS, MAX_WIDTHS = 8 };
enum { SLIDES = 1, SPARSE = 2, WIDTH_SHIFT = 2 };       /* of kind[] */

/* Gemma 3n gives a width for every layer: kind[] tells them apart. */
static void parse_widths(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "intermediate_size");
	uint64_t n = 0;

	if (!k || k->type != OOM_KEY_LIST) {
		a->d_ff = a->extra[WIDTHS] = oom_read_count(r, "intermediate_size", 1);
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
		while (j < n && a->extra[WIDTHS + j] != (uint64_t)w)
			j++;
		if (j == MAX_WIDTHS) {
			oom_read_fail(r, "intermediate_size has more than %d different widths",
				      MAX_WIDTHS);
			return;
		}
		n += j == n;
		a->extra[WIDTHS + j] = (uint64_t)w;
		a->kind[i] |= (uint8_t)(j << WIDTH_SHIFT);
	}
	a->d_ff = a->extra[WIDTHS];
}

static void parse_layers(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *sparsity = oom_read_key(r, "activation_sparsity_pattern");

	for (uint64_t i = 0; i < a->n_layers && i < OOM_MAX_LAYERS; i++) {
		const char *type = oom_read_item(r, "layer_types", (uint32_t)i);
		const bool slides = type ? !strcmp(type, "sliding_attention") : (i + 1) % 5 != 0;

		if (slides)
			a->kind[i] |= SLIDES;
		if (sparsity && sparsity->type == OOM_KEY_LIST ?
			    oom_read_item_real(r, "activation_sparsity_pattern", (uint32_t)i, 0) >
				    0 :
			    a->n_layers > 10 && i < 10)
			a->kind[i] |= SPARSE;
	}
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->norm = OOM_NORM_RMS_FP32_W;
	a->vocab = oom_read_count(r, "vocab_size", 1);
	a->d_model = oom_read_count(r, "hidden_size", 1);
	a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	a->n_heads = oom_read_count(r, "num_attention_heads", 1);
	a->n_kv_heads = oom_read_count_or(r, "num_key_value_heads", a->n_heads);
	a->head_dim = oom_read_count_or(r, "head_dim", a->d_model / a->n_heads);
	a->max_positions = oom_read_count_or(r, "max_position_embeddings", 0);
	a->act = oom_read_act(r, "hidden_activation", "gelu_pytorch_tanh");
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	a->qkv_bias = a->o_bias = oom_read_bool(r, "attention_bias", false);
	a->attn_dropout = oom_read_real(r, "attention_dropout", 0);
	a->softcap_logits = oom_read_real(r, "final_logit_softcapping", 0);
	a->window = oom_read_count_or(r, "sliding_window", 0);
	a->extra[PER_LAYER] = oom_read_count_or(r, "hidden_size_per_layer_input", 0);
	a->extra[PLE_VOCAB] = oom_read_count_or(r, "vocab_size_per_layer_input", a->vocab);
	a->extra[SHARED_KV] = oom_read_count_or(r, "num_kv_shared_layers", 0);
	a->extra[LAUREL] = oom_read_count(r, "laurel_rank", 1);
	a->extra[ALTUP] = oom_read_count(r, "altup_num_inputs", 1);
	if (!a->n_kv_heads || !a->head_dim || a->extra[ALTUP] > 64 || !a->extra[PER_LAYER]) {
		oom_read_fail(r,
			      "%s: num_key_value_heads, head_dim, altup_num_inputs (at most 64) "
			      "and "
			      "hidden_size_per_layer_input do not describe a model",
			      a->model_type);
		return;
	}
	parse_layers(a);
	parse_widths(a);
}

/* shared_kv_states: keys and values of the last layer of each kind that made its own (full,
 * sliding), held by the model's forward whether anyone shares them or not. */
struct kept {
	struct oom_val k[2], v[2];
};

struct layer {
	const struct oom_arch *a;
	struct oom_rope rope[2];        /* full, sliding */
	struct oom_val mask[2];
	struct oom_val per_layer;       /* [b, s, layers * width] */
	struct kept *kept;
	uint32_t first_shared, store[2];
};

static struct oom_val spread(struct oom_tape *t, struct oom_val x, const struct oom_rope *r,
			     uint64_t heads, uint64_t d)
{
	struct oom_val y = oom_rope_apply(t, oom_keep(x), r, heads, d, d);

	oom_drop(t, x);
	return oom_op_heads(t, y);
}

/* Keys and values of a layer, or those another one left: no weights then. */
static void keys_values(struct oom_tape *t, const struct layer *l, uint32_t i, bool slides,
			struct oom_val x, uint64_t heads, uint64_t d, struct oom_val *k,
			struct oom_val *v)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim kd = {heads * d, "n_kv_heads * head_dim"};
	const unsigned bias = a->qkv_bias ? OOM_BIAS : 0;

	if (i >= l->first_shared) {
		*k = oom_share(t, l->kept->k[slides]);
		*v = oom_share(t, l->kept->v[slides]);
		return;
	}
	*k = oom_op_linear(t, "k_proj", oom_keep(x), kd, bias);
	*k = spread(t, oom_norm(t, a->norm, "k_norm", *k, d), &l->rope[slides], heads, d);
	*v = oom_op_linear(t, "v_proj", oom_keep(x), kd, bias);
	*v = oom_op_heads(t, oom_norm(t, OOM_NORM_RMS_PLAIN, "v_norm", *v, d));
	if (i == l->store[slides] && !t->recompute) {
		l->kept->k[slides] = oom_share(t, *k);
		l->kept->v[slides] = oom_share(t, *v);
		/* each layer is recomputed by itself */
		if (t->plan->grad_ckpt != OOM_CKPT_NONE)
			l->kept->k[slides].rg = l->kept->v[slides].rg = false;
	}
}

static struct oom_val attention(struct oom_tape *t, const struct layer *l, uint32_t i,
				struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const bool slides = i < OOM_MAX_LAYERS && a->kind[i] & SLIDES;
	const uint64_t d = a->head_dim;
	const struct oom_dim h = {x.width, x.text}, qd = {a->n_heads * d, "n_heads * head_dim"};
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val q, k, v, local[3];

	at.d = at.dv = d;
	at.kv_heads = a->n_kv_heads;
	at.layer_names_weights = true;
	at.mask = l->mask[slides];
	q = oom_op_linear(t, "q_proj", oom_keep(x), qd, a->qkv_bias ? OOM_BIAS : 0);
	q = spread(t, oom_norm(t, a->norm, "q_norm", q, d), &l->rope[slides], a->n_heads, d);
	keys_values(t, l, i, slides, x, at.kv_heads, d, &k, &v);
	local[0] = oom_share(t, q);
	local[1] = oom_share(t, k);
	local[2] = oom_share(t, v);
	q = oom_attention_core(t, &at, q, k, v);
	q = oom_op_linear(t, "o_proj", q, h, a->o_bias ? OOM_BIAS : 0);
	for (int j = 0; j < 3; j++)
		oom_drop(t, local[j]);
	oom_done(t, x);
	return q;
}

/* relu(gate - (mean + factor * std)): what lies above the quantile of a normal distribution
 * (Gemma 3n). */
static struct oom_val gaussian_topk(struct oom_tape *t, struct oom_val x)
{
	struct oom_val m = oom_op_mean(t, oom_keep(x), x.mono, D(1)), s;
	const bool rg = t->grad && x.rg;
	int32_t n = -1;

	if (rg) {                               /* std keeps its input and its result */
		n = oom_node(t, OOM_NODE_MEAN, "std");
		oom_node_edge(t, n, x);
		oom_node_save(t, n, x);
	}
	s = oom_new(t, "std", x.mono, D(1), (enum oom_dtype)x.dt);
	if (rg) {
		s = oom_node_out(t, n, 0, s);
		oom_node_save(t, n, s);
	}
	s = oom_op_add(t, m, oom_op_unary(t, OOM_SCALE, s));
	s = oom_op_add(t, oom_keep(x), s);
	oom_done(t, x);
	return oom_op_unary(t, OOM_RELU, s);
}

static struct oom_val feed_forward(struct oom_tape *t, const struct layer *l, uint32_t i,
				   struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint8_t kind = i < OOM_MAX_LAYERS ? a->kind[i] : 0;
	const uint64_t w = a->extra[WIDTHS + (kind >> WIDTH_SHIFT)];
	const struct oom_dim ff = {w, "intermediate_size"}, h = {x.width, x.text};
	struct oom_val g, act, up;

	if (!(kind & SPARSE))
		return oom_gated_mlp(t, x, a->act, ff, false);
	g = gaussian_topk(t, oom_op_linear(t, "gate_proj", oom_keep(x), ff, 0));
	act = oom_activation(t, a->act, oom_keep(g));
	up = oom_op_linear(t, "up_proj", oom_keep(x), ff, 0);
	act = oom_op_linear(t, "down_proj", oom_op_mul(t, act, up), h, 0);
	oom_drop(t, g);
	oom_done(t, x);
	return act;
}

/* norm(projection(act(gate(x)) * this layer's input)) */
static struct oom_val per_layer_input(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_dim p = {a->extra[PER_LAYER], "hidden_size_per_layer_input"},
			     h = {a->d_model, "d_model"};
	struct oom_val in = oom_op_slice(t, oom_keep(l->per_layer), x.mono, p), y;

	y = oom_activation(t, a->act, oom_op_linear(t, "per_layer_input_gate", x, p, 0));
	y = oom_op_linear(t, "per_layer_projection", oom_op_mul(t, y, in), h, 0);
	return oom_norm(t, a->norm, "post_per_layer_input_norm", y, 0);
}

/* One module, called twice: the second time with the parameters it has (`again`: where they
 * begin). */
static struct oom_val modalities(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				 const size_t *again)
{
	const size_t cursor = t->cursor;
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const struct oom_dim n = {a->extra[ALTUP], "altup_num_inputs"};
	struct oom_val y;

	if (again)
		t->cursor = *again;
	y = oom_op_unary(t, OOM_SCALE, oom_norm(t, a->norm, "router_norm", x, 0));
	y = oom_op_linear(t, "modality_router", y, n, 0);
	if (again)
		t->cursor = cursor;
	return oom_op_cast(t, oom_op_unary(t, OOM_TANH, oom_op_cast(t, y, OOM_F32)), dt);
}

/* streams @ coefficients + streams */
static struct oom_val predict(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const uint64_t n = a->extra[ALTUP];
	const struct oom_dim one = {a->d_model, "d_model"}, all = {x.width, x.text},
			     square = {n * n, "altup_num_inputs ^ 2"};
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val c, m, p;

	m = modalities(t, a, oom_op_slice(t, oom_keep(x), x.mono, one), NULL);
	c = oom_op_linear(t, "prediction_coefs", oom_keep(m), square, 0);
	p = oom_op_bmm(t, "predictions", oom_keep(x), oom_keep(c), x.mono, all, n);
	p = oom_op_add_inplace(t, p, x);
	p = oom_op_cast(t, oom_op_copy(t, "contiguous", p), dt);
	oom_drop(t, c);
	oom_drop(t, m);
	return p;
}

/* predictions + (activated - predictions[0]) * coefficients */
static struct oom_val correct(struct oom_tape *t, const struct oom_arch *a, struct oom_val pred,
			      struct oom_val activated, size_t router)
{
	const struct oom_dim one = {a->d_model, "d_model"},
			     n = {a->extra[ALTUP], "altup_num_inputs"},
			     all = {pred.width, pred.text};
	struct oom_val m = modalities(t, a, oom_keep(activated), &router), w, c, in;

	in = oom_op_add(t, activated, oom_op_slice(t, oom_keep(pred), pred.mono, one));
	in = oom_op_expand_copy(t, in, pred.mono, all);         /* repeat */
	t->scope = "correction_coefs";
	w = oom_param(t, "weight", n.n, n.n, OOM_P_LINEAR);
	if (t->train)
		w = oom_op_unary(t, OOM_CLAMP, w);
	c = oom_op_matmul_param(t, "correction_coefs", oom_keep(m), w, oom_none(), n);
	c = oom_op_unary(t, OOM_ADD_SCALAR, c);
	c = oom_op_mul(t, in, c);
	oom_drop(t, m);
	return oom_op_add_inplace(t, c, pred);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct oom_dim h = {a->d_model, "d_model"};
	const size_t router = t->cursor;
	struct oom_val pred = predict(t, a, oom_keep(x)), active, normed, laurel, attn, gated, sum,
		       ff, out, first;

	oom_buffer(t, 1, OOM_F32);
	active = oom_op_slice(t, oom_keep(pred), pred.mono, h);
	normed = oom_norm(t, a->norm, "input_layernorm", oom_keep(active), 0);
	laurel = oom_op_linear(t, "linear_left", oom_keep(normed),
			       (struct oom_dim){a->extra[LAUREL], "laurel_rank"}, 0);
	laurel = oom_norm(t, a->norm, "post_laurel_norm",
			  oom_op_linear(t, "linear_right", laurel, h, 0), 0);
	laurel = oom_op_add(t, oom_keep(normed), laurel);
	attn = oom_norm(t, a->norm, "post_attention_layernorm",
			attention(t, l, i, oom_keep(normed)), 0);
	gated = oom_op_add(t, oom_keep(active), oom_keep(attn));
	sum = oom_op_unary(t, OOM_SCALE, oom_op_add(t, oom_keep(gated), oom_keep(laurel)));
	ff = feed_forward(t, l, i,
			  oom_norm(t, a->norm, "pre_feedforward_layernorm", oom_keep(sum), 0));
	ff = oom_norm(t, a->norm, "post_feedforward_layernorm", ff, 0);
	out = oom_op_add(t, oom_keep(sum), oom_keep(ff));
	first = out;
	out = correct(t, a, oom_keep(pred), oom_keep(first), router);
	{                                       /* the layer's locals live until it returns */
		const struct oom_val local[] = {pred,  active, normed, laurel, attn,
						gated, sum,    ff,     first};

		first = oom_op_copy(t, "clone", oom_op_slice(t, oom_keep(out), out.mono, h));
		t->scope = "altup";
		first = oom_op_mul(t, first,
				   oom_param(t, "correct_output_scale", 0, a->d_model, 0));
		first = per_layer_input(t, l, first);
		/* corrected_predictions[1:] += first: two copies of the gradient (CopySlices) */
		out = oom_op_masked_inplace(t, out, oom_none());
		out = oom_op_add_inplace(t, out, first);
		for (size_t j = 0; j < sizeof(local) / sizeof(local[0]); j++)
			oom_drop(t, local[j]);
	}
	oom_done(t, x);
	return out;
}

/* A stream of the same magnitude: x * target / sqrt(max(mean(x^2), eps)). */
static struct oom_val rescaled(struct oom_tape *t, struct oom_val x, struct oom_val target)
{
	struct oom_val m = oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, oom_keep(x)), x.mono, D(1));

	m = oom_op_unary(t, OOM_SQRT, oom_op_unary(t, OOM_MAXIMUM, m));
	return oom_op_div(t, oom_op_mul(t, x, oom_keep(target)), m);
}

static struct oom_val magnitude(struct oom_tape *t, struct oom_val x)
{
	return oom_op_unary(t, OOM_POW,
			    oom_op_mean(t, oom_op_unary(t, OOM_SQUARE, x), x.mono, D(1)));
}

/* torch.stack of the parts: one storage made at once, a chain of joins only to autograd. */
static struct oom_val stacked(struct oom_tape *t, const struct oom_arch *a,
			      const struct oom_val *part)
{
	const uint64_t n = a->extra[ALTUP];
	struct oom_val y = oom_share(t, part[0]), v;

	for (uint64_t i = 1; i < n; i++) {
		const struct oom_dim w = {(i + 1) * a->d_model, "altup_num_inputs * d_model"};

		if (i + 1 == n) {
			y = oom_op_cat(t, y, oom_keep(part[i]), w);
		} else {
			v = (struct oom_val){.sto = -1,
					     .node = -1,
					     .mono = y.mono,
					     .width = w.n,
					     .text = w.text,
					     .dt = y.dt};
			if (t->grad && (y.rg || part[i].rg)) {
				const int32_t node = oom_node(t, OOM_NODE_CAT, "stack");

				oom_node_edge(t, node, y);
				oom_node_edge(t, node, part[i]);
				v = oom_node_out(t, node, 0, v);
			}
			oom_drop(t, y);
			y = v;
		}
	}
	return y;
}

static struct oom_val streams(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			      struct oom_val *part)
{
	struct oom_val target = magnitude(t, oom_keep(x));

	part[0] = x;
	for (uint64_t i = 1; i < a->extra[ALTUP]; i++)
		part[i] = rescaled(t,
				   oom_op_linear(t, "altup_projections", oom_keep(x), D(a->d_model),
						 0),
				   target);
	oom_drop(t, target);
	return stacked(t, a, part);
}

static struct oom_val joined(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct oom_dim h = D(a->d_model);
	struct oom_val part[64], target = magnitude(t, oom_op_slice(t, oom_keep(x), x.mono, h));

	part[0] = oom_op_slice(t, oom_keep(x), x.mono, h);
	for (uint64_t i = 1; i < a->extra[ALTUP]; i++)
		part[i] = rescaled(t,
				   oom_op_linear(t, "altup_unembed_projections",
						 oom_op_slice(t, oom_keep(x), x.mono, h), h, 0),
				   target);
	oom_drop(t, target);
	oom_drop(t, x);
	x = oom_op_mean(t, stacked(t, a, part), x.mono, h);
	for (uint64_t i = 0; i < a->extra[ALTUP]; i++)
		oom_drop(t, part[i]);
	return x;
}

/* (norm(projection(x)) + second embedding) scaled: what every layer takes its part of */
static struct oom_val per_layer_inputs(struct oom_tape *t, const struct oom_arch *a,
				       struct oom_val x, struct oom_val second)
{
	const uint64_t p = a->extra[PER_LAYER];
	struct oom_val y = oom_op_linear(t, "per_layer_model_projection", oom_keep(x),
					 (struct oom_dim){second.width, second.text}, 0),
		       z;

	y = oom_op_masked_inplace(t, y, oom_none());
	y = oom_norm(t, a->norm, "per_layer_projection_norm", y, p);
	z = oom_op_unary(t, OOM_SCALE, oom_op_add(t, oom_keep(y), oom_keep(second)));
	oom_drop(t, y);
	oom_drop(t, second);
	return z;
}

static void find_shared(struct oom_tape *t, struct layer *l)
{
	const struct oom_arch *a = l->a;
	const struct kept none = {{oom_none(), oom_none()}, {oom_none(), oom_none()}};
	const uint64_t n = oom_depth(t, a->n_layers),
		       shared = a->extra[SHARED_KV] < n ? a->extra[SHARED_KV] : 0;

	/* the tape's own copy lives as long as the recording */
	l->kept = oom_layer_ctx(t, &none, sizeof(none));
	l->first_shared = shared ? (uint32_t)(n - shared) : UINT32_MAX;
	l->store[0] = l->store[1] = UINT32_MAX;
	for (uint32_t i = 0; i < n - shared && i < OOM_MAX_LAYERS; i++)
		l->store[(a->kind[i] & SLIDES) != 0] = i;
}

static struct oom_val run(struct oom_tape *t, struct layer *l, struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const uint32_t n = (uint32_t)oom_depth(t, a->n_layers);
	const struct layer *ctx;

	if (!l->kept)
		return x;
	if (l->first_shared == UINT32_MAX)
		return oom_layers(t, n, a->kind, block, l, x);
	ctx = oom_layer_ctx(t, l, sizeof(*l));
	if (t->plan->grad_ckpt != OOM_CKPT_NONE)
		/* the gradient into shared keys and values is left out */
		t->approximate = true;
	for (uint32_t i = 0; i < n; i++)
		x = oom_layer_alone(t, i, block, ctx, x);
	return x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct oom_dim p = {a->n_layers * a->extra[PER_LAYER],
				  "n_layers * hidden_size_per_layer_input"};
	struct oom_val embed, x, first, second, part[64],
		ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct layer l = {.a = a,
			  .per_layer = oom_none(),
			  .rope = {{oom_none(), oom_none()}, {oom_none(), oom_none()}}};
	enum oom_dtype dt;

	t->scope = "embed_tokens";
	embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, embed, ids, a->vocab, D(a->d_model));
	dt = (enum oom_dtype)x.dt;
	oom_buffer(t, 1, dt);
	x = oom_input_grads(t, oom_op_unary(t, OOM_SCALE, x));
	first = oom_share(t, x);
	second = oom_op_embedding(t, "embed_tokens_per_layer", ids, a->extra[PLE_VOCAB],
				  (struct oom_dim){oom_depth(t, a->n_layers) * a->extra[PER_LAYER],
						   p.text},
				  0);
	oom_buffer(t, 1, dt);
	l.per_layer = per_layer_inputs(t, a, x, oom_op_unary(t, OOM_SCALE, second));
	l.mask[0] = oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s);
	l.mask[1] = a->window ? oom_make_mask(t, true, a->window, dt, t->m_b, t->m_s, t->m_s) :
				oom_none();
	x = streams(t, a, x, part);
	if (oom_any_layer(t, a, SLIDES, 0))
		l.rope[0] = oom_rope_tables(t, a->head_dim, dt, 2);
	if (oom_any_layer(t, a, SLIDES, SLIDES))
		l.rope[1] = oom_rope_tables(t, a->head_dim, dt, 2);
	find_shared(t, &l);
	x = run(t, &l, x);
	x = joined(t, a, x);
	for (uint64_t i = 0; i < a->extra[ALTUP]; i++)
		oom_drop(t, part[i]);
	for (int i = 0; i < 2; i++) {
		oom_drop_shared(t, l.rope[i].cos);
		oom_drop_shared(t, l.rope[i].sin);
		oom_drop_shared(t, l.mask[i]);
		if (l.kept) {
			oom_drop_shared(t, l.kept->k[i]);
			oom_drop_shared(t, l.kept->v[i]);
		}
	}
	oom_drop_shared(t, l.per_layer);
	x = oom_norm(t, a->norm, "norm", x, 0);
	oom_drop(t, first);
	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_gemma3n = {
	.name = "gemma3n",
	.summary = "Gemma with inputs for every layer, alternating updates and shared keys and "
		   "values",
	.source = "transformers 5.12 models/gemma3n/modeling_gemma3n.py",
	.types = OOM_TYPE("gemma3n_text"),
	.lora_targets = "q_proj+v_proj",
	.parse = parse,
	.step = step,
};
