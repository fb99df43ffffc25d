/* The step of plain causal decoders.  Reference: transformers 5.12, models/llama/modeling_llama.py
 * LlamaModel.forward, LlamaForCausalLM.forward, whose shape the others copy. */
#include "decoder.h"

void oom_decoder_shares(struct oom_frame *f, const struct oom_arch *a, const struct oom_decoder *d,
			struct oom_decoder_layer *l, enum oom_dtype dt)
{
	const uint64_t window = d->window ? a->window : 0,
		       dim = d->rope_part ? oom_rot_dim(a) : a->head_dim;
	struct oom_tape *t = f->t;

	l->mask = oom_name_shared(f, oom_causal_mask(t, window, dt));
	if (d->rope || d->rope_part)
		l->rope = oom_name_tables(f, oom_rope_tables(t, dim, dt, 2));
}

void oom_decoder_masks(struct oom_frame *f, struct oom_decoder_layer *l, uint8_t bit, bool some,
		       enum oom_dtype dt)
{
	const struct oom_arch *a = l->a;
	struct oom_tape *t = f->t;

	l->mask = oom_name_for(f, oom_causal_mask(t, 0, dt), oom_any_layer(t, a, bit, 0));
	if (some)
		l->sliding = oom_name_for(f, oom_causal_mask(t, a->window, dt),
					  oom_any_layer(t, a, bit, bit));
}

struct oom_val oom_plain_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
				   uint8_t kind, struct oom_val x)
{
	struct oom_attn at = oom_layer_attn(layer->t, l, false);

	(void)kind;
	at.caller = layer;
	return oom_attention(layer->t, &at, x);
}

struct oom_val oom_plain_layer(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_decoder *d = l->d;
	const struct oom_arch *a = l->a;
	const uint8_t kind = oom_layer_kind(a, i);
	struct oom_frame f = {.t = t};
	struct oom_val h;

	h = oom_norm(t, a->norm, d->norms[0] ? d->norms[0] : "input_layernorm", x, 0);
	h = d->mixer ? d->mixer(&f, l, kind, h) : oom_plain_attention(&f, l, kind, h);
	x = oom_name(&f, oom_op_add(t, x, h));
	h = oom_norm(t, a->norm, d->norms[1] ? d->norms[1] : "post_attention_layernorm", x, 0);
	h = d->feed_forward ? d->feed_forward(&f, l, kind, h) :
			      oom_gated_mlp(t, h, a->act, D(a->d_ff), a->mlp_bias);
	return oom_leave(&f, oom_op_add(t, x, h));
}

/* Which layers are alike; buf: room for an answer of the decoder's own. */
static const uint8_t *kinds_of(struct oom_tape *t, const struct oom_arch *a,
			       const struct oom_decoder *d, uint32_t depth, uint8_t buf[OOM_MAX_LAYERS])
{
	if (d->kinds && !d->kind_of)
		return a->kind;
	if (!d->kind_of && !d->last_apart)
		return NULL;
	for (uint32_t i = 0; i < depth && i < OOM_MAX_LAYERS; i++)
		buf[i] = d->kind_of ? d->kind_of(t, a, i) : i + 1 == depth;
	return buf;
}

struct oom_val oom_decoder_model(struct oom_tape *t, const struct oom_arch *a,
				 const struct oom_decoder *d, struct oom_val *embed)
{
	union {
		struct oom_decoder_layer base;
		_Alignas(max_align_t) unsigned char room[OOM_CTX_BYTES];
	} l = {.base = {.a = a, .d = d, .mask = oom_none(), .sliding = oom_none(), .bias = oom_none(),
			.rope = {oom_none(), oom_none()}, .local = {oom_none(), oom_none()}}};
	const uint64_t width = a->d_embed ? a->d_embed : a->d_model;
	const size_t size = d->layer_size ? d->layer_size : sizeof(l.base);
	const uint64_t rows = a->vocab + d->more_rows, all = oom_depth(t, a->n_layers);
	const uint32_t depth = (uint32_t)(!d->passed ? all : all > d->passed ? all - d->passed : 1);
	uint8_t kinds[OOM_MAX_LAYERS];
	struct oom_frame f = {.t = t};
	struct oom_val x, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	t->scope = d->embed;
	*embed = oom_param(t, "weight", rows, width, OOM_P_EMBEDDING);
	l.base.table = embed->dt;
	x = oom_op_embedding_param(t, *embed, ids, rows,
				   a->d_embed ? D(a->d_embed) : D(a->d_model));
	if (d->scaled_embed)
		x = oom_op_unary(t, OOM_SCALE, x);
	if (d->gemma_embed)
		x = oom_scaled_embedding(t, x);
	x = oom_input_grads(t, x);
	if (d->multiplied)
		x = oom_op_unary(t, OOM_SCALE, x);
	x = oom_name(&f, x);
	if (d->position_ids) {                  /* the layers' argument, and a name of the model */
		ids = oom_name_shared(&f, oom_position_ids(t));
		oom_name(&f, ids);
	}
	if (d->prepare)
		x = d->prepare(&f, a, &l.base, x);
	else if (!d->bare)
		oom_decoder_shares(&f, a, d, &l.base, (enum oom_dtype)x.dt);
	x = oom_layers_sized(t, depth, kinds_of(t, a, d, depth, kinds),
			     d->block ? d->block : oom_plain_layer, &l, size, x);
	if (d->finish || d->norm)
		x = d->finish ? d->finish(t, a, x) : oom_norm(t, a->norm, d->norm, x, 0);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

struct oom_val oom_decoder_step(struct oom_tape *t, const struct oom_arch *a,
				const struct oom_decoder *d)
{
	struct oom_val embed, x = oom_decoder_model(t, a, d, &embed);

	return oom_causal_head(t, a, x, embed, d->head ? d->head : "lm_head");
}
